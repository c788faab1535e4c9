//! The seam to an owner of files: reads, writes and syncs of one file, as the engine asks for them.
//!
//! The owner says what its file is and checks its own rules; the engine decides where each step runs. A clone of a file
//! is kept until its operation ends, and is dropped before the caller has the answer, unless another thread's sync
//! answers it: the caller may want to close it. The clone of a read after which the file is read ahead is kept for that.

use std::os::fd::BorrowedFd;

use api::{PoolError, ReadData, Stability, Verifier};

use crate::file_io::FileIo;
use crate::sync::SyncGate;

pub trait Readable: Clone + Send + 'static {
    /// A snapshot of the file's state from before a read, which `judge` compares the bytes with.
    type KnownBefore: Send + 'static;

    /// Whether a read of so many bytes can begin without a wait for the disk.
    fn is_loaded(&self, length: u32) -> bool;

    /// Waits for the disk. Asked in a thread of the engine, and only if the file is not loaded for such a read.
    fn load(&self, length: u32) -> Result<(), PoolError>;

    fn known(&self) -> Self::KnownBefore;

    /// The file if this caller may read it; `None` reads as an empty file. Asked once for each read, of a loaded file.
    fn open(&self) -> Result<Option<BorrowedFd<'_>>, PoolError>;

    /// The file that `open` has given: it stays open while a clone of `self` lives.
    fn opened(&self) -> BorrowedFd<'_>;

    /// Asked of a loaded file.
    fn io(&self) -> &FileIo;

    /// Whether bytes that were read from `offset` on are those of their checksums, as far as these are in memory. Never waits.
    fn agrees(&self, data: &[u8], offset: u64) -> bool;

    /// The bytes in place of some that do not agree, or an error. Waits for the disk. Asked in a thread of the engine.
    fn reread(&self, read: ReadData, offset: u64) -> Result<ReadData, PoolError>;

    /// Turns the bytes that were read from `offset` on into the answer.
    fn judge(&self, read: ReadData, offset: u64, known: Self::KnownBefore) -> Result<ReadData, PoolError>;
}

pub trait Syncable: Clone + Send + 'static {
    fn gate(&self) -> &SyncGate;

    /// Brings everything that was written so far to the disk. Blocks.
    fn sync(&self) -> Result<(), PoolError>;

    /// Answers a successful sync.
    fn verifier(&self) -> Verifier;
}

pub trait Writable: Syncable {
    /// Writes all of the bytes, by the engine's [`DataPath`](crate::DataPath) or into the page cache. The engine syncs what has
    /// to be stable. Blocks.
    fn write(&self, offset: u64, data: &[u8], stability: Stability) -> Result<(), PoolError>;
}
