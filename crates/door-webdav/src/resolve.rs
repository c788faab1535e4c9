//! From a path to a file, for a request.

use std::sync::Arc;

use api::{Namespace, NamespaceError};
use files::WalkError;
pub(crate) use files::{Last, PathTarget};
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
        self.walk(call, path, Last::Followed).await.map_err(|error| match error {
            WalkError::Namespace(NamespaceError::NotFound | NamespaceError::Stale(_)) => {
                Refusal::conflict("the directory that would hold it does not exist")
            }
            error => not_reached(call, error),
        })
    }

    /// As `resolve`, for a condition, which may name what is missing.
    pub async fn walk(&self, call: &Call, path: &[Name], last: Last) -> Result<PathTarget, WalkError> {
        files::walk(&*self.namespace, &call.caller, path, last).await
    }
}

fn not_reached(call: &Call, error: WalkError) -> Refusal {
    match error {
        WalkError::Denied => call.denied(),
        error => error.into(),
    }
}
