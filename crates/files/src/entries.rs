//! Operations on the entries of directories: removal, rename, one more name.
//!
//! Each works in four steps. (1) It looks up what the names stand for and asks whether the caller may change them:
//! nothing is recalled for a change that is refused anyway, and the namespace says why it is refused. (2) It recalls what
//! others hold of all files concerned, and waits for them together. (3) The namespace changes the names, if they still
//! stand for the files of step 1. If they do not, the operation begins anew, unless the caller itself has expected
//! the file. (4) It recalls what was granted since step 2. Steps 3 and 4 are done also for a caller that is gone by then:
//! the namespace may have changed the names already.
//!
//! A name that goes is a [`Change::Remove`] for every door: delegations are recalled, layouts are not. A client has a
//! layout only with an open file, and an open file keeps its data without a name until the last close. To wait for
//! its layouts would let one silent writer keep others from removing a name.

use std::sync::Arc;
use std::time::Duration;

use api::{ExpectedEnds, ExpectedFile, Found, Linked, NamespaceError, Renamed, Replace, Unlinked};
use file_state::Holder;
use tokio::time::Instant;
use types::permission::Removal;
use types::{Access, Attributes, FileId, Identity, Name};

use crate::{Change, FileChangeGuard, Files, FilesError};

/// How often an operation begins anew since a name stands for another file than it did.
const ATTEMPTS_MAX: usize = 8;

/// The caller of an operation.
#[derive(Clone, Copy)]
pub struct By<'a> {
    /// Permissions are judged by it.
    pub identity: &'a Identity,
    /// For whom the conflict table takes the caller. `None`: every holder is another.
    pub holder: Option<Holder>,
    /// How long the caller waits for what others have to return, in all.
    pub patience: Duration,
}

/// An entry of a directory.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub dir: FileId,
    pub name: &'a Name,
    /// `Any`: the file that has the name when the operation is done.
    pub expected: ExpectedFile,
}

impl<'a> Entry<'a> {
    pub fn any(dir: FileId, name: &'a Name) -> Entry<'a> {
        Entry { dir, name, expected: ExpectedFile::Any }
    }

    pub fn of(dir: FileId, name: &'a Name, file: FileId) -> Entry<'a> {
        Entry { dir, name, expected: ExpectedFile::Exactly(file) }
    }
}

/// Files that an operation was judged for, and what holds their delegations off until it is done.
struct Begun {
    expected: ExpectedEnds,
    _guards: Vec<FileChangeGuard>,
}

impl Begun {
    /// Nobody was asked.
    fn unasked(expected: ExpectedEnds) -> Begun {
        Begun { expected, _guards: Vec::new() }
    }
}

impl Files {
    /// Removes an entry of any kind. `Moved`: the name does not stand for the expected file, or at each attempt stood for
    /// another. `Recalled`, `Denied`: as of [`Files::before_change`].
    pub async fn remove(self: &Arc<Self>, by: By<'_>, entry: Entry<'_>) -> Result<Unlinked, FilesError> {
        let deadline = Instant::now() + by.patience;
        for _ in 0..ATTEMPTS_MAX {
            match self.try_remove(by, deadline, entry).await {
                Err(FilesError::Moved) if entry.expected == ExpectedFile::Any => {}
                done => return done,
            }
        }
        Err(FilesError::Moved)
    }

    /// Moves an entry, over another one as far as `replace` allows. Errors as of [`Files::remove`], for both names.
    pub async fn rename(
        self: &Arc<Self>,
        by: By<'_>,
        from: Entry<'_>,
        to: Entry<'_>,
        replace: Replace,
    ) -> Result<Renamed, FilesError> {
        let deadline = Instant::now() + by.patience;
        let is_any_moving = [from, to].iter().any(|entry| entry.expected == ExpectedFile::Any);
        for _ in 0..ATTEMPTS_MAX {
            match self.try_rename(by, deadline, (from, to), replace).await {
                Err(FilesError::Moved) if is_any_moving => {}
                done => return done,
            }
        }
        Err(FilesError::Moved)
    }

    /// Gives a file one more name in a directory whose attributes the caller has. `Recalled` as of
    /// [`Files::before_change`].
    pub async fn link(
        self: &Arc<Self>,
        by: By<'_>,
        file: FileId,
        dir: &Attributes,
        name: &Name,
    ) -> Result<Linked, FilesError> {
        let linking = match self.judge().allows(by.identity, dir, Access::ADD_FILE | Access::EXECUTE).await? {
            true => Some(self.before_change(file, by.holder, Change::Link, by.patience).await?),
            false => None,
        };
        let (files, identity, holder) = (Arc::clone(self), by.identity.clone(), by.holder);
        let (dir, name) = (dir.file, name.clone());
        let link = async move {
            let _linking = linking;
            let linked = files.services.namespace.link(&identity, file, dir, &name).await?;
            files.call_back(file, holder, Change::Link);
            Ok(linked)
        };
        self.tasks.carry_on(link).await
    }

    /// Exchanges the name of an expected file with another name in the directory, which stands for a file that only the
    /// caller knows of. `Moved`: one of the names stands for another file, or for none.
    pub async fn exchange(
        self: &Arc<Self>,
        by: By<'_>,
        (dir, name): (FileId, &Name),
        (taken, expected): (&Name, FileId),
    ) -> Result<(), FilesError> {
        let renaming = self.before_change(expected, by.holder, Change::Rename, by.patience).await?;
        let (files, identity, holder) = (Arc::clone(self), by.identity.clone(), by.holder);
        let (name, taken) = (name.clone(), taken.clone());
        let exchange = async move {
            let _renaming = renaming;
            match files.services.uploads.exchange(&identity, dir, &name, (&taken, expected)).await {
                Ok(()) => {}
                Err(NamespaceError::Exists | NamespaceError::NotFound) => return Err(FilesError::Moved),
                Err(error) => return Err(error.into()),
            }
            files.call_back(expected, holder, Change::Rename);
            Ok(())
        };
        self.tasks.carry_on(exchange).await
    }

    async fn try_remove(
        self: &Arc<Self>,
        by: By<'_>,
        deadline: Instant,
        entry: Entry<'_>,
    ) -> Result<Unlinked, FilesError> {
        let begun = self.begin_removal(by, deadline, entry).await?;
        let (files, identity, holder) = (Arc::clone(self), by.identity.clone(), by.holder);
        let (dir, name) = (entry.dir, entry.name.clone());
        let remove = async move {
            let Begun { expected, _guards } = begun;
            let removed = files.services.namespace.unlink(&identity, dir, &name, expected.source).await?;
            files.call_back(removed.attributes.file, holder, Change::Remove);
            Ok(removed)
        };
        self.tasks.carry_on(remove).await
    }

    async fn try_rename(
        self: &Arc<Self>,
        by: By<'_>,
        deadline: Instant,
        (from, to): (Entry<'_>, Entry<'_>),
        replace: Replace,
    ) -> Result<Renamed, FilesError> {
        let begun = self.begin_rename(by, deadline, (from, to)).await?;
        let (files, identity, holder) = (Arc::clone(self), by.identity.clone(), by.holder);
        let (from_dir, old, to_dir, new) = (from.dir, from.name.clone(), to.dir, to.name.clone());
        let rename = async move {
            let Begun { expected, _guards } = begun;
            let (source, target) = ((from_dir, &old), (to_dir, &new));
            let namespace = &files.services.namespace;
            let renamed = namespace.rename(&identity, source, target, replace, expected).await?;
            files.call_back(renamed.moved.file, holder, Change::Rename);
            if let Some(replaced) = renamed.replaced {
                files.call_back(replaced.file, holder, Change::Remove);
            }
            Ok(renamed)
        };
        self.tasks.carry_on(rename).await
    }

    async fn begin_removal(
        self: &Arc<Self>,
        by: By<'_>,
        deadline: Instant,
        entry: Entry<'_>,
    ) -> Result<Begun, FilesError> {
        let unlooked = ExpectedEnds { source: entry.expected, target: ExpectedFile::Any };
        if self.is_nobody_in_the_way(by) {
            return Ok(Begun::unasked(unlooked));
        }
        let found = self.services.namespace.lookup(by.identity, entry.dir, entry.name).await?;
        let expected = ExpectedEnds { source: met(entry, Some(&found))?, ..unlooked };
        if !self.may_take(by, &found).await? {
            return Ok(Begun::unasked(expected));
        }
        let guard = self.wait_until(deadline, by, found.entry.file, Change::Remove).await?;
        Ok(Begun { expected, _guards: vec![guard] })
    }

    async fn begin_rename(
        self: &Arc<Self>,
        by: By<'_>,
        deadline: Instant,
        (from, to): (Entry<'_>, Entry<'_>),
    ) -> Result<Begun, FilesError> {
        if self.is_nobody_in_the_way(by) {
            return Ok(Begun::unasked(ExpectedEnds { source: from.expected, target: to.expected }));
        }
        let namespace = &self.services.namespace;
        let source = named(namespace.lookup(by.identity, from.dir, from.name).await)?;
        // An unsearchable directory of the target goes before a source that is not there.
        let target = named(namespace.lookup(by.identity, to.dir, to.name).await)?;
        let source = source.ok_or(NamespaceError::NotFound)?;
        let expected = ExpectedEnds { source: met(from, Some(&source))?, target: met(to, target.as_ref())? };
        if !self.may_rename(by, &source, to.dir, target.as_ref()).await? {
            return Ok(Begun::unasked(expected));
        }
        let (moved, replaced) = (source.entry.file, target.map(|target| target.entry.file));
        let moving = self.wait_until(deadline, by, moved, Change::Rename);
        let replacing = async {
            match replaced.filter(|replaced| *replaced != moved) {
                Some(replaced) => self.wait_until(deadline, by, replaced, Change::Remove).await.map(Some),
                None => Ok(None),
            }
        };
        // At once: two clients that answer slowly are waited for as long as one.
        let (moving, replacing) = tokio::join!(moving, replacing);
        Ok(Begun { expected, _guards: [Some(moving?), replacing?].into_iter().flatten().collect() })
    }

    /// Mostly no other client denies anything or has a delegation, and it does not matter which file has a name.
    fn is_nobody_in_the_way(&self, by: By<'_>) -> bool {
        let table = self.table();
        !table.has_denials_of_others(by.holder) && !table.holders().has_delegations_of_others(by.holder)
    }

    async fn wait_until(
        self: &Arc<Self>,
        deadline: Instant,
        by: By<'_>,
        file: FileId,
        change: Change,
    ) -> Result<FileChangeGuard, FilesError> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.before_change(file, by.holder, change, left).await
    }

    async fn may_take(&self, by: By<'_>, found: &Found) -> Result<bool, NamespaceError> {
        let judged = self.judge().judge_removal(by.identity, &found.dir, &found.entry).await?;
        Ok(judged == Removal::Allowed)
    }

    async fn may_rename(
        &self,
        by: By<'_>,
        source: &Found,
        dir: FileId,
        target: Option<&Found>,
    ) -> Result<bool, NamespaceError> {
        if !self.may_take(by, source).await? {
            return Ok(false);
        }
        let is_directory = source.entry.kind.is_directory();
        let above = match target {
            Some(target) if target.entry.kind.is_directory() != is_directory => return Ok(false),
            Some(target) if !self.may_take(by, target).await? => return Ok(false),
            Some(target) => target.dir,
            None => self.services.namespace.attributes(dir).await?,
        };
        let wanted = if is_directory { Access::ADD_SUBDIRECTORY } else { Access::ADD_FILE };
        self.judge().allows(by.identity, &above, wanted | Access::EXECUTE).await
    }
}

/// The file that was found, to be expected from here on.
fn met(entry: Entry<'_>, found: Option<&Found>) -> Result<ExpectedFile, NamespaceError> {
    let found = found.map(|found| found.entry.file);
    match entry.expected.is_met_by(found) {
        true => Ok(found.map_or(ExpectedFile::Absent, ExpectedFile::Exactly)),
        false => Err(NamespaceError::Moved),
    }
}

fn named(found: Result<Found, NamespaceError>) -> Result<Option<Found>, NamespaceError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(NamespaceError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
