//! Whether files have what the records say, for a start that can change nothing: after a kill the page cache has it all.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ::write_journal::{Directory, Record, Replay};
use rustix::io::{Errno, pread, retry_on_intr};
use types::FileId;

use super::place;
use super::replay::{Setting, identity};
use crate::error::OpenError;
use crate::store::Store;

const BLOCK_BYTES: usize = 4096;

/// The bytes of one block as the last records have them.
struct Block {
    bytes: [u8; BLOCK_BYTES],
    is_known: [bool; BLOCK_BYTES],
}

/// By file and number; bounded by the length of the journal.
type Blocks = HashMap<FileId, HashMap<u64, Box<Block>>>;

/// `false`: something is missing that a replay would bring. Blocks.
pub fn files_have_all(setting: &Setting, store: &Store) -> Result<bool, OpenError> {
    let mut blocks = Blocks::new();
    for path in place::found(&setting.pool_dir)? {
        let of_journal = |error| OpenError::Journal { place: path.clone(), error };
        let directory =
            Directory::open(&path).map_err(|error| OpenError::io("open write journal", &path, error))?;
        let replay = Replay::open(Arc::new(directory), identity(store)).map_err(of_journal)?;
        for entry in replay {
            let entry = entry.map_err(of_journal)?;
            match entry.record() {
                Record::Write { file, offset, bytes, .. } => note(&mut blocks, file, offset, bytes),
                Record::Create { .. } => {}
                _ => return Ok(false),
            }
        }
    }
    let failed =
        |errno: Errno| OpenError::io("compare replicas with the write journal in", &setting.pool_dir, errno);
    for (file, blocks) in &blocks {
        let Some(open) = store.open(*file).map_err(failed)? else { return Ok(false) };
        for (number, block) in blocks {
            if !block.is_in(open.as_fd(), *number).map_err(failed)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl Block {
    fn is_in(&self, file: BorrowedFd<'_>, number: u64) -> Result<bool, Errno> {
        let mut found = [0; BLOCK_BYTES];
        let at = number * BLOCK_BYTES as u64;
        let found_bytes = retry_on_intr(|| pread(file, &mut found[..], at))?;
        let differs = |at: usize| self.is_known[at] && (at >= found_bytes || found[at] != self.bytes[at]);
        Ok(!(0..BLOCK_BYTES).any(differs))
    }
}

fn note(blocks: &mut Blocks, file: FileId, offset: u64, bytes: &[u8]) {
    let blocks = blocks.entry(file).or_default();
    for (at, byte) in (offset..).zip(bytes) {
        let (number, within) = (at / BLOCK_BYTES as u64, (at % BLOCK_BYTES as u64) as usize);
        let block = blocks
            .entry(number)
            .or_insert_with(|| Box::new(Block { bytes: [0; BLOCK_BYTES], is_known: [false; BLOCK_BYTES] }));
        (block.bytes[within], block.is_known[within]) = (*byte, true);
    }
}
