//! The certificate authority of a cluster.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ParsedPublicKey};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SubjectPublicKeyInfo,
    date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::tls::Shown;
use super::{Fingerprint, Member, TrustError, key, tls};

const CERTIFICATE: &str = "the certificate of the cluster's authority";
const KEY: &str = "the key of the cluster's authority";

/// The authority of a cluster, with its key. The head holds it. Its key can certify any member, so it must stay secret.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

impl Authority {
    /// A new authority. The number of the cluster is in its certificate for people to tell authorities apart; nothing
    /// depends on it.
    pub fn make(cluster: &[u8; 16]) -> Result<Authority, TrustError> {
        let key = key::make(KEY)?;
        let number: String = cluster.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut params = params(format!("Forebay cluster {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).map_err(|error| make_error(CERTIFICATE, &error))?;
        Ok(Authority {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            certificate: certificate.into(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority that [`Authority::certificate_pem`] and [`Authority::key_pem`] have saved.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Authority, TrustError> {
        let certificate_pem = certificate.to_owned();
        let certificate = read_authority(certificate)?;
        let key = key::read(KEY, key)?;
        if Fingerprint::of_certificate(&certificate)
            != Some(Fingerprint::of_key(&key.subject_public_key_info()))
        {
            return Err(TrustError::OtherKey);
        }
        let key_pem = key.serialize_pem();
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|error| read_error(&error))?;
        Ok(Authority { issuer, certificate, certificate_pem, key_pem })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// PKCS #8. It is secret.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_key(&self.issuer.key().subject_public_key_info())
    }

    /// A certificate in PEM for the public key (SubjectPublicKeyInfo in DER) of a member that joins.
    ///
    /// It says that the head gives this key this name, and not that the sender of the key holds its private half: TLS
    /// shows that later. The caller must refuse a key that another member has.
    pub fn issue(&self, member: Member, public_key: &[u8]) -> Result<String, TrustError> {
        ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public_key).map_err(|_| TrustError::PublicKey)?;
        let key = SubjectPublicKeyInfo::from_der(public_key).map_err(|_| TrustError::PublicKey)?;
        // One encoding for each key, or the certificate would have another fingerprint than the key that was sent.
        if key.algorithm() != &PKCS_ECDSA_P256_SHA256 || key.subject_public_key_info() != public_key {
            return Err(TrustError::PublicKey);
        }
        Ok(self.certify(member, &key)?.pem())
    }

    /// The configuration for the port of the head, with a new key and certificate of its own.
    ///
    /// It asks the peer for a certificate of this authority, or of the `former` one, and refuses any other one. It also
    /// accepts a peer that shows none: such a peer may only join. A peer that trusts the former authority gets a certificate
    /// of that one. Sessions are not resumed.
    pub fn server_config(&self, former: Option<&Authority>) -> Result<Arc<ServerConfig>, TrustError> {
        tls::server_config(self.shown()?, former.map(Authority::shown).transpose()?)
    }

    fn shown(&self) -> Result<Shown<'_>, TrustError> {
        let (chain, key) = self.make_head()?;
        Ok(Shown { authority: &self.certificate, fingerprint: self.fingerprint(), chain, key })
    }

    /// The certificates that a head shows, and their key. The authority's own is one of them: a peer that joins knows
    /// its fingerprint only.
    pub(super) fn make_head(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TrustError> {
        let key = key::make("the key of the head")?;
        let own = self.certify(Member::Head, &key)?;
        Ok((vec![own.into(), self.certificate.clone()], key::private(&key)))
    }

    fn certify(&self, member: Member, key: &impl PublicKeyData) -> Result<Certificate, TrustError> {
        self.sign(member_params(member)?, key)
    }

    pub(super) fn sign(
        &self,
        params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<Certificate, TrustError> {
        params.signed_by(key, &self.issuer).map_err(|error| make_error(MEMBER, &error))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({})", self.fingerprint())
    }
}

/// The certificate of an authority from PEM.
pub(super) fn read_authority(pem: &str) -> Result<CertificateDer<'static>, TrustError> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| read_error(&error))?;
    let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|error| read_error(&error))?;
    if parsed.is_ca() { Ok(certificate.clone()) } else { Err(TrustError::NoAuthority) }
}

const MEMBER: &str = "the certificate of a member";

/// A head serves and a pool dials. Each gets the usage that it needs and no other.
pub(super) fn member_params(member: Member) -> Result<CertificateParams, TrustError> {
    let name = member.host_name();
    let mut params = params(name.clone());
    let name = name.try_into().map_err(|error: rcgen::Error| make_error(MEMBER, &error))?;
    params.subject_alt_names = vec![rcgen::SanType::DnsName(name)];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match member {
        Member::Head => ExtendedKeyUsagePurpose::ServerAuth,
        Member::Pool(_) => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(name: String) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // All times that a clock can show.
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params
}

fn make_error(what: &'static str, error: &dyn fmt::Display) -> TrustError {
    TrustError::Make { what, reason: error.to_string() }
}

fn read_error(error: &dyn fmt::Display) -> TrustError {
    TrustError::Read { what: CERTIFICATE, reason: error.to_string() }
}
