//! Properties of every operation: values come back, cut messages are refused, no bytes make decoding panic.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;

use super::result_samples::all_results;
use super::samples::all_args;
use super::*;

/// Encodes, decodes, and wants the same value and not a byte left; then wants every shorter message refused.
fn assert_roundtrip<T: Xdr + PartialEq + std::fmt::Debug>(value: &T) {
    let bytes = xdr::to_bytes(value);
    assert_eq!(bytes.len() % 4, 0, "{value:?}");
    assert_eq!(xdr::from_bytes::<T>(bytes.clone()).as_ref(), Ok(value));
    for cut in (0..bytes.len()).step_by(4) {
        assert!(xdr::from_bytes::<T>(bytes.slice(..cut)).is_err(), "{value:?} cut at {cut}");
    }
}

#[test]
fn there_is_a_sample_of_every_operation() {
    let numbers: BTreeSet<u32> = all_args().iter().map(NfsArgop4::opnum).collect();
    assert_eq!(numbers, (op::FIRST..=op::LAST).chain([76]).collect());
}

#[test]
fn arguments_come_back() {
    all_args().iter().for_each(assert_roundtrip);
}

#[test]
fn successful_results_come_back() {
    all_results().iter().for_each(assert_roundtrip);
}

#[test]
fn every_operation_can_say_every_error() {
    for opnum in op::FIRST..=op::LAST {
        for status in NfsStat4::ALL.iter().copied().filter(|status| *status != NfsStat4::Ok) {
            let result = NfsResop4::error(opnum, status);
            assert_eq!((result.opnum(), result.status()), (opnum, status));
            assert_roundtrip(&result);
        }
    }
}

#[test]
fn success_without_the_body_it_announces_becomes_a_server_fault() {
    assert_eq!(NfsResop4::error(op::LOOKUP, NfsStat4::Ok), NfsResop4::Lookup(NfsStat4::Ok));
    assert_eq!(NfsResop4::error(op::OPEN, NfsStat4::Ok).status(), NfsStat4::ServerFault);
    assert_eq!(NfsResop4::error(op::LOCK, NfsStat4::Ok).status(), NfsStat4::ServerFault);
}

#[test]
fn an_unknown_operation_is_answered_as_illegal() {
    for opnum in [0, 2, 76, op::ILLEGAL, u32::MAX] {
        assert_eq!(NfsResop4::error(opnum, NfsStat4::NotSupp), NfsResop4::Illegal(NfsStat4::OpIllegal));
        let bytes = Bytes::copy_from_slice(&opnum.to_be_bytes());
        assert_eq!(xdr::from_bytes::<NfsArgop4>(bytes), Ok(NfsArgop4::Illegal(opnum)));
    }
}

fn message(minorversion: u32, argarray: Vec<NfsArgop4>) -> Bytes {
    xdr::to_bytes(&Compound4Args { tag: Opaque::from_static(b"tag"), minorversion, argarray })
}

#[test]
fn operations_before_a_malformed_one_are_read() {
    let mut bytes = message(
        1,
        vec![NfsArgop4::PutRootFh, NfsArgop4::GetFh, NfsArgop4::OpenAttr(OpenAttr4Args { createdir: true })],
    )
    .to_vec();
    let last = bytes.len() - 1;
    bytes[last] = 7;
    let mut d = Decoder::new(bytes.into());
    let header = CompoundArgs::decode_header(&mut d).unwrap();
    assert_eq!((&header.tag[..], header.minorversion, header.op_count), (&b"tag"[..], 1, 3));
    assert_eq!(header.next_op(&mut d), Ok(NfsArgop4::PutRootFh));
    assert_eq!(header.next_op(&mut d), Ok(NfsArgop4::GetFh));
    let error = XdrError::InvalidBool(7);
    assert_eq!(header.next_op(&mut d), Err(MalformedOp { opnum: op::OPENATTR, error }));
}

#[test]
fn a_count_of_operations_that_are_not_there_is_met_when_they_are_missed() {
    let mut bytes = message(1, vec![NfsArgop4::PutRootFh]).to_vec();
    bytes[12..16].copy_from_slice(&[0xff; 4]);
    let mut d = Decoder::new(bytes.clone().into());
    let header = CompoundArgs::decode_header(&mut d).unwrap();
    assert_eq!(header.op_count, u32::MAX);
    assert!(header.next_op(&mut d).is_ok());
    assert_eq!(header.next_op(&mut d).unwrap_err().opnum, op::ILLEGAL);
    assert!(xdr::from_bytes::<Compound4Args>(bytes.into()).is_err());
}

#[test]
fn an_operation_of_4_2_is_illegal_and_unread_in_4_1() {
    let offload = NfsArgop4::OffloadCancel(OffloadCancel4Args { stateid: StateId4::CURRENT });
    for (minor, want) in [(1, NfsArgop4::Illegal(op::OFFLOAD_CANCEL)), (2, offload.clone())] {
        let mut d = Decoder::new(message(minor, vec![offload.clone()]));
        let header = CompoundArgs::decode_header(&mut d).unwrap();
        assert_eq!(header.next_op(&mut d), Ok(want));
    }
}

/// The reply has it, and waits for a peer that does not read.
#[test]
fn a_tag_keeps_no_memory_of_its_request() {
    let bytes = message(1, Vec::new());
    let mut d = Decoder::new(bytes.clone());
    let header = CompoundArgs::decode_header(&mut d).unwrap();
    drop(d);
    assert!(bytes.is_unique(), "{:?} is a copy", header.tag);
}

#[test]
fn a_tag_over_the_limit_is_refused() {
    let mut bytes = 1028u32.to_be_bytes().to_vec();
    bytes.resize(2048, b'x');
    assert!(CompoundArgs::decode_header(&mut Decoder::new(bytes.into())).is_err());
}

#[test]
fn written_and_read_data_are_shared_and_not_copied() {
    let payload = Bytes::from(vec![0x5a; 8192]);
    let args = Write4Args {
        stateid: StateId4::ANONYMOUS,
        offset: 0,
        stable: StableHow4::Unstable,
        data: Opaque(payload.clone()),
    };
    let record = message(1, vec![NfsArgop4::Write(args)]);
    let decoded: Compound4Args = xdr::from_bytes(record.clone()).unwrap();
    let [NfsArgop4::Write(write)] = &decoded.argarray[..] else { panic!("one WRITE") };
    assert!(record.as_ptr_range().contains(&write.data.as_ptr()), "a slice of the record");

    let mut e = Encoder::new();
    NfsResop4::Read(Res::Ok(Read4ResOk { eof: false, data: Opaque(payload.clone()) })).encode(&mut e);
    assert!(e.into_segments().iter().any(|segment| segment.as_ptr() == payload.as_ptr()));
}

/// Words of which many make sense: counts, discriminants, booleans, lengths.
fn words(len: usize) -> impl Strategy<Value = Bytes> {
    let word = prop_oneof![6 => 0u32..4, 2 => 4u32..20, 1 => any::<u32>()];
    proptest::collection::vec(word, 0..len)
        .prop_map(|words| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>().into())
}

/// A decoded value must encode, and decode again to the same value.
fn assert_stable<T: Xdr + PartialEq + std::fmt::Debug>(bytes: &Bytes) -> Result<(), TestCaseError> {
    if let Ok(value) = T::decode(&mut Decoder::new(bytes.clone())) {
        prop_assert_eq!(xdr::from_bytes::<T>(xdr::to_bytes(&value)), Ok(value));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_decoded_operation_encodes_and_decodes_to_the_same(opnum in 0u32..80, rest in words(60)) {
        let bytes = Bytes::from([&opnum.to_be_bytes()[..], &rest].concat());
        assert_stable::<NfsArgop4>(&bytes)?;
        assert_stable::<NfsResop4>(&bytes)?;
        assert_stable::<NfsCbArgop4>(&bytes)?;
        assert_stable::<NfsCbResop4>(&bytes)?;
    }

    #[test]
    fn a_decoded_flex_files_body_encodes_and_decodes_to_the_same(bytes in words(120)) {
        assert_stable::<FfLayout4>(&bytes)?;
        assert_stable::<FfDeviceAddr4>(&bytes)?;
        assert_stable::<FfLayoutReturn4>(&bytes)?;
        assert_stable::<FfLayoutUpdate4>(&bytes)?;
    }

    #[test]
    fn a_flipped_word_is_refused_or_means_something(pick: prop::sample::Index, at: prop::sample::Index, word: u32) {
        let samples = all_args();
        let mut bytes = xdr::to_bytes(&samples[pick.index(samples.len())]).to_vec();
        let at = at.index(bytes.len() / 4) * 4;
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        assert_stable::<NfsArgop4>(&bytes.into())?;
    }

    #[test]
    fn entries_know_their_length(name in proptest::collection::vec(any::<u8>(), 0..300), cookie: u64, size: Option<u64>) {
        let attrs = FileAttributes { size, ..FileAttributes::default() }.encode_all();
        let entry = DirEntry4 { cookie, name: Bytes::from(name).into(), attrs };
        let empty = ReadDir4ResOk { cookieverf: Verifier4::default(), entries: vec![], eof: true };
        prop_assert_eq!(xdr::to_bytes(&empty).len(), ReadDir4ResOk::EMPTY_LEN);
        let len = entry.encoded_len();
        let one = ReadDir4ResOk { entries: vec![entry], ..empty };
        prop_assert_eq!(xdr::to_bytes(&one).len(), ReadDir4ResOk::EMPTY_LEN + len);
    }
}
