//! Share modes of one file: what opens may do, and what they deny to others (RFC 8881 §9.7).
//!
//! Counters of every access and denial make the judgement independent of the number of opens.

use crate::few::Few;
use crate::{Door, FileStateError, Holder, Owner};

/// Reading, writing, both or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes(u8);

impl Modes {
    pub const NONE: Modes = Modes(0);
    pub const READ: Modes = Modes(1);
    pub const WRITE: Modes = Modes(2);
    pub const BOTH: Modes = Modes(3);

    /// 1 is reading, 2 is writing, as NFS has it. `None` for any other bit.
    pub fn from_bits(bits: u32) -> Option<Modes> {
        u8::try_from(bits).ok().filter(|bits| *bits <= Modes::BOTH.0).map(Modes)
    }

    pub fn bits(self) -> u32 {
        self.0.into()
    }

    pub fn contains(self, other: Modes) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn intersects(self, other: Modes) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub fn union(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }
}

/// The accesses of an open, and those that it denies to others. Denials are mandatory between opens and for I/O without
/// an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Share {
    pub access: Modes,
    pub deny: Modes,
}

impl Share {
    pub const fn new(access: Modes, deny: Modes) -> Share {
        Share { access, deny }
    }

    #[must_use]
    pub fn union(self, other: Share) -> Share {
        Share { access: self.access.union(other.access), deny: self.deny.union(other.deny) }
    }

    /// Whether two owners cannot have these at once.
    pub fn conflicts(self, other: Share) -> bool {
        self.access.intersects(other.deny) || self.deny.intersects(other.access)
    }

    pub fn contains(self, other: Share) -> bool {
        self.access.contains(other.access) && self.deny.contains(other.deny)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shares {
    opens: Few<Owner, Share>,
    accesses: Count,
    denials: Count,
}

/// How many opens have reading, and how many writing, in one half of their share.
#[derive(Debug, Default)]
struct Count {
    read: u32,
    write: u32,
}

impl Count {
    const ZERO: Count = Count { read: 0, write: 0 };

    fn add(&mut self, modes: Modes) {
        self.read += u32::from(modes.contains(Modes::READ));
        self.write += u32::from(modes.contains(Modes::WRITE));
    }

    fn remove(&mut self, modes: Modes) {
        self.read -= u32::from(modes.contains(Modes::READ));
        self.write -= u32::from(modes.contains(Modes::WRITE));
    }

    /// Whether anybody but one with `own` has any of `modes`.
    fn others_have(&self, modes: Modes, own: Modes) -> bool {
        let beyond = |count: u32, mode: Modes| count > u32::from(own.contains(mode));
        (modes.contains(Modes::READ) && beyond(self.read, Modes::READ))
            || (modes.contains(Modes::WRITE) && beyond(self.write, Modes::WRITE))
    }
}

impl Shares {
    pub const NONE: Shares = Shares { opens: Few::EMPTY, accesses: Count::ZERO, denials: Count::ZERO };

    pub fn is_empty(&self) -> bool {
        self.opens.is_empty()
    }

    pub fn of(&self, owner: Owner) -> Option<Share> {
        self.opens.get(&owner).copied()
    }

    pub fn all(&self) -> impl Iterator<Item = (Owner, Share)> {
        self.opens.iter().map(|(owner, share)| (*owner, *share))
    }

    pub fn of_holder(&self, holder: Holder) -> impl Iterator<Item = (Owner, Share)> {
        let first = Owner { holder, number: 0 };
        let of_holder = self.opens.from(first).take_while(move |(owner, _)| owner.holder == holder);
        of_holder.map(|(owner, share)| (*owner, *share))
    }

    /// Whether the owner may have `share` in addition to what it has.
    pub fn judge(&self, owner: Owner, share: Share) -> Result<(), FileStateError> {
        let own = self.of(owner).unwrap_or_default();
        if self.denials.others_have(share.access, own.deny)
            || self.accesses.others_have(share.deny, own.access)
        {
            return Err(FileStateError::ShareDenied);
        }
        Ok(())
    }

    /// Whether a door's client may take away the name or the bytes: no open of another door denies writing. Denials of
    /// its own door were weighed there, by what the client has shown. Nobody (`None`) has every door for another.
    pub fn judge_change(&self, by: Option<Door>) -> Result<(), FileStateError> {
        // Mostly nobody denies anything.
        let is_denied = self.denials.write > 0
            && self
                .opens
                .iter()
                .any(|(owner, share)| Some(owner.holder.door) != by && share.deny.contains(Modes::WRITE));
        if is_denied { Err(FileStateError::ShareDenied) } else { Ok(()) }
    }

    pub fn has_writers(&self) -> bool {
        self.accesses.write > 0
    }

    /// Whether I/O without an open may have `access`.
    pub fn judge_io(&self, access: Modes) -> Result<(), FileStateError> {
        if self.denials.others_have(access, Modes::NONE) {
            return Err(FileStateError::ShareDenied);
        }
        Ok(())
    }

    /// Replaces what the owner has; `None` closes. Returns what it had.
    pub fn put(&mut self, owner: Owner, share: Option<Share>) -> Option<Share> {
        let before = match share {
            Some(share) => {
                self.accesses.add(share.access);
                self.denials.add(share.deny);
                self.opens.insert(owner, share)
            }
            None => self.opens.remove(&owner),
        };
        if let Some(before) = before {
            self.accesses.remove(before.access);
            self.denials.remove(before.deny);
        }
        before
    }
}
