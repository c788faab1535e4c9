//! One group: working copies of what its operations touch, over the cache and the database.
//!
//! An operation checks everything before it changes anything, so one that is refused leaves no trace and needs no
//! savepoint. Nothing is written before the end; then each row is written once however often it was touched, which is
//! what makes a hot directory cheap.

mod acls;
mod attached;
mod directories;
mod locations;
pub mod usage;
mod xattrs;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api::{NamespaceError, ReplicaRef};
use types::{Clock, FileId, Name, SymlinkTarget, Timestamp};

use crate::accounts::Accounts;
use crate::cache::{Cache, Changes};
use crate::counts::{Event, Question};
use crate::ids::Ids;
use crate::inode::{Inode, Instance};
use crate::store::{Batch, InodeChange, NameChange, Store, StoreError, Totals};

/// Why an operation ended without a result.
#[derive(Debug)]
pub enum OpError {
    /// The operation alone is refused.
    Refused(NamespaceError),
    /// The database failed: the whole group is rolled back.
    Failed(StoreError),
}

impl From<NamespaceError> for OpError {
    fn from(error: NamespaceError) -> OpError {
        OpError::Refused(error)
    }
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> OpError {
        OpError::Failed(error)
    }
}

pub type OpResult<T> = Result<T, OpError>;

pub struct Group<'a> {
    pub store: &'a mut dyn Store,
    pub cache: &'a Cache,
    pub accounts: &'a Accounts,
    pub clock: &'a dyn Clock,
    pub instance: Instance,
    pub ids: &'a mut Ids,
    pub charges: usage::Charges,
    inodes: HashMap<FileId, Working>,
    dentries: HashMap<(FileId, Name), Looked>,
    locations: HashMap<FileId, Option<Vec<ReplicaRef>>>,
    taken: Vec<FileId>,
    asked_acls: HashMap<FileId, acls::AskedAcl>,
    /// Without its inodes and names, until the end.
    pub batch: Batch,
    /// Something other than inodes is to be written.
    is_written: bool,
}

struct Working {
    /// `None`: removed.
    inode: Option<Inode>,
    /// The inode in the database.
    stored: Option<Inode>,
    /// There may be rows of checksums, also such as this group wrote.
    is_summed: bool,
    is_dirty: bool,
    /// More than the entries of a directory changed.
    is_whole: bool,
    /// How often the entries of a directory changed.
    touches: u32,
}

impl Working {
    fn new(inode: Option<Inode>, stored: Option<Inode>) -> Working {
        let is_summed = stored.is_some_and(|stored| stored.extras.has_checksums);
        Working { inode, stored, is_summed, is_dirty: false, is_whole: false, touches: 0 }
    }
}

#[derive(Clone, Copy)]
struct Looked {
    child: Option<FileId>,
    change: Option<NameChange>,
}

impl<'a> Group<'a> {
    pub fn new(
        store: &'a mut dyn Store,
        (cache, accounts): (&'a Cache, &'a Accounts),
        clock: &'a dyn Clock,
        instance: Instance,
        ids: &'a mut Ids,
    ) -> Group<'a> {
        Group {
            store,
            cache,
            accounts,
            clock,
            instance,
            ids,
            charges: usage::Charges::new(accounts),
            inodes: HashMap::new(),
            dentries: HashMap::new(),
            locations: HashMap::new(),
            taken: Vec::new(),
            asked_acls: HashMap::new(),
            batch: Batch::default(),
            is_written: false,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Asks the store for something that the cache does not know.
    fn ask(&mut self, question: Question) -> &mut dyn Store {
        self.cache.counts.add(Event::Asked(question));
        &mut *self.store
    }

    /// `Stale` if there is none.
    pub fn inode(&mut self, file: FileId) -> OpResult<Inode> {
        if let Some(working) = self.inodes.get(&file) {
            return working.inode.ok_or(OpError::Refused(NamespaceError::Stale(file)));
        }
        let (inode, stored, is_dirty) = match self.cache.take_unsettled(file) {
            Some(entry) => {
                let is_dirty = entry.is_waiting();
                if is_dirty {
                    self.taken.push(file);
                    self.charges.exchange(Some(&entry.stored), Some(&entry.visible));
                }
                (entry.visible, entry.stored, is_dirty)
            }
            None => match self.cache.pending.truth(file).or_else(|| self.cache.stored_inode(file)) {
                Some(inode) => (inode, inode, false),
                None => {
                    let inode = self.ask(Question::Inode).inode(file)?.ok_or(NamespaceError::Stale(file))?;
                    (inode, inode, false)
                }
            },
        };
        self.inodes.insert(file, Working { is_dirty, ..Working::new(Some(inode), Some(stored)) });
        Ok(inode)
    }

    pub fn directory(&mut self, dir: FileId) -> OpResult<Inode> {
        let inode = self.inode(dir)?;
        if inode.is_directory() { Ok(inode) } else { Err(NamespaceError::NotDirectory.into()) }
    }

    pub fn child(&mut self, dir: FileId, name: &Name) -> OpResult<Option<FileId>> {
        let key = (dir, name.clone());
        if let Some(looked) = self.dentries.get(&key) {
            return Ok(looked.child);
        }
        let child = match self.cache.dentry(dir, name) {
            Some(child) => child,
            None if self.is_new(dir) => None,
            None => self.ask(Question::Name).child(dir, name)?,
        };
        self.dentries.insert(key, Looked { child, change: None });
        Ok(child)
    }

    /// Made by this group: it has no names but those it was given since.
    fn is_new(&self, file: FileId) -> bool {
        self.inodes.get(&file).is_some_and(|working| working.stored.is_none())
    }

    pub fn has_children(&mut self, dir: FileId) -> OpResult<bool> {
        let mut gone = HashSet::new();
        for ((parent, name), looked) in &self.dentries {
            match (*parent == dir, looked.change) {
                (true, Some(NameChange::Remove)) => gone.insert(name),
                (true, Some(_)) => return Ok(true),
                _ => continue,
            };
        }
        self.cache.counts.add(Event::Asked(Question::List));
        let stored = self.store.some_names(dir, gone.len() + 1)?;
        Ok(stored.iter().any(|name| !gone.contains(name)))
    }

    /// A directory that has a name of the file, other than this one.
    pub fn other_parent(&mut self, file: FileId, but: (FileId, &Name)) -> OpResult<Option<FileId>> {
        let is_other = |(dir, name): &(FileId, Name)| (*dir, name) != but;
        let changed = || self.dentries.iter().filter(|(_, looked)| looked.change.is_some());
        let made = changed().filter(|(key, looked)| looked.child == Some(file) && is_other(key));
        if let Some(dir) = made.map(|((dir, _), _)| *dir).min() {
            return Ok(Some(dir));
        }
        let changed_len = changed().count();
        let stored = self.ask(Question::Names).names_of(file, changed_len + 2)?;
        let is_there =
            |key: &(FileId, Name)| self.dentries.get(key).is_none_or(|looked| looked.change.is_none());
        Ok(stored.into_iter().filter(|key| is_other(key) && is_there(key)).map(|(dir, _)| dir).min())
    }

    /// Replaces a working copy; the row is written at the end of the group.
    pub fn put(&mut self, inode: Inode) {
        let working =
            self.inodes.get_mut(&inode.id()).expect("an inode is put after it was read or inserted");
        self.charges.exchange(working.inode.as_ref(), Some(&inode));
        working.inode = Some(inode);
        (working.is_dirty, working.is_whole) = (true, true);
    }

    pub fn insert(&mut self, inode: Inode) {
        self.charges.exchange(None, Some(&inode));
        let working = Working { is_dirty: true, is_whole: true, ..Working::new(Some(inode), None) };
        self.inodes.insert(inode.id(), working);
    }

    /// Removes the row with all that hangs on it.
    pub fn remove(&mut self, inode: &Inode) {
        let file = inode.id();
        let working = self.inodes.get_mut(&file).expect("an inode is removed after it was read");
        self.charges.exchange(working.inode.as_ref(), None);
        working.inode = None;
        (working.is_dirty, working.is_whole) = (true, true);
        self.is_written = true;
        let kind = inode.attributes.kind;
        if kind.is_regular() {
            self.batch.locations.clear(file);
            self.locations.insert(file, None);
        } else if kind == types::FileKind::Symlink {
            self.batch.targets.insert(file, None);
        }
        if inode.extras.has_properties {
            self.batch.properties.clear(file);
        }
        if inode.extras.has_xattrs {
            self.batch.xattrs.clear(file);
        }
        if inode.attributes.has_acl {
            self.batch.acls.insert(file, None);
        }
        if inode.is_directory() {
            self.close_tree(inode);
        }
    }

    pub fn new_file_id(&mut self) -> OpResult<FileId> {
        // The committer reserves for a whole group; it could not if the disk is full.
        self.ids.files.take().map(FileId).ok_or(OpError::Refused(NamespaceError::NoSpace))
    }

    pub fn new_cookie(&mut self) -> OpResult<u64> {
        self.ids.cookies.take().ok_or(OpError::Refused(NamespaceError::NoSpace))
    }

    pub fn add_name(&mut self, dir: FileId, name: &Name, cookie: u64, child: FileId) {
        self.change_name(dir, name, Some(child), NameChange::Put { cookie, child });
    }

    /// The name keeps its place in listings.
    pub fn replace_name(&mut self, dir: FileId, name: &Name, child: FileId) {
        let known = self.dentries.get(&(dir, name.clone())).and_then(|looked| looked.change);
        let change = match known {
            Some(NameChange::Put { cookie, .. }) => NameChange::Put { cookie, child },
            _ => NameChange::Repoint { child },
        };
        self.change_name(dir, name, Some(child), change);
    }

    pub fn remove_name(&mut self, dir: FileId, name: &Name) {
        self.change_name(dir, name, None, NameChange::Remove);
    }

    fn change_name(&mut self, dir: FileId, name: &Name, child: Option<FileId>, change: NameChange) {
        self.is_written = true;
        self.dentries.insert((dir, name.clone()), Looked { child, change: Some(change) });
    }

    pub fn set_target(&mut self, file: FileId, target: &SymlinkTarget) {
        self.is_written = true;
        self.batch.targets.insert(file, Some(target.clone()));
    }

    /// The operation wrote rows that no cache knows.
    pub fn wrote(&mut self) {
        self.is_written = true;
    }

    /// It is written also if it changes nothing, and is on disk when it is answered, where that can be.
    pub fn be_durable(&mut self) {
        self.is_written = true;
        self.batch.is_durable = true;
    }

    /// Of what asks for more room than there was.
    pub fn require_room(&self) -> OpResult<()> {
        if self.store.has_room() { Ok(()) } else { Err(NamespaceError::NoSpace.into()) }
    }

    pub fn is_written(&self) -> bool {
        self.is_written || self.inodes.values().any(|working| working.is_dirty)
    }

    /// Writes everything as the group of this number; the new totals.
    pub fn commit(&mut self, sequence: u64, totals: Totals) -> Result<Totals, StoreError> {
        self.finish_accounts()?;
        self.finish(sequence, totals);
        self.store.commit(&self.batch)?;
        Ok(self.batch.totals)
    }

    fn finish(&mut self, sequence: u64, totals: Totals) {
        self.write_directories();
        let batch = &mut self.batch;
        (batch.sequence, batch.totals) = (sequence, totals);
        for (file, working) in self.inodes.iter().filter(|(_, working)| working.is_dirty) {
            let change = match (&working.stored, working.inode) {
                _ if batch.dir_deltas.contains_key(file) => None,
                (None, Some(inode)) => Some(InodeChange::Insert(inode)),
                (Some(_), Some(inode)) => Some(InodeChange::Update(inode)),
                (Some(_), None) => Some(InodeChange::Remove),
                (None, None) => None,
            };
            batch.inodes.extend(change.map(|change| (*file, change)));
            // Data may have changed in ways that know nothing of this table: the inode says it.
            if working.is_summed && !working.inode.is_some_and(|inode| inode.extras.has_checksums) {
                batch.checksums.clear(*file);
            }
            if let Some(inode) = &working.inode {
                batch.totals.files += 1;
                batch.totals.bytes = batch.totals.bytes.wrapping_add(counted_bytes(inode));
            }
            if let Some(inode) = &working.stored {
                batch.totals.files -= 1;
                batch.totals.bytes = batch.totals.bytes.wrapping_sub(counted_bytes(inode));
            }
        }
        let changed = self.dentries.iter().filter_map(|(key, looked)| Some((key.clone(), looked.change?)));
        batch.names.extend(changed);
    }

    /// For the cache, once the group is committed.
    pub fn into_changes(self) -> Changes {
        let mut changes = Changes { directories: self.directory_changes(), ..Changes::default() };
        for (file, working) in self.inodes {
            if working.stored.is_none() && working.inode.is_some_and(|inode| inode.is_directory()) {
                changes.new_directories.push(file);
            }
            match working.inode {
                inode if working.is_dirty => changes.inodes.push((file, inode)),
                Some(inode) => changes.learned.inodes.push(inode),
                None => {}
            }
        }
        for (key, looked) in self.dentries {
            let into =
                if looked.change.is_some() { &mut changes.dentries } else { &mut changes.learned.dentries };
            into.push((key, looked.child));
        }
        changes.locations =
            self.locations.into_iter().map(|(file, known)| (file, known.map(Arc::from))).collect();
        let mut batch = self.batch;
        Group::tell_acls(self.asked_acls, &mut batch, &mut changes);
        let targets = batch.targets;
        changes.targets = targets.into_iter().filter_map(|(file, target)| Some((file, target?))).collect();
        changes
    }

    /// Files whose waiting writes this group carries.
    pub fn taken(&self) -> &[FileId] {
        &self.taken
    }
}

fn counted_bytes(inode: &Inode) -> i64 {
    if inode.attributes.kind.is_regular() { inode.attributes.size.cast_signed() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{create, properties, publish, rename, setattr, unlink, xattrs};
    use crate::scratch::{name, open, regular};
    use api::{
        Acls, CreateKind, CreateSpec, ExpectedEnds, ExpectedFile, Namespace, Properties, Property,
        PropertyChange, Replace, SetAttributes, SetXattr, Unnamed, Xattrs,
    };
    use types::{Access, Ace, AceFlags, AceWho, Acl, Identity};

    const TOP: FileId = FileId::ROOT;

    fn folder() -> CreateSpec {
        CreateSpec { kind: CreateKind::Directory, ..regular() }
    }

    #[tokio::test]
    async fn a_directory_is_as_empty_as_the_group_has_made_it() {
        let scratch = tempfile::tempdir().unwrap();
        let namespace = open(&scratch);
        let root = Identity::root();
        let dir = namespace.create(&root, TOP, &name("d"), &folder()).await.unwrap().attributes.file;
        for text in ["a", "b"] {
            namespace.create(&root, dir, &name(text), &regular()).await.unwrap();
        }
        let made = namespace.shared.submit(move |group| {
            let root = Identity::root();
            let mut seen = vec![group.has_children(dir)?];
            for text in ["a", "b"] {
                unlink::unlink(group, &root, dir, &name(text), ExpectedFile::Any)?;
                seen.push(group.has_children(dir)?);
            }
            create::create(group, &root, dir, &name("c"), &regular())?;
            seen.push(group.has_children(dir)?);
            rename::rename(
                group,
                &root,
                (dir, &name("c")),
                (TOP, &name("c")),
                Replace::Never,
                ExpectedEnds::ANY,
            )?;
            seen.push(group.has_children(dir)?);
            unlink::unlink(group, &root, TOP, &name("d"), ExpectedFile::Any)?;
            Ok(seen)
        });
        assert_eq!(made.await.unwrap(), [true, true, false, true, false]);
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }

    /// All changes of one name in one group are written as one row.
    #[tokio::test]
    async fn a_name_that_changes_hands_within_a_group_is_written_as_it_ends() {
        let scratch = tempfile::tempdir().unwrap();
        let namespace = open(&scratch);
        let root = Identity::root();
        let old = namespace.create(&root, TOP, &name("n"), &regular()).await.unwrap().attributes.file;
        let new = namespace
            .shared
            .submit(|group| {
                let root = Identity::root();
                unlink::unlink(group, &root, TOP, &name("n"), ExpectedFile::Any)?;
                create::create(group, &root, TOP, &name("n"), &regular())?;
                let other = create::create(group, &root, TOP, &name("m"), &regular())?.attributes.file;
                rename::rename(
                    group,
                    &root,
                    (TOP, &name("m")),
                    (TOP, &name("n")),
                    Replace::Any,
                    ExpectedEnds::ANY,
                )?;
                create::create(group, &root, TOP, &name("gone"), &regular())?;
                unlink::unlink(group, &root, TOP, &name("gone"), ExpectedFile::Any)?;
                Ok(other)
            })
            .await
            .unwrap();
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
        drop(namespace);
        let again = open(&scratch);
        let found = again.list(&root, TOP, api::Cookie::START, 10).await.unwrap().entries;
        assert_eq!(found.len(), 1);
        assert!(found[0].attributes.file == new && new != old);
    }

    #[tokio::test]
    async fn an_acl_makes_no_program_of_a_group_that_its_maker_is_not_in() {
        let scratch = tempfile::tempdir().unwrap();
        let namespace = open(&scratch);
        let (root, bob) = (Identity::root(), Identity::new(20, 20, &[]));
        let dir = namespace.create(&root, TOP, &name("staff"), &folder()).await.unwrap().attributes.file;
        let of_staff = SetAttributes { gid: Some(50), mode: Some(0o2777), ..SetAttributes::default() };
        namespace.set_attributes(&root, dir, &of_staff).await.unwrap();
        let runs =
            [Ace::allow(AceWho::Owner, Access::OF_MODE), Ace::allow(AceWho::Everyone, Access::EXECUTE)];
        let runs = SetAttributes { acl: Acl::new(runs.to_vec()).ok(), ..SetAttributes::default() };

        let quiet = CreateSpec { permissions: 0o2644, ..regular() };
        let made = namespace.create(&bob, dir, &name("a"), &quiet).await.unwrap().attributes;
        assert_eq!((made.gid, made.mode), (50, 0o2644), "nobody runs it");
        let after = namespace.set_attributes(&bob, made.file, &runs).await.unwrap();
        assert_eq!(after.mode & 0o7010, 0o0010, "by SETATTR");

        let at_once = CreateSpec { set: runs.clone(), ..quiet };
        let made = namespace.create(&bob, dir, &name("b"), &at_once).await.unwrap().attributes;
        assert_eq!(made.mode & 0o7010, 0o0010, "at its creation");

        let of_another = CreateSpec { permissions: 0o4644, ..regular() };
        let made = namespace.create(&root, dir, &name("c"), &of_another).await.unwrap().attributes;
        let mut lent = runs.clone();
        lent.acl = Acl::new(vec![Ace::allow(AceWho::User(20), Access::WRITE_ACL)]).ok();
        namespace.set_attributes(&root, made.file, &lent).await.unwrap();
        let after = namespace.set_attributes(&bob, made.file, &runs).await.unwrap();
        assert_eq!(after.mode & 0o7010, 0o0010, "of another's file");
        namespace.close().await;
    }

    #[tokio::test]
    async fn an_acl_of_the_same_group_is_asked_inherited_and_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let namespace = open(&scratch);
        let (root, bob) = (Identity::root(), Identity::new(20, 20, &[]));
        let dir = namespace.create(&root, TOP, &name("d"), &folder()).await.unwrap().attributes.file;
        let to_files = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
        let ace = Ace::allow(AceWho::User(20), Access::OF_MODE).inherited_by(to_files);
        let given = |aces: Vec<Ace>| SetAttributes { acl: Acl::new(aces).ok(), ..SetAttributes::default() };
        let files = namespace.shared.submit(move |group| {
            let (root, bob) = (Identity::root(), Identity::new(20, 20, &[]));
            setattr::set_attributes(group, &root, dir, &given(vec![ace]))?;
            let inherits = CreateSpec { umask: Some(0o022), ..regular() };
            let kept = create::create(group, &bob, dir, &name("kept"), &inherits)?.attributes.file;
            let gone = create::create(group, &bob, dir, &name("gone"), &inherits)?.attributes;
            assert!(gone.has_acl && group.acl(&gone)?.is_some());
            unlink::unlink(group, &bob, dir, &name("gone"), ExpectedFile::Any)?;
            crate::ops::records::forget(group, &[gone.file])?;
            setattr::set_attributes(group, &root, dir, &given(Vec::new()))?;
            Ok((kept, gone.file))
        });
        let (kept, gone) = files.await.unwrap();
        let kept = namespace.attributes(kept).await.unwrap();
        let inherited = namespace.acl(&kept).await.unwrap().unwrap();
        let of_owner = Ace::allow(AceWho::Owner, Access::READ | Access::WRITE);
        assert_eq!(inherited.aces(), [Ace { flags: AceFlags::NONE, mask: Access::READ, ..ace }, of_owner]);
        assert!(matches!(namespace.attributes(gone).await, Err(NamespaceError::Stale(_))));
        let looked = namespace.lookup(&bob, dir, &name("kept")).await;
        assert!(matches!(looked, Err(NamespaceError::AccessDenied)), "the ACL was emptied");
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
        drop(namespace);
        assert_eq!(open(&scratch).acl(&kept).await.unwrap(), Some(inherited));
    }

    #[tokio::test]
    async fn properties_and_xattrs_set_in_the_same_group_are_taken_over_by_publish() {
        let scratch = tempfile::tempdir().unwrap();
        let namespace = open(&scratch);
        let (root, colour) = (Identity::root(), "{DAV:}colour".to_owned());
        let first = namespace.create(&root, TOP, &name("f"), &regular()).await.unwrap().attributes.file;
        let set = |value: &'static str| {
            PropertyChange::Set(Property { name: "{DAV:}colour".to_owned(), value: value.into() })
        };
        namespace.set_properties(&root, first, &[set("red")]).await.unwrap();
        let xattr = |text: &str| types::XattrName::new(text.as_bytes()).unwrap();
        for text in ["kept", "changed", "removed"] {
            namespace.set_xattr(&root, first, &xattr(text), &"old".into(), SetXattr::Create).await.unwrap();
        }
        let file = namespace
            .shared
            .submit(move |group| {
                let root = Identity::root();
                properties::set_properties(group, &root, first, &[set("blue")])?;
                xattrs::set(group, &root, first, (&xattr("changed"), &"new".into()), SetXattr::Replace)?;
                xattrs::remove(group, &root, first, &xattr("removed"))?;
                xattrs::set(group, &root, first, (&xattr("made"), &"new".into()), SetXattr::Create)?;
                let new = Unnamed { permissions: 0o600, location: types::PoolId(0) };
                let file = publish::create_unnamed(group, &root, TOP, &new)?.file;
                let how = api::Publish {
                    size: 0,
                    space_used: 0,
                    mtime: None,
                    checksums: Vec::new(),
                    replace: Replace::File(first),
                };
                publish::publish(group, &root, file, (TOP, &name("f")), &how)?;
                crate::ops::records::forget(group, &[first])?;
                Ok(file)
            })
            .await
            .unwrap();
        let expected = [Property { name: colour, value: "blue".into() }];
        assert_eq!(namespace.properties(file).await.unwrap(), expected);
        let listed = namespace.xattrs(&root, file, api::Cookie::START).await.unwrap();
        let mut found = Vec::new();
        for listed in listed {
            found.push((namespace.xattr(&root, file, &listed.name).await.unwrap(), listed.name));
        }
        let expected = [("old", "kept"), ("new", "changed"), ("new", "made")];
        assert_eq!(found, expected.map(|(value, name)| (value.into(), xattr(name))));
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}
