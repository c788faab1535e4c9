//! pNFS: GETDEVICEINFO, LAYOUTGET, LAYOUTCOMMIT, LAYOUTRETURN (RFC 8881 §18.40–18.44).
//!
//! Bodies are opaque here; those of flex files are in `flexfiles`.

use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::result::{OpResult, bare_error};
use crate::{Bitmap4, DeviceId4, NfsStat4, NfsTime4, StateId4, Verifier4};

/// Longest body of a layout, a device address, a layout update or a layout return.
pub const LAYOUT_BODY_BYTES_MAX: usize = 64 * 1024;

/// A layout type; numbers that are not known are carried, and answered UNKNOWN_LAYOUTTYPE by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Xdr)]
pub struct LayoutType4(pub u32);

impl LayoutType4 {
    pub const NFSV4_1_FILES: Self = Self(1);
    pub const OSD2_OBJECTS: Self = Self(2);
    pub const BLOCK_VOLUME: Self = Self(3);
    pub const FLEX_FILES: Self = Self(4);
    pub const SCSI: Self = Self(5);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Xdr)]
#[repr(u32)]
pub enum LayoutIomode4 {
    Read = 1,
    Rw = 2,
    /// In LAYOUTRETURN and CB_LAYOUTRECALL only.
    Any = 3,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutContent4 {
    pub layout_type: LayoutType4,
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub body: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Layout4 {
    pub offset: u64,
    pub length: u64,
    pub iomode: LayoutIomode4,
    pub content: LayoutContent4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutGet4Args {
    pub signal_layout_avail: bool,
    pub layout_type: LayoutType4,
    pub iomode: LayoutIomode4,
    pub offset: u64,
    pub length: u64,
    pub minlength: u64,
    pub stateid: StateId4,
    /// Bytes of the whole `LAYOUTGET4resok`.
    pub maxcount: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutGet4ResOk {
    pub return_on_close: bool,
    pub stateid: StateId4,
    #[xdr(max = 1024)]
    pub layout: Vec<Layout4>,
}

/// Result of LAYOUTGET; `Err` never holds Ok or LayoutTryLater.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutGet4Res {
    Ok(LayoutGet4ResOk),
    TryLater { will_signal_layout_avail: bool },
    Err(NfsStat4),
}

impl OpResult for LayoutGet4Res {
    fn status(&self) -> NfsStat4 {
        match self {
            Self::Ok(_) => NfsStat4::Ok,
            Self::TryLater { .. } => NfsStat4::LayoutTryLater,
            Self::Err(status) => *status,
        }
    }

    fn error(status: NfsStat4) -> Self {
        match status {
            NfsStat4::LayoutTryLater => Self::TryLater { will_signal_layout_avail: false },
            status => Self::Err(bare_error(status)),
        }
    }
}

impl Xdr for LayoutGet4Res {
    fn encode(&self, e: &mut Encoder) {
        self.status().encode(e);
        match self {
            Self::Ok(body) => body.encode(e),
            Self::TryLater { will_signal_layout_avail } => will_signal_layout_avail.encode(e),
            Self::Err(status) => {
                assert!(
                    !matches!(status, NfsStat4::Ok | NfsStat4::LayoutTryLater),
                    "{status} announces a body"
                );
            }
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok(match NfsStat4::decode(d)? {
            NfsStat4::Ok => Self::Ok(LayoutGet4ResOk::decode(d)?),
            NfsStat4::LayoutTryLater => Self::TryLater { will_signal_layout_avail: bool::decode(d)? },
            status => Self::Err(status),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetDeviceInfo4Args {
    pub device_id: DeviceId4,
    pub layout_type: LayoutType4,
    /// Bytes of the whole `GETDEVICEINFO4resok`; 0 asks for the notifications only.
    pub maxcount: u32,
    pub notify_types: Bitmap4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct DeviceAddr4 {
    pub layout_type: LayoutType4,
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub addr_body: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetDeviceInfo4ResOk {
    pub device_addr: DeviceAddr4,
    pub notification: Bitmap4,
}

/// Result of GETDEVICEINFO; `Err` never holds Ok or TooSmall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetDeviceInfo4Res {
    Ok(GetDeviceInfo4ResOk),
    TooSmall { mincount: u32 },
    Err(NfsStat4),
}

impl OpResult for GetDeviceInfo4Res {
    fn status(&self) -> NfsStat4 {
        match self {
            Self::Ok(_) => NfsStat4::Ok,
            Self::TooSmall { .. } => NfsStat4::TooSmall,
            Self::Err(status) => *status,
        }
    }

    fn error(status: NfsStat4) -> Self {
        match status {
            NfsStat4::TooSmall => Self::TooSmall { mincount: 0 },
            status => Self::Err(bare_error(status)),
        }
    }
}

impl Xdr for GetDeviceInfo4Res {
    fn encode(&self, e: &mut Encoder) {
        self.status().encode(e);
        match self {
            Self::Ok(body) => body.encode(e),
            Self::TooSmall { mincount } => mincount.encode(e),
            Self::Err(status) => {
                assert!(!matches!(status, NfsStat4::Ok | NfsStat4::TooSmall), "{status} announces a body");
            }
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok(match NfsStat4::decode(d)? {
            NfsStat4::Ok => Self::Ok(GetDeviceInfo4ResOk::decode(d)?),
            NfsStat4::TooSmall => Self::TooSmall { mincount: u32::decode(d)? },
            status => Self::Err(status),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetDeviceList4Args {
    pub layout_type: LayoutType4,
    pub maxdevices: u32,
    pub cookie: u64,
    pub cookieverf: Verifier4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct GetDeviceList4ResOk {
    pub cookie: u64,
    pub cookieverf: Verifier4,
    pub deviceid_list: Vec<DeviceId4>,
    pub eof: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutUpdate4 {
    pub layout_type: LayoutType4,
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub body: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutCommit4Args {
    pub offset: u64,
    pub length: u64,
    pub reclaim: bool,
    pub stateid: StateId4,
    /// `newoffset4`: offset of the last byte written, when the client knows it.
    pub last_write_offset: Option<u64>,
    /// `newtime4`.
    pub time_modify: Option<NfsTime4>,
    pub layoutupdate: LayoutUpdate4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutCommit4ResOk {
    /// `newsize4`: the file's size, when LAYOUTCOMMIT has changed it.
    pub newsize: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutReturnFile4 {
    pub offset: u64,
    pub length: u64,
    pub stateid: StateId4,
    #[xdr(max = LAYOUT_BODY_BYTES_MAX)]
    pub body: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub enum LayoutReturn4 {
    #[xdr(1)]
    File(LayoutReturnFile4),
    #[xdr(2)]
    FsId,
    #[xdr(3)]
    All,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutReturn4Args {
    pub reclaim: bool,
    pub layout_type: LayoutType4,
    pub iomode: LayoutIomode4,
    pub layoutreturn: LayoutReturn4,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct LayoutReturn4ResOk {
    /// `layoutreturn_stateid`: present while the client still holds layouts of the file.
    pub stateid: Option<StateId4>,
}

/// Bits of `notify_deviceid_type4` in GETDEVICEINFO (RFC 8881 §20.12).
pub const NOTIFY_DEVICEID4_CHANGE: u32 = 1;
pub const NOTIFY_DEVICEID4_DELETE: u32 = 2;

/// Hints of the mdsthreshold attribute (RFC 8881 §5.12.4): bits of `hintset`.
pub const TH4_READ_SIZE: u32 = 0;
pub const TH4_WRITE_SIZE: u32 = 1;
pub const TH4_READ_IOSIZE: u32 = 2;
pub const TH4_WRITE_IOSIZE: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ThresholdItem4 {
    pub layout_type: LayoutType4,
    pub hintset: Bitmap4,
    /// The `length4` of every hint in `hintset`, in its order.
    #[xdr(max = 1024)]
    pub hintlist: Opaque,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct MdsThreshold4 {
    #[xdr(max = 16)]
    pub hints: Vec<ThresholdItem4>,
}
