//! From paths to files.

use api::{Activities, Activity, Caller, CreateKind, CreateMode, CreateSpec, Namespace, PathGrant};
use forebay_files::{Last, PathTarget, WalkError, walk};
use types::{FileId, Identity, Name, SymlinkTarget};

use crate::scene::name;
use crate::world::{World, spec};

/// `/a/b/file`, `/a/up -> ..`, `/to -> /a/b`, `/loop -> loop`.
struct Tree(World);

impl Tree {
    async fn in_the(world: World) -> Tree {
        let tree = Tree(world);
        let a = tree.make(FileId::ROOT, "a", CreateKind::Directory).await;
        let b = tree.make(a, "b", CreateKind::Directory).await;
        tree.make(b, "file", CreateKind::Regular).await;
        let link = |target: &str| CreateKind::Symlink(SymlinkTarget::new(target.as_bytes()).unwrap());
        tree.make(a, "up", link("..")).await;
        tree.make(FileId::ROOT, "to", link("/a/b")).await;
        tree.make(FileId::ROOT, "loop", link("loop")).await;
        tree
    }

    async fn make(&self, dir: FileId, text: &str, kind: CreateKind) -> FileId {
        let spec = CreateSpec { kind, permissions: 0o755, ..spec(CreateMode::Guarded) };
        let made = self.0.namespace.create(&Identity::root(), dir, &name(text), &spec).await;
        made.unwrap().attributes.file
    }

    async fn walk(&self, caller: &Caller, path: &str, last: Last) -> Result<PathTarget, WalkError> {
        walk(&*self.0.names, caller, &names(path), last).await
    }

    /// Where it leads, and whether something is there.
    async fn leads(&self, path: &str, last: Last) -> Option<(String, bool)> {
        let place = self.walk(&Caller::anonymous(), path, last).await.ok()?;
        let text: Vec<String> = place.path.iter().map(Name::to_string).collect();
        Some((text.join("/"), place.found.is_some()))
    }
}

fn names(path: &str) -> Vec<Name> {
    path.split('/').filter(|text| !text.is_empty()).map(name).collect()
}

pub async fn links_are_followed_as_the_kernel_would(world: World) {
    let tree = Tree::in_the(world).await;
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
    let deep = "/a/up".repeat(1_024);
    let outcome = tree.walk(&Caller::anonymous(), &deep, Last::Itself).await;
    assert!(matches!(outcome, Err(WalkError::TooDeep | WalkError::Namespace(_))), "{outcome:?}");
}

pub async fn a_link_leads_no_caller_out_of_the_path_of_its_credential(world: World) {
    let tree = Tree::in_the(world).await;
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

pub async fn the_root_is_no_entry(world: World) {
    let tree = Tree::in_the(world).await;
    let root = tree.walk(&Caller::anonymous(), "/", Last::Followed).await.unwrap();
    assert!(root.existing().is_ok() && matches!(root.entry(), Err(WalkError::Root)));
}
