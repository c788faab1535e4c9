//! From a path to a file: the walk through the namespace, with symbolic links inside it followed as the kernel would.

use api::{Activity, Caller, Namespace, NamespaceError};
use thiserror::Error;
use types::{Attributes, FileId, FileKind, Name};

/// As Linux (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Components, those of links included.
const COMPONENTS_MAX: usize = 1_024;

/// The file or free name that a path leads to.
#[derive(Clone, Debug)]
pub struct PathTarget {
    /// Without symbolic links on the way.
    pub path: Vec<Name>,
    /// The directory that holds it; the root has none.
    pub parent: Option<Attributes>,
    /// `None`: the name is free.
    pub found: Option<Attributes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// A symbolic link at the end of the path is what is meant.
    Itself,
    Followed,
}

#[derive(Debug, Error)]
pub enum WalkError {
    /// The credential is not for this path, or a link leads out of what it is for.
    #[error("access denied")]
    Denied,
    #[error("path is too deep")]
    TooDeep,
    #[error("the root directory stays as it is")]
    Root,
    /// `NotFound` also where a file is in the middle of the path, and where links go round.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl PathTarget {
    pub fn name(&self) -> Option<&Name> {
        self.path.last()
    }

    pub fn existing(&self) -> Result<Attributes, NamespaceError> {
        self.found.ok_or(NamespaceError::NotFound)
    }

    /// Where an entry can be made or removed: not the root.
    pub fn entry(&self) -> Result<(FileId, &Name), WalkError> {
        match (&self.parent, self.path.last()) {
            (Some(parent), Some(name)) => Ok((parent.file, name)),
            _ => Err(WalkError::Root),
        }
    }
}

/// A path in one line for people.
pub fn path_text(path: &[Name]) -> Box<str> {
    let names: String = path.iter().map(|name| format!("/{name}")).collect();
    let text = names.replace(char::is_control, "\u{fffd}");
    if text.is_empty() { "/".into() } else { text.into() }
}

/// Walks a path of which all components but the last must exist; a missing directory on the way is `NotFound`, also
/// for a caller that is about to create something.
pub async fn walk(
    namespace: &dyn Namespace,
    caller: &Caller,
    path: &[Name],
    last: Last,
) -> Result<PathTarget, WalkError> {
    require(caller, path)?;
    let root = namespace.attributes(FileId::ROOT).await?;
    // The directories from the root down to where the walk is, and the names that led there.
    let mut trail = Trail { dirs: vec![root], names: Vec::new() };
    let mut ahead: Vec<Step> = path.iter().rev().cloned().map(Step::Down).collect();
    let (mut links, mut components) = (0, 0);
    while let Some(step) = ahead.pop() {
        components += 1;
        if components > COMPONENTS_MAX {
            return Err(WalkError::TooDeep);
        }
        let Step::Down(name) = step else {
            trail.up();
            continue;
        };
        let dir = trail.here();
        let found = match namespace.lookup(&caller.identity, dir.file, &name).await {
            Ok(found) => found.entry,
            Err(NamespaceError::NotFound) if ahead.is_empty() => {
                return trail.end(caller, name, None);
            }
            Err(error) => return Err(trail.failed(caller, name, error)),
        };
        if found.kind == FileKind::Symlink && (last == Last::Followed || !ahead.is_empty()) {
            links += 1;
            if links > LINKS_MAX {
                return Err(NamespaceError::NotFound.into());
            }
            let target = namespace.read_link(found.file).await?;
            trail.follow(target.as_bytes(), &mut ahead)?;
        } else if ahead.is_empty() {
            return trail.end(caller, name, Some(found));
        } else {
            trail.dirs.push(found);
            trail.names.push(name);
        }
    }
    require(caller, &trail.names)?;
    let parent = trail.dirs.len().checked_sub(2).map(|at| trail.dirs[at]);
    let here = trail.here();
    Ok(PathTarget { path: trail.names, parent, found: Some(here) })
}

fn require(caller: &Caller, path: &[Name]) -> Result<(), WalkError> {
    if caller.may(Activity::ReadMetadata, path) { Ok(()) } else { Err(WalkError::Denied) }
}

/// A component of a path or of a link's target.
enum Step {
    Down(Name),
    Up,
}

struct Trail {
    /// The root and a directory for each name.
    dirs: Vec<Attributes>,
    names: Vec<Name>,
}

impl Trail {
    fn here(&self) -> Attributes {
        *self.dirs.last().expect("the root is never popped")
    }

    fn up(&mut self) {
        if self.names.pop().is_some() {
            self.dirs.pop();
        }
    }

    /// Puts the target's components before what is still ahead. An absolute target starts at the namespace's root, as
    /// it does for a client that has mounted it as its own root.
    fn follow(&mut self, target: &[u8], ahead: &mut Vec<Step>) -> Result<(), WalkError> {
        if target.starts_with(b"/") {
            self.dirs.truncate(1);
            self.names.clear();
        }
        let mut steps = Vec::new();
        for component in target.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => steps.push(Step::Up),
                name => steps.push(Step::Down(Name::new(name).map_err(|_| NamespaceError::NotFound)?)),
            }
        }
        ahead.extend(steps.into_iter().rev());
        Ok(())
    }

    /// If a link leads out of the credential's path, the answer does not even tell whether its target exists.
    fn failed(mut self, caller: &Caller, name: Name, error: NamespaceError) -> WalkError {
        self.names.push(name);
        match (require(caller, &self.names), error) {
            (Err(denied), _) => denied,
            (Ok(()), NamespaceError::NotDirectory) => NamespaceError::NotFound.into(),
            (Ok(()), error) => error.into(),
        }
    }

    fn end(
        mut self,
        caller: &Caller,
        name: Name,
        found: Option<Attributes>,
    ) -> Result<PathTarget, WalkError> {
        let parent = Some(self.here());
        self.names.push(name);
        require(caller, &self.names)?;
        Ok(PathTarget { path: self.names, parent, found })
    }
}
