//! Values of the pool seam. Each is decoded as a value that can be, or not at all.

use api::{Birth, Presence, ReplicaFacts, TicketMode};
use types::{ByteRange, Epoch, FileId, IoMode, PoolId, Timestamp};
use xdr::{Decoder, Encoder, Xdr, XdrError};

/// File (u64), birth, pool, mode (0 read, 1 read and write), epoch, presence (0 unmade, 1 made, 2 written), mode of I/O (0
/// auto, 1 buffered, 2 uncached, 3 direct).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(pub api::Ticket);

impl Xdr for Ticket {
    fn encode(&self, e: &mut Encoder) {
        let api::Ticket { file, birth, pool, mode, epoch, presence, io } = self.0;
        e.put_u64(file.0);
        e.put_u32(birth.0);
        e.put_u32(pool.0);
        e.put_u32(match mode {
            TicketMode::Read => 0,
            TicketMode::ReadWrite => 1,
        });
        e.put_u32(epoch.0);
        e.put_u32(match presence {
            Presence::Unmade => 0,
            Presence::Made => 1,
            Presence::Written => 2,
            Presence::Filling => 3,
        });
        e.put_u32(io.number().into());
    }

    fn decode(d: &mut Decoder) -> Result<Ticket, XdrError> {
        let (file, birth, pool) = (FileId(d.u64()?), Birth(d.u32()?), PoolId(d.u32()?));
        let mode = match d.u32()? {
            0 => TicketMode::Read,
            1 => TicketMode::ReadWrite,
            value => return Err(XdrError::InvalidDiscriminant { type_name: "TicketMode", value }),
        };
        let epoch = Epoch(d.u32()?);
        let presence = match d.u32()? {
            0 => Presence::Unmade,
            1 => Presence::Made,
            2 => Presence::Written,
            3 => Presence::Filling,
            value => return Err(XdrError::InvalidDiscriminant { type_name: "Presence", value }),
        };
        let value = d.u32()?;
        let io = IoMode::ALL.into_iter().find(|mode| u32::from(mode.number()) == value);
        let io = io.ok_or(XdrError::InvalidDiscriminant { type_name: "IoMode", value })?;
        Ok(Ticket(api::Ticket { file, birth, pool, mode, epoch, presence, io }))
    }
}

/// Arm 1: pool and file; arm 2: ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source(pub api::Source);

impl Xdr for Source {
    fn encode(&self, e: &mut Encoder) {
        match self.0 {
            api::Source::Local(pool, file) => {
                e.put_u32(1);
                e.put_u32(pool.0);
                e.put_u64(file.0);
            }
            api::Source::Ticket(ticket) => {
                e.put_u32(2);
                Ticket(ticket).encode(e);
            }
        }
    }

    fn decode(d: &mut Decoder) -> Result<Source, XdrError> {
        Ok(Source(match d.u32()? {
            1 => api::Source::Local(PoolId(d.u32()?), FileId(d.u64()?)),
            2 => api::Source::Ticket(Ticket::decode(d)?.0),
            value => return Err(XdrError::InvalidDiscriminant { type_name: "Source", value }),
        }))
    }
}

/// From, to, length. Neither end is behind the largest offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch(pub api::Stretch);

impl Xdr for Stretch {
    fn encode(&self, e: &mut Encoder) {
        let api::Stretch { from, to, length } = self.0;
        [from, to, length].into_iter().for_each(|number| e.put_u64(number));
    }

    fn decode(d: &mut Decoder) -> Result<Stretch, XdrError> {
        let (from, to, length) = (d.u64()?, d.u64()?, d.u64()?);
        if from.checked_add(length).is_none() || to.checked_add(length).is_none() {
            return Err(impossible("Stretch"));
        }
        Ok(Stretch(api::Stretch { from, to, length }))
    }
}

/// Offset and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range(pub ByteRange);

impl Xdr for Range {
    fn encode(&self, e: &mut Encoder) {
        e.put_u64(self.0.offset());
        e.put_u64(self.0.end());
    }

    fn decode(d: &mut Decoder) -> Result<Range, XdrError> {
        ByteRange::from_bounds(d.u64()?, d.u64()?).map(Range).ok_or(impossible("ByteRange"))
    }
}

/// 0 unstable, 1 data sync, 2 file sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stability(pub api::Stability);

impl Xdr for Stability {
    fn encode(&self, e: &mut Encoder) {
        e.put_u32(match self.0 {
            api::Stability::Unstable => 0,
            api::Stability::DataSync => 1,
            api::Stability::FileSync => 2,
        });
    }

    fn decode(d: &mut Decoder) -> Result<Stability, XdrError> {
        Ok(Stability(match d.u32()? {
            0 => api::Stability::Unstable,
            1 => api::Stability::DataSync,
            2 => api::Stability::FileSync,
            value => return Err(XdrError::InvalidDiscriminant { type_name: "Stability", value }),
        }))
    }
}

/// Seconds (i64) and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub Timestamp);

impl Xdr for Time {
    fn encode(&self, e: &mut Encoder) {
        e.put_i64(self.0.seconds);
        e.put_u32(self.0.nanoseconds());
    }

    fn decode(d: &mut Decoder) -> Result<Time, XdrError> {
        Timestamp::new(d.i64()?, d.u32()?).map(Time).ok_or(impossible("Timestamp"))
    }
}

/// File (u64), birth, size (u64), space used (u64), time of the last write if it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts(pub ReplicaFacts);

impl Xdr for Facts {
    fn encode(&self, e: &mut Encoder) {
        let ReplicaFacts { file, birth, size, space_used, modified } = self.0;
        e.put_u64(file.0);
        e.put_u32(birth.0);
        e.put_u64(size);
        e.put_u64(space_used);
        modified.map(Time).encode(e);
    }

    fn decode(d: &mut Decoder) -> Result<Facts, XdrError> {
        let (file, birth) = (FileId(d.u64()?), Birth(d.u32()?));
        let (size, space_used) = (d.u64()?, d.u64()?);
        let modified = Option::<Time>::decode(d)?.map(|time| time.0);
        Ok(Facts(ReplicaFacts { file, birth, size, space_used, modified }))
    }
}

/// A value whose parts can be read and do not go together.
pub(super) fn impossible(type_name: &'static str) -> XdrError {
    XdrError::InvalidDiscriminant { type_name, value: 0 }
}
