//! Removals, renames and links, and what others do to the names and files meanwhile.

use api::{
    CreateKind, CreateMode, CreateSpec, ExpectedFile, Namespace, NamespaceError, Replace, SetAttributes,
};
use file_state::DelegationKind;
use namespace::SqlNamespace;
use testkit::clock::ManualClock;
use testkit::watched_namespace::WatchedNamespace;
use types::{Identity, Name};

use super::fakes::FakeRecaller;
use super::*;

/// `/file`, `/other` and `/dir`, all of root's; only root may change the root directory, and anybody `/dir`.
struct Tree {
    files: Arc<Files>,
    namespace: Arc<SqlNamespace>,
    /// The same, as `files` asks it.
    names: Arc<WatchedNamespace>,
    clients: Arc<FakeRecaller>,
    file: FileId,
    other: FileId,
    dir: FileId,
    _store: tempfile::TempDir,
}

impl Tree {
    async fn new(gives_back: bool) -> Tree {
        let (store, namespace) = scene::sqlite(&Arc::new(ManualClock::new(1_000)));
        let names = Arc::new(WatchedNamespace::new(namespace.clone()));
        let (_, files) = Fakes::files_over(|_| names.clone());
        let clients = FakeRecaller::attach(&files, DOOR, gives_back);
        let file = make(&namespace, "file", CreateKind::Regular).await;
        let other = make(&namespace, "other", CreateKind::Regular).await;
        let dir = make(&namespace, "dir", CreateKind::Directory).await;
        Tree { files, namespace, names, clients, file, other, dir, _store: store }
    }

    /// Some delegation of a file, for which names have to be looked up.
    fn delegate(&self, file: FileId, holder: Holder) {
        delegate(&self.files, file, holder);
    }

    fn give_back(&self, file: FileId, holder: Holder) {
        self.files.table().delegations().give_back(file, holder).unwrap();
        self.files.returned();
    }

    /// `/file` becomes `/first`, and `/other` becomes `/file`.
    fn exchange(&self) -> impl Future<Output = ()> + Send + use<> {
        let namespace = Arc::clone(&self.namespace);
        async move {
            rename(&namespace, "file", "first").await;
            rename(&namespace, "other", "file").await;
        }
    }

    async fn at(&self, text: &str) -> Option<FileId> {
        let found = self.namespace.lookup(&Identity::root(), FileId::ROOT, &name(text)).await;
        found.ok().map(|found| found.entry.file)
    }

    async fn remove(&self, who: &Identity, expected: ExpectedFile) -> Result<FileId, FilesError> {
        let name = name("file");
        let entry = Entry { dir: FileId::ROOT, name: &name, expected };
        Ok(self.files.remove(by(who, LONG), entry).await?.attributes.file)
    }

    /// `/file` to a name in a directory.
    async fn rename(&self, who: &Identity, dir: FileId, to: &str) -> Result<api::Renamed, FilesError> {
        let (old, new) = (name("file"), name(to));
        let (from, to) = (Entry::any(FileId::ROOT, &old), Entry::any(dir, &new));
        self.files.rename(by(who, LONG), from, to, Replace::Any).await
    }

    async fn link(&self, who: &Identity) -> Result<(), FilesError> {
        let dir = self.files.attributes(FileId::ROOT).await.unwrap();
        self.files.link(by(who, LONG), self.file, &dir, &name("link")).await.map(drop)
    }

    fn recalled(&self) -> Vec<(FileId, Holder)> {
        self.clients.recalled.lock().iter().map(|recall| (recall.file, recall.holder)).collect()
    }

    async fn until_recalled(&self, count: usize) {
        let recalled = async {
            while self.recalled().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, recalled).await.expect("it is recalled");
    }
}

fn by(identity: &Identity, patience: Duration) -> By<'_> {
    By { identity, holder: Some(B), patience }
}

fn delegate(files: &Files, file: FileId, holder: Holder) {
    files.table().delegations().grant(file, holder, DelegationKind::Read, Duration::ZERO).unwrap();
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn root() -> Identity {
    Identity::root()
}

async fn make(namespace: &SqlNamespace, text: &str, kind: CreateKind) -> FileId {
    let permissions = if kind == CreateKind::Directory { 0o777 } else { 0o644 };
    let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
    let spec = CreateSpec { kind, mode, permissions, umask: None, set, location: None };
    namespace.create(&root(), FileId::ROOT, &name(text), &spec).await.unwrap().attributes.file
}

async fn rename(namespace: &SqlNamespace, from: &str, to: &str) {
    let (from, to) = (name(from), name(to));
    let ends = ((FileId::ROOT, &from), (FileId::ROOT, &to));
    namespace.rename(&root(), ends.0, ends.1, Replace::Never, api::ExpectedEnds::ANY).await.unwrap();
}

#[tokio::test]
async fn a_removal_looks_nothing_up_while_nobody_is_in_the_way() {
    let tree = Tree::new(true).await;
    assert_eq!(tree.remove(&root(), ExpectedFile::Any).await.unwrap(), tree.file);
    assert_eq!(tree.names.take_asked(), ["unlink"]);
}

#[tokio::test]
async fn a_name_that_goes_to_another_file_while_a_recall_is_waited_for_is_judged_anew() {
    let tree = Tree::new(false).await;
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

#[tokio::test]
async fn a_removal_of_an_expected_file_leaves_another_that_has_its_name() {
    for event_at in ["nowhere", "lookup"] {
        let tree = Tree::new(true).await;
        tree.delegate(tree.dir, A);
        match event_at {
            "nowhere" => tree.exchange().await,
            question => tree.names.behind_next(question, tree.exchange()),
        }
        let refused = tree.remove(&root(), ExpectedFile::Exactly(tree.file)).await;
        assert!(matches!(&refused, Err(error @ FilesError::Moved) if error.is_retryable()), "{refused:?}");
        assert_eq!((tree.at("file").await, tree.at("first").await), (Some(tree.other), Some(tree.file)));
    }
}

#[tokio::test]
async fn a_file_that_is_removed_while_a_recall_is_waited_for_is_not_found() {
    let tree = Tree::new(false).await;
    tree.delegate(tree.file, A);
    let who = root();
    let meanwhile = async {
        tree.until_recalled(1).await;
        let removed =
            tree.namespace.unlink(&who, FileId::ROOT, &name("file"), ExpectedFile::Any).await.unwrap();
        assert_eq!(removed.attributes.file, tree.file);
        tree.give_back(tree.file, A);
    };
    let (removed, ()) = tokio::join!(tree.remove(&who, ExpectedFile::Any), meanwhile);
    assert!(matches!(removed, Err(FilesError::Namespace(NamespaceError::NotFound))), "{removed:?}");
}

#[tokio::test]
async fn a_name_that_moves_at_each_attempt_is_given_up_and_may_be_retried() {
    let (fakes, files) = Fakes::files();
    let (who, name) = (root(), name("file"));
    for (expected, attempts) in [(ExpectedFile::Any, 8), (ExpectedFile::Exactly(FILE), 1)] {
        *fakes.removals_tried.lock() = 0;
        let entry = Entry { dir: FileId::ROOT, name: &name, expected };
        let refused = files.remove(by(&who, LONG), entry).await;
        assert!(matches!(&refused, Err(error @ FilesError::Moved) if error.is_retryable()), "{refused:?}");
        assert_eq!(*fakes.removals_tried.lock(), attempts, "{expected:?}");
    }
}

/// Nothing stands in the way when the operation looks, so that it does not keep delegations off.
#[tokio::test]
async fn a_delegation_granted_between_check_and_change_is_called_back() {
    for question in ["unlink", "rename"] {
        let tree = Tree::new(true).await;
        let (files, file) = (Arc::clone(&tree.files), tree.file);
        tree.names.behind_next(question, async move { delegate(&files, file, A) });
        match question {
            "unlink" => drop(tree.remove(&root(), ExpectedFile::Any).await.unwrap()),
            _ => drop(tree.rename(&root(), FileId::ROOT, "new").await.unwrap()),
        }
        assert_eq!(tree.recalled(), [(tree.file, A)], "{question}");
    }
}

#[tokio::test]
async fn one_more_name_waits_for_the_delegations_of_its_file_and_holds_new_ones_off() {
    let tree = Tree::new(true).await;
    tree.delegate(tree.file, A);
    let (files, file) = (Arc::clone(&tree.files), tree.file);
    tree.names.behind_next("link", async move {
        assert!(files.table().delegations().grant(file, A, DelegationKind::Read, Duration::ZERO).is_err());
    });
    tree.link(&root()).await.unwrap();
    assert!(!tree.names.cancel(), "it was asked for");
    assert_eq!(tree.recalled(), [(tree.file, A)]);
}

#[tokio::test]
async fn a_change_that_is_refused_anyway_recalls_nothing() {
    let tree = Tree::new(true).await;
    tree.delegate(tree.file, A);
    tree.delegate(tree.other, A);
    let stranger = Identity::new(1_000, 1_000, &[]);
    let denied = |result: Result<(), FilesError>| {
        assert!(matches!(result, Err(FilesError::Namespace(NamespaceError::AccessDenied))), "{result:?}");
    };
    denied(tree.remove(&stranger, ExpectedFile::Any).await.map(drop));
    denied(tree.rename(&stranger, tree.dir, "new").await.map(drop));
    denied(tree.link(&stranger).await);
    let over_directory = tree.rename(&root(), FileId::ROOT, "dir").await;
    let is_refused = matches!(over_directory, Err(FilesError::Namespace(NamespaceError::IsDirectory)));
    assert!(is_refused, "{over_directory:?}");
    // The source may be taken, and the target may not be replaced.
    let mine = Name::new(b"mine").unwrap();
    let spec = CreateSpec {
        kind: CreateKind::Regular,
        mode: CreateMode::Guarded,
        permissions: 0o644,
        umask: None,
        set: SetAttributes::default(),
        location: None,
    };
    let made = tree.namespace.create(&stranger, tree.dir, &mine, &spec).await.unwrap().attributes.file;
    tree.delegate(made, A);
    let other = name("other");
    let (from, to) = (Entry::any(tree.dir, &mine), Entry::any(FileId::ROOT, &other));
    denied(tree.files.rename(by(&stranger, LONG), from, to, Replace::Any).await.map(drop));
    assert_eq!(tree.recalled(), []);
}

#[tokio::test]
async fn a_rename_waits_for_both_files_at_once() {
    let tree = Tree::new(false).await;
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

#[tokio::test]
async fn a_rename_whose_target_appears_meanwhile_recalls_its_delegations_before_it_replaces_it() {
    let tree = Tree::new(false).await;
    tree.delegate(tree.other, A);
    let namespace = Arc::clone(&tree.namespace);
    // Behind the second look-up, that of the target.
    tree.names.behind(1, async move { rename(&namespace, "other", "new").await });
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

#[tokio::test]
async fn a_rename_of_an_expected_file_onto_a_name_that_must_be_free_moves_no_other() {
    let tree = Tree::new(true).await;
    let (old, new) = (name("file"), name("other"));
    let rename = async |source, target| {
        let from = Entry { dir: FileId::ROOT, name: &old, expected: source };
        let to = Entry { dir: FileId::ROOT, name: &new, expected: target };
        tree.files.rename(by(&root(), LONG), from, to, Replace::Any).await
    };
    for delegated in [false, true] {
        if delegated {
            tree.delegate(tree.dir, A);
        }
        let (this, that) = (ExpectedFile::Exactly(tree.file), ExpectedFile::Exactly(tree.other));
        for (source, target) in [(this, ExpectedFile::Absent), (this, this), (that, that)] {
            let refused = rename(source, target).await;
            assert!(matches!(refused, Err(FilesError::Moved)), "{source:?} {target:?} {refused:?}");
        }
    }
    assert_eq!((tree.at("file").await, tree.at("other").await), (Some(tree.file), Some(tree.other)));
}

#[tokio::test]
async fn a_file_that_another_door_has_locked_keeps_its_names() {
    let tree = Tree::new(true).await;
    tree.delegate(tree.other, A);
    let owner = tree.files.owner(FOREIGN);
    tree.files.table().open(tree.file, owner, deny_writing()).unwrap();
    assert!(matches!(tree.remove(&root(), ExpectedFile::Any).await, Err(FilesError::Denied)));
    let renamed = tree.rename(&root(), FileId::ROOT, "new").await;
    assert!(matches!(renamed, Err(FilesError::Denied)), "{renamed:?}");
    tree.link(&root()).await.unwrap();
    assert_eq!(tree.recalled(), []);
}

#[tokio::test]
async fn a_locked_file_that_gets_the_name_meanwhile_keeps_it() {
    let tree = Tree::new(true).await;
    let owner = tree.files.owner(FOREIGN);
    tree.files.table().open(tree.other, owner, deny_writing()).unwrap();
    tree.names.behind_next("lookup", tree.exchange());
    assert!(matches!(tree.remove(&root(), ExpectedFile::Any).await, Err(FilesError::Denied)));
    assert_eq!(tree.at("file").await, Some(tree.other));
    assert!(!tree.names.cancel(), "the name went meanwhile");
}

#[tokio::test]
async fn a_removed_or_replaced_name_counts_as_a_removal_and_a_move_does_not() {
    let tree = Tree::new(true).await;
    let seen = tree.files.removals();
    tree.rename(&root(), FileId::ROOT, "file").await.unwrap();
    tree.link(&root()).await.unwrap();
    assert_eq!(tree.files.removals(), seen);
    tree.rename(&root(), FileId::ROOT, "other").await.unwrap();
    let replaced = tree.files.removals();
    assert_ne!(replaced, seen);
    rename(&tree.namespace, "other", "file").await;
    tree.remove(&root(), ExpectedFile::Any).await.unwrap();
    assert_ne!(tree.files.removals(), replaced);
}

#[tokio::test]
async fn a_removal_that_has_waited_as_long_as_it_may_is_to_be_asked_for_again() {
    let tree = Tree::new(false).await;
    tree.delegate(tree.file, A);
    let (who, name) = (root(), name("file"));
    let refused = tree.files.remove(by(&who, SHORT), Entry::any(FileId::ROOT, &name)).await;
    assert!(matches!(refused, Err(FilesError::Recalled)), "{refused:?}");
    assert_eq!(tree.at("file").await, Some(tree.file));
}
