//! Identity of a caller: the credentials of the flavors that are known (RFC 5531 §8.2, appendix A).

use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError, from_bytes};

use crate::{AuthFlavor, GssCredential, OpaqueAuth};

/// The most bytes in the machine name of AUTH_SYS (RFC 5531 appendix A).
pub const MACHINE_NAME_MAX: usize = 255;
/// The most supplementary groups in AUTH_SYS (RFC 5531 appendix A).
pub const GIDS_MAX: usize = 16;

/// The caller by the word of its own host.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct AuthSys {
    pub stamp: u32,
    #[xdr(max = MACHINE_NAME_MAX)]
    pub machine_name: Opaque,
    pub uid: u32,
    pub gid: u32,
    #[xdr(max = GIDS_MAX)]
    pub gids: Vec<u32>,
}

/// A credential, read as far as this server knows its flavor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    None,
    Sys(AuthSys),
    RpcsecGss(GssCredential),
    Other(OpaqueAuth),
}

impl Credential {
    pub fn flavor(&self) -> AuthFlavor {
        match self {
            Credential::None => AuthFlavor::NONE,
            Credential::Sys(_) => AuthFlavor::SYS,
            Credential::RpcsecGss(_) => AuthFlavor::RPCSEC_GSS,
            Credential::Other(auth) => auth.flavor,
        }
    }

    /// Reads the body of a credential; an error means AUTH_BADCRED, since the call around it is well formed.
    pub fn from_auth(auth: OpaqueAuth) -> Result<Self, XdrError> {
        match auth.flavor {
            AuthFlavor::NONE => Decoder::new(auth.body.0).finish().map(|()| Credential::None),
            AuthFlavor::SYS => from_bytes(auth.body.0).map(Credential::Sys),
            AuthFlavor::RPCSEC_GSS => from_bytes(auth.body.0).map(Credential::RpcsecGss),
            _ => Ok(Credential::Other(auth)),
        }
    }

    pub fn encode(&self, e: &mut Encoder) {
        self.flavor().encode(e);
        match self {
            Credential::None => e.put_len(0),
            Credential::Sys(sys) => e.opaque_with(|e| sys.encode(e)),
            Credential::RpcsecGss(gss) => e.opaque_with(|e| gss.encode(e)),
            Credential::Other(auth) => auth.body.encode(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(flavor: AuthFlavor, body: &'static [u8]) -> Result<Credential, XdrError> {
        Credential::from_auth(OpaqueAuth { flavor, body: Opaque::from_static(body) })
    }

    #[test]
    fn auth_sys_is_stamp_machine_uid_gid_gids() {
        let body = b"\0\0\0\x09\0\0\0\x04host\0\0\x03\xe8\0\0\0\x64\0\0\0\x02\0\0\0\x04\0\0\0\x18";
        let sys =
            AuthSys { stamp: 9, machine_name: Opaque::from("host"), uid: 1000, gid: 100, gids: vec![4, 24] };
        assert_eq!(credential(AuthFlavor::SYS, body), Ok(Credential::Sys(sys.clone())));
        let mut e = Encoder::new();
        Credential::Sys(sys).encode(&mut e);
        assert_eq!(e.into_bytes(), [b"\0\0\0\x01\0\0\0\x20", &body[..]].concat());
    }

    #[test]
    fn more_than_sixteen_groups_are_refused() {
        let mut body = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x11".to_vec();
        body.resize(20 + 17 * 4, 0);
        assert_eq!(
            from_bytes::<AuthSys>(body.into()),
            Err(XdrError::LengthOverLimit { length: 17, limit: GIDS_MAX })
        );
    }

    #[test]
    fn a_machine_name_that_claims_more_than_the_body_is_refused() {
        assert_eq!(credential(AuthFlavor::SYS, b"\0\0\0\0\0\0\0\xff1234"), Err(XdrError::UnexpectedEnd));
    }

    #[test]
    fn bytes_after_auth_sys_are_refused() {
        let body = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(credential(AuthFlavor::SYS, body), Err(XdrError::TrailingBytes));
        assert!(credential(AuthFlavor::SYS, &body[..20]).is_ok());
    }

    #[test]
    fn auth_none_has_no_body() {
        assert_eq!(credential(AuthFlavor::NONE, b""), Ok(Credential::None));
        assert_eq!(credential(AuthFlavor::NONE, b"\0\0\0\0"), Err(XdrError::TrailingBytes));
    }

    #[test]
    fn an_unknown_flavor_keeps_its_body() {
        let other = credential(AuthFlavor(77), b"body").unwrap();
        assert_eq!(other.flavor(), AuthFlavor(77));
    }

    #[test]
    fn a_malformed_gss_credential_is_a_bad_credential() {
        assert!(credential(AuthFlavor::RPCSEC_GSS, b"body").is_err());
        let destroy = b"\0\0\0\x01\0\0\0\x03\0\0\0\x09\0\0\0\x01\0\0\0\0";
        let gss = credential(AuthFlavor::RPCSEC_GSS, destroy).unwrap();
        let mut e = Encoder::new();
        gss.encode(&mut e);
        assert_eq!(e.into_bytes(), [b"\0\0\0\x06\0\0\0\x14", &destroy[..]].concat());
    }
}
