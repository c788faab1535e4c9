//! The header of a call (RFC 5531 §9).

use thiserror::Error;
use xdr::{Decoder, Encoder, Xdr, XdrError};

use crate::{AuthFlavor, AuthStat, Credential, MessageType, OpaqueAuth, RPC_VERSION, ReplyHeader};

/// Precedes the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHeader {
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub credential: Credential,
    pub verifier: OpaqueAuth,
}

/// Why a record is not a call that can be looked at further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CallError {
    /// The header itself cannot be read: there is nobody to answer, and the stream is not to be trusted.
    #[error("read call header: {0}")]
    Garbled(#[from] XdrError),
    #[error("message {xid:#x} is a reply, not a call")]
    NotACall { xid: u32 },
    #[error("call {xid:#x} is of RPC version {version}")]
    RpcMismatch { xid: u32, version: u32 },
    #[error("call {xid:#x} has a bad credential or verifier: {stat:?}")]
    Auth { xid: u32, stat: AuthStat },
}

impl CallError {
    /// The reply that the caller is due, if one can be given.
    pub fn reply(&self) -> Option<ReplyHeader> {
        match *self {
            CallError::Garbled(_) | CallError::NotACall { .. } => None,
            CallError::RpcMismatch { xid, .. } => Some(ReplyHeader::rpc_mismatch(xid)),
            CallError::Auth { xid, stat } => Some(ReplyHeader::auth_error(xid, stat)),
        }
    }
}

impl CallHeader {
    /// Takes the header and leaves the decoder at the arguments.
    pub fn decode(d: &mut Decoder) -> Result<Self, CallError> {
        let xid = d.u32()?;
        if MessageType::decode(d)? != MessageType::Call {
            return Err(CallError::NotACall { xid });
        }
        let version = d.u32()?;
        if version != RPC_VERSION {
            return Err(CallError::RpcMismatch { xid, version });
        }
        let (program, version, procedure) = (d.u32()?, d.u32()?, d.u32()?);
        let auth = |d: &mut Decoder, stat| {
            OpaqueAuth::decode(d).map_err(|error| match error {
                XdrError::LengthOverLimit { .. } => CallError::Auth { xid, stat },
                other => CallError::Garbled(other),
            })
        };
        let credential = auth(d, AuthStat::BadCred)?;
        let verifier = auth(d, AuthStat::BadVerf)?;
        let credential = Credential::from_auth(credential)
            .map_err(|_| CallError::Auth { xid, stat: AuthStat::BadCred })?;
        // AUTH_NONE and AUTH_SYS come with an empty verifier (RFC 5531 §10.1, appendix A).
        let bare = matches!(credential.flavor(), AuthFlavor::NONE | AuthFlavor::SYS);
        if bare && !verifier.is_none() {
            return Err(CallError::Auth { xid, stat: AuthStat::BadVerf });
        }
        Ok(CallHeader { xid, program, version, procedure, credential, verifier })
    }

    /// The arguments follow.
    pub fn encode(&self, e: &mut Encoder) {
        e.put_u32(self.xid);
        MessageType::Call.encode(e);
        e.put_u32(RPC_VERSION);
        e.put_u32(self.program);
        e.put_u32(self.version);
        e.put_u32(self.procedure);
        self.credential.encode(e);
        self.verifier.encode(e);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xdr::{Bytes, Opaque};

    use super::*;
    use crate::{AuthSys, GssCredential, GssProcedure, GssService};

    /// A call of NFSv4's COMPOUND by AUTH_SYS, and one word of arguments.
    const COMPOUND: &[u8] = b"\x12\x34\x56\x78\0\0\0\0\0\0\0\x02\
        \0\x01\x86\xa3\0\0\0\x04\0\0\0\x01\
        \0\0\0\x01\0\0\0\x18\0\0\0\x09\0\0\0\x03abc\0\0\0\x03\xe8\0\0\0\x64\0\0\0\0\
        \0\0\0\0\0\0\0\0\
        \xca\xfe\xba\xbe";

    fn decode(wire: &[u8]) -> Result<CallHeader, CallError> {
        CallHeader::decode(&mut Decoder::new(Bytes::copy_from_slice(wire)))
    }

    /// COMPOUND with the byte at `at` replaced.
    fn spoiled(at: usize, byte: u8) -> Vec<u8> {
        let mut wire = COMPOUND.to_vec();
        wire[at] = byte;
        wire
    }

    fn compound() -> CallHeader {
        CallHeader {
            xid: 0x1234_5678,
            program: 100_003,
            version: 4,
            procedure: 1,
            credential: Credential::Sys(AuthSys {
                stamp: 9,
                machine_name: Opaque::from("abc"),
                uid: 1000,
                gid: 100,
                gids: vec![],
            }),
            verifier: OpaqueAuth::NONE,
        }
    }

    #[test]
    fn a_call_is_read_up_to_its_arguments() {
        let mut d = Decoder::new(Bytes::from_static(COMPOUND));
        assert_eq!(CallHeader::decode(&mut d), Ok(compound()));
        assert_eq!(d.u32(), Ok(0xcafe_babe));
        assert_eq!(d.finish(), Ok(()));
    }

    #[test]
    fn a_call_is_written_as_it_is_read() {
        let mut e = Encoder::new();
        compound().encode(&mut e);
        assert_eq!(e.into_bytes(), COMPOUND[..COMPOUND.len() - 4]);
    }

    #[test]
    fn another_rpc_version_is_told_which_one_is_served() {
        let error = decode(&spoiled(11, 3)).unwrap_err();
        assert_eq!(error, CallError::RpcMismatch { xid: 0x1234_5678, version: 3 });
        assert_eq!(error.reply(), Some(ReplyHeader::rpc_mismatch(0x1234_5678)));
    }

    #[test]
    fn a_reply_is_not_a_call() {
        let error = decode(&spoiled(7, 1)).unwrap_err();
        assert_eq!(error, CallError::NotACall { xid: 0x1234_5678 });
        assert_eq!(error.reply(), None);
    }

    #[test]
    fn a_malformed_auth_sys_is_a_bad_credential_and_not_garbage() {
        let machine_name_len = 39;
        let error = decode(&spoiled(machine_name_len, 200)).unwrap_err();
        assert_eq!(error, CallError::Auth { xid: 0x1234_5678, stat: AuthStat::BadCred });
        assert_eq!(error.reply(), Some(ReplyHeader::auth_error(0x1234_5678, AuthStat::BadCred)));
    }

    #[test]
    fn a_credential_over_400_bytes_is_a_bad_credential() {
        let body_len = 30;
        let error = decode(&spoiled(body_len, 2)).unwrap_err();
        assert_eq!(error, CallError::Auth { xid: 0x1234_5678, stat: AuthStat::BadCred });
    }

    #[test]
    fn a_credential_that_claims_more_than_the_record_is_garbage() {
        let error = decode(&COMPOUND[..50]).unwrap_err();
        assert_eq!(error, CallError::Garbled(XdrError::UnexpectedEnd));
        assert_eq!(error.reply(), None);
    }

    #[test]
    fn auth_sys_with_a_verifier_is_a_bad_verifier() {
        let verifier_flavor = 59;
        let error = decode(&spoiled(verifier_flavor, 1)).unwrap_err();
        assert_eq!(error, CallError::Auth { xid: 0x1234_5678, stat: AuthStat::BadVerf });
    }

    fn any_auth(flavors: std::ops::Range<u32>) -> impl Strategy<Value = OpaqueAuth> {
        (flavors, proptest::collection::vec(any::<u8>(), 0..=400))
            .prop_map(|(flavor, body)| OpaqueAuth { flavor: AuthFlavor(flavor), body: body.into() })
    }

    fn any_sys() -> impl Strategy<Value = AuthSys> {
        let name = proptest::collection::vec(any::<u8>(), 0..=255);
        let gids = proptest::collection::vec(any::<u32>(), 0..=16);
        (any::<[u32; 3]>(), name, gids).prop_map(|([stamp, uid, gid], name, gids)| AuthSys {
            stamp,
            machine_name: name.into(),
            uid,
            gid,
            gids,
        })
    }

    fn any_gss() -> impl Strategy<Value = GssCredential> {
        let handle = proptest::collection::vec(any::<u8>(), 0..=64);
        let services = [GssService::None, GssService::Integrity, GssService::Privacy];
        (any::<u32>(), 0..3usize, handle).prop_map(move |(sequence, service, handle)| GssCredential {
            procedure: GssProcedure::Data,
            sequence,
            service: services[service],
            handle: handle.into(),
        })
    }

    fn any_identity() -> impl Strategy<Value = (Credential, OpaqueAuth)> {
        prop_oneof![
            Just((Credential::None, OpaqueAuth::NONE)),
            any_sys().prop_map(|sys| (Credential::Sys(sys), OpaqueAuth::NONE)),
            (any_gss(), any_auth(0..10)).prop_map(|(gss, verifier)| (Credential::RpcsecGss(gss), verifier)),
            (any_auth(7..99), any_auth(0..10))
                .prop_map(|(other, verifier)| (Credential::Other(other), verifier)),
        ]
    }

    proptest! {
        #[test]
        fn a_header_that_was_written_is_read_back(
            numbers in any::<[u32; 4]>(),
            (credential, verifier) in any_identity(),
            arguments in proptest::collection::vec(any::<u8>(), 0..32),
        ) {
            let [xid, program, version, procedure] = numbers;
            let header = CallHeader { xid, program, version, procedure, credential, verifier };
            let mut e = Encoder::new();
            header.encode(&mut e);
            e.put_raw(&arguments);
            let mut d = Decoder::new(e.into_bytes());
            prop_assert_eq!(CallHeader::decode(&mut d), Ok(header));
            prop_assert_eq!(d.rest(), arguments);
        }

        #[test]
        fn a_spoiled_call_is_read_or_refused(
            spoils in proptest::collection::vec((0..COMPOUND.len(), any::<u8>()), 1..4),
            len in 0..=COMPOUND.len(),
        ) {
            let mut wire = COMPOUND.to_vec();
            spoils.into_iter().for_each(|(at, byte)| wire[at] = byte);
            let _ = decode(&wire[..len]);
        }
    }
}
