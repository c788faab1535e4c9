//! Which security flavors clients may come with, and Kerberos for those that are GSS (RFC 8881 §2.2.1).
//!
//! Every listener admits every flavor at the RPC layer: clients are found, sessions made and SECINFO asked with what a
//! client has. Files are reached with a flavor of the list only; else the operation that sets the file handle gets
//! WRONGSEC (RFC 8881 §2.6.3.1).

mod contexts;
#[cfg(test)]
pub(crate) mod fixture;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::digest;
use gss::{Acceptor, Entropy};
use nfs4::{AUTH_SYS, RpcGssSvc, RpcSecGssInfo, SecInfo4};
use oncrpc::GssService;
use parking_lot::Mutex;
use types::{Clock, Identity, Random};
use xdr::Opaque;

use contexts::Contexts;
pub(crate) use contexts::{Established, Found};

/// A security flavor as `mount -o sec=` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// The client host says who its user is.
    Sys,
    /// Kerberos: each call is signed.
    Krb5,
    /// And what it carries.
    Krb5i,
    /// And that is encrypted.
    Krb5p,
}

impl Flavor {
    const ALL: [(&str, Flavor); 4] =
        [("sys", Flavor::Sys), ("krb5", Flavor::Krb5), ("krb5i", Flavor::Krb5i), ("krb5p", Flavor::Krb5p)];

    pub fn is_kerberos(self) -> bool {
        self != Flavor::Sys
    }

    pub(crate) fn of(service: GssService) -> Flavor {
        match service {
            GssService::None => Flavor::Krb5,
            GssService::Integrity => Flavor::Krb5i,
            GssService::Privacy => Flavor::Krb5p,
        }
    }

    fn info(self) -> SecInfo4 {
        let service = match self {
            Flavor::Sys => return SecInfo4::Flavor(AUTH_SYS),
            Flavor::Krb5 => RpcGssSvc::None,
            Flavor::Krb5i => RpcGssSvc::Integrity,
            Flavor::Krb5p => RpcGssSvc::Privacy,
        };
        // The content of the encoding, without the tag and length that the text of RFC 8881 §18.29.2 would allow as well: Linux
        // compares it so (`gss_mech_get_by_OID`), and every server sends it so.
        SecInfo4::RpcSecGss(RpcSecGssInfo { oid: Opaque::copy_from_slice(&gss::KRB5_OID), qop: 0, service })
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Flavor::ALL.iter().find(|(_, flavor)| flavor == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Flavor {
    type Err = String;

    fn from_str(text: &str) -> Result<Flavor, String> {
        let known = Flavor::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, flavor)| *flavor).ok_or_else(|| format!("{text:?} is not sys, krb5, krb5i or krb5p"))
    }
}

/// The users of the local system. Asked in a thread of its own: the answer may come from far away.
pub trait LocalUsers: Send + Sync {
    /// Ids and groups of a user; `None` if there is none of this name.
    fn identity(&self, user: &str) -> Option<Identity>;
}

/// What a listener admits.
pub struct Security {
    flavors: Vec<Flavor>,
    kerberos: Option<Kerberos>,
}

/// Contexts since the start, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecurityStatus {
    /// Contexts that clients have now.
    pub contexts: u64,
    pub established: u64,
    pub refused: u64,
}

impl Security {
    /// AUTH_SYS and nothing else.
    pub fn sys() -> Arc<Security> {
        Arc::new(Security { flavors: vec![Flavor::Sys], kerberos: None })
    }

    /// `flavors` in the order that clients are told them; those of Kerberos need `kerberos`.
    pub fn new(flavors: Vec<Flavor>, kerberos: Option<Kerberos>) -> Arc<Security> {
        let needs_kerberos = flavors.iter().any(|flavor| flavor.is_kerberos());
        assert!(!needs_kerberos || kerberos.is_some(), "whoever lists flavors of Kerberos brings its keys");
        Arc::new(Security { flavors, kerberos })
    }

    pub fn status(&self) -> SecurityStatus {
        self.kerberos.as_ref().map(Kerberos::status).unwrap_or_default()
    }

    /// Whether files may be reached by a call of this flavor; `None` is AUTH_NONE, which goes where AUTH_SYS goes.
    pub(crate) fn admits(&self, flavor: Option<Flavor>) -> bool {
        self.flavors.contains(&flavor.unwrap_or(Flavor::Sys))
    }

    pub(crate) fn kerberos(&self) -> Option<&Kerberos> {
        self.kerberos.as_ref()
    }

    /// For SECINFO.
    pub(crate) fn infos(&self) -> Vec<SecInfo4> {
        self.flavors.iter().map(|flavor| flavor.info()).collect()
    }
}

/// The keys of this service, the contexts of its clients, and who they are here.
pub struct Kerberos {
    acceptor: Mutex<Acceptor>,
    /// Leaf lock, as is the one above.
    contexts: Mutex<Contexts>,
    users: Arc<dyn LocalUsers>,
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
        let (acceptor, contexts) = (Mutex::new(acceptor), Mutex::default());
        Kerberos { acceptor, contexts, users, clock, random }
    }

    /// A context from a client's token: its handle, itself, and the token for the client.
    pub(crate) async fn establish(
        &self,
        token: &[u8],
    ) -> Result<(Vec<u8>, Arc<Established>, Vec<u8>), gss::AcceptError> {
        let entropy = self.entropy();
        let accepted = self.acceptor.lock().accept(token, self.now_s(), &entropy);
        let accepted = accepted.inspect_err(|_| self.contexts.lock().note_refused())?;
        let identity = self.identity(&accepted.context).await;
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
    /// strangers are nobody. Whoever is root in the realm is root here, until it is squashed.
    async fn identity(&self, context: &gss::Context) -> Identity {
        let client = context.client();
        let [user] = client.components.as_slice() else { return Identity::nobody() };
        if client.realm != context.service().realm {
            return Identity::nobody();
        }
        let (users, user) = (Arc::clone(&self.users), user.clone());
        let asked = tokio::task::spawn_blocking(move || users.identity(&user)).await;
        asked.ok().flatten().unwrap_or_else(Identity::nobody)
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

    #[test]
    fn flavors_are_named_as_mount_names_them() {
        for (name, flavor) in Flavor::ALL {
            assert_eq!((name.parse(), flavor.to_string()), (Ok(flavor), name.to_owned()));
        }
        assert!("krb4".parse::<Flavor>().unwrap_err().contains("krb5p"));
    }

    #[test]
    fn none_is_admitted_where_sys_is() {
        let security = Security::sys();
        assert!(security.admits(None) && security.admits(Some(Flavor::Sys)));
        assert!(!security.admits(Some(Flavor::Krb5)));
        let security = Security { flavors: vec![Flavor::Krb5p, Flavor::Krb5i], kerberos: None };
        assert!(!security.admits(None) && !security.admits(Some(Flavor::Krb5)));
        assert!(security.admits(Some(Flavor::Krb5p)));
        let SecInfo4::RpcSecGss(first) = &security.infos()[0] else { panic!("GSS is first") };
        assert_eq!((first.service, first.oid.len()), (RpcGssSvc::Privacy, 9));
    }

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
