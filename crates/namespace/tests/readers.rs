//! Readers and writers at once, on a cache that keeps nothing for long: nobody sees less than was acknowledged.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::{
    Cookie, CreateKind, ExpectedFile, Namespace, NamespaceError, Properties, SetAttributes, Stability,
};
use forebay_namespace::{Config, Database, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::namespace_suite::{name, root, spec, written};
use types::{Checksum, ChecksumKind, FileId};

const FILES: usize = 24;
const ROUNDS: u64 = 150;

/// One file that always is there, and one name that comes and goes.
struct Watched {
    file: FileId,
    /// The highest change that was acknowledged to a writer.
    acknowledged: AtomicU64,
    text: String,
    /// Operations on the name begun and ended; it is there while as many ended as begun and the number is odd.
    begun: AtomicU64,
    ended: AtomicU64,
}

struct Stage {
    namespace: SqlNamespace,
    watched: Vec<Watched>,
    is_over: AtomicBool,
}

async fn stage(dir: &tempfile::TempDir) -> Arc<Stage> {
    let namespace = SqlNamespace::open(Config {
        database: Database::Sqlite(dir.path().to_owned()),
        clock: Arc::new(ManualClock::new(1_000_000)),
        root_owner: (0, 0),
        sync: Sync::Interval(Duration::from_millis(20)),
        cache_bytes: 4 << 10,
        queue_len_max: 1024,
        group_len_max: 16,
    })
    .unwrap();
    let mut watched = Vec::new();
    for number in 0..FILES {
        let text = name(&format!("file{number}"));
        let made =
            namespace.create(&root(), FileId::ROOT, &text, &spec(CreateKind::Regular, 0o644)).await.unwrap();
        watched.push(Watched {
            file: made.attributes.file,
            acknowledged: AtomicU64::new(0),
            text: format!("name{number}"),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        });
    }
    Arc::new(Stage { namespace, watched, is_over: AtomicBool::new(false) })
}

impl Stage {
    async fn write(&self, number: usize) {
        let watched = &self.watched[number];
        let text = name(&watched.text);
        for round in 0..ROUNDS {
            let shown = match round % 3 {
                0 => {
                    let set =
                        SetAttributes { mode: Some(0o600 + (round % 8) as u32), ..SetAttributes::default() };
                    self.namespace.set_attributes(&root(), watched.file, &set).await.unwrap()
                }
                1 => self
                    .namespace
                    .record_write(watched.file, &written(round, Stability::Unstable))
                    .await
                    .unwrap(),
                _ => self
                    .namespace
                    .record_write(watched.file, &written(round, Stability::FileSync))
                    .await
                    .unwrap(),
            };
            assert!(watched.acknowledged.fetch_max(shown.change, Ordering::SeqCst) < shown.change);
            watched.begun.fetch_add(1, Ordering::SeqCst);
            if round % 2 == 0 {
                let regular = spec(CreateKind::Regular, 0o644);
                self.namespace.create(&root(), FileId::ROOT, &text, &regular).await.unwrap();
            } else {
                self.namespace.unlink(&root(), FileId::ROOT, &text, ExpectedFile::Any).await.unwrap();
            }
            watched.ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn read(&self, offset: usize) {
        let mut at = offset;
        while !self.is_over.load(Ordering::SeqCst) {
            at = (at + 7) % FILES;
            let watched = &self.watched[at];
            let acknowledged = watched.acknowledged.load(Ordering::SeqCst);
            let shown = self.namespace.attributes(watched.file).await.unwrap();
            assert!(shown.change >= acknowledged, "{:#x} after {acknowledged:#x}", shown.change);

            let ended = watched.ended.load(Ordering::SeqCst);
            let found = match self.namespace.lookup(&root(), FileId::ROOT, &name(&watched.text)).await {
                Ok(_) => true,
                Err(NamespaceError::NotFound) => false,
                Err(error) => panic!("lookup: {error}"),
            };
            if watched.begun.load(Ordering::SeqCst) == ended {
                assert_eq!(found, ended % 2 == 1, "{} after {ended}", watched.text);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn list(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            let acknowledged: Vec<u64> =
                self.watched.iter().map(|watched| watched.acknowledged.load(Ordering::SeqCst)).collect();
            let page = self.namespace.list(&root(), FileId::ROOT, Cookie::START, 1000).await.unwrap();
            for (watched, acknowledged) in self.watched.iter().zip(acknowledged) {
                let entry = page.entries.iter().find(|entry| entry.attributes.file == watched.file).unwrap();
                assert!(entry.attributes.change >= acknowledged);
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reader_sees_less_than_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let stage = stage(&dir).await;
    let mut readers = Vec::new();
    for offset in 0..4 {
        let stage = Arc::clone(&stage);
        readers.push(tokio::spawn(async move { stage.read(offset).await }));
    }
    let lister = Arc::clone(&stage);
    readers.push(tokio::spawn(async move { lister.list().await }));
    let writers: Vec<_> = (0..FILES)
        .map(|number| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move { stage.write(number).await })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    stage.is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    stage.namespace.close().await;
    assert_eq!(stage.namespace.check().unwrap(), []);
}

/// Of the data after so many writes.
fn sum(version: u64) -> Checksum {
    Checksum::new(ChecksumKind::Crc32c, &u32::try_from(version).unwrap().to_be_bytes()).unwrap()
}

impl Stage {
    /// Writes and records what it wrote; `begun` and `ended` count the writes.
    async fn sum_up(&self, number: usize) {
        let (watched, namespace) = (&self.watched[number], &self.namespace);
        for round in 0..ROUNDS {
            let version = watched.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let stability = if round % 3 == 0 { Stability::FileSync } else { Stability::Unstable };
            let shown = namespace.record_write(watched.file, &written(1, stability)).await.unwrap();
            watched.ended.fetch_add(1, Ordering::SeqCst);
            if round % 4 != 3 {
                assert!(
                    namespace.record_checksums(watched.file, shown.change, &[sum(version)]).await.unwrap()
                );
                assert_eq!(namespace.checksums(watched.file).await.unwrap(), [sum(version)]);
            }
            if round % 5 == 0 {
                let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
                namespace.set_attributes(&root(), watched.file, &set).await.unwrap();
            }
        }
    }

    async fn read_sums(&self, offset: usize) -> u64 {
        let (mut at, mut seen) = (offset, 0);
        while !self.is_over.load(Ordering::SeqCst) {
            at = (at + 7) % FILES;
            let watched = &self.watched[at];
            let ended = watched.ended.load(Ordering::SeqCst);
            let found = self.namespace.checksums(watched.file).await.unwrap();
            let begun = watched.begun.load(Ordering::SeqCst);
            if let [found] = found[..] {
                let allowed = (ended..=begun).map(sum).any(|sum| sum == found);
                assert!(allowed, "{found} between {ended:#x} and {begun:#x}");
                seen += 1;
            }
            tokio::task::yield_now().await;
        }
        seen
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reader_sees_checksums_of_data_that_was_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let stage = stage(&dir).await;
    let readers: Vec<_> = (0..4)
        .map(|offset| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move { stage.read_sums(offset).await })
        })
        .collect();
    let writers: Vec<_> = (0..FILES)
        .map(|number| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move { stage.sum_up(number).await })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    stage.is_over.store(true, Ordering::SeqCst);
    let mut seen = 0;
    for reader in readers {
        seen += reader.await.unwrap();
    }
    assert!(seen > 0, "some looked while there were checksums");
    stage.namespace.close().await;
    assert_eq!(stage.namespace.check().unwrap(), []);
}
