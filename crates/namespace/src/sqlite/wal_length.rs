//! The WAL gets its length before it is written.
//!
//! A commit that appends to a file changes the file's size, and its sync waits for the file system's journal; a commit
//! that overwrites only waits for its own pages. SQLite reuses the WAL from its start after each checkpoint, so all but
//! the first round of a WAL are cheap: lengthened with zeros, the first is too. SQLite ignores bytes behind the last
//! whole frame (file format §4.2: a frame counts if its salts and checksums agree with the header).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::rows::CHECKPOINT_BYTES;

const CHUNK_BYTES: usize = 1 << 20;
/// Of the index of a WAL that is as long as one may stay (`journal_size_limit`): a commit of which the index has no room
/// for fails when it is on disk already.
const INDEX_BYTES: u64 = 5 * (32 << 10);
/// `UNIX_SHM_DMS` of SQLite: part of what processes with the same database agree on.
const USERS_BYTE: libc::off_t = 128;

/// For a WAL that is open in this process, before the first commit that others wait for.
pub fn lengthen(wal: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(wal)?;
    let zeros = vec![0; CHUNK_BYTES];
    let mut end = file.metadata()?.len();
    while end < CHECKPOINT_BYTES {
        let count = CHUNK_BYTES.min((CHECKPOINT_BYTES - end) as usize);
        file.write_all_at(&zeros[..count], end)?;
        end += count as u64;
    }
    file.sync_all()
}

/// The index of a log that no connection of this process has open, with all its room. SQLite maps the index, and gives it
/// one byte in each 4 KiB: with smaller blocks the rest are holes, and to touch one on a full disk ends the process
/// (SIGBUS). SQLite empties an index that nobody else has open (`unixLockSharedMemory` in os_unix.c), so the file is held as
/// another process would, until a connection has read. It is to be kept until no connection is open: SQLite's locks on it would go with it.
pub fn hold_index(database: &Path) -> io::Result<File> {
    let path = database.with_extension("db-shm");
    let file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
    let is_alone = lock_users(&file, libc::F_WRLCK);
    match fallocate(&file, FallocateFlags::empty(), 0, INDEX_BYTES) {
        Err(Errno::OPNOTSUPP) => {}
        allocated => allocated?,
    }
    if is_alone {
        // Left by a killed process. It is overwritten in place: the disk might not have its room again.
        file.set_len(INDEX_BYTES)?;
        file.write_all_at(&[0; INDEX_BYTES as usize], 0)?;
    }
    lock_users(&file, libc::F_RDLCK);
    Ok(file)
}

/// A connection has it: the last to close it is to find that nobody else does, and remove it with the log.
pub fn let_index_go(index: &File) {
    lock_users(index, libc::F_UNLCK);
}

/// Locks the byte that each process with the index open has a shared lock on, as an open file and not as this process, or
/// SQLite would not see it. Whether it is locked.
fn lock_users(index: &File, kind: libc::c_int) -> bool {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: USERS_BYTE,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the kernel reads one `flock`, which outlives the call.
    #[allow(unsafe_code)]
    let locked = unsafe { libc::fcntl(index.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    locked == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rusqlite::Connection;

    use super::*;

    /// A server ended with SIGBUS when it started on a full disk with blocks of 1 KiB.
    #[test]
    fn the_index_of_a_log_has_all_its_room_before_sqlite_maps_it() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("namespace.db");
        let shm = dir.path().join("namespace.db-shm");
        std::fs::write(&shm, [0xff; 2 * INDEX_BYTES as usize]).unwrap();
        let index = hold_index(&database).unwrap();
        let allocated = || (index.metadata().unwrap().len(), index.metadata().unwrap().blocks() * 512);
        let before = allocated();
        assert_eq!(before, (INDEX_BYTES, INDEX_BYTES));
        assert!(std::fs::read(&shm).unwrap().iter().all(|byte| *byte == 0), "it is of a log that is no more");
        let connection = Connection::open(&database).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(allocated(), before, "SQLite has emptied it");
        assert_eq!(shm.metadata().unwrap().ino(), index.metadata().unwrap().ino());
        let_index_go(&index);
        drop(connection);
        assert!(!shm.exists(), "SQLite removes it as ever");
    }

    #[test]
    fn an_index_that_another_process_uses_is_not_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("namespace.db");
        // To the kernel another open file is as good as another process.
        let first = hold_index(&database).unwrap();
        first.write_all_at(b"theirs", 0).unwrap();
        let _second = hold_index(&database).unwrap();
        let mut found = [0; 6];
        first.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"theirs");
    }
}
