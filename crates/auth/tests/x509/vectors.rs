//! Proxies that the VOMS clients have made (`voms-proxy-fake` 2.1), with the keys thrown away.

use std::path::Path;

use bytes::Bytes;
use forebay_auth::x509::{CertifiedUser, Crl, Verifier, VerifierConfig, VomsError, X509Error};
use x509_parser::pem::Pem;

/// 2030-01-01, within the ten years for which they were made.
const NOW_S: u64 = 1_893_456_000;
const ALICE: &str = "/DC=org/DC=example/O=Physics/CN=Alice Adams";

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/voms").join(name);
    std::fs::read(path).expect("a test vector")
}

fn judge(vector: &str) -> Result<CertifiedUser, X509Error> {
    let dir = tempfile::tempdir().expect("a directory");
    let (ca_dir, vomsdir) = (dir.path().join("certificates"), dir.path().join("vomsdir"));
    for dir in [&ca_dir, &vomsdir.join("atlas")] {
        std::fs::create_dir_all(dir).expect("a directory");
    }
    std::fs::write(ca_dir.join("authority.pem"), data("authority.pem")).expect("a file");
    let lsc = "voms.example.org.lsc";
    std::fs::write(vomsdir.join("atlas").join(lsc), data(lsc)).expect("a file");
    let config = VerifierConfig { ca_dir, vomsdir, crl: Crl::IfPresent, hosts: Vec::new() };
    let pem = data(vector);
    let chain: Vec<Bytes> =
        Pem::iter_from_buffer(&pem).map(|block| block.expect("a certificate").contents.into()).collect();
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
