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
use crate::resolve::{Last, PathTarget, Resolver};

pub(crate) struct EndsResolver {
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub own_urls: Arc<OwnUrls>,
}

/// Both ends of a COPY or MOVE, checked.
pub(super) struct Ends {
    pub source: PathTarget,
    pub found: Attributes,
    pub target: PathTarget,
    /// The path of the target as it was asked for.
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
        let target = self.resolver.resolve(call, &path, Last::Itself).await.map_err(|refusal| {
            if refusal.status == StatusCode::NOT_FOUND {
                return Refusal::conflict("the directory that would hold it does not exist");
            }
            refusal
        })?;
        target.entry()?;
        let is_directory = |found: &Attributes| found.kind.is_directory();
        if is_directory_form && !is_directory(&found) && !target.found.as_ref().is_some_and(is_directory) {
            return Err(Refusal::conflict("a destination that ends with a slash is a directory's"));
        }
        if source.path == target.path {
            return Err(Refusal::forbidden("source and destination are one"));
        }
        if target.found.is_some() {
            if !may_overwrite {
                return Err(Refusal::precondition("destination exists"));
            }
            call.demand(Activity::Delete, &target.path)?;
        }
        refuse_ancestor(&source.path, &target.path)?;
        Ok(Ends { source, found, target, asked: path, may_overwrite })
    }

    /// Looks at the target again, now that its change has begun.
    pub(super) async fn is_target_still(&self, call: &Call, ends: &mut Ends) -> bool {
        let still = self.conditions.still_at(call, &ends.asked, Last::Itself, &ends.target).await;
        still.map(|target| ends.target = target).is_some()
    }
}

impl Ends {
    /// A directory that is overwritten loses its contents before its name: first whether the name may go.
    pub async fn judge_overwrite(&self, access: &FileAccess, call: &Call) -> Result<(), Refusal> {
        match (&self.target.parent, &self.target.found) {
            (Some(parent), Some(old)) => access.may_take(&call.caller.identity, parent, old).await,
            _ => Ok(()),
        }
    }
}

/// A destination is removed before it is overwritten; a source below it would be removed too.
fn refuse_ancestor(source: &[Name], target: &[Name]) -> Result<(), Refusal> {
    if source.starts_with(target) {
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
        let judged = |source, target| {
            refuse_ancestor(&parse_path(source).unwrap(), &parse_path(target).unwrap())
                .map_err(|refusal| refusal.status)
        };
        assert_eq!(judged("/a/b/c", "/a"), Err(StatusCode::CONFLICT));
        assert_eq!(judged("/a/b", "/a"), Err(StatusCode::CONFLICT));
        assert_eq!(judged("/a", "/a/b"), Ok(()));
        assert_eq!(judged("/a/b", "/a/bc"), Ok(()));
    }
}
