//! Exports: which directories which client hosts see, how, and as whom (exports(5), RFC 8881 §7).
//!
//! The configured paths are looked up in the namespace at the start, and later again and again ([`table`]). Of the
//! entries of one directory the narrowest that holds a client's address counts; all such directories together are the
//! client's [`View`], made for a connection and again when more was found. A file belongs to the innermost export above
//! it. Directories on the way to exports are *pseudo* directories: they show the names that lead on, and nothing else.
//! A view of the whole namespace as one export needs no such search.

mod found;
mod resolve;
mod rules;
mod table;
mod view;

pub use resolve::ExportError;
pub(crate) use rules::Claimed;
pub use rules::{Export, ExportRules, Hosts, ServedHosts, Squash};
pub(crate) use table::ExportTable;
pub(crate) use view::{View, ViewPlace};
