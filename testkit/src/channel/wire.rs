//! The messages of the channel, in XDR. Both ends are of one program, so a message that is not understood is a fault of
//! the test kit.

use std::collections::BTreeSet;

use api::{
    Birth, Description, PoolError, PoolStatus, Presence, ReplicaFacts, ReplicaRef, ReplicaState, TicketMode,
};
use bytes::Bytes;
use parking_lot::Mutex;
use types::{ByteRange, Device, Epoch, FileId, FileKind, Name, PoolId, SymlinkTarget, Timestamp};
use xdr::{Opaque, Xdr};

pub(super) fn written(message: &impl Xdr) -> Bytes {
    xdr::to_bytes(message)
}

pub(super) fn read<T: Xdr>(message: Bytes) -> T {
    xdr::from_bytes(message).expect("the other end has written it")
}

/// The pool's side says it first.
#[derive(Xdr)]
pub(super) struct Greeting {
    pub pool: u32,
    pub clone_granularity: Option<u32>,
    pub status: Status,
}

#[derive(Xdr)]
pub(super) struct Request {
    pub number: u64,
    /// Replicas that are not open any longer.
    pub closed: Vec<u64>,
    pub call: Call,
}

#[derive(Xdr)]
pub(super) struct Answer {
    /// Of the request; 0: of none.
    pub number: u64,
    pub status: Status,
    /// Its type follows from the request.
    pub body: Opaque,
}

const BATCH_LEN_MAX: usize = api::BATCH_LEN_MAX;

#[derive(Xdr)]
#[xdr(union)]
pub(super) enum Call {
    #[xdr(1)]
    Open(Ticket),
    #[xdr(2)]
    Make {
        #[xdr(max = BATCH_LEN_MAX)]
        files: Vec<(u64, u32)>,
        within_ms: u64,
    },
    #[xdr(3)]
    Truncate {
        #[xdr(max = BATCH_LEN_MAX)]
        files: Vec<(u64, u64)>,
        within_ms: u64,
    },
    #[xdr(4)]
    Remove {
        #[xdr(max = BATCH_LEN_MAX)]
        files: Vec<u64>,
        within_ms: u64,
    },
    #[xdr(5)]
    SyncRemovals {
        #[xdr(max = BATCH_LEN_MAX)]
        files: Vec<u64>,
        within_ms: u64,
    },
    #[xdr(6)]
    Fence {
        #[xdr(max = BATCH_LEN_MAX)]
        files: Vec<(u64, u32)>,
        within_ms: u64,
    },
    #[xdr(7)]
    Facts {
        #[xdr(max = BATCH_LEN_MAX)]
        files: Vec<u64>,
        within_ms: u64,
    },
    #[xdr(8)]
    Replicas { after: u64, limit: u64 },
    #[xdr(9)]
    Describe { after: u64, through: u64, files: Vec<Described> },
    #[xdr(10)]
    Io { replica: u64, op: Op },
}

/// On an open replica.
#[derive(Xdr)]
#[xdr(union)]
pub(super) enum Op {
    #[xdr(1)]
    Read { offset: u64, length: u32 },
    #[xdr(2)]
    Write { offset: u64, data: Opaque, stability: Stability },
    #[xdr(3)]
    Sync,
    #[xdr(4)]
    Allocate(Range),
    #[xdr(5)]
    Deallocate(Range),
    #[xdr(6)]
    Extend(u64),
    #[xdr(7)]
    Seek { offset: u64, is_data: bool },
    #[xdr(8)]
    Copy { source: Source, stretch: Stretch },
    #[xdr(9)]
    Share { source: Source, stretch: Stretch },
    #[xdr(10)]
    Advise { range: Range, is_needed: bool },
}

#[derive(Xdr)]
pub(super) struct Opened {
    pub replica: u64,
    pub verifier: [u8; 8],
    pub has_ranges: bool,
}

#[derive(Xdr)]
#[xdr(union)]
pub(super) enum Reply<T> {
    #[xdr(0)]
    Ok(T),
    #[xdr(1)]
    No(Error),
}

impl<T> Reply<T> {
    pub fn of(answer: Result<T, PoolError>) -> Reply<T> {
        answer.map_or_else(|error| Reply::No(Error::of(&error)), Reply::Ok)
    }

    pub fn into_result(self) -> Result<T, PoolError> {
        match self {
            Reply::Ok(value) => Ok(value),
            Reply::No(error) => Err(error.into_error()),
        }
    }
}

#[derive(Xdr)]
#[xdr(union)]
pub(super) enum Error {
    #[xdr(1)]
    NoReplica(u32),
    #[xdr(2)]
    Fenced,
    #[xdr(3)]
    ReadOnlyTicket,
    #[xdr(4)]
    NoSpace(u32),
    #[xdr(5)]
    TooLarge,
    #[xdr(6)]
    Unsupported(u32),
    #[xdr(7)]
    Offline(u32),
    #[xdr(8)]
    Unknown(u32),
    #[xdr(9)]
    Busy(u32),
    #[xdr(10)]
    Io { pool: u32, operation: String, reason: String },
}

impl Error {
    pub fn of(error: &PoolError) -> Error {
        match error {
            PoolError::NoReplica(pool) => Error::NoReplica(pool.0),
            PoolError::Fenced => Error::Fenced,
            PoolError::ReadOnlyTicket => Error::ReadOnlyTicket,
            PoolError::NoSpace(pool) => Error::NoSpace(pool.0),
            PoolError::TooLarge => Error::TooLarge,
            PoolError::Unsupported(pool) => Error::Unsupported(pool.0),
            PoolError::Offline(pool) => Error::Offline(pool.0),
            PoolError::Unknown(pool) => Error::Unknown(pool.0),
            PoolError::Busy(pool) => Error::Busy(pool.0),
            PoolError::Io { pool, operation, reason } => {
                Error::Io { pool: pool.0, operation: (*operation).to_owned(), reason: reason.clone() }
            }
        }
    }

    pub fn into_error(self) -> PoolError {
        match self {
            Error::NoReplica(pool) => PoolError::NoReplica(PoolId(pool)),
            Error::Fenced => PoolError::Fenced,
            Error::ReadOnlyTicket => PoolError::ReadOnlyTicket,
            Error::NoSpace(pool) => PoolError::NoSpace(PoolId(pool)),
            Error::TooLarge => PoolError::TooLarge,
            Error::Unsupported(pool) => PoolError::Unsupported(PoolId(pool)),
            Error::Offline(pool) => PoolError::Offline(PoolId(pool)),
            Error::Unknown(pool) => PoolError::Unknown(PoolId(pool)),
            Error::Busy(pool) => PoolError::Busy(PoolId(pool)),
            Error::Io { pool, operation, reason } => {
                PoolError::Io { pool: PoolId(pool), operation: known(operation), reason }
            }
        }
    }
}

/// The operation's name for as long as the process lives: there are as many as the pool's code has.
fn known(operation: String) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = KNOWN.lock();
    if let Some(operation) = all.get(&*operation) {
        return operation;
    }
    let operation: &'static str = operation.leak();
    all.insert(operation);
    operation
}

#[derive(Xdr)]
pub(super) struct Ticket {
    file: u64,
    birth: u32,
    pool: u32,
    is_to_write: bool,
    epoch: u32,
    presence: WirePresence,
    io: u32,
}

#[derive(Clone, Copy, Xdr)]
#[repr(u32)]
enum WirePresence {
    Unmade = 0,
    Made = 1,
    Written = 2,
}

impl Ticket {
    pub fn of(ticket: &api::Ticket) -> Ticket {
        Ticket {
            file: ticket.file.0,
            birth: ticket.birth.0,
            pool: ticket.pool.0,
            is_to_write: match ticket.mode {
                TicketMode::Read => false,
                TicketMode::ReadWrite => true,
            },
            epoch: ticket.epoch.0,
            presence: match ticket.presence {
                Presence::Unmade => WirePresence::Unmade,
                Presence::Made => WirePresence::Made,
                Presence::Written => WirePresence::Written,
            },
            io: ticket.io.number().into(),
        }
    }

    pub fn into_ticket(self) -> api::Ticket {
        api::Ticket {
            file: FileId(self.file),
            birth: Birth(self.birth),
            pool: PoolId(self.pool),
            mode: if self.is_to_write { TicketMode::ReadWrite } else { TicketMode::Read },
            epoch: Epoch(self.epoch),
            presence: match self.presence {
                WirePresence::Unmade => Presence::Unmade,
                WirePresence::Made => Presence::Made,
                WirePresence::Written => Presence::Written,
            },
            // Two bits fit.
            io: types::IoMode::from_number((self.io & 3) as u8),
        }
    }
}

#[derive(Xdr)]
#[xdr(union)]
pub(super) enum Source {
    #[xdr(1)]
    Local(u32, u64),
    #[xdr(2)]
    Ticket(Ticket),
}

impl Source {
    pub fn of(source: api::Source) -> Source {
        match source {
            api::Source::Local(pool, file) => Source::Local(pool.0, file.0),
            api::Source::Ticket(ticket) => Source::Ticket(Ticket::of(&ticket)),
        }
    }

    pub fn into_source(self) -> api::Source {
        match self {
            Source::Local(pool, file) => api::Source::Local(PoolId(pool), FileId(file)),
            Source::Ticket(ticket) => api::Source::Ticket(ticket.into_ticket()),
        }
    }
}

#[derive(Xdr)]
pub(super) struct Stretch {
    from: u64,
    to: u64,
    length: u64,
}

impl Stretch {
    pub fn of(stretch: api::Stretch) -> Stretch {
        let api::Stretch { from, to, length } = stretch;
        Stretch { from, to, length }
    }

    pub fn into_stretch(self) -> api::Stretch {
        let Stretch { from, to, length } = self;
        api::Stretch { from, to, length }
    }
}

#[derive(Xdr)]
pub(super) struct Range {
    offset: u64,
    end: u64,
}

impl Range {
    pub fn of(range: ByteRange) -> Range {
        Range { offset: range.offset(), end: range.end() }
    }

    pub fn into_range(self) -> ByteRange {
        ByteRange::from_bounds(self.offset, self.end).expect("the other end had such a range")
    }
}

#[derive(Clone, Copy, Xdr)]
#[repr(u32)]
pub(super) enum Stability {
    Unstable = 0,
    DataSync = 1,
    FileSync = 2,
}

impl Stability {
    pub fn of(stability: api::Stability) -> Stability {
        match stability {
            api::Stability::Unstable => Stability::Unstable,
            api::Stability::DataSync => Stability::DataSync,
            api::Stability::FileSync => Stability::FileSync,
        }
    }

    pub fn into_stability(self) -> api::Stability {
        match self {
            Stability::Unstable => api::Stability::Unstable,
            Stability::DataSync => api::Stability::DataSync,
            Stability::FileSync => api::Stability::FileSync,
        }
    }
}

/// Seconds and nanoseconds.
type Time = (i64, u32);

fn time(time: Timestamp) -> Time {
    (time.seconds, time.nanoseconds())
}

fn timestamp((seconds, nanoseconds): Time) -> Timestamp {
    Timestamp::new(seconds, nanoseconds).expect("the other end had such a time")
}

#[derive(Xdr)]
pub(super) struct Facts {
    file: u64,
    birth: u32,
    size: u64,
    space_used: u64,
    modified: Option<Time>,
}

impl Facts {
    pub fn of(facts: ReplicaFacts) -> Facts {
        Facts {
            file: facts.file.0,
            birth: facts.birth.0,
            size: facts.size,
            space_used: facts.space_used,
            modified: facts.modified.map(time),
        }
    }

    pub fn into_facts(self) -> ReplicaFacts {
        ReplicaFacts {
            file: FileId(self.file),
            birth: Birth(self.birth),
            size: self.size,
            space_used: self.space_used,
            modified: self.modified.map(timestamp),
        }
    }
}

#[derive(Xdr)]
pub(super) struct Status {
    id: u32,
    offline: Option<String>,
    read_only: Option<String>,
    total_bytes: u64,
    free_bytes: u64,
    total_files: u64,
    free_files: u64,
    replicas: u64,
    read_bytes: u64,
    written_bytes: u64,
    reads: u64,
    writes: u64,
    syncs: u64,
    contended: Vec<u64>,
}

impl Status {
    pub fn of(status: &PoolStatus) -> Status {
        Status {
            id: status.id.0,
            offline: status.offline.clone(),
            read_only: status.read_only.clone(),
            total_bytes: status.total_bytes,
            free_bytes: status.free_bytes,
            total_files: status.total_files,
            free_files: status.free_files,
            replicas: status.replicas,
            read_bytes: status.read_bytes,
            written_bytes: status.written_bytes,
            reads: status.reads,
            writes: status.writes,
            syncs: status.syncs,
            contended: status.contended.iter().map(|file| file.0).collect(),
        }
    }

    pub fn into_status(self) -> PoolStatus {
        PoolStatus {
            id: PoolId(self.id),
            offline: self.offline,
            read_only: self.read_only,
            total_bytes: self.total_bytes,
            free_bytes: self.free_bytes,
            total_files: self.total_files,
            free_files: self.free_files,
            replicas: self.replicas,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            reads: self.reads,
            writes: self.writes,
            syncs: self.syncs,
            contended: self.contended.into_iter().map(FileId).collect(),
        }
    }
}

#[derive(Xdr)]
pub(super) struct Described {
    file: u64,
    kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: Time,
    change: u64,
    epoch: u32,
    names: Vec<(u64, Opaque)>,
    target: Option<Opaque>,
    /// Pool, state by its place in `ReplicaState::ALL`, and since when.
    replicas: Vec<(u32, (u32, Time))>,
}

#[derive(Xdr)]
#[xdr(union)]
enum Kind {
    #[xdr(1)]
    Regular,
    #[xdr(2)]
    Directory,
    #[xdr(3)]
    Symlink,
    #[xdr(4)]
    BlockDevice(u32, u32),
    #[xdr(5)]
    CharacterDevice(u32, u32),
    #[xdr(6)]
    Fifo,
    #[xdr(7)]
    Socket,
}

impl Kind {
    fn of(kind: FileKind) -> Kind {
        match kind {
            FileKind::Regular => Kind::Regular,
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => Kind::Symlink,
            FileKind::BlockDevice(Device { major, minor }) => Kind::BlockDevice(major, minor),
            FileKind::CharacterDevice(Device { major, minor }) => Kind::CharacterDevice(major, minor),
            FileKind::Fifo => Kind::Fifo,
            FileKind::Socket => Kind::Socket,
        }
    }

    fn into_kind(self) -> FileKind {
        match self {
            Kind::Regular => FileKind::Regular,
            Kind::Directory => FileKind::Directory,
            Kind::Symlink => FileKind::Symlink,
            Kind::BlockDevice(major, minor) => FileKind::BlockDevice(Device { major, minor }),
            Kind::CharacterDevice(major, minor) => FileKind::CharacterDevice(Device { major, minor }),
            Kind::Fifo => FileKind::Fifo,
            Kind::Socket => FileKind::Socket,
        }
    }
}

impl Described {
    pub fn of(described: &Description) -> Described {
        let opaque = Opaque::copy_from_slice;
        Described {
            file: described.file.0,
            kind: Kind::of(described.kind),
            mode: described.mode,
            uid: described.uid,
            gid: described.gid,
            size: described.size,
            mtime: time(described.mtime),
            change: described.change,
            epoch: described.epoch.0,
            names: described.names.iter().map(|(dir, name)| (dir.0, opaque(name.as_bytes()))).collect(),
            target: described.target.as_ref().map(|target| opaque(target.as_bytes())),
            replicas: described.replicas.iter().map(replica_parts).collect(),
        }
    }

    pub fn into_description(self) -> Description {
        let name = |bytes: &Opaque| Name::new(bytes).expect("the other end had such a name");
        let target = |bytes: &Opaque| SymlinkTarget::new(bytes).expect("the other end had such a target");
        Description {
            file: FileId(self.file),
            kind: self.kind.into_kind(),
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            mtime: timestamp(self.mtime),
            change: self.change,
            epoch: Epoch(self.epoch),
            names: self.names.iter().map(|(dir, bytes)| (FileId(*dir), name(bytes))).collect(),
            target: self.target.as_ref().map(target),
            replicas: self.replicas.into_iter().map(replica_of).collect(),
        }
    }
}

fn replica_parts(replica: &ReplicaRef) -> (u32, (u32, Time)) {
    let state = ReplicaState::ALL.iter().position(|state| *state == replica.state);
    let state = state.and_then(|at| u32::try_from(at).ok()).expect("every state is one of ALL");
    (replica.pool.0, (state, time(replica.since)))
}

fn replica_of((pool, (state, since)): (u32, (u32, Time))) -> ReplicaRef {
    let state = *ReplicaState::ALL.get(state as usize).expect("the other end had such a state");
    ReplicaRef { pool: PoolId(pool), state, since: timestamp(since) }
}
