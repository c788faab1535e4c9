//! Channel attributes: what CREATE_SESSION asks and what it gets (RFC 8881 §18.36.3).

use nfs4::{AuthSysParms, CallbackSecParms4, ChannelAttrs4, NfsStat4};
use xdr::Opaque;

use crate::SessionLimits;

/// Below this no request with SEQUENCE and one more operation fits, nor its reply.
const MESSAGE_BYTES_MIN: u32 = 128;
/// CB_SEQUENCE and the operation it is for.
const CALLBACK_OPERATIONS_MIN: u32 = 2;

/// The fore channel that we grant: never more than asked, never more than our bounds. The reply cache has room for
/// `slots`.
pub(crate) fn fore(asked: &ChannelAttrs4, limits: &SessionLimits, slots: u32) -> ChannelAttrs4 {
    ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: asked.maxrequestsize.min(limits.request_bytes_max),
        maxresponsesize: asked.maxresponsesize.min(limits.response_bytes_max),
        maxresponsesize_cached: cached_bytes(asked, limits),
        maxoperations: asked.maxoperations.min(limits.operations_max),
        maxrequests: slots,
        rdma_ird: None,
    }
}

/// Bytes that one slot may have to keep.
pub(crate) fn cached_bytes(asked: &ChannelAttrs4, limits: &SessionLimits) -> u32 {
    asked.maxresponsesize_cached.min(limits.cached_response_bytes_max).min(asked.maxresponsesize)
}

/// The back channel stays as the client described it: Linux refuses a session whose response size came back smaller
/// or any other attribute larger (`nfs4_verify_back_channel_attrs`). We use less of it where we like.
pub(crate) fn back(asked: &ChannelAttrs4) -> ChannelAttrs4 {
    ChannelAttrs4 { headerpadsize: 0, rdma_ird: None, ..*asked }
}

pub(crate) fn check_fore(asked: &ChannelAttrs4) -> Result<(), NfsStat4> {
    let small = asked.maxrequestsize < MESSAGE_BYTES_MIN
        || asked.maxresponsesize < MESSAGE_BYTES_MIN
        || asked.maxoperations == 0;
    if small {
        return Err(NfsStat4::TooSmall);
    }
    if asked.maxrequests == 0 { Err(NfsStat4::Inval) } else { Ok(()) }
}

pub(crate) fn check_back(asked: &ChannelAttrs4) -> Result<(), NfsStat4> {
    let small = asked.maxrequestsize < MESSAGE_BYTES_MIN
        || asked.maxresponsesize < MESSAGE_BYTES_MIN
        || asked.maxoperations < CALLBACK_OPERATIONS_MIN
        || asked.maxrequests == 0;
    if small { Err(NfsStat4::TooSmall) } else { Ok(()) }
}

/// The credential that callbacks carry: the first that we can speak of those the client accepts. The RFC has no error
/// for "GSS only"; we say ENCR_ALG_UNSUPP, as the Linux server does.
pub(crate) fn callback_security(offered: &[CallbackSecParms4]) -> Result<CallbackSecParms4, NfsStat4> {
    if offered.is_empty() {
        return Ok(CallbackSecParms4::None);
    }
    offered
        .iter()
        .find(|parms| !matches!(parms, CallbackSecParms4::Gss(_)))
        .map(copied)
        .ok_or(NfsStat4::EncrAlgUnsupp)
}

/// Copied out of the request, all of whose bytes a session would hold as long as it lives.
fn copied(parms: &CallbackSecParms4) -> CallbackSecParms4 {
    let CallbackSecParms4::Sys(sys) = parms else { return parms.clone() };
    let machinename = Opaque::copy_from_slice(&sys.machinename);
    CallbackSecParms4::Sys(AuthSysParms { machinename, ..sys.clone() })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use nfs4::{GssCbHandles4, RpcGssSvc};

    use super::*;

    const LINUX: ChannelAttrs4 = ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: 1_049_620,
        maxresponsesize: 1_049_480,
        maxresponsesize_cached: 7_584,
        maxoperations: 8,
        maxrequests: 64,
        rdma_ird: None,
    };

    #[test]
    fn linux_is_granted_what_it_asks_for_with_shorter_kept_replies() {
        let granted = ChannelAttrs4 { maxresponsesize_cached: 2_048, ..LINUX };
        assert_eq!(fore(&LINUX, &SessionLimits::default(), 64), granted);
        assert_eq!(check_fore(&LINUX), Ok(()));
    }

    #[test]
    fn nothing_is_granted_above_the_ask_or_our_bounds() {
        let greedy = ChannelAttrs4 {
            headerpadsize: 9,
            maxrequestsize: u32::MAX,
            maxresponsesize: u32::MAX,
            maxresponsesize_cached: u32::MAX,
            maxoperations: u32::MAX,
            maxrequests: u32::MAX,
            rdma_ird: Some(3),
        };
        let limits = SessionLimits::default();
        let granted = fore(&greedy, &limits, 3);
        assert_eq!(granted.maxrequestsize, limits.request_bytes_max);
        assert_eq!(granted.maxresponsesize, limits.response_bytes_max);
        assert_eq!(granted.maxresponsesize_cached, limits.cached_response_bytes_max);
        assert_eq!((granted.maxoperations, granted.maxrequests), (64, 3));
        assert_eq!((granted.headerpadsize, granted.rdma_ird), (0, None));
    }

    #[test]
    fn a_channel_that_no_compound_fits_is_too_small() {
        let tiny = ChannelAttrs4 { maxrequestsize: 20, ..LINUX };
        assert_eq!(check_fore(&tiny), Err(NfsStat4::TooSmall));
        assert_eq!(check_fore(&ChannelAttrs4 { maxoperations: 0, ..LINUX }), Err(NfsStat4::TooSmall));
        assert_eq!(check_fore(&ChannelAttrs4 { maxrequests: 0, ..LINUX }), Err(NfsStat4::Inval));
        assert_eq!(check_back(&ChannelAttrs4 { maxoperations: 1, ..LINUX }), Err(NfsStat4::TooSmall));
    }

    #[test]
    fn the_back_channel_comes_back_as_it_was_sent() {
        assert_eq!(back(&LINUX), LINUX);
    }

    #[test]
    fn callbacks_take_the_first_credential_that_is_not_gss() {
        let gss = CallbackSecParms4::Gss(GssCbHandles4 {
            service: RpcGssSvc::None,
            handle_from_server: Opaque::new(),
            handle_from_client: Opaque::new(),
        });
        assert_eq!(callback_security(&[]), Ok(CallbackSecParms4::None));
        assert_eq!(callback_security(&[gss.clone(), CallbackSecParms4::None]), Ok(CallbackSecParms4::None));
        assert_eq!(callback_security(&[gss]), Err(NfsStat4::EncrAlgUnsupp));
    }

    #[test]
    fn callback_security_does_not_hold_the_request_that_carried_it() {
        let request = Bytes::from(vec![7; 1 << 20]);
        let machinename = Opaque(request.slice(100..104));
        let offered = [CallbackSecParms4::Sys(AuthSysParms { machinename, ..AuthSysParms::default() })];
        let kept = callback_security(&offered);
        assert_eq!(kept, Ok(offered[0].clone()));
        drop(offered);
        assert!(request.is_unique(), "a session would hold all of it");
    }
}
