//! Credentials and verifiers as bytes of some flavor (RFC 5531 §8.2, §10).

use xdr::{Opaque, Xdr};

/// The most bytes in the body of a credential or verifier (RFC 5531 §8.2).
pub const AUTH_BODY_MAX: usize = 400;

/// The number that says how a body is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Xdr)]
pub struct AuthFlavor(pub u32);

impl AuthFlavor {
    pub const NONE: Self = AuthFlavor(0);
    pub const SYS: Self = AuthFlavor(1);
    pub const SHORT: Self = AuthFlavor(2);
    pub const DH: Self = AuthFlavor(3);
    pub const RPCSEC_GSS: Self = AuthFlavor(6);
}

/// Why a call's credential or verifier was refused (RFC 5531 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum AuthStat {
    Ok = 0,
    BadCred = 1,
    RejectedCred = 2,
    BadVerf = 3,
    RejectedVerf = 4,
    TooWeak = 5,
    InvalidResp = 6,
    Failed = 7,
    KerbGeneric = 8,
    TimeExpire = 9,
    TktFile = 10,
    Decode = 11,
    NetAddr = 12,
    RpcsecGssCredProblem = 13,
    RpcsecGssCtxProblem = 14,
}

/// A credential or verifier as the RPC layer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct OpaqueAuth {
    pub flavor: AuthFlavor,
    #[xdr(max = AUTH_BODY_MAX)]
    pub body: Opaque,
}

impl OpaqueAuth {
    pub const NONE: Self = OpaqueAuth { flavor: AuthFlavor::NONE, body: Opaque::new() };

    /// Whether this is AUTH_NONE, whose body must be empty.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}
