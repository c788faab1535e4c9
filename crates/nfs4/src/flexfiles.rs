//! The flexible file layout (RFC 8435): the bodies inside LAYOUTGET, GETDEVICEINFO, LAYOUTRETURN and LAYOUTSTATS.
//!
//! Bodies are exactly as long as the RFC says: `ffl_stats_collect_hint` is inside the length of `ff_layout4`, and
//! nothing follows `ff_device_addr4`. A body that has bytes left after its type is refused.

use xdr::{Opaque, Xdr, XdrError};

use crate::{
    DeviceAddr4, DeviceError4, DeviceId4, IoInfo4, LayoutContent4, LayoutType4, NFS4_OPAQUE_LIMIT, NetAddr4,
    NfsFh4, NfsTime4, REPORTS_MAX, StateId4,
};

/// The client need not send LAYOUTCOMMIT.
pub const FF_FLAGS_NO_LAYOUTCOMMIT: u32 = 0x1;
/// The client must not fall back to the MDS for I/O.
pub const FF_FLAGS_NO_IO_THRU_MDS: u32 = 0x2;
/// An RW layout must not be used for reading.
pub const FF_FLAGS_NO_READ_IO: u32 = 0x4;
/// The client writes to one mirror only; the servers copy.
pub const FF_FLAGS_WRITE_ONE_MIRROR: u32 = 0x8;

/// Bits of CB_RECALL_ANY for flex-files layouts (RFC 8435 §16).
pub const RCA4_TYPE_MASK_FF_LAYOUT_MIN: u32 = 16;
pub const RCA4_TYPE_MASK_FF_LAYOUT_MAX: u32 = 17;

/// As many mirrors as Linux takes (`NFS4_FLEXFILE_LAYOUT_MAX_MIRROR_CNT`).
pub const FF_MIRRORS_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfDeviceVersions4 {
    pub version: u32,
    pub minorversion: u32,
    pub rsize: u32,
    pub wsize: u32,
    pub tightly_coupled: bool,
}

/// Body of a device address. `netaddrs` are paths to one server (trunking), not alternatives.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfDeviceAddr4 {
    #[xdr(max = 256)]
    pub netaddrs: Vec<NetAddr4>,
    #[xdr(max = 64)]
    pub versions: Vec<FfDeviceVersions4>,
}

impl FfDeviceAddr4 {
    pub fn to_device_addr(&self) -> DeviceAddr4 {
        DeviceAddr4 { layout_type: LayoutType4::FLEX_FILES, addr_body: encode_body(self) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfDataServer4 {
    pub deviceid: DeviceId4,
    /// Readers prefer the mirror with the highest.
    pub efficiency: u32,
    /// Sent by the client with READ and WRITE to the data server, as it is.
    pub stateid: StateId4,
    /// One handle for each of the device's versions.
    #[xdr(max = 64)]
    pub fh_vers: Vec<NfsFh4>,
    /// Linux wants decimal numbers here and in `group`, and refuses the layout otherwise.
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub user: Opaque,
    #[xdr(max = NFS4_OPAQUE_LIMIT)]
    pub group: Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfMirror4 {
    #[xdr(max = FF_MIRRORS_MAX)]
    pub data_servers: Vec<FfDataServer4>,
}

/// Body of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfLayout4 {
    pub stripe_unit: u64,
    #[xdr(max = FF_MIRRORS_MAX)]
    pub mirrors: Vec<FfMirror4>,
    pub flags: u32,
    /// Seconds between LAYOUTSTATS of the file; 0 leaves it to the client.
    pub stats_collect_hint: u32,
}

impl FfLayout4 {
    pub fn to_content(&self) -> LayoutContent4 {
        LayoutContent4 { layout_type: LayoutType4::FLEX_FILES, body: encode_body(self) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfIoErr4 {
    pub offset: u64,
    pub length: u64,
    pub stateid: StateId4,
    #[xdr(max = REPORTS_MAX)]
    pub errors: Vec<DeviceError4>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Xdr)]
pub struct FfIoLatency4 {
    pub ops_requested: u64,
    pub bytes_requested: u64,
    pub ops_completed: u64,
    pub bytes_completed: u64,
    pub bytes_not_delivered: u64,
    pub total_busy_time: NfsTime4,
    pub aggregate_completion_time: NfsTime4,
}

/// Body of the layout update in LAYOUTSTATS, and part of a layout return.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfLayoutUpdate4 {
    pub addr: NetAddr4,
    pub fhandle: NfsFh4,
    pub read: FfIoLatency4,
    pub write: FfIoLatency4,
    pub duration: NfsTime4,
    pub local: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfIoStats4 {
    pub offset: u64,
    pub length: u64,
    pub stateid: StateId4,
    pub read: IoInfo4,
    pub write: IoInfo4,
    pub deviceid: DeviceId4,
    pub layoutupdate: FfLayoutUpdate4,
}

/// Body of a LAYOUTRETURN of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct FfLayoutReturn4 {
    #[xdr(max = REPORTS_MAX)]
    pub ioerr_report: Vec<FfIoErr4>,
    #[xdr(max = REPORTS_MAX)]
    pub iostats_report: Vec<FfIoStats4>,
}

impl FfLayoutReturn4 {
    /// Reads `lrf_body`. An empty one, which Linux sends when it has nothing to tell, is an empty report.
    pub fn from_body(body: &Opaque) -> Result<Self, XdrError> {
        if body.is_empty() { Ok(Self::default()) } else { decode_body(body) }
    }
}

/// `ff_layouthint4`: how many mirrors the client would like.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct FfLayoutHint4 {
    pub mirrors_hint: Option<u32>,
}

/// A value as the opaque body that carries it.
pub fn encode_body<T: Xdr>(value: &T) -> Opaque {
    Opaque(xdr::to_bytes(value))
}

/// The value that an opaque body carries; bytes left over are an error.
pub fn decode_body<T: Xdr>(body: &Opaque) -> Result<T, XdrError> {
    xdr::from_bytes(body.0.clone())
}
