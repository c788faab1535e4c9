//! The client believes a server by its authority and name, and never gives encryption up.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::Path;
use std::sync::Arc;

use forebay_http_client::{AbsoluteUrl, Client, ClientCertificate, ClientConfig, ClientError};
use http::header::HeaderMap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Writes a certificate for localhost and its key.
fn certificate(directory: &Path, name: &str) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    std::fs::write(directory.join(format!("{name}.pem")), made.cert.pem()).unwrap();
    std::fs::write(directory.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
}

async fn serve(directory: &Path, answer: &'static str) -> u16 {
    let chain = CertificateDer::pem_file_iter(directory.join("server.pem")).unwrap();
    let chain: Vec<_> = chain.collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(directory.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _ = stream.shutdown().await;
        }
    });
    port
}

fn config(directory: &Path) -> ClientConfig {
    ClientConfig {
        system_roots: false,
        ca_paths: vec![directory.join("server.pem")],
        ..ClientConfig::default().reaching_loopback()
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_server_is_believed_by_its_authority_and_its_name() {
    let scratch = tempfile::tempdir().unwrap();
    certificate(scratch.path(), "server");
    certificate(scratch.path(), "other");
    let port = serve(scratch.path(), OK).await;
    let client = Client::new(config(scratch.path())).unwrap();
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(client.fetch_small(&format!("https://{host}:{port}/"), 10).await.unwrap(), "ok");
    }
    let wrong = ClientConfig { ca_paths: vec![scratch.path().join("other.pem")], ..config(scratch.path()) };
    let error = Client::new(wrong).unwrap().fetch_small(&format!("https://localhost:{port}/"), 10).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ClientError::Tls { .. }) && !error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_not_followed() {
    let scratch = tempfile::tempdir().unwrap();
    certificate(scratch.path(), "server");
    let answer = "HTTP/1.1 307 T\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n";
    let port = serve(scratch.path(), answer).await;
    let client = Client::new(config(scratch.path())).unwrap();
    let url = AbsoluteUrl::parse(&format!("https://localhost:{port}/")).unwrap();
    let error = client.get(&url, HeaderMap::new()).await.err().unwrap();
    assert!(error.to_string().contains("from https to http"), "{error}");
}

#[test]
fn a_client_certificate_that_cannot_be_used_is_told_at_the_start() {
    let scratch = tempfile::tempdir().unwrap();
    certificate(scratch.path(), "server");
    certificate(scratch.path(), "own");
    let own = |certificate: &str, key: &str| ClientConfig {
        client_certificate: Some(ClientCertificate {
            certificate: scratch.path().join(certificate),
            key: scratch.path().join(key),
        }),
        ..config(scratch.path())
    };
    assert!(Client::new(own("own.pem", "own.key")).is_ok());
    assert!(Client::new(own("own.pem", "server.key")).is_err());
    assert!(Client::new(own("own.pem", "absent.key")).is_err());
}
