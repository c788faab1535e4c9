//! Credentials from strangers, and files that operators write about credentials: every value that can be read survives
//! being written, and only signed values count.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use auth::macaroons::Macaroons;
use auth::macaroons::caveat::Caveat;
use auth::macaroons::wire::Parts;
use auth::passwords::file::Users;
use auth::tokens::jwt::Token;
use auth::tokens::keys::KeySet;
use auth::tokens::scopes;
use auth::{Mapping, Profile};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forebay_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, input)) = input.split_first() else { return };
    match kind % 6 {
        0 => token(input),
        1 => macaroon(input),
        2 => caveat(input),
        3 => as_text(input, |text| drop(bounded(text.len(), || Mapping::parse(text)))),
        4 => as_text(input, |text| drop(bounded(text.len(), || Users::parse(text)))),
        _ => drop(bounded(input.len(), || KeySet::parse(input))),
    }
});

/// A header and claims, each on its side of the first line's end, so that the fuzzer need not learn base64.
fn token(input: &[u8]) {
    as_text(input, |text| drop(Token::parse(text)));
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let header = URL_SAFE_NO_PAD.encode(parts.next().unwrap_or_default());
    let claims = URL_SAFE_NO_PAD.encode(parts.next().unwrap_or_default());
    let text = format!("{header}.{claims}.AAAA");
    let Ok(token) = bounded(text.len(), || Token::parse(&text)) else { return };
    assert_eq!(token.signed.len() + ".AAAA".len(), text.len());
    for profile in [Profile::Wlcg, Profile::SciTokens] {
        if let Ok(Some(grants)) = scopes::grants(&token.claims.scope, profile, &[]) {
            assert!(grants.iter().all(|grant| !grant.activities.is_empty()));
        }
    }
}

fn macaroon(input: &[u8]) {
    let text = URL_SAFE_NO_PAD.encode(input);
    let macaroons = Macaroons::new(&[7; 32], "", Duration::from_secs(1));
    let verdict = bounded(text.len(), || macaroons.verify(&text, IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
    assert!(verdict.is_err(), "nobody signed this");
    let Ok(parts) = Parts::decode(&text) else { return };
    if let Ok(again) = parts.encode_packets() {
        assert_eq!(Parts::decode(&again), Ok(parts));
    }
}

fn caveat(input: &[u8]) {
    let Ok(caveat) = bounded(input.len(), || Caveat::parse(input)) else { return };
    assert_eq!(Caveat::parse(&caveat.encode()), Ok(caveat));
}

fn as_text(input: &[u8], read: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(input) {
        read(text);
    }
}
