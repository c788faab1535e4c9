//! The messages of data faces.

use types::{Checksum, ChecksumKind, IoMode};
use xdr::{Opaque, Xdr, XdrError};

use super::{ArrivedBytes, HeldVersion, StoredVersion, ToldDenial};
use crate::wire::Time;

/// Kinds of checksums in one message: each once.
const KINDS_MAX: usize = 16;
const CHECKSUM_BYTES_MAX: usize = 64;
/// Notes in one message. The pool sends the next message for more.
pub(super) const NOTES_MAX: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub(super) struct HoldCall {
    pub hold: u64,
    pub file: u64,
    pub change: u64,
}

#[derive(Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub(super) enum HoldAnswer {
    #[xdr(0)]
    Held(Version),
    #[xdr(1)]
    Changed,
    #[xdr(2)]
    Denied(ToldDenial),
}

/// Birth, size, time of the last write, mode of I/O.
#[derive(Debug, PartialEq, Eq, Xdr)]
pub(super) struct Version {
    birth: Time,
    size: u64,
    mtime: Time,
    io: u32,
}

impl Version {
    pub fn of(held: &HeldVersion) -> Version {
        let HeldVersion { birth, size, mtime, io } = *held;
        Version { birth: Time(birth), size, mtime: Time(mtime), io: io.number().into() }
    }

    /// `None`: a mode of I/O that is not known here.
    pub fn into_held(self) -> Option<HeldVersion> {
        let io = IoMode::ALL.into_iter().find(|mode| u32::from(mode.number()) == self.io)?;
        Some(HeldVersion { birth: self.birth.0, size: self.size, mtime: self.mtime.0, io })
    }
}

#[derive(Debug, Xdr)]
pub(super) struct Notes {
    #[xdr(max = NOTES_MAX)]
    pub notes: Vec<Note>,
}

/// A note to the head, which is told without being asked. Each may be told twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub(super) enum Note {
    /// By the number of the hold.
    #[xdr(0)]
    Release(u64),
    /// By the number of the file.
    #[xdr(1)]
    PutOff(u64),
    #[xdr(2)]
    GiveUp(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub(super) struct BeginCall {
    pub file: u64,
    pub has_bytes: bool,
}

#[derive(Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub(super) enum BeginAnswer {
    #[xdr(0)]
    Begun(Kinds),
    #[xdr(1)]
    Denied(ToldDenial),
}

#[derive(Debug, PartialEq, Eq, Xdr)]
pub(super) struct Kinds {
    #[xdr(max = KINDS_MAX)]
    kinds: Vec<Kind>,
}

impl Kinds {
    pub fn of(kinds: &[ChecksumKind]) -> Kinds {
        let is_wanted = |kind: &ChecksumKind| kinds.contains(kind);
        Kinds { kinds: ChecksumKind::ALL.into_iter().filter(is_wanted).map(Kind).collect() }
    }

    pub fn into_kinds(self) -> Vec<ChecksumKind> {
        self.kinds.into_iter().map(|kind| kind.0).collect()
    }
}

/// 1 adler32, 2 crc32c, 3 md5, 4 sha-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind(ChecksumKind);

impl Xdr for Kind {
    fn encode(&self, e: &mut xdr::Encoder) {
        e.put_u32(match self.0 {
            ChecksumKind::Adler32 => 1,
            ChecksumKind::Crc32c => 2,
            ChecksumKind::Md5 => 3,
            ChecksumKind::Sha256 => 4,
        });
    }

    fn decode(d: &mut xdr::Decoder) -> Result<Kind, XdrError> {
        Ok(Kind(match d.u32()? {
            1 => ChecksumKind::Adler32,
            2 => ChecksumKind::Crc32c,
            3 => ChecksumKind::Md5,
            4 => ChecksumKind::Sha256,
            value => return Err(XdrError::InvalidDiscriminant { type_name: "ChecksumKind", value }),
        }))
    }
}

#[derive(Debug, PartialEq, Eq, Xdr)]
pub(super) struct CompleteCall {
    pub file: u64,
    size: u64,
    #[xdr(max = KINDS_MAX)]
    checksums: Vec<Sum>,
}

#[derive(Debug, PartialEq, Eq, Xdr)]
struct Sum {
    kind: Kind,
    #[xdr(max = CHECKSUM_BYTES_MAX)]
    value: Opaque,
}

impl CompleteCall {
    pub fn of(file: u64, arrived: &ArrivedBytes) -> CompleteCall {
        let sum =
            |sum: &Checksum| Sum { kind: Kind(sum.kind()), value: Opaque::copy_from_slice(sum.value()) };
        let checksums = arrived.checksums.iter().take(KINDS_MAX).map(sum).collect();
        CompleteCall { file, size: arrived.size, checksums }
    }

    /// `None`: a checksum that is none.
    pub fn into_arrived(self) -> Option<ArrivedBytes> {
        let sums = self.checksums.into_iter().map(|sum| Checksum::new(sum.kind.0, &sum.value.0));
        Some(ArrivedBytes { size: self.size, checksums: sums.collect::<Option<_>>()? })
    }
}

#[derive(Debug, PartialEq, Eq, Xdr)]
#[xdr(union)]
pub(super) enum CompleteAnswer {
    #[xdr(0)]
    Stored(StoredVersion),
    #[xdr(1)]
    Denied(ToldDenial),
}
