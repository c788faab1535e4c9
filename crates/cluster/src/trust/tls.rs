//! TLS configurations for the links of a cluster.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, PeerIncompatible,
    RootCertStore, ServerConfig, SignatureScheme,
};

use super::authority::read_authority;
use super::{Fingerprint, HEAD_NAME, MemberKey, TrustError};

/// The configuration of a member that dials the head.
///
/// It shows the member's certificate. It accepts a head by the authority's certificate only. The server name must be
/// [`HEAD_NAME`], whatever the address. With TLS 1.3 the handshake of the client ends before the head has looked at its
/// certificate: a refusal arrives at the first read.
pub fn client_config(
    key: &MemberKey,
    certificate_pem: &str,
    authority_pem: &str,
) -> Result<Arc<ClientConfig>, TrustError> {
    let own = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
        .map_err(|error| TrustError::MemberCertificate { reason: error.to_string() })?;
    let roots = roots(&read_authority(authority_pem)?).map_err(tls_error)?;
    let provider = provider();
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| TrustError::Tls(error.to_string()))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(vec![own], key.private_key())
        .map_err(|error| TrustError::MemberCertificate { reason: error.to_string() })?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The configuration of a host that has a token and nothing else.
///
/// It shows no certificate. It accepts a head whose certificate is signed by the authority with this fingerprint; the
/// head sends the authority's certificate along.
pub fn join_config(authority: Fingerprint) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = provider();
    let verifier = JoinVerifier { authority, provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

pub(super) fn server_config(
    authority: &CertificateDer<'static>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, TrustError> {
    let provider = provider();
    let roots = roots(authority).map_err(tls_error)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| TrustError::Tls(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(tls_error)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Verifies a head by the fingerprint of its authority.
///
/// The authority's certificate comes from the peer, so it counts only if its key has the fingerprint. It is then the
/// one root of an ordinary verification: signature, dates, usage and name.
#[derive(Debug)]
struct JoinVerifier {
    authority: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for JoinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = intermediates
            .iter()
            .find(|certificate| Fingerprint::of_certificate(certificate) == Some(self.authority))
            .ok_or_else(|| CertificateError::Other(OtherError(Arc::new(TrustError::OtherCluster))))?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority)?, self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        // The name is fixed: the address that was dialled says nothing about the host.
        let head = ServerName::try_from(HEAD_NAME).map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], &head, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn roots(authority: &CertificateDer<'_>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned())?;
    Ok(Arc::new(roots))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn tls_error(error: Error) -> TrustError {
    TrustError::Tls(error.to_string())
}
