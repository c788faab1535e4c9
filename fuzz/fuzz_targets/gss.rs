//! Messages from strangers to a service of Kerberos: a context's first token, tokens of its messages, keytabs, and
//! RPCSEC_GSS around them. The first byte of the input says which. Tokens are made well and then changed, or they would
//! not get past the first check.

#![no_main]

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_fuzz::{bounded, survives};
use gss::peer::{Initiator, NOW, keytab};
use gss::{Acceptor, Entropy, Keytab};
use libfuzzer_sys::fuzz_target;
use oncrpc::{
    CallHeader, Credential, GssCredential, GssInitArgs, GssInitRes, IntegrityBody, SequenceFate,
    SequenceWindow, privacy_token, signed_header, unnumbered,
};
use xdr::Decoder;

const ENTROPY: Entropy = Entropy { confounder: [5; gss::CONFOUNDER_LEN], subkey: [6; 32], sequence: 9 };

fuzz_target!(|input: &[u8]| {
    let Some((family, rest)) = input.split_first() else { return };
    let kind = family / 6;
    match family % 6 {
        0 => first_token(rest),
        1 => first_token(&changed(Initiator::new(17 + i32::from(kind % 4)).token(), rest)),
        2 => inside(rest),
        3 => message(kind, rest),
        4 => keys(rest),
        _ if kind % 2 == 0 => rpc(&Bytes::copy_from_slice(rest)),
        _ => numbers(rest),
    }
});

/// A token in which some bytes are others, are missing, or are too many. Each change is three bytes of the input.
fn changed(mut token: Vec<u8>, changes: &[u8]) -> Vec<u8> {
    for change in changes.chunks_exact(3).take(8) {
        let at = (usize::from(change[0]) << 8 | usize::from(change[1])) % token.len().max(1);
        match change[2] {
            0 => token.truncate(at),
            1 => token.insert(at, change[1]),
            byte if !token.is_empty() => token[at] ^= byte,
            _ => {}
        }
    }
    token
}

fn first_token(token: &[u8]) {
    let initiator = Initiator::new(18);
    let mut acceptor = Acceptor::new(keytab(&initiator.service_key), "nfs").expect("it has the service");
    let accepted = bounded(token.len(), || acceptor.accept(token, NOW, &ENTROPY));
    if let Err(error) = accepted {
        assert!(error.status().0 != 0 && !error.to_string().contains('\n'), "{error}");
    }
}

/// Times, flags and numbers as they come, under keys that fit.
fn inside(input: &[u8]) {
    let word = |at: usize| {
        let bytes = input.get(at..at + 4).unwrap_or(&[0; 4]);
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    };
    let mut initiator = Initiator::new(17 + (word(0) % 4) as i32);
    initiator.ticket_flags = word(4);
    initiator.options = word(8);
    initiator.gss_flags = word(12);
    // Kerberos' times have four digits for the year.
    initiator.start = i64::from(word(16));
    initiator.end = i64::from(word(20));
    initiator.time = if word(24) % 2 == 0 { NOW } else { i64::from(word(24)) };
    initiator.kvno = (word(28) % 3 != 0).then_some(word(28) % 5);
    let mut acceptor = Acceptor::new(keytab(&initiator.service_key), "nfs").expect("it has the service");
    let token = initiator.token();
    if let Ok(accepted) = acceptor.accept(&token, NOW, &ENTROPY) {
        assert!(accepted.context.expires() >= NOW, "its ticket had not ended");
        assert!(acceptor.accept(&token, NOW, &ENTROPY).is_err(), "the same token twice");
    }
}

/// MIC and Wrap tokens: none verifies but those that were made, over what they were made of.
fn message(kind: u8, input: &[u8]) {
    let initiator = Initiator::new(17 + i32::from(kind % 4));
    let mut acceptor = Acceptor::new(keytab(&initiator.service_key), "nfs").expect("it has the service");
    // The comparisons of the other branches teach the fuzzer good tokens: here it is to have none.
    let subkey = if kind / 4 % 4 == 3 { [7; 32] } else { ENTROPY.subkey };
    let entropy = Entropy { subkey, ..ENTROPY };
    let accepted = acceptor.accept(&initiator.token(), NOW, &entropy).expect("a good token");
    let (ours, theirs) = (accepted.context, initiator.finish(&accepted.reply));
    let (changes, data) = input.split_at(input.len().min(usize::from(kind) % 25));
    match kind / 4 % 4 {
        0 => {
            let token = theirs.mic(&[data]);
            let other = changed(token.clone(), changes);
            assert_eq!(ours.verify_mic(&[data], &other).is_ok(), token == other);
        }
        1 => unwrap(&ours, theirs.seal(&[data], &[3; gss::CONFOUNDER_LEN]), changes, data),
        2 => unwrap(&ours, theirs.wrap_plain(&[data]), changes, data),
        _ => {
            assert!(bounded(input.len(), || ours.unwrap(input)).is_err(), "made of nothing");
            assert!(ours.verify_mic(&[], input).is_err(), "made of nothing");
        }
    }
}

/// Extra count and rotation may be others and say the same; the bytes that come out are those that went in.
fn unwrap(ours: &gss::Context, token: Vec<u8>, changes: &[u8], data: &[u8]) {
    let other = changed(token.clone(), changes);
    let unwrapped = bounded(other.len(), || ours.unwrap(&other));
    match unwrapped {
        Ok(unwrapped) => assert_eq!(&unwrapped.data[..], data),
        Err(_) => assert_ne!(token, other),
    }
}

fn keys(input: &[u8]) {
    let whole = [&[5, 2][..], input].concat();
    if let Ok(keytab) = bounded(whole.len(), || Keytab::parse(&whole)) {
        assert!(keytab.entries.len() <= whole.len() / 8);
        if let Ok(mut acceptor) = Acceptor::new(keytab.clone(), "nfs") {
            assert!(acceptor.replace_keys(keytab).is_ok());
            assert!(acceptor.accept(&Initiator::new(18).token(), NOW, &ENTROPY).is_err() || input.len() > 60);
        }
    }
}

/// RPCSEC_GSS: the credential, alone and in a call, what a handshake says, and protected bodies.
fn rpc(message: &Bytes) {
    survives::<GssCredential>(message);
    survives::<GssInitArgs>(message);
    survives::<GssInitRes>(message);
    let mut d = Decoder::new(message.clone());
    if let Ok(header) = bounded(message.len(), || CallHeader::decode(&mut d)) {
        let signed = signed_header(message).expect("a header that was read has a beginning");
        assert!(message.starts_with(&signed) && signed.len() < d.position(), "the verifier is not signed");
        if let Credential::RpcsecGss(credential) = &header.credential {
            body(&d.rest(), credential.sequence);
        }
    }
    body(message, 7);
}

fn body(message: &Bytes, sequence: u32) {
    if let Ok(parts) = bounded(message.len(), || IntegrityBody::decode(message.clone())) {
        assert!(parts.signed.len() + parts.mic.len() + 8 <= message.len());
        if let Some(arguments) = unnumbered(parts.signed.clone(), sequence) {
            assert_eq!(parts.signed[..4], sequence.to_be_bytes());
            assert_eq!(parts.signed[4..], arguments);
        }
    }
    if let Ok(token) = bounded(message.len(), || privacy_token(message.clone())) {
        assert!(token.len() + 4 <= message.len());
    }
}

/// The window lets no number through twice, and none that is far behind.
fn numbers(input: &[u8]) {
    let (mut window, mut run) = (SequenceWindow::new(), BTreeSet::new());
    for number in input.chunks_exact(3) {
        let near = u32::from(number[1]) << 8 | u32::from(number[2]);
        let number = if number[0] == 255 { 0x8000_0000 - 0x8000 + near } else { near };
        let newest = run.last().copied().unwrap_or(0);
        let is_old = newest >= SequenceWindow::LEN + number;
        let expected = match number {
            0x8000_0000.. => SequenceFate::Exhausted,
            _ if is_old || run.contains(&number) => SequenceFate::Drop,
            _ => SequenceFate::Run,
        };
        assert_eq!(window.judge(number), expected, "{number} after {newest}");
        if expected == SequenceFate::Run {
            run.insert(number);
        }
    }
}
