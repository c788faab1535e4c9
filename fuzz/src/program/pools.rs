//! Layouts, devices, and what clients report of pools.

use nfs4::op;
use xdr::{Encoder, Xdr};

use super::{Decisions, LearntValues, mask};

const FLEX_FILES: u32 = 4;

pub fn layout(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues, number: u32) {
    let flag = u32::from(d.below(8) == 7);
    match number {
        op::LAYOUTGET => {
            flag.encode(e);
            FLEX_FILES.encode(e);
            u32::from(d.below(4)).encode(e);
            0u64.encode(e);
            (u64::MAX - u64::from(flag)).encode(e);
            d.number().encode(e);
            known.stateid(d).encode(e);
            4096u32.encode(e);
        }
        op::LAYOUTCOMMIT => {
            d.number().encode(e);
            d.number().encode(e);
            flag.encode(e);
            known.stateid(d).encode(e);
            1u32.encode(e);
            d.number().encode(e);
            0u32.encode(e);
            FLEX_FILES.encode(e);
            e.opaque_slice(&[]);
        }
        _ => {
            flag.encode(e);
            FLEX_FILES.encode(e);
            u32::from(d.below(4)).encode(e);
            let kind = 1 + u32::from(d.below(3));
            kind.encode(e);
            if kind == 1 {
                0u64.encode(e);
                u64::MAX.encode(e);
                known.stateid(d).encode(e);
                body(e, d, known);
            }
        }
    }
}

/// `ff_layoutreturn4`: nothing, as it comes, with an error, or with statistics.
fn body(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    match d.below(4) {
        0 => e.opaque_slice(&[]),
        1 => e.opaque_slice(d.bytes(48)),
        2 => e.opaque_with(|e| {
            0u32.encode(e);
            1u32.encode(e);
            head_of_statistics(e, d, known);
            update(e, d);
        }),
        _ => e.opaque_with(|e| {
            1u32.encode(e);
            errors(e, d, known);
            0u32.encode(e);
        }),
    }
}

fn device_id(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    let at = usize::from(d.byte());
    match known.devices.get(at % (known.devices.len() + 1)) {
        Some(id) => id.encode(e),
        None => e.put_raw(&[at as u8; 16]),
    }
}

pub fn device(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    device_id(e, d, known);
    FLEX_FILES.encode(e);
    d.word().encode(e);
    mask(e, d);
}

pub fn errors(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    d.number().encode(e);
    d.number().encode(e);
    known.stateid(d).encode(e);
    let count = u32::from(d.below(3));
    count.encode(e);
    for _ in 0..count {
        device_id(e, d, known);
        // NXIO, ACCESS, STALE, DELAY.
        [6u32, 13, 70, 10_008][usize::from(d.below(4))].encode(e);
        [op::READ, op::WRITE][usize::from(d.below(2))].encode(e);
    }
}

pub fn statistics(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    head_of_statistics(e, d, known);
    FLEX_FILES.encode(e);
    match d.below(2) {
        0 => e.opaque_slice(d.bytes(48)),
        _ => e.opaque_with(|e| update(e, d)),
    }
}

/// The beginning of LAYOUTSTATS and `ff_iostats4`.
fn head_of_statistics(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    d.number().encode(e);
    d.number().encode(e);
    known.stateid(d).encode(e);
    (0..4).for_each(|_| d.number().encode(e));
    device_id(e, d, known);
}

/// `ff_layoutupdate4`: counters and times near the edges.
fn update(e: &mut Encoder, d: &mut Decisions<'_>) {
    e.opaque_slice(b"tcp");
    e.opaque_slice(b"127.0.0.1.8.1");
    e.opaque_slice(b"ticket");
    for _ in 0..2 {
        (0..5).for_each(|_| d.number().encode(e));
        (0..2).for_each(|_| time(e, d));
    }
    time(e, d);
    0u32.encode(e);
}

fn time(e: &mut Encoder, d: &mut Decisions<'_>) {
    d.number().encode(e);
    d.word().encode(e);
}
