//! The messages of Kerberos that a service sees and sends (RFC 4120 §5), as far as it needs them.

use crate::UnixSeconds;
use crate::crypto::{Key, KeyError};
use crate::principal::{COMPONENTS_MAX, PART_BYTES_MAX, Principal};
use der::{self, DerError, Reader, Tag};

/// Bits of KerberosFlags count from the highest (RFC 4120 §5.2.8).
const fn bit(n: u32) -> u32 {
    1 << (31 - n)
}

/// Of APOptions (RFC 4120 §5.5.1): the ticket is under the session key of another ticket, which is user-to-user.
pub const AP_USE_SESSION_KEY: u32 = bit(1);
/// Of TicketFlags (RFC 4120 §5.3): a postdated ticket that was not validated yet.
pub const TICKET_INVALID: u32 = bit(7);
/// Of TicketFlags: the KDC looked at the realms that the client's authentication came through.
pub const TRANSITED_POLICY_CHECKED: u32 = bit(12);

const PVNO: i64 = 5;
const MSG_AP_REQ: i64 = 14;
const MSG_AP_REP: i64 = 15;

/// `EncryptedData` (RFC 4120 §5.2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encrypted<'a> {
    pub enctype: i32,
    pub kvno: Option<u32>,
    pub cipher: &'a [u8],
}

/// `AP-REQ` (RFC 4120 §5.5.1) with its ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApReq<'a> {
    pub options: u32,
    pub service: Principal,
    pub ticket: Encrypted<'a>,
    pub authenticator: Encrypted<'a>,
}

/// `EncTicketPart` (RFC 4120 §5.3). Addresses and authorization data are not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketPart {
    pub flags: u32,
    pub session_key: Result<Key, KeyError>,
    pub client: Principal,
    pub start: UnixSeconds,
    pub end: UnixSeconds,
}

/// `Authenticator` (RFC 4120 §5.5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticator<'a> {
    pub client: Principal,
    /// Type and bytes.
    pub checksum: Option<(i32, &'a [u8])>,
    pub microseconds: i32,
    pub time: UnixSeconds,
    pub subkey: Option<Result<Key, KeyError>>,
    pub sequence: Option<u32>,
}

/// `EncAPRepPart` (RFC 4120 §5.5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApRepPart {
    pub time: UnixSeconds,
    pub microseconds: i32,
    pub subkey: Option<Key>,
    pub sequence: u32,
}

impl<'a> ApReq<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DerError> {
        let mut message = only(bytes, Tag::application(14))?;
        exactly(&mut message, 0, PVNO)?;
        exactly(&mut message, 1, MSG_AP_REQ)?;
        let options = der::flags(message.field(2, Tag::BIT_STRING)?)?;
        let mut ticket = Reader::new(message.field(3, Tag::application(1))?).inside(Tag::SEQUENCE)?;
        exactly(&mut ticket, 0, PVNO)?;
        let service = principal(&mut ticket, 1)?;
        let encrypted_ticket = encrypted(&mut ticket, 3)?;
        ticket.finish()?;
        let authenticator = encrypted(&mut message, 4)?;
        message.finish()?;
        Ok(ApReq { options, service, ticket: encrypted_ticket, authenticator })
    }
}

impl TicketPart {
    pub fn decode(bytes: &[u8]) -> Result<Self, DerError> {
        let mut part = only(bytes, Tag::application(3))?;
        let flags = der::flags(part.field(0, Tag::BIT_STRING)?)?;
        let session_key = key(part.field(1, Tag::SEQUENCE)?)?;
        let client = principal(&mut part, 2)?;
        part.field(4, Tag::SEQUENCE)?;
        let authenticated = der::time(part.field(5, Tag::GENERALIZED_TIME)?)?;
        let start = part.optional(6, Tag::GENERALIZED_TIME)?.map(der::time).transpose()?;
        let end = der::time(part.field(7, Tag::GENERALIZED_TIME)?)?;
        Ok(TicketPart { flags, session_key, client, start: start.unwrap_or(authenticated), end })
    }
}

impl<'a> Authenticator<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DerError> {
        let mut message = only(bytes, Tag::application(2))?;
        exactly(&mut message, 0, PVNO)?;
        let client = principal(&mut message, 1)?;
        let checksum = message.optional(3, Tag::SEQUENCE)?.map(typed_bytes).transpose()?;
        let microseconds = der::int32(message.field(4, Tag::INTEGER)?)?;
        let time = der::time(message.field(5, Tag::GENERALIZED_TIME)?)?;
        let subkey = message.optional(6, Tag::SEQUENCE)?.map(key).transpose()?;
        let sequence = message.optional(7, Tag::INTEGER)?.map(der::uint32).transpose()?;
        Ok(Authenticator { client, checksum, microseconds, time, subkey, sequence })
    }
}

impl ApRepPart {
    pub fn encode(&self) -> Vec<u8> {
        let subkey = self.subkey.as_ref().map_or(Vec::new(), |key| der::field(2, &put_key(key)));
        let sequence = &[
            &der::field(0, &der::put_time(self.time))[..],
            &der::field(1, &der::put_integer(i64::from(self.microseconds))),
            &subkey,
            &der::field(3, &der::put_integer(i64::from(self.sequence))),
        ];
        der::tagged(Tag::application(27), &[&der::tagged(Tag::SEQUENCE, sequence)])
    }
}

/// `AP-REP` around an encrypted part.
pub fn put_ap_rep(encrypted: &Encrypted<'_>) -> Vec<u8> {
    let sequence = &[
        &der::field(0, &der::put_integer(PVNO))[..],
        &der::field(1, &der::put_integer(MSG_AP_REP)),
        &der::field(2, &put_encrypted(encrypted)),
    ];
    der::tagged(Tag::application(15), &[&der::tagged(Tag::SEQUENCE, sequence)])
}

pub fn put_encrypted(encrypted: &Encrypted<'_>) -> Vec<u8> {
    let kvno = encrypted.kvno.map_or(Vec::new(), |kvno| der::field(1, &der::put_integer(i64::from(kvno))));
    let sequence = &[
        &der::field(0, &der::put_integer(i64::from(encrypted.enctype)))[..],
        &kvno,
        &der::field(2, &der::tagged(Tag::OCTET_STRING, &[encrypted.cipher])),
    ];
    der::tagged(Tag::SEQUENCE, sequence)
}

pub fn put_key(key: &Key) -> Vec<u8> {
    let sequence = &[
        &der::field(0, &der::put_integer(i64::from(key.enctype().number())))[..],
        &der::field(1, &der::tagged(Tag::OCTET_STRING, &[key.as_bytes()])),
    ];
    der::tagged(Tag::SEQUENCE, sequence)
}

/// The sequence inside of the one value in `bytes`.
fn only(bytes: &[u8], tag: Tag) -> Result<Reader<'_>, DerError> {
    let mut all = Reader::new(bytes);
    let mut message = all.inside(tag)?;
    all.finish()?;
    let sequence = message.inside(Tag::SEQUENCE)?;
    message.finish()?;
    Ok(sequence)
}

fn exactly(reader: &mut Reader<'_>, n: u8, wanted: i64) -> Result<(), DerError> {
    let found = der::integer(reader.field(n, Tag::INTEGER)?)?;
    if found == wanted { Ok(()) } else { Err(DerError::Range) }
}

fn encrypted<'a>(reader: &mut Reader<'a>, n: u8) -> Result<Encrypted<'a>, DerError> {
    let mut data = Reader::new(reader.field(n, Tag::SEQUENCE)?);
    let enctype = der::int32(data.field(0, Tag::INTEGER)?)?;
    let kvno = data.optional(1, Tag::INTEGER)?.map(der::uint32).transpose()?;
    let cipher = data.field(2, Tag::OCTET_STRING)?;
    data.finish()?;
    Ok(Encrypted { enctype, kvno, cipher })
}

/// Realm and name, which follow each other in every message.
fn principal(reader: &mut Reader<'_>, n: u8) -> Result<Principal, DerError> {
    let realm = string(reader.field(n, Tag::GENERAL_STRING)?)?;
    let mut name = Reader::new(reader.field(n + 1, Tag::SEQUENCE)?);
    der::int32(name.field(0, Tag::INTEGER)?)?;
    let mut strings = Reader::new(name.field(1, Tag::SEQUENCE)?);
    name.finish()?;
    let mut components = Vec::new();
    while !strings.is_empty() {
        if components.len() >= COMPONENTS_MAX {
            return Err(DerError::Range);
        }
        components.push(string(strings.value(Tag::GENERAL_STRING)?)?);
    }
    Ok(Principal { components, realm })
}

fn string(content: &[u8]) -> Result<String, DerError> {
    let fits = content.len() <= PART_BYTES_MAX;
    std::str::from_utf8(content).ok().filter(|_| fits).map(str::to_owned).ok_or(DerError::Range)
}

/// `EncryptionKey`, of a type that may not be supported.
fn key(content: &[u8]) -> Result<Result<Key, KeyError>, DerError> {
    typed_bytes(content).map(|(enctype, bytes)| Key::new(enctype, bytes))
}

/// `EncryptionKey` and `Checksum` look alike.
fn typed_bytes(content: &[u8]) -> Result<(i32, &[u8]), DerError> {
    let mut fields = Reader::new(content);
    let kind = der::int32(fields.field(0, Tag::INTEGER)?)?;
    let bytes = fields.field(1, Tag::OCTET_STRING)?;
    fields.finish()?;
    Ok((kind, bytes))
}
