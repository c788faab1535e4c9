//! Restarts after a power cut: files are as of their last sync, and the journal brings the rest.

mod commits;

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{ANSWER_TIME, Birth, OpenReplica, Pool, PoolError, Presence, Stability, Ticket, TicketMode};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use types::{ByteRange, Epoch, FileId, PoolId, Random};

use super::JournalPlace;
use crate::OpenError;
use crate::gathering::GatherPolicy;
use crate::label;
use crate::layout::ReplicaPlace;
use crate::local::tests::config;
use crate::local::{Config, LocalPool};
use crate::store::OnDisk;

struct Chance;

impl Random for Chance {
    fn fill(&self, bytes: &mut [u8]) {
        use std::hash::{BuildHasher, Hasher, RandomState};
        for chunk in bytes.chunks_mut(8) {
            let random = RandomState::new().build_hasher().finish().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

fn try_open(dir: &Path, journal: JournalPlace) -> Result<Arc<LocalPool>, OpenError> {
    let random = Arc::new(Chance);
    LocalPool::open(Config { journal, random, open_files_max: 64, ..config(dir) })
}

fn open(dir: &Path) -> Arc<LocalPool> {
    open_gathering(dir, GatherPolicy::Auto)
}

async fn replica(pool: &LocalPool, file: u64) -> Arc<dyn OpenReplica> {
    let ticket = Ticket {
        file: FileId(file),
        birth: Birth::UNKNOWN,
        pool: PoolId(1),
        mode: TicketMode::ReadWrite,
        epoch: Epoch(0),
        presence: Presence::Unmade,
        io: types::IoMode::Auto,
    };
    pool.open(&ticket).await.unwrap()
}

async fn write(pool: &LocalPool, file: u64, offset: u64, bytes: &[u8], stability: Stability) {
    let data = Bytes::copy_from_slice(bytes);
    replica(pool, file).await.write_at(offset, data, stability).await.unwrap();
}

/// Whether the pool keeps the length for the namespace.
async fn write_through(pool: &LocalPool, file: u64, offset: u64, bytes: &[u8]) -> bool {
    let through = replica(pool, file).await.write_through(offset, Bytes::copy_from_slice(bytes));
    through.written.await.unwrap();
    through.synced.await.unwrap().keeps_length
}

/// The length that the label states.
fn labelled(dir: &Path, file: u64) -> u64 {
    let open = File::open(dir.join(ReplicaPlace::of(FileId(file)).path())).unwrap();
    label::read(open).unwrap().unwrap().length.unwrap()
}

async fn read(pool: &LocalPool, file: u64) -> Vec<u8> {
    replica(pool, file).await.read_at(0, u32::MAX).await.unwrap().data.to_vec()
}

/// Puts each file back to its last sync, and takes away those that had none. Names of synced files and removals are kept.
fn cut_power(pool: Arc<LocalPool>) {
    let dir = pool.dir().to_owned();
    let faults = Arc::clone(&pool.parts().store.faults);
    drop(pool);
    let on_disk = faults.on_disk.lock().take().unwrap();
    for outer in fs::read_dir(dir.join("data")).unwrap() {
        for inner in fs::read_dir(outer.unwrap().path()).unwrap() {
            for file in fs::read_dir(inner.unwrap().path()).unwrap() {
                let file = file.unwrap();
                let id = u64::from_str_radix(file.file_name().to_str().unwrap(), 16).unwrap();
                match on_disk.get(&FileId(id)) {
                    Some(OnDisk { bytes, label }) => {
                        fs::write(file.path(), bytes).unwrap();
                        label::write(File::options().write(true).open(file.path()).unwrap(), label).unwrap();
                    }
                    None => fs::remove_file(file.path()).unwrap(),
                }
            }
        }
    }
}

#[tokio::test]
async fn a_stable_write_to_a_new_file_is_there_after_a_power_cut() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"stable", Stability::FileSync).await;
    write(&pool, 2, 0, b"unstable", Stability::Unstable).await;
    cut_power(pool);
    let pool = open(dir.path());
    assert!(pool.is_rebuilt());
    assert_eq!(read(&pool, 1).await, b"stable");
    assert_eq!(read(&pool, 2).await, b"");
    let listed = pool.replicas(FileId(0), 9).await.unwrap();
    assert_eq!(listed.iter().map(|facts| (facts.file.0, facts.size)).collect::<Vec<_>>(), [(1, 6)]);
    // Applied records are on disk by themselves.
    pool.close();
    let pool = open(dir.path());
    assert!(!pool.is_rebuilt());
    assert_eq!(read(&pool, 1).await, b"stable");
}

#[tokio::test]
async fn a_commit_past_the_journal_is_not_undone_by_an_older_record() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"first", Stability::FileSync).await;
    write(&pool, 1, 0, b"2nd", Stability::Unstable).await;
    replica(&pool, 1).await.sync().await.unwrap();
    cut_power(pool);
    assert_eq!(read(&open(dir.path()), 1).await, b"2ndst");
}

#[tokio::test]
async fn a_cut_and_a_removal_are_not_undone_by_older_records() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    for file in [1, 2] {
        write(&pool, file, 0, b"a longer text", Stability::FileSync).await;
    }
    pool.truncate(&[(FileId(1), 3)], ANSWER_TIME).await.sole().unwrap();
    pool.remove(&[FileId(2)], ANSWER_TIME).await.sole().unwrap();
    pool.sync_removals(&[FileId(2)], ANSWER_TIME).await.unwrap();
    cut_power(pool);
    let pool = open(dir.path());
    assert_eq!(read(&pool, 1).await, b"a l");
    assert_eq!(pool.replicas(FileId(0), 9).await.unwrap().len(), 1);
}

/// A crash would have left a cut file, and the replay would have made it long again with zeros.
#[tokio::test]
async fn a_file_is_settled_before_it_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"a longer text", Stability::FileSync).await;
    let path = dir.path().join(ReplicaPlace::of(FileId(1)).path());
    let (told, seen) = std::sync::mpsc::channel();
    let look = move || told.send(fs::metadata(path).unwrap().len()).unwrap();
    *pool.parts().store.faults.in_next_sync.lock() = Some(Box::new(look));
    pool.truncate(&[(FileId(1), 3)], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(seen.recv().unwrap(), 13);
}

#[tokio::test]
async fn a_file_that_somebody_took_away_while_the_pool_was_closed_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"on disk", Stability::FileSync).await;
    replica(&pool, 1).await.sync().await.unwrap();
    pool.parts().journal.settle_all(pool.parts());
    pool.parts().journal.barrier(pool.parts()).unwrap();
    write(&pool, 1, 3, b"journal", Stability::FileSync).await;
    let lying = dir.path().join(ReplicaPlace::of(FileId(1)).path());
    cut_power(pool);
    fs::remove_file(lying).unwrap();
    let pool = open(dir.path());
    assert_eq!(pool.replicas(FileId(0), 9).await.unwrap(), [], "it would lack its first bytes");
}

#[tokio::test]
async fn a_full_journal_makes_writers_wait_for_their_files_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    let room = pool.io().journal.unwrap().room_bytes;
    let bytes = vec![7; 128 << 10];
    let files = 2 * room / bytes.len() as u64;
    for file in 1..=files {
        write(&pool, file, 0, &bytes, Stability::FileSync).await;
    }
    let report = pool.io().journal.unwrap();
    assert!(report.records > files / 4 && report.written_back > 0, "{report:?}");
    cut_power(pool);
    let pool = open(dir.path());
    for file in 1..=files {
        assert!(read(&pool, file).await == bytes, "file {file}");
    }
}

#[tokio::test]
async fn writes_are_synced_with_their_files_once_the_journal_has_failed() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"in the journal", Stability::FileSync).await;
    pool.parts().store.faults.fail_journal.store(true, Ordering::SeqCst);
    // Its record cannot be made void, so no change of the file is stable.
    let refused = replica(&pool, 1).await.write_at(0, Bytes::from("past it"), Stability::FileSync).await;
    assert!(matches!(refused, Err(PoolError::Io { .. })), "{refused:?}");
    write(&pool, 2, 0, b"another file", Stability::FileSync).await;
    pool.parts().store.faults.fail_journal.store(false, Ordering::SeqCst);
    write(&pool, 1, 0, b"past it", Stability::FileSync).await;
    assert!(pool.io().journal.unwrap().has_failed);
    cut_power(pool);
    let pool = open(dir.path());
    assert_eq!(read(&pool, 1).await, b"past itjournal");
    assert_eq!(read(&pool, 2).await, b"another file");
}

#[tokio::test]
async fn a_length_that_the_journal_keeps_is_in_the_label_before_its_records_go() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    assert!(write_through(&pool, 1, 0, b"recorded").await);
    write(&pool, 1, 8, b", not stable", Stability::Unstable).await;
    cut_power(pool);
    let pool = open(dir.path());
    assert_eq!(labelled(dir.path(), 1), 8, "its record was applied");
    // The second time the name is on disk, so that a sync of the data alone would do for the bytes.
    for (offset, bytes) in [(8, b", and".as_slice()), (13, b" more")] {
        assert!(write_through(&pool, 1, offset, bytes).await);
        pool.parts().journal.settle_all(pool.parts());
        pool.parts().journal.barrier(pool.parts()).unwrap();
        assert_eq!(pool.io().journal.unwrap().live_files, 0);
    }
    cut_power(pool);
    assert_eq!(read(&open(dir.path()), 1).await, b"recorded, and more");
    assert_eq!(labelled(dir.path(), 1), 18, "it was synced with the label");
}

/// A COMMIT raises the label in memory only, and the next sync left it there.
#[tokio::test]
async fn a_promise_below_a_length_that_was_synced_is_brought_to_the_disk_too() {
    let write = |length, is_stable| Step::Write { file: 1, offset: 0, length, is_stable };
    let commit = Step::Commit { file: 1 };
    run(
        &[write(20, false), commit.clone(), write(10, true), write(1, false), commit, Step::CutPower],
        GatherPolicy::Never,
        1,
    )
    .await;
    let cut = |size| Step::Truncate { file: 1, size };
    run(&[cut(22), write(1, true), cut(1), Step::CutPower], GatherPolicy::Never, 1).await;
}

/// A power cut would have left a label that tells of bytes that were never there.
#[tokio::test]
async fn a_label_does_not_state_a_length_before_its_record_or_its_bytes_are_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    assert!(write_through(&pool, 1, 0, b"first").await);
    let faults = &pool.parts().store.faults;
    faults.fail_journal.store(true, Ordering::SeqCst);
    let (told, seen) = std::sync::mpsc::channel();
    let path = dir.path().to_owned();
    *faults.in_next_sync.lock() = Some(Box::new(move || told.send(labelled(&path, 1)).unwrap()));
    replica(&pool, 1).await.write_at(5, Bytes::from(", second"), Stability::FileSync).await.unwrap_err();
    assert!(seen.recv().unwrap() <= 5);
    assert_eq!(labelled(dir.path(), 1), 13, "the bytes are on disk by now");
}

#[tokio::test]
async fn a_cut_takes_a_promise_of_the_length_back() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    assert!(write_through(&pool, 1, 0, b"recorded").await);
    pool.truncate(&[(FileId(1), 3)], ANSWER_TIME).await.sole().unwrap();
    replica(&pool, 1).await.write_at(0, Bytes::from("ab"), Stability::Unstable).await.unwrap();
    replica(&pool, 1).await.sync().await.unwrap();
    assert_eq!(labelled(dir.path(), 1), 3);
    cut_power(pool);
    assert_eq!(read(&open(dir.path()), 1).await, b"abc");
}

/// A kill came while the file was made longer. The next start but one gave it that length, with zeros.
#[tokio::test]
async fn bytes_that_a_kill_left_behind_the_end_are_not_stated_by_a_later_sync() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    for file in 1..=3 {
        write(&pool, file, 0, b"old", Stability::FileSync).await;
        replica(&pool, file).await.sync().await.unwrap();
    }
    drop(pool);
    for file in 1..=3 {
        let path = dir.path().join(ReplicaPlace::of(FileId(file)).path());
        File::options().write(true).open(path).unwrap().set_len(100).unwrap();
    }
    let pool = open(dir.path());
    let sync = async |file| {
        replica(&pool, file).await.sync().await.unwrap();
        pool.parts().journal.settle_all(pool.parts());
    };
    assert!(write_through(&pool, 1, 3, b", new").await);
    sync(1).await;
    assert_eq!(labelled(dir.path(), 1), 8);
    write(&pool, 1, 90, &[7; 20], Stability::Unstable).await;
    sync(1).await;
    assert_eq!(labelled(dir.path(), 1), 110, "the file goes on behind them");
    write(&pool, 2, 1, b"x", Stability::Unstable).await;
    sync(2).await;
    assert_eq!(labelled(dir.path(), 2), 3);
    pool.truncate(&[(FileId(3), 100)], ANSWER_TIME).await.sole().unwrap();
    assert_eq!(labelled(dir.path(), 3), 100, "this length was asked for again");
}

#[tokio::test]
async fn a_length_is_left_to_the_namespace_where_the_journal_does_not_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    assert!(!write_through(&pool, 1, 0, &vec![7; (128 << 10) + 1]).await, "it is too long for a record");
    pool.parts().store.faults.fail_journal.store(true, Ordering::SeqCst);
    replica(&pool, 2).await.write_at(0, Bytes::from("x"), Stability::FileSync).await.unwrap_err();
    pool.parts().store.faults.fail_journal.store(false, Ordering::SeqCst);
    assert!(!write_through(&pool, 2, 0, b"the journal has failed").await);
    drop(pool);
    let pool = try_open(dir.path(), JournalPlace::Off).unwrap();
    assert!(!write_through(&pool, 3, 0, b"no journal").await);
}

/// Its records were brought to a journal that nobody looked at.
#[tokio::test]
async fn a_journal_that_moves_is_applied_first() {
    let (dir, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let places = [JournalPlace::Below(fast.path().to_owned()), JournalPlace::Pool, JournalPlace::Off];
    let pool = open(dir.path());
    write(&pool, 1, 0, b"round 0", Stability::FileSync).await;
    cut_power(pool);
    for (round, place) in places.into_iter().enumerate() {
        let pool = try_open(dir.path(), place).unwrap();
        on_disk_as_it_is(&pool, dir.path());
        assert_eq!(read(&pool, 1).await, format!("round {round}").into_bytes());
        write(&pool, 1, 0, format!("round {}", round + 1).as_bytes(), Stability::FileSync).await;
        cut_power(pool);
    }
    assert!(fs::read_dir(fast.path()).unwrap().next().is_none(), "it is taken away");
    assert!(!dir.path().join("journal").exists() && !dir.path().join("journal.place").exists());
}

#[tokio::test]
async fn a_journal_that_is_missing_keeps_the_pool_from_opening() {
    let (dir, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = JournalPlace::Below(fast.path().to_owned());
    let pool = try_open(dir.path(), place.clone()).unwrap();
    write(&pool, 1, 0, b"stable", Stability::FileSync).await;
    drop(pool);
    let (here, away) = (fast.path().join("pool-1"), fast.path().join("away"));
    fs::rename(&here, &away).unwrap();
    for place in [place.clone(), JournalPlace::Off] {
        let refused = try_open(dir.path(), place).map(drop).unwrap_err();
        assert!(refused.to_string().contains("is its disk mounted?"), "{refused}");
    }
    fs::rename(&away, &here).unwrap();
    assert_eq!(read(&try_open(dir.path(), place).unwrap(), 1).await, b"stable");
}

/// The directory was opened as the new journal, and then removed as the old one.
#[tokio::test]
async fn a_journal_that_is_reached_by_another_name_is_kept() {
    let (dir, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (real, link) = (fast.path().join("real"), fast.path().join("link"));
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    drop(try_open(dir.path(), JournalPlace::Below(real)).unwrap());
    let pool = try_open(dir.path(), JournalPlace::Below(link.clone())).unwrap();
    *pool.parts().store.faults.on_disk.lock() = Some(HashMap::new());
    write(&pool, 1, 0, b"stable", Stability::FileSync).await;
    cut_power(pool);
    assert_eq!(read(&try_open(dir.path(), JournalPlace::Below(link)).unwrap(), 1).await, b"stable");
}

#[tokio::test]
async fn records_of_a_broken_replica_are_kept_for_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path());
    write(&pool, 1, 0, b"stable", Stability::FileSync).await;
    pool.parts().store.faults.fail_syncs.store(true, Ordering::SeqCst);
    pool.parts().journal.settle_all(pool.parts());
    pool.parts().store.faults.fail_syncs.store(false, Ordering::SeqCst);
    assert!(pool.parts().journal.newest(FileId(1)).is_some());
    pool.close();
    assert!(open(dir.path()).is_rebuilt(), "its records were applied");
}

#[derive(Clone, Debug)]
enum Step {
    Write { file: u64, offset: u64, length: usize, is_stable: bool },
    Truncate { file: u64, size: u64 },
    Commit { file: u64 },
    Deallocate { file: u64, offset: u64, length: u64 },
    Remove { file: u64 },
    WriteBack,
    CutPower,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let file = 1..4_u64;
    // Side by side, or apart: many ranges of one COMMIT.
    let offset = prop_oneof![2 => 0..40_u64, 1 => (1..12_u64).prop_map(|at| at * 50)];
    let write = (file.clone(), offset, 1..30_usize, any::<bool>());
    prop_oneof![
        8 => write.prop_map(|(file, offset, length, is_stable)| Step::Write { file, offset, length, is_stable }),
        2 => (file.clone(), 0..60_u64).prop_map(|(file, size)| Step::Truncate { file, size }),
        3 => file.clone().prop_map(|file| Step::Commit { file }),
        1 => (file.clone(), 0..60_u64, 1..30_u64)
            .prop_map(|(file, offset, length)| Step::Deallocate { file, offset, length }),
        1 => file.prop_map(|file| Step::Remove { file }),
        1 => Just(Step::WriteBack),
        2 => Just(Step::CutPower),
        1 => Just(Step::Close),
    ]
}

/// A file, and the bytes that it may hold after a power cut: the last stable ones, or any that were written over them since.
#[derive(Clone, Default)]
struct Model {
    /// The length that the pool was to keep for the namespace.
    promised: u64,
    now: Vec<u8>,
    stable: Vec<u8>,
    /// By offset.
    since: HashMap<usize, Vec<u8>>,
}

impl Model {
    fn write(&mut self, offset: usize, bytes: &[u8], is_stable: bool) {
        let put = |content: &mut Vec<u8>| {
            content.resize(content.len().max(offset + bytes.len()), 0);
            content[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        put(&mut self.now);
        if is_stable {
            put(&mut self.stable);
        }
        for (at, byte) in bytes.iter().enumerate() {
            let since = self.since.entry(offset + at).or_default();
            if is_stable {
                since.clear();
            } else {
                since.push(*byte);
            }
        }
    }

    fn settle(&mut self) {
        self.stable.clone_from(&self.now);
        self.since.clear();
    }

    /// The length is stable, and none of the bytes becomes it.
    fn cut(&mut self, size: usize) {
        self.stable.resize(size, 0);
        self.since.retain(|at, _| *at < size);
    }

    fn check(&self, found: &[u8], steps: &[Step]) {
        assert!(
            found.len() >= self.stable.len(),
            "{} bytes of {} in {steps:?}",
            found.len(),
            self.stable.len()
        );
        for (at, byte) in found.iter().enumerate() {
            let stable = self.stable.get(at).copied().unwrap_or(0);
            let may_be = *byte == stable || self.since.get(&at).is_some_and(|since| since.contains(byte));
            assert!(may_be, "byte {at} is {byte}, stable is {stable} in {steps:?}");
        }
    }
}

/// `unit`: bytes of a step's offsets and lengths. Returns the number of writes that were gathered, and of records.
async fn run(steps: &[Step], gather: GatherPolicy, unit: u64) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let open = || open_gathering(dir.path(), gather);
    let mut pool = open();
    let (mut gathered, mut records) = (0, 0);
    // `None`: removed, for ever.
    let mut files: HashMap<u64, Option<Model>> = HashMap::new();
    let mut next = 1_u8;
    for step in steps {
        let mut of = |file: &u64| files.entry(*file).or_insert_with(|| Some(Model::default())).clone();
        match step {
            Step::Write { file, offset, length, is_stable } => {
                let Some(mut model) = of(file) else { continue };
                let (offset, bytes) = (offset * unit, vec![next; length * unit as usize]);
                next = next.wrapping_add(1).max(1);
                if !is_stable {
                    write(&pool, *file, offset, &bytes, Stability::Unstable).await;
                } else if write_through(&pool, *file, offset, &bytes).await {
                    model.promised = model.promised.max(offset + bytes.len() as u64);
                }
                model.write(offset as usize, &bytes, *is_stable);
                files.insert(*file, Some(model));
            }
            Step::Truncate { file, size } => {
                let (Some(mut model), size) = (of(file), size * unit) else { continue };
                pool.truncate(&[(FileId(*file), size)], ANSWER_TIME).await.sole().unwrap();
                model.now.resize(size as usize, 0);
                model.promised = model.promised.min(size);
                match gather {
                    // Gathered bytes below the new end stay unstable.
                    GatherPolicy::Always => model.cut(size as usize),
                    _ => model.settle(),
                }
                files.insert(*file, Some(model));
            }
            Step::Commit { file } => {
                let Some(mut model) = of(file) else { continue };
                replica(&pool, *file).await.sync().await.unwrap();
                model.settle();
                files.insert(*file, Some(model));
            }
            Step::Deallocate { file, offset, length } => {
                let Some(mut model) = of(file) else { continue };
                let (offset, length) = (offset * unit, length * unit);
                let range = ByteRange::new(offset, length).unwrap();
                replica(&pool, *file).await.ranges().unwrap().deallocate(range).await.unwrap();
                let end = model.now.len().min((offset + length) as usize);
                if (offset as usize) < end {
                    model.write(offset as usize, &vec![0; end - offset as usize], false);
                }
                files.insert(*file, Some(model));
            }
            Step::Remove { file } => {
                pool.remove(&[FileId(*file)], ANSWER_TIME).await.sole().unwrap();
                pool.sync_removals(&[FileId(*file)], ANSWER_TIME).await.unwrap();
                files.insert(*file, None);
            }
            Step::WriteBack => pool.parts().journal.settle_all(pool.parts()),
            Step::Close => {
                count(&pool, &mut gathered, &mut records);
                pool.close();
                pool = open();
                on_disk_as_it_is(&pool, dir.path());
                files.values_mut().flatten().for_each(Model::settle);
            }
            Step::CutPower => {
                count(&pool, &mut gathered, &mut records);
                cut_power(pool);
                pool = open();
                for (file, model) in &mut files {
                    let Some(model) = model else { continue };
                    let found = read(&pool, *file).await;
                    model.check(&found, steps);
                    assert!(
                        model.promised == 0 || labelled(dir.path(), *file) >= model.promised,
                        "{steps:?}"
                    );
                    model.now = found;
                    model.settle();
                }
                on_disk_as_it_is(&pool, dir.path());
                let listed = pool.replicas(FileId(0), 9).await.unwrap();
                let is_there = |file: &u64| files.get(file).is_some_and(Option::is_some);
                assert!(listed.iter().all(|facts| is_there(&facts.file.0)), "{listed:?} in {steps:?}");
            }
        }
    }
    count(&pool, &mut gathered, &mut records);
    (gathered, records)
}

fn count(pool: &LocalPool, gathered: &mut u64, records: &mut u64) {
    let io = pool.io();
    *gathered += io.gather.map_or(0, |gather| gather.counts.gathered_writes);
    *records += io.journal.map_or(0, |journal| journal.records);
}

/// A pool whose disk keeps what was synced.
fn open_gathering(dir: &Path, gather: GatherPolicy) -> Arc<LocalPool> {
    let random = Arc::new(Chance);
    let config = Config { journal: JournalPlace::Pool, gather, random, open_files_max: 64, ..config(dir) };
    let pool = LocalPool::open(config).unwrap();
    *pool.parts().store.faults.on_disk.lock() = Some(HashMap::new());
    pool
}

/// After these, a file of its writes out of order is gathered.
fn disordered() -> impl Iterator<Item = Step> {
    [(25, 9), (12, 9), (0, 9), (40, 9)].into_iter().map(|(offset, length)| Step::Write {
        file: 1,
        offset,
        length,
        is_stable: false,
    })
}

/// After a start all that is there is on disk.
fn on_disk_as_it_is(pool: &LocalPool, dir: &Path) {
    let mut on_disk = HashMap::new();
    for file in 1..4 {
        let path = dir.join(ReplicaPlace::of(FileId(file)).path());
        if let Ok(bytes) = fs::read(&path) {
            let label = label::read(File::open(path).unwrap()).unwrap().unwrap();
            on_disk.insert(FileId(file), OnDisk { bytes, label });
        }
    }
    *pool.parts().store.faults.on_disk.lock() = Some(on_disk);
}

fn outlive_power_cuts(gather: GatherPolicy, unit: u64, before: impl Fn() -> Vec<Step>) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (gathered, records) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 24,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    });
    let steps = prop::collection::vec(step(), 1..40);
    let ran = runner.run(&steps, |steps| {
        let steps: Vec<Step> = before().into_iter().chain(steps).collect();
        let counts = runtime.block_on(run(&steps, gather, unit));
        gathered.set(gathered.get() + counts.0);
        records.set(records.get() + counts.1);
        Ok(())
    });
    ran.unwrap();
    (gathered.get(), records.get())
}

#[test]
fn stable_bytes_outlive_power_cuts_and_are_never_undone() {
    let (gathered, records) = outlive_power_cuts(GatherPolicy::Never, 1, Vec::new);
    assert!(gathered == 0 && records > 0);
}

#[test]
fn stable_bytes_beside_gathered_ones_outlive_power_cuts_and_are_never_undone() {
    let (gathered, records) = outlive_power_cuts(GatherPolicy::Always, 500, || disordered().collect());
    assert!(gathered > 0 && records > 0, "{gathered} gathered, {records} records");
}
