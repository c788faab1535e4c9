//! Macaroons: the bytes of other implementations, tampering, and that caveats only ever take away.

use api::{Activities, Activity};
use proptest::prelude::*;
use types::{Identity, Name, hex::Hex};

use super::*;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
const NOW_S: u64 = 1_800_000_000;
const DAY_S: u64 = 86_400;

/// The worked example of libmacaroons, and what pymacaroons 0.13 writes for it in both formats.
const EXAMPLE_SECRET: &[u8] = b"this is our super secret key; only we should know it";
const EXAMPLE_SIGNATURE: &str = "e3d9e02908526c4c0039ae15114115d97fdd68bf2ba379b342aaf0f617d0552f";
const EXAMPLE_CAVEATS: [&str; 3] =
    ["account = 3735928559", "time < 2020-01-01T00:00", "email = alice@example.org"];
const EXAMPLE_CAVEATS_SIGNATURE: &str = "ddf553e46083e55b8d71ab822be3d8fcf21d6bf19c40d617bb9fb438934474b6";
const EXAMPLE_PACKETS: &str = "MDAxY2xvY2F0aW9uIGh0dHA6Ly9teWJhbmsvCjAwMjZpZGVudGlmaWVyIHdlIHVzZWQgb3VyIHNlY3JldCBr\
    ZXkKMDAxZGNpZCBhY2NvdW50ID0gMzczNTkyODU1OQowMDIwY2lkIHRpbWUgPCAyMDIwLTAxLTAxVDAwOjAwCjAwMjJjaWQgZW1haWwgPSBhbGlj\
    ZUBleGFtcGxlLm9yZwowMDJmc2lnbmF0dXJlIN31U-Rgg-VbjXGrgivj2PzyHWvxnEDWF7uftDiTRHS2Cg";
const EXAMPLE_FIELDS: &str = "AgEOaHR0cDovL215YmFuay8CFndlIHVzZWQgb3VyIHNlY3JldCBrZXkAAhRhY2NvdW50ID0gMzczNTkyODU1OQ\
    ACF3RpbWUgPCAyMDIwLTAxLTAxVDAwOjAwAAIZZW1haWwgPSBhbGljZUBleGFtcGxlLm9yZwAABiDd9VPkYIPlW41xq4Ir49j88h1r8ZxA1he7n7\
    Q4k0R0tg";

fn example(caveats: &[&str]) -> Parts {
    let mut parts = Parts {
        location: b"http://mybank/".to_vec(),
        identifier: b"we used our secret key".to_vec(),
        caveats: caveats.iter().map(|caveat| caveat.as_bytes().to_vec()).collect(),
        signature: [0; 32],
    };
    parts.signature = sign(&derive_key(EXAMPLE_SECRET), &parts);
    parts
}

#[test]
fn the_worked_example_of_libmacaroons_has_its_signatures_and_bytes() {
    assert_eq!(Hex(&example(&[]).signature).to_string(), EXAMPLE_SIGNATURE);
    let parts = example(&EXAMPLE_CAVEATS);
    assert_eq!(Hex(&parts.signature).to_string(), EXAMPLE_CAVEATS_SIGNATURE);
    assert_eq!(parts.encode_packets().unwrap(), EXAMPLE_PACKETS);
    assert_eq!(Parts::decode(EXAMPLE_PACKETS).unwrap(), parts);
    assert_eq!(Parts::decode(EXAMPLE_FIELDS).unwrap(), parts);
    assert_eq!(Parts::decode(&format!("{EXAMPLE_FIELDS}=")).unwrap(), parts, "padded");
    let standard = EXAMPLE_PACKETS.replace('-', "+").replace('_', "/");
    assert_eq!(Parts::decode(&standard).unwrap(), parts, "in the other alphabet");
}

#[test]
fn third_party_caveats_and_bytes_in_excess_are_refused() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let packets = URL_SAFE_NO_PAD.decode(EXAMPLE_PACKETS).unwrap();
    let signature_at = packets.len() - 0x2f;
    let mut third_party = packets[..signature_at].to_vec();
    third_party.extend_from_slice(b"000dvid abcd\n");
    third_party.extend_from_slice(&packets[signature_at..]);
    let fields = URL_SAFE_NO_PAD.decode(EXAMPLE_FIELDS).unwrap();
    let mut third_party_field = fields[..fields.len() - 36].to_vec();
    third_party_field.extend_from_slice(&[4, 1, b'v', 0, 0]);
    third_party_field.extend_from_slice(&fields[fields.len() - 34..]);
    for bad in [
        third_party,
        third_party_field,
        [packets.as_slice(), b"x"].concat(),
        [fields.as_slice(), b"x"].concat(),
        packets[..packets.len() - 1].to_vec(),
        fields[..fields.len() - 1].to_vec(),
        b"0000".to_vec(),
        b"ffff".to_vec(),
        b"+01clocation a\n".to_vec(),
        vec![2],
        vec![2, 2, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![],
    ] {
        assert!(Parts::decode(&URL_SAFE_NO_PAD.encode(&bad)).is_err(), "{}", bad.escape_ascii());
    }
    assert!(Parts::decode(&"M".repeat(wire::TOKEN_BYTES_MAX + 1)).is_err());
    let many = "before:2100-01-01T00:00:00Z".to_owned();
    let many: Vec<&str> = vec![&many; wire::CAVEATS_MAX + 1];
    assert!(example(&many).encode_packets().is_err());
}

fn macaroons() -> Macaroons {
    Macaroons::new(&[7; 32], "storage.example", Duration::from_secs(7 * DAY_S))
}

fn anna() -> Caller {
    Caller {
        name: "anna".into(),
        identity: Identity::new(1001, 1000, &[27]),
        role: Role::Admin,
        grants: None,
        expires_s: None,
        password: Some([9; 16]),
    }
}

fn path(text: &str) -> Vec<Name> {
    paths::parse(text.as_bytes()).unwrap()
}

/// Appends a caveat, as any holder of a macaroon can.
pub(crate) fn append(token: &str, caveat: &str) -> String {
    let mut parts = Parts::decode(token).unwrap();
    parts.signature = hmac(&parts.signature, caveat.as_bytes());
    parts.caveats.push(caveat.as_bytes().to_vec());
    parts.encode_packets().unwrap()
}

fn mint(caller: &Caller, request: &MacaroonRequest) -> String {
    macaroons().mint(caller, request, NOW_S).unwrap().token
}

fn verify(token: &str) -> Result<Caller, AuthError> {
    macaroons().verify(token, HERE, NOW_S)
}

#[test]
fn a_macaroon_acts_as_who_gave_it_within_its_caveats_and_is_no_administrator() {
    let request = MacaroonRequest {
        activities: Some(Activities::of(&[Activity::Download, Activity::List])),
        path: Some(path("/data")),
        validity: Some(Duration::from_secs(60)),
        ..Default::default()
    };
    let made = macaroons().mint(&anna(), &request, NOW_S).unwrap();
    assert_eq!(made.expires_s, NOW_S + 60);
    let caller = verify(&made.token).unwrap();
    assert_eq!((caller.name.as_ref(), &caller.identity), ("anna", &anna().identity));
    assert_eq!((caller.role, caller.expires_s), (Role::User, Some(NOW_S + 60)));
    assert!(caller.may(Activity::Download, &path("/data/x")));
    assert!(caller.may(Activity::ReadMetadata, &path("/data/x")));
    assert!(!caller.may(Activity::Upload, &path("/data/x")));
    assert!(!caller.may(Activity::Download, &path("/other")));
    assert!(macaroons().verify(&made.token, HERE, NOW_S + 59).is_ok());
    let late = macaroons().verify(&made.token, HERE, NOW_S + 60).unwrap_err();
    assert_eq!(late.to_string(), "the macaroon has expired");
}

#[test]
fn a_macaroon_lasts_no_longer_than_the_configuration_and_its_giver() {
    let ends = |caller: &Caller, validity: Option<u64>| {
        let request = MacaroonRequest { validity: validity.map(Duration::from_secs), ..Default::default() };
        macaroons().mint(caller, &request, NOW_S).map(|made| made.expires_s)
    };
    assert_eq!(ends(&anna(), None).unwrap(), NOW_S + 7 * DAY_S);
    assert_eq!(ends(&anna(), Some(u64::MAX)).unwrap(), NOW_S + 7 * DAY_S);
    let short = Caller { expires_s: Some(NOW_S + 100), ..anna() };
    assert_eq!(ends(&short, None).unwrap(), NOW_S + 100);
    assert!(matches!(ends(&anna(), Some(0)), Err(AuthError::Invalid(_))));
    let over = Caller { expires_s: Some(NOW_S), ..anna() };
    assert!(matches!(ends(&over, None), Err(AuthError::Invalid(_))));
}

#[test]
fn a_macaroon_ends_at_the_soonest_of_the_ends_that_were_asked_for() {
    let ends = |validity: Option<u64>, asked: &[u64]| {
        let request = MacaroonRequest {
            validity: validity.map(Duration::from_secs),
            ends: asked.iter().map(|s| instant::show(*s)).collect(),
            ..Default::default()
        };
        macaroons().mint(&anna(), &request, NOW_S).map(|made| made.expires_s)
    };
    assert_eq!(ends(None, &[NOW_S + 100]).unwrap(), NOW_S + 100);
    assert_eq!(ends(Some(60), &[NOW_S + 100]).unwrap(), NOW_S + 60);
    assert_eq!(ends(Some(3600), &[NOW_S + 200, NOW_S + 100, NOW_S + 300]).unwrap(), NOW_S + 100);
    assert_eq!(ends(None, &[NOW_S + 70 * DAY_S]).unwrap(), NOW_S + 7 * DAY_S);
    assert!(matches!(ends(None, &[NOW_S]), Err(AuthError::Invalid(_))), "it is over");
    let unclear = MacaroonRequest { ends: vec!["2100-01-01T00:00:00".to_owned()], ..Default::default() };
    assert!(matches!(macaroons().mint(&anna(), &unclear, NOW_S), Err(AuthError::Invalid(_))), "no zone");
}

#[test]
fn a_macaroon_with_any_bit_changed_is_refused() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let token = mint(&anna(), &MacaroonRequest { path: Some(path("/data")), ..Default::default() });
    let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
    // The location is not signed; it begins the token and means nothing.
    for bit in "001clocation storage.example\n".len() * 8..bytes.len() * 8 {
        let mut forged = bytes.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let forged = URL_SAFE_NO_PAD.encode(forged);
        // Upper-case digits of a length are the same number.
        let is_same = Parts::decode(&forged).is_ok_and(|parts| parts == Parts::decode(&token).unwrap());
        assert!(is_same || verify(&forged).is_err(), "bit {bit}");
    }
    let other = Macaroons::new(&[8; 32], "storage.example", Duration::from_secs(DAY_S));
    assert!(other.verify(&token, HERE, NOW_S).is_err());
}

#[test]
fn a_caveat_cannot_be_taken_off_again() {
    let token = mint(&anna(), &MacaroonRequest::default());
    let narrow = append(&token, "path:/data");
    let mut parts = Parts::decode(&narrow).unwrap();
    parts.caveats.pop();
    assert!(verify(&parts.encode_packets().unwrap()).is_err());
    parts.caveats.clear();
    assert!(verify(&parts.encode_packets().unwrap()).is_err());
}

#[test]
fn appended_caveats_narrow_and_never_widen() {
    let request = MacaroonRequest {
        activities: Some(Activities::of(&[Activity::Download])),
        path: Some(path("/data")),
        ..Default::default()
    };
    let token = mint(&anna(), &request);
    let caller = verify(&append(&append(&token, "path:/data/run1"), "path:/data")).unwrap();
    assert!(caller.may(Activity::Download, &path("/data/run1/x")));
    assert!(!caller.may(Activity::Download, &path("/data/run2")));
    let wider = verify(&append(&append(&token, "path:/"), "activity:DOWNLOAD,UPLOAD,DELETE")).unwrap();
    assert!(!wider.may(Activity::Download, &path("/")) && !wider.may(Activity::Upload, &path("/data")));
    assert!(verify(&append(&token, "path:/other")).is_err());
    assert!(verify(&append(&token, "activity:UPLOAD")).is_err());
    let sooner = verify(&append(&token, "before:2027-01-16T00:00:00Z")).unwrap();
    assert_eq!(sooner.expires_s, instant::parse("2027-01-16T00:00:00Z"));
    assert_eq!(
        verify(&append(&token, "before:2100-01-01T00:00:00Z")).unwrap().expires_s,
        Some(NOW_S + 7 * DAY_S)
    );
}

#[test]
fn caveats_about_people_and_addresses_hold_or_refuse() {
    let token = mint(&anna(), &MacaroonRequest::default());
    for good in ["name:anna", "id:1001;1000,27;anna", "id:1001", "ip:192.0.2.0/24", "ip:10.0.0.1, 192.0.2.7"]
    {
        assert!(verify(&append(&token, good)).is_ok(), "{good}");
    }
    for bad in
        ["name:bert", "id:0;0;anna", "id:1001;1000;bert", "ip:10.0.0.0/8", "future:yes", "ip:2001:db8::/32"]
    {
        assert!(verify(&append(&token, bad)).is_err(), "{bad}");
    }
}

#[test]
fn a_caller_with_grants_gives_no_more_than_these() {
    let grant = PathGrant {
        activities: Activities::of(&[Activity::Download, Activity::List]),
        path: path("/vo/data"),
        is_below_only: false,
    };
    let bearer = Caller { grants: Some([grant].into()), ..anna() };
    let request = MacaroonRequest {
        activities: Some(Activities::of(&[Activity::Download, Activity::Upload])),
        path: Some(path("/vo")),
        ..Default::default()
    };
    let caller = verify(&mint(&bearer, &request)).unwrap();
    assert!(caller.may(Activity::Download, &path("/vo/data/x")));
    for (activity, at) in [
        (Activity::Upload, "/vo/data/x"),
        (Activity::List, "/vo/data/x"),
        (Activity::Download, "/vo/other"),
        (Activity::Download, "/vo"),
    ] {
        assert!(!caller.may(activity, &path(at)), "{activity:?} {at}");
    }
    let elsewhere = MacaroonRequest { path: Some(path("/other")), ..Default::default() };
    assert!(matches!(macaroons().mint(&bearer, &elsewhere, NOW_S), Err(AuthError::Forbidden(_))));
}

#[test]
fn a_macaroon_bound_to_addresses_is_not_exchanged_for_one_that_is_not() {
    let bound = MacaroonRequest { addresses: vec!["192.0.2.0/24".to_owned()], ..Default::default() };
    let caller = verify(&mint(&anna(), &bound)).unwrap();
    assert!(caller.may(Activity::Upload, &path("/x")));
    let why = macaroons().mint(&caller, &MacaroonRequest::default(), NOW_S).unwrap_err();
    assert!(matches!(why, AuthError::Forbidden(_)));
    let free = verify(&mint(&anna(), &MacaroonRequest::default())).unwrap();
    assert!(macaroons().mint(&free, &MacaroonRequest::default(), NOW_S).is_ok());
}

#[test]
fn a_request_that_makes_no_sense_is_told_so() {
    let addresses = |list: &[&str]| MacaroonRequest {
        addresses: list.iter().map(|text| (*text).to_owned()).collect(),
        ..Default::default()
    };
    let refused =
        |caller: &Caller, request: &MacaroonRequest| macaroons().mint(caller, request, NOW_S).unwrap_err();
    assert!(matches!(refused(&anna(), &addresses(&["example.org"])), AuthError::Invalid(_)));
    assert!(matches!(refused(&anna(), &addresses(&["10.0.0.1"; ADDRESSES_MAX + 1])), AuthError::Invalid(_)));
    let nothing = MacaroonRequest { activities: Some(Activities::NONE), ..Default::default() };
    assert!(matches!(refused(&anna(), &nothing), AuthError::Forbidden(_)));
    assert!(matches!(refused(&Caller::anonymous(), &MacaroonRequest::default()), AuthError::Forbidden(_)));
    let many = vec![paths::within(vec![paths::everything()], &path(&"/long-name".repeat(20))).remove(0); 100];
    let verbose = Caller { grants: Some(many.into()), ..anna() };
    assert!(matches!(refused(&verbose, &MacaroonRequest::default()), AuthError::Invalid(_)));
}

fn any_path() -> impl Strategy<Value = Vec<Name>> {
    let name = prop_oneof![Just("a"), Just("b"), Just("ab")];
    proptest::collection::vec(name, 0..4)
        .prop_map(|names| names.iter().map(|name| Name::new(name.as_bytes()).unwrap()).collect())
}

fn any_activities() -> impl Strategy<Value = Activities> {
    proptest::sample::subsequence(Activity::ALL.to_vec(), 1..=8).prop_map(|some| Activities::of(&some))
}

fn any_caveat() -> impl Strategy<Value = Caveat> {
    prop_oneof![
        any_path().prop_map(Caveat::Path),
        any_activities().prop_map(Caveat::Activities),
        (NOW_S - 10..NOW_S + 1000).prop_map(Caveat::Before),
        Just(Caveat::Addresses(vec!["192.0.2.0/24".parse().unwrap()])),
        Just(Caveat::Addresses(vec!["10.0.0.0/8".parse().unwrap()])),
        Just(Caveat::Identity { uid: Some(1001), name: None }),
    ]
}

fn any_caller() -> impl Strategy<Value = Caller> {
    let grant = (any_activities(), any_path(), any::<bool>())
        .prop_map(|(activities, path, is_below_only)| PathGrant { activities, path, is_below_only });
    proptest::option::of(proptest::collection::vec(grant, 1..4))
        .prop_map(|grants| Caller { grants: grants.map(Into::into), ..anna() })
}

proptest! {
    /// The rule of the whole thing: whatever is allowed with one caveat more was allowed without it, and to the giver.
    #[test]
    fn one_caveat_more_never_allows_more(
        giver in any_caller(),
        caveats in proptest::collection::vec(any_caveat(), 0..5),
        places in proptest::collection::vec(any_path(), 1..20),
    ) {
        let mut token = mint(&giver, &MacaroonRequest::default());
        let mut before = giver;
        before.role = Role::User;
        for caveat in [None].into_iter().chain(caveats.iter().map(Some)) {
            if let Some(caveat) = caveat {
                token = append(&token, std::str::from_utf8(&caveat.encode()).unwrap());
            }
            // Once refused, refused with all that follows.
            let Ok(after) = verify(&token) else {
                for caveat in &caveats {
                    let more = append(&token, std::str::from_utf8(&caveat.encode()).unwrap());
                    prop_assert!(verify(&more).is_err());
                }
                return Ok(());
            };
            prop_assert_eq!(&after.identity, &before.identity);
            prop_assert!(after.role <= before.role);
            prop_assert!(after.expires_s.unwrap() <= before.expires_s.unwrap_or(u64::MAX));
            for place in &places {
                for activity in Activity::ALL {
                    prop_assert!(before.may(activity, place) || !after.may(activity, place), "{:?} {:?}", activity, place);
                }
            }
            before = after;
        }
    }

    /// And a macaroon for a macaroon is no way around.
    #[test]
    fn a_macaroon_for_a_macaroon_never_allows_more(
        giver in any_caller(),
        activities in proptest::option::of(any_activities()),
        place in proptest::option::of(any_path()),
        places in proptest::collection::vec(any_path(), 1..20),
    ) {
        let request = MacaroonRequest { activities, path: place, ..Default::default() };
        // A caller that may do none of it gets no macaroon.
        let Ok(first) = macaroons().mint(&giver, &request, NOW_S) else { return Ok(()) };
        let first = verify(&first.token).unwrap();
        let second = verify(&mint(&first, &MacaroonRequest::default())).unwrap();
        for place in &places {
            for activity in Activity::ALL {
                prop_assert_eq!(second.may(activity, place), first.may(activity, place));
            }
        }
    }

    #[test]
    fn text_that_is_no_macaroon_is_refused(token in "[A-Za-z0-9_=+/-]{0,200}") {
        prop_assert!(verify(&token).is_err());
    }
}
