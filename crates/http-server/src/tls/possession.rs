//! Client certificates are asked for, and taken whatever they say; the handshake's signature must be the leaf's.
//!
//! The usual verifier refuses what it does not know, and RFC 3820 proxies carry a critical extension that it does not
//! know. So only the key is taken out of the leaf here; chain, times and names are judged where identities are made.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::asn1_rs::{Any, FromDer};
use x509_parser::certificate::X509Certificate;

/// A proxy of a proxy of a user below two authorities has five.
const CERTIFICATES_MAX: usize = 10;
const CHAIN_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct ProvenPossession {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ProvenPossession {
    pub fn new(provider: &CryptoProvider) -> ProvenPossession {
        ProvenPossession { algorithms: provider.signature_verification_algorithms }
    }

    /// In TLS 1.2 a scheme leaves the curve open, so all algorithms that it may stand for are tried; in TLS 1.3 it names
    /// one, the first (RFC 8446 §4.2.3).
    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        tries_max: usize,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = leaf_key(certificate).ok_or(CertificateError::BadEncoding)?;
        let offered = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let algorithms = offered.map_or(&[][..], |(_, algorithms)| algorithms);
        let fitting = algorithms
            .iter()
            .take(tries_max)
            .filter(|algorithm| algorithm.public_key_alg_id().as_ref() == key.algorithm);
        for algorithm in fitting {
            if algorithm.verify_signature(key.bits, message, signed.signature()).is_ok() {
                return Ok(HandshakeSignatureValid::assertion());
            }
        }
        Err(CertificateError::BadSignature.into())
    }
}

struct LeafKey<'a> {
    /// DER of the AlgorithmIdentifier without its outer tag and length, the form of `public_key_alg_id`.
    algorithm: &'a [u8],
    bits: &'a [u8],
}

fn leaf_key<'a>(certificate: &'a CertificateDer<'_>) -> Option<LeafKey<'a>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let info = parsed.tbs_certificate.subject_pki;
    let (_, sequence) = Any::from_der(info.raw).ok()?;
    let (rest, algorithm) = Any::from_der(sequence.data).ok()?;
    let (_, bits) = Any::from_der(rest).ok()?;
    // A BIT STRING begins with the number of bits that its last byte does not use.
    let (0, bits) = bits.data.split_first().map(|(unused, bits)| (*unused, bits))? else { return None };
    Some(LeafKey { algorithm: algorithm.data, bits })
}

impl ClientCertVerifier for ProvenPossession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None: clients are not to choose by issuer, which proxies do not have.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = leaf.len() + others.iter().map(|certificate| certificate.len()).sum::<usize>();
        if others.len() >= CERTIFICATES_MAX || bytes > CHAIN_BYTES_MAX {
            return Err(Error::General("client certificate chain is too long".to_owned()));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed, usize::MAX)
    }

    /// PKCS#1 signatures do not exist in TLS 1.3 handshakes.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let is_of_tls12_only = matches!(
            signed.scheme,
            SignatureScheme::RSA_PKCS1_SHA1
                | SignatureScheme::RSA_PKCS1_SHA256
                | SignatureScheme::RSA_PKCS1_SHA384
                | SignatureScheme::RSA_PKCS1_SHA512
        );
        if is_of_tls12_only {
            return Err(CertificateError::BadSignature.into());
        }
        self.verify(message, certificate, signed, 1)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
