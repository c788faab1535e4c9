//! Exports: which directories which client hosts see, how, and as whom (exports(5), RFC 8881 §7).
//!
//! The configured paths are looked up in the namespace at the start, and later again and again ([`table`]). Of the
//! entries of one directory the narrowest that holds a client's address counts; all such directories together are the
//! client's [`View`], made for a connection and again when more was found. A file belongs to the innermost export above
//! it. Directories on the way to exports are *pseudo* directories: they show the names that lead on, and nothing else.
//! A view of the whole namespace as one export needs no such search.

mod resolve;
mod table;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use types::{FileId, Identity, Name, Network};

use crate::security::{Flavor, Flavors};
pub use resolve::ExportError;
pub(crate) use table::ExportTable;

/// An entry of the configuration: a directory for some hosts.
#[derive(Clone, Debug)]
pub struct Export {
    /// From the root; the root itself is empty.
    pub path: Vec<Name>,
    pub hosts: Vec<Hosts>,
    pub rules: ExportRules,
}

impl Export {
    /// The whole namespace, to read and write, for everybody who can connect, by AUTH_SYS.
    pub fn of_everything(squash: Squash) -> Export {
        let anonymous = (NOBODY, NOBODY);
        let rules = ExportRules { is_read_only: false, squash, anonymous, flavors: Flavors::SYS };
        Export { path: Vec::new(), hosts: vec![Hosts::Any], rules }
    }
}

const NOBODY: u32 = Identity::NOBODY_ID;

#[derive(Clone, Copy, Debug)]
pub enum Hosts {
    Any,
    Network(Network),
}

impl Hosts {
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::Network(network) => network.contains(address),
        }
    }

    /// Of two that hold an address the one with more is the narrower; anybody is wider than every network.
    fn narrowness(&self) -> u32 {
        match self {
            Hosts::Any => 0,
            Hosts::Network(network) => 1 + u32::from(network.prefix_bits()),
        }
    }

    pub fn are_same(&self, other: &Hosts) -> bool {
        match (self, other) {
            (Hosts::Any, Hosts::Any) => true,
            (Hosts::Network(one), Hosts::Network(other)) => one.is_same(other),
            _ => false,
        }
    }
}

/// How an export is served to some hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportRules {
    pub is_read_only: bool,
    pub squash: Squash,
    /// The uid and gid of squashed callers.
    pub anonymous: (u32, u32),
    /// Callers of other flavors get WRONGSEC.
    pub flavors: Flavors,
}

/// Identities that an export does not accept from any host or ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Squash {
    None,
    /// Root of the client hosts is anonymous, and so is its group.
    Root,
    All,
}

/// Of a pseudo directory: it can only be read.
const PSEUDO: ExportRules = ExportRules {
    is_read_only: true,
    squash: Squash::All,
    anonymous: (NOBODY, NOBODY),
    flavors: Flavors::NONE,
};

impl ExportRules {
    fn identity(&self, claimed: &Claimed) -> Identity {
        let (uid, gid) = self.anonymous;
        match (claimed, self.squash) {
            (Claimed::Nobody, _) | (_, Squash::All) => Identity::new(uid, gid, &[]),
            (Claimed::User(user), Squash::None) => user.clone(),
            (Claimed::User(user), Squash::Root) => {
                if user.uid != 0 && !user.is_member_of(0) {
                    return user.clone();
                }
                let group = |id: u32| if id == 0 { gid } else { id };
                let groups: Vec<u32> = user.groups.iter().map(|id| group(*id)).collect();
                Identity::new(if user.uid == 0 { uid } else { user.uid }, group(user.gid), &groups)
            }
        }
    }
}

/// The identity that a caller claims, before an export squashes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// AUTH_NONE.
    Nobody,
    /// By AUTH_SYS, or the user of a Kerberos name.
    User(Identity),
}

/// All exports, as they were found in the namespace.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    directories: Vec<Exported>,
    /// Entries whose directory is not there yet: their clients are served, and find no such name.
    missing: Vec<Vec<(Hosts, ExportRules)>>,
}

/// A directory with its entries.
#[derive(Clone, Debug)]
struct Exported {
    root: FileId,
    /// From the root of the namespace: each directory on the way and the name that leads on from it.
    way: Vec<(FileId, Name)>,
    entries: Vec<(Hosts, ExportRules)>,
}

impl Exported {
    fn rules_for(&self, peer: IpAddr) -> Option<ExportRules> {
        narrowest(&self.entries, peer)
    }
}

fn narrowest(entries: &[(Hosts, ExportRules)], peer: IpAddr) -> Option<ExportRules> {
    let held = entries.iter().filter(|(hosts, _)| hosts.contain(peer));
    held.max_by_key(|(hosts, _)| hosts.narrowness()).map(|(_, rules)| *rules)
}

impl Exports {
    /// The view of a client; `None`: it sees nothing at all.
    pub fn view(&self, peer: IpAddr) -> Option<Arc<View>> {
        let granted: Vec<_> =
            self.directories.iter().filter_map(|dir| Some((dir, dir.rules_for(peer)?))).collect();
        let missing: Vec<_> = self.missing.iter().filter_map(|entries| narrowest(entries, peer)).collect();
        if granted.is_empty() && missing.is_empty() {
            return None;
        }
        let mut view = View::default();
        for (dir, rules) in &granted {
            view.roots.insert(dir.root, view.rules.len());
            view.rules.push(*rules);
        }
        for (dir, _) in &granted {
            view.lead_to(dir);
        }
        // There is a root to begin at, whatever is below it.
        if !view.roots.contains_key(&FileId::ROOT) {
            view.pseudo.entry(FileId::ROOT).or_default();
        }
        // A flavor that one of the exports admits reaches the way to it (RFC 8881 §7.8).
        let all = view.rules.iter().chain(&missing).map(|rules| rules.flavors);
        view.pseudo_rules.flavors = all.fold(Flavors::NONE, Flavors::union);
        Some(Arc::new(view))
    }
}

/// The part of the namespace that one client address sees.
#[derive(Debug)]
pub(crate) struct View {
    rules: Vec<ExportRules>,
    pseudo_rules: ExportRules,
    /// The exported directories, each with its place in `rules`.
    roots: BTreeMap<FileId, usize>,
    /// Directories above exports that are in none, with the names that lead on.
    pseudo: BTreeMap<FileId, BTreeMap<Name, FileId>>,
}

/// Where a file lies in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewPlace {
    Export(usize),
    Pseudo,
}

impl Default for View {
    fn default() -> View {
        View { rules: Vec::new(), pseudo_rules: PSEUDO, roots: BTreeMap::new(), pseudo: BTreeMap::new() }
    }
}

impl View {
    pub fn of_everything(rules: ExportRules) -> View {
        View { rules: vec![rules], roots: BTreeMap::from([(FileId::ROOT, 0)]), ..View::default() }
    }

    fn lead_to(&mut self, exported: &Exported) {
        for (at, (dir, name)) in exported.way.iter().enumerate() {
            // A directory in an export is shown as it is.
            if self.roots.contains_key(dir) {
                return;
            }
            let next = exported.way.get(at + 1).map_or(exported.root, |(dir, _)| *dir);
            self.pseudo.entry(*dir).or_default().insert(name.clone(), next);
        }
    }

    /// One export, and it is the whole namespace.
    pub fn is_whole(&self) -> bool {
        self.rules.len() == 1 && self.roots.contains_key(&FileId::ROOT)
    }

    /// Where a COMPOUND begins, before it has a file handle.
    pub fn start(&self) -> ViewPlace {
        if self.is_whole() { ViewPlace::Export(0) } else { ViewPlace::Pseudo }
    }

    /// The place of an exported or pseudo directory; `None`: that depends on what it lies in.
    pub fn of_directory(&self, dir: FileId) -> Option<ViewPlace> {
        match self.roots.get(&dir) {
            Some(export) => Some(ViewPlace::Export(*export)),
            None => self.pseudo.contains_key(&dir).then_some(ViewPlace::Pseudo),
        }
    }

    /// The place of what was found in a directory at `from`.
    pub fn step(&self, from: ViewPlace, file: FileId) -> ViewPlace {
        if self.is_whole() { from } else { self.of_directory(file).unwrap_or(from) }
    }

    /// The names that a pseudo directory shows.
    pub fn names(&self, dir: FileId) -> impl Iterator<Item = (&Name, FileId)> {
        self.pseudo.get(&dir).into_iter().flatten().map(|(name, child)| (name, *child))
    }

    pub fn child(&self, dir: FileId, name: &Name) -> Option<FileId> {
        self.pseudo.get(&dir)?.get(name).copied()
    }

    pub fn rules(&self, place: ViewPlace) -> &ExportRules {
        match place {
            ViewPlace::Export(export) => &self.rules[export],
            ViewPlace::Pseudo => &self.pseudo_rules,
        }
    }

    pub fn identity(&self, place: ViewPlace, claimed: &Claimed) -> Identity {
        self.rules(place).identity(claimed)
    }

    /// For a file that lies nowhere any more: the strictest export, of those to write to if there is one. It may be one
    /// that asks for more than the caller has: in which export the file was opened is not known. `None`: there are none.
    pub fn strictest(&self, is_written: bool, flavor: Option<Flavor>) -> Option<ViewPlace> {
        let demanded = self.rules.iter().filter_map(|rules| rules.flavors.weakest()).max();
        let is_weak = demanded.is_some_and(|demanded| Flavor::of_call(flavor) < demanded);
        let strictness = |export: &usize| {
            let rules = &self.rules[*export];
            let is_fit =
                if is_weak { rules.flavors.weakest() == demanded } else { rules.flavors.admit(flavor) };
            (is_fit, rules.is_read_only != is_written, rules.squash)
        };
        (0..self.rules.len()).max_by_key(strictness).map(ViewPlace::Export)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Claimed {
        Claimed::User(Identity::new(uid, uid, groups))
    }

    fn rules(squash: Squash) -> ExportRules {
        ExportRules { is_read_only: false, squash, anonymous: (99, 98), flavors: Flavors::SYS }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn hosts(text: &str) -> Hosts {
        if text == "*" { Hosts::Any } else { Hosts::Network(text.parse().unwrap()) }
    }

    /// `/` is 1, `/a` 2, `/a/b` 3, `/a/b/c` 4.
    fn exported(depth: u64, entries: &[(&str, ExportRules)]) -> Exported {
        let names = ["a", "b", "c"].map(name);
        Exported {
            root: FileId(1 + depth),
            way: (1..=depth).zip(names).map(|(dir, name)| (FileId(dir), name)).collect(),
            entries: entries.iter().map(|(text, rules)| (hosts(text), *rules)).collect(),
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn root_becomes_anonymous_with_all_its_groups() {
        let squashed = rules(Squash::Root).identity(&user(0, &[0, 5]));
        assert_eq!(squashed, Identity::new(99, 98, &[98, 5]));
        assert_eq!(rules(Squash::Root).identity(&user(7, &[5])), Identity::new(7, 7, &[5]));
        assert_eq!(rules(Squash::Root).identity(&user(7, &[0])), Identity::new(7, 7, &[98]));
        assert_eq!(rules(Squash::None).identity(&user(0, &[0])), Identity::new(0, 0, &[0]));
    }

    #[test]
    fn everybody_is_anonymous_where_all_are_squashed_and_without_a_credential_everywhere() {
        assert_eq!(rules(Squash::All).identity(&user(7, &[5])), Identity::new(99, 98, &[]));
        assert_eq!(rules(Squash::None).identity(&Claimed::Nobody), Identity::new(99, 98, &[]));
    }

    #[test]
    fn the_narrowest_entry_that_holds_an_address_counts_in_whatever_order() {
        let read_only = ExportRules { is_read_only: true, ..rules(Squash::Root) };
        let (one, net, wide) = (rules(Squash::None), rules(Squash::All), rules(Squash::Root));
        let mut entries = [("*", read_only), ("10.0.0.0/8", wide), ("10.1.0.0/16", net), ("10.1.0.7", one)];
        for _ in 0..entries.len() {
            entries.rotate_left(1);
            let dir = exported(0, &entries);
            for (peer, expected) in
                [("10.1.0.7", one), ("10.1.0.8", net), ("10.2.0.7", wide), ("192.0.2.1", read_only)]
            {
                assert_eq!(dir.rules_for(address(peer)), Some(expected), "{peer}");
            }
            assert_eq!(dir.rules_for(address("::ffff:10.1.0.7")), Some(one));
        }
        assert_eq!(exported(0, &[("10.0.0.0/8", wide)]).rules_for(address("192.0.2.1")), None);
    }

    #[test]
    fn a_client_with_only_a_lower_export_sees_the_way_to_it() {
        let open = rules(Squash::None);
        let directories = vec![exported(2, &[("10.0.0.0/8", open)]), exported(1, &[("192.0.2.1", open)])];
        let exports = Exports { directories, missing: Vec::new() };
        let view = exports.view(address("10.0.0.1")).unwrap();
        assert!(!view.is_whole());
        let names = |dir| view.names(FileId(dir)).collect::<Vec<_>>();
        assert_eq!(names(1), [(&name("a"), FileId(2))]);
        assert_eq!(names(2), [(&name("b"), FileId(3))]);
        assert_eq!(names(3), []);
        assert_eq!(view.of_directory(FileId(1)), Some(ViewPlace::Pseudo));
        assert_eq!(view.of_directory(FileId(3)), Some(ViewPlace::Export(0)));
        assert_eq!(view.of_directory(FileId(9)), None);
        assert_eq!(view.step(ViewPlace::Export(0), FileId(9)), ViewPlace::Export(0));
        assert!(view.rules(ViewPlace::Pseudo).is_read_only);
        assert!(exports.view(address("198.51.100.1")).is_none());
    }

    #[test]
    fn a_file_of_unknown_export_gets_the_strictest_rules_and_a_write_those_of_writable_exports() {
        let read_only = |squash| ExportRules { is_read_only: true, ..rules(squash) };
        let view = |rules: &[ExportRules]| View { rules: rules.to_vec(), ..View::default() };
        let (open, root, all) = (rules(Squash::None), rules(Squash::Root), rules(Squash::All));
        let strictest = |rules: &[ExportRules], is_written| {
            *view(rules).rules(view(rules).strictest(is_written, None).unwrap())
        };
        let mixed = [open, root, read_only(Squash::None), open];
        assert_eq!(strictest(&mixed, false), read_only(Squash::None));
        assert_eq!(strictest(&mixed, true), root);
        assert_eq!(strictest(&[open, all, root], false), all);
        assert_eq!(
            strictest(&[read_only(Squash::None), read_only(Squash::All)], true),
            read_only(Squash::All)
        );
    }

    #[test]
    fn a_file_of_unknown_export_refuses_a_flavor_weaker_than_some_export_requires() {
        let asking =
            |flavors: &[Flavor], squash| ExportRules { flavors: Flavors::new(flavors), ..rules(squash) };
        let secret = asking(&[Flavor::Krb5p], Squash::None);
        let both = asking(&[Flavor::Krb5p, Flavor::Sys], Squash::Root);
        let view = View { rules: vec![both, secret], ..View::default() };
        let of = |flavor| *view.rules(view.strictest(false, flavor).unwrap());
        assert_eq!(of(None), secret, "it refuses the caller");
        assert_eq!(of(Some(Flavor::Sys)), secret);
        assert_eq!(of(Some(Flavor::Krb5p)), both, "the stricter of those that admit it");
    }

    #[test]
    fn the_way_to_exports_is_open_to_the_flavors_of_all_of_them() {
        let flavors =
            |flavors: &[Flavor]| ExportRules { flavors: Flavors::new(flavors), ..rules(Squash::None) };
        let directories = vec![
            exported(1, &[("10.0.0.0/8", flavors(&[Flavor::Krb5p, Flavor::Sys]))]),
            exported(2, &[("192.0.2.1", flavors(&[Flavor::Krb5i]))]),
        ];
        let exports = Exports { directories, missing: vec![vec![(Hosts::Any, flavors(&[Flavor::Krb5]))]] };
        let view = exports.view(address("10.0.0.1")).unwrap();
        let seen: Vec<_> = view.rules(ViewPlace::Pseudo).flavors.iter().collect();
        assert_eq!(seen, [Flavor::Krb5p, Flavor::Sys, Flavor::Krb5]);
    }

    #[test]
    fn a_client_whose_export_does_not_exist_yet_sees_an_empty_root() {
        let exports =
            Exports { directories: vec![], missing: vec![vec![(hosts("10.0.0.1"), rules(Squash::None))]] };
        let view = exports.view(address("10.0.0.1")).unwrap();
        assert_eq!(
            (view.start(), view.of_directory(FileId::ROOT)),
            (ViewPlace::Pseudo, Some(ViewPlace::Pseudo))
        );
        assert_eq!(view.names(FileId::ROOT).count(), 0);
        assert!(exports.view(address("10.0.0.2")).is_none());
    }

    #[test]
    fn an_export_in_an_export_has_its_own_rules_and_no_pseudo_directory() {
        let (outer, inner) = (ExportRules { is_read_only: true, ..rules(Squash::All) }, rules(Squash::None));
        let directories = vec![exported(0, &[("*", outer)]), exported(2, &[("10.0.0.0/8", inner)])];
        let exports = Exports { directories, missing: Vec::new() };
        let view = exports.view(address("10.0.0.1")).unwrap();
        assert!(view.pseudo.is_empty() && !view.is_whole());
        let place = view.step(ViewPlace::Export(0), FileId(3));
        assert_eq!(view.rules(place), &inner);
        assert_eq!(view.rules(view.of_directory(FileId(1)).unwrap()), &outer);
        assert!(exports.view(address("192.0.2.1")).unwrap().is_whole());
    }
}
