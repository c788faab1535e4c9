//! Pools in scratch directories, for the tests of this crate.

// Each test takes what it needs.
#![allow(dead_code)]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{OpenReplica, Pool, Ticket, TicketMode};
use forebay_pool::{Config, JournalPlace, LocalPool};
use types::{Epoch, FileId, PoolId, Random};

pub const ID: PoolId = PoolId(3);
pub const INSTANCE: [u8; 16] = [0x5a; 16];

/// Different in every process and at every call, which is all that a verifier needs.
pub struct Chance;

impl Random for Chance {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = RandomState::new().build_hasher().finish().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

pub fn config(dir: &Path) -> Config {
    Config {
        id: ID,
        dir: PathBuf::from(dir),
        instance: INSTANCE,
        reserve_bytes: 0,
        reserve_files: 0,
        open_files_max: 64,
        queue_len_max: 1024,
        threads: 2,
        io: forebay_pool::IoPolicy::default(),
        contention: forebay_pool::ContentionThresholds::default(),
        journal: JournalPlace::Off,
        gather: forebay_pool::GatherPolicy::Auto,
        digests: vec![types::ChecksumKind::Adler32],
        random: Arc::new(Chance),
    }
}

pub fn open(dir: &Path) -> Arc<LocalPool> {
    LocalPool::open(config(dir)).unwrap()
}

pub fn open_with_journal(dir: &Path) -> Arc<LocalPool> {
    LocalPool::open(Config { journal: JournalPlace::Pool, ..config(dir) }).unwrap()
}

pub async fn writer(pool: &LocalPool, file: u64) -> Arc<dyn OpenReplica> {
    let ticket = Ticket {
        file: FileId(file),
        birth: api::Birth::UNKNOWN,
        pool: pool.id(),
        mode: TicketMode::ReadWrite,
        epoch: Epoch(0),
        presence: api::Presence::Unmade,
        io: types::IoMode::Auto,
    };
    pool.open(&ticket).await.unwrap()
}

pub async fn content(pool: &LocalPool, file: u64) -> Vec<u8> {
    writer(pool, file).await.read_at(0, u32::MAX).await.unwrap().data.to_vec()
}
