//! Handshakes of members, of hosts that join, and of hosts that must be refused.

use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, PublicKeyData, date_time_ymd};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::authority::{member_params, read_authority};
use super::*;

const POOL: Member = Member::Pool(PoolId(3));

type Chain = Vec<CertificateDer<'static>>;
type Seen = io::Result<Option<Chain>>;

/// The two sides as they see each other, or why it refuses. Both send a byte after the handshake: a client of TLS 1.3
/// learns of a refusal only then.
async fn handshake_as(
    name: &'static str,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
) -> (Seen, Seen) {
    let (near, far) = duplex(64 * 1024);
    let owned = |chain: Option<&[CertificateDer<'static>]>| chain.map(<[_]>::to_vec);
    let serve = async {
        let mut stream = TlsAcceptor::from(server).accept(near).await?;
        stream.write_all(b"s").await?;
        stream.flush().await?;
        stream.read_u8().await?;
        Ok(owned(stream.get_ref().1.peer_certificates()))
    };
    let dial = async {
        let name = ServerName::try_from(name).unwrap();
        let mut stream = TlsConnector::from(client).connect(name, far).await?;
        stream.write_all(b"c").await?;
        stream.flush().await?;
        stream.read_u8().await?;
        Ok(owned(stream.get_ref().1.peer_certificates()))
    };
    let (serve, dial) = (Box::pin(serve), Box::pin(dial));
    tokio::join!(serve, dial)
}

async fn handshake(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> (Seen, Seen) {
    handshake_as(HEAD_NAME, server, client).await
}

/// Both sides must see the connection fail, and the client must find this reason.
async fn client_refuses(server: Arc<ServerConfig>, client: Arc<ClientConfig>, reason: &str) {
    let (serve, dial) = handshake(server, client).await;
    let error = dial.unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
    serve.unwrap_err();
}

async fn server_refuses(server: Arc<ServerConfig>, client: Arc<ClientConfig>, reason: &str) {
    let (serve, dial) = handshake(server, client).await;
    let error = serve.unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
    dial.unwrap_err();
}

struct Cluster {
    authority: Authority,
    key: MemberKey,
    certificate: String,
}

fn cluster() -> Cluster {
    numbered(0xab)
}

/// A cluster. Two with the same number have authorities of the same name.
fn numbered(number: u8) -> Cluster {
    let authority = Authority::make(&[number; 16]).unwrap();
    let key = MemberKey::make().unwrap();
    let certificate = authority.issue(POOL, &key.public_key()).unwrap();
    Cluster { authority, key, certificate }
}

impl Cluster {
    fn server(&self) -> Arc<ServerConfig> {
        self.authority.server_config(None).unwrap()
    }

    fn client(&self) -> Arc<ClientConfig> {
        client_config(&self.key, &self.certificate, self.authority.certificate_pem()).unwrap()
    }

    fn join(&self) -> Arc<ClientConfig> {
        join_config(self.authority.fingerprint()).unwrap()
    }

    fn root(&self) -> CertificateDer<'static> {
        read_authority(self.authority.certificate_pem()).unwrap()
    }

    /// A server that shows a certificate of this authority made of these parameters.
    fn server_with(&self, change: impl FnOnce(&mut CertificateParams)) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = member_params(Member::Head).unwrap();
        change(&mut params);
        let own = self.authority.sign(params, &key).unwrap();
        rogue_server(vec![own.into(), self.root()], key::private(&key))
    }

    fn client_with(&self, change: impl FnOnce(&mut CertificateParams)) -> Arc<ClientConfig> {
        let key = MemberKey::make().unwrap();
        let public_key = rcgen::SubjectPublicKeyInfo::from_der(&key.public_key()).unwrap();
        let mut params = member_params(POOL).unwrap();
        change(&mut params);
        let own = self.authority.sign(params, &public_key).unwrap();
        client_config(&key, &own.pem(), self.authority.certificate_pem()).unwrap()
    }
}

fn server_of(
    versions: &[&'static SupportedProtocolVersion],
    resolver: Arc<dyn rustls::server::ResolvesServerCert>,
) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    Arc::new(config)
}

/// A chain with a key that need not be that of its first certificate.
fn identity(chain: Chain, key: &PrivateKeyDer<'_>) -> Arc<SingleCertAndKey> {
    let key = aws_lc_rs::sign::any_supported_type(key).unwrap();
    Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)))
}

fn rogue_server(chain: Chain, key: PrivateKeyDer<'_>) -> Arc<ServerConfig> {
    server_of(&[&TLS13], identity(chain, &key))
}

#[tokio::test]
async fn a_member_and_the_head_know_each_other() {
    let cluster = cluster();
    let (serve, dial) = handshake(cluster.server(), cluster.client()).await;
    assert_eq!(peer(&serve.unwrap().unwrap()), Some((POOL, cluster.key.fingerprint())));
    let (member, fingerprint) = peer(&dial.unwrap().unwrap()).unwrap();
    assert_eq!(member, Member::Head);
    assert_ne!(fingerprint, cluster.authority.fingerprint());
}

#[tokio::test]
async fn a_host_with_a_token_knows_the_head_and_shows_nothing() {
    let cluster = cluster();
    let (serve, dial) = handshake(cluster.server(), cluster.join()).await;
    assert_eq!(serve.unwrap(), None);
    assert_eq!(peer(&dial.unwrap().unwrap()).unwrap().0, Member::Head);
}

#[tokio::test]
async fn an_authority_and_a_key_survive_their_pem() {
    let before = cluster();
    let authority =
        Authority::from_pem(before.authority.certificate_pem(), before.authority.key_pem()).unwrap();
    assert_eq!(authority.certificate_pem(), before.authority.certificate_pem());
    assert_eq!(authority.key_pem(), before.authority.key_pem());
    assert_eq!(authority.fingerprint(), before.authority.fingerprint());
    let key = MemberKey::from_pem(&before.key.pem()).unwrap();
    assert_eq!(key.fingerprint(), before.key.fingerprint());
    let certificate = authority.issue(Member::Pool(PoolId(u32::MAX)), &key.public_key()).unwrap();
    let after = Cluster { authority, key, certificate };
    // The head has restarted: members of before remain, and new ones find it.
    for client in [before.client(), after.client()] {
        let (serve, dial) = handshake(after.server(), client).await;
        dial.unwrap();
        assert_eq!(peer(&serve.unwrap().unwrap()).unwrap().1, after.key.fingerprint());
    }
    handshake(after.server(), before.join()).await.1.unwrap();
}

/// As a host dials, by the name that tells which authority it trusts.
async fn dialled(server: &Arc<ServerConfig>, by: &Dialling) -> (Seen, Seen) {
    let name = by.name.to_str().into_owned().leak();
    handshake_as(name, Arc::clone(server), Arc::clone(&by.tls)).await
}

#[tokio::test]
async fn after_a_rotation_hosts_of_before_and_new_ones_are_let_in_until_the_former_authority_is_forgotten() {
    // Of one cluster, so that the authorities have one name.
    let (before, now) = (cluster(), cluster());
    let member =
        |of: &Cluster| Dialling::of_member(&of.key, &of.certificate, of.authority.certificate_pem()).unwrap();
    let stranger = |of: &Cluster| Dialling::of_stranger(of.authority.fingerprint()).unwrap();
    let server = now.authority.server_config(Some(&before.authority)).unwrap();
    for of in [&before, &now] {
        let (serve, dial) = dialled(&server, &member(of)).await;
        assert_eq!(peer(&serve.unwrap().unwrap()).unwrap().1, of.key.fingerprint());
        dial.unwrap();
        dialled(&server, &stranger(of)).await.1.unwrap();
    }
    // Without a name, as a host of the version before: the keys of now.
    handshake(Arc::clone(&server), now.client()).await.1.unwrap();
    handshake(server, before.client()).await.1.unwrap_err();
    let server = now.authority.server_config(None).unwrap();
    for by in [member(&before), stranger(&before)] {
        dialled(&server, &by).await.1.unwrap_err();
    }
    // A host that trusts the authority of now, and shows a certificate of the former one.
    let mixed =
        Dialling::of_member(&before.key, &before.certificate, now.authority.certificate_pem()).unwrap();
    dialled(&server, &mixed).await.0.unwrap_err();
    dialled(&server, &member(&now)).await.1.unwrap();
}

#[tokio::test]
async fn another_cluster_is_refused_on_both_sides() {
    let (ours, other) = (numbered(1), numbered(2));
    client_refuses(other.server(), ours.client(), "UnknownIssuer").await;
    client_refuses(other.server(), ours.join(), "OtherCluster").await;
    // It trusts our head, and shows the certificate of another cluster.
    let stranger = client_config(&other.key, &other.certificate, ours.authority.certificate_pem()).unwrap();
    server_refuses(ours.server(), stranger, "UnknownIssuer").await;
}

#[tokio::test]
async fn an_authority_with_the_same_name_and_another_key_is_refused() {
    let (ours, other) = (cluster(), cluster());
    let (chain, key) = other.authority.make_head().unwrap();
    // The chain shows our authority too, which has signed nothing of it.
    let server = rogue_server(vec![chain[0].clone(), chain[1].clone(), ours.root()], key);
    client_refuses(server.clone(), ours.join(), "BadSignature").await;
    client_refuses(server, ours.client(), "BadSignature").await;
    // The certificate of our authority alone, or as that of the host.
    let (chain, key) = other.authority.make_head().unwrap();
    let server = rogue_server(vec![chain[0].clone(), ours.root()], key.clone_key());
    client_refuses(server, ours.join(), "BadSignature").await;
    client_refuses(
        rogue_server(vec![ours.root(), ours.root()], key),
        ours.join(),
        "invalid peer certificate",
    )
    .await;
}

#[tokio::test]
async fn a_head_that_does_not_send_its_authority_along_cannot_be_joined() {
    let cluster = cluster();
    let (chain, key) = cluster.authority.make_head().unwrap();
    client_refuses(rogue_server(chain[..1].to_vec(), key), cluster.join(), "OtherCluster").await;
}

#[tokio::test]
async fn a_pool_is_no_server() {
    let cluster = cluster();
    let own = CertificateDer::from_pem_slice(cluster.certificate.as_bytes()).unwrap();
    for chain in [vec![own.clone(), cluster.root()], vec![own]] {
        let server = rogue_server(chain.clone(), cluster.key.private_key());
        let name = "pool-3.forebay.internal";
        assert!(handshake_as(name, server.clone(), cluster.client()).await.1.is_err());
        assert!(handshake_as(name, server.clone(), cluster.join()).await.1.is_err());
        client_refuses(server.clone(), cluster.client(), "invalid peer certificate").await;
        client_refuses(server, cluster.join(), "").await;
    }
}

#[tokio::test]
async fn the_usage_and_the_name_of_a_server_are_each_asked_for() {
    let cluster = cluster();
    for client in [cluster.client(), cluster.join()] {
        let usage = cluster.server_with(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        client_refuses(usage, client.clone(), "extended key usage").await;
        let name = cluster.server_with(|params| {
            params.subject_alt_names = member_params(POOL).unwrap().subject_alt_names;
        });
        client_refuses(name.clone(), client.clone(), "not valid for name").await;
        client_refuses(
            cluster.server_with(|params| params.subject_alt_names.clear()),
            client.clone(),
            "not valid",
        )
        .await;
    }
    // The name is that of the head, whatever the caller dials.
    let name = cluster.server_with(|params| {
        params.subject_alt_names = member_params(POOL).unwrap().subject_alt_names;
    });
    assert!(handshake_as("pool-3.forebay.internal", name, cluster.join()).await.1.is_err());
}

#[tokio::test]
async fn an_expired_certificate_and_an_early_one_are_refused() {
    let cluster = cluster();
    for client in [cluster.client(), cluster.join()] {
        let expired = cluster.server_with(|params| params.not_after = date_time_ymd(2001, 1, 1));
        client_refuses(expired, client.clone(), "expired").await;
        let early = cluster.server_with(|params| params.not_before = date_time_ymd(9000, 1, 1));
        client_refuses(early, client, "not valid yet").await;
    }
    let expired = cluster.client_with(|params| params.not_after = date_time_ymd(2001, 1, 1));
    server_refuses(cluster.server(), expired, "expired").await;
}

#[test]
fn certificates_are_valid_whatever_the_clock_says() {
    let cluster = cluster();
    let (head, _) = cluster.authority.make_head().unwrap();
    let own = CertificateDer::from_pem_slice(cluster.certificate.as_bytes()).unwrap();
    for certificate in head.iter().chain([&own]) {
        let (_, parsed) = X509Certificate::from_der(certificate).unwrap();
        assert_eq!(parsed.validity().not_before.timestamp(), 0);
        assert_eq!(parsed.validity().not_after.to_datetime().year(), 9999);
    }
}

#[test]
fn certificates_have_the_usage_of_their_role_only() {
    let cluster = cluster();
    for (member, serves) in [(POOL, false), (Member::Head, true)] {
        let pem = cluster.authority.issue(member, &cluster.key.public_key()).unwrap();
        let own = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (_, parsed) = X509Certificate::from_der(&own).unwrap();
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert_eq!((usage.server_auth, usage.client_auth), (serves, !serves));
        assert!(!usage.any && !usage.code_signing && usage.other.is_empty() && !parsed.is_ca());
    }
}

#[tokio::test]
async fn a_pool_certifies_nobody() {
    let cluster = cluster();
    let own = CertificateDer::from_pem_slice(cluster.certificate.as_bytes()).unwrap();
    let pool_key = KeyPair::from_pem(&cluster.key.pem()).unwrap();
    // rcgen refuses to sign as an issuer that lists other usages only.
    let mut as_issuer = member_params(POOL).unwrap();
    as_issuer.key_usages.clear();
    let pool = Issuer::from_params(&as_issuer, &pool_key);
    let key = KeyPair::generate().unwrap();
    let forged = member_params(Member::Head).unwrap().signed_by(&key, &pool).unwrap();
    for chain in
        [vec![forged.der().clone(), own.clone(), cluster.root()], vec![forged.der().clone(), own.clone()]]
    {
        let server = rogue_server(chain, key::private(&key));
        client_refuses(server.clone(), cluster.client(), "invalid peer certificate").await;
        client_refuses(server, cluster.join(), "invalid peer certificate").await;
    }
    let forged = member_params(Member::Pool(PoolId(4))).unwrap().signed_by(&key, &pool).unwrap();
    let client = client_of(&[&TLS13], cluster.root(), vec![forged.into(), own], &key::private(&key));
    server_refuses(cluster.server(), client, "invalid peer certificate").await;
}

fn client_of(
    versions: &[&'static SupportedProtocolVersion],
    root: CertificateDer<'static>,
    chain: Chain,
    key: &PrivateKeyDer<'_>,
) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(identity(chain, key));
    Arc::new(config)
}

#[tokio::test]
async fn a_certificate_without_its_key_is_refused() {
    let cluster = cluster();
    let (chain, _) = cluster.authority.make_head().unwrap();
    let server = rogue_server(chain, cluster.key.private_key());
    client_refuses(server.clone(), cluster.client(), "BadSignature").await;
    client_refuses(server, cluster.join(), "BadSignature").await;
    let own = CertificateDer::from_pem_slice(cluster.certificate.as_bytes()).unwrap();
    let other_key = MemberKey::make().unwrap().private_key();
    let client = client_of(&[&TLS13], cluster.root(), vec![own], &other_key);
    server_refuses(cluster.server(), client, "BadSignature").await;
}

#[tokio::test]
async fn a_head_is_no_client() {
    let cluster = cluster();
    let client = cluster.client_with(|params| *params = member_params(Member::Head).unwrap());
    server_refuses(cluster.server(), client, "extended key usage").await;
    let issued = cluster.authority.issue(Member::Head, &cluster.key.public_key()).unwrap();
    let own = CertificateDer::from_pem_slice(issued.as_bytes()).unwrap();
    assert_eq!(peer(std::slice::from_ref(&own)), Some((Member::Head, cluster.key.fingerprint())));
    let (_, dial) =
        handshake(rogue_server(vec![own, cluster.root()], cluster.key.private_key()), cluster.join()).await;
    dial.unwrap();
}

#[tokio::test]
async fn tls_1_2_is_refused() {
    let cluster = cluster();
    let own = CertificateDer::from_pem_slice(cluster.certificate.as_bytes()).unwrap();
    let old = client_of(&[&TLS12], cluster.root(), vec![own], &cluster.key.private_key());
    server_refuses(cluster.server(), old, "peer is incompatible").await;
    let (chain, key) = cluster.authority.make_head().unwrap();
    let old = server_of(&[&TLS12], identity(chain, &key));
    for client in [cluster.client(), cluster.join()] {
        let (serve, dial) = handshake(old.clone(), client).await;
        serve.unwrap_err();
        dial.unwrap_err();
    }
}

#[tokio::test]
async fn a_second_connection_does_not_resume_the_first() {
    let cluster = cluster();
    let (server, client) = (cluster.server(), cluster.client());
    for _ in 0..2 {
        let (near, far) = duplex(64 * 1024);
        let name = ServerName::try_from(HEAD_NAME).unwrap();
        let accept = TlsAcceptor::from(server.clone()).accept(near);
        let connect = TlsConnector::from(client.clone()).connect(name, far);
        let (accepted, connected) = tokio::join!(accept, connect);
        let full = Some(rustls::HandshakeKind::Full);
        assert_eq!(accepted.unwrap().get_ref().1.handshake_kind(), full);
        assert_eq!(connected.unwrap().get_ref().1.handshake_kind(), full);
    }
}

#[tokio::test]
async fn a_failed_handshake_is_explained_in_one_line() {
    let (ours, other) = (numbered(1), numbered(2));
    let not_ours = "the peer is not of this cluster, or the keys of the cluster were rotated meanwhile";
    for client in [ours.client(), ours.join()] {
        let (_, dial) = handshake(other.server(), client).await;
        assert!(explain(&dial.unwrap_err()).starts_with(not_ours));
    }
    let stranger = client_config(&other.key, &other.certificate, ours.authority.certificate_pem()).unwrap();
    let (serve, dial) = handshake(ours.server(), stranger).await;
    assert!(explain(&serve.unwrap_err()).starts_with(not_ours));
    assert!(explain(&dial.unwrap_err()).starts_with("the peer refuses the certificate of this host"));
    let pool = ours.server_with(|params| *params = member_params(POOL).unwrap());
    let (_, dial) = handshake(pool, ours.client()).await;
    assert!(explain(&dial.unwrap_err()).contains("another role"));
    let (chain, key) = ours.authority.make_head().unwrap();
    let (_, dial) = handshake(server_of(&[&TLS12], identity(chain, &key)), ours.client()).await;
    assert_eq!(explain(&dial.unwrap_err()), "the peer does not speak TLS 1.3");
    let (near, mut far) = duplex(1024);
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let dial =
        TlsConnector::from(ours.client()).connect(ServerName::try_from(HEAD_NAME).unwrap(), near).await;
    assert!(explain(&dial.unwrap_err()).contains("does not speak TLS;"));
    assert_eq!(explain(&io::Error::other("broken")), "broken");
}

#[test]
fn only_the_names_of_members_make_a_peer() {
    let cluster = cluster();
    let named = |names: &[&str]| {
        let mut params = member_params(POOL).unwrap();
        let name = |name: &&str| rcgen::SanType::DnsName((*name).try_into().unwrap());
        params.subject_alt_names = names.iter().map(name).collect();
        peer(&[cluster.authority.sign(params, &KeyPair::generate().unwrap()).unwrap().into()])
            .map(|(member, _)| member)
    };
    assert_eq!(named(&["pool-0.forebay.internal"]), Some(Member::Pool(PoolId(0))));
    assert_eq!(named(&["pool-4294967295.forebay.internal"]), Some(Member::Pool(PoolId(u32::MAX))));
    assert_eq!(named(&[HEAD_NAME]), Some(Member::Head));
    for wrong in ["pool-03", "pool-+3", "pool-", "pool--1", "pool-4294967296", "HEAD", "Pool-3", "a.pool-3"] {
        assert_eq!(named(&[&format!("{wrong}.forebay.internal")]), None, "{wrong}");
    }
    assert_eq!(named(&["pool-3.example.org"]), None);
    assert_eq!(named(&[HEAD_NAME, "pool-3.forebay.internal"]), None);
    assert_eq!(named(&[]), None);
    assert_eq!(peer(&[]), None);
    assert_eq!(peer(&[cluster.root()]), None);
    assert_eq!(peer(&[CertificateDer::from(vec![0x30, 0x80, 1])]), None);
}

#[test]
fn only_a_key_of_the_right_kind_is_certified() {
    let cluster = cluster();
    let refuses = |key: &[u8]| matches!(cluster.authority.issue(POOL, key), Err(TrustError::PublicKey));
    let good = cluster.key.public_key();
    assert!(!refuses(&good));
    assert!(refuses(&[]));
    assert!(refuses(&good[..good.len() - 1]));
    assert!(refuses(&[&good[..], &[0]].concat()));
    // The bare point, and a point that is not on the curve.
    assert!(refuses(&good[good.len() - 65..]));
    let mut off_the_curve = good.clone();
    *off_the_curve.last_mut().unwrap() ^= 1;
    assert!(refuses(&off_the_curve));
    for other in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256] {
        assert!(refuses(&KeyPair::generate_for(other).unwrap().subject_public_key_info()));
    }
    for position in 0..good.len() {
        let mut changed = good.clone();
        changed[position] ^= 0x20;
        assert!(refuses(&changed), "byte {position}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused_in_one_line() {
    let (ours, other) = (cluster(), cluster());
    let errors = [
        Authority::from_pem(ours.authority.certificate_pem(), other.authority.key_pem()).unwrap_err(),
        Authority::from_pem(&ours.certificate, &ours.key.pem()).unwrap_err(),
        Authority::from_pem("", ours.authority.key_pem()).unwrap_err(),
        Authority::from_pem(ours.authority.certificate_pem(), "").unwrap_err(),
        MemberKey::from_pem(&ours.certificate).unwrap_err(),
        client_config(&other.key, &ours.certificate, ours.authority.certificate_pem()).unwrap_err(),
        client_config(&ours.key, "nothing", ours.authority.certificate_pem()).unwrap_err(),
        client_config(&ours.key, &ours.certificate, &ours.certificate).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.starts_with("cannot ") && text.lines().count() == 1, "{text}");
    }
    assert!(!format!("{:?} {:?}", ours.authority, ours.key).contains("PRIVATE"));
}

#[test]
fn a_fingerprint_survives_its_text() {
    let fingerprint = cluster().authority.fingerprint();
    assert_eq!(fingerprint.to_string().parse::<Fingerprint>().unwrap(), fingerprint);
    assert_eq!(fingerprint.to_string().to_uppercase().parse::<Fingerprint>().unwrap(), fingerprint);
    for wrong in
        ["", "ab", &"g".repeat(64), &"é".repeat(32), &"a".repeat(65), &format!("+{}", "a".repeat(63))]
    {
        assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
    }
}
