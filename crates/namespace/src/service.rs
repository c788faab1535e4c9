//! The seams of `api`, answered: warm reads from the cache, cold ones by a reader, mutations by the committer.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use api::{
    ClientRecord, Cookie, CreateSpec, Created, ExpectedEnds, ExpectedFile, FileLocations, Found, Linked,
    Locality, Locations, Namespace, NamespaceError, Page, RecoveryRecords, Renamed, Replace, ReplicaRef,
    SetAttributes, Stability, Unlinked, Usage, Written,
};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::sleep;
use types::{Access, Attributes, Epoch, FileId, FileKind, Identity, Name, PoolId, SymlinkTarget};

use crate::cache::Learned;
use crate::check::Problem;
use crate::committer::CommitterState;
use crate::config::Sync;
use crate::counts::{Figures, Question};
use crate::engine::Background;
use crate::group::{Group, OpResult};
use crate::inode::{Inode, NO_PARENT};
use crate::locality::Placement;
use crate::lookups::{Lookups, READ_ATTEMPTS, turn};
use crate::ops;
use crate::queue::Order;
use crate::reads::{Reads, Which};
use crate::session::Purpose;
use crate::sqlite::wal_sync::Log;
use crate::store::Wanted;
use crate::trouble::{Trouble, TroubleKind};
use crate::unsettled::Merged;
use crate::written::Delta;

/// Entries of one page, whatever the caller asks.
const PAGE_LEN_MAX: usize = 4096;
/// Attempts to base an unstable write on a cold file while groups pass; then it goes through the committer.
const MERGE_ATTEMPTS: usize = 3;
/// How often a full queue is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A namespace in an SQL database. Dropping it ends it cleanly, too, but blocks.
pub struct SqlNamespace {
    pub(crate) shared: Arc<CommitterState>,
    pub(crate) reads: Arc<dyn Reads>,
    pub(crate) lookups: Lookups,
    pub(crate) committer: Mutex<Option<JoinHandle<()>>>,
    pub(crate) background: Arc<Mutex<Box<dyn Background>>>,
    pub(crate) log: Option<Arc<Log>>,
    /// A length was refused that replicas may have already.
    pub(crate) lengths_in_doubt: AtomicBool,
}

impl SqlNamespace {
    /// Why no change is taken now.
    pub fn trouble(&self) -> Option<Trouble> {
        // First what is known of the database itself: a change that it refused says less.
        let of_database = self.background.lock().trouble();
        of_database.or_else(|| self.shared.troubles.lock().changes.clone())
    }

    /// Why a change is refused now that needs more room; others are taken.
    pub fn growth_trouble(&self) -> Option<Trouble> {
        self.shared.troubles.lock().growth.clone()
    }

    /// To be asked after the end: whether the database has refused a length since the start, or may lack one. Replicas are cut
    /// before their files, so one may be shorter; and pools may keep a length that only memory has.
    pub fn has_lengths_in_doubt(&self) -> bool {
        let has_all = self.shared.has_ended_cleanly.load(Ordering::Acquire);
        !has_all || self.lengths_in_doubt.load(Ordering::Acquire)
    }

    /// `trouble`, in words.
    pub fn read_only(&self) -> Option<String> {
        self.trouble().map(|trouble| trouble.why)
    }

    /// Failures that an answered change survives.
    pub fn sync(&self) -> Sync {
        self.shared.sync
    }

    /// As of the last change, also while a database does not answer; `usage` waits for it.
    pub fn totals(&self) -> Usage {
        let totals = *self.shared.progress.totals.lock();
        Usage { files: totals.files.max(0).cast_unsigned(), bytes: totals.bytes.max(0).cast_unsigned() }
    }

    /// No file that anybody has seen has a higher number. Files that are made from now on have one.
    pub fn newest_file(&self) -> FileId {
        FileId(self.shared.progress.next_file.load(Ordering::Acquire).saturating_sub(1))
    }

    /// Waits until the committer has taken an operation that changes nothing, whatever comes of it. False: it takes none
    /// any more, and only a restart helps.
    pub async fn takes_turns(&self) -> bool {
        loop {
            let taken = self.shared.submit_for(Order::BY_INSTANCE, [], |_| Ok(())).await;
            match self.trouble() {
                Some(trouble) if trouble.kind == TroubleKind::NeedsRestart => return false,
                Some(_) => return true,
                // Its queue is full: it is asked again when it may have got on.
                None if matches!(taken, Err(NamespaceError::Busy)) => sleep(BUSY_PAUSE).await,
                None => return true,
            }
        }
    }

    /// Waits until another head has the namespace; for ever if none can. A head that goes on to answer clients keeps
    /// their leases alive, under which they read from their caches.
    pub async fn taken_over(&self) {
        match &self.shared.presence {
            Some(presence) => presence.taken_over().await,
            None => std::future::pending().await,
        }
    }

    /// Counters so far, and how much is in memory and waits now.
    pub fn figures(&self) -> Figures {
        Figures { queued: self.shared.writes.len() as u64, ..self.shared.cache.figures() }
    }

    /// Takes nothing more, finishes what was handed in, writes what waits in memory, and ends. Idempotent.
    pub async fn close(&self) {
        self.shared.writes.close();
        self.reads.close();
        let (committer, background) = (self.committer.lock().take(), Arc::clone(&self.background));
        let (keeper, log) = (Arc::clone(&self.shared.keeper), self.log.clone());
        // Only a panic of ours could fail it, and the panic hook has reported that.
        let _ = tokio::task::spawn_blocking(move || {
            join(committer, &background);
            keeper.stop(log.as_deref());
        })
        .await;
    }

    /// Reads everything, for a namespace that nobody changes meanwhile; also when it is closed. Blocks.
    pub fn check(&self) -> Result<Vec<Problem>, NamespaceError> {
        let mut session = self.reads.session(Purpose::Look)?;
        crate::check::check(&mut *session).map_err(|error| (&error).into())
    }

    /// As [`check`](Self::check); `tell` is called after each of [`ProblemKind::ALL`](crate::ProblemKind::ALL). `None`: it
    /// broke the check off.
    pub fn check_telling(
        &self,
        tell: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Vec<Problem>>, NamespaceError> {
        let mut session = self.reads.session(Purpose::Look)?;
        crate::check::check_telling(&mut *session, tell).map_err(|error| (&error).into())
    }

    /// Without waiting for the disk. `None`: it has to go through the committer.
    async fn record_unstable_write(
        &self,
        file: FileId,
        delta: &Delta,
    ) -> Result<Option<Attributes>, NamespaceError> {
        ops::writes::require_regular(&self.lookups.inode(file).await?)?;
        let CommitterState { cache, instance, .. } = &*self.shared;
        let mut base = None;
        for _ in 0..MERGE_ATTEMPTS {
            match cache.merge(file, delta, base, *instance) {
                Merged::Done { inode, is_first } => {
                    if is_first {
                        self.shared.writes.nudge();
                    }
                    return Ok(Some(inode.attributes));
                }
                Merged::Refused => return Ok(None),
                Merged::NeedsBase => {
                    let found = self.lookups.cold_inode(file).await?;
                    base = Some((found.value.ok_or(NamespaceError::Stale(file))?, found.sequence));
                }
            }
        }
        Ok(None)
    }

    /// `None`: the change has to be on disk when it is answered.
    async fn set_attributes_deferred(
        &self,
        who: &Identity,
        file: FileId,
        set: &SetAttributes,
    ) -> Result<Option<Attributes>, NamespaceError> {
        if !matches!(self.shared.sync, Sync::Names(_)) || !ops::setattr::may_be_deferrable(set) {
            return Ok(None);
        }
        let (turn, who, set) = (self.lookups.turn_at(who, file), who.clone(), set.clone());
        self.shared
            .submit_deferrable(turn, [Wanted::Inode(file)], move |group| {
                ops::setattr::set_if_deferrable(group, &who, file, &set)
            })
            .await
    }

    async fn require_search(&self, who: &Identity, dir: &Inode) -> Result<(), NamespaceError> {
        self.require_of_directory(who, dir, Access::EXECUTE).await
    }

    async fn require_of_directory(
        &self,
        who: &Identity,
        dir: &Inode,
        wanted: Access,
    ) -> Result<(), NamespaceError> {
        if dir.is_directory() {
            self.require(who, &dir.attributes, wanted).await
        } else {
            Err(NamespaceError::NotDirectory)
        }
    }

    async fn files_of(
        &self,
        after: FileId,
        limit: usize,
        which: Which,
    ) -> Result<Vec<FileLocations>, NamespaceError> {
        let limit = limit.clamp(1, PAGE_LEN_MAX);
        let found = self.lookups.cold(Question::Files, self.reads.files(after, limit, which)).await?.value;
        let mut files = Vec::with_capacity(found.len());
        for (inode, replicas) in found {
            let newest = self.shared.cache.newest(inode);
            let locality = self.newest_locality((&inode, &newest), replicas).await?;
            files.push(FileLocations { attributes: newest.attributes, locality });
        }
        Ok(files)
    }

    /// A change that raises the epoch of a file. It is noted beside the database at once: one that lacks it would give the epoch
    /// again, to a ticket that a pool must not take for an older one.
    async fn raise<T: Send + 'static>(
        &self,
        file: FileId,
        change: impl FnOnce(&mut Group<'_>) -> OpResult<T> + Send + 'static,
    ) -> Result<T, NamespaceError> {
        let raised =
            self.shared.submit_for(self.lookups.turn_of(file), [Wanted::Inode(file)], change).await?;
        let (keeper, log) = (Arc::clone(&self.shared.keeper), self.log.clone());
        let noted = tokio::task::spawn_blocking(move || keeper.catch_up(log.as_deref())).await;
        let noted = noted.map_err(|_| NamespaceError::Busy)?;
        let failed = |error| NamespaceError::Database(format!("cannot note the epoch of a file: {error}"));
        noted.map(|()| raised).map_err(failed)
    }

    /// `found` in a snapshot with its rows, and the newest copy of it.
    async fn newest_locality(
        &self,
        (found, newest): (&Inode, &Inode),
        replicas: Vec<ReplicaRef>,
    ) -> Result<Locality, NamespaceError> {
        // A symbolic link without a name, and the like, have no data in pools.
        if !found.attributes.kind.is_regular() {
            return Ok(Locality::Empty);
        }
        let of_snapshot = found.extras.placement.locality(replicas.into());
        if newest.extras.placement == found.extras.placement {
            return Ok(of_snapshot);
        }
        match self.locality(found.id()).await {
            // It is removed by now.
            Err(NamespaceError::Stale(_)) => Ok(of_snapshot),
            found => found,
        }
    }
}

impl Drop for SqlNamespace {
    fn drop(&mut self) {
        self.shared.writes.close();
        self.reads.close();
        join(self.committer.lock().take(), &self.background);
        self.shared.keeper.stop(self.log.as_deref());
    }
}

fn join(committer: Option<JoinHandle<()>>, background: &Mutex<Box<dyn Background>>) {
    if let Some(committer) = committer {
        // If it panicked, the panic hook has reported it.
        let _ = committer.join();
    }
    background.lock().stop();
}

#[async_trait]
impl Namespace for SqlNamespace {
    async fn lookup(&self, who: &Identity, dir: FileId, name: &Name) -> Result<Found, NamespaceError> {
        let (dir, child) = self.lookups.entry(dir, name).await?;
        self.require_search(who, &dir).await?;
        let child = child.ok_or(NamespaceError::NotFound)?;
        Ok(Found { entry: child.attributes, dir: dir.attributes })
    }

    async fn parent(&self, who: &Identity, dir: FileId) -> Result<Attributes, NamespaceError> {
        let inode = self.lookups.inode(dir).await?;
        self.require_search(who, &inode).await?;
        if inode.parent == NO_PARENT {
            return Err(NamespaceError::NotFound);
        }
        self.attributes(inode.parent).await
    }

    async fn attributes(&self, file: FileId) -> Result<Attributes, NamespaceError> {
        Ok(self.lookups.inode(file).await?.attributes)
    }

    async fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: &SetAttributes,
    ) -> Result<Attributes, NamespaceError> {
        if let Some(done) = self.set_attributes_deferred(who, file, set).await? {
            return Ok(done);
        }
        let (who, set) = (who.clone(), set.clone());
        let is_cut = set.size.is_some() && set.size_is_authorized;
        let changed = self
            .shared
            .submit_for(self.lookups.turn_at(&who, file), [Wanted::Inode(file)], move |group| {
                ops::setattr::set_attributes(group, &who, file, &set)
            })
            .await;
        if is_cut && changed.as_ref().is_err_and(is_of_database) {
            self.lengths_in_doubt.store(true, Ordering::Release);
        }
        changed
    }

    async fn create(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        spec: &CreateSpec,
    ) -> Result<Created, NamespaceError> {
        self.shared.require_certain().await?;
        if let Some((dir, Some(found))) = self.lookups.warm_entry(dir, name) {
            // A name known to be there needs no committer.
            self.require_search(who, &dir).await?;
            return ops::create::answer_existing(&dir, &found, spec);
        }
        let (who, name, spec) = (who.clone(), name.clone(), spec.clone());
        let wanted = [Wanted::Inode(dir), Wanted::Name(dir, name.clone())];
        self.shared
            .submit_for(turn(&who, dir), wanted, move |group| {
                ops::create::create(group, &who, dir, &name, &spec)
            })
            .await
    }

    async fn link(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
    ) -> Result<Linked, NamespaceError> {
        let (who, name) = (who.clone(), name.clone());
        let wanted = [Wanted::Inode(file), Wanted::Inode(dir), Wanted::Name(dir, name.clone())];
        self.shared
            .submit_for(turn(&who, dir), wanted, move |group| ops::link::link(group, &who, file, dir, &name))
            .await
    }

    async fn unlink(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        expected: ExpectedFile,
    ) -> Result<Unlinked, NamespaceError> {
        let (who, name) = (who.clone(), name.clone());
        let wanted = [Wanted::Inode(dir), Wanted::Name(dir, name.clone())];
        self.shared
            .submit_for(turn(&who, dir), wanted, move |group| {
                ops::unlink::unlink(group, &who, dir, &name, expected)
            })
            .await
    }

    async fn rename(
        &self,
        who: &Identity,
        from: (FileId, &Name),
        to: (FileId, &Name),
        replace: Replace,
        expected: ExpectedEnds,
    ) -> Result<Renamed, NamespaceError> {
        let who = who.clone();
        let (from_dir, from_name, to_dir, to_name) = (from.0, from.1.clone(), to.0, to.1.clone());
        let wanted = [
            Wanted::Inode(from_dir),
            Wanted::Inode(to_dir),
            Wanted::Name(from_dir, from_name.clone()),
            Wanted::Name(to_dir, to_name.clone()),
        ];
        self.shared
            .submit_for(turn(&who, from_dir), wanted, move |group| {
                let (from, to) = ((from_dir, &from_name), (to_dir, &to_name));
                ops::rename::rename(group, &who, from, to, replace, expected)
            })
            .await
    }

    async fn list(
        &self,
        who: &Identity,
        dir: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Page, NamespaceError> {
        self.require_of_directory(who, &self.lookups.inode(dir).await?, Access::READ).await?;
        let is_given = after.0 > 2 && after.0 < self.shared.progress.cookies_end.load(Ordering::Acquire);
        if after != Cookie::START && !is_given {
            return Err(NamespaceError::BadCookie);
        }
        let limit = limit.clamp(1, PAGE_LEN_MAX);
        for _ in 0..READ_ATTEMPTS {
            let (page, sequence) = self.lookups.page(dir, after, limit).await?;
            if !self.shared.cache.pending.is_forgotten(sequence) {
                return Ok(page);
            }
        }
        Err(NamespaceError::Busy)
    }

    async fn read_link(&self, file: FileId) -> Result<SymlinkTarget, NamespaceError> {
        let inode = self.lookups.inode(file).await?;
        if inode.attributes.kind != FileKind::Symlink {
            return Err(NamespaceError::NotSymlink);
        }
        if let Some(target) = self.shared.cache.target(file) {
            return Ok(target);
        }
        let found = self.lookups.cold(Question::Target, self.reads.target(file)).await?;
        let target = found.value.ok_or(NamespaceError::Stale(file))?;
        let targets = vec![(file, target.clone())];
        self.shared.cache.learn(found.sequence, Learned { targets, ..Learned::default() });
        Ok(target)
    }

    async fn record_write(&self, file: FileId, written: &Written) -> Result<Attributes, NamespaceError> {
        let delta = Delta::new(written, self.shared.clock.now());
        if written.stability == Stability::Unstable
            && let Some(attributes) = self.record_unstable_write(file, &delta).await?
        {
            return Ok(attributes);
        }
        self.shared
            .submit_for(self.lookups.turn_of(file), [Wanted::Inode(file)], move |group| {
                ops::writes::record_write(group, file, &delta)
            })
            .await
    }

    async fn usage(&self) -> Result<Usage, NamespaceError> {
        self.shared.require_certain().await?;
        Ok(self.totals())
    }
}

#[async_trait]
impl Locations for SqlNamespace {
    async fn locality(&self, file: FileId) -> Result<Locality, NamespaceError> {
        let inode = self.lookups.inode(file).await?;
        ops::writes::require_regular(&inode)?;
        let placement = inode.extras.placement;
        if placement != Placement::Replicas {
            return Ok(placement.locality(Arc::new([])));
        }
        if let Some(replicas) = self.shared.cache.locations(file) {
            return Ok(placement.locality(replicas));
        }
        let found = self.lookups.cold(Question::Locations, self.reads.locations(file)).await?;
        let replicas: Arc<[ReplicaRef]> = found.value.into();
        let locations = vec![(file, Arc::clone(&replicas))];
        self.shared.cache.learn(found.sequence, Learned { locations, ..Learned::default() });
        Ok(placement.locality(replicas))
    }

    async fn add_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
        self.shared
            .submit_for(self.lookups.turn_of(file), [Wanted::Inode(file)], move |group| {
                ops::records::add_location(group, file, pool)
            })
            .await
    }

    async fn drop_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
        self.shared
            .submit_for(self.lookups.turn_of(file), [Wanted::Inode(file)], move |group| {
                ops::records::drop_location(group, file, pool)
            })
            .await
    }

    async fn raise_epoch(&self, file: FileId) -> Result<Epoch, NamespaceError> {
        self.raise(file, move |group| ops::records::raise_epoch(group, file)).await
    }

    async fn begin_filling(&self, file: FileId, pool: PoolId) -> Result<Attributes, NamespaceError> {
        self.raise(file, move |group| ops::records::begin_filling(group, file, pool)).await
    }

    async fn replace_location(
        &self,
        file: FileId,
        from: PoolId,
        to: PoolId,
        change: u64,
    ) -> Result<Attributes, NamespaceError> {
        self.raise(file, move |group| ops::records::replace_location(group, file, (from, to), change)).await
    }

    async fn unsettled(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
        self.files_of(after, limit, Which::Unsettled).await
    }

    async fn settle(&self) -> Result<(), NamespaceError> {
        if self.shared.sync == Sync::Always {
            return Ok(());
        }
        self.shared.submit_for(Order::Behind, [], ops::records::settle).await?;
        let Some(log) = self.log.clone() else { return Ok(()) };
        let synced = tokio::task::spawn_blocking(move || log.sync()).await;
        let synced = synced.map_err(|_| NamespaceError::Busy)?;
        synced.map_err(|error| NamespaceError::Database(format!("cannot sync the log: {error}")))
    }

    async fn orphans(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
        self.files_of(after, limit, Which::Orphans).await
    }

    async fn forget(&self, files: &[FileId]) -> Result<(), NamespaceError> {
        let files = files.to_vec();
        let wanted = files.iter().map(|file| Wanted::Inode(*file)).collect::<Vec<_>>();
        self.shared.submit_for(Order::Behind, wanted, move |group| ops::records::forget(group, &files)).await
    }

    async fn files(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
        self.files_of(after, limit, Which::All).await
    }
}

/// Whether it was the database that refused, and not the file or its caller.
fn is_of_database(error: &NamespaceError) -> bool {
    use NamespaceError::{Busy, Database, NoSpace, ReadOnly};
    matches!(error, Busy | Database(_) | NoSpace | ReadOnly(_))
}

#[async_trait]
impl RecoveryRecords for SqlNamespace {
    async fn load(&self) -> Result<Vec<ClientRecord>, NamespaceError> {
        Ok(self.lookups.cold(Question::Clients, self.reads.clients()).await?.value)
    }

    async fn put(&self, record: &ClientRecord) -> Result<(), NamespaceError> {
        if record.owner.len() > ops::records::OWNER_BYTES_MAX {
            let bytes = record.owner.len();
            return Err(NamespaceError::Database(format!(
                "client owner of {bytes} bytes is too long to record"
            )));
        }
        let record = record.clone();
        self.shared
            .submit_for(Order::BY_INSTANCE, [], move |group| ops::records::put_client(group, &record))
            .await
    }

    async fn remove(&self, owner: &[u8]) -> Result<(), NamespaceError> {
        let owner = owner.to_vec();
        self.shared
            .submit_for(Order::BY_INSTANCE, [], move |group| ops::records::remove_client(group, &owner))
            .await
    }
}
