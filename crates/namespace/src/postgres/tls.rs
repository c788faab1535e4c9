//! TLS to the server: its authentication, and the binding of the login to the channel (RFC 5929 §4.1), so that nobody
//! in between can pass the login on.
//!
//! As with libpq a connection that was merely asked to be encrypted checks no certificate. Files are read for each
//! connection, so that they may be replaced.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_lc_rs::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use x509_parser::oid_registry as oids;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::signature_algorithm::SignatureAlgorithm;

use super::url::{Check, Own, Roots, Trust};

#[derive(Clone, Debug, Error)]
pub enum TlsError {
    #[error("cannot read {what} from {file}: {reason}")]
    File { what: &'static str, file: String, reason: String },
    #[error("cannot set TLS up: {0}")]
    Setup(String),
    #[error("\"{0}\" is no name that a certificate could have")]
    Host(String),
    #[error("{0}")]
    Handshake(String),
}

/// Makes an encrypted stream of a connection.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    host: String,
}

impl Connector {
    /// Reads files.
    pub fn new(trust: &Trust) -> Result<Connector, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Verifier::new(trust, Arc::clone(&provider))?;
        let setup = |error: Error| TlsError::Setup(error.to_string());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(setup)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &trust.own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let (chain, key) = read_own(own)?;
                builder.with_client_auth_cert(chain, key).map_err(setup)?
            }
        };
        // Newer servers require it for direct TLS.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Connector { config: Arc::new(config), host: String::new() })
    }
}

fn read_own(own: &Own) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = read_certificates("sslcert", &own.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&own.key).map_err(|error| unread("sslkey", &own.key, error))?;
    Ok((chain, key))
}

fn read_certificates(what: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(file).and_then(|certificates| certificates.collect());
    let certificates: Vec<_> = read.map_err(|error| unread(what, file, error))?;
    if certificates.is_empty() {
        Err(unread(what, file, "no certificate is in it"))
    } else {
        Ok(certificates)
    }
}

fn unread(what: &'static str, file: &Path, reason: impl ToString) -> TlsError {
    TlsError::File { what, file: file.display().to_string(), reason: reason.to_string() }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Connector;
    type Error = TlsError;

    /// Also asked for sockets that have no host, and then not used.
    fn make_tls_connect(&mut self, host: &str) -> Result<Connector, TlsError> {
        Ok(Connector { config: Arc::clone(&self.config), host: host.to_owned() })
    }
}

impl TlsConnect<Socket> for Connector {
    type Stream = Stream;
    type Error = TlsError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, TlsError>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let Connector { config, host } = self;
            let name = ServerName::try_from(host.clone()).map_err(|_| TlsError::Host(host.clone()))?;
            let shaken = tokio_rustls::TlsConnector::from(config).connect(name, socket).await;
            Ok(Stream(shaken.map_err(|error| TlsError::Handshake(explain(&error, &host)))?))
        })
    }
}

fn explain(error: &io::Error, host: &str) -> String {
    let told = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let Some(Error::InvalidCertificate(invalid)) = told else { return error.to_string() };
    match invalid {
        CertificateError::UnknownIssuer => {
            "the server's certificate is from none of the authorities in sslrootcert that are valid now"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("the server's certificate is not for {host} (its subjectAltName counts, not its CN)")
        }
        other => format!("the server's certificate is not valid: {other}"),
    }
}

/// Checks of a handshake.
struct Verifier {
    check: Check,
    /// Authorities that may sign, while they are valid.
    roots: RootCertStore,
    /// The same as they are: a server whose certificate is its own authority's is known by it.
    given: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("check", &self.check).finish_non_exhaustive()
    }
}

impl Verifier {
    fn new(trust: &Trust, provider: Arc<CryptoProvider>) -> Result<Verifier, TlsError> {
        let given = match &trust.roots {
            None => Vec::new(),
            Some(Roots::File(file)) => read_certificates("sslrootcert", file)?,
            Some(Roots::System) => {
                let found = rustls_native_certs::load_native_certs();
                if found.certs.is_empty() {
                    return Err(TlsError::Setup("the system trusts no authority".to_owned()));
                }
                found.certs
            }
        };
        let mut roots = RootCertStore::empty();
        let now = UnixTime::now();
        roots.add_parsable_certificates(given.iter().filter(|given| may_sign(given, now)).cloned());
        Ok(Verifier { check: trust.check, roots, given, provider })
    }

    fn check_authority(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.given.iter().any(|given| given == certificate) {
            return check_time(certificate, now);
        }
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(certificate)?,
            &self.roots,
            between,
            now,
            self.provider.signature_verification_algorithms.all,
        )
    }
}

/// A server's own certificate among those that are given signs nothing.
fn may_sign(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let is_authority = X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| parsed.is_ca());
    is_authority && check_time(certificate, now).is_ok()
}

fn check_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = now.as_secs().cast_signed();
    if now < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.check {
            Check::Nothing => {}
            Check::Authority => self.check_authority(certificate, between, now)?,
            Check::Name => {
                self.check_authority(certificate, between, now)?;
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// An encrypted connection.
pub struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.0.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let end_point = certificate.and_then(|certificate| end_point(certificate));
        end_point.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// The certificate's hash by the function of its own signature, in the place of weak ones SHA-256. With a signature that
/// has none (Ed25519) there is no such binding.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let signature = &parsed.signature_algorithm;
    let algorithm = SignatureAlgorithm::try_from(signature);
    let oid = match &algorithm {
        Ok(SignatureAlgorithm::RSASSA_PSS(parameters)) => parameters.hash_algorithm_oid(),
        _ => &signature.algorithm,
    };
    let is = |oids: &[oids::Oid<'_>]| oids.contains(oid);
    use oids::{
        OID_HASH_SHA1, OID_NIST_HASH_SHA256, OID_NIST_HASH_SHA384, OID_NIST_HASH_SHA512,
        OID_PKCS1_MD5WITHRSAENC, OID_PKCS1_SHA1WITHRSA, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA,
        OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384,
        OID_SIG_ECDSA_WITH_SHA512,
    };
    let weak = [OID_HASH_SHA1, OID_PKCS1_MD5WITHRSAENC, OID_PKCS1_SHA1WITHRSA];
    let hash = if is(&weak) || is(&[OID_NIST_HASH_SHA256, OID_PKCS1_SHA256WITHRSA, OID_SIG_ECDSA_WITH_SHA256])
    {
        &digest::SHA256
    } else if is(&[OID_NIST_HASH_SHA384, OID_PKCS1_SHA384WITHRSA, OID_SIG_ECDSA_WITH_SHA384]) {
        &digest::SHA384
    } else if is(&[OID_NIST_HASH_SHA512, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA512]) {
        &digest::SHA512
    } else {
        return None;
    };
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    /// Whether a certificate that was signed with `signer`'s key is taken for the server's, and `signer` itself.
    fn taken(signer: CertificateParams) -> (bool, bool) {
        let key = KeyPair::generate().unwrap();
        let own = signer.self_signed(&key).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("root.pem");
        std::fs::write(&file, own.pem()).unwrap();
        let trust = Trust { check: Check::Authority, roots: Some(Roots::File(file)), own: None };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Verifier::new(&trust, provider).unwrap();
        let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let signed =
            server.signed_by(&KeyPair::generate().unwrap(), &Issuer::from_params(&signer, &key)).unwrap();
        let is_taken = |certificate| verifier.check_authority(certificate, &[], UnixTime::now()).is_ok();
        (is_taken(signed.der()), is_taken(own.der()))
    }

    #[test]
    fn only_authorities_that_are_valid_sign_for_others() {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        assert_eq!(taken(authority.clone()), (true, true));
        assert_eq!(taken(CertificateParams::default()), (false, true));
        authority.not_after = rcgen::date_time_ymd(2002, 1, 1);
        authority.not_before = rcgen::date_time_ymd(2001, 1, 1);
        assert_eq!(taken(authority), (false, false));
    }

    #[test]
    fn the_binding_is_by_the_hash_that_belongs_to_the_signature() {
        for (algorithm, hash) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(&digest::SHA256)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(&digest::SHA384)),
            (&rcgen::PKCS_RSA_SHA512, Some(&digest::SHA512)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
            let bound = hash.map(|hash| digest::digest(hash, certificate.der()).as_ref().to_vec());
            assert_eq!(end_point(certificate.der()), bound, "{algorithm:?}");
        }
        assert_eq!(end_point(b"no certificate"), None);
    }
}
