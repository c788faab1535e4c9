//! From a path to a file: the walk through the namespace, with symbolic links inside it followed as the kernel would.

use api::{Activity, NamespaceError};
use types::{Attributes, FileId, FileKind, Name};

use crate::call::Call;
use crate::front::Front;
use crate::locks::Path;
use crate::refusal::Refusal;

/// As Linux (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Components, those of links included.
const COMPONENTS_MAX: usize = 1_024;

/// What a path leads to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Without symbolic links on the way.
    pub path: Path,
    /// The directory that holds it; the root has none.
    pub parent: Option<Attributes>,
    /// `None`: the name is free.
    pub found: Option<Attributes>,
}

impl Place {
    pub fn name(&self) -> Option<&Name> {
        self.path.last()
    }

    pub fn existing(&self) -> Result<Attributes, Refusal> {
        self.found.ok_or_else(Refusal::not_found)
    }

    /// Where an entry can be made or removed: not the root.
    pub fn entry(&self) -> Result<(FileId, &Name), Refusal> {
        match (&self.parent, self.path.last()) {
            (Some(parent), Some(name)) => Ok((parent.file, name)),
            _ => Err(Refusal::forbidden("the root directory stays as it is")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// A symbolic link at the end of the path is what is meant.
    Itself,
    Followed,
}

impl Front {
    /// Walks to what must be there up to its last component.
    ///
    /// A directory on the way that is missing is 404 here; who is about to make something says 409 for it.
    pub(crate) async fn resolve(&self, call: &Call, path: &[Name], last: Last) -> Result<Place, Refusal> {
        if !call.caller.may(Activity::ReadMetadata, path) {
            return Err(call.denied());
        }
        let root = self.services.namespace.attributes(FileId::ROOT).await?;
        // The directories from the root down to where the walk is, and the names that led there.
        let mut trail: Vec<Attributes> = vec![root];
        let mut walked: Path = Vec::new();
        let mut ahead: Vec<Step> = path.iter().rev().cloned().map(Step::Down).collect();
        let (mut links, mut components) = (0, 0);
        while let Some(step) = ahead.pop() {
            components += 1;
            if components > COMPONENTS_MAX {
                return Err(Refusal::bad_request("path is too deep"));
            }
            let Step::Down(name) = step else {
                if trail.len() > 1 {
                    trail.pop();
                    walked.pop();
                }
                continue;
            };
            let dir = *trail.last().expect("the root is never popped");
            let found = match self.services.namespace.lookup(&call.caller.identity, dir.file, &name).await {
                Ok(found) => found,
                Err(NamespaceError::NotFound) if ahead.is_empty() => {
                    walked.push(name);
                    return self.place(call, walked, Some(dir), None);
                }
                // A file in the middle of the path: there is nothing below it.
                Err(NamespaceError::NotDirectory) => return Err(Refusal::not_found()),
                Err(error) => return Err(error.into()),
            };
            if found.kind == FileKind::Symlink && (last == Last::Followed || !ahead.is_empty()) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Refusal::not_found());
                }
                let target = self.services.namespace.read_link(found.file).await?;
                follow(target.as_bytes(), &mut trail, &mut walked, &mut ahead)?;
                continue;
            }
            walked.push(name);
            if ahead.is_empty() {
                return self.place(call, walked, Some(dir), Some(found));
            }
            trail.push(found);
        }
        let here = *trail.last().expect("the root is never popped");
        let parent = trail.len().checked_sub(2).map(|at| trail[at]);
        self.place(call, walked, parent, Some(here))
    }

    /// Links may have led out of what the credential is for.
    fn place(
        &self,
        call: &Call,
        path: Path,
        parent: Option<Attributes>,
        found: Option<Attributes>,
    ) -> Result<Place, Refusal> {
        if !call.caller.may(Activity::ReadMetadata, &path) {
            return Err(call.denied());
        }
        Ok(Place { path, parent, found })
    }
}

/// A component of a path or of a link's target.
enum Step {
    Down(Name),
    Up,
}

/// Puts the target's components before what is still ahead. An absolute target starts at the namespace's root, as it
/// does for who has mounted it as its own root.
fn follow(
    target: &[u8],
    trail: &mut Vec<Attributes>,
    walked: &mut Path,
    ahead: &mut Vec<Step>,
) -> Result<(), Refusal> {
    if target.starts_with(b"/") {
        trail.truncate(1);
        walked.clear();
    }
    let mut steps = Vec::new();
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => steps.push(Step::Up),
            name => steps.push(Step::Down(Name::new(name).map_err(|_| Refusal::not_found())?)),
        }
    }
    ahead.extend(steps.into_iter().rev());
    Ok(())
}
