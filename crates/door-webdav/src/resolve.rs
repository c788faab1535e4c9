//! From a path to a file, for a request.

use files::WalkError;
pub(crate) use files::{Last, PathTarget};
use types::Name;

use crate::call::Call;
use crate::front::Front;
use crate::refusal::Refusal;

impl Front {
    /// Walks to what must be there up to its last component.
    ///
    /// A directory on the way that is missing is 404 here; who is about to make something says 409 for it.
    pub(crate) async fn resolve(
        &self,
        call: &Call,
        path: &[Name],
        last: Last,
    ) -> Result<PathTarget, Refusal> {
        let found = files::walk(&*self.services.namespace, &call.caller, path, last).await;
        found.map_err(|error| match error {
            WalkError::Denied => call.denied(),
            error => error.into(),
        })
    }
}
