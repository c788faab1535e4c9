//! TLS configurations for the links of a cluster.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, PeerIncompatible,
    RootCertStore, ServerConfig, SignatureScheme,
};

use super::authority::read_authority;
use super::{Fingerprint, HEAD_NAME, MemberKey, TrustError};

/// How a head is dialled by a host that trusts one authority.
#[derive(Clone)]
pub struct Dialling {
    pub tls: Arc<ClientConfig>,
    /// It is sent in clear and names that authority, so that a head with a new key shows the certificate that the host can
    /// verify.
    pub name: ServerName<'static>,
}

impl Dialling {
    /// Of a member, by its key, its certificate and that of the authority.
    pub fn of_member(
        key: &MemberKey,
        certificate_pem: &str,
        authority_pem: &str,
    ) -> Result<Dialling, TrustError> {
        let tls = client_config(key, certificate_pem, authority_pem)?;
        Ok(Dialling { tls, name: authority_name(Fingerprint::of_pem(authority_pem)?)? })
    }

    /// Of a host that has a token and nothing else.
    pub fn of_stranger(authority: Fingerprint) -> Result<Dialling, TrustError> {
        Ok(Dialling { tls: join_config(authority)?, name: authority_name(authority)? })
    }
}

/// The beginning of the fingerprint suffices to tell two authorities apart, and fits a label of DNS.
fn authority_name(Fingerprint(authority): Fingerprint) -> Result<ServerName<'static>, TrustError> {
    let name = format!("{}.{HEAD_NAME}", types::hex::Hex(&authority[..16]));
    ServerName::try_from(name).map_err(|error| TrustError::Tls(error.to_string()))
}

/// The configuration of a member that dials the head.
///
/// It shows the member's certificate. It accepts a head by the authority's certificate only. The name in the head's
/// certificate must be [`HEAD_NAME`], whatever the address. With TLS 1.3 the handshake of the client ends before the head has
/// looked at its certificate: a refusal arrives at the first read.
pub fn client_config(
    key: &MemberKey,
    certificate_pem: &str,
    authority_pem: &str,
) -> Result<Arc<ClientConfig>, TrustError> {
    let own = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
        .map_err(|error| TrustError::MemberCertificate { reason: error.to_string() })?;
    let authority = Trusted::Authority(read_authority(authority_pem)?);
    let provider = provider();
    let verifier = HeadVerifier { authority, provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
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
    let verifier = HeadVerifier { authority: Trusted::Key(authority), provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Certificates that a head shows to hosts that trust one authority.
pub(super) struct Shown<'a> {
    pub authority: &'a CertificateDer<'static>,
    pub fingerprint: Fingerprint,
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// For hosts that trust the authority of now, and for those that trust the former one still.
pub(super) fn server_config(
    now: Shown<'_>,
    former: Option<Shown<'_>>,
) -> Result<Arc<ServerConfig>, TrustError> {
    let provider = provider();
    let trusted = std::iter::once(&now).chain(&former).map(|shown| shown.authority.clone());
    let roots = roots(trusted).map_err(tls_error)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| TrustError::Tls(error.to_string()))?;
    let certified =
        |shown: Shown<'_>| CertifiedKey::from_der(shown.chain, shown.key, &provider).map(Arc::new);
    let former = former.map(|former| {
        let name = authority_name(former.fingerprint)?.to_str().into_owned();
        Ok::<_, TrustError>((name, certified(former).map_err(tls_error)?))
    });
    let certificates =
        HeadCertificates { now: certified(now).map_err(tls_error)?, former: former.transpose()? };
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(certificates));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Chooses by the name that the peer dials ([`Dialling`]).
#[derive(Debug)]
struct HeadCertificates {
    now: Arc<CertifiedKey>,
    former: Option<(String, Arc<CertifiedKey>)>,
}

impl ResolvesServerCert for HeadCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let former = self.former.as_ref().filter(|(name, _)| hello.server_name() == Some(name));
        Some(Arc::clone(former.map_or(&self.now, |(_, former)| former)))
    }
}

#[derive(Debug)]
enum Trusted {
    Authority(CertificateDer<'static>),
    /// The authority's certificate comes from the peer, so it counts only if its key has this fingerprint.
    Key(Fingerprint),
}

/// Verifies a head by its authority, which is the one root of an ordinary verification: signature, dates, usage and name.
#[derive(Debug)]
struct HeadVerifier {
    authority: Trusted,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for HeadVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = match &self.authority {
            Trusted::Authority(authority) => authority.clone(),
            Trusted::Key(key) => {
                let is_it = |shown: &&CertificateDer<'_>| Fingerprint::of_certificate(shown) == Some(*key);
                let shown = intermediates.iter().find(is_it);
                let other = || CertificateError::Other(OtherError(Arc::new(TrustError::OtherCluster)));
                shown.ok_or_else(other)?.clone().into_owned()
            }
        };
        let roots = roots([authority])?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        // The name is fixed: the one that was dialled says which authority this host trusts.
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

fn roots(
    authorities: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    authorities.into_iter().try_for_each(|authority| roots.add(authority))?;
    Ok(Arc::new(roots))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn tls_error(error: Error) -> TrustError {
    TrustError::Tls(error.to_string())
}
