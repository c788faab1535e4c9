//! The server's own certificate: loaded, checked, and loaded again when its files change.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durable::WatchedFiles;
use parking_lot::{Mutex, RwLock};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use thiserror::Error;

use super::possession::ProvenPossession;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM, the server's own first, then what leads to a root.
    pub certificate: PathBuf,
    /// PEM: PKCS#8, PKCS#1 or SEC1, without a pass phrase.
    pub key: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    NotAsked,
    /// Asked for and not demanded. Browsers may show a dialogue when they have one.
    Asked,
}

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error("{path} holds no certificate: a PEM block `BEGIN CERTIFICATE` is expected")]
    NoCertificate { path: PathBuf },
    #[error("{path} holds no private key: a PEM block `BEGIN PRIVATE KEY` without a pass phrase is expected")]
    NoKey { path: PathBuf },
    #[error("{path} is not valid PEM: {reason}")]
    Pem { path: PathBuf, reason: String },
    #[error("the key in {key} does not belong to the first certificate in {certificate}")]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("{path} cannot be used: {reason}")]
    Unusable { path: PathBuf, reason: String },
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

/// The TLS side of a listener. One may serve several.
pub struct Tls {
    files: TlsFiles,
    /// Offers HTTP/2 and HTTP/1.1.
    config: Arc<ServerConfig>,
    /// Offers HTTP/1.1 alone.
    config_h1: Arc<ServerConfig>,
    certificate: Arc<Current>,
    /// Held while loading.
    watched: Mutex<WatchedFiles>,
}

/// Read at each handshake, replaced by a reload.
struct Current(RwLock<Arc<CertifiedKey>>);

const CERTIFICATE_FILE_BYTES_MAX: u64 = 1 << 20;

impl Tls {
    pub fn load(files: TlsFiles, clients: ClientCertificates) -> Result<Arc<Tls>, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let watched = WatchedFiles::new([files.certificate.clone(), files.key.clone()]);
        let certificate = Arc::new(Current(RwLock::new(Arc::new(certified_key(&files, &provider)?))));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Setup(error.to_string()))?;
        let builder = match clients {
            ClientCertificates::NotAsked => builder.with_no_client_auth(),
            ClientCertificates::Asked => {
                builder.with_client_cert_verifier(Arc::new(ProvenPossession::new(&provider)))
            }
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&certificate) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config_h1 = Arc::new(config.clone());
        config.alpn_protocols.insert(0, b"h2".to_vec());
        let config = Arc::new(config);
        Ok(Arc::new(Tls { files, config, config_h1, certificate, watched: Mutex::new(watched) }))
    }

    /// Loads the files as they are now. If they cannot be used, the old certificate stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let mut watched = self.watched.lock();
        watched.have_changed();
        self.replace()
    }

    /// Blocks for a look at two files. Warns once of files that are no good, and keeps what it has.
    pub fn reload_if_changed(&self) {
        let mut watched = self.watched.lock();
        if watched.have_changed()
            && let Err(error) = self.replace()
        {
            tracing::warn!(%error, "new certificate is not used, the old one stays");
        }
    }

    fn replace(&self) -> Result<(), TlsError> {
        let fresh = certified_key(&self.files, self.config.crypto_provider())?;
        *self.certificate.0.write() = Arc::new(fresh);
        tracing::info!(certificate = %self.files.certificate.display(), "certificate loaded");
        Ok(())
    }

    /// DER, the server's own first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.certificate.0.read().cert.clone()
    }

    pub(super) fn config(&self, offers_h2: bool) -> Arc<ServerConfig> {
        Arc::clone(if offers_h2 { &self.config } else { &self.config_h1 })
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

fn certified_key(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let bad_pem =
        |path: &Path, error: pem::Error| TlsError::Pem { path: path.into(), reason: error.to_string() };
    let chain = CertificateDer::pem_slice_iter(&read(&files.certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad_pem(&files.certificate, error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: files.certificate.clone() });
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey { path: files.key.clone() },
        error => bad_pem(&files.key, error),
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Mismatch { certificate: files.certificate.clone(), key: files.key.clone() }
        }
        rustls::Error::InvalidCertificate(error) => {
            TlsError::Unusable { path: files.certificate.clone(), reason: format!("{error:?}") }
        }
        error => TlsError::Unusable { path: files.key.clone(), reason: error.to_string() },
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(CERTIFICATE_FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| TlsError::Read { path: path.into(), error })?;
    Ok(bytes)
}
