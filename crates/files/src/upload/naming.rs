//! The name half of an upload: the door's own rules, grants of others, and the transaction that gives the name.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::{ANSWER_TIME, NamespaceError, Publish, Published, Replace};
use types::{Attributes, FileId, Name};

use super::{Body, Complete, Upload, UploadError, UploadTarget, Way, directory_moved, of_directory};
use crate::{Change, FileChangeGuard, FilesError, Last, walk};

/// A grant that is not back by its deadline is revoked within this: a round of the NFS door, and fencing at the pools.
const REVOCATION: Duration = Duration::from_secs(10);

/// A name that other requests, or NFS clients, give to one file after the other: of those that upload it at once one is
/// done in each round.
const ATTEMPTS_MAX: usize = 128;

/// Rules that a door has for names beside the conflict table.
pub trait Naming: Send + Sync {
    type Guard: NamingGuard;
    type Refused: Send + 'static;

    /// Asked before anything is recalled for the name, and again only if another file got the name meanwhile. Until the
    /// guard is dropped, the door does nothing to the name that would forbid this.
    fn begin(&self, name: NameToGive<'_>) -> impl Future<Output = Result<Self::Guard, Self::Refused>> + Send;

    /// Whether the same upload may get its name later.
    fn may_pass(refused: &Self::Refused) -> bool;
}

pub trait NamingGuard: Send + 'static {
    /// The name was given. A guard that is dropped without this is one of a name that was not.
    fn given(&mut self, published: &Published);
}

#[derive(Clone, Copy, Debug)]
pub struct NameToGive<'a> {
    /// Without symbolic links.
    pub path: &'a [Name],
    /// The unnamed file that is to get it.
    pub file: &'a Attributes,
    /// No file has it yet.
    pub is_new: bool,
    /// How long other changes of the name may be waited for: bytes are not sent twice because one takes its time.
    pub patience: Duration,
}

/// Why [`Complete::publish`] gives no name: the files, or the door.
#[derive(Debug)]
pub enum PublishError<R> {
    Files(FilesError),
    Door(R),
}

impl<R, E: Into<FilesError>> From<E> for PublishError<R> {
    fn from(error: E) -> PublishError<R> {
        PublishError::Files(error.into())
    }
}

/// All that had to be asked before is answered.
struct Ready<G> {
    guard: G,
    changing: Option<FileChangeGuard>,
    how: Publish,
}

enum Named {
    Given(Box<Published>),
    /// Another file has the name than when it was asked for.
    Taken(Upload),
}

/// Of a door that has no rules for names.
struct NoRules;

impl Naming for NoRules {
    type Guard = NoRules;
    type Refused = Infallible;

    async fn begin(&self, _: NameToGive<'_>) -> Result<NoRules, Infallible> {
        Ok(NoRules)
    }

    fn may_pass(refused: &Infallible) -> bool {
        match *refused {}
    }
}

impl NamingGuard for NoRules {
    fn given(&mut self, _: &Published) {}
}

impl Complete {
    /// As [`Complete::publish`], for a door that has no rules for names beside the conflict table.
    pub async fn publish_without_rules(self) -> Result<Published, FilesError> {
        self.publish(&NoRules).await.map_err(|error| match error {
            PublishError::Files(error) => error,
            PublishError::Door(never) => match never {},
        })
    }

    /// Compares the bytes with what was promised, recalls grants on the file that has the name, and gives the name in one
    /// transaction. It may replace that file, and no other.
    ///
    /// An upload with a keeper goes back to it if the hindrance [`FilesError::may_pass`], or if the caller stops waiting
    /// before the name is being given. From then on it goes on to its end.
    pub async fn publish<N: Naming>(self, naming: &N) -> Result<Published, PublishError<N::Refused>> {
        let Complete(mut upload) = self;
        for _ in 0..ATTEMPTS_MAX {
            let ready = upload.make_ready(naming).await;
            let Some(ready) = ready.inspect_err(|error| upload.is_over = !may_pass::<N>(error))? else {
                continue;
            };
            let tasks = Arc::clone(&upload.body().files.tasks);
            // In a task of its own: the hold on the file, and the guards, last until the namespace has answered.
            let named = tasks.to_its_end(upload.give_name(ready)).await;
            match named.unwrap_or(Err(UploadError::Failed.into()))? {
                Named::Given(published) => return Ok(*published),
                Named::Taken(back) => upload = back,
            }
        }
        Err(UploadError::Contended.into())
    }
}

impl Upload {
    /// `None`: another file has the name than was known, and everything is to be asked again.
    async fn make_ready<N: Naming>(
        &mut self,
        naming: &N,
    ) -> Result<Option<Ready<N::Guard>>, PublishError<N::Refused>> {
        let body = self.body_mut();
        let received = body.judge_received()?;
        let patience = body.files.recall_time() + REVOCATION;
        let (path, file, is_new) = (&body.target.place.path, &body.file, body.target.is_free());
        let name = NameToGive { path, file, is_new, patience };
        let guard = naming.begin(name).await.map_err(PublishError::Door)?;
        body.walk_if_moved().await?;
        if body.target.is_free() != is_new {
            return Ok(None);
        }
        let replace = body.judge_target()?;
        let changing = match replace {
            Replace::File(file) | Replace::Exactly { file, .. } => {
                Some(body.before_replacing(file, patience).await?)
            }
            Replace::Never | Replace::Any => None,
        };
        let space_used = body.space_used().await?;
        // Both may have taken long.
        body.walk_if_moved().await?;
        if body.judge_target()? != replace {
            return Ok(None);
        }
        let (mtime, checksums) = (body.terms.mtime, received.checksums);
        let how = Publish { size: received.size, space_used, mtime, checksums, replace };
        Ok(Some(Ready { guard, changing, how }))
    }

    async fn give_name<G: NamingGuard>(mut self, ready: Ready<G>) -> Result<Named, FilesError> {
        let Ready { mut guard, changing, how } = ready;
        let body = self.body_mut();
        let (dir, name) = body.entry();
        let uploads = &body.files.services.uploads;
        let published = uploads.publish(&body.caller.identity, body.file.file, dir, name, &how).await;
        if let Ok(published) = &published {
            if let Some(replaced) = &published.replaced {
                // Before the door lets go of the file: an open that has found it by the name looks again.
                body.files.call_back(replaced.file, Some(body.holder), Change::Replace);
            }
            guard.given(published);
        }
        drop(guard);
        drop(changing);
        let error = match published {
            Ok(published) => {
                self.is_over = true;
                return Ok(Named::Given(Box::new(published)));
            }
            Err(NamespaceError::Exists) if body.terms.replace == Replace::Any => {
                body.target.forget();
                return Ok(Named::Taken(self));
            }
            Err(NamespaceError::Exists) => differs(body.terms.replace).into(),
            Err(NamespaceError::IsDirectory) => UploadError::IsDirectory.into(),
            Err(NamespaceError::NotFound | NamespaceError::Stale(_)) => {
                directory_moved(&body.target.place.path).into()
            }
            Err(error) => FilesError::from(error),
        };
        self.is_over = !error.may_pass();
        Err(error)
    }
}

impl UploadTarget {
    fn is_free(&self) -> bool {
        self.place.found.is_none()
    }

    /// Another file has the name than the walk has found.
    fn forget(&mut self) {
        if let Way::Walked(_) = self.way {
            self.way = Way::Unknown;
        }
    }
}

impl Body {
    /// The door's rules and the credential were judged by path, so the path must still lead to the directory that gets the
    /// entry.
    async fn walk_if_moved(&mut self) -> Result<(), FilesError> {
        let is_walked = match self.target.way {
            Way::Walked(seen) => self.files.moves() == seen,
            Way::Unknown => false,
            Way::Beside => true,
        };
        if is_walked {
            return Ok(());
        }
        let seen = self.files.moves();
        let path = &self.target.place.path;
        let namespace = &*self.files.services.namespace;
        let place = walk(namespace, &self.caller, path, Last::Itself).await;
        let place = place.map_err(|error| of_directory(path, error.into()))?;
        let dir = self.entry().0;
        if place.path != *path || place.parent.is_none_or(|parent| parent.file != dir) {
            return Err(directory_moved(path).into());
        }
        self.retarget(UploadTarget { place, way: Way::Walked(seen) });
        Ok(())
    }

    /// The file that may be replaced, as far as that is known. No grant is recalled for an upload that is refused anyway.
    fn judge_target(&self) -> Result<Replace, UploadError> {
        let told = self.terms.replace;
        let Some(found) = self.target.place.found else {
            return match told {
                Replace::Any | Replace::Never => Ok(Replace::Never),
                Replace::File(_) | Replace::Exactly { .. } => Err(differs(told)),
            };
        };
        if !names(told, found.file) {
            return Err(differs(told));
        }
        if found.kind.is_directory() {
            return Err(UploadError::IsDirectory);
        }
        Ok(if told == Replace::Any { Replace::File(found.file) } else { told })
    }

    async fn space_used(&self) -> Result<u64, FilesError> {
        let Some(pool) = self.files.services.pools.pool(self.pool) else { return Ok(0) };
        let facts = pool.facts(&[self.file.file], ANSWER_TIME).await.sole()?;
        Ok(facts.map_or(0, |facts| facts.space_used))
    }
}

fn may_pass<N: Naming>(error: &PublishError<N::Refused>) -> bool {
    match error {
        PublishError::Files(error) => error.may_pass(),
        PublishError::Door(refused) => N::may_pass(refused),
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

fn differs(told: Replace) -> UploadError {
    match told {
        Replace::Never => UploadError::Exists,
        Replace::Any | Replace::File(_) | Replace::Exactly { .. } => UploadError::Changed,
    }
}
