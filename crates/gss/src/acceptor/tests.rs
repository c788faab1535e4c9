//! Contexts between an acceptor and the tests' own client, and everything that is no context.

use proptest::prelude::*;

use super::*;
use crate::TokenError;
use crate::peer::{Initiator, NOW, key, keytab, principal};

const ENTROPY: Entropy = Entropy { confounder: [5; CONFOUNDER_LEN], subkey: [6; 32], sequence: u32::MAX };

fn acceptor(initiator: &Initiator) -> Acceptor {
    Acceptor::new(keytab(&initiator.service_key), "nfs").unwrap()
}

fn accept(change: impl FnOnce(&mut Initiator)) -> Result<Accepted, AcceptError> {
    let mut initiator = Initiator::new(18);
    let mut acceptor = acceptor(&initiator);
    change(&mut initiator);
    acceptor.accept(&initiator.token(), NOW, &ENTROPY)
}

fn refusal(change: impl FnOnce(&mut Initiator)) -> AcceptError {
    accept(change).map(|_| ()).unwrap_err()
}

#[test]
fn a_context_is_established_with_every_encryption_type() {
    for enctype in 17..=20 {
        let initiator = Initiator::new(enctype);
        let accepted = acceptor(&initiator).accept(&initiator.token(), NOW, &ENTROPY).unwrap();
        let (ours, theirs) = (accepted.context, initiator.finish(&accepted.reply));
        assert_eq!(*ours.client(), principal("ann"));
        assert_eq!(*ours.service(), principal("nfs/head.example.org"));
        assert_eq!(ours.expires(), initiator.end + CLOCK_SKEW_S);
        for (sender, receiver) in [(&ours, &theirs), (&theirs, &ours)] {
            let message: [&[u8]; 3] = [b"one", b"", b"two"];
            assert_eq!(receiver.verify_mic(&[b"onetwo"], &sender.mic(&message)), Ok(()));
            let sealed = receiver.unwrap(&sender.seal(&message, &[9; 16])).unwrap();
            assert_eq!((&sealed.data[..], sealed.is_sealed), (&b"onetwo"[..], true));
            let plain = receiver.unwrap(&sender.wrap_plain(&message)).unwrap();
            assert_eq!((&plain.data[..], plain.is_sealed), (&b"onetwo"[..], false));
        }
    }
}

#[test]
fn without_mutual_authentication_there_is_no_reply_and_the_clients_key_is_used() {
    let mut initiator = Initiator::new(17);
    initiator.gss_flags = 0;
    for subkey in [Some(key(17, 3)), None] {
        initiator.subkey = subkey.clone();
        let accepted = acceptor(&initiator).accept(&initiator.token(), NOW, &ENTROPY).unwrap();
        assert!(accepted.reply.is_empty());
        let theirs = initiator.context(subkey.unwrap_or(key(17, 2)), false);
        assert_eq!(accepted.context.verify_mic(&[b"x"], &theirs.mic(&[b"x"])), Ok(()));
    }
}

#[test]
fn new_keys_are_taken_old_ones_are_good_while_they_stand_in_the_keytab_and_what_was_seen_stays_seen() {
    let old = Initiator::new(18);
    let new = Initiator { service_key: key(18, 9), kvno: Some(4), subkey: Some(key(18, 10)), ..old.clone() };
    let mut acceptor = acceptor(&old);
    assert!(acceptor.accept(&old.token(), NOW, &ENTROPY).is_ok());
    let refused = acceptor.accept(&new.token(), NOW, &ENTROPY).unwrap_err();
    assert!(matches!(refused, AcceptError::NoKey { kvno: Some(4), .. }), "{refused}");

    let mut both = keytab(&old.service_key);
    let newer = |entry: &KeytabEntry| KeytabEntry { kvno: 4, key: key(18, 9), ..entry.clone() };
    both.entries.extend(both.entries.clone().iter().map(newer));
    let only_new = Keytab { entries: both.entries[2..].to_vec() };
    acceptor.replace_keys(both).unwrap();
    assert!(acceptor.accept(&new.token(), NOW, &ENTROPY).is_ok());
    let again = acceptor.accept(&old.token(), NOW, &ENTROPY).unwrap_err();
    assert!(matches!(again, AcceptError::Replay { .. }), "{again}");
    let later = Initiator { subkey: Some(key(18, 11)), ..old };
    assert!(acceptor.accept(&later.token(), NOW, &ENTROPY).is_ok(), "the old key still stands there");

    acceptor.replace_keys(only_new).unwrap();
    let gone = Initiator { subkey: Some(key(18, 12)), ..later };
    assert!(matches!(acceptor.accept(&gone.token(), NOW, &ENTROPY), Err(AcceptError::NoKey { .. })));

    assert!(acceptor.replace_keys(Keytab::default()).is_err());
    let still = Initiator { subkey: Some(key(18, 13)), ..new };
    assert!(acceptor.accept(&still.token(), NOW, &ENTROPY).is_ok(), "a keytab without a key changes nothing");
}

#[test]
fn a_ticket_for_another_service_is_refused() {
    let service = principal("nfs/other.example.org");
    assert_eq!(
        refusal(|i| i.service = principal("nfs/other.example.org")),
        AcceptError::UnknownService { service }
    );
    // The key is in the keytab, and it is the same one: the name counts.
    let service = principal("host/head.example.org");
    assert_eq!(
        refusal(|i| i.service = principal("host/head.example.org")),
        AcceptError::UnknownService { service }
    );
}

#[test]
fn a_ticket_under_another_key_is_refused() {
    let service = principal("nfs/head.example.org");
    assert_eq!(refusal(|i| i.service_key = key(18, 99)), AcceptError::WrongKey { service: service.clone() });
    assert_eq!(
        refusal(|i| i.kvno = Some(4)),
        AcceptError::NoKey { service: service.clone(), enctype: 18, kvno: Some(4) }
    );
    assert_eq!(
        refusal(|i| i.service_key = key(17, 1)),
        AcceptError::NoKey { service, enctype: 17, kvno: Some(3) }
    );
    assert!(accept(|i| i.kvno = None).is_ok());
}

#[test]
fn a_ticket_is_good_from_its_start_to_its_end_give_or_take_the_skew() {
    let client = principal("ann");
    assert!(accept(|i| i.end = NOW - CLOCK_SKEW_S).is_ok());
    assert_eq!(
        refusal(|i| i.end = NOW - CLOCK_SKEW_S - 1),
        AcceptError::Expired { client: client.clone(), since_s: CLOCK_SKEW_S + 1 }
    );
    assert!(accept(|i| i.start = NOW + CLOCK_SKEW_S).is_ok());
    let early = AcceptError::NotYetValid { client };
    assert_eq!(refusal(|i| i.start = NOW + CLOCK_SKEW_S + 1), early);
    assert_eq!(refusal(|i| i.ticket_flags = TICKET_INVALID), early);
}

#[test]
fn a_clock_that_is_five_minutes_off_is_refused() {
    for (by_s, sign) in [(CLOCK_SKEW_S, 1), (CLOCK_SKEW_S, -1)] {
        assert!(accept(|i| i.time = NOW + sign * by_s).is_ok());
        let by_s = by_s + 1;
        assert_eq!(refusal(|i| i.time = NOW + sign * by_s), AcceptError::ClockSkew { by_s });
    }
}

#[test]
fn a_client_with_a_ticket_but_without_its_session_key_is_refused() {
    // The ticket holds one session key, the authenticator is encrypted with another.
    let initiator = Initiator::new(18);
    let mut thief = initiator.clone();
    thief.session_key = key(18, 77);
    let ours = initiator.token();
    let theirs = thief.token();
    // Both tokens have the same shape: the authenticator is their last part.
    assert_eq!(ours.len(), theirs.len());
    let authenticator = ours.len() - 200;
    let forged = [&ours[..authenticator], &theirs[authenticator..]].concat();
    let refused = acceptor(&initiator).accept(&forged, NOW, &ENTROPY).map(|_| ());
    assert_eq!(refused, Err(AcceptError::BadAuthenticator));
}

#[test]
fn names_in_ticket_and_authenticator_agree() {
    assert_eq!(
        refusal(|i| i.authenticator_client = principal("bob")),
        AcceptError::ClientMismatch { ticket: principal("ann"), authenticator: principal("bob") }
    );
}

#[test]
fn a_client_of_another_realm_comes_by_realms_that_the_kdc_checked() {
    let foreign = |i: &mut Initiator| {
        i.client = principal("ann@ELSEWHERE.ORG");
        i.authenticator_client = i.client.clone();
    };
    assert_eq!(refusal(foreign), AcceptError::Transited { client: principal("ann@ELSEWHERE.ORG") });
    let checked = accept(|i| {
        foreign(i);
        i.ticket_flags = TRANSITED_POLICY_CHECKED;
    });
    assert_eq!(*checked.unwrap().context.client(), principal("ann@ELSEWHERE.ORG"));
}

#[test]
fn a_token_is_taken_once() {
    let initiator = Initiator::new(18);
    let (mut acceptor, token) = (acceptor(&initiator), initiator.token());
    acceptor.accept(&token, NOW, &ENTROPY).unwrap();
    let again = acceptor.accept(&token, NOW + 1, &ENTROPY).map(|_| ()).unwrap_err();
    assert_eq!(again, AcceptError::Replay { client: principal("ann") });
}

#[test]
fn user_to_user_and_tokens_without_gss_flags_are_refused() {
    assert_eq!(refusal(|i| i.options = AP_USE_SESSION_KEY), AcceptError::UserToUser);
    assert_eq!(refusal(|i| i.checksum_type = 7), AcceptError::NoGssChecksum);
}

#[test]
fn a_keytab_without_the_service_is_refused() {
    let error = Acceptor::new(keytab(&key(18, 1)), "http").unwrap_err();
    assert!(error.to_string().contains("http/HOST@REALM"));
    let acceptor = Acceptor::new(keytab(&key(18, 1)), "nfs").unwrap();
    assert_eq!(acceptor.services().count(), 1);
}

#[test]
fn errors_have_the_codes_that_clients_know() {
    let client = principal("ann");
    // KRB5KRB_AP_ERR_TKT_EXPIRED is -1765328352, and GSS_S_CREDENTIALS_EXPIRED is 11 << 16.
    let expired = AcceptError::Expired { client, since_s: 400 };
    assert_eq!(expired.status(), (0x000b_0000, (-1_765_328_352i32) as u32));
    assert_eq!(AcceptError::OtherMechanism.status(), (0x0001_0000, 0));
}

#[test]
fn a_token_of_another_mechanism_or_a_later_one_is_refused() {
    let initiator = Initiator::new(18);
    let mut token = initiator.token();
    let reply = acceptor(&initiator).accept(&token, NOW, &ENTROPY).unwrap().reply;
    let refused = |token: &[u8]| acceptor(&initiator).accept(token, NOW, &ENTROPY).map(|_| ()).unwrap_err();
    assert_eq!(refused(&reply), AcceptError::NotInitial);
    let oid = token.windows(9).position(|window| window == KRB5_OID).unwrap();
    token[oid + 8] = 3;
    assert_eq!(refused(&token), AcceptError::OtherMechanism);
}

#[test]
fn every_cut_of_a_token_and_every_changed_byte_is_refused() {
    let initiator = Initiator::new(18);
    let token = initiator.token();
    for at in 0..token.len() {
        assert!(acceptor(&initiator).accept(&token[..at], NOW, &ENTROPY).is_err(), "cut at {at}");
        let mut spoiled = token.clone();
        spoiled[at] ^= 0x01;
        let accepted = acceptor(&initiator).accept(&spoiled, NOW, &ENTROPY);
        // Nothing protects the options and the type of the service's name, and nothing hangs on them.
        if let Ok(accepted) = accepted {
            assert_eq!(*accepted.context.client(), principal("ann"), "byte {at}");
        }
    }
}

fn pair() -> (Context, Context) {
    let initiator = Initiator::new(18);
    let accepted = acceptor(&initiator).accept(&initiator.token(), NOW, &ENTROPY).unwrap();
    let theirs = initiator.finish(&accepted.reply);
    (accepted.context, theirs)
}

#[test]
fn a_rotated_token_is_the_same_token() {
    let (ours, theirs) = pair();
    for token in [theirs.seal(&[b"some data"], &[9; 16]), theirs.wrap_plain(&[b"some data"])] {
        for rotation in [1usize, 12, 28, 1000] {
            let mut rotated = token.clone();
            let body_len = rotated.len() - 16;
            rotated[16..].rotate_right(rotation % body_len);
            rotated[6..8].copy_from_slice(&(rotation as u16).to_be_bytes());
            assert_eq!(ours.unwrap(&rotated).unwrap().data, "some data", "by {rotation}");
        }
    }
}

#[test]
fn a_token_is_refused_by_its_own_sender_and_with_the_flags_of_another() {
    let (ours, theirs) = pair();
    let mic = theirs.mic(&[b"x"]);
    assert_eq!(theirs.verify_mic(&[b"x"], &mic), Err(TokenError::Defective));
    for flag in [1u8, 2, 4] {
        let mut spoiled = mic.clone();
        spoiled[2] ^= flag;
        assert_eq!(ours.verify_mic(&[b"x"], &spoiled), Err(TokenError::Defective));
    }
    assert_eq!(ours.verify_mic(&[b"y"], &mic), Err(TokenError::BadSignature));
    assert_eq!(ours.verify_mic(&[b"x"], &mic[..20]), Err(TokenError::BadSignature));
    assert_eq!(ours.verify_mic(&[b"x"], &mic[..15]), Err(TokenError::Defective));
}

#[test]
fn no_changed_wrap_token_is_unwrapped_to_something_else() {
    let (ours, theirs) = pair();
    for token in [theirs.seal(&[b"some data"], &[9; 16]), theirs.wrap_plain(&[b"some data"])] {
        for at in 0..token.len() {
            let mut spoiled = token.clone();
            spoiled[at] ^= 1;
            assert!(ours.unwrap(&spoiled).is_err(), "byte {at}");
            assert!(ours.unwrap(&token[..at]).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn tokens_are_numbered() {
    let (ours, _) = pair();
    let number = |token: &[u8]| u64::from_be_bytes(token[8..16].try_into().unwrap());
    let first = u64::from(ENTROPY.sequence & SEQUENCE_MASK);
    assert_eq!(number(&ours.mic(&[b"x"])), first);
    assert_eq!(number(&ours.wrap_plain(&[b"x"])), first + 1);
}

proptest! {
    #[test]
    fn any_bytes_are_a_token_or_refused(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let initiator = Initiator::new(17);
        let mut acceptor = acceptor(&initiator);
        prop_assert!(acceptor.accept(&noise, NOW, &ENTROPY).is_err());
        prop_assert!(acceptor.accept(&frame(AP_REQ_ID, &noise), NOW, &ENTROPY).is_err());
        let mut token = initiator.token();
        for (at, byte) in changes {
            let at = at.index(token.len());
            token[at] = byte;
        }
        let _ = acceptor.accept(&token, NOW, &ENTROPY);
        let _ = TicketPart::decode(&noise);
        let _ = Authenticator::decode(&noise);
        let (ours, _) = pair();
        prop_assert!(ours.unwrap(&noise).is_err());
        prop_assert!(ours.verify_mic(&[b"x"], &noise).is_err());
    }
}
