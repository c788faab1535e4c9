//! Both ends of a COPY or MOVE: found, judged, and looked at again once their change has begun.

use std::sync::Arc;

use api::Activity;
use http::StatusCode;
use types::{Attributes, Name};

use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::Conditions;
use crate::lock_table::Path;
use crate::own_urls::OwnUrls;
use crate::refusal::Refusal;
use crate::resolve::{Last, PathTarget, Resolver, no_directory};

pub(crate) struct EndsResolver {
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub own_urls: Arc<OwnUrls>,
}

/// Both ends of a COPY or MOVE, checked.
pub(super) struct Ends {
    pub source: PathTarget,
    pub found: Attributes,
    pub destination: PathTarget,
    /// The path of the destination as it was asked for.
    pub asked: Path,
    pub may_overwrite: bool,
}

impl EndsResolver {
    pub(super) async fn resolve(&self, call: &Call) -> Result<Ends, Refusal> {
        let may_overwrite = call.may_overwrite()?;
        let source = self.resolver.resolve(call, &call.path, Last::Itself).await?;
        let found = source.existing()?;
        self.conditions.check(call, &source).await?;
        let (path, is_directory_form) = self.own_urls.destination(call)?;
        let destination = self.resolver.resolve(call, &path, Last::Itself).await.map_err(|refusal| {
            if refusal.status == StatusCode::NOT_FOUND {
                return no_directory(&path);
            }
            refusal
        })?;
        destination.entry()?;
        let is_directory = |found: &Attributes| found.kind.is_directory();
        if is_directory_form && !is_directory(&found) && !destination.found.as_ref().is_some_and(is_directory)
        {
            return Err(Refusal::conflict("a destination that ends with a slash is a directory's"));
        }
        if source.path == destination.path {
            return Err(Refusal::forbidden("source and destination are one"));
        }
        if destination.found.is_some() {
            if !may_overwrite {
                return Err(Refusal::precondition("destination exists"));
            }
            call.demand(Activity::Delete, &destination.path)?;
        }
        refuse_ancestor(&source.path, &destination.path)?;
        Ok(Ends { source, found, destination, asked: path, may_overwrite })
    }

    /// Looks at the destination again, now that its change has begun.
    pub(super) async fn is_destination_still(&self, call: &Call, ends: &mut Ends) -> bool {
        let still = self.conditions.still_at(call, &ends.asked, Last::Itself, &ends.destination).await;
        still.map(|destination| ends.destination = destination).is_some()
    }
}

impl Ends {
    /// A directory that is overwritten loses its contents before its name: first whether the name may go.
    pub async fn judge_overwrite(&self, access: &FileAccess, call: &Call) -> Result<(), Refusal> {
        match (&self.destination.parent, &self.destination.found) {
            (Some(parent), Some(old)) => access.may_take(&call.caller.identity, parent, old).await,
            _ => Ok(()),
        }
    }
}

/// A destination is removed before it is overwritten; a source below it would be removed too.
fn refuse_ancestor(source: &[Name], destination: &[Name]) -> Result<(), Refusal> {
    if source.starts_with(destination) {
        return Err(Refusal::conflict("the destination is a directory above the source"));
    }
    Ok(())
}

/// The status of an answer.
pub(super) fn created_or_replaced(was_there: bool) -> StatusCode {
    if was_there { StatusCode::NO_CONTENT } else { StatusCode::CREATED }
}

#[cfg(test)]
mod tests {
    use http_wire::target::parse_path;

    use super::*;

    #[test]
    fn a_directory_above_the_source_is_not_overwritten() {
        let judged = |source, destination| {
            refuse_ancestor(&parse_path(source).unwrap(), &parse_path(destination).unwrap())
                .map_err(|refusal| refusal.status)
        };
        assert_eq!(judged("/a/b/c", "/a"), Err(StatusCode::CONFLICT));
        assert_eq!(judged("/a/b", "/a"), Err(StatusCode::CONFLICT));
        assert_eq!(judged("/a", "/a/b"), Ok(()));
        assert_eq!(judged("/a/b", "/a/bc"), Ok(()));
    }
}
