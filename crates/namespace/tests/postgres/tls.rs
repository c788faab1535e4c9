//! TLS to the server: how it authenticates the server, and the head to it.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SignatureAlgorithm,
};
use tempfile::TempDir;
use testkit::postgres::{Cluster, Options, unless_missing};

use super::try_open;

/// Signs certificates, and is a file of a trusted authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key, as PEM.
struct Pair {
    certificate: String,
    key: String,
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

/// Its own authority, of the kind of signature that is asked for.
fn self_signed(algorithm: &'static SignatureAlgorithm) -> Pair {
    let mut params = params("server", &["localhost"]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(algorithm).unwrap();
    Pair { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

const HBA: &str = "local all all trust\n\
    hostssl with_certificate all all scram-sha-256 clientcert=verify-ca\n\
    host all all all scram-sha-256\n";

fn serving(pair: &Pair, clients: &Authority) -> Option<Cluster> {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let settings =
        ["ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key", "ssl_ca_file=clients.pem"];
    let settings = settings.iter().filter_map(|setting| setting.split_once('='));
    unless_missing(Cluster::start_with(&Options {
        settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        files: vec![
            file("server.pem", &pair.certificate),
            file("server.key", &pair.key),
            file("clients.pem", &clients.pem),
            file("pg_hba.conf", HBA),
        ],
        ..Options::default()
    }))
}

/// From here on new connections see it.
fn serve_another(cluster: &Cluster, url: &str, pair: &Pair) {
    cluster.put("server.pem", &pair.certificate).unwrap();
    cluster.put("server.key", &pair.key).unwrap();
    let before = cluster.query(url, "SELECT pg_conf_load_time()").unwrap();
    cluster.query(url, "SELECT pg_reload_conf()").unwrap();
    while cluster.query(url, "SELECT pg_conf_load_time()").unwrap() == before {
        std::thread::yield_now();
    }
}

/// Files by name.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let file: PathBuf = self.0.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }
}

/// Whether a head's connection is encrypted, or why it failed.
fn connect(cluster: &Cluster, url: &str, parameters: &str) -> Result<bool, String> {
    let namespace = try_open(&format!("{url}?{parameters}"), 10).map_err(|error| error.to_string())?;
    let found = cluster.query(
        url,
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'forebay' AND datname = current_database()",
    );
    drop(namespace);
    match found.unwrap().trim() {
        "t" => Ok(true),
        "f" => Ok(false),
        other => panic!("{other}"),
    }
}

fn assert_refused(cluster: &Cluster, url: &str, parameters: &str, reason: &str) {
    let refused = connect(cluster, url, parameters).unwrap_err();
    assert!(refused.contains(reason), "{parameters}: {refused}");
    assert!(!refused.contains("may this user log in"), "the advice is about something else: {refused}");
}

#[test]
fn a_server_is_taken_for_whom_its_certificate_and_sslmode_say() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let Some(cluster) = serving(&ours.sign(&params("server", &["localhost"])), &others) else { return };
    let address = cluster.create_database().unwrap();
    let url = address.replace("@127.0.0.1:", "@localhost:");
    let files = Files::new();
    let trusted = format!("sslrootcert={}", files.write("ours.pem", &ours.pem));
    let foreign = format!("sslrootcert={}", files.write("others.pem", &others.pem));
    let absent = format!("sslrootcert={}", Path::new("/nowhere/ca.pem").display());
    for (parameters, is_encrypted) in [
        ("sslmode=disable", false),
        ("connect_timeout=5", true),
        ("sslmode=require", true),
        (&format!("sslmode=verify-ca&{trusted}"), true),
        (&format!("sslmode=verify-full&{trusted}&channel_binding=require"), true),
    ] {
        assert_eq!(connect(&cluster, &url, parameters), Ok(is_encrypted), "{parameters}");
    }
    assert_eq!(connect(&cluster, &address, &format!("sslmode=verify-ca&{trusted}")), Ok(true));
    let full = |file: &str| format!("sslmode=verify-full&{file}");
    assert_refused(&cluster, &address, &full(&trusted), "is not for 127.0.0.1");
    assert_refused(&cluster, &url, &full(&foreign), "none of the authorities in sslrootcert");
    assert_refused(&cluster, &url, &format!("sslmode=verify-ca&{foreign}"), "none of the authorities");
    assert_refused(&cluster, &url, &format!("sslmode=require&{foreign}"), "none of the authorities");
    assert_refused(&cluster, &url, &full("sslrootcert=system"), "none of the authorities");
    assert_refused(&cluster, &url, &full(&absent), "cannot read sslrootcert from /nowhere/ca.pem");
    assert_refused(&cluster, &url, "sslmode=disable&channel_binding=require", "channel binding");

    let mut expired = params("server", &["localhost"]);
    expired.not_before = rcgen::date_time_ymd(2001, 1, 1);
    expired.not_after = rcgen::date_time_ymd(2002, 1, 1);
    serve_another(&cluster, &url, &ours.sign(&expired));
    assert_refused(&cluster, &url, &full(&trusted), "has expired");
    assert_eq!(connect(&cluster, &url, "sslmode=require"), Ok(true));
}

/// As `openssl req -x509` makes it: an authority that signs itself, which no chain may end with.
#[test]
fn a_server_that_is_its_own_authority_is_known_by_its_certificate_and_bound_to_its_channel() {
    let nobody = Authority::new("nobody");
    let algorithms =
        [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256];
    let first = self_signed(algorithms[0]);
    let Some(cluster) = serving(&first, &nobody) else { return };
    let url = cluster.create_database().unwrap().replace("@127.0.0.1:", "@localhost:");
    let files = Files::new();
    for algorithm in algorithms {
        let pair = self_signed(algorithm);
        serve_another(&cluster, &url, &pair);
        let certificate = files.write("server.pem", &pair.certificate);
        let parameters = format!("sslmode=verify-full&sslrootcert={certificate}&channel_binding=require");
        assert_eq!(connect(&cluster, &url, &parameters), Ok(true), "{algorithm:?}");
    }
    let another = files.write("another.pem", &first.certificate);
    let parameters = format!("sslmode=verify-full&sslrootcert={another}");
    assert_refused(&cluster, &url, &parameters, "the server's certificate");
}

#[test]
fn a_head_shows_its_certificate_where_the_server_asks_for_one() {
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let Some(cluster) = serving(&ours.sign(&params("server", &["localhost"])), &clients) else { return };
    let url = cluster.url().replace("@127.0.0.1:", "@localhost:");
    cluster.query(&url, "CREATE DATABASE with_certificate").unwrap();
    let url = url.replace("/postgres", "/with_certificate");
    let files = Files::new();
    let of = |name: &str, pair: &Pair| {
        let certificate = files.write(&format!("{name}.pem"), &pair.certificate);
        format!("sslcert={certificate}&sslkey={}", files.write(&format!("{name}.key"), &pair.key))
    };
    let known = of("known", &clients.sign(&params("forebay", &[])));
    let unknown = of("unknown", &ours.sign(&params("forebay", &[])));
    let open = |parameters: &str| {
        let parameters = format!("{url}?sslmode=require&{parameters}");
        try_open(&parameters, 10).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(open(&known), Ok(()));
    assert!(open("connect_timeout=5").unwrap_err().contains("requires a valid client certificate"));
    assert!(open(&unknown).is_err());
    let absent = open("sslcert=/nowhere/c.pem&sslkey=/nowhere/c.key").unwrap_err();
    assert!(absent.contains("cannot read sslcert from /nowhere/c.pem"), "{absent}");
}

#[test]
fn a_server_without_tls_is_refused_where_it_is_required() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    assert_eq!(connect(cluster, &url, "connect_timeout=5"), Ok(false));
    assert_refused(cluster, &url, "sslmode=require", "server does not support TLS");
    // Nobody is in between on a Unix socket.
    let socket = cluster.socket_directory().display().to_string().replace('/', "%2F");
    let name = url.rsplit('/').next().unwrap();
    let local = format!("postgres://{}@{socket}:{}/{name}", cluster.superuser(), cluster.port());
    assert!(try_open(&format!("{local}?sslmode=require"), 10).is_ok());
}
