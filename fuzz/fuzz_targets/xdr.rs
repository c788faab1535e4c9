//! The decoder's readers in any order, and a derived type of every shape.

#![no_main]

use bytes::Bytes;
use forebay_fuzz::{bounded, survives};
use libfuzzer_sys::fuzz_target;
use xdr::{Decoder, Limits, Opaque, Xdr, XdrError};

#[derive(Debug, PartialEq, Xdr)]
#[repr(u32)]
enum Kind {
    File = 1,
    Directory = 2,
    Link = 5,
}

#[derive(Debug, PartialEq, Xdr)]
struct Node {
    kind: Kind,
    #[xdr(max = 16)]
    name: Opaque,
    #[xdr(max = 8)]
    text: String,
    verifier: [u8; 7],
    children: Vec<Node>,
    next: Option<Box<Node>>,
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(union)]
enum Message {
    #[xdr(0)]
    Numbers(i32, u64, i64, bool),
    #[xdr(1)]
    Node(Node),
    #[xdr(2)]
    Data { stable: (u32, bool), data: Opaque },
    #[xdr(3)]
    Words(#[xdr(max = 64)] Vec<u32>),
    #[xdr(4)]
    Voids(Vec<()>),
    #[xdr(default)]
    Other(u32),
}

fuzz_target!(|input: &[u8]| {
    let message = Bytes::copy_from_slice(input);
    survives::<Message>(&message);
    let Some((steps, rest)) = input.split_first() else { return };
    let (steps, message) = rest.split_at(usize::from(*steps).min(rest.len()));
    let message = Bytes::copy_from_slice(message);
    bounded(message.len(), || read(steps, message.clone()));
});

/// Reads one item for each step until one fails.
fn read(steps: &[u8], message: Bytes) {
    let len = message.len();
    let limits = Limits { depth_max: 8, opaque_bytes_max: 1 << 20, array_items_max: 1 << 16 };
    let mut d = Decoder::with_limits(message, limits);
    for step in steps {
        let before = d.position();
        let outcome = read_one(&mut d, *step);
        assert!(d.position() >= before && d.position() + d.remaining() == len);
        if outcome.is_err() {
            return;
        }
    }
    assert_eq!(d.finish().is_ok(), d.remaining() == 0);
}

fn read_one(d: &mut Decoder, step: u8) -> Result<(), XdrError> {
    let max = usize::from(step >> 4) * 8;
    match step & 0xf {
        0 => d.u32().map(drop),
        1 => d.i32().map(drop),
        2 => d.u64().map(drop),
        3 => d.i64().map(drop),
        4 => d.bool().map(drop),
        5 => d.opaque(max).map(|bytes| assert!(bytes.len() <= max)),
        6 => d.opaque(usize::MAX).map(drop),
        7 => d.opaque_fixed::<5>().map(drop),
        8 => d.string(max).map(|text| assert!(text.len() <= max)),
        9 => d.array(max, Decoder::u64).map(|items| assert!(items.len() <= max)),
        10 => d.array(usize::MAX, |d| d.opaque(max)).map(drop),
        11 => d.array(usize::MAX, |_| Ok(())).map(|items| assert!(items.is_empty())),
        12 => d.nested(|d| d.nested(Decoder::u32)).map(drop),
        13 => d.skip(max),
        14 => Option::<Vec<Opaque>>::decode(d).map(drop),
        _ => Vec::<Vec<Vec<u32>>>::decode(d).map(drop),
    }
}
