//! NFSv4 access control lists (RFC 8881 §6): who is allowed or denied what, in order.
//!
//! Values and pure rules. An ACL here decides access alone; the mode of its file is kept in step with it (`mode`), so
//! that who reads the mode is not lied to. Types of entries are ALLOW and DENY; those that audit or ring an alarm are
//! not kept, since nobody would ring it.

mod encoding;
mod inherit;
mod mode;

use std::ops::BitOr;
use std::sync::Arc;

use thiserror::Error;

use crate::{Access, Attributes, Identity};

pub use encoding::AclEncodingError;

/// In the order in which they are asked, at most [`Acl::ACES_MAX`]. The default has none, and grants what an
/// owner always has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl(Arc<[Ace]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ace {
    pub kind: AceKind,
    pub flags: AceFlags,
    pub mask: Access,
    pub who: AceWho,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AceKind {
    Allow,
    Deny,
}

/// The users that an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AceWho {
    /// OWNER@: the owner of the file at the time of the check.
    Owner,
    /// GROUP@: members of the file's group, its owner too if it is one.
    Group,
    /// EVERYONE@, owner and group included.
    Everyone,
    User(u32),
    NamedGroup(u32),
}

/// How an entry is inherited when something is made in the directory (RFC 8881 §6.2.1.4), in the bits of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AceFlags(u32);

impl AceFlags {
    pub const NONE: AceFlags = AceFlags(0);
    pub const FILE_INHERIT: AceFlags = AceFlags(0x1);
    pub const DIRECTORY_INHERIT: AceFlags = AceFlags(0x2);
    pub const NO_PROPAGATE: AceFlags = AceFlags(0x4);
    pub const INHERIT_ONLY: AceFlags = AceFlags(0x8);
    const ALL: u32 = 0xf;

    /// `None`: there are other bits.
    pub fn from_bits(bits: u32) -> Option<AceFlags> {
        (bits & !AceFlags::ALL == 0).then_some(AceFlags(bits))
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn contains(self, other: AceFlags) -> bool {
        self.0 & other.0 == other.0
    }

    fn without(self, other: AceFlags) -> AceFlags {
        AceFlags(self.0 & !other.0)
    }

    fn is_inheritable(self) -> bool {
        self.contains(AceFlags::FILE_INHERIT) || self.contains(AceFlags::DIRECTORY_INHERIT)
    }
}

impl BitOr for AceFlags {
    type Output = AceFlags;

    fn bitor(self, other: AceFlags) -> AceFlags {
        AceFlags(self.0 | other.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("access control list has more entries than can be kept")]
pub struct AclTooLong;

/// The verdict of an ACL: it allows some accesses, denies some, and says nothing of the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: Access,
    pub denied: Access,
}

impl Acl {
    /// Of any. Each takes ten bytes at most, so what is stored of it stays at about 20 KiB.
    pub const ACES_MAX: usize = 2 * Acl::HANDED_ON_MAX + Acl::OF_MODE_MAX;
    /// Of what is inherited again. A mode splits such an entry into one for what is made here later and one for the file
    /// itself, which is not inherited and split no more, so that none outgrows the above however often it is derived.
    pub const HANDED_ON_MAX: usize = 1024;
    /// Of those that a mode puts on top, and that the next one takes away again.
    const OF_MODE_MAX: usize = 16;

    /// One that is set. However often a mode and inheritance are applied to it, the result can be kept, and can be set
    /// itself, so that a client can read the ACL of one file and give it to another.
    pub fn new(aces: Vec<Ace>) -> Result<Acl, AclTooLong> {
        let acl = Acl::derived(aces)?;
        let handed_on = acl.aces().iter().filter(|ace| ace.flags.is_inheritable()).count();
        let kept = acl.beside_mode(Access::OF_MODE).len();
        if handed_on > Acl::HANDED_ON_MAX || kept > 2 * Acl::HANDED_ON_MAX {
            Err(AclTooLong)
        } else {
            Ok(acl)
        }
    }

    fn derived(aces: Vec<Ace>) -> Result<Acl, AclTooLong> {
        if aces.len() > Acl::ACES_MAX { Err(AclTooLong) } else { Ok(Acl(aces.into())) }
    }

    pub fn aces(&self) -> &[Ace] {
        &self.0
    }

    /// Entries in their order, of each access the first that names it and fits the requester (RFC 8881 §6.2.1). Says
    /// nothing of what owners and root may besides: see `permission`.
    pub fn judge(&self, who: &Identity, attributes: &Attributes) -> Verdict {
        self.judge_where(|ace| match ace.who {
            AceWho::Owner => who.uid == attributes.uid,
            AceWho::Group => who.is_member_of(attributes.gid),
            AceWho::Everyone => true,
            AceWho::User(uid) => who.uid == uid,
            AceWho::NamedGroup(gid) => who.is_member_of(gid),
        })
    }

    fn judge_where(&self, fits: impl Fn(&Ace) -> bool) -> Verdict {
        let mut verdict = Verdict::default();
        for ace in self.effective().filter(|ace| fits(ace)) {
            let new = ace.mask.without(verdict.allowed | verdict.denied);
            match ace.kind {
                AceKind::Allow => verdict.allowed = verdict.allowed | new,
                AceKind::Deny => verdict.denied = verdict.denied | new,
            }
        }
        verdict
    }

    /// All that is allowed to anybody at all.
    pub fn allowed_to_somebody(&self) -> Access {
        let allowed = self.effective().filter(|ace| ace.kind == AceKind::Allow);
        allowed.fold(Access::NONE, |all, ace| all | ace.mask)
    }

    /// Whether any entry is about the file itself.
    pub fn is_effective(&self) -> bool {
        self.effective().next().is_some()
    }

    /// Those that are about the file itself.
    fn effective(&self) -> impl Iterator<Item = &Ace> {
        self.0.iter().filter(|ace| ace.is_effective())
    }
}

impl Ace {
    pub fn allow(who: AceWho, mask: Access) -> Ace {
        Ace { kind: AceKind::Allow, flags: AceFlags::NONE, mask, who }
    }

    pub fn deny(who: AceWho, mask: Access) -> Ace {
        Ace { kind: AceKind::Deny, flags: AceFlags::NONE, mask, who }
    }

    #[must_use]
    pub fn inherited_by(self, flags: AceFlags) -> Ace {
        Ace { flags, ..self }
    }

    fn is_effective(&self) -> bool {
        !self.flags.contains(AceFlags::INHERIT_ONLY)
    }
}

impl AceWho {
    fn is_special(self) -> bool {
        matches!(self, AceWho::Owner | AceWho::Group | AceWho::Everyone)
    }
}

#[cfg(test)]
mod tests;
