//! Descriptions of files, for a pool that keeps them.

use api::{Description, ReplicaRef, ReplicaState};
use types::{Device, Epoch, FileId, FileKind, Name, PoolId, SymlinkTarget};
use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

use super::values::{Time, impossible};

/// Of one file with many names the pool keeps so many: a message has a bound.
const NAMES_MAX: usize = 4096;
const REPLICAS_MAX: usize = 1024;

#[derive(Debug, Xdr)]
pub(crate) struct Described {
    file: u64,
    kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: Time,
    change: u64,
    epoch: u32,
    #[xdr(max = NAMES_MAX)]
    names: Vec<(u64, WireName)>,
    target: Option<WireTarget>,
    /// Pool, state by its place in `ReplicaState::ALL`, and since when.
    #[xdr(max = REPLICAS_MAX)]
    replicas: Vec<Replica>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WireName(pub Name);

impl Xdr for WireName {
    fn encode(&self, e: &mut Encoder) {
        e.opaque_slice(self.0.as_bytes());
    }

    fn decode(d: &mut Decoder) -> Result<WireName, XdrError> {
        Name::new(&d.opaque(Name::BYTES_MAX)?).map(WireName).map_err(|_| impossible("Name"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WireTarget(pub SymlinkTarget);

impl Xdr for WireTarget {
    fn encode(&self, e: &mut Encoder) {
        e.opaque_slice(self.0.as_bytes());
    }

    fn decode(d: &mut Decoder) -> Result<WireTarget, XdrError> {
        let bytes: Opaque = d.opaque(SymlinkTarget::BYTES_MAX)?.into();
        SymlinkTarget::new(&bytes).map(WireTarget).map_err(|_| impossible("SymlinkTarget"))
    }
}

#[derive(Debug)]
struct Replica(ReplicaRef);

impl Xdr for Replica {
    fn encode(&self, e: &mut Encoder) {
        e.put_u32(self.0.pool.0);
        e.put_u32(match self.0.state {
            ReplicaState::Good => 0,
            ReplicaState::Filling => 1,
            ReplicaState::Stale => 2,
            ReplicaState::Broken => 3,
            ReplicaState::Missing => 4,
        });
        Time(self.0.since).encode(e);
    }

    fn decode(d: &mut Decoder) -> Result<Replica, XdrError> {
        let pool = PoolId(d.u32()?);
        let state = match d.u32()? {
            0 => ReplicaState::Good,
            1 => ReplicaState::Filling,
            2 => ReplicaState::Stale,
            3 => ReplicaState::Broken,
            4 => ReplicaState::Missing,
            value => return Err(XdrError::InvalidDiscriminant { type_name: "ReplicaState", value }),
        };
        Ok(Replica(ReplicaRef { pool, state, since: Time::decode(d)?.0 }))
    }
}

#[derive(Debug, Xdr)]
#[xdr(union)]
enum Kind {
    #[xdr(1)]
    Regular,
    #[xdr(2)]
    Directory,
    #[xdr(3)]
    Symlink,
    #[xdr(4)]
    BlockDevice(u32, u32),
    #[xdr(5)]
    CharacterDevice(u32, u32),
    #[xdr(6)]
    Fifo,
    #[xdr(7)]
    Socket,
}

impl Kind {
    fn of(kind: FileKind) -> Kind {
        match kind {
            FileKind::Regular => Kind::Regular,
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => Kind::Symlink,
            FileKind::BlockDevice(Device { major, minor }) => Kind::BlockDevice(major, minor),
            FileKind::CharacterDevice(Device { major, minor }) => Kind::CharacterDevice(major, minor),
            FileKind::Fifo => Kind::Fifo,
            FileKind::Socket => Kind::Socket,
        }
    }

    fn into_kind(self) -> FileKind {
        match self {
            Kind::Regular => FileKind::Regular,
            Kind::Directory => FileKind::Directory,
            Kind::Symlink => FileKind::Symlink,
            Kind::BlockDevice(major, minor) => FileKind::BlockDevice(Device { major, minor }),
            Kind::CharacterDevice(major, minor) => FileKind::CharacterDevice(Device { major, minor }),
            Kind::Fifo => FileKind::Fifo,
            Kind::Socket => FileKind::Socket,
        }
    }
}

impl Described {
    pub fn of(described: &Description) -> Described {
        if described.names.len() > NAMES_MAX {
            tracing::warn!(file = %described.file, names = described.names.len(), max = NAMES_MAX,
                "file has more names than a pool keeps for a rebuild");
        }
        let names = described.names.iter().take(NAMES_MAX);
        Described {
            file: described.file.0,
            kind: Kind::of(described.kind),
            mode: described.mode,
            uid: described.uid,
            gid: described.gid,
            size: described.size,
            mtime: Time(described.mtime),
            change: described.change,
            epoch: described.epoch.0,
            names: names.map(|(dir, name)| (dir.0, WireName(name.clone()))).collect(),
            target: described.target.clone().map(WireTarget),
            replicas: described.replicas.iter().take(REPLICAS_MAX).copied().map(Replica).collect(),
        }
    }

    pub fn into_description(self) -> Description {
        Description {
            file: FileId(self.file),
            kind: self.kind.into_kind(),
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            mtime: self.mtime.0,
            change: self.change,
            epoch: Epoch(self.epoch),
            names: self.names.into_iter().map(|(dir, name)| (FileId(dir), name.0)).collect(),
            target: self.target.map(|target| target.0),
            replicas: self.replicas.into_iter().map(|replica| replica.0).collect(),
        }
    }
}
