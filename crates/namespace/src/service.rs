//! The seams of `api`, answered: warm reads from the cache, cold ones by a reader, mutations by the committer.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use api::{
    ClientRecord, Cookie, CreateSpec, Created, DirEntry, FileLocations, Linked, Locations, Namespace,
    NamespaceError, Page, RecoveryRecords, Renamed, Replace, SetAttributes, Stability, Unlinked, Usage,
    Written,
};
use async_trait::async_trait;
use parking_lot::Mutex;
use types::permission::allows;
use types::{Access, Attributes, Epoch, FileId, FileKind, Identity, Name, PoolId, SymlinkTarget};

use crate::committer::Shared;
use crate::inode::{Inode, NO_PARENT};
use crate::ops;
use crate::reader::Reads;
use crate::unsettled::Merged;
use crate::wal_sync::WalSync;
use crate::written::Delta;

/// Entries of one page, whatever the caller asks.
const PAGE_LEN_MAX: usize = 4096;
/// Attempts to base an unstable write on a cold file while groups pass; then it goes through the committer.
const MERGE_ATTEMPTS: usize = 3;

/// A namespace in one SQLite database. Dropping it ends it cleanly, too, but blocks.
pub struct SqliteNamespace {
    pub(crate) shared: Arc<Shared>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) path: PathBuf,
    pub(crate) committer: Mutex<Option<JoinHandle<()>>>,
    pub(crate) readers: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) wal_sync: Mutex<Option<WalSync>>,
    /// Held until the end: one process at a time.
    pub(crate) _lock: File,
}

impl SqliteNamespace {
    /// Why changes are not taken now, if the last ones were not.
    pub fn read_only(&self) -> Option<String> {
        self.shared.failure.lock().clone()
    }

    /// Takes nothing more, finishes what was handed in, writes what waits in memory, and ends. Idempotent.
    pub async fn close(&self) {
        self.shared.writes.close();
        self.reads.close();
        let threads = self.take_threads();
        // Only a panic of ours could fail it, and that was told where it happened.
        let _ = tokio::task::spawn_blocking(move || join(threads)).await;
    }

    fn take_threads(&self) -> (Vec<JoinHandle<()>>, Option<WalSync>) {
        let mut threads = std::mem::take(&mut *self.readers.lock());
        threads.extend(self.committer.lock().take());
        (threads, self.wal_sync.lock().take())
    }

    pub(crate) async fn inode(&self, file: FileId) -> Result<Inode, NamespaceError> {
        if let Some(inode) = self.shared.cache.inode(file) {
            return Ok(inode);
        }
        let found = self.reads.ask(move |snapshot| snapshot.inode(file)).await?;
        found.map(|inode| self.shared.cache.newest(inode)).ok_or(NamespaceError::Stale(file))
    }

    /// `dir` and its entry, if all is warm.
    fn warm_entry(&self, dir: FileId, name: &Name) -> Option<(Inode, Option<Inode>)> {
        let cache = &self.shared.cache;
        let dir_inode = cache.inode(dir)?;
        match cache.dentry(dir, name)? {
            Some(child) => Some((dir_inode, Some(cache.inode(child)?))),
            None => Some((dir_inode, None)),
        }
    }

    async fn entry(&self, dir: FileId, name: &Name) -> Result<(Inode, Option<Inode>), NamespaceError> {
        if let Some(warm) = self.warm_entry(dir, name) {
            return Ok(warm);
        }
        let name = name.clone();
        let found = self
            .reads
            .ask(move |snapshot| {
                let Some(dir_inode) = snapshot.inode(dir)? else { return Ok(None) };
                let child = match snapshot.child(dir, &name)? {
                    Some(child) => snapshot.inode(child)?,
                    None => None,
                };
                Ok(Some((dir_inode, child)))
            })
            .await?;
        let (dir_inode, child) = found.ok_or(NamespaceError::Stale(dir))?;
        let cache = &self.shared.cache;
        Ok((cache.newest(dir_inode), child.map(|child| cache.newest(child))))
    }

    /// Without waiting for the disk. `None`: it has to go through the committer.
    async fn commit_unstable(
        &self,
        file: FileId,
        delta: &Delta,
    ) -> Result<Option<Attributes>, NamespaceError> {
        ops::commit::require_regular(&self.inode(file).await?)?;
        let Shared { cache, instance, .. } = &*self.shared;
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
                    let found = self
                        .reads
                        .ask(move |snapshot| {
                            Ok(snapshot.inode(file)?.map(|inode| (inode, snapshot.sequence)))
                        })
                        .await?;
                    base = Some(found.ok_or(NamespaceError::Stale(file))?);
                }
            }
        }
        Ok(None)
    }

    async fn files_of(
        &self,
        after: FileId,
        limit: usize,
        only_orphans: bool,
    ) -> Result<Vec<FileLocations>, NamespaceError> {
        let limit = limit.clamp(1, PAGE_LEN_MAX);
        let found = self.reads.ask(move |snapshot| snapshot.files(after, limit, only_orphans)).await?;
        let newest =
            |(inode, pools)| FileLocations { attributes: self.shared.cache.newest(inode).attributes, pools };
        Ok(found.into_iter().map(newest).collect())
    }
}

impl Drop for SqliteNamespace {
    fn drop(&mut self) {
        self.shared.writes.close();
        self.reads.close();
        join(self.take_threads());
    }
}

fn join((threads, wal_sync): (Vec<JoinHandle<()>>, Option<WalSync>)) {
    for thread in threads {
        // A thread that panicked has said so.
        let _ = thread.join();
    }
    if let Some(wal_sync) = wal_sync {
        wal_sync.stop();
    }
}

fn require_search(who: &Identity, dir: &Inode) -> Result<(), NamespaceError> {
    require(who, dir, Access::EXECUTE)
}

fn require(who: &Identity, dir: &Inode, wanted: Access) -> Result<(), NamespaceError> {
    if !dir.is_directory() {
        return Err(NamespaceError::NotDirectory);
    }
    if allows(who, &dir.attributes, wanted) { Ok(()) } else { Err(NamespaceError::AccessDenied) }
}

#[async_trait]
impl Namespace for SqliteNamespace {
    async fn lookup(&self, who: &Identity, dir: FileId, name: &Name) -> Result<Attributes, NamespaceError> {
        let (dir, child) = self.entry(dir, name).await?;
        require_search(who, &dir)?;
        child.map(|child| child.attributes).ok_or(NamespaceError::NotFound)
    }

    async fn parent(&self, who: &Identity, dir: FileId) -> Result<Attributes, NamespaceError> {
        let inode = self.inode(dir).await?;
        require_search(who, &inode)?;
        if inode.parent == NO_PARENT {
            return Err(NamespaceError::NotFound);
        }
        self.attributes(inode.parent).await
    }

    async fn attributes(&self, file: FileId) -> Result<Attributes, NamespaceError> {
        Ok(self.inode(file).await?.attributes)
    }

    async fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: &SetAttributes,
    ) -> Result<Attributes, NamespaceError> {
        let (who, set) = (who.clone(), set.clone());
        self.shared.submit(move |group| ops::setattr::set_attributes(group, &who, file, &set)).await
    }

    async fn create(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        spec: &CreateSpec,
    ) -> Result<Created, NamespaceError> {
        if let Some((dir, Some(found))) = self.warm_entry(dir, name) {
            // What is known to be there needs no committer.
            require_search(who, &dir)?;
            return ops::create::answer_existing(&dir, &found, spec);
        }
        let (who, name, spec) = (who.clone(), name.clone(), spec.clone());
        self.shared.submit(move |group| ops::create::create(group, &who, dir, &name, &spec)).await
    }

    async fn link(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
    ) -> Result<Linked, NamespaceError> {
        let (who, name) = (who.clone(), name.clone());
        self.shared.submit(move |group| ops::link::link(group, &who, file, dir, &name)).await
    }

    async fn unlink(&self, who: &Identity, dir: FileId, name: &Name) -> Result<Unlinked, NamespaceError> {
        let (who, name) = (who.clone(), name.clone());
        self.shared.submit(move |group| ops::unlink::unlink(group, &who, dir, &name)).await
    }

    async fn rename(
        &self,
        who: &Identity,
        from: (FileId, &Name),
        to: (FileId, &Name),
        replace: Replace,
    ) -> Result<Renamed, NamespaceError> {
        let who = who.clone();
        let (from_dir, from_name, to_dir, to_name) = (from.0, from.1.clone(), to.0, to.1.clone());
        self.shared
            .submit(move |group| {
                ops::rename::rename(group, &who, (from_dir, &from_name), (to_dir, &to_name), replace)
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
        require(who, &self.inode(dir).await?, Access::READ)?;
        let is_given = after.0 > 2 && after.0 < self.shared.cookies_end.load(Ordering::Acquire);
        if after != Cookie::START && !is_given {
            return Err(NamespaceError::BadCookie);
        }
        let limit = limit.clamp(1, PAGE_LEN_MAX);
        // One more than asked tells whether anything follows.
        let mut listed = self.reads.ask(move |snapshot| snapshot.list(dir, after.0, limit + 1)).await?;
        let is_last = listed.len() <= limit;
        listed.truncate(limit);
        let entries = listed.into_iter().map(|entry| DirEntry {
            name: entry.name,
            cookie: Cookie(entry.cookie),
            attributes: self.shared.cache.newest(entry.inode).attributes,
        });
        Ok(Page { entries: entries.collect(), is_last })
    }

    async fn read_link(&self, file: FileId) -> Result<SymlinkTarget, NamespaceError> {
        let inode = self.inode(file).await?;
        if inode.attributes.kind != FileKind::Symlink {
            return Err(NamespaceError::NotSymlink);
        }
        if let Some(target) = self.shared.cache.target(file) {
            return Ok(target);
        }
        self.reads.ask(move |snapshot| snapshot.target(file)).await?.ok_or(NamespaceError::Stale(file))
    }

    async fn commit(&self, file: FileId, written: &Written) -> Result<Attributes, NamespaceError> {
        let delta = Delta::new(written, self.shared.clock.now());
        if written.stability == Stability::Unstable
            && let Some(attributes) = self.commit_unstable(file, &delta).await?
        {
            return Ok(attributes);
        }
        self.shared.submit(move |group| ops::commit::commit(group, file, &delta)).await
    }

    async fn usage(&self) -> Result<Usage, NamespaceError> {
        let totals = *self.shared.totals.lock();
        Ok(Usage { files: totals.files.max(0).cast_unsigned(), bytes: totals.bytes.max(0).cast_unsigned() })
    }
}

#[async_trait]
impl Locations for SqliteNamespace {
    async fn locations(&self, file: FileId) -> Result<Vec<PoolId>, NamespaceError> {
        ops::commit::require_regular(&self.inode(file).await?)?;
        if let Some(pools) = self.shared.cache.locations(file) {
            return Ok(pools.to_vec());
        }
        self.reads.ask(move |snapshot| snapshot.locations(file)).await
    }

    async fn add_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
        self.shared.submit(move |group| ops::records::add_location(group, file, pool)).await
    }

    async fn drop_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
        self.shared.submit(move |group| group.drop_location(file, pool)).await
    }

    async fn raise_epoch(&self, file: FileId) -> Result<Epoch, NamespaceError> {
        self.shared.submit(move |group| ops::records::raise_epoch(group, file)).await
    }

    async fn orphans(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
        self.files_of(after, limit, true).await
    }

    async fn forget(&self, files: &[FileId]) -> Result<(), NamespaceError> {
        let files = files.to_vec();
        self.shared.submit(move |group| ops::records::forget(group, &files)).await
    }

    async fn files(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
        self.files_of(after, limit, false).await
    }
}

#[async_trait]
impl RecoveryRecords for SqliteNamespace {
    async fn load(&self) -> Result<Vec<ClientRecord>, NamespaceError> {
        self.reads
            .ask(|snapshot| {
                let mut statement =
                    snapshot.connection.prepare_cached("SELECT owner, reclaim_complete FROM clients")?;
                let rows = statement.query_map([], |row| {
                    Ok(ClientRecord { owner: row.get(0)?, reclaim_complete: row.get(1)? })
                })?;
                rows.collect()
            })
            .await
    }

    async fn put(&self, record: &ClientRecord) -> Result<(), NamespaceError> {
        if record.owner.len() > ops::records::OWNER_BYTES_MAX {
            let bytes = record.owner.len();
            return Err(NamespaceError::Database(format!(
                "client owner of {bytes} bytes is too long to record"
            )));
        }
        let record = record.clone();
        self.shared.submit(move |group| ops::records::put_client(group, &record)).await
    }

    async fn remove(&self, owner: &[u8]) -> Result<(), NamespaceError> {
        let owner = owner.to_vec();
        self.shared.submit(move |group| ops::records::remove_client(group, &owner)).await
    }
}
