//! Notes beside the database how far it has come, before it goes there, so that no file id is given twice whichever
//! database is found at the next start (`timeline`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::sqlite::wal_sync::Log;
use crate::thread::spawn;
use crate::timeline::Mark;

/// File ids that one note covers.
const FILES: u64 = 1 << 16;
/// How often it is noted how many groups there are, while there are more. Two syncs of a small file each time, beside commits.
const PERIOD: Duration = Duration::from_secs(1);

/// Where marks are kept: the data directory, and each pool.
pub trait Witness: Send + Sync {
    /// Durably. Errs if the mark is not in the data directory; a failure elsewhere is logged and left. Blocks.
    fn note(&self, mark: &Mark, reach: Reach) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Everywhere,
    DataDirectory,
}

#[derive(Default)]
pub struct Keeper {
    /// Held while a mark is written; a leaf lock.
    kept: Mutex<WitnessedMark>,
    /// Ids below are at hand.
    files_end: AtomicU64,
    /// Ids below may be given. All, until something is noted.
    covered: AtomicU64,
    /// Committed; on disk once the log is synced, where there is one.
    groups: AtomicU64,
    thread: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

#[derive(Default)]
struct WitnessedMark {
    witness: Option<Arc<dyn Witness>>,
    /// As it was written last.
    mark: Mark,
}

impl Keeper {
    /// Sets the mark of the database. Nothing is noted before `keep`.
    pub fn begin(&self, mark: Mark) {
        self.note_groups(mark.groups);
        self.files_end.store(mark.files, Ordering::Release);
        self.covered.store(u64::MAX, Ordering::Release);
        self.kept.lock().mark = mark;
    }

    /// From now on every mark is noted, and the current one at once. If it cannot be written (the disk is full),
    /// operations that need no new file id go on; the first note that can be written covers the ids.
    pub fn keep(self: &Arc<Keeper>, witness: Arc<dyn Witness>, log: Option<Arc<Log>>) -> io::Result<()> {
        {
            let mut kept = self.kept.lock();
            kept.witness = Some(witness);
            let files = self.files_end.load(Ordering::Acquire).saturating_add(FILES);
            let mark = Mark { files, ..kept.mark };
            let written = kept.write(mark, Reach::Everywhere);
            self.covered.store(if written.is_ok() { files } else { 0 }, Ordering::Release);
            if let Err(error) = written {
                tracing::error!(%error, "namespace cannot record its timeline; no files can be created");
            }
        }
        let (stop, stopped) = channel();
        let keeper = Arc::clone(self);
        let thread = spawn("namespace-note", move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                keeper.try_to_catch_up(log.as_deref());
            }
        })?;
        *self.thread.lock() = Some((stop, thread));
        Ok(())
    }

    pub fn note_groups(&self, groups: u64) {
        self.groups.store(groups, Ordering::Release);
    }

    /// Whether the ids at hand may be given.
    pub fn is_covering(&self) -> bool {
        self.files_end.load(Ordering::Acquire) <= self.covered.load(Ordering::Acquire)
    }

    /// Before an id at or above the end that was covered last is given.
    pub fn cover(&self, files_end: u64) -> io::Result<()> {
        self.files_end.store(files_end, Ordering::Release);
        if files_end <= self.covered.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut kept = self.kept.lock();
        let files = files_end.saturating_add(FILES);
        // Groups may not be on disk yet: `catch_up` notes them.
        let mark = Mark { files, ..kept.mark };
        kept.write(mark, Reach::Everywhere)?;
        self.covered.store(files, Ordering::Release);
        Ok(())
    }

    /// The database has another draw.
    pub fn move_on(&self, (place, drawn): (u64, i64)) {
        let mut kept = self.kept.lock();
        let mark = Mark { place, drawn, ..kept.mark };
        if let Err(error) = kept.write(mark, Reach::Everywhere) {
            tracing::error!(%error, "namespace cannot record its new database connection");
        }
    }

    /// All groups are on disk, and no id is given any more.
    pub fn end_cleanly(&self, groups: u64) {
        let mut kept = self.kept.lock();
        let mark = Mark { files: self.files_end.load(Ordering::Acquire), groups, ..kept.mark };
        if let Err(error) = kept.write(mark, Reach::Everywhere) {
            tracing::warn!(%error, "namespace cannot record its end");
        }
        self.note_groups(groups);
    }

    /// Idempotent; blocks.
    pub fn stop(&self, log: Option<&Log>) {
        if let Some((stop, thread)) = self.thread.lock().take() {
            drop(stop);
            // If it panicked, the panic hook has reported it.
            let _ = thread.join();
            self.try_to_catch_up(log);
        }
    }

    /// Brings every group that was committed to the disk, and notes it. Blocks.
    pub fn catch_up(&self, log: Option<&Log>) -> io::Result<()> {
        let mut kept = self.kept.lock();
        let groups = self.groups.load(Ordering::Acquire);
        if groups == kept.mark.groups {
            return Ok(());
        }
        log.map_or(Ok(()), Log::sync)?;
        let mark = Mark { groups, ..kept.mark };
        kept.write(mark, Reach::DataDirectory)
    }

    /// The same where nobody waits for it: it is tried again.
    fn try_to_catch_up(&self, log: Option<&Log>) {
        // The failure was reported. The next change mends it.
        if log.is_some_and(Log::has_failed) {
            return;
        }
        if let Err(error) = self.catch_up(log) {
            tracing::warn!(%error, "namespace cannot record the number of its changes");
        }
    }
}

impl WitnessedMark {
    fn write(&mut self, mark: Mark, reach: Reach) -> io::Result<()> {
        if let Some(witness) = &self.witness {
            witness.note(&mark, reach)?;
        }
        self.mark = mark;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use api::{Cookie, Namespace, NamespaceError};
    use types::{FileId, Identity};

    use super::*;
    use crate::scratch::{Engine, name, regular};
    use crate::service::SqlNamespace;
    use crate::timeline::Noted;

    #[derive(Default)]
    struct Memory {
        marks: Mutex<Vec<Mark>>,
        is_full: AtomicBool,
        tried: AtomicU64,
    }

    impl Witness for Memory {
        fn note(&self, mark: &Mark, _: Reach) -> io::Result<()> {
            self.tried.fetch_add(1, Ordering::Relaxed);
            if self.is_full.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.marks.lock().push(*mark);
            Ok(())
        }
    }

    impl Memory {
        fn last(&self) -> Mark {
            *self.marks.lock().last().unwrap()
        }
    }

    #[test]
    fn no_id_is_given_that_was_not_covered_before() {
        let (keeper, memory) = (Arc::new(Keeper::default()), Arc::new(Memory::default()));
        keeper.begin(Mark { files: 3, ..Mark::default() });
        keeper.keep(memory.clone(), None).unwrap();
        assert_eq!(memory.last().files, 3 + FILES);
        keeper.cover(3 + FILES).unwrap();
        assert_eq!(memory.marks.lock().len(), 1, "a block is written once");
        keeper.cover(4 + FILES).unwrap();
        assert_eq!(memory.last().files, 4 + 2 * FILES);
        memory.is_full.store(true, Ordering::Relaxed);
        assert!(keeper.cover(5 + 2 * FILES).is_err());
        memory.is_full.store(false, Ordering::Relaxed);
        keeper.end_cleanly(7);
        assert_eq!((memory.last().files, memory.last().groups), (5 + 2 * FILES, 7));
        keeper.stop(None);
    }

    /// A database that lacked it was opened, and gave it again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_epoch_that_was_raised_is_noted_before_a_pool_hears_of_it() {
        for engine in Engine::all() {
            let (namespace, memory) = (engine.open(), Arc::new(Memory::default()));
            namespace.keep_marks(memory.clone()).unwrap();
            let made =
                namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await.unwrap();
            let before = namespace.shared.keeper.groups.load(Ordering::Acquire);
            api::Locations::raise_epoch(&*namespace, made.attributes.file).await.unwrap();
            assert!(memory.last().groups > before);
            namespace.close().await;
        }
    }

    /// The failure was dropped, and a pool got an epoch that a power cut took back.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_epoch_that_cannot_be_noted_is_an_error_and_none_at_all() {
        for engine in Engine::all() {
            let (namespace, memory) = (engine.open(), Arc::new(Memory::default()));
            namespace.keep_marks(memory.clone()).unwrap();
            let made =
                namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await.unwrap();
            let raise = || api::Locations::raise_epoch(&*namespace, made.attributes.file);
            memory.is_full.store(true, Ordering::Relaxed);
            assert!(matches!(raise().await, Err(NamespaceError::Database(_))));
            memory.is_full.store(false, Ordering::Relaxed);
            raise().await.unwrap();
            if let Some(log) = &namespace.log {
                namespace.shared.keeper.note_groups(u64::MAX);
                log.fail();
                assert!(namespace.shared.keeper.catch_up(Some(log)).is_err(), "the log is not on disk");
                assert!(memory.last().groups < u64::MAX);
                log.mend();
                namespace.shared.keeper.note_groups(memory.last().groups);
            }
            namespace.close().await;
        }
    }

    /// A start after a power cut would take the database for one that lacks groups.
    #[test]
    fn a_note_of_new_ids_says_nothing_of_groups_that_may_not_be_on_disk() {
        let (keeper, memory) = (Arc::new(Keeper::default()), Arc::new(Memory::default()));
        keeper.begin(Mark { files: 3, groups: 5, ..Mark::default() });
        keeper.keep(memory.clone(), None).unwrap();
        keeper.note_groups(6);
        keeper.cover(4 + FILES).unwrap();
        assert_eq!(memory.marks.lock()[1].groups, 5);
        keeper.stop(None);
        assert_eq!(memory.last().groups, 6);
    }

    /// An older copy from the same start whose groups nobody has noted.
    #[tokio::test]
    async fn cookies_go_on_above_all_that_were_given_as_file_ids_do() {
        let engine = &Engine::all()[0];
        let (namespace, memory) = (engine.open(), Arc::new(Memory::default()));
        namespace.keep_marks(memory.clone()).unwrap();
        let copy = engine.copied();
        let root = Identity::root();
        // More than were reserved when it was copied.
        for number in 0..1100 {
            let name = name(&format!("a{number}"));
            namespace.create(&root, FileId::ROOT, &name, &regular()).await.unwrap();
        }
        let noted = Noted { by: "pool-0".to_owned(), mark: Mark { groups: 0, ..memory.last() } };
        let again = copy.open_noted(vec![noted]);
        again.create(&root, FileId::ROOT, &name("b"), &regular()).await.unwrap();
        let (given, next) = (last_cookie(&namespace).await, last_cookie(&again).await);
        assert!(given < next, "{next:?} was given before: {given:?}");
    }

    async fn last_cookie(namespace: &SqlNamespace) -> Cookie {
        let page = namespace.list(&Identity::root(), FileId::ROOT, Cookie::START, 4096).await.unwrap();
        assert!(page.is_last);
        page.entries.iter().map(|entry| entry.cookie).max().unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_full_disk_where_it_is_noted_refuses_new_files_alone_and_not_for_ever() {
        for engine in Engine::all() {
            let (namespace, memory) = (engine.open(), Arc::new(Memory::default()));
            memory.is_full.store(true, Ordering::Relaxed);
            namespace.keep_marks(memory.clone()).unwrap();
            // Told though nobody asks for anything.
            while namespace.growth_trouble().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let create = |text: &'static str| {
                let namespace = Arc::clone(&namespace);
                async move { namespace.create(&Identity::root(), FileId::ROOT, &name(text), &regular()).await }
            };
            assert!(matches!(create("refused").await, Err(NamespaceError::NoSpace)));
            // Once a second at most: it is written to all pools each time.
            let tried = memory.tried.load(Ordering::Relaxed);
            for _ in 0..50 {
                assert!(create("refused").await.is_err());
            }
            let tried = memory.tried.load(Ordering::Relaxed) - tried;
            assert!(tried < 25, "{tried} attempts for 50 changes");
            assert_eq!(namespace.trouble(), None, "all other changes are taken");
            assert_eq!(namespace.growth_trouble().unwrap().kind, crate::trouble::TroubleKind::Full);
            let touched = api::SetAttributes { mode: Some(0o700), ..api::SetAttributes::default() };
            namespace.set_attributes(&Identity::root(), FileId::ROOT, &touched).await.unwrap();
            memory.is_full.store(false, Ordering::Relaxed);
            while namespace.growth_trouble().is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let made = create("made").await.unwrap().attributes.file;
            assert!(made.0 < memory.last().files);
            namespace.close().await;
            assert!(made.0 < memory.last().files && memory.last().groups > 0);
        }
    }
}
