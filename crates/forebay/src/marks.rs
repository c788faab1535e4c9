//! Where it is noted how far the namespace has come: `timeline.json` in the data directory and in each pool.
//!
//! The data directory's note is on disk before anything goes on. A pool's disk that does not answer is waited for a
//! moment and told of once: nothing else may stand still because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::Result;
use namespace::{Mark, Noted, Reach, Witness};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use types::PoolId;

use crate::data_dir::DataDir;
use crate::versioned;

const NAME: &str = "timeline.json";
const HERE: &str = "the data directory";
const POOL: &str = "pool-";
const VERSION: u32 = 1;
/// For the disks of pools.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    /// Of heads.
    starts: u64,
    /// The number of the last draw, and what was drawn.
    place: u64,
    drawn: i64,
    /// Every file id ever given lies below.
    files: u64,
    /// Groups of changes that the namespace had.
    groups: u64,
}

/// Reads the notes of earlier starts in the data directory and the pools.
pub fn noted(data: &DataDir) -> Result<Vec<Noted>> {
    let pools = (0..data.pools).map(|number| (format!("{POOL}{number}"), data.pool(number)));
    let here = (HERE.to_owned(), data.path().to_owned());
    let mut found = Vec::new();
    for (by, dir) in std::iter::once(here).chain(pools) {
        if let Some(mark) = read(&dir)? {
            found.push(Noted { by, mark });
        }
    }
    for pool in behind(&found) {
        tracing::warn!(
            pool,
            "pool was absent at the last starts; if its directory was restored from a copy, files may have older contents"
        );
    }
    Ok(found)
}

/// The pools that may have been put back from a copy: what they lack may be lost.
pub fn pools_behind(noted: &[Noted]) -> BTreeSet<PoolId> {
    let number = |by: &str| by.strip_prefix(POOL)?.parse().ok().map(PoolId);
    behind(noted).filter_map(number).collect()
}

/// Those that lack the last draw. Pools are told of it before the data directory is.
fn behind(noted: &[Noted]) -> impl Iterator<Item = &str> {
    let newest = noted.iter().map(|noted| noted.mark.place).max().unwrap_or_default();
    let older = noted.iter().filter(move |noted| noted.mark.place < newest && noted.by != HERE);
    older.map(|noted| noted.by.as_str())
}

fn read(dir: &Path) -> Result<Option<Mark>> {
    let file = dir.join(NAME);
    let remedy = "remove it if the namespace is the newest there is";
    let document = versioned::read(&file, VERSION, remedy)?;
    Ok(document.map(|Document { starts, place, drawn, files, groups, .. }| Mark {
        starts,
        place,
        drawn,
        files,
        groups,
    }))
}

pub struct Marks {
    data: PathBuf,
    /// The pools that are there now and are to be told.
    noting: Box<dyn Fn() -> BTreeSet<PoolId> + Send + Sync>,
    /// All that were there at some note. Leaf lock.
    pools: Mutex<BTreeMap<PoolId, Arc<OfPool>>>,
}

struct OfPool {
    dir: PathBuf,
    turn: Mutex<Turn>,
    /// The last note was not written there, or the pool was not there.
    lacks_note: AtomicBool,
    /// The last one could not be written, which was told.
    is_failing: AtomicBool,
}

/// A disk may take longer for a note than the next one takes to come.
#[derive(Default)]
struct Turn {
    is_writing: bool,
    next: Option<Arc<[u8]>>,
}

impl Marks {
    /// Asks for each note which pools are to have it. Those that are behind are not: their files were not compared with
    /// the namespace yet.
    pub fn new(data: &DataDir, noting: impl Fn() -> BTreeSet<PoolId> + Send + Sync + 'static) -> Marks {
        Marks { data: data.path().to_owned(), noting: Box::new(noting), pools: Mutex::default() }
    }
}

impl Witness for Marks {
    fn note(&self, mark: &Mark, reach: Reach) -> io::Result<()> {
        let Mark { starts, place, drawn, files, groups } = *mark;
        let document = Document { version: VERSION, starts, place, drawn, files, groups };
        let mut text = serde_json::to_vec_pretty(&document)?;
        text.push(b'\n');
        self.note_in_pools(&Arc::from(text.as_slice()), reach);
        let of_file = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", self.data.join(NAME).display()))
        };
        durable::replace(&self.data.join(NAME), &text).map_err(of_file)
    }
}

impl Marks {
    /// One that lacks an earlier note gets the next there is, or it would be taken for one put back from a copy.
    fn note_in_pools(&self, text: &Arc<[u8]>, reach: Reach) {
        let (tell, told) = channel();
        let mut under_way = 0;
        let pools = self.pools();
        let is_due =
            |pool: &&Arc<OfPool>| reach == Reach::Everywhere || pool.lacks_note.load(Ordering::Acquire);
        for pool in pools.iter().filter(is_due) {
            if !pool.begin(Arc::clone(text)) {
                continue;
            }
            let (writer, tell) = (Arc::clone(pool), tell.clone());
            let noting = std::thread::Builder::new().name("pool-note".to_owned()).spawn(move || {
                while let Some(text) = writer.next() {
                    writer.told(durable::replace(&writer.dir.join(NAME), &text));
                }
                // Nobody may be waiting any more.
                let _ = tell.send(());
            });
            match noting {
                Ok(_) => under_way += 1,
                Err(error) => pool.give_up(error),
            }
        }
        let end = Instant::now() + PATIENCE;
        for _ in 0..under_way {
            if told.recv_timeout(end.saturating_duration_since(Instant::now())).is_err() {
                break;
            }
        }
        for pool in pools.iter().filter(|pool| pool.turn.lock().is_writing) {
            pool.told(Err(io::Error::from(ErrorKind::TimedOut)));
        }
    }

    /// Those that are there now. The others lack this note.
    fn pools(&self) -> Vec<Arc<OfPool>> {
        let now = (self.noting)();
        let mut pools = self.pools.lock();
        for id in &now {
            let of_pool = || Arc::new(OfPool::new(DataDir::pool_of(&self.data, id.0)));
            pools.entry(*id).or_insert_with(of_pool);
        }
        let (there, gone): (Vec<_>, Vec<_>) = pools.iter().partition(|(id, _)| now.contains(id));
        gone.into_iter().for_each(|(_, pool)| pool.lacks_note.store(true, Ordering::Release));
        there.into_iter().map(|(_, pool)| Arc::clone(pool)).collect()
    }
}

impl OfPool {
    fn new(dir: PathBuf) -> OfPool {
        let (lacks_note, is_failing) = (AtomicBool::new(true), AtomicBool::new(false));
        OfPool { dir, turn: Mutex::default(), lacks_note, is_failing }
    }

    /// Whether a thread is to be started that writes it: where one is at work, it writes the newest note as its next.
    fn begin(&self, text: Arc<[u8]>) -> bool {
        let mut turn = self.turn.lock();
        turn.next = Some(text);
        !std::mem::replace(&mut turn.is_writing, true)
    }

    fn next(&self) -> Option<Arc<[u8]>> {
        let mut turn = self.turn.lock();
        turn.is_writing = turn.next.is_some();
        turn.next.take()
    }

    fn give_up(&self, error: io::Error) {
        *self.turn.lock() = Turn::default();
        self.told(Err(error));
    }

    fn told(&self, written: io::Result<()>) {
        self.lacks_note.store(written.is_err(), Ordering::Release);
        let was_failing = self.is_failing.swap(written.is_err(), Ordering::AcqRel);
        if let (Err(error), false) = (written, was_failing) {
            let file = self.dir.join(NAME).display().to_string();
            tracing::warn!(file, %error, "cannot write the timeline of the namespace to the pool");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SystemRandom;
    use std::fs;

    #[test]
    fn a_pool_whose_disk_is_slow_gets_the_newest_mark_last() {
        let dir = tempfile::tempdir().unwrap();
        let pool = OfPool::new(dir.path().to_owned());
        let text = |mark: &str| Arc::from(mark.as_bytes());
        assert!(pool.begin(text("first")), "a thread is wanted");
        assert_eq!(pool.next(), Some(text("first")));
        assert!(!pool.begin(text("second")) && !pool.begin(text("third")), "the thread is at work");
        assert_eq!(pool.next(), Some(text("third")));
        assert_eq!(pool.next(), None);
        assert!(pool.begin(text("fourth")), "the thread has ended");
        pool.give_up(io::Error::from(ErrorKind::WouldBlock));
        assert!(pool.begin(text("fifth")), "the thread could not be started");
    }

    #[test]
    fn marks_are_found_again_in_the_data_directory_and_in_each_pool() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), Some(2), &SystemRandom).unwrap();
        assert_eq!(noted(&data).unwrap(), []);
        fs::create_dir_all(data.pool(1)).unwrap();
        let mark = Mark { starts: 3, place: 4, drawn: -5, files: u64::MAX, groups: 7 };
        // A pool that cannot be written does not stand in the way.
        Marks::new(&data, || BTreeSet::from([PoolId(0), PoolId(1)])).note(&mark, Reach::Everywhere).unwrap();
        let found = noted(&data).unwrap();
        let by: Vec<&str> = found.iter().map(|noted| noted.by.as_str()).collect();
        assert_eq!(by, ["the data directory", "pool-1"]);
        assert!(found.iter().all(|noted| noted.mark == mark));
        assert_eq!(behind(&found).count(), 0);
        let next = Mark { place: 5, ..mark };
        let copy = fs::read(data.pool(1).join(NAME)).unwrap();
        Marks::new(&data, || BTreeSet::from([PoolId(0), PoolId(1)])).note(&next, Reach::Everywhere).unwrap();
        fs::write(data.pool(1).join(NAME), copy).unwrap();
        let found = noted(&data).unwrap();
        assert_eq!(behind(&found).collect::<Vec<_>>(), ["pool-1"], "it was put back");
        fs::write(data.pool(1).join(NAME), "{").unwrap();
        assert!(noted(&data).unwrap_err().to_string().contains("pool-1/timeline.json is damaged"));
        fs::write(data.pool(1).join(NAME), r#"{"version": 2}"#).unwrap();
        assert!(noted(&data).unwrap_err().to_string().contains("newer forebay"));
    }

    /// It was taken for one that was put back from a copy at the next start.
    #[test]
    fn a_pool_that_takes_writes_again_gets_the_next_note() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), Some(1), &SystemRandom).unwrap();
        fs::create_dir_all(data.pool(0)).unwrap();
        let in_the_way = data.pool(0).join(format!("{NAME}.new"));
        fs::create_dir(&in_the_way).unwrap();
        let mark = Mark { starts: 3, place: 4, drawn: -5, files: 6, groups: 7 };
        let marks = Marks::new(&data, || BTreeSet::from([PoolId(0)]));
        marks.note(&mark, Reach::Everywhere).unwrap();
        assert_eq!(noted(&data).unwrap().len(), 1, "in the data directory alone");
        fs::remove_dir(&in_the_way).unwrap();
        let next = Mark { groups: 8, ..mark };
        marks.note(&next, Reach::DataDirectory).unwrap();
        assert!(noted(&data).unwrap().iter().all(|noted| noted.mark == next));
        // Once is enough.
        marks.note(&Mark { groups: 9, ..mark }, Reach::DataDirectory).unwrap();
        assert_eq!(read(&data.pool(0)).unwrap(), Some(next));
    }

    #[test]
    fn marks_go_to_the_pools_that_are_there_now() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), Some(2), &SystemRandom).unwrap();
        (0..2).for_each(|number| fs::create_dir_all(data.pool(number)).unwrap());
        let there = Arc::new(Mutex::new(BTreeSet::from([PoolId(0)])));
        let asked = Arc::clone(&there);
        let marks = Marks::new(&data, move || asked.lock().clone());
        let mark = |groups| Mark { starts: 3, place: 4, drawn: -5, files: 6, groups };
        let noted_groups = || [0, 1].map(|number| read(&data.pool(number)).unwrap().map(|mark| mark.groups));
        marks.note(&mark(1), Reach::Everywhere).unwrap();
        assert_eq!(noted_groups(), [Some(1), None]);
        *there.lock() = BTreeSet::from([PoolId(1)]);
        marks.note(&mark(2), Reach::DataDirectory).unwrap();
        assert_eq!(noted_groups(), [Some(1), Some(2)], "one that was added lacks the notes before");
        *there.lock() = BTreeSet::from([PoolId(0), PoolId(1)]);
        marks.note(&mark(3), Reach::DataDirectory).unwrap();
        assert_eq!(noted_groups(), [Some(3), Some(2)], "one that is back lacks the notes meanwhile");
    }
}
