//! Locations of namespaces, apart from data directories, as people write them.

use std::path::PathBuf;

use ::namespace::bulk::NamespaceLocation;

/// `None`: the text names a data directory.
pub fn parse(text: &str) -> Option<NamespaceLocation> {
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    let path_behind = |scheme| text.strip_prefix(scheme).map(PathBuf::from);
    if is_url {
        return Some(NamespaceLocation::Postgres(text.to_owned()));
    }
    path_behind("sqlite:")
        .map(NamespaceLocation::Sqlite)
        .or_else(|| path_behind("file:").map(NamespaceLocation::File))
}
