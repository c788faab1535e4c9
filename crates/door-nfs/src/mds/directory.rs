//! LOOKUP, LOOKUPP, READLINK, CREATE, REMOVE, RENAME, LINK.

use api::{CreateKind, CreateMode, CreateSpec, NamespaceError, Replace};
use bytes::Bytes;
use files::{Entry, FilesError};
use nfs4::{
    ChangeInfo4, Create4Args, Create4ResOk, CreateType4, Link4Args, Link4ResOk, LinkText4, Lookup4Args,
    NfsStat4, ReadLink4ResOk, Remove4Args, Remove4ResOk, Rename4Args, Rename4ResOk, SpecData4,
};
use types::{ChangeInfo, Device, FileKind, SymlinkTarget};

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
    let created = fs.files.make(fs.by(compound), dir, &name, spec).await.map_err(status::of_files)?;
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
    // A file that somebody has open keeps its data until the last close: the row stays, the reaper asks the states.
    let removed =
        fs.files.remove(fs.by(compound), Entry::any(dir, &name)).await.map_err(status::of_removal)?;
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
    let (from, to) = (Entry::any(source, &old), Entry::any(target, &new));
    let renamed = fs.files.rename(fs.by(compound), from, to, Replace::Any).await;
    let renamed = renamed.map_err(|error| match error {
        // RFC 8881 §18.26.3: an existing target that cannot be replaced is EXIST, whatever is wrong with it.
        FilesError::Namespace(NamespaceError::IsDirectory | NamespaceError::NotDirectory) => NfsStat4::Exist,
        error => status::of_removal(error),
    })?;
    Ok(Rename4ResOk { source_cinfo: change_info(renamed.source), target_cinfo: change_info(renamed.target) })
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
    let dir = fs.attributes(compound.file()?).await?;
    if dir.kind != FileKind::Directory {
        return Err(NfsStat4::NotDir);
    }
    let name = name(&args.newname)?;
    let linked = fs.files.link(fs.by(compound), file, &dir, &name).await.map_err(status::of_files)?;
    Ok(Link4ResOk { cinfo: change_info(linked.parent) })
}

pub(super) fn change_info(info: ChangeInfo) -> ChangeInfo4 {
    ChangeInfo4 { atomic: info.atomic, before: info.before, after: info.after }
}
