//! Trust between the hosts of a cluster: its certificate authority, the certificates of its members, and join tokens.
//!
//! Each cluster has an authority of its own ([`Authority`]). No public authority and no name service takes part. The head
//! makes itself a certificate for servers at each start. A pool gets one for clients when it joins. A pool's certificate
//! is not valid for a server, so a captured pool host cannot pose as the head.
//!
//! No certificate expires: all are valid from 1970 to 9999, because the clocks of hosts may be wrong by hours or more. A
//! member stays trusted until the head forgets the [`Fingerprint`] of its key. There is no list of revoked certificates:
//! the head must compare the fingerprint and the pool number that [`peer`] gives with those that it knows, on each
//! connection.
//!
//! All links are TLS 1.3. Sessions are not resumed, so each connection shows its certificates and keys anew.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::ParsedCertificate;
use types::PoolId;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

mod authority;
mod explain;
mod key;
mod tls;
mod token;

#[cfg(test)]
mod tests;

pub use authority::Authority;
pub use explain::explain;
pub use key::MemberKey;
pub use tls::{Dialling, client_config, join_config};
pub use token::{Token, TokenError};

/// The name in the certificate of a head. Clients ask for it whatever the address that they dial.
pub const HEAD_NAME: &str = "head.forebay.internal";

/// Why a key, a certificate or a TLS configuration cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot make {what}: {reason}")]
    Make { what: &'static str, reason: String },
    #[error("cannot read {what}: {reason}")]
    Read { what: &'static str, reason: String },
    #[error("cannot use the certificate of the cluster's authority: it belongs to another key")]
    OtherKey,
    #[error("cannot use the certificate of the cluster's authority: it is not for an authority")]
    NoAuthority,
    #[error("cannot certify the public key of the member: it is not an ECDSA P-256 key")]
    PublicKey,
    #[error("cannot use the certificate of this member: {reason}")]
    MemberCertificate { reason: String },
    #[error("cannot set up TLS for the cluster: {0}")]
    Tls(String),
    #[error("cannot read a fingerprint: it is not 64 hexadecimal digits")]
    Fingerprint,
    /// The answer to a token that leads to a host of another cluster.
    #[error("the host is not a head of the cluster that made the token")]
    OtherCluster,
}

/// SHA-256 of a public key, as SubjectPublicKeyInfo in DER. It stays the same if the key gets another certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of the authority's certificate, or another one, in PEM.
    pub fn of_pem(certificate: &str) -> Result<Fingerprint, TrustError> {
        let what = "a certificate";
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| TrustError::Read { what, reason: error.to_string() })?;
        let unread = || TrustError::Read { what, reason: "it is not X.509".to_owned() };
        Fingerprint::of_certificate(&der).ok_or_else(unread)
    }

    /// Of a public key as SubjectPublicKeyInfo in DER.
    pub fn of_key(public_key: &[u8]) -> Fingerprint {
        Fingerprint(sha256(&[public_key]))
    }

    /// It reads the key with the parser that TLS verifies with. So both mean the same key.
    fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Fingerprint> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        Some(Fingerprint::of_key(&parsed.subject_public_key_info()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        types::hex::Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = TrustError;

    fn from_str(text: &str) -> Result<Fingerprint, TrustError> {
        let bytes = types::hex::decode(text.as_bytes()).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Fingerprint).ok_or(TrustError::Fingerprint)
    }
}

/// The owner of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Member {
    Pool(PoolId),
    Head,
}

impl Member {
    /// The DNS name in the certificate. No name service knows it.
    fn host_name(self) -> String {
        match self {
            Member::Head => HEAD_NAME.to_owned(),
            Member::Pool(PoolId(number)) => format!("pool-{number}.forebay.internal"),
        }
    }

    fn from_host_name(name: &str) -> Option<Member> {
        if name == HEAD_NAME {
            return Some(Member::Head);
        }
        let number = name.strip_prefix("pool-")?.strip_suffix(".forebay.internal")?;
        let pool = Member::Pool(PoolId(number.parse().ok()?));
        // Each pool has one name: neither `pool-+3` nor `pool-03`.
        (pool.host_name() == name).then_some(pool)
    }
}

/// The peer by its certificate, and the fingerprint of its public key.
///
/// It verifies nothing: `certificates` must be those of a connection that [`Authority::server_config`] or
/// [`client_config`] has accepted.
pub fn peer(certificates: &[CertificateDer<'_>]) -> Option<(Member, Fingerprint)> {
    let own = certificates.first()?;
    let (_, parsed) = X509Certificate::from_der(own).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    let [GeneralName::DNSName(name)] = names.value.general_names.as_slice() else { return None };
    Some((Member::from_host_name(name)?, Fingerprint::of_certificate(own)?))
}

/// The head keeps this of a token's secret. The secret has 128 random bits, so a plain hash does not give it away.
pub fn secret_hash(secret: &[u8; 16]) -> [u8; 32] {
    sha256(&[secret])
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}
