//! Files in the administrator's directories: revocation lists, signing policies, and their change.

use forebay_auth::x509::{Crl, X509Error};

use crate::forge::*;
use crate::site::{ALICE, ROOT, Site, ders};

const MIDDLE: &str = "/DC=org/DC=example/CN=Middle CA";

#[test]
fn a_revoked_certificate_is_refused() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    site.put_list("certificates/root.r0", &RevocationDraft::of(&[1, alice.serial]), &site.root);
    let revoked = Err(X509Error::Revoked { subject: ALICE.to_owned() });
    assert_eq!(site.judge(&[&alice]), revoked);
    assert_eq!(site.judge(&[&alice.proxy("1"), &alice]), revoked);
    site.put_list("certificates/root.r0", &RevocationDraft::of(&[1]), &site.root);
    assert!(site.judge(&[&alice]).is_ok());
}

#[test]
fn a_revoked_authority_takes_everybody_below_along() {
    let site = Site::new();
    let middle = site.root.authority(MIDDLE);
    site.put_list("certificates/root.r0", &RevocationDraft::of(&[middle.serial]), &site.root);
    let revoked = Err(X509Error::Revoked { subject: MIDDLE.to_owned() });
    assert_eq!(site.judge(&[&middle.user(ALICE), &middle]), revoked);
}

#[test]
fn where_lists_are_required_none_or_an_old_one_refuses() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let judge = || site.verifier(Crl::Require).judge(&ders(&[&alice]), NOW_S);
    assert_eq!(judge(), Err(X509Error::NoRevocationList { authority: ROOT.to_owned() }));
    site.put_list("certificates/root.r0", &RevocationDraft::of(&[]), &site.root);
    assert!(judge().is_ok());
    let expired = Err(X509Error::RevocationListExpired { authority: ROOT.to_owned() });
    for (from_s, until_s) in
        [(NOW_S - DAY_S, Some(NOW_S - 301)), (NOW_S + 301, Some(NOW_S + DAY_S)), (NOW_S - DAY_S, None)]
    {
        let list = RevocationDraft { from_s, until_s, ..RevocationDraft::of(&[]) };
        site.put_list("certificates/root.r0", &list, &site.root);
        assert_eq!(judge(), expired);
        assert!(site.judge(&[&alice]).is_ok(), "not required");
        let list = RevocationDraft { from_s, until_s, ..RevocationDraft::of(&[alice.serial]) };
        site.put_list("certificates/root.r0", &list, &site.root);
        assert!(matches!(site.judge(&[&alice]), Err(X509Error::Revoked { .. })), "old and still heeded");
    }
}

#[test]
fn a_list_counts_only_if_the_authority_has_signed_it_and_it_is_whole() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let judge = || site.verifier(Crl::Require).judge(&ders(&[&alice]), NOW_S);
    let missing = Err(X509Error::NoRevocationList { authority: ROOT.to_owned() });
    site.put_list("certificates/root.r0", &RevocationDraft::of(&[]), &root(ROOT));
    assert_eq!(judge(), missing);
    // A part of a list says so in the extension issuingDistributionPoint.
    let part = extension("2.5.29.28", true, &sequence(&[&tlv(0x81, &[0xff])]));
    let list = RevocationDraft { extensions: vec![part], ..RevocationDraft::of(&[]) };
    site.put_list("certificates/root.r0", &list, &site.root);
    assert_eq!(judge(), missing);
    site.put("certificates/root.r0", "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n");
    assert_eq!(judge(), missing);
    site.put_list("certificates/root.r1", &RevocationDraft::of(&[]), &site.root);
    assert!(judge().is_ok());
}

#[test]
fn the_newest_of_several_lists_counts() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let newer = RevocationDraft { from_s: NOW_S - 60, ..RevocationDraft::of(&[alice.serial]) };
    site.put_list("certificates/a.r0", &newer, &site.root);
    site.put_list("certificates/b.r0", &RevocationDraft::of(&[]), &site.root);
    assert!(matches!(site.judge(&[&alice]), Err(X509Error::Revoked { .. })));
}

#[test]
fn a_signing_policy_says_whom_an_authority_may_certify() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let policy = |subjects: &str| {
        format!("access_id_CA X509 '{ROOT}'\npos_rights globus CA:sign\ncond_subjects globus '{subjects}'\n")
    };
    site.put("certificates/root.signing_policy", &policy("\"/DC=org/DC=example/O=Physics/*\""));
    assert!(site.judge(&[&alice.proxy("1"), &alice]).is_ok());
    site.put("certificates/root.signing_policy", &policy("\"/DC=org/DC=example/O=Chemistry/*\""));
    let refused = Err(X509Error::SigningPolicy { subject: ALICE.to_owned(), authority: ROOT.to_owned() });
    assert_eq!(site.judge(&[&alice]), refused);
}

#[test]
fn an_authority_whose_policy_is_not_understood_is_not_trusted() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    site.put("certificates/root.signing_policy", "access_id_CA X509 '/CN=CA'\nneg_rights globus CA:sign\n");
    assert_eq!(site.judge(&[&alice]), Err(X509Error::NoAuthorities));
    // Not under another name either.
    site.put("certificates/0a1b2c3d.0", &site.root.pem());
    assert_eq!(site.judge(&[&alice]), Err(X509Error::NoAuthorities));
}

#[test]
fn without_directories_nobody_is_certified() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    std::fs::remove_dir_all(site.dir.path().join("certificates")).expect("removed");
    std::fs::remove_dir_all(site.dir.path().join("vomsdir")).expect("removed");
    assert_eq!(site.judge(&[&alice]), Err(X509Error::NoAuthorities));
}

#[test]
fn files_that_are_no_certificates_are_left_out() {
    let site = Site::new();
    site.put("certificates/broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    site.put("certificates/README", "Hello");
    site.put("certificates/key.pem", &pem("PRIVATE KEY", &site.root.der));
    std::fs::write(site.dir.path().join("certificates/noise.0"), [0xff; 100]).expect("a file");
    assert!(site.judge(&[&site.root.user(ALICE)]).is_ok());
}

#[test]
fn changes_in_the_directories_count_from_the_next_reading_on() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let verifier = site.verifier(Crl::IfPresent);
    let judge = || verifier.judge(&ders(&[&alice]), NOW_S);
    assert!(judge().is_ok());
    assert!(!verifier.refresh(), "nothing changed");
    site.put_list("certificates/root.r0", &RevocationDraft::of(&[alice.serial]), &site.root);
    assert!(judge().is_ok(), "not read yet");
    assert!(verifier.refresh());
    assert!(matches!(judge(), Err(X509Error::Revoked { .. })), "the verdict before is forgotten");
    std::fs::remove_file(site.dir.path().join("certificates/root.r0")).expect("removed");
    assert!(verifier.refresh());
    assert!(judge().is_ok());
    site.trust_server();
    assert!(verifier.refresh(), "the other directory counts as well");
}
