//! RFC 5280 §6: end entities and authorities.

use bytes::Bytes;
use forebay_auth::x509::{Crl, X509Error};

use crate::forge::*;
use crate::site::{ALICE, ROOT, Site, ders};

const MIDDLE: &str = "/DC=org/DC=example/CN=Middle CA";

#[test]
fn a_user_below_a_trusted_root_is_certified() {
    let site = Site::new();
    let user = site.judge(&[&site.root.user(ALICE)]).expect("certified");
    assert_eq!(user.dn, ALICE);
    assert_eq!(user.expires_s, NOW_S + DAY_S);
    assert_eq!((user.is_limited, &user.fqans[..], &user.voms_refusals[..]), (false, &[][..], &[][..]));
}

#[test]
fn authorities_between_may_be_brought_by_the_client_in_any_order_or_be_installed() {
    let site = Site::new();
    let middle = site.root.authority(MIDDLE);
    let low = middle.authority("/DC=org/DC=example/CN=Low CA");
    let alice = low.user(ALICE);
    assert_eq!(site.judge(&[&alice, &middle, &site.root, &low]).expect("certified").dn, ALICE);
    assert!(matches!(site.judge(&[&alice, &middle]), Err(X509Error::UntrustedIssuer { .. })));
    site.put("certificates/low.pem", &low.pem());
    assert_eq!(site.judge(&[&alice, &middle]).expect("certified").dn, ALICE);
}

#[test]
fn an_authority_that_is_not_trusted_certifies_nobody() {
    let site = Site::new();
    let stranger = root(ROOT);
    let alice = stranger.user(ALICE);
    let wrong = Err(X509Error::WrongSignature { subject: ALICE.to_owned(), issuer: ROOT.to_owned() });
    assert_eq!(site.judge(&[&alice]), wrong);
    // Its own root does not help, neither under the trusted one's name nor under another.
    assert!(matches!(site.judge(&[&alice, &stranger]), Err(X509Error::WrongSignature { .. })));
    let other = root("/CN=Other CA");
    let refused = Err(X509Error::UntrustedIssuer { issuer: "/CN=Other CA".to_owned() });
    assert_eq!(site.judge(&[&other.user(ALICE), &other]), refused);
}

#[test]
fn a_self_signed_user_is_not_certified_even_if_the_certificate_lies_among_the_authorities() {
    let site = Site::new();
    let alice = site.root.user_draft(ALICE).change(|draft| draft.issuer = ALICE.to_owned()).self_signed();
    assert!(matches!(site.judge(&[&alice]), Err(X509Error::UntrustedIssuer { .. })));
    site.put("certificates/alice.pem", &alice.pem());
    assert!(site.judge(&[&alice]).is_err());
}

#[test]
fn a_user_is_no_authority() {
    let site = Site::new();
    let mallory = site.root.user("/DC=org/DC=example/CN=Mallory");
    let alice = mallory.user(ALICE);
    let refused = Err(X509Error::NotAnAuthority { subject: mallory.subject.clone() });
    assert_eq!(site.judge(&[&alice, &mallory]), refused);
}

#[test]
fn an_authority_needs_the_key_usage_for_certificates() {
    let site = Site::new();
    let draft = site.root.authority_draft(MIDDLE).without("2.5.29.15").with(key_usage(DIGITAL_SIGNATURE));
    let middle = draft.signed_by(&site.root);
    let refused = Err(X509Error::NotAnAuthority { subject: MIDDLE.to_owned() });
    assert_eq!(site.judge(&[&middle.user(ALICE), &middle]), refused);
    let draft = site.root.authority_draft(MIDDLE).without("2.5.29.19");
    let middle = draft.signed_by(&site.root);
    assert_eq!(site.judge(&[&middle.user(ALICE), &middle]), refused);
}

#[test]
fn an_authority_is_no_user() {
    let site = Site::new();
    let middle = site.root.authority(MIDDLE);
    let refused = Err(X509Error::EndEntityIsAuthority { subject: MIDDLE.to_owned() });
    assert_eq!(site.judge(&[&middle]), refused);
}

#[test]
fn the_path_length_of_an_authority_is_kept() {
    let site = Site::new();
    let draft = |root: &Holder, length| {
        root.authority_draft(MIDDLE).without("2.5.29.19").with(basic_constraints(true, Some(length)))
    };
    let middle = draft(&site.root, 0).signed_by(&site.root);
    let low = middle.authority("/DC=org/DC=example/CN=Low CA");
    let refused = Err(X509Error::PathTooLong { subject: MIDDLE.to_owned() });
    assert_eq!(site.judge(&[&low.user(ALICE), &low, &middle]), refused);
    // Proxies are no authorities and do not count.
    let alice = middle.user(ALICE);
    assert!(site.judge(&[&alice.proxy("1"), &alice, &middle]).is_ok());
    let middle = draft(&site.root, 1).signed_by(&site.root);
    let low = middle.authority("/DC=org/DC=example/CN=Low CA");
    assert!(site.judge(&[&low.user(ALICE), &low, &middle]).is_ok());
}

#[test]
fn time_counts_for_everybody_on_the_path_with_five_minutes_to_spare() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let (from_s, until_s) = (NOW_S - DAY_S, NOW_S + DAY_S);
    assert!(site.judge_at(&[&alice], until_s + 300).is_ok());
    let expired = Err(X509Error::Expired { subject: ALICE.to_owned() });
    assert_eq!(site.judge_at(&[&alice], until_s + 301), expired);
    assert!(site.judge_at(&[&alice], from_s - 300).is_ok());
    let early = Err(X509Error::NotYetValid { subject: ALICE.to_owned() });
    assert_eq!(site.judge_at(&[&alice], from_s - 301), early);

    let middle = site.root.authority_draft(MIDDLE).change(|draft| draft.until_s = NOW_S - DAY_S / 2);
    let middle = middle.signed_by(&site.root);
    let expired = Err(X509Error::Expired { subject: MIDDLE.to_owned() });
    assert_eq!(site.judge(&[&middle.user(ALICE), &middle]), expired);

    let site =
        Site::trusting(root_draft(ROOT).change(|draft| draft.until_s = NOW_S - DAY_S / 2).self_signed());
    let expired = Err(X509Error::Expired { subject: ROOT.to_owned() });
    assert_eq!(site.judge(&[&site.root.user(ALICE)]), expired);
}

#[test]
fn of_two_authorities_with_one_name_the_right_one_is_found() {
    let site = Site::new();
    site.put("certificates/namesake.pem", &root(ROOT).pem());
    let expired = root_draft(ROOT).change(|draft| draft.until_s = NOW_S - DAY_S / 2).self_signed();
    site.put("certificates/older.0", &expired.pem());
    assert_eq!(site.judge(&[&site.root.user(ALICE)]).expect("certified").dn, ALICE);
    assert!(matches!(site.judge(&[&expired.user(ALICE)]), Err(X509Error::Expired { .. })));
}

#[test]
fn signatures_and_keys_that_are_too_weak_are_refused() {
    let site = Site::new();
    let weak =
        |what: &str| Err(X509Error::WeakAlgorithm { subject: ALICE.to_owned(), what: what.to_owned() });
    let sha1 =
        site.root.user_draft(ALICE).change(|draft| draft.algorithms = [sha1_with_rsa(), sha1_with_rsa()]);
    assert_eq!(site.judge(&[&sha1.signed_by(&site.root)]), weak("a signature with SHA-1"));
    let md5 = sequence(&[&oid("1.2.840.113549.1.1.4"), &[0x05, 0x00]]);
    let draft = site.root.user_draft(ALICE).change(|draft| draft.algorithms = [md5.clone(), md5]);
    assert_eq!(site.judge(&[&draft.signed_by(&site.root)]), weak("a signature with MD5"));
    let draft = site.root.user_draft(ALICE).change(|draft| draft.key_info = Some(rsa_key_info(1024)));
    let what = "an RSA key of 1024 bits, 2048 to 8192 are accepted";
    assert_eq!(site.judge(&[&draft.signed_by(&site.root)]), weak(what));
    let draft = site.root.user_draft(ALICE).change(|draft| draft.key_info = Some(rsa_key_info(2048)));
    assert!(site.judge(&[&draft.signed_by(&site.root)]).is_ok());
}

#[test]
fn a_root_may_have_signed_itself_weakly_and_in_version_1() {
    let draft = Draft::of(ROOT, ROOT).change(|draft| {
        draft.is_version_3 = false;
        draft.algorithms = [sha1_with_rsa(), sha1_with_rsa()];
    });
    let site = Site::trusting(draft.self_signed());
    assert!(site.judge(&[&site.root.user(ALICE)]).is_ok());
    // One that the client brings may not.
    let site = Site::new();
    let middle = Draft::of(MIDDLE, ROOT).change(|draft| draft.is_version_3 = false).signed_by(&site.root);
    let refused = Err(X509Error::NotAnAuthority { subject: MIDDLE.to_owned() });
    assert_eq!(site.judge(&[&middle.user(ALICE), &middle]), refused);
}

#[test]
fn two_different_signature_algorithms_are_refused() {
    let site = Site::new();
    let draft = site.root.user_draft(ALICE).change(|draft| draft.algorithms[0] = sha1_with_rsa());
    assert!(matches!(
        site.judge(&[&draft.signed_by(&site.root)]),
        Err(X509Error::Unreadable { index: 0, .. })
    ));
}

#[test]
fn a_critical_extension_that_is_not_understood_is_refused() {
    let site = Site::new();
    let strange = |is_critical| extension("1.2.3.4", is_critical, &[0x05, 0x00]);
    let alice = site.root.user_draft(ALICE).with(strange(true)).signed_by(&site.root);
    let refused = Err(X509Error::UnknownCritical { subject: ALICE.to_owned(), oid: "1.2.3.4".to_owned() });
    assert_eq!(site.judge(&[&alice]), refused);
    let alice = site.root.user_draft(ALICE).with(strange(false)).signed_by(&site.root);
    assert!(site.judge(&[&alice]).is_ok());
    let middle = site.root.authority_draft(MIDDLE).with(strange(true)).signed_by(&site.root);
    let refused = site.judge(&[&middle.user(ALICE), &middle]);
    assert!(matches!(refused, Err(X509Error::UnknownCritical { .. })));
}

#[test]
fn an_extension_that_stands_twice_is_refused() {
    let site = Site::new();
    let alice = site.root.user_draft(ALICE).with(basic_constraints(false, None)).signed_by(&site.root);
    assert!(matches!(site.judge(&[&alice]), Err(X509Error::Unreadable { index: 0, .. })));
}

#[test]
fn a_certificate_for_servers_only_is_not_for_clients() {
    let site = Site::new();
    let host = |last| site.root.user_draft(ALICE).with(extended_key_usage(last)).signed_by(&site.root);
    let refused = Err(X509Error::NotForClients { subject: ALICE.to_owned() });
    assert_eq!(site.judge(&[&host(1)]), refused);
    assert!(site.judge(&[&host(2)]).is_ok());
    let draft = site.root.user_draft(ALICE).without("2.5.29.15").with(key_usage(KEY_ENCIPHERMENT));
    let refused = Err(X509Error::NotForSigning { subject: ALICE.to_owned() });
    assert_eq!(site.judge(&[&draft.signed_by(&site.root)]), refused);
}

#[test]
fn a_name_that_reads_like_another_is_refused() {
    let site = Site::new();
    // One common name "Mallory/CN=Alice Adams".
    let mallory = site.root.user("/DC=org/CN=Mallory|CN=Alice Adams");
    assert!(matches!(site.judge(&[&mallory]), Err(X509Error::AmbiguousName { .. })));
    assert!(matches!(site.judge(&[&site.root.user("")]), Err(X509Error::AmbiguousName { .. })));
    let host = site.root.user("/DC=org/CN=host|se.example.org");
    assert_eq!(site.judge(&[&host]).expect("certified").dn, "/DC=org/CN=host/se.example.org");
}

#[test]
fn name_constraints_hold_for_everything_below() {
    let site = Site::new();
    let constrained = |permitted: &[Vec<u8>], excluded: &[Vec<u8>]| {
        site.root.authority_draft(MIDDLE).with(name_constraints(permitted, excluded)).signed_by(&site.root)
    };
    let physics = || directory_name("/DC=org/DC=example/O=physics");
    let middle = constrained(&[physics()], &[]);
    assert!(site.judge(&[&middle.user(ALICE), &middle]).is_ok());
    let eve = middle.user("/DC=org/DC=example/O=Chemistry/CN=Eve");
    let refused =
        Err(X509Error::NameConstraints { subject: eve.subject.clone(), authority: MIDDLE.to_owned() });
    assert_eq!(site.judge(&[&eve, &middle]), refused);
    let middle = constrained(&[], &[physics()]);
    assert!(site.judge(&[&middle.user(ALICE), &middle]).is_err());
    // A host name is constrained, and not compared: refused where there is one.
    let middle = constrained(&[tlv(0x82, b"example.org")], &[]);
    assert!(site.judge(&[&middle.user(ALICE), &middle]).is_ok());
    let host = middle.user_draft(ALICE).with(alternative_dns("a.example.org")).signed_by(&middle);
    assert!(matches!(site.judge(&[&host, &middle]), Err(X509Error::NameConstraints { .. })));
}

#[test]
fn chains_have_bounds() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let verifier = site.verifier(Crl::IfPresent);
    assert_eq!(verifier.judge(&[], NOW_S), Err(X509Error::NoCertificate));
    assert!(verifier.judge(&vec![alice.der.clone(); 10], NOW_S).is_ok());
    assert_eq!(verifier.judge(&vec![alice.der.clone(); 11], NOW_S), Err(X509Error::ChainTooLarge));
    let large = Bytes::from(vec![0x30; 70_000]);
    assert!(matches!(
        verifier.judge(std::slice::from_ref(&large), NOW_S),
        Err(X509Error::Unreadable { index: 0, .. })
    ));
    assert_eq!(verifier.judge(&[large.clone(), large], NOW_S), Err(X509Error::ChainTooLarge));
}

#[test]
fn a_maze_of_authorities_with_one_name_ends() {
    let site = Site::new();
    let name = "/CN=Maze";
    // Every authority is its own issuer by name, each signed by the next: all pairs are candidates for each other.
    let mut makers: Vec<Holder> = vec![root(name)];
    for _ in 0..8 {
        let next = makers[makers.len() - 1].authority(name);
        makers.push(next);
    }
    let alice = makers[makers.len() - 1].user(ALICE);
    let mut chain = vec![&alice];
    chain.extend(&makers);
    assert!(site.judge(&chain).is_err());
}

#[test]
fn no_byte_of_a_chain_can_be_changed() {
    let site = Site::new();
    let middle = site.root.authority(MIDDLE);
    let alice = middle.user(ALICE);
    let proxy = alice.proxy("17");
    let chain = ders(&[&proxy, &alice, &middle]);
    let verifier = site.verifier(Crl::IfPresent);
    assert!(verifier.judge(&chain, NOW_S).is_ok());
    for at in 0..chain.len() {
        for position in 0..chain[at].len() {
            let mut changed = chain.clone();
            let mut bytes = chain[at].to_vec();
            bytes[position] ^= 1 << (position % 8);
            changed[at] = bytes.into();
            assert!(verifier.judge(&changed, NOW_S).is_err(), "byte {position} of certificate {at}");
        }
    }
}

#[test]
fn a_chain_that_is_cut_off_is_refused() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let verifier = site.verifier(Crl::IfPresent);
    for length in 0..alice.der.len() {
        let refused = verifier.judge(&[alice.der.slice(..length)], NOW_S);
        assert!(matches!(refused, Err(X509Error::Unreadable { index: 0, .. })), "{length} bytes");
    }
    let longer = Bytes::from([&alice.der[..], &[0]].concat());
    assert!(matches!(verifier.judge(&[longer], NOW_S), Err(X509Error::Unreadable { index: 0, .. })));
}
