//! Authorities that outgoing TLS trusts, and the certificate that it presents.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tracing::{debug, warn};

use crate::{ClientCertificate, ClientConfig, SetupError};

pub(crate) fn configure(config: &ClientConfig) -> Result<Arc<rustls::ClientConfig>, SetupError> {
    let mut roots = RootCertStore::empty();
    if config.system_roots {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            debug!(%error, "cannot read some of the system's authorities");
        }
        roots.add_parsable_certificates(found.certs);
    }
    for path in &config.ca_paths {
        add_authorities(&mut roots, path)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| SetupError::Tls(error.to_string()))?
        .with_root_certificates(roots);
    let mut tls = match &config.client_certificate {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = read_own(own)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| own_error(&own.certificate, &error))?
        }
    };
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), SetupError> {
    let failed = |reason: String| SetupError::Authorities { path: path.to_owned(), reason };
    let is_directory = fs::metadata(path).map_err(|error| failed(error.to_string()))?.is_dir();
    let files = if is_directory {
        files_in(path).map_err(|error| failed(error.to_string()))?
    } else {
        vec![path.to_owned()]
    };
    let mut added = 0;
    for file in &files {
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(file).and_then(|certificates| certificates.collect());
        match certificates {
            Ok(certificates) => added += roots.add_parsable_certificates(certificates).0,
            // One bad file among hundreds must not stop the server; the only one must.
            Err(error) if is_directory => {
                warn!(file = %file.display(), %error, "cannot use a file of certificate authorities; it is left out");
            }
            Err(error) => return Err(failed(error.to_string())),
        }
    }
    if added == 0 {
        return Err(failed("no certificate authority was found".to_owned()));
    }
    Ok(())
}

/// `*.pem`, `*.crt`, `*.cer`, and the hashed names of OpenSSL, `xxxxxxxx.0`.
fn files_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_wanted = path.extension().and_then(|extension| extension.to_str()).is_some_and(|extension| {
            matches!(extension, "pem" | "crt" | "cer") || extension.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_wanted && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_own(
    own: &ClientCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), SetupError> {
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&own.certificate).and_then(|certificates| certificates.collect());
    let chain = chain.map_err(|error| own_error(&own.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&own.key).map_err(|error| own_error(&own.key, &error))?;
    Ok((chain, key))
}

fn own_error(path: &Path, error: &dyn std::fmt::Display) -> SetupError {
    SetupError::ClientCertificate { path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        rcgen::generate_simple_self_signed(["ca.example".to_owned()]).unwrap().cert.pem()
    }

    #[test]
    fn a_directory_of_authorities_is_read_and_its_bad_files_left_out() {
        let scratch = tempfile::tempdir().unwrap();
        let mut roots = RootCertStore::empty();
        assert!(add_authorities(&mut roots, scratch.path()).is_err());
        fs::write(scratch.path().join("a.pem"), authority()).unwrap();
        fs::write(scratch.path().join("0a1b2c3d.0"), authority()).unwrap();
        fs::write(scratch.path().join("b.pem"), "-----BEGIN CERTIFICATE-----\n!\n").unwrap();
        fs::write(scratch.path().join("0a1b2c3d.signing_policy"), "nothing").unwrap();
        add_authorities(&mut roots, scratch.path()).unwrap();
        assert_eq!(roots.len(), 2);
        assert!(add_authorities(&mut roots, &scratch.path().join("b.pem")).is_err());
        assert!(add_authorities(&mut roots, &scratch.path().join("absent")).is_err());
    }
}
