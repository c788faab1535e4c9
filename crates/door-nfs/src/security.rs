//! Which security flavors clients may come with, and Kerberos for those that are GSS (RFC 8881 §2.2.1).
//!
//! Every listener admits every flavor at the RPC layer: clients are found, sessions made and SECINFO asked with what a
//! client has. Files are reached with a flavor of their export only; else the operation that sets the file handle gets
//! WRONGSEC (RFC 8881 §2.6.3.1).

mod contexts;
#[cfg(test)]
pub(crate) mod fixture;
mod flavors;
mod refusals;

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use gss::{Acceptor, Entropy, Keytab, NoServiceKey};
use parking_lot::Mutex;
use thiserror::Error;
use types::{Clock, Identity, Random};

use crate::asking::{Asking, NamesUnavailable};

use contexts::Contexts;
pub use contexts::SecurityStatus;
pub(crate) use contexts::{Established, Found};
pub(crate) use flavors::meets;
pub use flavors::{Flavor, Flavors};
use refusals::Refusals;

/// For the user of a context, looked up once for hours: worth some waiting, but less than clients wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// The users of the local system. Asked in a thread of its own: the answer may come from far away.
pub trait LocalUsers: Send + Sync {
    /// Ids and groups of a user; `None` if there is none of this name.
    fn identity(&self, user: &str) -> Result<Option<Identity>, NamesUnavailable>;
}

/// Why a client gets no context.
#[derive(Debug, Error)]
pub(crate) enum ContextError {
    #[error(transparent)]
    Ticket(#[from] gss::AcceptError),
    #[error("look up user: {0}")]
    User(#[from] NamesUnavailable),
}

impl ContextError {
    /// `major_status` and `minor_status`, as [`gss::AcceptError::status`].
    pub fn status(&self) -> (u32, u32) {
        // GSS_S_FAILURE (RFC 2744 §3.9.1): another try may do better.
        const FAILURE: u32 = 13 << 16;
        match self {
            ContextError::Ticket(error) => error.status(),
            ContextError::User(NamesUnavailable) => (FAILURE, 0),
        }
    }
}

/// Security state shared by the listeners of head and pools. Each export decides itself which flavors it takes.
pub struct Security {
    kerberos: Option<Kerberos>,
}

impl Security {
    /// Without Kerberos.
    pub fn sys() -> Arc<Security> {
        Arc::new(Security { kerberos: None })
    }

    pub fn with_kerberos(kerberos: Kerberos) -> Arc<Security> {
        Arc::new(Security { kerberos: Some(kerberos) })
    }

    pub fn status(&self) -> SecurityStatus {
        self.kerberos.as_ref().map(Kerberos::status).unwrap_or_default()
    }

    pub fn kerberos(&self) -> Option<&Kerberos> {
        self.kerberos.as_ref()
    }
}

/// The keys of this service, the contexts of its clients, and who they are here.
pub struct Kerberos {
    acceptor: Mutex<Acceptor>,
    /// Leaf lock, as is the one above.
    contexts: Mutex<Contexts>,
    /// Leaf lock too.
    refusals: Mutex<Refusals>,
    users: Arc<dyn LocalUsers>,
    asking: Asking,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Kerberos {
    pub fn new(
        acceptor: Acceptor,
        users: Arc<dyn LocalUsers>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Kerberos {
        Kerberos::with_patience(acceptor, users, clock, random, PATIENCE)
    }

    fn with_patience(
        acceptor: Acceptor,
        users: Arc<dyn LocalUsers>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        patience: Duration,
    ) -> Kerberos {
        let (acceptor, contexts, refusals) = (Mutex::new(acceptor), Mutex::default(), Mutex::default());
        let asking = Asking::new(Arc::clone(&clock), patience, "users get no Kerberos contexts");
        Kerberos { acceptor, contexts, refusals, users, asking, clock, random }
    }

    /// The keytab has changed. Contexts that stand are not touched: they have keys of their own.
    pub fn replace_keys(&self, keytab: Keytab) -> Result<(), NoServiceKey> {
        self.acceptor.lock().replace_keys(keytab)
    }

    /// Whether the log is to tell of a refusal, and how many it did not tell of before.
    pub(crate) fn note_refusal(&self) -> Option<u64> {
        self.refusals.lock().note(self.clock.monotonic())
    }

    /// A context from a client's token: its handle, itself, and the token for the client.
    pub(crate) async fn establish(
        &self,
        token: &[u8],
    ) -> Result<(Vec<u8>, Arc<Established>, Vec<u8>), ContextError> {
        let entropy = self.entropy();
        let accepted = self.acceptor.lock().accept(token, self.now_s(), &entropy);
        // Some KiB of keys, while the user is looked up.
        let accepted = Box::new(accepted.inspect_err(|_| self.contexts.lock().note_refused())?);
        let identity = self.identity(&accepted.context).await;
        // Not nobody: that would be kept for as long as the context is.
        let identity = identity.inspect_err(|_| self.contexts.lock().note_refused())?;
        let name = name_of(accepted.context.client());
        let established = Arc::new(Established::new(accepted.context, identity, name));
        let handle = self.bytes::<16>();
        self.contexts.lock().insert(handle, Arc::clone(&established), self.clock.monotonic(), self.now_s());
        Ok((handle.to_vec(), established, accepted.reply))
    }

    pub(crate) fn find(&self, handle: &[u8]) -> Found {
        let (at, now_s) = (self.clock.monotonic(), self.now_s());
        self.contexts.lock().find(handle, at, now_s)
    }

    pub(crate) fn destroy(&self, handle: &[u8]) {
        self.contexts.lock().remove(handle);
    }

    pub(crate) fn confounder(&self) -> [u8; gss::CONFOUNDER_LEN] {
        self.bytes()
    }

    fn status(&self) -> SecurityStatus {
        self.contexts.lock().status()
    }

    /// A user of the service's own realm with a name of one part is the local user of that name; services, hosts and
    /// strangers are nobody. Root of the realm is root here, unless the export squashes root.
    async fn identity(&self, context: &gss::Context) -> Result<Identity, NamesUnavailable> {
        let client = context.client();
        let [user] = client.components.as_slice() else { return Ok(Identity::nobody()) };
        if client.realm != context.service().realm {
            return Ok(Identity::nobody());
        }
        let (users, user) = (Arc::clone(&self.users), user.clone());
        let found = self.asking.ask(move || users.identity(&user)).await?;
        Ok(found.unwrap_or_else(Identity::nobody))
    }

    fn entropy(&self) -> Entropy {
        Entropy { confounder: self.bytes(), subkey: self.bytes(), sequence: u32::from_be_bytes(self.bytes()) }
    }

    fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }

    fn now_s(&self) -> gss::UnixSeconds {
        self.clock.now().seconds
    }
}

/// A principal in few bytes that no other principal has.
fn name_of(principal: &gss::Principal) -> [u8; 16] {
    let digest = digest::digest(&digest::SHA256, principal.to_string().as_bytes());
    let mut name = [0; 16];
    name.copy_from_slice(&digest.as_ref()[..16]);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_principal_is_the_user_of_its_name_in_the_services_own_realm() {
        use gss::peer::principal;
        let kerberos = fixture::kerberos();
        let cases = [
            ("ann", Identity::new(1000, 100, &[7])),
            ("bob", Identity::nobody()),
            ("ann/admin", Identity::nobody()),
            ("host/client.example.org", Identity::nobody()),
            ("ann@ELSEWHERE.ORG", Identity::nobody()),
        ];
        for (name, identity) in cases {
            let mut initiator = fixture::initiator();
            initiator.client = principal(name);
            initiator.authenticator_client = principal(name);
            // The KDC has looked at the realms on the way.
            initiator.ticket_flags = 1 << (31 - 12);
            let (_, established, _) = kerberos.establish(&initiator.token()).await.unwrap();
            assert_eq!(established.identity, identity, "{name}");
        }
    }

    #[tokio::test]
    async fn a_failed_user_lookup_gives_no_context_instead_of_one_of_nobody() {
        // The first lookup does not return until this is dropped.
        let (asked, kerberos) = fixture::kerberos_without_answers();
        for _ in 0..3 {
            let refused = kerberos.establish(&fixture::initiator().token()).await;
            assert!(matches!(refused, Err(ContextError::User(NamesUnavailable))));
        }
        let status = kerberos.status();
        assert_eq!((status.contexts, status.established, status.refused), (0, 0, 3));
        assert!(asked.count() <= 1, "it is left alone");
        // A principal that cannot be a local user needs no lookup.
        let mut machine = fixture::initiator();
        machine.client = gss::peer::principal("host/client.example.org");
        machine.authenticator_client = gss::peer::principal("host/client.example.org");
        assert!(kerberos.establish(&machine.token()).await.is_ok());
    }

    #[test]
    fn principals_have_names_of_their_own() {
        let principal = |components: &[&str]| gss::Principal {
            components: components.iter().map(|part| part.to_string()).collect(),
            realm: "R".to_owned(),
        };
        assert_eq!(name_of(&principal(&["a", "b"])), name_of(&principal(&["a", "b"])));
        assert_ne!(name_of(&principal(&["a", "b"])), name_of(&principal(&["a/b"])));
    }
}
