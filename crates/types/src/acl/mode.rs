//! The mode that an ACL amounts to, and what a new mode makes of an ACL (RFC 8881 §6.3.2, §6.4.1).

use super::{Ace, AceFlags, AceKind, AceWho, Acl, AclTooLong};
use crate::Access;

/// Told of every file to everybody, as `stat` tells it.
const KNOWN_TO_ALL: Access = Access::READ_ATTRIBUTES.and(Access::READ_ACL).and(Access::SYNCHRONIZE);
/// The owner's, whatever the mode.
const OWNED: Access = Access::WRITE_ATTRIBUTES.and(Access::WRITE_ACL);

impl Acl {
    /// One that says what the nine bits of the mode say, also where they grant the owner less than others.
    pub fn of_mode(mode: u32) -> Acl {
        let [owner, group, other] = classes(mode);
        let mut aces = Vec::new();
        push_denial(&mut aces, AceWho::Owner, (group | other).without(owner));
        aces.push(Ace::allow(AceWho::Owner, owner | KNOWN_TO_ALL | OWNED));
        push_denial(&mut aces, AceWho::Group, other.without(group));
        aces.push(Ace::allow(AceWho::Group, group | KNOWN_TO_ALL));
        aces.push(Ace::allow(AceWho::Everyone, other | KNOWN_TO_ALL));
        Acl(aces.into())
    }

    /// Of a directory with this mode: behind the entries of the mode those that it merely hands on.
    pub fn of_mode_handing_on(mode: u32, below: &Acl) -> Result<Acl, AclTooLong> {
        Acl::derived([Acl::of_mode(mode).aces(), below.aces()].concat())
    }

    /// The nine bits (RFC 8881 §6.3.2): of each class what entries for it and for EVERYONE@ allow.
    pub fn mode(&self) -> u32 {
        let bits = |class: AceWho| {
            let fits = |ace: &Ace| ace.who == class || ace.who == AceWho::Everyone;
            self.judge_where(fits).allowed.mode_bits()
        };
        bits(AceWho::Owner) << 6 | bits(AceWho::Group) << 3 | bits(AceWho::Everyone)
    }

    /// It says no more than the mode, so that the mode alone will do.
    pub fn is_trivial(&self) -> bool {
        *self == Acl::of_mode(self.mode())
    }

    /// The same after chmod: [`Acl::mode`] of it is `mode`, entries for others than owner and everyone grant no more
    /// than the group's bits (the mask of RFC 8881 §6.4.1.1), and all else stays, as do inherit-only entries.
    pub fn with_mode(&self, mode: u32) -> Result<Acl, AclTooLong> {
        let [owner, group, other] = classes(mode);
        let mut rest = self.beside_mode(group);
        let to_others = (rest.iter())
            .filter(|ace| ace.is_effective() && !ace.who.is_special() && ace.kind == AceKind::Allow)
            .fold(group | other, |all, ace| all | ace.mask.within(Access::OF_MODE));
        add_allowance(&mut rest, AceWho::Group, group, other.without(group));
        add_allowance(&mut rest, AceWho::Everyone, other, Access::NONE);
        let mut aces = Vec::with_capacity(rest.len() + 2);
        push_denial(&mut aces, AceWho::Owner, to_others.without(owner));
        match rest.first_mut() {
            Some(first) if is_plain(first, AceWho::Owner) => first.mask = first.mask | owner,
            _ if owner != Access::NONE => aces.push(Ace::allow(AceWho::Owner, owner)),
            _ => {}
        }
        aces.extend(rest);
        Acl::derived(aces)
    }

    /// The entries that chmod leaves, without those that it adds itself. A further chmod that gives the group no more
    /// leaves the same of them or less.
    pub(super) fn beside_mode(&self, group: Access) -> Vec<Ace> {
        let mut rest = Vec::new();
        for ace in self.aces() {
            if !ace.is_effective() {
                rest.push(*ace);
                continue;
            }
            let mask = match (ace.who.is_special(), ace.kind) {
                (true, AceKind::Allow) => ace.mask.without(beyond(Access::NONE)),
                (true, AceKind::Deny) => ace.mask.without(Access::OF_MODE),
                (false, AceKind::Allow) => ace.mask.without(beyond(group)),
                (false, AceKind::Deny) => ace.mask,
            };
            push_split(&mut rest, ace, mask);
        }
        rest
    }

    /// The same for a file that is made with this mode: no entry grants more than the class that it is about, and one that
    /// names somebody no more than the group. The owner alone is granted all of his class that nothing denies: one that an ACL
    /// shuts out of what he has made could change that ACL, and programs would not know.
    pub fn bounded_by(&self, mode: u32) -> Result<Acl, AclTooLong> {
        let [owner, group, other] = classes(mode);
        let mut aces = Vec::with_capacity(self.aces().len());
        for ace in self.aces() {
            let bound = match ace.who {
                AceWho::Owner => owner,
                AceWho::Everyone => other,
                AceWho::Group | AceWho::User(_) | AceWho::NamedGroup(_) => group,
            };
            let mask = ace.mask.without(beyond(bound));
            if !ace.is_effective() || ace.kind == AceKind::Deny || mask == ace.mask {
                aces.push(*ace);
                continue;
            }
            push_split(&mut aces, ace, mask);
        }
        let bounded = Acl::derived(aces)?;
        let found = bounded.judge_where(|ace| matches!(ace.who, AceWho::Owner | AceWho::Everyone));
        let missing = owner.without(found.allowed | found.denied);
        if missing == Access::NONE {
            return Ok(bounded);
        }
        let mut aces = bounded.aces().to_vec();
        aces.push(Ace::allow(AceWho::Owner, missing));
        Acl::derived(aces)
    }
}

/// The accesses that a mode grants its three classes.
fn classes(mode: u32) -> [Access; 3] {
    [mode >> 6, mode >> 3, mode].map(Access::of_mode_bits)
}

/// Accesses to take from an entry that may allow no more of a mode than `bound`. Removing names from a directory counts
/// as writing it, though the nine bits do not speak of it.
fn beyond(bound: Access) -> Access {
    let of_mode = Access::OF_MODE.without(bound);
    if bound.contains(Access::WRITE) { of_mode } else { of_mode | Access::DELETE_CHILD }
}

fn push_denial(aces: &mut Vec<Ace>, who: AceWho, mask: Access) {
    if mask != Access::NONE {
        aces.push(Ace::deny(who, mask));
    }
}

/// The entry with this mask for the file alone; what is made here later inherits it as it was.
fn push_split(aces: &mut Vec<Ace>, ace: &Ace, mask: Access) {
    if ace.flags.is_inheritable() {
        aces.push(Ace { flags: ace.flags | AceFlags::INHERIT_ONLY, ..*ace });
    }
    if mask != Access::NONE {
        aces.push(Ace { flags: AceFlags::NONE, mask, ..*ace });
    }
}

fn is_plain(ace: &Ace, who: AceWho) -> bool {
    ace.kind == AceKind::Allow && ace.flags == AceFlags::NONE && ace.who == who
}

/// At the end; or into an entry for the same from which on nothing is denied, for the order of allowances means nothing.
fn add_allowance(aces: &mut Vec<Ace>, who: AceWho, allowed: Access, denied: Access) {
    push_denial(aces, who, denied);
    if allowed == Access::NONE {
        return;
    }
    let from = aces.iter().rposition(|ace| ace.kind == AceKind::Deny && ace.is_effective());
    let tail = &mut aces[from.map_or(0, |denial| denial + 1)..];
    match tail.iter_mut().find(|ace| is_plain(ace, who)) {
        Some(ace) => ace.mask = ace.mask | allowed,
        None => aces.push(Ace::allow(who, allowed)),
    }
}
