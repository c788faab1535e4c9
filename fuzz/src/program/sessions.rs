//! Clients that come, come back, make sessions and end them.

use nfs4::{ClientId4, ClientOwner4, Verifier4};
use xdr::{Encoder, Opaque, Xdr};

use super::{Decisions, LearntValues};

/// The owners that the target begins with, and another.
const OWNERS: [&str; 3] = ["one", "two", "three"];

pub fn exchange(e: &mut Encoder, d: &mut Decisions<'_>) {
    // The same verifier as before, or another life of the client.
    let verifier = Verifier4([1 + d.below(2); 8]);
    let ownerid = Opaque::from(OWNERS[usize::from(d.below(3))]);
    ClientOwner4 { verifier, ownerid }.encode(e);
    // Plain, an update, or with bits that mean nothing.
    [0x2_0000u32, 0x4000_0000, 0, 0x8000_0000][usize::from(d.below(4))].encode(e);
    let protection = d.below(8);
    u32::from(protection == 7).encode(e);
    if protection == 7 {
        0u32.encode(e);
        0u32.encode(e);
    }
    0u32.encode(e);
}

pub fn create(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    let (id, sequence) = client(d, known);
    id.encode(e);
    (sequence.wrapping_add(u32::from(d.below(4))).wrapping_sub(1)).encode(e);
    u32::from(d.below(8)).encode(e);
    for _ in 0..2 {
        let small = d.below(8);
        for word in [0, 65_536, 16_384, 2_048, 16, 4] {
            // One that is small, or too large.
            (if small == 7 { d.word() } else { word }).encode(e);
        }
        0u32.encode(e);
    }
    0x4000_0000u32.encode(e);
    security(e, d);
}

pub fn security(e: &mut Encoder, d: &mut Decisions<'_>) {
    match d.below(3) {
        // AUTH_NONE alone, nothing, AUTH_SYS without groups.
        0 => [1u32, 0].iter().for_each(|word| word.encode(e)),
        1 => 0u32.encode(e),
        _ => [1u32, 1, 7, 0, 0, 0, 0].iter().for_each(|word| word.encode(e)),
    }
}

pub fn session(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    let at = usize::from(d.byte());
    match known.sessions.get(at % (known.sessions.len() + 1)) {
        Some(id) => id.encode(e),
        None => e.put_raw(&[at as u8; 16]),
    }
}

pub fn client(d: &mut Decisions<'_>, known: &LearntValues) -> (ClientId4, u32) {
    let at = usize::from(d.byte());
    let found = known.clients.get(at % (known.clients.len() + 1));
    found.copied().unwrap_or((ClientId4(at as u64), 1))
}
