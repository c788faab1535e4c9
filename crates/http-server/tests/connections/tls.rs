//! TLS: certificates that are replaced, clients that prove a key, and those who forgot the `s`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_http_server::tls::{ClientCertificates, TlsError};
use forebay_http_server::{Limits, Request, Response, Service, Tls, TlsFiles};
use http::StatusCode;
use rcgen::{CertificateParams, CustomExtension, KeyPair, SignatureAlgorithm};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::support::{Server, pattern, service, status};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

pub struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    pub fn new() -> Files {
        let files = Files { directory: tempfile::tempdir().unwrap() };
        files.renew();
        files
    }

    pub fn names(&self) -> TlsFiles {
        let path = |name| self.directory.path().join(name);
        TlsFiles { certificate: path("cert.pem"), key: path("key.pem") }
    }

    /// A new key and a certificate for it; gives back its DER.
    fn renew(&self) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let certificate = params().self_signed(&key).unwrap();
        write(&self.names().certificate, certificate.pem());
        write(&self.names().key, key.serialize_pem());
        certificate.der().to_vec()
    }

    pub fn load(&self) -> Arc<Tls> {
        Tls::load(self.names(), ClientCertificates::Asked).unwrap()
    }
}

fn write(path: &Path, text: impl AsRef<[u8]>) {
    std::fs::write(path, text).unwrap();
}

fn params() -> CertificateParams {
    CertificateParams::new(vec!["localhost".to_owned()]).unwrap()
}

/// The client's side: takes any certificate, shows what it is told to.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

pub async fn connect(
    server: &Server,
    version: &'static SupportedProtocolVersion,
    shown: Option<CertifiedKey>,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous));
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(key) => builder.with_client_cert_resolver(Arc::new(Shows(Arc::new(key)))),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// An answer to a GET, or why there is none.
async fn fetch(
    server: &Server,
    version: &'static SupportedProtocolVersion,
    shown: Option<CertifiedKey>,
) -> std::io::Result<(String, Vec<u8>)> {
    let mut stream = connect(server, version, shown, &[b"http/1.1"]).await?;
    let leaf = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    stream.write_all(GET).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok((answer, leaf))
}

/// Says which certificates it was shown.
fn naming() -> Arc<dyn Service> {
    service(|request: Request| async move {
        let shown = &request.peer.tls.as_ref().expect("comes by TLS").certificates;
        let lengths: Vec<String> = shown.iter().map(|der| der.len().to_string()).collect();
        Response::text(StatusCode::OK, format!("shown: [{}]", lengths.join(" ")))
    })
}

async fn started() -> (Files, Arc<Tls>, Server) {
    let files = Files::new();
    let tls = files.load();
    let server = Server::with(naming(), Limits::default(), Some(Arc::clone(&tls))).await;
    (files, tls, server)
}

fn shown(key: &KeyPair, chain: Vec<CertificateDer<'static>>) -> CertifiedKey {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    CertifiedKey::new(chain, any_supported_type(&key).unwrap())
}

/// RFC 3820: a certificate below a user's, with a critical extension that says so.
fn proxy(user: &KeyPair, key: &KeyPair) -> Vec<CertificateDer<'static>> {
    let user_certificate = params().self_signed(user).unwrap().der().clone();
    // ProxyCertInfo { ProxyPolicy { id-ppl-inheritAll } }
    let info = [0x30, 0x0c, 0x30, 0x0a, 0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x15, 0x01];
    let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 14], info.to_vec());
    extension.set_criticality(true);
    let mut proxy = params();
    proxy.custom_extensions = vec![extension];
    let proxy = proxy.signed_by(key, &rcgen::Issuer::new(params(), user)).unwrap();
    vec![proxy.der().clone(), user_certificate]
}

#[tokio::test]
async fn behind_tls_browsers_are_told_to_stay_there_and_in_the_clear_nothing_is_said() {
    const STRICT: &str = "\r\nStrict-Transport-Security: max-age=604800\r\n";
    let (_files, _tls, server) = started().await;
    for asked in [GET, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"] {
        let mut stream = connect(&server, &TLS13, None, &[b"http/1.1"]).await.unwrap();
        stream.write_all(asked).await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        let heard = String::from_utf8_lossy(&heard);
        assert_eq!(heard.matches(STRICT).count(), 1, "{heard}");
    }
    let plain = Server::start(service(|_| async { Response::text(StatusCode::OK, "ok") })).await;
    let mut client = plain.client().await;
    client.send(GET).await;
    assert!(!client.rest_text().await.to_ascii_lowercase().contains("strict-transport"));
}

#[tokio::test]
async fn any_certificate_is_taken_whose_key_is_proven() {
    let (_files, _tls, server) = started().await;
    for version in [&TLS12, &TLS13] {
        let (answer, _) = fetch(&server, version, None).await.unwrap();
        assert!(answer.ends_with("shown: []\n"), "{answer}");
        for algorithm in algorithms() {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let leaf = params().self_signed(&key).unwrap().der().clone();
            let expected = format!("shown: [{}]\n", leaf.len());
            let (answer, _) = fetch(&server, version, Some(shown(&key, vec![leaf]))).await.unwrap();
            assert!(answer.ends_with(&expected), "{algorithm:?}: {answer}");
        }
    }
}

fn algorithms() -> [&'static SignatureAlgorithm; 4] {
    [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
    ]
}

#[tokio::test]
async fn a_certificate_without_its_key_is_refused() {
    let (_files, _tls, server) = started().await;
    for version in [&TLS12, &TLS13] {
        for algorithm in algorithms() {
            let (own, stolen) =
                (KeyPair::generate_for(algorithm).unwrap(), KeyPair::generate_for(algorithm).unwrap());
            let leaf = params().self_signed(&stolen).unwrap().der().clone();
            assert!(fetch(&server, version, Some(shown(&own, vec![leaf]))).await.is_err(), "{algorithm:?}");
        }
    }
}

#[tokio::test]
async fn a_proxy_certificate_is_taken_with_its_chain() {
    let (_files, _tls, server) = started().await;
    let (user, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let chain = proxy(&user, &key);
    for version in [&TLS12, &TLS13] {
        let (answer, _) = fetch(&server, version, Some(shown(&key, chain.clone()))).await.unwrap();
        let expected = format!("shown: [{} {}]\n", chain[0].len(), chain[1].len());
        assert!(answer.ends_with(&expected), "{answer}");
    }
}

#[tokio::test]
async fn a_chain_that_is_too_long_is_refused() {
    let (_files, _tls, server) = started().await;
    let key = KeyPair::generate().unwrap();
    let leaf = params().self_signed(&key).unwrap().der().clone();
    for (length, is_taken) in [(10, true), (11, false)] {
        let answer = fetch(&server, &TLS13, Some(shown(&key, vec![leaf.clone(); length]))).await;
        assert_eq!(answer.is_ok(), is_taken, "{length}");
    }
}

#[tokio::test]
async fn a_new_certificate_is_used_and_a_bad_one_is_not() {
    let (files, tls, server) = started().await;
    let leaf = async || fetch(&server, &TLS13, None).await.unwrap().1;
    let first = leaf().await;
    let second = files.renew();
    assert_ne!(first, second);
    tls.reload_if_changed();
    assert_eq!(leaf().await, second);
    assert_eq!(tls.chain()[0].as_ref(), second);

    write(&files.names().certificate, "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n");
    tls.reload_if_changed();
    assert_eq!(leaf().await, second);
    assert!(tls.reload().unwrap_err().to_string().contains("cert.pem"));
    std::fs::remove_file(files.names().certificate).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Read { .. })));
    assert_eq!(leaf().await, second);
    let third = files.renew();
    tls.reload().unwrap();
    assert_eq!(leaf().await, third);
}

#[test]
fn files_that_are_no_good_are_named() {
    let files = Files::new();
    let error = || Tls::load(files.names(), ClientCertificates::NotAsked).err().unwrap();
    let other = KeyPair::generate().unwrap();
    write(&files.names().key, other.serialize_pem());
    assert!(matches!(error(), TlsError::Mismatch { .. }));
    write(&files.names().key, "");
    assert!(error().to_string().contains("key.pem holds no private key"), "{}", error());
    write(&files.names().certificate, other.serialize_pem());
    assert!(error().to_string().contains("cert.pem holds no certificate"), "{}", error());
    std::fs::remove_file(files.names().certificate).unwrap();
    assert!(error().to_string().starts_with("cannot read "), "{}", error());
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_told_to_use_https() {
    let (_files, _tls, server) = started().await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (head, body) = client.response().await;
    assert_eq!(status(&head), 400);
    assert!(body.contains("https://"), "{body}");
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn a_handshake_that_does_not_come_or_is_garbage_is_closed() {
    let files = Files::new();
    let limits = Limits { handshake_time: Duration::from_millis(50), ..Limits::default() };
    let server = Server::with(naming(), limits, Some(files.load())).await;
    for bytes in [&b""[..], b"\x16\x03\x01\x02\x00", &[0x16; 4000], &[0; 100]] {
        let mut client = server.client().await;
        client.send(bytes).await;
        // An alert, an end or a reset, but no request.
        client.is_reset().await;
    }
}

#[tokio::test]
async fn large_bodies_pass_both_ways_through_tls() {
    use forebay_http_server::{Piece, ResponseBody};
    use testkit::fixed_replica::FixedReplica;
    let files = Files::new();
    let data = pattern(5 << 20);
    let (replica, sent) = (Arc::new(FixedReplica::in_file(&data)), Arc::new(data.clone()));
    let echo = service(move |mut request: Request| {
        let (replica, sent) = (Arc::clone(&replica), Arc::clone(&sent));
        async move {
            let mut body = Vec::new();
            while let Some(part) = request.body.next().await.unwrap() {
                body.extend_from_slice(&part);
            }
            assert!(body == *sent);
            let length = sent.len() as u64;
            let piece = Piece::Replica { replica, offset: 0, length };
            let pieces = Box::new(std::iter::once(piece));
            Response::new(StatusCode::OK).with_body(ResponseBody::Pieces { length, pieces })
        }
    });
    let server = Server::with(echo, Limits::default(), Some(files.load())).await;
    let stream = connect(&server, &TLS13, None, &[b"http/1.1"]).await.unwrap();
    let (mut from, mut to) = tokio::io::split(stream);
    let head =
        format!("PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", 5 << 20);
    to.write_all(head.as_bytes()).await.unwrap();
    to.write_all(&data).await.unwrap();
    let mut answer = Vec::new();
    from.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(&data));
}
