//! The header of a reply (RFC 5531 §9).

use xdr::{Decoder, Encoder, Xdr, XdrError};

use crate::{AuthStat, MessageType, OpaqueAuth, RPC_VERSION};

/// Precedes the results of a call, or stands in their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHeader {
    pub xid: u32,
    pub body: ReplyBody,
}

#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum ReplyBody {
    #[xdr(0)]
    Accepted(AcceptedReply),
    #[xdr(1)]
    Denied(RejectedReply),
}

#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct AcceptedReply {
    pub verifier: OpaqueAuth,
    pub status: AcceptedStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum AcceptedStatus {
    /// The results follow.
    #[xdr(0)]
    Success,
    #[xdr(1)]
    ProgUnavail,
    #[xdr(2)]
    ProgMismatch { low: u32, high: u32 },
    #[xdr(3)]
    ProcUnavail,
    #[xdr(4)]
    GarbageArgs,
    #[xdr(5)]
    SystemErr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum RejectedReply {
    #[xdr(0)]
    RpcMismatch { low: u32, high: u32 },
    #[xdr(1)]
    AuthError(AuthStat),
}

impl ReplyHeader {
    /// The results follow.
    pub fn success(xid: u32) -> Self {
        Self::accepted(xid, AcceptedStatus::Success)
    }

    pub fn prog_unavail(xid: u32) -> Self {
        Self::accepted(xid, AcceptedStatus::ProgUnavail)
    }

    /// The lowest and highest version of the program that are served.
    pub fn prog_mismatch(xid: u32, low: u32, high: u32) -> Self {
        Self::accepted(xid, AcceptedStatus::ProgMismatch { low, high })
    }

    pub fn proc_unavail(xid: u32) -> Self {
        Self::accepted(xid, AcceptedStatus::ProcUnavail)
    }

    pub fn garbage_args(xid: u32) -> Self {
        Self::accepted(xid, AcceptedStatus::GarbageArgs)
    }

    pub fn system_err(xid: u32) -> Self {
        Self::accepted(xid, AcceptedStatus::SystemErr)
    }

    pub fn rpc_mismatch(xid: u32) -> Self {
        let rejected = RejectedReply::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION };
        ReplyHeader { xid, body: ReplyBody::Denied(rejected) }
    }

    pub fn auth_error(xid: u32, stat: AuthStat) -> Self {
        ReplyHeader { xid, body: ReplyBody::Denied(RejectedReply::AuthError(stat)) }
    }

    /// With what an accepted reply proves itself by; a denied one has no place for it.
    pub fn with_verifier(mut self, verifier: OpaqueAuth) -> Self {
        if let ReplyBody::Accepted(accepted) = &mut self.body {
            accepted.verifier = verifier;
        }
        self
    }

    /// Whether results follow.
    pub fn is_success(&self) -> bool {
        matches!(&self.body, ReplyBody::Accepted(accepted) if accepted.status == AcceptedStatus::Success)
    }

    fn accepted(xid: u32, status: AcceptedStatus) -> Self {
        ReplyHeader { xid, body: ReplyBody::Accepted(AcceptedReply { verifier: OpaqueAuth::NONE, status }) }
    }
}

impl Xdr for ReplyHeader {
    fn encode(&self, e: &mut Encoder) {
        e.put_u32(self.xid);
        MessageType::Reply.encode(e);
        self.body.encode(e);
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        let xid = d.u32()?;
        match MessageType::decode(d)? {
            MessageType::Reply => Ok(ReplyHeader { xid, body: ReplyBody::decode(d)? }),
            MessageType::Call => {
                let value = MessageType::Call as u32;
                Err(XdrError::InvalidDiscriminant { type_name: "ReplyHeader", value })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xdr::{Bytes, from_bytes, to_bytes};

    use super::*;

    #[test]
    fn each_reply_has_the_layout_of_the_rfc() {
        let cases: [(ReplyHeader, &[u32]); 8] = [
            (ReplyHeader::success(7), &[7, 1, 0, 0, 0, 0]),
            (ReplyHeader::prog_unavail(7), &[7, 1, 0, 0, 0, 1]),
            (ReplyHeader::prog_mismatch(7, 3, 4), &[7, 1, 0, 0, 0, 2, 3, 4]),
            (ReplyHeader::proc_unavail(7), &[7, 1, 0, 0, 0, 3]),
            (ReplyHeader::garbage_args(7), &[7, 1, 0, 0, 0, 4]),
            (ReplyHeader::system_err(7), &[7, 1, 0, 0, 0, 5]),
            (ReplyHeader::rpc_mismatch(7), &[7, 1, 1, 0, 2, 2]),
            (ReplyHeader::auth_error(7, AuthStat::TooWeak), &[7, 1, 1, 1, 5]),
        ];
        for (header, words) in cases {
            let wire: Bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            assert_eq!(to_bytes(&header), wire, "{header:?}");
            assert_eq!(header.is_success(), words == [7, 1, 0, 0, 0, 0]);
            assert_eq!(from_bytes(wire), Ok(header));
        }
    }

    #[test]
    fn an_accepted_reply_carries_a_verifier() {
        let verifier = OpaqueAuth { flavor: crate::AuthFlavor::RPCSEC_GSS, body: xdr::Opaque::from("mic") };
        let wire = to_bytes(&ReplyHeader::success(7).with_verifier(verifier.clone()));
        assert_eq!(&wire[12..], b"\0\0\0\x06\0\0\0\x03mic\0\0\0\0\0");
        let denied = ReplyHeader::auth_error(7, AuthStat::TooWeak);
        assert_eq!(denied.clone().with_verifier(verifier), denied);
    }

    #[test]
    fn results_follow_a_success() {
        let mut d = Decoder::new(Bytes::from_static(
            b"\0\0\0\x07\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x2a",
        ));
        assert!(ReplyHeader::decode(&mut d).unwrap().is_success());
        assert_eq!(d.u32(), Ok(42));
    }

    #[test]
    fn a_call_is_not_a_reply() {
        let call = Bytes::from_static(b"\0\0\0\x07\0\0\0\0\0\0\0\x02");
        assert!(from_bytes::<ReplyHeader>(call).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_reply_or_refused(words in proptest::collection::vec(0u32..4, 0..12)) {
            let wire: Bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            if let Ok(header) = from_bytes::<ReplyHeader>(wire) {
                prop_assert_eq!(from_bytes(to_bytes(&header)), Ok(header));
            }
        }
    }
}
