//! From a path to a file, for a request.

use std::sync::Arc;

use api::{Namespace, NamespaceError};
pub(crate) use files::{Last, PathTarget};
use files::{WalkError, path_text};
use types::Name;

use crate::call::Call;
use crate::refusal::Refusal;

pub(crate) struct Resolver {
    pub namespace: Arc<dyn Namespace>,
}

impl Resolver {
    /// Walks to what must be there up to its last component.
    ///
    /// A directory on the way that is missing is 404 here, and 409 in `resolve_new`.
    pub async fn resolve(&self, call: &Call, path: &[Name], last: Last) -> Result<PathTarget, Refusal> {
        self.walk(call, path, last).await.map_err(|error| not_reached(call, error))
    }

    /// As `resolve`, for something about to be made: a missing directory on the way is a conflict.
    pub async fn resolve_new(&self, call: &Call, path: &[Name]) -> Result<PathTarget, Refusal> {
        self.walk(call, path, Last::Followed).await.map_err(|error| not_made(call, path, error))
    }

    /// As `resolve`, for a condition, which may name what is missing.
    pub async fn walk(&self, call: &Call, path: &[Name], last: Last) -> Result<PathTarget, WalkError> {
        files::walk(&*self.namespace, &call.caller, path, last).await
    }
}

/// Of a path at whose end something is about to be made.
pub(crate) fn not_made(call: &Call, path: &[Name], error: WalkError) -> Refusal {
    match error {
        WalkError::Namespace(NamespaceError::NotFound | NamespaceError::Stale(_)) => no_directory(path),
        error => not_reached(call, error),
    }
}

/// 409: the directory that is to hold the last name of the path is missing.
pub(crate) fn no_directory(path: &[Name]) -> Refusal {
    let above = path_text(path.split_last().map_or(path, |(_, above)| above));
    Refusal::conflict(format!(
        "{above} is or leads to no directory: make one there by MKCOL first, or correct the path"
    ))
}

fn not_reached(call: &Call, error: WalkError) -> Refusal {
    match error {
        WalkError::Denied => call.denied(),
        error => error.into(),
    }
}
