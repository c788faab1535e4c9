//! An upload has two halves: bytes into an unnamed replica (`writer`), which may happen at a pool, and the name, which
//! the head gives when all of them are there. An upload that ends before that leaves nothing: the unnamed file is an
//! orphan.
//!
//! Grants of NFS clients on the file that has the name are recalled while the bytes come in, and the upload waits until
//! they are back or revoked: the bytes are not sent twice because a client is slow. The price is that an upload that
//! fails has cost the clients their layouts, and for up to a lease they get no others and go through the head.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use api::{
    ANSWER_TIME, Caller, NamespaceError, Publish, Published, Purpose, Replace, Selection, TicketMode, Unnamed,
};
use file_state::{Change, Modes, Share};
use files::{FilesError, OpenFile, Received, WalkError, Writer, mismatch};
use http::StatusCode;
use types::{Attributes, Checksum, ChecksumKind, FileId, Name, PoolId, Timestamp};

use crate::conditions::PathChangeGuard;
use crate::front::Front;
use crate::locks::{Path, PathChange, Principal};
use crate::put::under_way::Admitted;
use crate::refusal::Refusal;
use crate::resolve::{Last, PathTarget};

/// A grant that is not back by its deadline is revoked within this: a round of the NFS door, and fencing at the pools.
const REVOCATION: Duration = Duration::from_secs(10);

/// A name that other requests, or NFS clients, give to one file after the other: of those who put it at once one is done
/// in each round.
const ATTEMPTS_MAX: usize = 128;
pub(crate) const NAME_IS_GIVEN_AWAY: &str = "the name is given to one file after the other";

/// The name half. Dropping it gives the upload up.
pub(crate) struct Pending {
    pub caller: Caller,
    pub path: Path,
    pub dir: FileId,
    pub name: Name,
    pub file: Attributes,
    pub pool: PoolId,
    pub terms: Terms,
    /// Given up then if it was sent elsewhere and nothing was heard. Its ticket ends at that time too.
    pub deadline: Duration,
    /// The data half between requests; `None` where it is `complete` or has not begun.
    pub writer: Option<Writer>,
    /// All bytes are on the disk: only the name is missing.
    pub complete: Option<Received>,
    /// Its place among those that outlive a request.
    pub admitted: Option<Admitted>,
    held: OpenFile,
}

/// An upload in the hand of a request. When this is dropped, also with the request, it goes back to where it will be found
/// again, unless it is over.
pub(crate) struct HeldUpload {
    /// There until this is dropped.
    pending: Option<Pending>,
    is_over: bool,
    put_back: Box<dyn Fn(Pending) + Send + Sync>,
}

impl HeldUpload {
    pub fn new(pending: Pending, put_back: impl Fn(Pending) + Send + Sync + 'static) -> HeldUpload {
        HeldUpload { pending: Some(pending), is_over: false, put_back: Box::new(put_back) }
    }

    /// Brings what the writer has got onto the disk.
    pub async fn finish(&mut self) -> Result<Received, Refusal> {
        let pending = &mut **self;
        if let Some(writer) = &mut pending.writer {
            pending.complete = Some(writer.finish().await?);
            pending.writer = None;
        }
        let none = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "upload has no bytes");
        pending.complete.clone().ok_or_else(none)
    }

    /// It is not found again.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// It is over, if the same would not do later either.
    fn refused(&mut self, refusal: Refusal) -> Refusal {
        self.is_over = !refusal.may_pass();
        refusal
    }
}

impl Deref for HeldUpload {
    type Target = Pending;

    fn deref(&self) -> &Pending {
        self.pending.as_ref().expect("taken only when this is dropped")
    }
}

impl DerefMut for HeldUpload {
    fn deref_mut(&mut self) -> &mut Pending {
        self.pending.as_mut().expect("taken only when this is dropped")
    }
}

impl Drop for HeldUpload {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        // A client that is told where to go on cannot send lost bytes again, and before the first byte there is nothing
        // to go on with: such an upload starts anew.
        let is_of_use =
            pending.writer.as_ref().is_none_or(|writer| !writer.is_broken() && writer.offset() > 0);
        if is_of_use && !self.is_over {
            (self.put_back)(pending);
        }
    }
}

/// The client's terms for the upload, given in advance.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub replace: Replace,
    pub promised: Vec<Checksum>,
    pub size: Option<u64>,
    pub mtime: Option<Timestamp>,
    /// Of locks that the client submitted: asked again when the name is given, which may be hours later.
    pub lock_tokens: Vec<String>,
    /// Its directory gets the name that leads to it later: until then the path leads to what that one replaces.
    pub is_beside: bool,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            replace: Replace::Any,
            promised: Vec::new(),
            size: None,
            mtime: None,
            lock_tokens: Vec::new(),
            is_beside: false,
        }
    }
}

const PERMISSIONS: u32 = 0o644;

impl Front {
    /// An unnamed file on a pool with space for all that was said to come.
    pub(crate) async fn begin_upload(
        &self,
        caller: &Caller,
        path: Path,
        dir: FileId,
        terms: Terms,
    ) -> Result<Pending, Refusal> {
        let name = path.last().cloned().ok_or_else(|| Refusal::forbidden("the root is a directory"))?;
        let chosen = self.services.files.choose(&Selection {
            directory: Some(dir),
            name: Some(&name),
            owner: Some((caller.identity.uid, caller.identity.gid)),
            bytes: terms.size.unwrap_or(0),
            ..Selection::new(Purpose::Create)
        });
        let pool = chosen?;
        let new = Unnamed { permissions: PERMISSIONS, location: pool };
        let make = self.services.uploads.create_unnamed(&caller.identity, dir, &new);
        let share = Share::new(Modes::BOTH, Modes::NONE);
        let (held, file) = self.services.files.make_unnamed(self.requests, share, make).await?;
        let deadline = self.services.clock.monotonic() + Duration::from_secs(3_600);
        let caller = caller.clone();
        let (writer, complete, admitted) = (None, None, None);
        Ok(Pending { caller, path, dir, name, file, pool, terms, deadline, writer, complete, admitted, held })
    }

    /// Writes through the head.
    pub(crate) async fn writer(&self, pending: &Pending, more: &[ChecksumKind]) -> Result<Writer, Refusal> {
        let replica = self.services.files.open_replica(&pending.file, TicketMode::ReadWrite).await?;
        let replica = replica
            .ok_or_else(|| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "new file has no location"))?;
        Ok(Writer::new(replica, self.kinds_for(pending, more)))
    }

    /// The sums that are kept, and those that the client will hold against them.
    pub(crate) fn kinds_for(&self, pending: &Pending, more: &[ChecksumKind]) -> Vec<ChecksumKind> {
        let promised = pending.terms.promised.iter().map(Checksum::kind);
        self.config.checksums.iter().copied().chain(promised).chain(more.iter().copied()).collect()
    }

    /// Compares checksums, recalls grants on the old file, and gives the name.
    pub(crate) async fn publish(
        self: &Arc<Self>,
        pending: Pending,
        received: Received,
    ) -> Result<Published, Refusal> {
        self.publish_kept(HeldUpload::new(pending, drop), received).await
    }

    /// As `publish`, for an upload that can be asked for again: what hinders it now and may not later leaves it as it
    /// is, and so does a client that hangs up before it is being given its name.
    pub(crate) async fn publish_kept(
        self: &Arc<Self>,
        mut kept: HeldUpload,
        received: Received,
    ) -> Result<Published, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let ready = self.make_ready(&kept, &received).await;
            let how = ready.map_err(|refusal| kept.refused(refusal))?;
            let published;
            (kept, published) = self.give_name(kept, how).await?;
            if let Some(published) = published {
                return Ok(published);
            }
        }
        Err(Refusal::busy(NAME_IS_GIVEN_AWAY))
    }

    /// The publish to ask for: it may replace the file that has the name now, and no other.
    async fn make_ready(&self, pending: &Pending, received: &Received) -> Result<Publish, Refusal> {
        if let Some(size) = pending.terms.size.filter(|size| *size != received.size) {
            return Err(Refusal::bad_request(format!(
                "got {} bytes of {size}; nothing was kept",
                received.size
            )));
        }
        if let Some((promised, found)) = mismatch(&pending.terms.promised, &received.checksums) {
            return Err(Refusal::bad_request(format!(
                "checksum does not agree: told {promised}, got {found}; nothing was kept"
            )));
        }
        let (principal, tokens) = (Principal::from(&pending.caller), &pending.terms.lock_tokens);
        self.judge_change(&principal, tokens, &PathChange::of_resource(&pending.path))?;
        let replace = match self.find_again(pending).await? {
            None => match pending.terms.replace {
                Replace::Any | Replace::Never => Replace::Never,
                Replace::File(_) | Replace::Exactly { .. } => return Err(state_differs(&pending.terms)),
            },
            // No grant is recalled for an upload that is refused anyway.
            Some(before) if !names(pending.terms.replace, before.file) => {
                return Err(state_differs(&pending.terms));
            }
            Some(before) if before.kind.is_directory() => return Err(is_directory()),
            Some(before) => {
                drop(self.outwait(before.file).await?);
                match pending.terms.replace {
                    Replace::Any => Replace::File(before.file),
                    told => told,
                }
            }
        };
        let space_used = match self.services.pools.pool(pending.pool) {
            Some(pool) => {
                let facts = pool.facts(&[pending.file.file], ANSWER_TIME).await.sole()?;
                facts.map_or(0, |facts| facts.space_used)
            }
            None => 0,
        };
        let (size, mtime, checksums) = (received.size, pending.terms.mtime, received.checksums.clone());
        Ok(Publish { size, space_used, mtime, checksums, replace })
    }

    /// The file that has the name now. The locks and the grant were judged by path, so the path must still lead to the
    /// directory that gets the entry.
    async fn find_again(&self, pending: &Pending) -> Result<Option<Attributes>, Refusal> {
        if pending.terms.is_beside {
            return Ok(None);
        }
        let walked =
            files::walk(&*self.services.namespace, &pending.caller, &pending.path, Last::Itself).await;
        let place = walked.map_err(|error| match error {
            WalkError::Namespace(NamespaceError::NotFound | NamespaceError::Stale(_)) => elsewhere(),
            error => error.into(),
        })?;
        match &place.parent {
            Some(parent) if parent.file == pending.dir && place.path == pending.path => Ok(place.found),
            _ => Err(elsewhere()),
        }
    }

    /// `None`: something else has the name than when it was asked, and everything is to be asked again.
    async fn give_name(
        self: &Arc<Self>,
        mut kept: HeldUpload,
        how: Publish,
    ) -> Result<(HeldUpload, Option<Published>), Refusal> {
        let changing = self.begin_naming(&kept, how.replace == Replace::Never).await;
        let changing = changing.map_err(|refusal| kept.refused(refusal))?;
        let front = Arc::clone(self);
        // In a task of its own: a client that hangs up ends it nowhere in the middle. The hold on the file, and the change
        // that locks wait for, last until the namespace has answered.
        let naming = async move {
            let named = front.publish_unnamed(&kept, &how).await;
            drop(changing);
            match named {
                Ok(published) => {
                    if published.is_some() {
                        kept.end();
                    }
                    Ok((kept, published))
                }
                Err(refusal) => Err(kept.refused(refusal)),
            }
        };
        let failed = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the file was not given its name");
        self.changing.to_its_end(naming).await.unwrap_or_else(|| Err(failed()))
    }

    /// Asks once more whether it may have its name: it may have been locked, or its directory moved, while layouts were
    /// waited for.
    async fn begin_naming(&self, pending: &Pending, is_new: bool) -> Result<PathChangeGuard, Refusal> {
        let path = &pending.path;
        let change = if is_new { PathChange::of_member(path) } else { PathChange::of_resource(path) };
        let principal = Principal::from(&pending.caller);
        // Bytes are not sent twice because a MOVE takes its time.
        let patience = self.services.files.recall_time() + REVOCATION;
        let tokens = &pending.terms.lock_tokens;
        let changing = self.begin_changes_of(&principal, tokens, vec![change], patience).await?;
        self.find_again(pending).await?;
        Ok(changing)
    }

    async fn publish_unnamed(&self, pending: &Pending, how: &Publish) -> Result<Option<Published>, Refusal> {
        let (identity, file) = (&pending.caller.identity, pending.file.file);
        let _replacing = match how.replace {
            Replace::File(before) | Replace::Exactly { file: before, .. } => {
                Some(self.outwait(before).await?)
            }
            Replace::Never | Replace::Any => None,
        };
        // Written as a whole: the upload's own open is not in the way of what locks of the name deny to writers.
        let reading = Share::new(Modes::READ, Modes::NONE);
        self.services.files.table().downgrade(file, pending.held.owner(), reading);
        let carried = self.carry_locks(&pending.path, &pending.file)?;
        let published = self.services.uploads.publish(identity, file, pending.dir, &pending.name, how).await;
        match &published {
            Ok(Published { replaced: Some(replaced), .. }) => carried.settle(replaced.file),
            Ok(_) => {}
            Err(_) => carried.settle(file),
        }
        match published {
            Ok(published) => Ok(Some(published)),
            Err(NamespaceError::Exists) if pending.terms.replace == Replace::Any => Ok(None),
            Err(NamespaceError::Exists) => Err(state_differs(&pending.terms)),
            Err(NamespaceError::IsDirectory) => Err(is_directory()),
            Err(NamespaceError::NotFound | NamespaceError::Stale(_)) => Err(elsewhere()),
            Err(error) => Err(error.into()),
        }
    }

    /// Recalls the grants of NFS clients on a file that is about to be changed; none of them is granted anew until the
    /// returned guard is dropped.
    pub(crate) async fn make_way(
        &self,
        file: FileId,
        change: Change,
    ) -> Result<files::FileChangeGuard, Refusal> {
        Ok(self.before_change(file, change, self.config.recall_patience).await?)
    }

    /// As `make_way`, without waiting, for a caller that will `outwait` later. Refused where that would be.
    pub(crate) async fn call_back(&self, place: &PathTarget) -> Result<(), Refusal> {
        let Some(found) = &place.found else { return Ok(()) };
        match self.before_change(found.file, Change::Replace, Duration::ZERO).await {
            Ok(_) | Err(FilesError::Recalled) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// As `make_way`, and waits until grants that are not given back are revoked.
    async fn outwait(&self, file: FileId) -> Result<files::FileChangeGuard, Refusal> {
        let patience = self.services.files.recall_time() + REVOCATION;
        Ok(self.before_change(file, Change::Replace, patience).await?)
    }

    async fn before_change(
        &self,
        file: FileId,
        change: Change,
        patience: Duration,
    ) -> Result<files::FileChangeGuard, FilesError> {
        self.services.files.before_change(file, Some(self.requests), change, patience).await
    }
}

/// Whether this file may be replaced, as far as that is known without its state.
fn names(replace: Replace, found: FileId) -> bool {
    match replace {
        Replace::Never => false,
        Replace::Any => true,
        Replace::File(file) | Replace::Exactly { file, .. } => file == found,
    }
}

fn elsewhere() -> Refusal {
    Refusal::conflict("its directory was moved or removed meanwhile")
}

fn is_directory() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a directory has this name")
}

fn state_differs(terms: &Terms) -> Refusal {
    Refusal::precondition(match terms.replace {
        Replace::Never => "file exists",
        _ => "file was changed meanwhile",
    })
}
