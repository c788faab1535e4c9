//! The encoding that the derive gives each shape of type, byte by byte.

// The other crates depend on this one under this name, and the derived code says it.
extern crate forebay_xdr as xdr;

use proptest::prelude::*;
use xdr::{Bytes, Decoder, Limits, Opaque, Xdr, XdrError, from_bytes, to_bytes};

#[derive(Debug, Clone, PartialEq, Xdr)]
struct Named {
    id: u64,
    #[xdr(max = NAME_MAX)]
    name: Opaque,
    #[xdr(max = 2)]
    words: Vec<u32>,
    verifier: [u8; 6],
}

const NAME_MAX: u32 = 8;

#[derive(Debug, Clone, PartialEq, Xdr)]
struct Handle(#[xdr(max = 4)] Opaque);

#[derive(Debug, Clone, Copy, PartialEq, Xdr)]
struct Void;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
#[repr(u32)]
enum Status {
    Ok = 0,
    Stale = 70,
    Next,
}

#[derive(Debug, Clone, PartialEq, Xdr)]
#[xdr(union)]
enum Outcome<T> {
    #[xdr(Status::Ok as u32)]
    Ok(T),
    #[xdr(Status::Stale)]
    Stale,
    #[xdr(1 + 1)]
    Pair(u32, #[xdr(max = 3)] String),
    #[xdr(3)]
    Fields {
        flag: bool,
        #[xdr(max = 1)]
        inner: Vec<Named>,
    },
    #[xdr(default)]
    Other(u32),
}

#[derive(Debug, Clone, PartialEq, Xdr)]
#[xdr(union)]
enum Granted {
    #[xdr(false)]
    No,
    #[xdr(true)]
    Yes(i64),
}

/// The linked list of RFC 4506 §4.19, as NFS uses it for directory entries.
#[derive(Debug, Clone, PartialEq, Xdr)]
struct Entry {
    cookie: u32,
    next: Option<Box<Entry>>,
}

#[derive(Debug, Clone, PartialEq, Xdr)]
struct Tree {
    children: Vec<Tree>,
}

fn bytes(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn named() -> Named {
    Named { id: 1 << 32, name: Opaque::from(b"abcde"), words: vec![7], verifier: *b"123456" }
}

#[test]
fn a_struct_is_its_fields_in_order() {
    let wire = b"\0\0\0\x01\0\0\0\0\0\0\0\x05abcde\0\0\0\0\0\0\x01\0\0\0\x07123456\0\0";
    assert_eq!(to_bytes(&named()), &wire[..]);
    assert_eq!(from_bytes(Bytes::from_static(wire)), Ok(named()));
}

#[test]
fn a_unit_struct_takes_no_bytes() {
    assert_eq!(to_bytes(&Void), Bytes::new());
    assert_eq!(from_bytes(Bytes::new()), Ok(Void));
}

#[test]
fn a_field_over_its_bound_is_refused() {
    let over = |length, limit| XdrError::LengthOverLimit { length, limit };
    let handle = Bytes::from_static(b"\0\0\0\x05abcde\0\0\0");
    assert_eq!(from_bytes::<Handle>(handle), Err(over(5, 4)));
    let text = bytes(&[2, 9, 4, 0x6162_6364]);
    assert_eq!(from_bytes::<Outcome<()>>(text), Err(over(4, 3)));
    let items = bytes(&[3, 1, 2, 0, 0]);
    assert_eq!(from_bytes::<Outcome<()>>(items), Err(over(2, 1)));
}

#[test]
fn an_enum_is_its_number() {
    assert_eq!(to_bytes(&Status::Next), bytes(&[71]));
    assert_eq!(from_bytes(bytes(&[70])), Ok(Status::Stale));
    assert_eq!(
        from_bytes::<Status>(bytes(&[1])),
        Err(XdrError::InvalidDiscriminant { type_name: "Status", value: 1 })
    );
}

#[test]
fn a_union_is_its_number_and_the_fields_of_that_arm() {
    let cases: Vec<(Outcome<u32>, Bytes)> = vec![
        (Outcome::Ok(9), bytes(&[0, 9])),
        (Outcome::Stale, bytes(&[70])),
        (Outcome::Pair(5, "ab".into()), bytes(&[2, 5, 2, 0x6162_0000])),
        (Outcome::Fields { flag: true, inner: vec![] }, bytes(&[3, 1, 0])),
        (Outcome::Other(4), bytes(&[4])),
    ];
    for (value, wire) in cases {
        assert_eq!(to_bytes(&value), wire, "{value:?}");
        assert_eq!(from_bytes(wire), Ok(value));
    }
}

#[test]
fn a_union_over_a_boolean_has_no_third_arm() {
    assert_eq!(from_bytes(bytes(&[1, 0, 2])), Ok(Granted::Yes(2)));
    assert_eq!(to_bytes(&Granted::No), bytes(&[0]));
    assert_eq!(
        from_bytes::<Granted>(bytes(&[2])),
        Err(XdrError::InvalidDiscriminant { type_name: "Granted", value: 2 })
    );
}

fn list(len: u32) -> Entry {
    let end = Entry { cookie: len, next: None };
    (0..len).rev().fold(end, |next, cookie| Entry { cookie, next: Some(Box::new(next)) })
}

#[test]
fn a_list_within_the_depth_limit_is_decoded() {
    let wire = to_bytes(&list(64));
    assert_eq!(wire.len(), 65 * 8);
    assert_eq!(from_bytes(wire), Ok(list(64)));
}

#[test]
fn recursion_through_a_box_stops_at_the_depth_limit() {
    let endless = bytes(&[1; 100_000]);
    assert_eq!(from_bytes::<Entry>(endless), Err(XdrError::DepthExceeded));
}

#[test]
fn recursion_through_a_vector_stops_at_the_depth_limit() {
    let endless = bytes(&[1; 100_000]);
    assert_eq!(from_bytes::<Tree>(endless.clone()), Err(XdrError::DepthExceeded));
    let limits = Limits { depth_max: 2, ..Limits::default() };
    let mut d = Decoder::with_limits(bytes(&[1, 1, 0]), limits);
    assert_eq!(Tree::decode(&mut d), Err(XdrError::DepthExceeded));
    let mut d = Decoder::with_limits(bytes(&[1, 0]), limits);
    assert_eq!(Tree::decode(&mut d), Ok(Tree { children: vec![Tree { children: vec![] }] }));
}

fn any_named() -> impl Strategy<Value = Named> {
    let name = proptest::collection::vec(any::<u8>(), 0..=8);
    let words = proptest::collection::vec(any::<u32>(), 0..=2);
    (any::<u64>(), name, words, any::<[u8; 6]>()).prop_map(|(id, name, words, verifier)| Named {
        id,
        name: name.into(),
        words,
        verifier,
    })
}

fn any_outcome() -> impl Strategy<Value = Outcome<Option<Granted>>> {
    prop_oneof![
        any::<Option<i64>>().prop_map(|value| Outcome::Ok(value.map(Granted::Yes))),
        Just(Outcome::Ok(Some(Granted::No))),
        Just(Outcome::Stale),
        (any::<u32>(), "[a-z]{0,3}").prop_map(|(number, text)| Outcome::Pair(number, text)),
        (any::<bool>(), proptest::collection::vec(any_named(), 0..=1))
            .prop_map(|(flag, inner)| Outcome::Fields { flag, inner }),
        (4u32..70).prop_map(Outcome::Other),
    ]
}

proptest! {
    #[test]
    fn an_encoded_value_decodes_to_itself(value in any_outcome()) {
        prop_assert_eq!(from_bytes(to_bytes(&value)), Ok(value));
    }

    #[test]
    fn a_cut_message_never_decodes(value in any_named(), cut in any::<prop::sample::Index>()) {
        let wire = to_bytes(&value);
        let cut = wire.slice(..cut.index(wire.len()));
        prop_assert!(from_bytes::<Named>(cut).is_err());
    }

    #[test]
    fn any_bytes_decode_or_are_refused(wire in proptest::collection::vec(any::<u8>(), 0..200)) {
        let wire = Bytes::from(wire);
        if let Ok(value) = from_bytes::<Outcome<Tree>>(wire.clone()) {
            prop_assert_eq!(from_bytes(to_bytes(&value)), Ok(value));
        }
        let _ = from_bytes::<Named>(wire);
    }
}
