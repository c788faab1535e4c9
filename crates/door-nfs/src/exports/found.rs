//! The exported directories, as they were found in the namespace, and the views of them.

use std::net::IpAddr;
use std::sync::Arc;

use types::{FileId, Name};

use super::rules::{ExportRules, Hosts, narrowest};
use super::view::View;
use crate::security::Flavors;

/// All exports, as they were found in the namespace.
#[derive(Debug, Default)]
pub(super) struct FoundExports {
    pub directories: Vec<Exported>,
    /// Entries whose directory is not there yet: their clients are served, and find no such name.
    pub missing: Vec<Vec<(Hosts, ExportRules)>>,
}

/// A directory with its entries.
#[derive(Clone, Debug)]
pub(super) struct Exported {
    pub root: FileId,
    /// From the root of the namespace: each directory on the way and the name that leads on from it.
    pub way: Vec<(FileId, Name)>,
    pub entries: Vec<(Hosts, ExportRules)>,
}

impl Exported {
    fn rules_for(&self, peer: IpAddr) -> Option<ExportRules> {
        narrowest(&self.entries, peer)
    }
}

impl FoundExports {
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
            lead_to(&mut view, dir);
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

/// Adds the pseudo directories on the way to an export.
fn lead_to(view: &mut View, exported: &Exported) {
    for (at, (dir, name)) in exported.way.iter().enumerate() {
        // A directory in an export is shown as it is.
        if view.roots.contains_key(dir) {
            return;
        }
        let next = exported.way.get(at + 1).map_or(exported.root, |(dir, _)| *dir);
        view.pseudo.entry(*dir).or_default().insert(name.clone(), next);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Squash;
    use super::super::view::ViewPlace;
    use super::*;
    use crate::security::Flavor;

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
        let exports = FoundExports { directories, missing: Vec::new() };
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
        let exports =
            FoundExports { directories, missing: vec![vec![(Hosts::Any, flavors(&[Flavor::Krb5]))]] };
        let view = exports.view(address("10.0.0.1")).unwrap();
        let seen: Vec<_> = view.rules(ViewPlace::Pseudo).flavors.iter().collect();
        assert_eq!(seen, [Flavor::Krb5p, Flavor::Sys, Flavor::Krb5]);
    }

    #[test]
    fn a_client_whose_export_does_not_exist_yet_sees_an_empty_root() {
        let exports = FoundExports {
            directories: vec![],
            missing: vec![vec![(hosts("10.0.0.1"), rules(Squash::None))]],
        };
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
        let exports = FoundExports { directories, missing: Vec::new() };
        let view = exports.view(address("10.0.0.1")).unwrap();
        assert!(view.pseudo.is_empty() && !view.is_whole());
        let place = view.step(ViewPlace::Export(0), FileId(3));
        assert_eq!(view.rules(place), &inner);
        assert_eq!(view.rules(view.of_directory(FileId(1)).unwrap()), &outer);
        assert!(exports.view(address("192.0.2.1")).unwrap().is_whole());
    }
}
