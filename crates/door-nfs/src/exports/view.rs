//! Views: the exports and pseudo directories that a client's address may see, and the rules there.

use std::collections::BTreeMap;

use types::{FileId, Identity, Name};

use super::rules::{Claimed, ExportRules, PSEUDO};
use crate::security::Flavor;

/// The part of the namespace that one client address sees.
#[derive(Debug)]
pub(crate) struct View {
    pub(super) rules: Vec<ExportRules>,
    pub(super) pseudo_rules: ExportRules,
    /// The exported directories, each with its place in `rules`.
    pub(super) roots: BTreeMap<FileId, usize>,
    /// Directories above exports that are in none, with the names that lead on.
    pub(super) pseudo: BTreeMap<FileId, BTreeMap<Name, FileId>>,
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
