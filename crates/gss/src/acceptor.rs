//! The service's side of establishing a context: one token in, one token out (RFC 4121 §4.1, RFC 4120 §3.2.3).

use bytes::BytesMut;
use thiserror::Error;

use crate::context::{Agreed, Context, Role};
use crate::crypto::{CONFOUNDER_LEN, Enctype, Key, Sealing, Usage};
use crate::messages::{
    AP_USE_SESSION_KEY, ApRepPart, ApReq, Authenticator, Encrypted, TICKET_INVALID, TRANSITED_POLICY_CHECKED,
    TicketPart, put_ap_rep,
};
use crate::replay::ReplayCache;
use crate::{Keytab, KeytabEntry, Principal, UnixSeconds};
use der::{self, DerError, Reader, Tag};

/// How far clocks may be apart, as MIT and Heimdal have it.
const CLOCK_SKEW_S: i64 = 300;
/// Authenticators remembered: contexts of ten minutes.
const REPLAYS_MAX: usize = 1 << 16;

/// The mechanism: 1.2.840.113554.1.2.2, Kerberos 5, without tag and length.
pub const KRB5_OID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
const AP_REQ_ID: [u8; 2] = [1, 0];
const AP_REP_ID: [u8; 2] = [2, 0];
/// The type of the authenticator's checksum that carries GSS-API's flags (RFC 4121 §4.1.1).
const GSS_CHECKSUM: i32 = 0x8003;
const MUTUAL: u32 = 2;
/// Sequence numbers begin below 2^30, for peers that take them as signed.
const SEQUENCE_MASK: u32 = (1 << 30) - 1;

/// The keys of a service, and what it has seen.
#[derive(Debug)]
pub struct Acceptor {
    service: String,
    keys: Vec<KeytabEntry>,
    replays: ReplayCache,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("keytab has no usable key of a `{service}/HOST@REALM`")]
pub struct NoServiceKey {
    service: String,
}

/// Chance for one context; fresh for each.
#[derive(Clone)]
pub struct Entropy {
    pub confounder: [u8; CONFOUNDER_LEN],
    pub subkey: [u8; 32],
    pub sequence: u32,
}

/// A context, and what the client is waiting for; nothing if it did not ask for mutual authentication.
#[derive(Debug)]
pub struct Accepted {
    pub context: Context,
    pub reply: Vec<u8>,
}

/// Why a client is not believed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AcceptError {
    #[error("read token: {0}")]
    Malformed(#[from] DerError),
    #[error("token is not of Kerberos 5")]
    OtherMechanism,
    #[error("token is not the first of a context")]
    NotInitial,
    #[error("ticket is user-to-user")]
    UserToUser,
    #[error("ticket is for {service}, of which the keytab has no key")]
    UnknownService { service: Principal },
    #[error(
        "ticket is under key version {kvno:?}, encryption type {enctype}, of {service}; the keytab has others"
    )]
    NoKey { service: Principal, enctype: i32, kvno: Option<u32> },
    #[error(
        "ticket does not decrypt with the key of {service}: the keytab is not the KDC's, or the ticket is forged"
    )]
    WrongKey { service: Principal },
    #[error("encryption type {0} of a session key or authenticator is not supported")]
    Enctype(i32),
    #[error("authenticator does not decrypt with the ticket's session key")]
    BadAuthenticator,
    #[error("ticket of {ticket} comes with an authenticator of {authenticator}")]
    ClientMismatch { ticket: Principal, authenticator: Principal },
    #[error("client's clock is {by_s} s away from ours")]
    ClockSkew { by_s: i64 },
    #[error("ticket of {client} expired {since_s} s ago")]
    Expired { client: Principal, since_s: i64 },
    #[error("ticket of {client} is not valid yet")]
    NotYetValid { client: Principal },
    #[error("ticket of {client} came through realms that the KDC did not check")]
    Transited { client: Principal },
    #[error("authenticator has no checksum of GSS-API")]
    NoGssChecksum,
    #[error("authenticator of {client} was used before")]
    Replay { client: Principal },
}

impl AcceptError {
    /// `major_status` and `minor_status` as clients of RPCSEC_GSS expect them (RFC 2744 §3.9.1; the error codes of RFC
    /// 4120 §7.5.9 from the base that all implementations use).
    pub fn status(&self) -> (u32, u32) {
        const BAD_MECH: u32 = 1 << 16;
        const DEFECTIVE_TOKEN: u32 = 9 << 16;
        const CREDENTIALS_EXPIRED: u32 = 11 << 16;
        const FAILURE: u32 = 13 << 16;
        const DUPLICATE_TOKEN: u32 = 1 << 1;
        const KERBEROS: u32 = (-1_765_328_384i32) as u32;
        let (major, code) = match self {
            AcceptError::Malformed(_) | AcceptError::NotInitial => (DEFECTIVE_TOKEN, 40),
            AcceptError::OtherMechanism => return (BAD_MECH, 0),
            AcceptError::UserToUser => (FAILURE, 41),
            AcceptError::UnknownService { .. } => (FAILURE, 35),
            AcceptError::NoKey { .. } => (FAILURE, 44),
            AcceptError::WrongKey { .. } | AcceptError::BadAuthenticator => (FAILURE, 31),
            AcceptError::Enctype(_) => (FAILURE, 14),
            AcceptError::ClientMismatch { .. } => (FAILURE, 36),
            AcceptError::ClockSkew { .. } => (FAILURE, 37),
            AcceptError::Expired { .. } => (CREDENTIALS_EXPIRED, 32),
            AcceptError::NotYetValid { .. } => (FAILURE, 33),
            AcceptError::Transited { .. } => (FAILURE, 12),
            AcceptError::NoGssChecksum => (FAILURE, 50),
            AcceptError::Replay { .. } => (FAILURE | DUPLICATE_TOKEN, 34),
        };
        (major, KERBEROS.wrapping_add(code))
    }
}

impl Acceptor {
    /// Takes the keys of `service/HOST@REALM` for every host and realm.
    pub fn new(keytab: Keytab, service: &str) -> Result<Self, NoServiceKey> {
        let keys = keys_of(keytab, service)?;
        // An authenticator is refused as too old after twice the skew: its clock may be ahead by one.
        let replays = ReplayCache::new(REPLAYS_MAX, 2 * CLOCK_SKEW_S);
        Ok(Acceptor { service: service.to_owned(), keys, replays })
    }

    /// Takes the keys of a keytab that has changed, and those only: a key is good as long as it stands in the file. The
    /// replay cache is kept. Without a usable key everything stays as it was.
    pub fn replace_keys(&mut self, keytab: Keytab) -> Result<(), NoServiceKey> {
        self.keys = keys_of(keytab, &self.service)?;
        Ok(())
    }

    /// The services that tickets may be for.
    pub fn services(&self) -> impl Iterator<Item = &Principal> {
        self.keys.iter().map(|entry| &entry.principal)
    }

    /// Judges a client's first token.
    pub fn accept(
        &mut self,
        token: &[u8],
        now: UnixSeconds,
        entropy: &Entropy,
    ) -> Result<Accepted, AcceptError> {
        let request = ApReq::decode(initial(token)?)?;
        if request.options & AP_USE_SESSION_KEY != 0 {
            return Err(AcceptError::UserToUser);
        }
        let opened = open(&self.key(&request)?.key, &request.ticket, Usage::TICKET)
            .ok_or_else(|| AcceptError::WrongKey { service: request.service.clone() })?;
        let ticket = TicketPart::decode(&opened)?;
        let session_key = supported(ticket.session_key.clone())?;
        if Enctype::from_number(request.authenticator.enctype) != Some(session_key.enctype()) {
            return Err(AcceptError::Enctype(request.authenticator.enctype));
        }
        let opened = open(&session_key, &request.authenticator, Usage::AP_REQ_AUTHENTICATOR)
            .ok_or(AcceptError::BadAuthenticator)?;
        let authenticator = Authenticator::decode(&opened)?;
        judge(&ticket, &authenticator, &request.service, now)?;
        let is_mutual = gss_flags(&authenticator)? & MUTUAL != 0;
        if !self.replays.is_first(request.authenticator.cipher, now) {
            return Err(AcceptError::Replay { client: ticket.client });
        }
        establish(ticket, &session_key, authenticator, request.service, is_mutual, entropy)
    }

    fn key(&self, request: &ApReq<'_>) -> Result<&KeytabEntry, AcceptError> {
        let mut of_service = self.keys.iter().filter(|entry| entry.principal == request.service).peekable();
        if of_service.peek().is_none() {
            return Err(AcceptError::UnknownService { service: request.service.clone() });
        }
        let (enctype, kvno) = (request.ticket.enctype, request.ticket.kvno);
        of_service
            .filter(|entry| entry.key.enctype().number() == enctype)
            .filter(|entry| kvno.is_none_or(|kvno| kvno == entry.kvno))
            .max_by_key(|entry| entry.kvno)
            .ok_or_else(|| AcceptError::NoKey { service: request.service.clone(), enctype, kvno })
    }
}

fn keys_of(keytab: Keytab, service: &str) -> Result<Vec<KeytabEntry>, NoServiceKey> {
    let mut keys = keytab.entries;
    keys.retain(|entry| entry.principal.service_and_host().is_some_and(|(name, _)| name == service));
    if keys.is_empty() { Err(NoServiceKey { service: service.to_owned() }) } else { Ok(keys) }
}

/// The AP-REQ of an initial token (RFC 2743 §3.1, RFC 4121 §4.1).
fn initial(token: &[u8]) -> Result<&[u8], AcceptError> {
    let mut all = Reader::new(token);
    let mut framed = all.inside(Tag::application(0))?;
    all.finish()?;
    if framed.value(Tag::OBJECT_IDENTIFIER)? != KRB5_OID {
        return Err(AcceptError::OtherMechanism);
    }
    framed.rest().strip_prefix(&AP_REQ_ID).ok_or(AcceptError::NotInitial)
}

/// Frames a token of any kind as `initial` reads it.
pub(crate) fn frame(id: [u8; 2], message: &[u8]) -> Vec<u8> {
    let oid = der::tagged(Tag::OBJECT_IDENTIFIER, &[&KRB5_OID]);
    der::tagged(Tag::application(0), &[&oid, &id, message])
}

fn open(key: &Key, encrypted: &Encrypted<'_>, usage: Usage) -> Option<BytesMut> {
    Sealing::new(key, usage).open(BytesMut::from(encrypted.cipher)).ok()
}

fn supported(key: Result<Key, crate::KeyError>) -> Result<Key, AcceptError> {
    key.map_err(|error| match error {
        crate::KeyError::Enctype(enctype) | crate::KeyError::Length { enctype, .. } => {
            AcceptError::Enctype(enctype)
        }
    })
}

/// Names and times (RFC 4120 §3.2.3).
fn judge(
    ticket: &TicketPart,
    authenticator: &Authenticator<'_>,
    service: &Principal,
    now: UnixSeconds,
) -> Result<(), AcceptError> {
    let client = || ticket.client.clone();
    if ticket.client != authenticator.client {
        let authenticator = authenticator.client.clone();
        return Err(AcceptError::ClientMismatch { ticket: client(), authenticator });
    }
    if ticket.client.realm != service.realm && ticket.flags & TRANSITED_POLICY_CHECKED == 0 {
        return Err(AcceptError::Transited { client: client() });
    }
    if ticket.flags & TICKET_INVALID != 0 || ticket.start > now.saturating_add(CLOCK_SKEW_S) {
        return Err(AcceptError::NotYetValid { client: client() });
    }
    let since_s = now.saturating_sub(ticket.end);
    if since_s > CLOCK_SKEW_S {
        return Err(AcceptError::Expired { client: client(), since_s });
    }
    let by_s = now.saturating_sub(authenticator.time).saturating_abs();
    if by_s > CLOCK_SKEW_S {
        return Err(AcceptError::ClockSkew { by_s });
    }
    Ok(())
}

/// The flags in the authenticator's checksum (RFC 4121 §4.1.1); what may follow them is not looked at.
fn gss_flags(authenticator: &Authenticator<'_>) -> Result<u32, AcceptError> {
    let Some((GSS_CHECKSUM, bytes)) = authenticator.checksum else { return Err(AcceptError::NoGssChecksum) };
    let Some(([16, 0, 0, 0, _bindings @ .., a, b, c, d], _delegation)) = bytes.split_first_chunk::<24>()
    else {
        return Err(AcceptError::NoGssChecksum);
    };
    Ok(u32::from_le_bytes([*a, *b, *c, *d]))
}

fn establish(
    ticket: TicketPart,
    session_key: &Key,
    authenticator: Authenticator<'_>,
    service: Principal,
    is_mutual: bool,
    entropy: &Entropy,
) -> Result<Accepted, AcceptError> {
    let client_key = authenticator.subkey.map_or(Ok(session_key.clone()), supported)?;
    let expires = ticket.end.saturating_add(CLOCK_SKEW_S);
    let agreed = |key, is_acceptor_subkey, sequence| {
        let client = ticket.client;
        Agreed { client, service, expires, key, is_acceptor_subkey, sequence }
    };
    if !is_mutual {
        // The client cannot learn a key or number of ours (RFC 4121 §2).
        let agreed = agreed(client_key, false, authenticator.sequence.unwrap_or(0));
        return Ok(Accepted { context: Context::new(Role::Acceptor, agreed), reply: Vec::new() });
    }
    let subkey = Key::from_chance(client_key.enctype(), &entropy.subkey);
    let sequence = entropy.sequence & SEQUENCE_MASK;
    let part = ApRepPart {
        time: authenticator.time,
        microseconds: authenticator.microseconds,
        subkey: Some(subkey.clone()),
        sequence,
    };
    let cipher = Sealing::new(session_key, Usage::AP_REP).seal(&entropy.confounder, &part.encode());
    let encrypted = Encrypted { enctype: session_key.enctype().number(), kvno: None, cipher: &cipher };
    let reply = frame(AP_REP_ID, &put_ap_rep(&encrypted));
    let context = Context::new(Role::Acceptor, agreed(subkey, true, sequence));
    Ok(Accepted { context, reply })
}

#[cfg(test)]
mod tests;
