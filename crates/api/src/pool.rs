//! The pool seam: replicas on a data server, and the data path.
//!
//! A pool obeys tickets, never doors. The code that decodes a ticket verifies it (`PoolKey::open`); the pool checks
//! what only it knows: the epoch, the space, the replica.
//!
//! A pool may be on another host. So questions and answers are values, one call asks about many files, and a call may end
//! without an answer (`PoolError::Unknown`). The one thing that no message can carry, a file of this host, is an optional
//! capability (`OpenReplica::local_range`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use types::{ByteRange, Epoch, FileId, PoolId, Timestamp};

use crate::{
    Answers, Birth, Description, IoHandle, LocalRange, PoolError, ReadData, ReplicaRanges, Stability, Ticket,
    Verifier,
};

/// Files of one call at most.
pub const BATCH_LEN_MAX: usize = 1024;

/// The time in which a caller without a deadline of its own wants an answer.
pub const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Calls about files take at most [`BATCH_LEN_MAX`] of them, and say `within` what time an answer is wanted. The pool may
/// use that; the caller's side of the seam enforces it for every pool (`files::PunctualPool`).
#[async_trait]
pub trait Pool: Send + Sync {
    fn id(&self) -> PoolId;

    /// Opens the replica that a ticket names. The ticket says what a missing replica means: an `Unmade` one is made by
    /// the first write, and is an empty file until then. One that was removed is made again for a ticket to one that is being
    /// filled, and for no other. For a write ticket an error may be returned at the first use
    /// only.
    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError>;

    /// Makes each replica, empty, if it does not exist: for a client that is sent here with a ticket, which makes none.
    /// The replica need not be on disk before something is written. An error if there is one of another birth.
    async fn make(&self, files: &[(FileId, Birth)], within: Duration) -> Answers<()>;

    /// Sets the length of each replica, durably, making it if need be. Shrinking frees, growing leaves a hole.
    async fn truncate(&self, files: &[(FileId, u64)], within: Duration) -> Answers<ReplicaFacts>;

    /// Removes replicas; that there is none is success. A restart may bring them back until their removal is synced.
    async fn remove(&self, files: &[FileId], within: Duration) -> Answers<()>;

    /// Replicas that were removed stay so over a restart and a power cut when this returns. An error if one of them is there:
    /// a power cut since its removal has brought it back, and it is to be removed again. A pool that does not outlive one has
    /// nothing to do.
    async fn sync_removals(&self, _files: &[FileId], _within: Duration) -> Result<(), PoolError> {
        Ok(())
    }

    /// From now on tickets to a file of an epoch below its one here are refused; survives a restart.
    async fn fence(&self, files: &[(FileId, Epoch)], within: Duration) -> Answers<()>;

    /// `None`: no replica (never written).
    async fn facts(&self, files: &[FileId], within: Duration) -> Answers<Option<ReplicaFacts>>;

    /// Replicas by file id behind `after`, for checks and rebuilding.
    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError>;

    /// Keeps what these files are, durably, in place of whatever it kept of files behind `after` up to `through`. For
    /// building a lost namespace anew; a pool of which nobody would ask that back keeps nothing.
    async fn describe(
        &self,
        _after: FileId,
        _through: FileId,
        _files: Vec<Description>,
    ) -> Result<(), PoolError> {
        Ok(())
    }

    /// Replicas may share blocks of this size (`ReplicaRanges::share_from`). `None`: they cannot.
    fn clone_granularity(&self) -> Option<u32> {
        None
    }

    /// From memory; never waits for a disk.
    fn status(&self) -> PoolStatus;
}

/// An open replica. Buffers travel in and come back; nothing is copied that need not be.
pub trait OpenReplica: Send + Sync {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData>;

    /// Appends `length` bytes to `into` if memory has them all, with one copy and one system call: what many small reads
    /// are made of. `false`: nothing was appended, whatever the reason; `read_at` does, or says why.
    fn read_resident(&self, _offset: u64, _length: u32, _into: &mut BytesMut) -> bool {
        false
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability>;
    /// Writes and syncs: for a caller that goes on when the bytes can be read, while they go to the disk.
    fn write_through(&self, offset: u64, data: Bytes) -> WriteThrough {
        let written = self.write_at(offset, data, Stability::FileSync);
        let synced = Synced { verifier: self.verifier(), keeps_length: false };
        WriteThrough { written, synced: IoHandle::ready(Ok(synced)), may_keep_length: false }
    }
    /// Everything written so far is on disk when this is answered; a failed write-back is told to every later sync.
    fn sync(&self) -> IoHandle<Verifier>;
    fn verifier(&self) -> Verifier;

    /// The range as bytes of a file of this host. To be asked for anew for each stretch that is sent: here an older epoch
    /// is found out. `None` where there is no such file (the pool is elsewhere, the replica has
    /// no bytes) or reading is refused; then `read_at` does, and says why.
    fn local_range(&self, _range: ByteRange) -> Option<Arc<dyn LocalRange>> {
        None
    }

    /// `None`: the replica can be read and written and nothing more.
    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        None
    }
}

/// A write on its way.
pub struct WriteThrough {
    /// The bytes can be read, and are that stable or more.
    pub written: IoHandle<Stability>,
    /// They are on disk. To be asked after a successful `written`.
    pub synced: IoHandle<Synced>,
    /// `synced` will probably tell that the pool keeps the length.
    pub may_keep_length: bool,
}

impl WriteThrough {
    pub fn refused(error: PoolError) -> WriteThrough {
        let (written, synced) = (IoHandle::ready(Err(error.clone())), IoHandle::ready(Err(error)));
        WriteThrough { written, synced, may_keep_length: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    pub verifier: Verifier,
    /// The pool tells the next start that the file is that long, unless it is cut: the namespace may learn it later.
    pub keeps_length: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaFacts {
    pub file: FileId,
    /// Of the file that it was made for.
    pub birth: Birth,
    pub size: u64,
    /// Bytes on disk.
    pub space_used: u64,
    /// When its bytes were last written, by the pool's file system, which may count in milliseconds. Listings leave it
    /// out.
    pub modified: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    pub id: PoolId,
    /// `None`: in order. Else why the pool does not take I/O now.
    pub offline: Option<String>,
    /// It is offline because its host does not answer, which may pass: its callers come again, where those of a pool whose
    /// disk has failed get an error.
    pub is_away: bool,
    /// Why it takes no writes now, although it can be read.
    pub read_only: Option<String>,
    pub total_bytes: u64,
    /// Free for new data: above the reserve.
    pub free_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
    pub replicas: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    pub syncs: u64,
    /// Files whose writers contend for the same pages now: the last few.
    pub contended: Vec<FileId>,
    /// Of a newer file than this the pool makes the replica for a ticket to write which says that there may be none.
    /// `None`: it makes none for tickets.
    pub made_through: Option<FileId>,
}

impl PoolStatus {
    /// Of a pool that has told nothing yet.
    pub fn untold(id: PoolId) -> PoolStatus {
        PoolStatus {
            id,
            offline: None,
            is_away: false,
            read_only: None,
            total_bytes: 0,
            free_bytes: 0,
            total_files: 0,
            free_files: 0,
            replicas: 0,
            read_bytes: 0,
            written_bytes: 0,
            reads: 0,
            writes: 0,
            syncs: 0,
            contended: Vec::new(),
            made_through: None,
        }
    }

    /// Whether new files may be placed there, as far as the disk goes.
    pub fn is_writable(&self) -> bool {
        self.offline.is_none() && self.read_only.is_none()
    }

    /// Why the pool is offline or takes no writes, for people.
    pub fn trouble(&self) -> Option<String> {
        self.offline.clone().or_else(|| self.read_only.as_ref().map(|why| format!("takes no writes: {why}")))
    }
}
