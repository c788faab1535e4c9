//! LOOKUP, LOOKUPP, READLINK, CREATE, REMOVE, RENAME, LINK.

use api::{CreateKind, CreateMode, CreateSpec, ExpectedEnds, ExpectedFile, Replace};
use bytes::Bytes;
use files::{Change, FileChangeGuard};
use nfs4::{
    ChangeInfo4, Create4Args, Create4ResOk, CreateType4, Link4Args, Link4ResOk, LinkText4, Lookup4Args,
    NfsStat4, ReadLink4ResOk, Remove4Args, Remove4ResOk, Rename4Args, Rename4ResOk, SpecData4,
};
use types::{Access, ChangeInfo, Device, FileId, FileKind, Name, SymlinkTarget};

use super::change::before_change;
use super::component::name;
use super::exports::Exports;
use super::file_system::FileSystem;
use super::{names, setattr};
use crate::context::Compound;
use crate::status;

/// For an object without a given mode: the mode that `mkdir` and `mknod` would set under a common umask.
const PERMISSIONS_DEFAULT: u32 = 0o755;

pub(super) async fn lookup(
    compound: &mut Compound,
    fs: &FileSystem,
    args: &Lookup4Args,
) -> Result<(), NfsStat4> {
    let found = names::look_up(compound, fs, &args.objname).await?;
    compound.set_file(found.entry.file);
    Ok(())
}

pub(super) async fn lookup_parent(compound: &mut Compound, exports: &Exports) -> Result<(), NfsStat4> {
    let fs = &*exports.clients.fs;
    let dir = names::directory(fs, compound.file()?).await?;
    let found = fs.namespace.parent(&compound.climber(), dir).await.map_err(status::of_namespace)?;
    // The way up may lead out of an export, into the one around it.
    let place = exports.place_of(compound, &found).await?;
    compound.enter(found.file, place);
    Ok(())
}

pub(super) async fn read_link(compound: &Compound, fs: &FileSystem) -> Result<ReadLink4ResOk, NfsStat4> {
    let target = fs.namespace.read_link(compound.file()?).await.map_err(status::of_namespace)?;
    Ok(ReadLink4ResOk { link: LinkText4::from(Bytes::copy_from_slice(target.as_bytes())) })
}

pub(super) async fn create(
    compound: &mut Compound,
    fs: &FileSystem,
    args: &Create4Args,
) -> Result<Create4ResOk, NfsStat4> {
    let kind = create_kind(&args.objtype)?;
    let dir = names::plain_directory(fs, compound.file()?).await?;
    let name = name(&args.objname)?;
    let requested = setattr::parse_for_creation(compound, fs, &args.createattrs).await?;
    if requested.size().is_some() {
        return Err(NfsStat4::Inval);
    }
    requested.judge_kind(made_kind(&kind))?;
    let (permissions, umask) = requested.permissions(PERMISSIONS_DEFAULT);
    let spec = CreateSpec {
        kind,
        mode: CreateMode::Guarded,
        permissions,
        umask,
        set: requested.beside_mode(),
        location: None,
    };
    let created =
        fs.namespace.create(&compound.identity, dir, &name, &spec).await.map_err(status::of_namespace)?;
    compound.set_file(created.attributes.file);
    let attrset = setattr::set_at_creation(args.createattrs.attrmask);
    Ok(Create4ResOk { cinfo: change_info(created.parent), attrset })
}

fn create_kind(objtype: &CreateType4) -> Result<CreateKind, NfsStat4> {
    let device = |data: &SpecData4| Device { major: data.specdata1, minor: data.specdata2 };
    Ok(match objtype {
        CreateType4::Dir => CreateKind::Directory,
        CreateType4::Lnk(text) => {
            CreateKind::Symlink(SymlinkTarget::new(text.as_bytes()).map_err(status::of_name)?)
        }
        CreateType4::Blk(data) => CreateKind::BlockDevice(device(data)),
        CreateType4::Chr(data) => CreateKind::CharacterDevice(device(data)),
        CreateType4::Fifo => CreateKind::Fifo,
        CreateType4::Sock => CreateKind::Socket,
        CreateType4::Other(_) => return Err(NfsStat4::BadType),
    })
}

/// As far as it matters to an ACL.
fn made_kind(kind: &CreateKind) -> FileKind {
    match kind {
        CreateKind::Directory => FileKind::Directory,
        CreateKind::Symlink(_) => FileKind::Symlink,
        _ => FileKind::Regular,
    }
}

pub(super) async fn remove(
    compound: &mut Compound,
    fs: &FileSystem,
    args: &Remove4Args,
) -> Result<Remove4ResOk, NfsStat4> {
    let dir = names::plain_directory(fs, compound.file()?).await?;
    let name = name(&args.target)?;
    let _removing = before_removal(compound, fs, dir, &name, Change::Remove).await?;
    // A file that somebody has open keeps its data until the last close: the row stays, the reaper asks the states.
    let removed = fs
        .namespace
        .unlink(&compound.identity, dir, &name, ExpectedFile::Any)
        .await
        .map_err(status::of_namespace)?;
    call_back(compound, fs, removed.attributes.file, Change::Remove);
    Ok(Remove4ResOk { cinfo: change_info(removed.parent) })
}

pub(super) async fn rename(
    compound: &mut Compound,
    fs: &FileSystem,
    args: &Rename4Args,
) -> Result<Rename4ResOk, NfsStat4> {
    let source = names::plain_directory(fs, compound.saved_file()?).await?;
    let target = names::plain_directory(fs, compound.file()?).await?;
    let (old, new) = (name(&args.oldname)?, name(&args.newname)?);
    let _moving = before_removal(compound, fs, source, &old, Change::Rename).await?;
    let _replacing = before_removal(compound, fs, target, &new, Change::Remove).await?;
    let (from, to) = ((source, &old), (target, &new));
    let renamed = fs.namespace.rename(&compound.identity, from, to, Replace::Any, ExpectedEnds::ANY).await;
    let renamed = renamed.map_err(|error| match error {
        // RFC 8881 §18.26.3: an existing target that cannot be replaced is EXIST, whatever is wrong with it.
        api::NamespaceError::IsDirectory | api::NamespaceError::NotDirectory => NfsStat4::Exist,
        error => status::of_namespace(error),
    })?;
    call_back(compound, fs, renamed.moved.file, Change::Rename);
    if let Some(replaced) = renamed.replaced {
        call_back(compound, fs, replaced.file, Change::Remove);
    }
    Ok(Rename4ResOk { source_cinfo: change_info(renamed.source), target_cinfo: change_info(renamed.target) })
}

/// Before a name is removed or comes to stand for another file: a file that is locked at another door keeps its names,
/// and delegations of other clients are recalled. All other checks of the name are the operation's.
async fn before_removal(
    compound: &Compound,
    fs: &FileSystem,
    dir: FileId,
    name: &Name,
    change: Change,
) -> Result<Option<FileChangeGuard>, NfsStat4> {
    let by = fs.caller(compound);
    // Mostly no other client denies access or has a delegation, and the name need not be looked up.
    let is_free = {
        let table = fs.files.table();
        !table.has_denials_of_others(fs.door) && !table.has_delegations_of_others(by)
    };
    if is_free {
        return Ok(None);
    }
    let who = &compound.identity;
    let Ok(found) = names::lookup(compound, fs, dir, name).await else { return Ok(None) };
    // Nothing is recalled for a change that is refused anyway.
    if !fs.may_remove(who, &found.dir, &found.entry).await? {
        return Ok(None);
    }
    before_change(compound, fs, found.entry.file, change).await.map(Some).map_err(status::of_removal)
}

/// After the change: recalls delegations granted since the check before it, or of a file that got the name only since
/// the lookup, and does not wait for them.
fn call_back(compound: &Compound, fs: &FileSystem, file: FileId, change: Change) {
    fs.files.call_back(file, fs.caller(compound), change);
}

pub(super) async fn link(
    compound: &mut Compound,
    fs: &FileSystem,
    args: &Link4Args,
) -> Result<Link4ResOk, NfsStat4> {
    let file = compound.saved_file()?;
    if fs.attributes(file).await?.kind == FileKind::Directory {
        return Err(NfsStat4::IsDir);
    }
    let above = fs.attributes(compound.file()?).await?;
    if above.kind != FileKind::Directory {
        return Err(NfsStat4::NotDir);
    }
    let (dir, name) = (above.file, name(&args.newname)?);
    // Nothing is recalled for a change that is refused anyway.
    let needed = Access::ADD_FILE | Access::EXECUTE;
    let _linking = if fs.allows(&compound.identity, &above, needed).await? {
        let linking = before_change(compound, fs, file, Change::Link).await;
        Some(linking.map_err(status::of_files)?)
    } else {
        None
    };
    let linked =
        fs.namespace.link(&compound.identity, file, dir, &name).await.map_err(status::of_namespace)?;
    Ok(Link4ResOk { cinfo: change_info(linked.parent) })
}

pub(super) fn change_info(info: ChangeInfo) -> ChangeInfo4 {
    ChangeInfo4 { atomic: info.atomic, before: info.before, after: info.after }
}
