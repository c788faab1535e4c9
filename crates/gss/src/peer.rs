//! The other side, for tests: a KDC that makes tickets and a client that makes tokens of them.

use bytes::BytesMut;

use crate::acceptor::frame;
use crate::context::{Agreed, Context, Role};
use crate::crypto::{Key, Sealing, Usage};
use crate::messages::{Encrypted, put_encrypted, put_key};
use crate::{Keytab, KeytabEntry, Principal, UnixSeconds};
use der::{Reader, Tag, field, put_integer, put_time, tagged, time, uint32};

pub const NOW: UnixSeconds = 1_800_000_000;
pub const REALM: &str = "EXAMPLE.ORG";
pub const MUTUAL: u32 = 2;

/// Everything that a client's first token says; tests change what they are about.
#[derive(Clone)]
pub struct Initiator {
    pub service_key: Key,
    pub kvno: Option<u32>,
    pub session_key: Key,
    pub subkey: Option<Key>,
    pub service: Principal,
    pub client: Principal,
    pub authenticator_client: Principal,
    pub ticket_flags: u32,
    pub options: u32,
    pub start: UnixSeconds,
    pub end: UnixSeconds,
    pub time: UnixSeconds,
    pub gss_flags: u32,
    pub checksum_type: i32,
}

pub fn principal(text: &str) -> Principal {
    let (name, realm) = text.split_once('@').unwrap_or((text, REALM));
    Principal { components: name.split('/').map(str::to_owned).collect(), realm: realm.to_owned() }
}

pub fn key(enctype: i32, byte: u8) -> Key {
    let len = crate::Enctype::from_number(enctype).expect("the test's own bytes").key_len();
    Key::new(enctype, &vec![byte; len]).expect("the test's own bytes")
}

/// A keytab with version 3 of this key.
pub fn keytab(key: &Key) -> Keytab {
    let entry = |name: &str| KeytabEntry { principal: principal(name), kvno: 3, key: key.clone() };
    Keytab { entries: vec![entry("host/head.example.org"), entry("nfs/head.example.org")] }
}

impl Initiator {
    pub fn new(enctype: i32) -> Self {
        Initiator {
            service_key: key(enctype, 1),
            kvno: Some(3),
            session_key: key(enctype, 2),
            subkey: Some(key(enctype, 3)),
            service: principal("nfs/head.example.org"),
            client: principal("ann"),
            authenticator_client: principal("ann"),
            ticket_flags: 0,
            options: 0x2000_0000,
            start: NOW - 100,
            end: NOW + 36_000,
            time: NOW,
            gss_flags: MUTUAL,
            checksum_type: 0x8003,
        }
    }

    pub fn token(&self) -> Vec<u8> {
        let ticket = self.ticket();
        let authenticator =
            encrypted(&self.session_key, Usage::AP_REQ_AUTHENTICATOR, None, &self.authenticator());
        let request = sequence(&[
            (0, put_integer(5)),
            (1, put_integer(14)),
            (2, bits(self.options)),
            (3, ticket),
            (4, authenticator),
        ]);
        frame([1, 0], &tagged(Tag::application(14), &[&request]))
    }

    /// Reads the acceptor's token and has the same context.
    pub fn finish(&self, reply: &[u8]) -> Context {
        let mut framed = Reader::new(reply).inside(Tag::application(0)).expect("the test's own bytes");
        framed.value(Tag::OBJECT_IDENTIFIER).expect("the test's own bytes");
        let message = framed.rest().strip_prefix(&[2, 0]).expect("the test's own bytes");
        let mut fields = Reader::new(message)
            .inside(Tag::application(15))
            .expect("the test's own bytes")
            .inside(Tag::SEQUENCE)
            .expect("the test's own bytes");
        fields.field(0, Tag::INTEGER).expect("the test's own bytes");
        assert_eq!(fields.field(1, Tag::INTEGER).expect("the test's own bytes"), [15]);
        let mut data = Reader::new(fields.field(2, Tag::SEQUENCE).expect("the test's own bytes"));
        data.field(0, Tag::INTEGER).expect("the test's own bytes");
        let cipher = BytesMut::from(data.field(2, Tag::OCTET_STRING).expect("the test's own bytes"));
        let part = Sealing::new(&self.session_key, Usage::AP_REP).open(cipher).expect("the test's own bytes");
        let mut part = Reader::new(&part)
            .inside(Tag::application(27))
            .expect("the test's own bytes")
            .inside(Tag::SEQUENCE)
            .expect("the test's own bytes");
        assert_eq!(
            time(part.field(0, Tag::GENERALIZED_TIME).expect("the test's own bytes")),
            Ok(self.time),
            "mutual authentication"
        );
        part.field(1, Tag::INTEGER).expect("the test's own bytes");
        let mut subkey = Reader::new(part.field(2, Tag::SEQUENCE).expect("the test's own bytes"));
        let enctype = der::int32(subkey.field(0, Tag::INTEGER).expect("the test's own bytes"))
            .expect("the test's own bytes");
        let subkey = Key::new(enctype, subkey.field(1, Tag::OCTET_STRING).expect("the test's own bytes"))
            .expect("the test's own bytes");
        uint32(part.field(3, Tag::INTEGER).expect("the test's own bytes")).expect("the test's own bytes");
        self.context(subkey, true)
    }

    pub fn context(&self, key: Key, is_acceptor_subkey: bool) -> Context {
        let (client, service) = (self.client.clone(), self.service.clone());
        let agreed = Agreed { client, service, expires: self.end, key, is_acceptor_subkey, sequence: 77 };
        Context::new(Role::Initiator, agreed)
    }

    fn ticket(&self) -> Vec<u8> {
        let part = sequence(&[
            (0, bits(self.ticket_flags)),
            (1, put_key(&self.session_key)),
            (2, string(&self.client.realm)),
            (3, name(&self.client)),
            (4, sequence(&[(0, put_integer(1)), (1, tagged(Tag::OCTET_STRING, &[]))])),
            (5, put_time(NOW - 1000)),
            (6, put_time(self.start)),
            (7, put_time(self.end)),
        ]);
        let part = tagged(Tag::application(3), &[&part]);
        let ticket = sequence(&[
            (0, put_integer(5)),
            (1, string(&self.service.realm)),
            (2, name(&self.service)),
            (3, encrypted(&self.service_key, Usage::TICKET, self.kvno, &part)),
        ]);
        tagged(Tag::application(1), &[&ticket])
    }

    fn authenticator(&self) -> Vec<u8> {
        let mut checksum = vec![16, 0, 0, 0];
        checksum.extend_from_slice(&[0; 16]);
        checksum.extend_from_slice(&self.gss_flags.to_le_bytes());
        let checksum = sequence(&[
            (0, put_integer(i64::from(self.checksum_type))),
            (1, tagged(Tag::OCTET_STRING, &[&checksum])),
        ]);
        let mut fields = vec![
            (0, put_integer(5)),
            (1, string(&self.authenticator_client.realm)),
            (2, name(&self.authenticator_client)),
            (3, checksum),
            (4, put_integer(123_456)),
            (5, put_time(self.time)),
        ];
        fields.extend(self.subkey.as_ref().map(|key| (6, put_key(key))));
        fields.push((7, put_integer(0xffff_fff0)));
        tagged(Tag::application(2), &[&sequence(&fields)])
    }
}

fn sequence(fields: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let fields: Vec<Vec<u8>> = fields.iter().map(|(n, value)| field(*n, value)).collect();
    tagged(Tag::SEQUENCE, &fields.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn bits(flags: u32) -> Vec<u8> {
    tagged(Tag::BIT_STRING, &[&[0], &flags.to_be_bytes()])
}

fn string(text: &str) -> Vec<u8> {
    tagged(Tag::GENERAL_STRING, &[text.as_bytes()])
}

fn name(principal: &Principal) -> Vec<u8> {
    let components: Vec<Vec<u8>> = principal.components.iter().map(|part| string(part)).collect();
    let components = tagged(Tag::SEQUENCE, &components.iter().map(Vec::as_slice).collect::<Vec<_>>());
    sequence(&[(0, put_integer(1)), (1, components)])
}

fn encrypted(key: &Key, usage: Usage, kvno: Option<u32>, plain: &[u8]) -> Vec<u8> {
    let cipher = Sealing::new(key, usage).seal(&[8; 16], plain);
    put_encrypted(&Encrypted { enctype: key.enctype().number(), kvno, cipher: &cipher })
}
