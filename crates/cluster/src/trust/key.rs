//! The key pair of a member.

use std::fmt;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{Fingerprint, TrustError};

/// The key pair of a member, ECDSA P-256. It is made on the member's host and does not leave it.
pub struct MemberKey(KeyPair);

impl MemberKey {
    pub fn make() -> Result<MemberKey, TrustError> {
        make("the key of the member").map(MemberKey)
    }

    pub fn from_pem(pem: &str) -> Result<MemberKey, TrustError> {
        read("the key of the member", pem).map(MemberKey)
    }

    /// PKCS #8. It is secret.
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// SubjectPublicKeyInfo in DER, for [`Authority::issue`](super::Authority::issue).
    pub fn public_key(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_key(&self.public_key())
    }

    pub(super) fn private_key(&self) -> PrivateKeyDer<'static> {
        private(&self.0)
    }
}

impl fmt::Debug for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberKey({})", self.fingerprint())
    }
}

pub(super) fn make(what: &'static str) -> Result<KeyPair, TrustError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|error| TrustError::Make { what, reason: error.to_string() })
}

pub(super) fn read(what: &'static str, pem: &str) -> Result<KeyPair, TrustError> {
    KeyPair::from_pkcs8_pem_and_sign_algo(pem, &PKCS_ECDSA_P256_SHA256)
        .map_err(|error| TrustError::Read { what, reason: error.to_string() })
}

pub(super) fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}
