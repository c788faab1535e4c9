//! Certificates by other programs, with the keys thrown away: proxies by the VOMS clients (`voms-proxy-fake` 2.1),
//! users with each kind of key and a name with every attribute by OpenSSL 3.0.

use std::path::Path;

use bytes::Bytes;
use forebay_auth::x509::{CertifiedUser, Crl, Verifier, VerifierConfig, VomsError, X509Error};
use x509_parser::pem::Pem;

/// 2030-01-01, within the ten years for which they were made.
const NOW_S: u64 = 1_893_456_000;
const ALICE: &str = "/DC=org/DC=example/O=Physics/CN=Alice Adams";

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(path).expect("a test vector")
}

fn certificates(pem: &[u8]) -> Vec<Bytes> {
    Pem::iter_from_buffer(pem).map(|block| block.expect("a certificate").contents.into()).collect()
}

/// The file holds a user and the authority to be trusted.
fn judge_pair(vector: &str) -> Result<CertifiedUser, X509Error> {
    let pem = data(vector);
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("both.pem"), &pem).expect("a file");
    let ca_dir = dir.path().to_owned();
    let vomsdir = dir.path().join("none");
    let config = VerifierConfig { ca_dir, vomsdir, crl: Crl::IfPresent, hosts: Vec::new() };
    Verifier::new(config).judge(&certificates(&pem)[..1], NOW_S)
}

fn judge(vector: &str) -> Result<CertifiedUser, X509Error> {
    let dir = tempfile::tempdir().expect("a directory");
    let (ca_dir, vomsdir) = (dir.path().join("certificates"), dir.path().join("vomsdir"));
    for dir in [&ca_dir, &vomsdir.join("atlas")] {
        std::fs::create_dir_all(dir).expect("a directory");
    }
    std::fs::write(ca_dir.join("authority.pem"), data("voms/authority.pem")).expect("a file");
    let lsc = "voms.example.org.lsc";
    std::fs::write(vomsdir.join("atlas").join(lsc), data(&format!("voms/{lsc}"))).expect("a file");
    let config = VerifierConfig { ca_dir, vomsdir, crl: Crl::IfPresent, hosts: Vec::new() };
    let chain = certificates(&data(&format!("voms/{vector}")));
    assert_eq!(chain.len(), 2);
    Verifier::new(config).judge(&chain, NOW_S)
}

#[test]
fn an_rfc_proxy_with_attributes_is_understood() {
    let user = judge("proxy-rfc.pem").expect("certified");
    assert_eq!(user.dn, ALICE);
    assert_eq!(user.fqans, ["/atlas/Role=production", "/atlas", "/atlas/de"]);
    assert_eq!((user.is_limited, &user.voms_refusals[..]), (false, &[][..]));
    // The attributes end first: 2036-11-18.
    assert!((2_110_500_000..2_110_700_000).contains(&user.expires_s), "{}", user.expires_s);
}

#[test]
fn a_limited_proxy_is_marked() {
    let user = judge("proxy-limited.pem").expect("certified");
    assert!(user.is_limited);
    assert_eq!(user.fqans.len(), 3);
}

#[test]
fn proxies_from_before_the_rfc_are_refused_with_a_word_why() {
    for vector in ["proxy-legacy.pem", "proxy-gt3.pem"] {
        let refused = judge(vector);
        assert!(matches!(refused, Err(X509Error::LegacyProxy { .. })), "{vector}: {refused:?}");
    }
}

#[test]
fn attributes_for_a_target_that_is_not_named_are_for_nobody() {
    // This version of the tool writes an empty list of targets.
    let user = judge("proxy-target.pem").expect("certified");
    assert_eq!((&user.fqans[..], &user.voms_refusals[..]), (&[][..], &[VomsError::NotForThisServer][..]));
}

#[test]
fn the_algorithms_of_today_are_verified() {
    for algorithm in [
        "rsa-sha384",
        "rsa-sha512",
        "pss-sha256",
        "pss-sha512",
        "p256-sha512",
        "p384-sha384",
        "p521-sha512",
        "ed25519",
    ] {
        let user = judge_pair(&format!("algorithms/{algorithm}.pem"));
        assert_eq!(user.map(|user| user.dn), Ok(format!("/DC=org/CN={algorithm} user")));
    }
}

#[test]
fn the_algorithms_of_yesterday_and_of_elsewhere_are_not() {
    for algorithm in ["rsa-sha1", "rsa-1024", "pss-sha1", "secp256k1", "ed448", "explicit"] {
        let user = judge_pair(&format!("algorithms/{algorithm}.pem"));
        assert!(matches!(user, Err(X509Error::WeakAlgorithm { .. })), "{algorithm}: {user:?}");
    }
}

/// `openssl x509 -subject -nameopt compat`, but for the backslashes before `/` and `+`, which mapping files lack.
#[test]
fn names_are_written_as_openssl_writes_them() {
    let user = judge_pair("names/openssl.pem").expect("certified");
    let written = "/DC=org/DC=Example/C=CH/O=Universit\\xC3\\xA9 de Gen\\xC3\\xA8ve/OU=a+b, c/d/ST=Vaud/L=Lausanne\
        /UID=jdoe/serialNumber=17/GN=Jos\\xC3\\xA9/SN=N\\xC3\\xBA\\xC3\\xB1ez/title=Dr+initials=JN/street=Rue 1\
        /CN=Jos\\xC3\\xA9 N\\xC3\\xBA\\xC3\\xB1ez \\xE6\\x97\\xA5\\xE6\\x9C\\xAC/emailAddress=jose@example.org\
        /1.3.6.1.4.1.99999.1.2=private";
    assert_eq!(user.dn, written);
}
