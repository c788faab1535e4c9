//! RFC 3820.

use forebay_auth::x509::X509Error;

use crate::forge::*;
use crate::site::{ALICE, Site};

fn rule(refused: Result<forebay_auth::x509::CertifiedUser, X509Error>) -> &'static str {
    match refused {
        Err(X509Error::ProxyRule { rule, .. }) => rule,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_proxy_stands_for_its_user() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let first = alice.proxy("1");
    let second = first.proxy_draft("2").change(|draft| draft.until_s = NOW_S + 60).signed_by(&first);
    let user = site.judge(&[&first, &alice]).expect("certified");
    assert_eq!((user.dn.as_str(), user.expires_s), (ALICE, NOW_S + DAY_S / 2));
    let user = site.judge(&[&second, &alice, &first]).expect("certified");
    assert_eq!((user.dn.as_str(), user.expires_s), (ALICE, NOW_S + 60));
    assert!(matches!(site.judge(&[&second, &alice]), Err(X509Error::UntrustedIssuer { .. })));
    assert!(matches!(site.judge(&[&second, &first]), Err(X509Error::UntrustedIssuer { .. })));
}

#[test]
fn a_proxy_signed_by_another_key_is_refused() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let mallory = site.root.user("/DC=org/DC=example/O=Physics/CN=Mallory");
    let forged = alice.proxy_draft("1").signed_by(&mallory);
    let refused = site.judge(&[&forged, &alice, &mallory]);
    assert!(matches!(refused, Err(X509Error::WrongSignature { .. })));
}

#[test]
fn a_proxy_has_its_issuers_name_and_one_more() {
    let site = Site::new();
    let mallory = site.root.user("/DC=org/DC=example/O=Physics/CN=Mallory");
    for subject in [
        format!("{ALICE}/CN=1"),
        mallory.subject.clone(),
        format!("{}/CN=1/CN=2", mallory.subject),
        format!("{}/O=1", mallory.subject),
    ] {
        let draft = mallory.proxy_draft("1").change(|draft| draft.subject = subject);
        let refused = site.judge(&[&draft.signed_by(&mallory), &mallory]);
        assert_eq!(rule(refused), "its subject is the issuer's with one more common name (§3.4)");
    }
}

#[test]
fn an_authority_issues_no_proxies() {
    let site = Site::new();
    let middle = site.root.authority("/DC=org/DC=example/CN=Middle CA");
    assert_eq!(rule(site.judge(&[&middle.proxy("1"), &middle])), "an authority does not issue proxies");
}

#[test]
fn the_information_of_a_proxy_is_critical() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let draft = alice.bare_proxy_draft("1").with(proxy_info(INHERIT_ALL, None, false));
    assert_eq!(rule(site.judge(&[&draft.signed_by(&alice), &alice])), "its information is critical (§3.8)");
}

#[test]
fn without_the_information_a_user_issues_nothing() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let bare = alice.bare_proxy_draft("1").signed_by(&alice);
    let refused = Err(X509Error::NotAnAuthority { subject: ALICE.to_owned() });
    assert_eq!(site.judge(&[&bare, &alice]), refused);
}

#[test]
fn a_proxy_allows_as_many_proxies_below_as_it_says() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let limited = |length| {
        alice.bare_proxy_draft("1").with(proxy_info(INHERIT_ALL, Some(length), true)).signed_by(&alice)
    };
    let none = limited(0);
    assert!(site.judge(&[&none, &alice]).is_ok());
    let below = none.proxy("2");
    let refused = site.judge(&[&below, &none, &alice]);
    assert_eq!(rule(refused), "more proxies stand below than it allows (§3.8.1)");
    let one = limited(1);
    let below = one.proxy("2");
    assert!(site.judge(&[&below, &one, &alice]).is_ok());
    let lowest = below.proxy("3");
    assert!(site.judge(&[&lowest, &below, &one, &alice]).is_err());
}

#[test]
fn a_limited_proxy_is_marked_and_so_is_what_it_issues() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let limited = alice.bare_proxy_draft("1").with(proxy_info(LIMITED, None, true)).signed_by(&alice);
    assert!(site.judge(&[&limited, &alice]).expect("certified").is_limited);
    let below = limited.proxy("2");
    assert!(site.judge(&[&below, &limited, &alice]).expect("certified").is_limited);
    let full = alice.proxy("3");
    assert!(!site.judge(&[&full, &alice]).expect("certified").is_limited);
}

#[test]
fn independent_proxies_and_unknown_policies_are_refused() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let with =
        |language| alice.bare_proxy_draft("1").with(proxy_info(language, None, true)).signed_by(&alice);
    let refused = site.judge(&[&with(INDEPENDENT), &alice]);
    assert!(matches!(refused, Err(X509Error::IndependentProxy { .. })));
    let refused = site.judge(&[&with("1.2.3"), &alice]);
    assert!(matches!(refused, Err(X509Error::UnknownPolicy { language, .. }) if language == "1.2.3"));
    // A proxy below a refused one is refused as well.
    let independent = with(INDEPENDENT);
    let below = independent.proxy("2");
    assert!(site.judge(&[&below, &independent, &alice]).is_err());
}

#[test]
fn inheriting_everything_has_no_policy_of_its_own() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let policy = sequence(&[&oid(INHERIT_ALL), &tlv(0x04, b"read only")]);
    let draft =
        alice.bare_proxy_draft("1").with(extension("1.3.6.1.5.5.7.1.14", true, &sequence(&[&policy])));
    let refused = site.judge(&[&draft.signed_by(&alice), &alice]);
    assert_eq!(rule(refused), "this policy language has no policy (§3.8.2)");
}

#[test]
fn a_proxy_is_no_authority_and_has_no_alternative_name() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    for (extension, broken) in [
        (basic_constraints(true, None), "it is no authority (§3.7)"),
        (alternative_dns("a.example.org"), "it has no alternative name (§3.5)"),
        (
            extension("2.5.29.18", false, &sequence(&[&tlv(0x82, b"a.example.org")])),
            "its issuer has no alternative name (§3.2)",
        ),
    ] {
        let proxy = alice.proxy_draft("1").with(extension).signed_by(&alice);
        assert_eq!(rule(site.judge(&[&proxy, &alice])), broken);
    }
    let draft = alice.proxy_draft("1").without("2.5.29.15").with(key_usage(DIGITAL_SIGNATURE | 0x04));
    let refused = site.judge(&[&draft.signed_by(&alice), &alice]);
    assert_eq!(rule(refused), "it signs no certificates but proxies (§3.6)");
}

#[test]
fn a_proxy_issues_no_users() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let proxy = alice.proxy("1");
    let bob = proxy.user("/DC=org/DC=example/O=Physics/CN=Bob");
    assert!(matches!(site.judge(&[&bob, &proxy, &alice]), Err(X509Error::NotAnAuthority { .. })));
}

#[test]
fn the_issuer_of_a_proxy_may_sign() {
    let site = Site::new();
    let draft = site.root.user_draft(ALICE).without("2.5.29.15").with(key_usage(KEY_ENCIPHERMENT));
    let alice = draft.signed_by(&site.root);
    assert!(matches!(site.judge(&[&alice.proxy("1"), &alice]), Err(X509Error::NotForSigning { .. })));
}

#[test]
fn an_expired_proxy_is_refused_though_its_user_is_not() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    let proxy = alice.proxy_draft("1").change(|draft| draft.until_s = NOW_S - 301).signed_by(&alice);
    assert!(matches!(site.judge(&[&proxy, &alice]), Err(X509Error::Expired { .. })));
    assert!(site.judge(&[&alice, &proxy]).is_ok(), "certificates beside the path do not matter");
}

#[test]
fn proxies_from_before_the_rfc_are_told_how_to_become_younger() {
    let site = Site::new();
    let alice = site.root.user(ALICE);
    for name in ["proxy", "limited proxy"] {
        let old = alice.bare_proxy_draft(name).signed_by(&alice);
        let refused = site.judge(&[&old, &alice]).expect_err("refused");
        assert!(matches!(refused, X509Error::LegacyProxy { .. }));
        assert!(refused.to_string().contains("voms-proxy-init -rfc"));
    }
    let draft = extension("1.3.6.1.4.1.3536.1.222", true, &[0x30, 0x00]);
    let old = alice.bare_proxy_draft("17").with(draft).signed_by(&alice);
    assert!(matches!(site.judge(&[&old, &alice]), Err(X509Error::LegacyProxy { .. })));
}

#[test]
fn a_long_row_of_proxies_ends_at_the_bound_of_the_chain() {
    let site = Site::new();
    let mut row = vec![site.root.user(ALICE)];
    for step in 0..9 {
        let next = row[step].proxy("1");
        row.push(next);
    }
    let chain: Vec<&Holder> = row.iter().rev().collect();
    assert_eq!(site.judge(&chain).expect("certified").dn, ALICE);
}
