//! Removals, renames and links, and what others do to the names and files meanwhile.

use std::sync::Arc;
use std::time::Duration;

use api::{CreateMode, ExpectedEnds, ExpectedFile, Namespace, NamespaceError, Replace};
use file_state::{DelegationKind, Holder};
use forebay_files::{By, Entry, Files, FilesError, Modes, Share};
use namespace::SqlNamespace;
use types::{FileId, Identity, Name};

use crate::scene::{A, B, DOOR, FOREIGN, FakeRecaller, LONG, SHORT, name};
use crate::world::{World, spec};

/// `/file`, `/other` and `/dir`, all of root's; only root may change the root directory, and anybody `/dir`.
struct Tree {
    world: World,
    clients: Arc<FakeRecaller>,
    file: FileId,
    other: FileId,
}

impl Tree {
    async fn new(world: World, gives_back: bool) -> Tree {
        let clients = FakeRecaller::attach(&world.files, DOOR, gives_back);
        let file = make(&world.namespace, "file").await;
        let other = make(&world.namespace, "other").await;
        world.names.take_asked();
        Tree { world, clients, file, other }
    }

    /// Some delegation of a file, for which names have to be looked up.
    fn delegate(&self, file: FileId, holder: Holder) {
        delegate(&self.world.files, file, holder);
    }

    fn give_back(&self, file: FileId, holder: Holder) {
        self.world.files.return_delegation(file, holder);
    }

    /// `/file` becomes `/first`, and `/other` becomes `/file`.
    fn exchange(&self) -> impl Future<Output = ()> + Send + use<> {
        let namespace = Arc::clone(&self.world.namespace);
        async move {
            rename(&namespace, "file", "first").await;
            rename(&namespace, "other", "file").await;
        }
    }

    async fn at(&self, text: &str) -> Option<FileId> {
        let found = self.world.namespace.lookup(&Identity::root(), FileId::ROOT, &name(text)).await;
        found.ok().map(|found| found.entry.file)
    }

    async fn remove(&self, who: &Identity, expected: ExpectedFile) -> Result<FileId, FilesError> {
        let name = name("file");
        let entry = Entry { dir: FileId::ROOT, name: &name, expected };
        Ok(self.world.files.remove(by(who, LONG), entry).await?.attributes.file)
    }

    /// `/file` to a name in a directory.
    async fn rename(&self, who: &Identity, dir: FileId, to: &str) -> Result<api::Renamed, FilesError> {
        let (old, new) = (name("file"), name(to));
        let (from, to) = (Entry::any(FileId::ROOT, &old), Entry::any(dir, &new));
        self.world.files.rename(by(who, LONG), from, to, Replace::Any).await
    }

    async fn link(&self, who: &Identity) -> Result<(), FilesError> {
        let dir = self.world.files.attributes(FileId::ROOT).await.unwrap();
        self.world.files.link(by(who, LONG), self.file, &dir, &name("link")).await.map(drop)
    }

    /// `/file` is removed if it is the file that it was first. It is not.
    async fn is_left_to_the_other(&self) {
        let refused = self.remove(&root(), ExpectedFile::Exactly(self.file)).await;
        assert!(matches!(&refused, Err(error @ FilesError::Moved) if error.is_retryable()), "{refused:?}");
        assert_eq!((self.at("file").await, self.at("first").await), (Some(self.other), Some(self.file)));
    }

    /// Plans that `/file` is delegated behind the answer to the next question of this name.
    fn delegate_behind(&self, question: &'static str) {
        let (files, file) = (Arc::clone(&self.world.files), self.file);
        self.world.names.behind_next(question, async move { delegate(&files, file, A) });
    }

    fn recalled(&self) -> Vec<(FileId, Holder)> {
        self.clients.recalled.lock().iter().map(|recall| (recall.file, recall.holder)).collect()
    }

    async fn until_recalled(&self, count: usize) {
        self.clients.until_recalled(count).await;
    }
}

fn by(identity: &Identity, patience: Duration) -> By<'_> {
    By { identity, holder: Some(B), patience }
}

fn delegate(files: &Files, file: FileId, holder: Holder) {
    files.table().delegations().grant(file, holder, DelegationKind::Read, Duration::ZERO).unwrap();
}

fn root() -> Identity {
    Identity::root()
}

async fn make(namespace: &SqlNamespace, text: &str) -> FileId {
    let spec = spec(CreateMode::Guarded);
    namespace.create(&root(), FileId::ROOT, &name(text), &spec).await.unwrap().attributes.file
}

async fn rename(namespace: &SqlNamespace, from: &str, to: &str) {
    let (from, to) = (name(from), name(to));
    let ends = ((FileId::ROOT, &from), (FileId::ROOT, &to));
    namespace.rename(&root(), ends.0, ends.1, Replace::Never, ExpectedEnds::ANY).await.unwrap();
}

pub async fn a_removal_looks_nothing_up_while_nobody_is_in_the_way(world: World) {
    let tree = Tree::new(world, true).await;
    assert_eq!(tree.remove(&root(), ExpectedFile::Any).await.unwrap(), tree.file);
    assert_eq!(tree.world.names.take_asked(), ["unlink"]);
}

pub async fn a_name_that_goes_to_another_file_while_a_recall_is_waited_for_is_judged_anew(world: World) {
    let tree = Tree::new(world, false).await;
    tree.delegate(tree.file, A);
    tree.delegate(tree.other, A);
    let who = root();
    let meanwhile = async {
        tree.until_recalled(1).await;
        tree.exchange().await;
        tree.give_back(tree.file, A);
        tree.until_recalled(2).await;
        assert_eq!(tree.at("file").await, Some(tree.other), "its holder is waited for too");
        tree.give_back(tree.other, A);
    };
    let (removed, ()) = tokio::join!(tree.remove(&who, ExpectedFile::Any), meanwhile);
    assert_eq!(removed.unwrap(), tree.other);
    assert_eq!(tree.recalled(), [(tree.file, A), (tree.other, A)]);
    assert_eq!((tree.at("file").await, tree.at("first").await), (None, Some(tree.file)));
}

pub async fn a_removal_of_an_expected_file_leaves_another_that_has_its_name(world: World) {
    let tree = Tree::new(world, true).await;
    tree.delegate(tree.world.dir, A);
    tree.exchange().await;
    tree.is_left_to_the_other().await;
}

pub async fn a_removal_of_an_expected_file_leaves_another_that_gets_its_name_meanwhile(world: World) {
    let tree = Tree::new(world, true).await;
    tree.delegate(tree.world.dir, A);
    tree.world.names.behind_next("lookup", tree.exchange());
    tree.is_left_to_the_other().await;
    assert!(!tree.world.names.cancel(), "the name went meanwhile");
}

pub async fn a_file_that_is_removed_while_a_recall_is_waited_for_is_not_found(world: World) {
    let tree = Tree::new(world, false).await;
    tree.delegate(tree.file, A);
    let who = root();
    let meanwhile = async {
        tree.until_recalled(1).await;
        let removed =
            tree.world.namespace.unlink(&who, FileId::ROOT, &name("file"), ExpectedFile::Any).await.unwrap();
        assert_eq!(removed.attributes.file, tree.file);
        tree.give_back(tree.file, A);
    };
    let (removed, ()) = tokio::join!(tree.remove(&who, ExpectedFile::Any), meanwhile);
    assert!(matches!(removed, Err(FilesError::Namespace(NamespaceError::NotFound))), "{removed:?}");
}

/// Nothing stands in the way when the operation looks, so that it does not keep delegations off.
pub async fn a_delegation_granted_between_check_and_removal_is_called_back(world: World) {
    let tree = Tree::new(world, true).await;
    tree.delegate_behind("unlink");
    tree.remove(&root(), ExpectedFile::Any).await.unwrap();
    assert_eq!(tree.recalled(), [(tree.file, A)]);
}

pub async fn a_delegation_granted_between_check_and_rename_is_called_back(world: World) {
    let tree = Tree::new(world, true).await;
    tree.delegate_behind("rename");
    tree.rename(&root(), FileId::ROOT, "new").await.unwrap();
    assert_eq!(tree.recalled(), [(tree.file, A)]);
}

pub async fn one_more_name_waits_for_the_delegations_of_its_file_and_holds_new_ones_off(world: World) {
    let tree = Tree::new(world, true).await;
    tree.delegate(tree.file, A);
    let (files, file) = (Arc::clone(&tree.world.files), tree.file);
    tree.world.names.behind_next("link", async move {
        assert!(files.table().delegations().grant(file, A, DelegationKind::Read, Duration::ZERO).is_err());
    });
    tree.link(&root()).await.unwrap();
    assert!(!tree.world.names.cancel(), "it was asked for");
    assert_eq!(tree.recalled(), [(tree.file, A)]);
}

pub async fn a_change_that_is_refused_anyway_recalls_nothing(world: World) {
    let tree = Tree::new(world, true).await;
    tree.delegate(tree.file, A);
    tree.delegate(tree.other, A);
    let stranger = Identity::new(1_000, 1_000, &[]);
    let denied = |result: Result<(), FilesError>| {
        assert!(matches!(result, Err(FilesError::Namespace(NamespaceError::AccessDenied))), "{result:?}");
    };
    denied(tree.remove(&stranger, ExpectedFile::Any).await.map(drop));
    denied(tree.rename(&stranger, tree.world.dir, "new").await.map(drop));
    denied(tree.link(&stranger).await);
    let over_directory = tree.rename(&root(), FileId::ROOT, "dir").await;
    let is_refused = matches!(over_directory, Err(FilesError::Namespace(NamespaceError::IsDirectory)));
    assert!(is_refused, "{over_directory:?}");
    // The source may be taken, and the target may not be replaced.
    let mine = Name::new(b"mine").unwrap();
    let spec = spec(CreateMode::Guarded);
    let made =
        tree.world.namespace.create(&stranger, tree.world.dir, &mine, &spec).await.unwrap().attributes.file;
    tree.delegate(made, A);
    let other = name("other");
    let (from, to) = (Entry::any(tree.world.dir, &mine), Entry::any(FileId::ROOT, &other));
    denied(tree.world.files.rename(by(&stranger, LONG), from, to, Replace::Any).await.map(drop));
    assert_eq!(tree.recalled(), []);
}

pub async fn a_rename_waits_for_both_files_at_once(world: World) {
    let tree = Tree::new(world, false).await;
    tree.delegate(tree.file, A);
    tree.delegate(tree.other, A);
    let who = root();
    let meanwhile = async {
        tree.until_recalled(2).await;
        assert_eq!(tree.at("other").await, Some(tree.other));
        tree.give_back(tree.other, A);
        tree.give_back(tree.file, A);
    };
    let (renamed, ()) = tokio::join!(tree.rename(&who, FileId::ROOT, "other"), meanwhile);
    let renamed = renamed.unwrap();
    assert_eq!((renamed.moved.file, renamed.replaced.unwrap().file), (tree.file, tree.other));
    assert_eq!(tree.recalled(), [(tree.file, A), (tree.other, A)]);
}

pub async fn a_rename_whose_target_appears_meanwhile_recalls_its_delegations_before_it_replaces_it(
    world: World,
) {
    let tree = Tree::new(world, false).await;
    tree.delegate(tree.other, A);
    let namespace = Arc::clone(&tree.world.namespace);
    // Behind the second look-up, that of the target.
    tree.world.names.behind(1, async move { rename(&namespace, "other", "new").await });
    let who = root();
    let meanwhile = async {
        tree.until_recalled(1).await;
        assert_eq!(tree.at("new").await, Some(tree.other));
        tree.give_back(tree.other, A);
    };
    let (renamed, ()) = tokio::join!(tree.rename(&who, FileId::ROOT, "new"), meanwhile);
    assert_eq!(renamed.unwrap().replaced.unwrap().file, tree.other);
    assert_eq!(tree.recalled(), [(tree.other, A)]);
}

pub async fn a_rename_of_an_expected_file_onto_a_name_that_must_be_free_moves_no_other(world: World) {
    let tree = Tree::new(world, true).await;
    let (old, new) = (name("file"), name("other"));
    let rename = async |source, target| {
        let from = Entry { dir: FileId::ROOT, name: &old, expected: source };
        let to = Entry { dir: FileId::ROOT, name: &new, expected: target };
        tree.world.files.rename(by(&root(), LONG), from, to, Replace::Any).await
    };
    for delegated in [false, true] {
        if delegated {
            tree.delegate(tree.world.dir, A);
        }
        let (this, that) = (ExpectedFile::Exactly(tree.file), ExpectedFile::Exactly(tree.other));
        for (source, target) in [(this, ExpectedFile::Absent), (this, this), (that, that)] {
            let refused = rename(source, target).await;
            assert!(matches!(refused, Err(FilesError::Moved)), "{source:?} {target:?} {refused:?}");
        }
    }
    assert_eq!((tree.at("file").await, tree.at("other").await), (Some(tree.file), Some(tree.other)));
}

pub async fn a_file_that_another_door_has_locked_keeps_its_names(world: World) {
    let tree = Tree::new(world, true).await;
    tree.delegate(tree.other, A);
    let owner = tree.world.files.owner(FOREIGN);
    tree.world.files.table().open(tree.file, owner, Share::new(Modes::NONE, Modes::WRITE)).unwrap();
    assert!(matches!(tree.remove(&root(), ExpectedFile::Any).await, Err(FilesError::Denied)));
    let renamed = tree.rename(&root(), FileId::ROOT, "new").await;
    assert!(matches!(renamed, Err(FilesError::Denied)), "{renamed:?}");
    tree.link(&root()).await.unwrap();
    assert_eq!(tree.recalled(), []);
}

pub async fn a_locked_file_that_gets_the_name_meanwhile_keeps_it(world: World) {
    let tree = Tree::new(world, true).await;
    let owner = tree.world.files.owner(FOREIGN);
    tree.world.files.table().open(tree.other, owner, Share::new(Modes::NONE, Modes::WRITE)).unwrap();
    tree.world.names.behind_next("lookup", tree.exchange());
    assert!(matches!(tree.remove(&root(), ExpectedFile::Any).await, Err(FilesError::Denied)));
    assert_eq!(tree.at("file").await, Some(tree.other));
    assert!(!tree.world.names.cancel(), "the name went meanwhile");
}

pub async fn a_removed_or_replaced_name_counts_as_a_removal_and_a_move_does_not(world: World) {
    let tree = Tree::new(world, true).await;
    let seen = tree.world.files.removals();
    tree.rename(&root(), FileId::ROOT, "file").await.unwrap();
    tree.link(&root()).await.unwrap();
    assert_eq!(tree.world.files.removals(), seen);
    tree.rename(&root(), FileId::ROOT, "other").await.unwrap();
    let replaced = tree.world.files.removals();
    assert_ne!(replaced, seen);
    rename(&tree.world.namespace, "other", "file").await;
    tree.remove(&root(), ExpectedFile::Any).await.unwrap();
    assert_ne!(tree.world.files.removals(), replaced);
}

pub async fn a_removal_that_has_waited_as_long_as_it_may_is_to_be_asked_for_again(world: World) {
    let tree = Tree::new(world, false).await;
    tree.delegate(tree.file, A);
    let (who, name) = (root(), name("file"));
    let refused = tree.world.files.remove(by(&who, SHORT), Entry::any(FileId::ROOT, &name)).await;
    assert!(matches!(refused, Err(FilesError::Recalled)), "{refused:?}");
    assert_eq!(tree.at("file").await, Some(tree.file));
}

pub async fn two_names_change_places_and_a_name_of_another_file_stays(world: World) {
    let tree = Tree::new(world, false).await;
    tree.delegate(tree.file, A);
    let (who, file, other) = (root(), name("file"), name("other"));
    let exchange = async |expected| {
        let ends = ((FileId::ROOT, &other), (&file, expected));
        tree.world.files.exchange(by(&who, LONG), ends.0, ends.1).await
    };
    let refused = exchange(tree.other).await;
    assert!(matches!(refused, Err(FilesError::Moved)), "{refused:?}");
    assert_eq!((tree.at("file").await, tree.at("other").await), (Some(tree.file), Some(tree.other)));
    let meanwhile = async {
        tree.until_recalled(1).await;
        assert_eq!(tree.at("file").await, Some(tree.file), "the holder of its delegation is waited for");
        tree.give_back(tree.file, A);
    };
    let (exchanged, ()) = tokio::join!(exchange(tree.file), meanwhile);
    exchanged.unwrap();
    assert_eq!((tree.at("file").await, tree.at("other").await), (Some(tree.other), Some(tree.file)));
    tree.world.judge("the names are exchanged").await;
}

pub async fn a_file_keeps_its_data_until_its_last_name_goes(world: World) {
    let file = world.make("one", crate::scene::POOL, "bytes").await;
    let (dir, by) = (world.attributes(world.dir).await, world.by());
    world.files.link(by, file.file, &dir, &name("two")).await.unwrap();
    let one = world.files.remove(by, Entry::any(world.dir, &name("one"))).await.unwrap();
    assert_eq!((one.attributes.file, one.attributes.nlink), (file.file, 1));
    assert_eq!(world.reap().await, []);
    assert_eq!(world.read(file.file).await.unwrap(), b"bytes");
    world.files.remove(by, Entry::any(world.dir, &name("two"))).await.unwrap();
    world.judge_and_reap("both names are removed").await;
    assert!(matches!(world.read(file.file).await, Err(FilesError::Namespace(NamespaceError::Stale(_)))));
}
