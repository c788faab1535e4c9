//! Checks of a COPY or MOVE over a tree before that tree is removed for it: members that would be left out, members
//! that cannot be removed, and room. A refusal here leaves both trees as they are.
//!
//! Other requests go on meanwhile, so a checked member may have changed when its turn comes. Such failures are reported
//! member by member; a COPY is made beside the tree (`beside.rs`), and leaves it as it is then too.

use std::sync::Arc;

use api::{Account, Cookie, Counted, NamespaceError, SelectError};
use file_state::Change;
use files::ContentMode;
use types::{Attributes, FileId, FileKind};

use crate::access::FileAccess;
use crate::call::Call;
use crate::lock_table::Path;
use crate::refusal::Refusal;
use crate::tree::{Descent, FAILURES_MAX, Failures, PAGE, extended};

/// The fate of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Copied,
    Removed,
}

/// A tree, looked over.
#[derive(Default)]
pub(super) struct Survey {
    /// By their paths, members with which it cannot be done.
    pub failures: Failures,
    entries: u64,
    bytes: u64,
}

pub(crate) struct Surveyor {
    pub access: Arc<FileAccess>,
}

impl Surveyor {
    /// Of `found`, which is at `top`, and of all below it.
    pub(super) async fn survey(
        &self,
        call: &Call,
        top: &Path,
        found: &Attributes,
        fate: Fate,
    ) -> Result<Survey, Refusal> {
        let mut survey = Survey::default();
        survey.count(found);
        if !found.kind.is_directory() {
            // Its name was judged before.
            if fate == Fate::Copied
                && let Err(refusal) = self.may_copy(call, found).await
            {
                survey.failures.push((top.clone(), refusal));
            }
            return Ok(survey);
        }
        let mut open = vec![(*found, Cookie::START, Descent::default())];
        while let Some((dir, after, way)) = open.pop() {
            if survey.failures.len() >= FAILURES_MAX {
                break;
            }
            let page = match self.access.list_to_enter(&call.caller.identity, dir.file, after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    survey.failures.push((way.path(top), error.into()));
                    continue;
                }
            };
            if let Some(last) = page.entries.last().filter(|_| !page.is_last) {
                open.push((dir, last.cookie, way.clone()));
            }
            for entry in &page.entries {
                let member = &entry.attributes;
                survey.count(member);
                let judged = match fate {
                    Fate::Copied => self.may_copy(call, member).await,
                    Fate::Removed => self.may_remove(call, &dir, member).await,
                };
                match judged {
                    Err(refusal) => survey.failures.push((extended(&way.path(top), &entry.name), refusal)),
                    Ok(()) if member.kind.is_directory() => {
                        open.push((*member, Cookie::START, way.down(&entry.name)?));
                    }
                    Ok(()) => {}
                }
            }
        }
        Ok(survey)
    }

    /// As far as it is asked of the entry itself; a directory is listed after this.
    async fn may_copy(&self, call: &Call, found: &Attributes) -> Result<(), Refusal> {
        if matches!(found.kind, FileKind::Directory | FileKind::Symlink) {
            return Ok(());
        }
        self.access.check_readable(call, found).await?;
        let (_held, now) = self.access.hold_for_reading(found.file).await?;
        // A replica that was lost is found out here.
        self.access.files.content(&now, ContentMode::Read).await?;
        Ok(())
    }

    /// Grants of NFS clients on the file are back then, as long as they get no new ones.
    async fn may_remove(&self, call: &Call, dir: &Attributes, found: &Attributes) -> Result<(), Refusal> {
        self.access.may_take(&call.caller.identity, dir, found).await?;
        if found.kind.is_regular() {
            drop(self.access.make_way(found.file, Change::Remove).await?);
        }
        Ok(())
    }

    /// Whether a copy of `source` has room in a directory. A tree that is removed for it counts until its data is
    /// removed, a moment later: so there must be room for both.
    pub(super) async fn judge_room(&self, call: &Call, dir: FileId, source: &Survey) -> Result<(), Refusal> {
        let who = &call.caller.identity;
        self.access.files.require_room(who, dir, source.bytes, 0).await?;
        let quotas = self.access.files.quotas();
        let user = quotas.standing(Account::user(who.uid)).await?;
        let group = quotas.standing(Account::group(who.gid)).await?;
        let standings = [user, group, quotas.tree(dir).await?].into_iter().flatten();
        let files_left = standings.filter_map(|standing| standing.files_left);
        if !who.is_root() && files_left.min().is_some_and(|left| source.entries > left) {
            return Err(NamespaceError::QuotaExceeded.into());
        }
        let free: u64 = self.access.files.pools().states().iter().map(|pool| pool.free_bytes).sum();
        if source.bytes > free { Err(SelectError::NoSpace.into()) } else { Ok(()) }
    }

    /// Whether what is moved has room below the directory that it comes to, in place of `old`. Nobody's own account changes.
    pub(super) async fn judge_room_of_move(
        &self,
        call: &Call,
        moved: &Attributes,
        (from, to): (FileId, FileId),
        old: &Attributes,
    ) -> Result<(), Refusal> {
        let quotas = self.access.files.quotas();
        let Some(tree) = quotas.tree(to).await?.filter(|_| !call.caller.identity.is_root()) else {
            return Ok(());
        };
        if quotas.tree(from).await?.is_some_and(|other| other.account == tree.account) {
            return Ok(());
        }
        let mut more = self.counted(moved).await?;
        more.subtract(&self.counted(old).await?);
        let fits = |left: Option<u64>, more: i64| {
            left.is_none_or(|left| u64::try_from(more).is_ok_and(|more| more <= left) || more <= 0)
        };
        if fits(tree.bytes_left, more.bytes) && fits(tree.files_left, more.files + more.directories) {
            Ok(())
        } else {
            Err(NamespaceError::QuotaExceeded.into())
        }
    }

    async fn counted(&self, found: &Attributes) -> Result<Counted, Refusal> {
        if !found.kind.is_directory() {
            let bytes = if found.kind.is_regular() { found.size.cast_signed() } else { 0 };
            return Ok(Counted { files: 1, directories: 0, bytes });
        }
        let mut counted = self.access.files.quotas().counted(Account::tree(found.file)).await?;
        counted.directories += 1;
        Ok(counted)
    }
}

impl Survey {
    fn count(&mut self, found: &Attributes) {
        self.entries += 1;
        self.bytes += if found.kind.is_regular() { found.size } else { 0 };
    }
}
