//! Reads of rows: warm ones from the cache, cold ones by a reader, which leaves in the cache what it finds.
//!
//! Invariant: nobody is shown less than a read before it has shown: a cold read waits until the groups that it shows are
//! published, and gives way to what the cache has that is newer.

use std::sync::Arc;

use api::{Cookie, DirEntry, NamespaceError, Page};
use types::{Acl, Attributes, FileId, Identity, Name};

use crate::cache::Learned;
use crate::committer::CommitterState;
use crate::counts::{Event, Question};
use crate::inode::{Inode, NO_PARENT};
use crate::queue::{Caller, Order};
use crate::reads::{Answer, Reads};

/// Attempts to read what is not so old that nobody knows any more what was shown since.
pub const READ_ATTEMPTS: usize = 3;

pub struct Lookups {
    pub shared: Arc<CommitterState>,
    pub reads: Arc<dyn Reads>,
}

impl Lookups {
    /// The answer of a reader, once all groups that it shows are published: a warm read never shows less than a cold
    /// read before it.
    pub async fn cold<T>(&self, question: Question, asked: impl Future<Output = Answer<T>>) -> Answer<T> {
        self.shared.cache.counts.add(Event::Read(question));
        let answer = asked.await?;
        if !self.shared.cache.published.wait_for(answer.sequence).await {
            // The group is on its way for longer than usual, or its committer has ended, which is told elsewhere.
            return Err(NamespaceError::Busy);
        }
        Ok(answer)
    }

    pub async fn inode(&self, file: FileId) -> Result<Inode, NamespaceError> {
        self.shared.require_certain().await?;
        if let Some(inode) = self.shared.cache.inode(file) {
            return Ok(inode);
        }
        let cache = &self.shared.cache;
        for _ in 0..READ_ATTEMPTS {
            let found = self.cold_inode(file).await?;
            let newest = cache.newest(found.value.ok_or(NamespaceError::Stale(file))?);
            if !cache.pending.is_forgotten(found.sequence) {
                return Ok(newest);
            }
        }
        Err(NamespaceError::Busy)
    }

    pub async fn cold_inode(&self, file: FileId) -> Answer<Option<Inode>> {
        let found = self.cold(Question::Inode, self.reads.inode(file)).await?;
        let inodes = found.value.into_iter().collect();
        self.shared.cache.learn(found.sequence, Learned { inodes, ..Learned::default() });
        Ok(found)
    }

    /// The current ACL, also if it was changed since the attributes were read. If it was removed since, the ACL that
    /// stands for the current mode. Access is never judged by a mode whose ACL is missing.
    pub async fn acl_of(&self, attributes: &Attributes) -> Result<Option<Acl>, NamespaceError> {
        if !attributes.has_acl {
            return Ok(None);
        }
        self.shared.require_certain().await?;
        let file = attributes.file;
        if let Some(acl) = self.shared.cache.acl(file) {
            return Ok(Some(acl));
        }
        let found = self.cold(Question::Acl, self.reads.acl(file)).await?;
        let acls = found.value.iter().map(|acl| (file, acl.clone())).collect();
        self.shared.cache.learn(found.sequence, Learned { acls, ..Learned::default() });
        // A change that was published since is in the cache.
        if let Some(acl) = self.shared.cache.peek_acl(file).or(found.value) {
            return Ok(Some(acl));
        }
        let now = self.inode(file).await?.attributes;
        Ok(Some(if now.has_acl { Acl::default() } else { Acl::of_mode(now.mode) }))
    }

    /// `dir` and its entry, if all is warm.
    pub fn warm_entry(&self, dir: FileId, name: &Name) -> Option<(Inode, Option<Inode>)> {
        let cache = &self.shared.cache;
        let dir_inode = cache.inode(dir)?;
        match cache.dentry(dir, name)? {
            Some(child) => Some((dir_inode, Some(cache.inode(child)?))),
            None => Some((dir_inode, None)),
        }
    }

    pub async fn entry(&self, dir: FileId, name: &Name) -> Result<(Inode, Option<Inode>), NamespaceError> {
        self.shared.require_certain().await?;
        if let Some(warm) = self.warm_entry(dir, name) {
            return Ok(warm);
        }
        let cache = &self.shared.cache;
        for _ in 0..READ_ATTEMPTS {
            let found = self.cold(Question::Name, self.reads.entry(dir, name)).await?;
            let entry = found.value.ok_or(NamespaceError::Stale(dir))?;
            let learned = Learned {
                inodes: [entry.dir].into_iter().chain(entry.child).collect(),
                dentries: vec![((dir, name.clone()), entry.child.map(|child| child.id()))],
                ..Learned::default()
            };
            cache.learn(found.sequence, learned);
            let newest = (cache.newest(entry.dir), entry.child.map(|child| cache.newest(child)));
            if !cache.pending.is_forgotten(found.sequence) {
                return Ok(newest);
            }
        }
        Err(NamespaceError::Busy)
    }

    /// With the last group that it shows.
    pub async fn page(
        &self,
        dir: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<(Page, u64), NamespaceError> {
        // One more than asked tells whether anything follows.
        let found = self.cold(Question::List, self.reads.list(dir, after.0, limit + 1)).await?;
        let mut listed = found.value;
        // A client that lists will look up names and ask for attributes.
        let learned = Learned {
            inodes: listed.iter().map(|entry| entry.inode).collect(),
            dentries: listed
                .iter()
                .map(|entry| ((dir, entry.name.clone()), Some(entry.inode.id())))
                .collect(),
            ..Learned::default()
        };
        self.shared.cache.learn(found.sequence, learned);
        let is_last = listed.len() <= limit;
        listed.truncate(limit);
        let entries = listed.into_iter().map(|entry| DirEntry {
            name: entry.name,
            cookie: Cookie(entry.cookie),
            attributes: self.shared.cache.newest(entry.inode).attributes,
        });
        Ok((Page { entries: entries.collect(), is_last }, found.sequence))
    }

    /// Of a change of a file by `who`: with his other changes where the file is, as far as that is known without asking.
    pub fn turn_at(&self, who: &Identity, file: FileId) -> Order {
        turn(who, self.shared.cache.peek_inode(file).map_or(file, |inode| place_of(&inode)))
    }

    /// Of a change that nobody in particular asks for: it is put down to the owner of the file.
    pub fn turn_of(&self, file: FileId) -> Order {
        match self.shared.cache.peek_inode(file) {
            Some(inode) => Order::Turn { caller: Caller::User(inode.attributes.uid), dir: place_of(&inode) },
            None => Order::Turn { caller: Caller::Instance, dir: file },
        }
    }
}

pub fn turn(who: &Identity, dir: FileId) -> Order {
    Order::Turn { caller: Caller::User(who.uid), dir }
}

/// The directory that holds it, where the inode says so.
fn place_of(inode: &Inode) -> FileId {
    if inode.parent == NO_PARENT { inode.id() } else { inode.parent }
}
