//! ACLs: kept in step with modes, inherited, and asked before anything is done.

use api::{
    CreateKind, CreateSpec, ExpectedEnds, ExpectedFile, NamespaceError, Replace, SetAttributes, SetTime,
};
use types::{Access, Ace, AceFlags, AceWho, Acl, Attributes, FileId, Identity, SymlinkTarget, permission};

use super::uploads::complete;
use super::{World, alice, at, bob, name, root, spec};
use crate::refused;

const R: Access = Access::READ;
const W: Access = Access::WRITE;
const X: Access = Access::EXECUTE;
const OWNER: AceWho = AceWho::Owner;
const EVERYONE: AceWho = AceWho::Everyone;
const BOB: AceWho = AceWho::User(20);

fn acl(aces: &[Ace]) -> Acl {
    Acl::new(aces.to_vec()).unwrap()
}

fn given(acl: &Acl) -> SetAttributes {
    SetAttributes { acl: Some(acl.clone()), ..SetAttributes::default() }
}

fn chmod(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn to_all() -> AceFlags {
    AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT
}

impl World {
    async fn set_acl(&self, who: &Identity, file: FileId, aces: &[Ace]) -> Attributes {
        self.names.set_attributes(who, file, &given(&acl(aces))).await.unwrap()
    }

    /// With what the attributes say of it.
    async fn acl_of(&self, file: FileId) -> (Option<Acl>, u32) {
        let attributes = self.names.attributes(file).await.unwrap();
        let found = self.acls.acl(&attributes).await.unwrap();
        assert_eq!(attributes.has_acl, found.is_some());
        (found, attributes.mode & 0o777)
    }

    async fn may(&self, who: &Identity, file: FileId, wanted: Access) -> bool {
        let attributes = self.names.attributes(file).await.unwrap();
        let acl = self.acls.acl(&attributes).await.unwrap();
        permission::allows(who, &attributes, acl.as_ref(), wanted)
    }
}

pub async fn an_acl_is_kept_with_the_mode_that_it_amounts_to(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "f").await;
    let before = world.names.attributes(file).await.unwrap();
    assert_eq!(world.acl_of(file).await, (None, 0o644));
    let aces = [Ace::deny(BOB, R), Ace::allow(OWNER, R | W | X), Ace::allow(EVERYONE, R)];
    let after = world.set_acl(&alice(), file, &aces).await;
    assert!(after.change > before.change && after.has_acl);
    assert_eq!(after.mode, 0o744);
    assert_eq!(world.acl_of(file).await, (Some(acl(&aces)), 0o744));
    assert!(!world.may(&bob(), file, R).await && world.may(&alice(), file, W).await);
    // Another one right after it: no old one is seen again.
    let other = [Ace::allow(BOB, R | W)];
    world.set_acl(&alice(), file, &other).await;
    assert_eq!(world.acl_of(file).await, (Some(acl(&other)), 0));
    assert!(world.may(&bob(), file, R | W).await && !world.may(&alice(), file, R).await);
    // An ACL that says no more than a mode is not kept beside it.
    world.set_acl(&alice(), file, Acl::of_mode(0o640).aces()).await;
    assert_eq!(world.acl_of(file).await, (None, 0o640));
    assert!(!world.may(&bob(), file, R).await);
    // An empty ACL lets nobody do anything; the owner may still mend it.
    world.set_acl(&alice(), file, &[]).await;
    assert_eq!(world.acl_of(file).await, (Some(acl(&[])), 0));
    world.set_acl(&alice(), file, &aces).await;
}

pub async fn a_new_mode_changes_the_acl_and_an_acl_given_with_it_comes_last(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "f").await;
    world.set_acl(&alice(), file, &[Ace::allow(BOB, R | W), Ace::allow(OWNER, R)]).await;
    world.names.set_attributes(&alice(), file, &chmod(0o4640)).await.unwrap();
    let (found, mode) = world.acl_of(file).await;
    assert_eq!((found.unwrap().mode(), mode), (0o640, 0o640));
    // RFC 8881 §6.4.1.1: no more than the group's bits.
    assert!(world.may(&bob(), file, R).await && !world.may(&bob(), file, W).await);
    let both = SetAttributes { mode: Some(0o4777), ..given(&acl(&[Ace::allow(OWNER, R)])) };
    let after = world.names.set_attributes(&alice(), file, &both).await.unwrap();
    assert_eq!(after.mode, 0o4400, "the mode's upper bits, the ACL's lower ones");
    // chown leaves the ACL; OWNER@ is another then.
    let chown = SetAttributes { uid: Some(20), ..SetAttributes::default() };
    world.names.set_attributes(&root(), file, &chown).await.unwrap();
    assert!(world.may(&bob(), file, R).await && !world.may(&alice(), file, R).await);
    assert!(world.acl_of(file).await.0.is_some());
}

pub async fn only_owners_and_whom_the_acl_allows_it_change_acl_mode_times_and_owner(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "f").await;
    let all = [Ace::allow(EVERYONE, R | W | X)];
    let set = async |who: Identity, set: SetAttributes| world.names.set_attributes(&who, file, &set).await;
    world.set_acl(&alice(), file, &all).await;
    refused!(set(bob(), given(&acl(&all))).await, NamespaceError::NotPermitted);
    refused!(set(bob(), chmod(0o777)).await, NamespaceError::NotPermitted);
    let time = SetAttributes { mtime: Some(SetTime::To(at(5))), ..SetAttributes::default() };
    refused!(set(bob(), time.clone()).await, NamespaceError::NotPermitted);
    let take = |uid, gid| SetAttributes { uid, gid, ..SetAttributes::default() };
    refused!(set(bob(), take(Some(20), None)).await, NamespaceError::NotPermitted);

    world.set_acl(&alice(), file, &[Ace::allow(BOB, Access::WRITE_ATTRIBUTES | Access::WRITE_ACL)]).await;
    set(bob(), time).await.unwrap();
    // Nobody makes another's program run as that other.
    assert_eq!(set(bob(), chmod(0o6755)).await.unwrap().mode, 0o755);
    world.set_acl(&alice(), file, &[Ace::allow(BOB, Access::WRITE_OWNER)]).await;
    refused!(set(bob(), take(Some(30), None)).await, NamespaceError::NotPermitted);
    refused!(set(bob(), take(None, Some(100))).await, NamespaceError::NotPermitted);
    let taken = set(bob(), take(Some(20), Some(200))).await.unwrap();
    assert_eq!((taken.uid, taken.gid), (20, 200));
}

pub async fn directories_are_searched_listed_and_filled_as_their_acls_say(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.file(&alice(), dir, "f").await;
    let names = &world.names;
    let made = async |kind: CreateKind| names.create(&bob(), dir, &name("new"), &spec(kind, 0o644)).await;
    let owner = Ace::allow(OWNER, R | W | X);
    world.set_acl(&alice(), dir, &[owner, Ace::deny(BOB, X), Ace::allow(EVERYONE, R | W | X)]).await;
    refused!(names.lookup(&bob(), dir, &name("f")).await, NamespaceError::AccessDenied);
    names.list(&bob(), dir, api::Cookie::START, 10).await.unwrap();
    world.set_acl(&alice(), dir, &[owner, Ace::allow(BOB, X)]).await;
    names.lookup(&bob(), dir, &name("f")).await.unwrap();
    refused!(names.list(&bob(), dir, api::Cookie::START, 10).await, NamespaceError::AccessDenied);
    refused!(made(CreateKind::Regular).await, NamespaceError::AccessDenied);
    world.set_acl(&alice(), dir, &[owner, Ace::allow(BOB, X | Access::ADD_FILE)]).await;
    refused!(made(CreateKind::Directory).await, NamespaceError::AccessDenied);
    made(CreateKind::Regular).await.unwrap();
    names.unlink(&alice(), dir, &name("new"), ExpectedFile::Any).await.unwrap();
    world.set_acl(&alice(), dir, &[owner, Ace::allow(BOB, X | Access::ADD_SUBDIRECTORY)]).await;
    refused!(made(CreateKind::Regular).await, NamespaceError::AccessDenied);
    made(CreateKind::Directory).await.unwrap();
}

pub async fn names_are_taken_away_by_delete_child_of_the_directory_or_delete_of_the_file(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    let owner = Ace::allow(OWNER, R | W | X);
    for text in ["a", "b", "c", "e"] {
        world.file(&alice(), dir, text).await;
    }
    let names = &world.names;
    let unlink = async |text: &str| names.unlink(&bob(), dir, &name(text), ExpectedFile::Any).await;
    world.set_acl(&alice(), dir, &[owner, Ace::allow(BOB, X)]).await;
    refused!(unlink("a").await, NamespaceError::AccessDenied);
    let a = names.lookup(&alice(), dir, &name("a")).await.unwrap().entry.file;
    world.set_acl(&alice(), a, &[Ace::allow(BOB, Access::DELETE), Ace::allow(OWNER, R | W)]).await;
    unlink("a").await.unwrap();
    world.set_acl(&alice(), dir, &[owner, Ace::allow(BOB, X | Access::DELETE_CHILD)]).await;
    unlink("b").await.unwrap();
    // To move in is to add.
    let (from, to) = ((dir, &name("c")), (dir, &name("moved")));
    refused!(
        names.rename(&bob(), from, to, Replace::Never, ExpectedEnds::ANY).await,
        NamespaceError::AccessDenied
    );
    let denies = [Ace::deny(BOB, Access::DELETE_CHILD), Ace::allow(EVERYONE, R | W | X)];
    world.set_acl(&alice(), dir, &denies).await;
    refused!(unlink("c").await, NamespaceError::AccessDenied);
    refused!(
        names.rename(&bob(), from, to, Replace::Never, ExpectedEnds::ANY).await,
        NamespaceError::AccessDenied
    );
    world.set_acl(&alice(), dir, &[Ace::allow(EVERYONE, R | W | X)]).await;
    names.rename(&bob(), from, to, Replace::Never, ExpectedEnds::ANY).await.unwrap();
    names.set_attributes(&alice(), dir, &chmod(0o1777)).await.unwrap();
    refused!(unlink("e").await, NamespaceError::NotPermitted);
}

pub async fn an_object_made_in_a_directory_inherits_from_its_acl(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    let aces = [Ace::allow(BOB, R | W | X).inherited_by(to_all()), Ace::allow(OWNER, R | W | X)];
    world.set_acl(&alice(), dir, &aces).await;
    // With a mode that has the umask in it: as by chmod (RFC 8881 §6.4.3).
    let file = world.make(&alice(), dir, "f", CreateKind::Regular, 0o640).await.attributes;
    let (found, mode) = world.acl_of(file.file).await;
    assert_eq!((found.unwrap().mode(), mode, file.mode), (0o640, 0o640, 0o640));
    assert!(world.may(&bob(), file.file, R).await && !world.may(&bob(), file.file, W).await);
    // With the umask apart: what is inherited is bounded by the mode and not by the umask (RFC 8275),
    // and the owner is not shut out.
    let umasked = |kind, permissions| CreateSpec { umask: Some(0o077), ..spec(kind, permissions) };
    let made = |text: &'static str, spec: CreateSpec| {
        let names = world.names.clone();
        async move { names.create(&alice(), dir, &name(text), &spec).await.unwrap().attributes }
    };
    let open = made("g", umasked(CreateKind::Regular, 0o666)).await;
    assert_eq!(
        world.acl_of(open.file).await.0,
        Some(acl(&[Ace::allow(BOB, R | W), Ace::allow(OWNER, R | W)]))
    );
    let below = made("e", umasked(CreateKind::Directory, 0o777)).await;
    let of_owner = Ace::allow(OWNER, R | W | X);
    assert_eq!(world.acl_of(below.file).await.0, Some(acl(&[aces[0], of_owner])));
    // Given one, nothing is inherited.
    let own = acl(&[Ace::allow(OWNER, R | W)]);
    let with = made("h", CreateSpec { set: given(&own), ..spec(CreateKind::Regular, 0o777) }).await;
    assert_eq!(world.acl_of(with.file).await, (Some(own), 0o600));
    let link = CreateKind::Symlink(SymlinkTarget::new(b"f").unwrap());
    let link = made("l", spec(link, 0o777)).await;
    assert_eq!(world.acl_of(link.file).await, (None, 0o777));
    refused!(
        world.names.set_attributes(&alice(), link.file, &given(&acl(&[]))).await,
        NamespaceError::NotPermitted
    );
    // Where nothing is inherited the umask counts.
    let plain = umasked(CreateKind::Regular, 0o666);
    let plain = world.names.create(&alice(), work, &name("p"), &plain).await.unwrap().attributes;
    assert_eq!((plain.mode, plain.has_acl), (0o600, false));
}

pub async fn a_directory_that_only_hands_an_acl_on_has_the_mode_that_was_asked_for(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    let of_files = Ace::allow(BOB, R | W).inherited_by(AceFlags::FILE_INHERIT);
    world.set_acl(&alice(), dir, &[of_files, Ace::allow(OWNER, R | W | X)]).await;
    let umasked = |kind, permissions| CreateSpec { umask: Some(0o022), ..spec(kind, permissions) };
    let folder = umasked(CreateKind::Directory, 0o777);
    let below = world.names.create(&alice(), dir, &name("e"), &folder).await.unwrap().attributes;
    let (found, mode) = world.acl_of(below.file).await;
    assert_eq!((found.unwrap().mode(), mode, below.mode), (0o755, 0o755, 0o755));
    assert!(world.may(&bob(), below.file, R | X).await && !world.may(&bob(), below.file, W).await);
    let plain = world.make(&alice(), dir, "p", CreateKind::Directory, 0o750).await.attributes;
    assert_eq!(world.acl_of(plain.file).await.1, 0o750);
    // Not lost on the way to the files.
    let file = umasked(CreateKind::Regular, 0o660);
    let file = world.names.create(&alice(), below.file, &name("f"), &file).await.unwrap().attributes;
    let inherited = [Ace::allow(BOB, R | W), Ace::allow(OWNER, R | W)];
    assert_eq!(world.acl_of(file.file).await.0, Some(acl(&inherited)));
}

pub async fn a_chmod_that_an_acl_allows_keeps_set_gid_only_for_a_member_of_the_group(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    let lent = Ace::allow(EVERYONE, Access::WRITE_ACL);
    let of_bobs = SetAttributes { gid: Some(200), mode: Some(0o2770), ..given(&acl(&[lent])) };
    world.names.set_attributes(&root(), dir, &of_bobs).await.unwrap();
    let chmod = async |who: &Identity, mode| world.names.set_attributes(who, dir, &chmod(mode)).await;
    assert_eq!(chmod(&bob(), 0o2775).await.unwrap().mode, 0o2775);
    let stranger = Identity::new(30, 300, &[]);
    world.set_acl(&root(), dir, &[lent]).await;
    assert_eq!(chmod(&stranger, 0o2775).await.unwrap().mode, 0o775, "of a group that is not his");
}

pub async fn an_upload_inherits_and_one_that_replaces_takes_the_acl_over(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    let aces = [Ace::allow(BOB, R | W).inherited_by(to_all()), Ace::allow(OWNER, R | W | X)];
    world.set_acl(&alice(), dir, &aces).await;
    let put = async |who: Identity, replace| {
        let published = world.publish(&who, (dir, "f"), &complete(7, replace)).await?;
        Ok::<FileId, NamespaceError>(published.attributes.file)
    };
    let first = put(alice(), Replace::Never).await.unwrap();
    assert_eq!(world.acl_of(first).await.0, Some(acl(&[Ace::allow(BOB, R | W), Ace::allow(OWNER, R | W)])));
    let own = [Ace::allow(OWNER, R | W), Ace::allow(BOB, R)];
    world.set_acl(&alice(), first, &own).await;
    let again = put(alice(), Replace::Any).await.unwrap();
    assert_eq!(world.acl_of(again).await, (Some(acl(&own)), 0o600));
    // Also that it has none.
    world.set_acl(&alice(), again, Acl::of_mode(0o604).aces()).await;
    let last = put(alice(), Replace::Any).await.unwrap();
    assert_eq!(world.acl_of(last).await, (None, 0o604));
    // Bob may not write what is there, so he does not replace it either.
    world.set_acl(&alice(), dir, &[Ace::allow(EVERYONE, R | W | X)]).await;
    refused!(put(bob(), Replace::Any).await, NamespaceError::AccessDenied);
}
