//! Tokens of issuers that a test plays: good, forged, confused, and in floods.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use testkit::clock::ManualClock;
use types::Name;

use super::*;
use crate::authority::fixture::{ISSUER, NOW_S, TestFetch, TestKey, with, without, wlcg};
use crate::config::KeyBounds;

struct Trial {
    clock: Arc<ManualClock>,
    fetch: Arc<TestFetch>,
    tokens: Tokens,
}

fn issuer(url: &str, profile: Profile) -> Issuer {
    Issuer {
        url: url.to_owned(),
        profile,
        base_path: vec![Name::new(b"vo").unwrap()],
        audiences: vec!["https://storage.example".to_owned()],
        identity: None,
        members_may_read: false,
        keys: KeyBounds::default(),
    }
}

fn trial_of(profile: Profile, keys: &[&TestKey]) -> Trial {
    let clock = Arc::new(ManualClock::new(NOW_S.cast_signed()));
    let fetch = Arc::new(TestFetch::default());
    fetch.publish(ISSUER, keys);
    let (as_fetch, as_clock): (Arc<dyn Fetch>, Arc<dyn Clock>) = (fetch.clone(), clock.clone());
    let issuers = [issuer("https://other.example", Profile::Auto), issuer(ISSUER, profile)];
    let tokens = Tokens::new(&issuers, &as_fetch, &as_clock, Duration::from_secs(60)).unwrap();
    Trial { clock, fetch, tokens }
}

fn trial(keys: &[&TestKey]) -> Trial {
    trial_of(Profile::Auto, keys)
}

impl Trial {
    async fn refusal(&self, token: &str) -> String {
        match self.tokens.judge(token).await {
            Err(AuthError::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn each_accepted_algorithm_verifies() {
    let (rsa, p256, p384) = (TestKey::rsa("r"), TestKey::p256("e"), TestKey::p384("f"));
    let trial = trial(&[&rsa, &p256, &p384]);
    for algorithm in ["RS256", "RS384", "RS512", "PS256"] {
        let token = rsa.token_as(&json!({"alg": algorithm, "kid": "r"}), &wlcg("storage.read:/"));
        assert!(trial.tokens.judge(&token).await.is_ok(), "{algorithm}");
    }
    for key in [&p256, &p384] {
        assert!(trial.tokens.judge(&key.token(&wlcg("storage.read:/"))).await.is_ok(), "{}", key.algorithm);
    }
    assert_eq!(trial.fetch.count(), 2, "one discovery and one key set for all of them");
}

#[tokio::test]
async fn a_good_token_says_who_and_what() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let claims = with(wlcg("openid storage.read:/data"), "wlcg.groups", json!(["/wlcg", "/wlcg/pilots"]));
    let bearer = trial.tokens.judge(&key.token(&claims)).await.unwrap();
    assert_eq!((bearer.subject.as_str(), bearer.expires_s), ("anna", NOW_S + 3600));
    assert_eq!(bearer.groups, ["/wlcg", "/wlcg/pilots"]);
    let grants = bearer.grants.as_deref().unwrap();
    assert_eq!(crate::paths::encode(&grants[0].path), "/vo/data");
}

#[tokio::test]
async fn a_token_whose_bytes_were_changed_is_refused() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let token = key.token(&wlcg("storage.read:/"));
    assert!(trial.tokens.judge(&token).await.is_ok());
    for at in (0..token.len()).step_by(7) {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(bytes).unwrap();
        assert!(trial.tokens.judge(&altered).await.is_err(), "byte {at}");
    }
    let wider = key.token(&wlcg("storage.modify:/"));
    let (head, signature) = (token.split('.').next().unwrap(), token.rsplit('.').next().unwrap());
    let swapped = format!("{head}.{}.{signature}", wider.split('.').nth(1).unwrap());
    assert_eq!(trial.refusal(&swapped).await, "the token's signature is wrong");
}

#[tokio::test]
async fn a_key_of_somebody_else_with_the_same_name_does_not_sign() {
    let (ours, theirs) = (TestKey::p256("k"), TestKey::p256("k"));
    let trial = trial(&[&ours]);
    assert_eq!(trial.refusal(&theirs.token(&wlcg("storage.read:/"))).await, "the token's signature is wrong");
}

#[tokio::test]
async fn algorithms_are_not_confused() {
    use hmac::{Hmac, KeyInit, Mac};

    let (rsa, p256) = (TestKey::rsa("r"), TestKey::p256("e"));
    let trial = trial(&[&rsa, &p256]);
    // The public key as the secret of an HMAC, under each name that might let it in.
    let forged = |alg: &str, kid: &str| {
        let part = |value: &Value| {
            use base64::Engine;
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string())
        };
        let signed =
            format!("{}.{}", part(&json!({"alg": alg, "kid": kid})), part(&wlcg("storage.modify:/")));
        let mut mac = Hmac::<Sha256>::new_from_slice(&rsa.public_bytes()).unwrap();
        mac.update(signed.as_bytes());
        use base64::Engine;
        let code = mac.finalize().into_bytes();
        format!("{signed}.{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(code))
    };
    for alg in ["HS256", "none", "RS256", "ES256", "PS256"] {
        for kid in ["r", "e"] {
            assert!(trial.tokens.judge(&forged(alg, kid)).await.is_err(), "{alg} {kid}");
        }
    }
    let unsigned = format!("{}.", forged("none", "r").rsplit_once('.').unwrap().0);
    assert!(trial.tokens.judge(&unsigned).await.is_err());
    // A key of one kind named for the algorithm of another.
    let crossed = p256.token_as(&json!({"alg": "RS256", "kid": "e"}), &wlcg("storage.read:/"));
    assert!(trial.tokens.judge(&crossed).await.is_err());
}

#[tokio::test]
async fn a_key_published_for_one_algorithm_is_not_used_for_another() {
    let rsa = TestKey::rsa("r");
    let trial = trial(&[]);
    let keys = json!({"keys": [with(rsa.jwk(), "alg", "RS512")]});
    trial.fetch.put(&format!("{ISSUER}/jwks"), &keys);
    let token = |alg: &str| rsa.token_as(&json!({"alg": alg, "kid": "r"}), &wlcg("storage.read:/"));
    assert!(trial.tokens.judge(&token("RS512")).await.is_ok());
    assert!(trial.tokens.judge(&token("RS256")).await.is_err());
}

#[tokio::test]
async fn times_are_checked_with_a_minute_of_leeway() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let read = || wlcg("storage.read:/");
    for good in [
        with(read(), "exp", NOW_S - 59),
        with(read(), "nbf", NOW_S + 60),
        with(read(), "iat", NOW_S + 60),
        without(without(read(), "nbf"), "iat"),
    ] {
        assert!(trial.tokens.judge(&key.token(&good)).await.is_ok(), "{good}");
    }
    for (bad, why) in [
        (with(read(), "exp", NOW_S - 60), "expired"),
        (without(read(), "exp"), "no expiry"),
        (with(read(), "nbf", NOW_S + 61), "not valid yet"),
        (with(read(), "iat", NOW_S + 61), "not valid yet"),
    ] {
        assert!(trial.refusal(&key.token(&bad)).await.contains(why), "{bad}");
    }
}

#[tokio::test]
async fn a_token_that_was_good_ends_although_its_verdict_is_kept() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let token = key.token(&with(wlcg("storage.read:/"), "exp", NOW_S + 100));
    assert!(trial.tokens.judge(&token).await.is_ok());
    trial.clock.advance(159);
    assert!(trial.tokens.judge(&token).await.is_ok());
    trial.clock.advance(1);
    assert_eq!(trial.refusal(&token).await, "the token has expired");
}

#[tokio::test]
async fn the_audience_is_ours_or_the_wildcard_of_the_profile() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let read = || wlcg("storage.read:/");
    for good in [
        json!("https://storage.example"),
        json!("https://wlcg.cern.ch/jwt/v1/any"),
        json!(["https://other.example", "https://storage.example"]),
    ] {
        assert!(trial.tokens.judge(&key.token(&with(read(), "aud", good.clone()))).await.is_ok(), "{good}");
    }
    for bad in
        [json!("https://other.example"), json!([]), json!("ANY"), json!("https://storage.example.evil")]
    {
        let why = trial.refusal(&key.token(&with(read(), "aud", bad.clone()))).await;
        assert_eq!(why, "the token is for another audience", "{bad}");
    }
    assert!(trial.tokens.judge(&key.token(&without(read(), "aud"))).await.is_err());
}

#[tokio::test]
async fn an_issuer_is_one_of_the_list_with_or_without_the_last_slash() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let by = |iss: &str| key.token(&with(wlcg("storage.read:/"), "iss", iss));
    assert!(trial.tokens.judge(&by("https://issuer.example/")).await.is_ok());
    for bad in [
        "https://issuer.example.evil",
        "https://issuer.example/x",
        "http://issuer.example",
        "issuer.example",
        "",
    ] {
        assert_eq!(trial.refusal(&by(bad)).await, "the token's issuer is not trusted here", "{bad}");
    }
    assert_eq!(trial.fetch.count(), 2, "nobody else was asked for keys");
}

#[tokio::test]
async fn a_profile_is_claimed_and_is_the_configured_one() {
    let key = TestKey::p256("k");
    let scitoken = with(with(without(wlcg("read:/"), "wlcg.ver"), "ver", "scitoken:2.0"), "aud", "ANY");
    let unknown = without(wlcg("storage.read:/"), "wlcg.ver");
    let [auto, wlcg_only, scitokens_only] =
        [Profile::Auto, Profile::Wlcg, Profile::SciTokens].map(|profile| trial_of(profile, &[&key]));
    for version in ["1.0", "1.1", "1.2", "1.3"] {
        let claims = with(wlcg("storage.read:/"), "wlcg.ver", version);
        assert!(auto.tokens.judge(&key.token(&claims)).await.is_ok(), "{version}");
        assert!(wlcg_only.tokens.judge(&key.token(&claims)).await.is_ok(), "{version}");
        assert!(scitokens_only.tokens.judge(&key.token(&claims)).await.is_err(), "{version}");
    }
    assert!(auto.tokens.judge(&key.token(&scitoken)).await.is_ok());
    assert!(scitokens_only.tokens.judge(&key.token(&scitoken)).await.is_ok());
    assert!(wlcg_only.tokens.judge(&key.token(&scitoken)).await.is_err());
    let plural = with(scitoken.clone(), "ver", "scitokens:2.0");
    assert!(auto.tokens.judge(&key.token(&plural)).await.is_ok(), "as scitokens-cpp and HTCondor write it");
    for claims in [
        unknown,
        with(wlcg("storage.read:/"), "wlcg.ver", "2.0"),
        with(wlcg("storage.read:/"), "wlcg.ver", "1."),
        with(scitoken, "ver", "scitoken:1.0"),
    ] {
        assert!(auto.tokens.judge(&key.token(&claims)).await.is_err(), "{claims}");
    }
}

#[tokio::test]
async fn a_scope_without_a_path_refuses_the_token() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    assert!(trial.refusal(&key.token(&wlcg("storage.read:/ storage.modify"))).await.contains("no path"));
}

#[tokio::test]
async fn a_flood_of_unknown_keys_fetches_within_the_bounds() {
    let (known, unknown) = (TestKey::p256("k"), TestKey::p256("u"));
    let trial = trial(&[&known]);
    trial.tokens.judge(&known.token(&wlcg("storage.read:/"))).await.unwrap();
    assert_eq!(trial.fetch.count(), 2);
    for n in 0..200 {
        let header = json!({"alg": "ES256", "kid": format!("flood-{n}")});
        let why = trial.refusal(&unknown.token_as(&header, &wlcg("storage.read:/"))).await;
        assert!(why.contains("does not publish"), "{why}");
    }
    assert_eq!(trial.fetch.count(), 2, "not again within a minute of the first");
    trial.clock.advance(60);
    for n in 0..200 {
        let header = json!({"alg": "ES256", "kid": format!("flood-{n}")});
        trial.refusal(&unknown.token_as(&header, &wlcg("storage.read:/"))).await;
    }
    assert_eq!(trial.fetch.count(), 4, "once more after it");
}

#[tokio::test]
async fn a_new_key_of_the_issuer_is_found_when_a_token_names_it() {
    let (old, new) = (TestKey::p256("old"), TestKey::rsa("new"));
    let trial = trial(&[&old]);
    trial.tokens.judge(&old.token(&wlcg("storage.read:/"))).await.unwrap();
    trial.fetch.publish(ISSUER, &[&new]);
    trial.clock.advance(60);
    assert!(trial.tokens.judge(&new.token(&wlcg("storage.read:/"))).await.is_ok());
    let again = old.token(&wlcg("storage.read:/again"));
    assert!(trial.refusal(&again).await.contains("does not publish"), "a withdrawn key is not believed");
}

#[tokio::test]
async fn keys_of_an_issuer_that_is_down_are_believed_for_days_and_not_for_ever() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let token = |n: u32| key.token(&with(wlcg(&format!("storage.read:/{n}")), "exp", NOW_S + 10_000_000));
    trial.tokens.judge(&token(0)).await.unwrap();
    trial.fetch.is_down.store(true, Ordering::Relaxed);
    trial.clock.pass(KeyBounds::default().age_max);
    assert!(trial.tokens.judge(&token(1)).await.is_ok());
    trial.clock.advance(61);
    assert!(matches!(trial.tokens.judge(&token(2)).await, Err(AuthError::Unavailable(_))));
    trial.fetch.is_down.store(false, Ordering::Relaxed);
    trial.clock.advance(61);
    assert!(trial.tokens.judge(&token(3)).await.is_ok());
}

#[tokio::test]
async fn old_keys_are_refreshed_behind_the_requests() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let token = |n: u32| key.token(&with(wlcg(&format!("storage.read:/{n}")), "exp", NOW_S + 10_000_000));
    trial.tokens.judge(&token(0)).await.unwrap();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    *trial.fetch.gate.lock() = Some(gate.clone());
    trial.clock.advance(3601);
    assert!(trial.tokens.judge(&token(1)).await.is_ok(), "answered while the issuer has not");
    assert!(trial.tokens.judge(&token(2)).await.is_ok());
    tokio::task::yield_now().await;
    assert_eq!(trial.fetch.count(), 3, "one fetch is on its way");
    gate.add_permits(2);
    while trial.fetch.count() < 4 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_that_wait_for_the_first_keys_share_one_fetch_and_survive_one_that_hangs_up() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    *trial.fetch.gate.lock() = Some(gate.clone());
    let token = |n: u32| key.token(&wlcg(&format!("storage.read:/{n}")));
    let tokens: Vec<String> = (0..20).map(token).collect();
    {
        // The first one asks, and goes away.
        let mut first = Box::pin(trial.tokens.judge(&tokens[0]));
        std::future::poll_fn(|context| {
            assert!(first.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
    gate.add_permits(2);
    for token in &tokens {
        assert!(trial.tokens.judge(token).await.is_ok());
    }
    assert_eq!(trial.fetch.count(), 2);
}

#[tokio::test]
async fn an_issuer_that_never_answered_is_unavailable_and_asked_again_soon() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    trial.fetch.is_down.store(true, Ordering::Relaxed);
    let token = key.token(&wlcg("storage.read:/"));
    for _ in 0..50 {
        assert!(matches!(trial.tokens.judge(&token).await, Err(AuthError::Unavailable(_))));
    }
    assert_eq!(trial.fetch.count(), 2, "one attempt, at both well-known places");
    trial.fetch.is_down.store(false, Ordering::Relaxed);
    trial.clock.advance(5);
    assert!(trial.tokens.judge(&token).await.is_ok());
}

#[tokio::test]
async fn an_issuer_with_the_document_of_oauth_only_is_found() {
    let key = TestKey::p256("k");
    let trial = trial(&[&key]);
    let at_oauth = format!("{ISSUER}/.well-known/oauth-authorization-server");
    {
        let mut answers = trial.fetch.answers.lock();
        let document = answers.remove(&format!("{ISSUER}/.well-known/openid-configuration")).unwrap();
        answers.insert(at_oauth, document);
    }
    assert!(trial.tokens.judge(&key.token(&wlcg("storage.read:/"))).await.is_ok());
}

#[tokio::test]
async fn a_discovery_of_another_issuer_or_without_tls_is_not_believed() {
    let key = TestKey::p256("k");
    for discovery in [
        json!({"issuer": "https://evil.example", "jwks_uri": format!("{ISSUER}/jwks")}),
        json!({"issuer": ISSUER, "jwks_uri": "http://issuer.example/jwks"}),
        json!({"issuer": ISSUER}),
        json!([]),
    ] {
        let trial = trial(&[&key]);
        trial.fetch.put(&format!("{ISSUER}/.well-known/openid-configuration"), &discovery);
        let outcome = trial.tokens.judge(&key.token(&wlcg("storage.read:/"))).await;
        assert!(matches!(outcome, Err(AuthError::Unavailable(_))), "{discovery}");
    }
}

#[tokio::test]
async fn a_key_set_that_is_odd_is_read_for_what_it_has() {
    let key = TestKey::p256("k");
    let trial = trial(&[]);
    let keys = json!({"keys": [
        {"kty": "oct", "k": "AAAA", "kid": "k"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "k"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "k"},
        with(key.jwk(), "use", "enc"),
        "nonsense",
        key.jwk(),
    ]});
    trial.fetch.put(&format!("{ISSUER}/jwks"), &keys);
    assert!(trial.tokens.judge(&key.token(&wlcg("storage.read:/"))).await.is_ok());
    let unnamed = key.token_as(&json!({"alg": "ES256"}), &wlcg("storage.read:/unnamed"));
    assert!(trial.tokens.judge(&unnamed).await.is_ok(), "a token without kid is tried with what fits");
}

#[test]
fn a_key_set_is_bounded() {
    let key = TestKey::p256("k").jwk();
    assert!(keys::KeySet::parse(json!({"keys": vec![key.clone(); 64]}).to_string().as_bytes()).is_ok());
    assert!(keys::KeySet::parse(json!({"keys": vec![key; 65]}).to_string().as_bytes()).is_err());
    assert!(keys::KeySet::parse(br#"{"keys":[]}"#).is_err());
}

#[test]
fn an_issuer_without_tls_or_given_twice_is_refused_at_the_start() {
    let fetch: Arc<dyn Fetch> = Arc::new(TestFetch::default());
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
    let open = |urls: &[&str]| {
        let issuers: Vec<Issuer> = urls.iter().map(|url| issuer(url, Profile::Auto)).collect();
        Tokens::new(&issuers, &fetch, &clock, Duration::ZERO).is_ok()
    };
    assert!(open(&["https://a", "https://b", "http://localhost:1"]));
    assert!(!open(&["http://a"]));
    assert!(!open(&["https://a", "https://a/"]));
}
