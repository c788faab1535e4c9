//! COMPOUNDs from arbitrary bytes: each operation is well formed in the main, with names, handles and stateids of which
//! there are few, so that operations meet. A byte of the input is one decision.

mod pools;
mod sessions;

use nfs4::{
    ClientId4, Component4, Compound4Res, Copy4Res, DeviceId4, FfLayout4, FileAttributes, LayoutGet4Res,
    Lock4Res, NfsFh4, NfsResop4, OpenDelegation4, Res, SessionId4, StateId4, op,
};
use xdr::{Encoder, Opaque, Xdr};

/// Half of all operations are among these.
const FREQUENT: [u32; 32] = [
    op::OPEN,
    op::OPEN,
    op::GETFH,
    op::CLOSE,
    op::READ,
    op::WRITE,
    op::LOCK,
    op::LOCKU,
    op::LOCKT,
    op::LAYOUTGET,
    op::LAYOUTCOMMIT,
    op::LAYOUTRETURN,
    op::DELEGRETURN,
    op::OPEN_DOWNGRADE,
    op::SETATTR,
    op::GETATTR,
    op::REMOVE,
    op::RENAME,
    op::LINK,
    op::LOOKUP,
    op::PUTFH,
    op::PUTROOTFH,
    op::SAVEFH,
    op::COPY,
    op::CLONE,
    op::COMMIT,
    op::READ_PLUS,
    op::SEEK,
    op::ALLOCATE,
    op::CREATE,
    op::SETXATTR,
    op::FREE_STATEID,
];

const NAMES: [&str; 5] = ["a", "b", "c", "..", ""];
const KEPT: usize = 6;

/// Decisions, until they are used up; then the first of all choices is taken.
pub struct Decisions<'a>(&'a [u8]);

impl<'a> Decisions<'a> {
    pub fn new(input: &'a [u8]) -> Decisions<'a> {
        Decisions(input)
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    /// Offsets and lengths near the edges, where the errors are.
    fn number(&mut self) -> u64 {
        let byte = self.byte();
        let near = u64::from(byte >> 4);
        match byte & 15 {
            0..=6 => near * 16,
            7 => 4096 + near,
            8 => 65_536 - near,
            9 => u64::from(u32::MAX) - near,
            10 => i64::MAX as u64 - near,
            11 => i64::MAX as u64 + 1 + near,
            12 => u64::MAX - near,
            _ => near,
        }
    }

    /// As `number`, where nothing is more than to the end.
    fn length(&mut self) -> u64 {
        match self.number() {
            0 => u64::MAX,
            length => length,
        }
    }

    fn word(&mut self) -> u32 {
        self.number() as u32
    }

    /// Permissions of the owner, the group and others; never the sticky bit.
    fn mode(&mut self) -> u32 {
        let byte = u32::from(self.byte());
        ((byte * 16) & 0o770) | (byte & 7)
    }

    fn bytes(&mut self, max: u8) -> &'a [u8] {
        let len = usize::from(self.below(max)).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }
}

/// Values that a client has learnt from answers.
#[derive(Default)]
pub struct LearntValues {
    handles: Vec<NfsFh4>,
    stateids: Vec<StateId4>,
    sessions: Vec<SessionId4>,
    /// With the number that CREATE_SESSION has to come with.
    clients: Vec<(ClientId4, u32)>,
    devices: Vec<DeviceId4>,
}

impl LearntValues {
    /// Takes in what a reply tells; the oldest is forgotten.
    pub fn learn(&mut self, reply: &Compound4Res) {
        for result in &reply.resarray {
            match result {
                NfsResop4::GetFh(Res::Ok(found)) => keep(&mut self.handles, found.object.clone()),
                NfsResop4::Open(Res::Ok(open)) => {
                    keep(&mut self.stateids, open.stateid);
                    match &open.delegation {
                        OpenDelegation4::Read(granted) | OpenDelegation4::ReadAttrs(granted) => {
                            keep(&mut self.stateids, granted.stateid);
                        }
                        OpenDelegation4::Write(granted) | OpenDelegation4::WriteAttrs(granted) => {
                            keep(&mut self.stateids, granted.stateid);
                        }
                        OpenDelegation4::None | OpenDelegation4::NoneExt(_) => {}
                    }
                }
                NfsResop4::Lock(Lock4Res::Ok(locked)) => keep(&mut self.stateids, locked.lock_stateid),
                NfsResop4::LayoutGet(LayoutGet4Res::Ok(granted)) => {
                    keep(&mut self.stateids, granted.stateid);
                    for layout in &granted.layout {
                        let body: FfLayout4 =
                            nfs4::decode_body(&layout.content.body).expect("layouts are of flex files");
                        let servers = body.mirrors.iter().flat_map(|mirror| &mirror.data_servers);
                        servers.for_each(|server| keep(&mut self.devices, server.deviceid));
                    }
                }
                NfsResop4::Copy(Copy4Res::Ok(copied)) => {
                    copied.response.callback_id.into_iter().for_each(|id| keep(&mut self.stateids, id));
                }
                NfsResop4::ExchangeId(Res::Ok(found)) => {
                    keep(&mut self.clients, (found.clientid, found.sequenceid));
                }
                NfsResop4::CreateSession(Res::Ok(created)) => keep(&mut self.sessions, created.sessionid),
                _ => {}
            }
        }
    }

    fn handle(&self, decisions: &mut Decisions<'_>) -> NfsFh4 {
        let at = usize::from(decisions.byte()) % (self.handles.len() + 1);
        // The newest first, as for stateids.
        let known = self.handles.iter().rev().nth(at).cloned();
        known.unwrap_or_else(|| NfsFh4::from(decisions.bytes(40).to_vec()))
    }

    fn stateid(&self, decisions: &mut Decisions<'_>) -> StateId4 {
        let byte = decisions.byte();
        match byte {
            0..=31 => StateId4::CURRENT,
            32..=63 => StateId4::ANONYMOUS,
            64..=71 => StateId4::BYPASS,
            _ => {
                let at = usize::from(byte & 7) % self.stateids.len().max(1);
                let mut stateid = self.stateids.iter().rev().nth(at).copied().unwrap_or(StateId4::ANONYMOUS);
                match byte >> 3 & 7 {
                    0 => stateid.seqid = stateid.seqid.wrapping_add(1),
                    1 => stateid.seqid = stateid.seqid.wrapping_sub(1),
                    2 => stateid.other[usize::from(byte & 7)] ^= 1,
                    3 => stateid.seqid = 0,
                    _ => {}
                }
                stateid
            }
        }
    }
}

fn keep<T>(kept: &mut Vec<T>, new: T) {
    if kept.len() >= KEPT {
        kept.remove(0);
    }
    kept.push(new);
}

/// SEQUENCE, mostly as it must be.
pub fn sequence(e: &mut Encoder, decisions: &mut Decisions<'_>, session: SessionId4, next: &mut [u32; 4]) {
    let byte = decisions.byte();
    let slot = u32::from(byte & 1);
    let at = &mut next[slot as usize];
    let number = match byte >> 1 & 31 {
        // The one before again, and numbers that are out of order.
        29 => *at,
        30 => at.wrapping_add(2),
        31 => at.wrapping_sub(1),
        _ => {
            *at = at.wrapping_add(1);
            *at
        }
    };
    op::SEQUENCE.encode(e);
    session.encode(e);
    for word in [number, if byte == 255 { 9 } else { slot }, 3, u32::from(byte >> 6 & 1)] {
        word.encode(e);
    }
}

/// Where what follows is done: how many operations it takes to get there.
pub fn place(e: &mut Encoder, decisions: &mut Decisions<'_>, known: &LearntValues) -> u32 {
    match decisions.byte() {
        0..=99 => op::PUTROOTFH.encode(e),
        100..=199 => {
            op::PUTFH.encode(e);
            known.handle(decisions).encode(e);
        }
        // From one file to another.
        200..=239 => {
            op::PUTFH.encode(e);
            known.handle(decisions).encode(e);
            op::SAVEFH.encode(e);
            op::PUTFH.encode(e);
            known.handle(decisions).encode(e);
            return 3;
        }
        _ => return 0,
    }
    1
}

/// One operation.
pub fn operation(e: &mut Encoder, decisions: &mut Decisions<'_>, known: &LearntValues) {
    let d = decisions;
    let byte = d.byte();
    let number = if byte < 128 { u32::from(byte) % 78 } else { FREQUENT[usize::from(byte) % FREQUENT.len()] };
    number.encode(e);
    match number {
        op::PUTFH => known.handle(d).encode(e),
        op::LOOKUP | op::REMOVE | op::SECINFO | op::LINK | op::GETXATTR | op::REMOVEXATTR => name(e, d),
        op::RENAME => (0..2).for_each(|_| name(e, d)),
        op::ACCESS => d.word().encode(e),
        op::GETATTR => mask(e, d),
        op::VERIFY | op::NVERIFY => attributes(e, d),
        op::SETATTR => {
            known.stateid(d).encode(e);
            attributes(e, d);
        }
        op::READDIR => {
            u64::from(d.below(8)).encode(e);
            0u64.encode(e);
            d.word().encode(e);
            d.word().encode(e);
            mask(e, d);
        }
        op::CREATE => create(e, d),
        op::SECINFO_NO_NAME => u32::from(d.below(3)).encode(e),
        op::OPEN => open(e, d, known),
        op::OPEN_DOWNGRADE => {
            known.stateid(d).encode(e);
            0u32.encode(e);
            u32::from(d.below(5)).encode(e);
            u32::from(d.below(5)).encode(e);
        }
        op::CLOSE => {
            0u32.encode(e);
            known.stateid(d).encode(e);
        }
        op::DELEGRETURN | op::FREE_STATEID => known.stateid(d).encode(e),
        op::TEST_STATEID => {
            let count = u32::from(d.below(4));
            count.encode(e);
            (0..count).for_each(|_| known.stateid(d).encode(e));
        }
        op::SETXATTR => {
            u32::from(d.below(4)).encode(e);
            name(e, d);
            e.opaque_slice(d.bytes(32));
        }
        op::LISTXATTRS => {
            u64::from(d.below(4)).encode(e);
            d.word().encode(e);
        }
        // Without arguments.
        op::GETFH
        | op::PUTROOTFH
        | op::PUTPUBFH
        | op::SAVEFH
        | op::RESTOREFH
        | op::LOOKUPP
        | op::READLINK => {}
        _ => data_operation(e, d, known, number),
    }
}

fn data_operation(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues, number: u32) {
    match number {
        op::READ | op::READ_PLUS => io(e, d, known, |e, d| d.word().encode(e)),
        op::WRITE => io(e, d, known, |e, d| {
            u32::from(d.below(4)).encode(e);
            e.opaque_slice(d.bytes(64));
        }),
        op::SEEK => io(e, d, known, |e, d| u32::from(d.below(3)).encode(e)),
        op::ALLOCATE | op::DEALLOCATE => io(e, d, known, |e, d| d.number().encode(e)),
        op::IO_ADVISE => io(e, d, known, |e, d| {
            d.number().encode(e);
            mask(e, d);
        }),
        op::COMMIT => {
            d.number().encode(e);
            d.word().encode(e);
        }
        op::COPY | op::CLONE => copy(e, d, known, number == op::COPY),
        op::LOCK | op::LOCKT | op::LOCKU => lock(e, d, known, number),
        op::LAYOUTGET | op::LAYOUTCOMMIT | op::LAYOUTRETURN => pools::layout(e, d, known, number),
        op::GETDEVICEINFO => pools::device(e, d, known),
        op::LAYOUTERROR => pools::errors(e, d, known),
        op::LAYOUTSTATS => pools::statistics(e, d, known),
        op::OFFLOAD_CANCEL | op::OFFLOAD_STATUS => known.stateid(d).encode(e),
        _ => session_operation(e, d, known, number),
    }
}

fn session_operation(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues, number: u32) {
    match number {
        op::EXCHANGE_ID => sessions::exchange(e, d),
        op::CREATE_SESSION => sessions::create(e, d, known),
        op::DESTROY_SESSION => sessions::session(e, d, known),
        op::DESTROY_CLIENTID => sessions::client(d, known).0.encode(e),
        op::BIND_CONN_TO_SESSION => {
            sessions::session(e, d, known);
            [3u32, 7, 1, 2][usize::from(d.below(4))].encode(e);
            0u32.encode(e);
        }
        op::BACKCHANNEL_CTL => {
            0x4000_0000u32.encode(e);
            sessions::security(e, d);
        }
        op::RECLAIM_COMPLETE => u32::from(d.below(2)).encode(e),
        // As it comes.
        _ => e.put_raw(d.bytes(64)),
    }
}

fn io(
    e: &mut Encoder,
    d: &mut Decisions<'_>,
    known: &LearntValues,
    more: impl FnOnce(&mut Encoder, &mut Decisions<'_>),
) {
    known.stateid(d).encode(e);
    d.number().encode(e);
    more(e, d);
}

fn name(e: &mut Encoder, d: &mut Decisions<'_>) {
    let at = usize::from(d.byte());
    match NAMES.get(at % (NAMES.len() * 2)) {
        Some(name) => Component4::from(*name).encode(e),
        None if at > 250 => e.opaque_slice(d.bytes(64)),
        None => Component4::from(NAMES[at % 3]).encode(e),
    }
}

fn mask(e: &mut Encoder, d: &mut Decisions<'_>) {
    let words = d.below(4);
    u32::from(words).encode(e);
    for _ in 0..words {
        u32::from_be_bytes([d.byte(), d.byte(), d.byte(), d.byte()]).encode(e);
    }
}

fn attributes(e: &mut Encoder, d: &mut Decisions<'_>) {
    let byte = d.byte();
    if byte == 255 {
        mask(e, d);
        return e.opaque_slice(d.bytes(40));
    }
    let given = FileAttributes {
        mode: (byte & 1 != 0).then(|| d.mode()),
        size: (byte & 2 != 0).then(|| d.number()),
        owner: (byte & 4 != 0).then(|| nfs4::attr::Principal4::numeric(u32::from(d.below(3)))),
        owner_group: (byte & 8 != 0).then(|| nfs4::attr::Principal4(Opaque::copy_from_slice(d.bytes(4)))),
        ..FileAttributes::default()
    };
    given.encode_all().encode(e);
}

fn create(e: &mut Encoder, d: &mut Decisions<'_>) {
    let kind = u32::from(d.below(9));
    kind.encode(e);
    match kind {
        3 | 4 => 7u64.encode(e),
        5 => e.opaque_slice(d.bytes(16)),
        _ => {}
    }
    name(e, d);
    attributes(e, d);
}

fn owner(e: &mut Encoder, d: &mut Decisions<'_>) {
    0u64.encode(e);
    e.opaque_slice(&[b'o', d.below(3)]);
}

fn open(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues) {
    0u32.encode(e);
    let share = d.byte();
    // Access with a wish for a delegation or against it, and denials.
    let access = if share & 3 == 0 { u32::from(share == 0) } else { u32::from(share & 3) };
    (access | u32::from(share >> 2 & 7) << 8).encode(e);
    u32::from(if share >> 6 == 3 { d.below(4) } else { 0 }).encode(e);
    owner(e, d);
    let how = u32::from(d.below(2));
    how.encode(e);
    if how == 1 {
        let mode = u32::from(d.below(5));
        mode.encode(e);
        match mode {
            0 | 1 => attributes(e, d),
            2 => u64::from(d.below(2)).encode(e),
            _ => {
                u64::from(d.below(2)).encode(e);
                attributes(e, d);
            }
        }
    }
    let claim = [0, 0, 0, 4, 4, 1, 2, 3, 5, 6, 7][usize::from(d.below(11))];
    u32::encode(&claim, e);
    match claim {
        0 | 3 => name(e, d),
        1 => u32::from(d.below(4)).encode(e),
        2 => {
            known.stateid(d).encode(e);
            name(e, d);
        }
        5 => known.stateid(d).encode(e),
        _ => {}
    }
}

fn copy(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues, is_copy: bool) {
    (0..2).for_each(|_| known.stateid(d).encode(e));
    (0..3).for_each(|_| d.number().encode(e));
    if is_copy {
        (0..2).for_each(|_| u32::from(d.below(2)).encode(e));
        0u32.encode(e);
    }
}

fn lock(e: &mut Encoder, d: &mut Decisions<'_>, known: &LearntValues, number: u32) {
    (1 + u32::from(d.below(4))).encode(e);
    if number == op::LOCKU {
        0u32.encode(e);
        known.stateid(d).encode(e);
    }
    if number == op::LOCK {
        u32::from(d.below(8) == 7).encode(e);
    }
    d.number().encode(e);
    d.length().encode(e);
    match number {
        op::LOCKT => owner(e, d),
        op::LOCK if d.below(2) == 0 => {
            1u32.encode(e);
            0u32.encode(e);
            known.stateid(d).encode(e);
            0u32.encode(e);
            owner(e, d);
        }
        op::LOCK => {
            0u32.encode(e);
            known.stateid(d).encode(e);
            0u32.encode(e);
        }
        _ => {}
    }
}
