//! One group: working copies of what its operations touch, over the cache and the database.
//!
//! An operation checks everything before it changes anything, so one that is refused leaves no trace and needs no
//! savepoint. Nothing is written before the end; then each row is written once however often it was touched, which is
//! what makes a hot directory cheap.
//!
//! Each kind of row has a part of its own, which keeps what was asked and what changed of it: `inodes` with `directories` and
//! `charges`, `names`, `locations`, `acls`, `usage`; `attached` keeps nothing but rows. The group puts them together at its
//! end.

mod acls;
mod attached;
mod charges;
mod directories;
mod error;
mod inodes;
mod locations;
mod names;
mod rows;
mod source;
mod usage;

use api::NamespaceError;
use types::{ChangeInfo, Clock, FileId, SymlinkTarget, Timestamp};

use crate::accounts::Accounts;
use crate::cache::{Cache, Changes};
use crate::ids::Ids;
use crate::inode::{Inode, Instance};
use crate::store::{Store, StoreError, StoreResult, Totals};

use self::acls::{Acls, AskedAcls};
use self::attached::Attachments;
use self::charges::Charges;
pub use self::error::{OpError, OpResult};
use self::inodes::Inodes;
use self::locations::{ChangedLocations, Locations};
use self::names::{LookedNames, Names};
use self::rows::Rows;
use self::source::Source;
use self::usage::{Quotas, Usage};

pub struct Group<'a> {
    pub clock: &'a dyn Clock,
    pub instance: Instance,
    pub ids: &'a mut Ids,
    pub inodes: Inodes<'a>,
    pub quotas: Quotas<'a>,
    pub rows: Rows,
    looked_names: LookedNames,
    changed_locations: ChangedLocations,
    asked_acls: AskedAcls,
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
            clock,
            instance,
            ids,
            inodes: Inodes::new(Source { store, cache }, Charges::new(accounts.has_tree_quotas())),
            quotas: Quotas::new(accounts, clock),
            rows: Rows::default(),
            looked_names: LookedNames::default(),
            changed_locations: ChangedLocations::default(),
            asked_acls: AskedAcls::default(),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn names(&mut self) -> Names<'_, 'a> {
        Names { looked: &mut self.looked_names, inodes: &mut self.inodes, rows: &mut self.rows }
    }

    pub fn locations(&mut self) -> Locations<'_, 'a> {
        Locations { changed: &mut self.changed_locations, inodes: &mut self.inodes, rows: &mut self.rows }
    }

    pub fn acls(&mut self) -> Acls<'_, 'a> {
        Acls { asked: &mut self.asked_acls, source: &mut self.inodes.source, rows: &mut self.rows }
    }

    /// Checksums, properties and extended attributes.
    pub fn attached(&mut self) -> Attachments<'_, 'a> {
        Attachments { inodes: &mut self.inodes, rows: &mut self.rows }
    }

    pub fn usage(&mut self) -> Usage<'_, 'a> {
        Usage { quotas: &mut self.quotas, inodes: &mut self.inodes, rows: &mut self.rows }
    }

    /// `Stale` if there is none.
    pub fn inode(&mut self, file: FileId) -> OpResult<Inode> {
        self.inodes.read(file)
    }

    /// Writes files that wait in memory.
    pub fn take_unsettled(&mut self, files: &[FileId]) -> StoreResult<()> {
        for file in files {
            // Reading it takes it; a file that was removed meanwhile has nothing to write.
            match self.inode(*file) {
                Ok(_) | Err(OpError::Refused(_)) => {}
                Err(OpError::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn directory(&mut self, dir: FileId) -> OpResult<Inode> {
        let inode = self.inode(dir)?;
        if inode.is_directory() { Ok(inode) } else { Err(NamespaceError::NotDirectory.into()) }
    }

    /// Replaces a working copy; the row is written at the end of the group.
    pub fn put(&mut self, inode: Inode) {
        self.inodes.put(inode);
    }

    pub fn insert(&mut self, inode: Inode) {
        self.inodes.insert(inode);
    }

    /// Removes the row with all that hangs on it.
    pub fn remove(&mut self, inode: &Inode) {
        let file = inode.id();
        self.inodes.remove(file);
        let kind = inode.attributes.kind;
        if kind.is_regular() {
            self.locations().clear(file);
        }
        let batch = self.rows.change();
        if kind == types::FileKind::Symlink {
            batch.targets.insert(file, None);
        }
        if inode.extras.has_properties {
            batch.properties.clear(file);
        }
        if inode.extras.has_xattrs {
            batch.xattrs.clear(file);
        }
        if inode.attributes.has_acl {
            batch.acls.insert(file, None);
        }
        if inode.is_directory() {
            self.usage().close_tree(inode);
        }
    }

    /// The entries of a directory changed, and nothing else of it but its link count.
    pub fn touch_entries(&mut self, dir: Inode, now: Timestamp) -> ChangeInfo {
        self.inodes.touch_entries(dir, now, self.instance)
    }

    /// Of a directory before and after one operation.
    pub fn change_info(&self, before: &Inode, after: &Inode) -> ChangeInfo {
        self.inodes.change_info(before, after)
    }

    /// As readers see it until the group is written, where that is less than the truth.
    pub fn shown(&self, inode: &Inode) -> Inode {
        self.inodes.shown(inode)
    }

    pub fn new_file_id(&mut self) -> OpResult<FileId> {
        // The committer reserves for a whole group; it could not if the disk is full.
        self.ids.files.take().map(FileId).ok_or(OpError::Refused(NamespaceError::NoSpace))
    }

    pub fn new_cookie(&mut self) -> OpResult<u64> {
        self.ids.cookies.take().ok_or(OpError::Refused(NamespaceError::NoSpace))
    }

    pub fn set_target(&mut self, file: FileId, target: &SymlinkTarget) {
        self.rows.change().targets.insert(file, Some(target.clone()));
    }

    /// Of what asks for more room than there was.
    pub fn require_room(&self) -> OpResult<()> {
        if self.inodes.source.store.has_room() { Ok(()) } else { Err(NamespaceError::NoSpace.into()) }
    }

    /// It is answered when it is on disk.
    pub fn is_awaited(&self) -> bool {
        self.rows.batch.is_durable
    }

    pub fn is_written(&self) -> bool {
        self.rows.is_written() || self.inodes.is_any_dirty()
    }

    /// Writes everything as the group of this number; the new totals.
    pub fn commit(&mut self, sequence: u64, totals: Totals) -> Result<Totals, StoreError> {
        self.usage().finish()?;
        self.finish(sequence, totals);
        self.inodes.source.store.commit(&self.rows.batch)?;
        Ok(self.rows.batch.totals)
    }

    fn finish(&mut self, sequence: u64, totals: Totals) {
        let batch = &mut self.rows.batch;
        self.inodes.write_directories(batch);
        (batch.sequence, batch.totals) = (sequence, totals);
        self.inodes.write(batch);
        self.looked_names.write(batch);
    }

    /// Nothing of the group is written.
    pub fn abandon(&mut self) {
        self.inodes.source.store.abandon();
    }

    /// For the cache, once the group is committed.
    pub fn into_changes(self) -> Changes {
        let mut batch = self.rows.batch;
        let directories = self.inodes.directory_changes(&batch);
        let mut changes = Changes { directories, ..Changes::default() };
        self.inodes.tell(&mut changes);
        self.looked_names.tell(&mut changes);
        self.changed_locations.tell(&mut changes);
        self.asked_acls.tell(&mut batch, &mut changes);
        let targets = batch.targets.into_iter();
        changes.targets = targets.filter_map(|(file, target)| Some((file, target?))).collect();
        changes
    }
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
            let mut seen = vec![group.names().has_children(dir)?];
            for text in ["a", "b"] {
                unlink::unlink(group, &root, dir, &name(text), ExpectedFile::Any)?;
                seen.push(group.names().has_children(dir)?);
            }
            create::create(group, &root, dir, &name("c"), &regular())?;
            seen.push(group.names().has_children(dir)?);
            rename::rename(
                group,
                &root,
                (dir, &name("c")),
                (TOP, &name("c")),
                Replace::Never,
                ExpectedEnds::ANY,
            )?;
            seen.push(group.names().has_children(dir)?);
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
            assert!(gone.has_acl && group.acls().of(&gone)?.is_some());
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
