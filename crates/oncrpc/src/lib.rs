//! ONC RPC version 2 (RFC 5531): record marking, calls, replies, AUTH_SYS, RPCSEC_GSS (RFC 2203).
//!
//! Sans-io: bytes in, values out. The transport owns the socket and the buffer, the doors own the programs.
//!
//! Invariants: a record that came in one fragment is never copied, everything a peer announces is bounded before
//! it is believed, and a call that cannot be served says which reply it is due.
//!
//! Deliberately absent: UDP, portmapper, and the tokens inside RPCSEC_GSS (they are bytes here).

#![forbid(unsafe_code)]

mod auth;
mod call;
mod gss;
mod record;
mod reply;

pub use auth::{
    AUTH_BODY_MAX, AuthFlavor, AuthStat, AuthSys, Credential, GIDS_MAX, MACHINE_NAME_MAX, OpaqueAuth,
};
pub use call::{CallError, CallHeader};
pub use gss::{
    GssCredential, GssInitArgs, GssInitRes, GssProcedure, GssService, IntegrityBody, SequenceFate,
    SequenceWindow, privacy_token, signed_header, unnumbered,
};
pub use record::{RecordError, RecordReader, record_header};
pub use reply::{AcceptedReply, AcceptedStatus, RejectedReply, ReplyBody, ReplyHeader};

use xdr::{Bytes, Decoder, Xdr, XdrError};

/// The only version of the protocol (RFC 5531 §9).
pub const RPC_VERSION: u32 = 2;

/// The kind of message in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum MessageType {
    Call = 0,
    Reply = 1,
}

/// Looks at the first two words of a record: both directions share a connection once it has a backchannel.
pub fn message_type(record: &Bytes) -> Result<(u32, MessageType), XdrError> {
    let mut d = Decoder::new(record.clone());
    Ok((d.u32()?, MessageType::decode(&mut d)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_words_tell_calls_from_replies() {
        let of = |words: &'static [u8]| message_type(&Bytes::from_static(words));
        assert_eq!(of(b"\0\0\0\x07\0\0\0\0"), Ok((7, MessageType::Call)));
        assert_eq!(of(b"\0\0\0\x07\0\0\0\x01rest"), Ok((7, MessageType::Reply)));
        assert_eq!(
            of(b"\0\0\0\x07\0\0\0\x02"),
            Err(XdrError::InvalidDiscriminant { type_name: "MessageType", value: 2 })
        );
        assert_eq!(of(b"\0\0\0\x07\0"), Err(XdrError::UnexpectedEnd));
    }
}
