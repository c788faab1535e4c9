//! From a path to a file, through symbolic links as the kernel would go.

use api::{Activity, Caller, NamespaceError};
use http::StatusCode;
use types::{Attributes, FileId, FileKind, Name};

use super::Page;
use crate::refusal::Refusal;

/// As Linux (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Components, those of links included.
const COMPONENTS_MAX: usize = 1_024;

#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Without symbolic links.
    pub path: Vec<Name>,
    pub attributes: Attributes,
    /// `None` for the root.
    pub parent: Option<Attributes>,
}

enum Step {
    Down(Name),
    Up,
}

impl Page {
    pub(super) async fn walk(&self, caller: &Caller, path: &[Name]) -> Result<Place, Refusal> {
        let hidden = || Refusal::new(StatusCode::FORBIDDEN, "access denied");
        if !caller.may(Activity::ReadMetadata, path) {
            return Err(hidden());
        }
        let root = self.namespace.attributes(FileId::ROOT).await?;
        let mut trail: Vec<(Option<Name>, Attributes)> = vec![(None, root)];
        let mut ahead: Vec<Step> = path.iter().rev().cloned().map(Step::Down).collect();
        let (mut links, mut components) = (0, 0);
        while let Some(step) = ahead.pop() {
            components += 1;
            if components > COMPONENTS_MAX {
                return Err(Refusal::bad_request("the path is too deep"));
            }
            let Step::Down(name) = step else {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            };
            let (_, dir) = trail.last().expect("the root is never popped");
            let found = match self.namespace.lookup(&caller.identity, dir.file, &name).await {
                // A file in the middle of the path: there is nothing below it.
                Err(NamespaceError::NotDirectory) => return Err(Refusal::not_found()),
                other => other?,
            };
            if found.kind != FileKind::Symlink {
                trail.push((Some(name), found));
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Refusal::not_found());
            }
            let target = self.namespace.read_link(found.file).await?;
            if target.as_bytes().starts_with(b"/") {
                trail.truncate(1);
            }
            let steps: Option<Vec<Step>> =
                target.as_bytes().split(|byte| *byte == b'/').filter_map(step_of).collect();
            ahead.extend(steps.ok_or_else(Refusal::not_found)?.into_iter().rev());
        }
        let path: Vec<Name> = trail.iter().filter_map(|(name, _)| name.clone()).collect();
        // A link may have led out of what the credential is for.
        if !caller.may(Activity::ReadMetadata, &path) {
            return Err(hidden());
        }
        let parent = trail.len().checked_sub(2).map(|at| trail[at].1);
        let (_, attributes) = trail.pop().expect("the root is never popped");
        Ok(Place { path, attributes, parent })
    }
}

/// `None` where nothing is to be done, `Some(None)` where no name can be meant.
fn step_of(component: &[u8]) -> Option<Option<Step>> {
    match component {
        b"" | b"." => None,
        b".." => Some(Some(Step::Up)),
        name => Some(Name::new(name).ok().map(Step::Down)),
    }
}
