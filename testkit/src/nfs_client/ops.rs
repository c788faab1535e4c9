//! Operations as tests write them: short constructors with the fields that matter.

use nfs4::attr::number;
use nfs4::{
    Access4Args, Bitmap4, Close4Args, Commit4Args, Component4, Create4Args, CreateHow4, CreateType4,
    FileAttributes, GetAttr4Args, GetDeviceInfo4Args, LayoutCommit4Args, LayoutGet4Args, LayoutIomode4,
    LayoutReturn4, LayoutReturn4Args, LayoutReturnFile4, LayoutType4, LayoutUpdate4, Link4Args, Lookup4Args,
    NOTIFY_DEVICEID4_CHANGE, NOTIFY_DEVICEID4_DELETE, NfsArgop4, NfsFh4, OPEN4_SHARE_DENY_NONE, Open4Args,
    OpenClaim4, OpenFlag4, PutFh4Args, Read4Args, ReadDir4Args, Remove4Args, Rename4Args, SetAttr4Args,
    StableHow4, StateId4, StateOwner4, Verifier4, Write4Args,
};
use nfs4::{ClientId4, DeviceId4, FfLayoutReturn4, Verify4Args};
use xdr::Opaque;

/// Bytes that the Linux client allots for a layout (`PNFS_LAYOUT_MAXSIZE`).
pub const LAYOUT_BYTES_MAX: u32 = 4096;

pub fn put_fh(handle: &NfsFh4) -> NfsArgop4 {
    NfsArgop4::PutFh(PutFh4Args { object: handle.clone() })
}

pub fn lookup(name: &str) -> NfsArgop4 {
    NfsArgop4::Lookup(Lookup4Args { objname: Component4::from(name) })
}

pub fn access(bits: u32) -> NfsArgop4 {
    NfsArgop4::Access(Access4Args { access: bits })
}

pub fn get_attr(numbers: &[u32]) -> NfsArgop4 {
    NfsArgop4::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(numbers) })
}

pub fn set_attr(stateid: StateId4, attributes: &FileAttributes) -> NfsArgop4 {
    NfsArgop4::SetAttr(SetAttr4Args { stateid, obj_attributes: attributes.encode_all() })
}

pub fn verify(attributes: &FileAttributes) -> NfsArgop4 {
    NfsArgop4::Verify(Verify4Args { obj_attributes: attributes.encode_all() })
}

pub fn create(objtype: CreateType4, name: &str, mode: u32) -> NfsArgop4 {
    let attributes = FileAttributes { mode: Some(mode), ..FileAttributes::default() };
    NfsArgop4::Create(Create4Args {
        objtype,
        objname: Component4::from(name),
        createattrs: attributes.encode_all(),
    })
}

pub fn remove(name: &str) -> NfsArgop4 {
    NfsArgop4::Remove(Remove4Args { target: Component4::from(name) })
}

pub fn rename(old: &str, new: &str) -> NfsArgop4 {
    NfsArgop4::Rename(Rename4Args { oldname: Component4::from(old), newname: Component4::from(new) })
}

pub fn link(name: &str) -> NfsArgop4 {
    NfsArgop4::Link(Link4Args { newname: Component4::from(name) })
}

pub fn read_dir(cookie: u64, maxcount: u32, numbers: &[u32]) -> NfsArgop4 {
    NfsArgop4::ReadDir(ReadDir4Args {
        cookie,
        cookieverf: Verifier4::default(),
        dircount: maxcount,
        maxcount,
        attr_request: Bitmap4::of(numbers),
    })
}

pub fn owner(name: &str) -> StateOwner4 {
    StateOwner4 { clientid: ClientId4(0), owner: Opaque::from(name) }
}

/// OPEN of a name in the current directory.
pub fn open(owner_name: &str, share_access: u32, openhow: OpenFlag4, name: &str) -> NfsArgop4 {
    open_claiming(owner_name, share_access, openhow, OpenClaim4::Null(Component4::from(name)))
}

pub fn open_claiming(
    owner_name: &str,
    share_access: u32,
    openhow: OpenFlag4,
    claim: OpenClaim4,
) -> NfsArgop4 {
    NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: owner(owner_name),
        openhow,
        claim,
    })
}

/// CREATE UNCHECKED with a mode.
pub fn unchecked(mode: u32) -> OpenFlag4 {
    let attributes = FileAttributes { mode: Some(mode), ..FileAttributes::default() };
    OpenFlag4::Create(CreateHow4::Unchecked(attributes.encode_all()))
}

pub fn guarded(mode: u32) -> OpenFlag4 {
    let attributes = FileAttributes { mode: Some(mode), ..FileAttributes::default() };
    OpenFlag4::Create(CreateHow4::Guarded(attributes.encode_all()))
}

pub fn close(stateid: StateId4) -> NfsArgop4 {
    NfsArgop4::Close(Close4Args { seqid: 0, open_stateid: stateid })
}

pub fn read(stateid: StateId4, offset: u64, count: u32) -> NfsArgop4 {
    NfsArgop4::Read(Read4Args { stateid, offset, count })
}

pub fn write(stateid: StateId4, offset: u64, stable: StableHow4, data: &[u8]) -> NfsArgop4 {
    NfsArgop4::Write(Write4Args { stateid, offset, stable, data: Opaque::copy_from_slice(data) })
}

pub fn commit() -> NfsArgop4 {
    NfsArgop4::Commit(Commit4Args { offset: 0, count: 0 })
}

/// LAYOUTGET of the whole file, as Linux asks.
pub fn layout_get(stateid: StateId4, iomode: LayoutIomode4) -> NfsArgop4 {
    NfsArgop4::LayoutGet(LayoutGet4Args {
        signal_layout_avail: false,
        layout_type: LayoutType4::FLEX_FILES,
        iomode,
        offset: 0,
        length: u64::MAX,
        minlength: 4096,
        stateid,
        maxcount: LAYOUT_BYTES_MAX,
    })
}

pub fn layout_return(stateid: StateId4, report: &FfLayoutReturn4) -> NfsArgop4 {
    NfsArgop4::LayoutReturn(LayoutReturn4Args {
        reclaim: false,
        layout_type: LayoutType4::FLEX_FILES,
        iomode: LayoutIomode4::Any,
        layoutreturn: LayoutReturn4::File(LayoutReturnFile4 {
            offset: 0,
            length: u64::MAX,
            stateid,
            body: Opaque(xdr::to_bytes(report)),
        }),
    })
}

/// LAYOUTRETURN of a file system, or of all.
pub fn layout_return_many(layoutreturn: LayoutReturn4) -> NfsArgop4 {
    NfsArgop4::LayoutReturn(LayoutReturn4Args {
        reclaim: false,
        layout_type: LayoutType4::FLEX_FILES,
        iomode: LayoutIomode4::Any,
        layoutreturn,
    })
}

/// LAYOUTCOMMIT as Linux sends it: from the beginning, no time, nothing in the update.
pub fn layout_commit(stateid: StateId4, last_write_offset: Option<u64>) -> NfsArgop4 {
    NfsArgop4::LayoutCommit(LayoutCommit4Args {
        offset: 0,
        length: last_write_offset.map_or(u64::MAX, |last| last + 1),
        reclaim: false,
        stateid,
        last_write_offset,
        time_modify: None,
        layoutupdate: LayoutUpdate4 { layout_type: LayoutType4::FLEX_FILES, body: Opaque::new() },
    })
}

pub fn get_device_info(device_id: DeviceId4, maxcount: u32) -> NfsArgop4 {
    NfsArgop4::GetDeviceInfo(GetDeviceInfo4Args {
        device_id,
        layout_type: LayoutType4::FLEX_FILES,
        maxcount,
        notify_types: Bitmap4::of(&[NOTIFY_DEVICEID4_CHANGE, NOTIFY_DEVICEID4_DELETE]),
    })
}

/// Attributes that a client requests after most operations.
pub const COMMON: &[u32] = &[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
];
