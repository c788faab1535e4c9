//! File attributes: the untyped `fattr4` and the typed `FileAttributes`.
//!
//! `FileAttributes` knows the attributes that Forebay serves: the REQUIRED ones and the useful RECOMMENDED ones, one
//! `Option` each. Which of them an object has, which may be set and which the server announces are the door's to say;
//! the order and form of the values on the wire are decided here, in the one table below.

pub mod number;
#[cfg(test)]
mod tests;

use thiserror::Error;
use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use crate::{
    Bitmap4, FsId4, LayoutType4, MdsThreshold4, NFS4_OPAQUE_LIMIT, NfsAce4, NfsFh4, NfsFtype4, NfsStat4,
    NfsTime4, OpenArguments4, SetTime4, SpecData4,
};

/// A set of attributes: which, and their values back to back in ascending order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct Fattr4 {
    pub attrmask: Bitmap4,
    pub attr_vals: Opaque,
}

impl Fattr4 {
    /// Bytes on the wire.
    pub fn encoded_len(&self) -> usize {
        self.attrmask.encoded_len() + 4 + self.attr_vals.len().next_multiple_of(4)
    }
}

/// Why a `fattr4` from a peer is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AttrError {
    /// An attribute that this server does not know: ATTRNOTSUPP. The attributes behind it cannot be read either.
    #[error("attribute {0} is not supported")]
    NotSupported(u32),
    /// Values that do not match the mask, or bytes left over: BADXDR.
    #[error("decode attribute values")]
    BadXdr(#[source] XdrError),
}

impl AttrError {
    pub fn status(&self) -> NfsStat4 {
        match self {
            Self::NotSupported(_) => NfsStat4::AttrNotSupp,
            Self::BadXdr(_) => NfsStat4::BadXdr,
        }
    }
}

impl From<XdrError> for AttrError {
    fn from(error: XdrError) -> Self {
        Self::BadXdr(error)
    }
}

/// A user or a group as the protocol names it: "name@domain", or digits (RFC 8881 §5.9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Xdr)]
pub struct Principal4(#[xdr(max = NFS4_OPAQUE_LIMIT)] pub Opaque);

impl Principal4 {
    /// The numeric form, which Linux uses with AUTH_SYS.
    pub fn numeric(id: u32) -> Self {
        Self(Opaque(id.to_string().into()))
    }

    /// The id when it is written in digits: no sign, no leading zero but "0" itself.
    pub fn as_numeric(&self) -> Option<u32> {
        let digits = std::str::from_utf8(&self.0).ok()?;
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        if plain { digits.parse().ok() } else { None }
    }
}

/// Set some bits of the mode and leave others (mode_set_masked).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct ModeMasked4 {
    pub value_to_set: u32,
    pub mask_bits: u32,
}

/// A mode and the umask to apply unless the directory has inheritable ACEs (RFC 8275).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct ModeUmask4 {
    pub mode: u32,
    pub umask: u32,
}

/// How the change attribute changes (RFC 7862 §12.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[repr(u32)]
pub enum ChangeAttrType4 {
    MonotonicIncr = 0,
    VersionCounter = 1,
    VersionCounterNoPnfs = 2,
    TimeMetadata = 3,
    Undefined = 4,
}

macro_rules! attributes {
    ($($number:ident $field:ident: $type:ty,)+) => {
        /// The attributes that the server serves or accepts; `None` is "absent", or "leave as it is".
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct FileAttributes {
            $(pub $field: Option<$type>,)+
        }

        impl FileAttributes {
            /// The attributes that have a field.
            pub const KNOWN: Bitmap4 = Bitmap4::of(&[$(number::$number,)+]);

            /// Which attributes are present.
            pub fn mask(&self) -> Bitmap4 {
                let mut mask = Bitmap4::EMPTY;
                $(if self.$field.is_some() {
                    mask.insert(number::$number);
                })+
                mask
            }

            fn encode_value(&self, n: u32, e: &mut Encoder) {
                match n {
                    $(number::$number => {
                        if let Some(value) = &self.$field {
                            value.encode(e);
                        }
                    })+
                    _ => {}
                }
            }

            fn decode_value(&mut self, n: u32, d: &mut Decoder) -> Result<(), AttrError> {
                match n {
                    $(number::$number => self.$field = Some(<$type as Xdr>::decode(d)?),)+
                    _ => return Err(AttrError::NotSupported(n)),
                }
                Ok(())
            }
        }
    };
}

attributes! {
    SUPPORTED_ATTRS supported_attrs: Bitmap4,
    TYPE file_type: NfsFtype4,
    FH_EXPIRE_TYPE fh_expire_type: u32,
    CHANGE change: u64,
    SIZE size: u64,
    LINK_SUPPORT link_support: bool,
    SYMLINK_SUPPORT symlink_support: bool,
    NAMED_ATTR named_attr: bool,
    FSID fsid: FsId4,
    UNIQUE_HANDLES unique_handles: bool,
    LEASE_TIME lease_time: u32,
    RDATTR_ERROR rdattr_error: NfsStat4,
    ACL acl: Vec<NfsAce4>,
    ACLSUPPORT aclsupport: u32,
    CANSETTIME cansettime: bool,
    CASE_INSENSITIVE case_insensitive: bool,
    CASE_PRESERVING case_preserving: bool,
    CHOWN_RESTRICTED chown_restricted: bool,
    FILEHANDLE filehandle: NfsFh4,
    FILEID fileid: u64,
    FILES_AVAIL files_avail: u64,
    FILES_FREE files_free: u64,
    FILES_TOTAL files_total: u64,
    HOMOGENEOUS homogeneous: bool,
    MAXFILESIZE maxfilesize: u64,
    MAXLINK maxlink: u32,
    MAXNAME maxname: u32,
    MAXREAD maxread: u64,
    MAXWRITE maxwrite: u64,
    MODE mode: u32,
    NO_TRUNC no_trunc: bool,
    NUMLINKS numlinks: u32,
    OWNER owner: Principal4,
    OWNER_GROUP owner_group: Principal4,
    QUOTA_AVAIL_HARD quota_avail_hard: u64,
    QUOTA_AVAIL_SOFT quota_avail_soft: u64,
    QUOTA_USED quota_used: u64,
    RAWDEV rawdev: SpecData4,
    SPACE_AVAIL space_avail: u64,
    SPACE_FREE space_free: u64,
    SPACE_TOTAL space_total: u64,
    SPACE_USED space_used: u64,
    TIME_ACCESS time_access: NfsTime4,
    TIME_ACCESS_SET time_access_set: SetTime4,
    TIME_CREATE time_create: NfsTime4,
    TIME_DELTA time_delta: NfsTime4,
    TIME_METADATA time_metadata: NfsTime4,
    TIME_MODIFY time_modify: NfsTime4,
    TIME_MODIFY_SET time_modify_set: SetTime4,
    MOUNTED_ON_FILEID mounted_on_fileid: u64,
    FS_LAYOUT_TYPES fs_layout_types: Vec<LayoutType4>,
    LAYOUT_BLKSIZE layout_blksize: u32,
    LAYOUT_ALIGNMENT layout_alignment: u32,
    MDSTHRESHOLD mdsthreshold: MdsThreshold4,
    MODE_SET_MASKED mode_set_masked: ModeMasked4,
    SUPPATTR_EXCLCREAT suppattr_exclcreat: Bitmap4,
    CLONE_BLKSIZE clone_blksize: u32,
    CHANGE_ATTR_TYPE change_attr_type: ChangeAttrType4,
    MODE_UMASK mode_umask: ModeUmask4,
    XATTR_SUPPORT xattr_support: bool,
    TIME_DELEG_ACCESS time_deleg_access: NfsTime4,
    TIME_DELEG_MODIFY time_deleg_modify: NfsTime4,
    OPEN_ARGUMENTS open_arguments: Box<OpenArguments4>,
}

impl FileAttributes {
    /// Known attributes that can only be set: GETATTR of them is INVAL (RFC 8881 §5.5, RFC 8275 §4). The delegated times
    /// are read only by CB_GETATTR (RFC 9754 §5).
    pub const WRITE_ONLY: Bitmap4 = Bitmap4::of(&[
        number::TIME_ACCESS_SET,
        number::TIME_MODIFY_SET,
        number::MODE_SET_MASKED,
        number::MODE_UMASK,
        number::TIME_DELEG_ACCESS,
        number::TIME_DELEG_MODIFY,
    ]);

    /// Known attributes that the protocol lets be set; SETATTR of any other is INVAL.
    pub const WRITABLE: Bitmap4 = Bitmap4::of(&[
        number::SIZE,
        number::ACL,
        number::MODE,
        number::OWNER,
        number::OWNER_GROUP,
        number::TIME_ACCESS_SET,
        number::TIME_CREATE,
        number::TIME_MODIFY_SET,
        number::MODE_SET_MASKED,
        number::MODE_UMASK,
        number::TIME_DELEG_ACCESS,
        number::TIME_DELEG_MODIFY,
    ]);

    /// The attributes that are requested and present.
    pub fn encode(&self, requested: &Bitmap4) -> Fattr4 {
        let attrmask = requested.intersect(&self.mask());
        let mut e = Encoder::new();
        attrmask.iter().for_each(|n| self.encode_value(n, &mut e));
        Fattr4 { attrmask, attr_vals: Opaque(e.into_bytes()) }
    }

    /// All attributes that are present.
    pub fn encode_all(&self) -> Fattr4 {
        self.encode(&Self::KNOWN)
    }

    /// Reads every attribute of the mask, in the order of their numbers, and nothing more.
    pub fn decode(fattr: &Fattr4) -> Result<Self, AttrError> {
        if let Some(unknown) = fattr.attrmask.difference(&Self::KNOWN).iter().next() {
            return Err(AttrError::NotSupported(unknown));
        }
        let mut d = Decoder::new(fattr.attr_vals.0.clone());
        let mut attributes = Self::default();
        for n in fattr.attrmask.iter() {
            attributes.decode_value(n, &mut d)?;
        }
        d.finish()?;
        Ok(attributes)
    }
}
