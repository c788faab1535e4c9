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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::{Activities, CreateKind, CreateMode, CreateSpec, PathGrant, SetAttributes};
    use namespace::{Config, Database, SqlNamespace, Sync};
    use testkit::clock::ManualClock;
    use types::{Identity, SymlinkTarget};

    use super::*;

    /// `/a/b/file`, `/a/up -> ..`, `/to -> /a/b`, `/loop -> loop`.
    struct Tree {
        namespace: SqlNamespace,
        _dir: tempfile::TempDir,
    }

    async fn tree() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            database: Database::Sqlite(dir.path().to_owned()),
            clock: Arc::new(ManualClock::new(1_000)),
            root_owner: (0, 0),
            sync: Sync::Interval(std::time::Duration::from_secs(60)),
            cache_bytes: 1 << 20,
            queue_len_max: 10,
            group_len_max: 10,
        };
        let tree = Tree { namespace: SqlNamespace::open(config).unwrap(), _dir: dir };
        let a = tree.make(FileId::ROOT, "a", CreateKind::Directory).await;
        let b = tree.make(a, "b", CreateKind::Directory).await;
        tree.make(b, "file", CreateKind::Regular).await;
        let link = |target: &str| CreateKind::Symlink(SymlinkTarget::new(target.as_bytes()).unwrap());
        tree.make(a, "up", link("..")).await;
        tree.make(FileId::ROOT, "to", link("/a/b")).await;
        tree.make(FileId::ROOT, "loop", link("loop")).await;
        tree
    }

    impl Tree {
        async fn make(&self, dir: FileId, name: &str, kind: CreateKind) -> FileId {
            let set = SetAttributes::default();
            let spec = CreateSpec {
                kind,
                mode: CreateMode::Guarded,
                permissions: 0o755,
                umask: None,
                set,
                location: None,
            };
            let name = Name::new(name.as_bytes()).unwrap();
            self.namespace.create(&Identity::root(), dir, &name, &spec).await.unwrap().attributes.file
        }

        async fn walk(&self, caller: &Caller, path: &str, last: Last) -> Result<PathTarget, WalkError> {
            walk(&self.namespace, caller, &names(path), last).await
        }

        /// Where it leads, and whether something is there.
        async fn leads(&self, path: &str, last: Last) -> Option<(String, bool)> {
            let place = self.walk(&Caller::anonymous(), path, last).await.ok()?;
            let text: Vec<String> = place.path.iter().map(Name::to_string).collect();
            Some((text.join("/"), place.found.is_some()))
        }
    }

    fn names(path: &str) -> Vec<Name> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .map(|name| Name::new(name.as_bytes()).unwrap())
            .collect()
    }

    #[tokio::test]
    async fn links_are_followed_as_the_kernel_would() {
        let tree = tree().await;
        let to = |path: &str, is_there| Some((path.to_owned(), is_there));
        assert_eq!(tree.leads("/a/b/file", Last::Followed).await, to("a/b/file", true));
        assert_eq!(tree.leads("/to/file", Last::Itself).await, to("a/b/file", true), "in the middle always");
        assert_eq!(tree.leads("/to", Last::Followed).await, to("a/b", true));
        assert_eq!(tree.leads("/to", Last::Itself).await, to("to", true));
        assert_eq!(tree.leads("/a/up/a/up", Last::Followed).await, to("", true));
        assert_eq!(tree.leads("/to/new", Last::Followed).await, to("a/b/new", false));
        for nowhere in ["/loop", "/loop/x", "/none/new", "/a/b/file/x"] {
            assert_eq!(tree.leads(nowhere, Last::Followed).await, None, "{nowhere}");
        }
        let deep = "/a/up".repeat(COMPONENTS_MAX);
        let outcome = tree.walk(&Caller::anonymous(), &deep, Last::Itself).await;
        assert!(outcome.is_err_and(|error| !matches!(error, WalkError::Denied)));
    }

    #[tokio::test]
    async fn a_link_leads_no_caller_out_of_the_path_of_its_credential() {
        let tree = tree().await;
        let activities = Activities::of(&[Activity::Download]);
        let grant = |path| PathGrant { activities, path: names(path), is_below_only: false };
        let caller = |path| Caller { grants: Some([grant(path)].into()), ..Caller::anonymous() };
        assert!(matches!(tree.walk(&caller("/to"), "/a", Last::Itself).await, Err(WalkError::Denied)));
        assert!(matches!(tree.walk(&caller("/to"), "/to/file", Last::Itself).await, Err(WalkError::Denied)));
        for hidden in ["/to/none/x", "/to/file/x", "/to/none"] {
            let outcome = tree.walk(&caller("/to"), hidden, Last::Followed).await;
            assert!(matches!(outcome, Err(WalkError::Denied)), "{hidden}: what is missing there is not told");
        }
        assert!(tree.walk(&caller("/to"), "/to", Last::Itself).await.is_ok());
        assert!(tree.walk(&caller("/a"), "/a/b/file", Last::Followed).await.is_ok());
    }

    #[tokio::test]
    async fn the_root_is_no_entry() {
        let tree = tree().await;
        let root = tree.walk(&Caller::anonymous(), "/", Last::Followed).await.unwrap();
        assert!(root.existing().is_ok() && matches!(root.entry(), Err(WalkError::Root)));
    }
}
