//! GETATTR, VERIFY, NVERIFY and ACCESS: a file's attributes in the protocol's form.

use nfs4::attr::{ChangeAttrType4, number};
use nfs4::{
    ACCESS4_DELETE, ACCESS4_EXECUTE, ACCESS4_EXTEND, ACCESS4_LOOKUP, ACCESS4_MODIFY, ACCESS4_READ,
    ACCESS4_XALIST, ACCESS4_XAREAD, ACCESS4_XAWRITE, ACL4_SUPPORT_ALLOW_ACL, ACL4_SUPPORT_DENY_ACL,
    Access4Args, Access4ResOk, Bitmap4, FH4_PERSISTENT, Fattr4, FileAttributes, GetAttr4Args, GetAttr4ResOk,
    LayoutType4, NfsFtype4, NfsStat4, NfsTime4, SpecData4,
};
use types::{Access, Attributes, FileKind, Name, Timestamp, permission};

use super::file_system::{FileSystem, WAIT};
use super::totals::{self, TOTALS};
use super::{acl, owners, threshold};
use crate::context::Compound;
use crate::exports::ViewPlace;
use crate::limits::IO_BYTES_MAX;
use crate::owners::{Named, OwnerKind};
use crate::status;

/// Set by SETATTR, OPEN and CREATE; the two `_SET` times cannot be read.
pub(super) const SETTABLE: Bitmap4 = Bitmap4::of(&[
    number::SIZE,
    number::ACL,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::TIME_ACCESS_SET,
    number::TIME_MODIFY_SET,
    number::MODE_SET_MASKED,
]);

/// Set by SETATTR alone, by the stateid of a delegation, and from 4.2 on (RFC 9754 §5).
pub(super) const DELEGATED_TIMES: Bitmap4 =
    Bitmap4::of(&[number::TIME_DELEG_ACCESS, number::TIME_DELEG_MODIFY]);
pub(super) const SETTABLE_BY_SETATTR: Bitmap4 =
    SETTABLE.with(number::TIME_DELEG_ACCESS).with(number::TIME_DELEG_MODIFY);

/// Set at creation only (RFC 8275 §3).
pub(super) const SETTABLE_AT_CREATION: Bitmap4 = SETTABLE.with(number::MODE_UMASK);

const READABLE: Bitmap4 = Bitmap4::of(&[
    number::SUPPORTED_ATTRS,
    number::TYPE,
    number::FH_EXPIRE_TYPE,
    number::CHANGE,
    number::SIZE,
    number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT,
    number::NAMED_ATTR,
    number::FSID,
    number::UNIQUE_HANDLES,
    number::LEASE_TIME,
    number::RDATTR_ERROR,
    number::ACL,
    number::ACLSUPPORT,
    number::CANSETTIME,
    number::CASE_INSENSITIVE,
    number::CASE_PRESERVING,
    number::CHOWN_RESTRICTED,
    number::FILEHANDLE,
    number::FILEID,
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::HOMOGENEOUS,
    number::MAXFILESIZE,
    number::MAXLINK,
    number::MAXNAME,
    number::MAXREAD,
    number::MAXWRITE,
    number::MODE,
    number::NO_TRUNC,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::QUOTA_AVAIL_HARD,
    number::QUOTA_AVAIL_SOFT,
    number::QUOTA_USED,
    number::RAWDEV,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_CREATE,
    number::TIME_DELTA,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::MOUNTED_ON_FILEID,
    number::FS_LAYOUT_TYPES,
    number::LAYOUT_BLKSIZE,
    number::MDSTHRESHOLD,
    number::SUPPATTR_EXCLCREAT,
]);

/// Known from 4.2 on.
const READABLE_4_2: Bitmap4 = Bitmap4::of(&[
    number::CLONE_BLKSIZE,
    number::CHANGE_ATTR_TYPE,
    number::XATTR_SUPPORT,
    number::OPEN_ARGUMENTS,
]);

/// Attributes that a client changes by writing, even before it sends the writes.
pub(super) const WRITTEN: Bitmap4 = Bitmap4::of(&[
    number::CHANGE,
    number::SIZE,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
]);

const WRITE_ONLY: Bitmap4 = FileAttributes::WRITE_ONLY;

/// Linux caps a file at 2⁶³ − 1, and so do the pools' file systems.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
const LINKS_MAX: u32 = 65_000;

pub(super) fn supported(minorversion: u32) -> Bitmap4 {
    let all = READABLE.union(&SETTABLE);
    if minorversion >= 2 {
        all.union(&READABLE_4_2).union(&DELEGATED_TIMES).with(number::MODE_UMASK)
    } else {
        all
    }
}

pub(super) async fn get(
    compound: &mut Compound,
    fs: &FileSystem,
    args: &GetAttr4Args,
) -> Result<GetAttr4ResOk, NfsStat4> {
    // Some can be set and not read (RFC 8881 §5.5).
    if !args.attr_request.intersect(&WRITE_ONLY).is_empty() {
        return Err(NfsStat4::Inval);
    }
    compound.knows_threshold |= args.attr_request.contains(number::MDSTHRESHOLD);
    let attributes = seen(compound, fs, &args.attr_request).await?;
    let naming = (&args.attr_request, owners::deadline(fs));
    let owners = owners::named(compound, fs, &[attributes], naming).await;
    let told = Told::new(compound, compound.current.place, &owners);
    let mut found = of_file(fs, &told, &attributes, &args.attr_request);
    acl::add(&mut found, compound, fs, &attributes, naming).await?;
    if !args.attr_request.intersect(&TOTALS).is_empty() {
        let (who, file) = (&compound.identity, attributes.file);
        totals::add(&mut found, fs, who, file, &args.attr_request).await?;
    }
    Ok(GetAttr4ResOk { obj_attributes: found.encode(&args.attr_request) })
}

/// Asks clients and pools only for attributes that they may have changed.
async fn seen(compound: &Compound, fs: &FileSystem, asked: &Bitmap4) -> Result<Attributes, NfsStat4> {
    let file = compound.file()?;
    let attributes = if asked.intersect(&WRITTEN).is_empty() {
        fs.attributes(file).await?
    } else {
        let (found, by) = (fs.attributes(file).await?, fs.caller(compound));
        fs.files.seen_by(found, by, WAIT).await.map_err(status::of_files)?
    };
    Ok(compound.shown(attributes))
}

/// The receiver of attributes.
pub(super) struct Told<'a> {
    pub minorversion: u32,
    /// Of a pseudo directory, which lies in a file system of its own (RFC 8881 §7.3).
    pub is_pseudo: bool,
    pub owners: &'a Named,
}

impl<'a> Told<'a> {
    /// Of a file that lies at `place`.
    pub fn new(compound: &Compound, place: ViewPlace, owners: &'a Named) -> Told<'a> {
        Told { minorversion: compound.minorversion, is_pseudo: place == ViewPlace::Pseudo, owners }
    }
}

/// The attributes of one file, as far as they are asked for. Totals are added by `get` only.
pub(super) fn of_file(
    fs: &FileSystem,
    told: &Told<'_>,
    file: &Attributes,
    wanted: &Bitmap4,
) -> FileAttributes {
    let mut out = FileAttributes {
        file_type: Some(file_type(file.kind)),
        change: Some(file.change),
        size: Some(file.size),
        fsid: Some(if told.is_pseudo { fs.pseudo_fsid() } else { fs.fsid }),
        fileid: Some(file.file.0),
        mounted_on_fileid: Some(file.file.0),
        mode: Some(file.mode),
        numlinks: Some(file.nlink),
        rawdev: Some(device_numbers(file.kind)),
        space_used: Some(file.space_used),
        time_access: Some(time(file.atime)),
        time_create: Some(time(file.birth)),
        time_metadata: Some(time(file.ctime)),
        time_modify: Some(time(file.mtime)),
        rdattr_error: Some(NfsStat4::Ok),
        ..FileAttributes::default()
    };
    if wanted.contains(number::OWNER) {
        out.owner = Some(told.owners.principal(OwnerKind::User, file.uid));
    }
    if wanted.contains(number::OWNER_GROUP) {
        out.owner_group = Some(told.owners.principal(OwnerKind::Group, file.gid));
    }
    if wanted.contains(number::FILEHANDLE) {
        out.filehandle = Some(fs.handle(file.file));
    }
    if wanted.contains(number::MDSTHRESHOLD) {
        out.mdsthreshold = Some(threshold::hints(fs.offers, file));
    }
    if told.minorversion >= 2 && wanted.contains(number::OPEN_ARGUMENTS) {
        out.open_arguments = Some(Box::new(fs.offers.open_arguments()));
    }
    if wanted.contains(number::CLONE_BLKSIZE) {
        out.clone_blksize = Some(fs.files.pools().clone_granularity_max());
    }
    add_file_system(&mut out, fs, told.minorversion);
    out
}

/// Adds the attributes that are the same for every file.
fn add_file_system(out: &mut FileAttributes, fs: &FileSystem, minorversion: u32) {
    out.supported_attrs = Some(supported(minorversion));
    out.fh_expire_type = Some(FH4_PERSISTENT);
    out.link_support = Some(true);
    out.symlink_support = Some(true);
    out.named_attr = Some(false);
    out.unique_handles = Some(true);
    out.lease_time = Some(u32::try_from(fs.lease.as_secs()).unwrap_or(u32::MAX));
    out.aclsupport = Some(ACL4_SUPPORT_ALLOW_ACL | ACL4_SUPPORT_DENY_ACL);
    out.cansettime = Some(true);
    out.case_insensitive = Some(false);
    out.case_preserving = Some(true);
    out.chown_restricted = Some(true);
    out.homogeneous = Some(true);
    out.maxfilesize = Some(FILE_BYTES_MAX);
    out.maxlink = Some(LINKS_MAX);
    out.maxname = Some(Name::BYTES_MAX as u32);
    out.maxread = Some(IO_BYTES_MAX.into());
    out.maxwrite = Some(IO_BYTES_MAX.into());
    out.no_trunc = Some(true);
    out.time_delta = Some(NfsTime4 { seconds: 0, nseconds: 1 });
    out.fs_layout_types = Some(vec![LayoutType4::FLEX_FILES]);
    out.layout_blksize = Some(IO_BYTES_MAX);
    out.suppattr_exclcreat = Some(if minorversion >= 2 { SETTABLE_AT_CREATION } else { SETTABLE });
    if minorversion >= 2 {
        // The change attribute is a counter that only grows; with pNFS, data at the pools moves it when committed.
        out.change_attr_type = Some(ChangeAttrType4::MonotonicIncr);
        out.xattr_support = Some(true);
    }
}

/// SAME or NOT_SAME: whether the file has exactly these attribute values (RFC 8881 §18.30.3).
async fn compare(compound: &Compound, fs: &FileSystem, given: &Fattr4) -> Result<bool, NfsStat4> {
    let mask = &given.attrmask;
    if !mask.difference(&supported(compound.minorversion)).is_empty() {
        return Err(NfsStat4::AttrNotSupp);
    }
    if !mask.intersect(&WRITE_ONLY).is_empty() || mask.contains(number::RDATTR_ERROR) {
        return Err(NfsStat4::Inval);
    }
    let asked = FileAttributes::decode(given).map_err(|error| error.status())?;
    let attributes = seen(compound, fs, mask).await?;
    let owners = Named::default();
    let mut found = of_file(fs, &Told::new(compound, compound.current.place, &owners), &attributes, mask);
    owners::as_given(fs, &attributes, (asked.owner, asked.owner_group), &mut found).await?;
    acl::as_given(&mut found, compound, fs, &attributes, asked.acl).await?;
    if !mask.intersect(&TOTALS).is_empty() {
        totals::add(&mut found, fs, &compound.identity, attributes.file, mask).await?;
    }
    Ok(found.encode(mask).attr_vals == given.attr_vals)
}

pub(super) async fn verify(compound: &Compound, fs: &FileSystem, given: &Fattr4) -> NfsStat4 {
    match Box::pin(compare(compound, fs, given)).await {
        Ok(true) => NfsStat4::Ok,
        Ok(false) => NfsStat4::NotSame,
        Err(status) => status,
    }
}

pub(super) async fn nverify(compound: &Compound, fs: &FileSystem, given: &Fattr4) -> NfsStat4 {
    match Box::pin(compare(compound, fs, given)).await {
        Ok(true) => NfsStat4::Same,
        Ok(false) => NfsStat4::Ok,
        Err(status) => status,
    }
}

pub(super) async fn access(
    compound: &Compound,
    fs: &FileSystem,
    args: &Access4Args,
) -> Result<Access4ResOk, NfsStat4> {
    const MEANINGFUL: u32 = ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND;
    let attributes = compound.shown(fs.attributes(compound.file()?).await?);
    let acl = fs.acl(&attributes).await?;
    let granted = permission::granted(&compound.identity, &attributes, acl.as_ref());
    let mut access = 0;
    if granted.contains(Access::READ) {
        access |= ACCESS4_READ;
    }
    let of_kind = if attributes.kind == FileKind::Directory {
        if granted.contains(Access::ADD_FILE) {
            access |= ACCESS4_MODIFY;
        }
        if granted.intersects(Access::ADD_FILE | Access::ADD_SUBDIRECTORY) {
            access |= ACCESS4_EXTEND;
        }
        if permission::may_remove_entries(&compound.identity, &attributes, acl.as_ref()) {
            access |= ACCESS4_DELETE;
        }
        if granted.contains(Access::EXECUTE) {
            access |= ACCESS4_LOOKUP;
        }
        MEANINGFUL | ACCESS4_LOOKUP | ACCESS4_DELETE
    } else {
        // Pools do not tell writing behind the end from writing before it.
        if granted.contains(Access::WRITE) {
            access |= ACCESS4_MODIFY | ACCESS4_EXTEND;
        }
        if granted.contains(Access::EXECUTE) {
            access |= ACCESS4_EXECUTE;
        }
        MEANINGFUL | ACCESS4_EXECUTE
    };
    let (of_xattrs, to_xattrs) = xattr_access(compound, &attributes, granted);
    access |= to_xattrs;
    if compound.is_read_only() {
        access &= !(ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE | ACCESS4_XAWRITE);
    }
    let supported = args.access & (of_kind | of_xattrs);
    Ok(Access4ResOk { supported, access: access & supported })
}

/// Which of ACCESS' bits for extended attributes mean something, and which are granted (RFC 8276 §8.5). Linux asks for
/// them with all others and then goes by them alone.
fn xattr_access(compound: &Compound, file: &Attributes, granted: Access) -> (u32, u32) {
    let has_any = matches!(file.kind, FileKind::Regular | FileKind::Directory);
    if compound.minorversion < 2 || !has_any {
        return (0, 0);
    }
    let mut access = 0;
    if granted.contains(Access::READ) {
        access |= ACCESS4_XAREAD | ACCESS4_XALIST;
    }
    let is_shared = file.kind == FileKind::Directory;
    let is_forbidden = is_shared && permission::sticky_forbids(&compound.identity, file, file);
    if granted.contains(Access::WRITE) && !is_forbidden {
        access |= ACCESS4_XAWRITE;
    }
    (ACCESS4_XAREAD | ACCESS4_XAWRITE | ACCESS4_XALIST, access)
}

pub(super) fn file_type(kind: FileKind) -> NfsFtype4 {
    match kind {
        FileKind::Regular => NfsFtype4::Reg,
        FileKind::Directory => NfsFtype4::Dir,
        FileKind::Symlink => NfsFtype4::Lnk,
        FileKind::BlockDevice(_) => NfsFtype4::Blk,
        FileKind::CharacterDevice(_) => NfsFtype4::Chr,
        FileKind::Fifo => NfsFtype4::Fifo,
        FileKind::Socket => NfsFtype4::Sock,
    }
}

fn device_numbers(kind: FileKind) -> SpecData4 {
    match kind {
        FileKind::BlockDevice(device) | FileKind::CharacterDevice(device) => {
            SpecData4 { specdata1: device.major, specdata2: device.minor }
        }
        _ => SpecData4::default(),
    }
}

pub(super) fn time(at: Timestamp) -> NfsTime4 {
    NfsTime4 { seconds: at.seconds, nseconds: at.nanoseconds() }
}
