//! The WAL gets its length before it is written.
//!
//! A commit that appends to a file changes the file's size, and its sync waits for the file system's journal; a commit
//! that overwrites only waits for its own pages. SQLite reuses the WAL from its start after each checkpoint, so all but
//! the first round of a WAL are cheap: lengthened with zeros, the first is too. What follows the last whole frame means
//! nothing to SQLite (file format §4.2: a frame counts if its salts and checksums agree with the header).

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::rows::CHECKPOINT_BYTES;

const CHUNK_BYTES: usize = 1 << 20;

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
