//! The kind of message in a record, and the version of the protocol.

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
