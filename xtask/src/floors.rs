//! The floors as data. ARCHITECTURE.md draws them; this table is what `tidy` believes.
//!
//! A crate imports lower floors only. Services (3a) and doors (3b) know each other as traits of `api` and meet in the
//! binary, so neither floor 3a nor 3b imports the other, nor its own neighbours.

use std::fmt::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Floor {
    Ground,
    Wire,
    Rules,
    /// Thin shells around wire and rules that more than one service or door needs; they do I/O and own nothing durable.
    Shell,
    Service,
    Door,
    Assembly,
    /// Suites, fakes, test clients and load generators: import what they like below the binary, imported by tests only.
    Testkit,
    /// Fuzz targets and the simulator: import what they like below the binary, the test kit too, and are imported by nothing.
    Fuzz,
    /// Chores: imports nothing of ours.
    Chore,
}

/// Every crate of the workspace, by its name without the `forebay-` prefix.
pub const FLOORS: &[(&str, Floor)] = &[
    ("types", Floor::Ground),
    ("aligned", Floor::Ground),
    ("der", Floor::Ground),
    ("xdr", Floor::Ground),
    ("xdr-derive", Floor::Ground),
    ("oncrpc", Floor::Wire),
    ("nfs4", Floor::Wire),
    ("http-wire", Floor::Wire),
    ("gss", Floor::Wire),
    ("nfs4-state", Floor::Rules),
    ("file-state", Floor::Rules),
    ("api", Floor::Rules),
    ("cluster-state", Floor::Rules),
    ("files", Floor::Shell),
    ("durable", Floor::Shell),
    ("http-server", Floor::Shell),
    ("http-client", Floor::Shell),
    ("splice", Floor::Shell),
    ("io-engine", Floor::Service),
    ("write-journal", Floor::Service),
    ("pool", Floor::Service),
    ("namespace", Floor::Service),
    ("auth", Floor::Service),
    ("door-nfs", Floor::Door),
    ("door-webdav", Floor::Door),
    ("admin", Floor::Door),
    ("cluster", Floor::Door),
    ("forebay", Floor::Assembly),
    ("testkit", Floor::Testkit),
    ("load", Floor::Testkit),
    ("fuzz", Floor::Fuzz),
    ("sim", Floor::Fuzz),
    ("xtask", Floor::Chore),
];

/// Edges within one floor, each with the reason it may stand.
pub const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "xdr",
        "xdr-derive",
        "a trait and its derive are one thing in two crates because the compiler asks for it",
    ),
    ("der", "types", "the calendar of GeneralizedTime is the one of all crates"),
    ("http-server", "durable", "files that are replaced are watched in one place"),
    ("http-server", "splice", "the way of files to sockets knows nothing of HTTP"),
    ("pool", "io-engine", "the engine is the pool's own way to its disks"),
    ("pool", "write-journal", "the journal is a part of the pool"),
    (
        "nfs4-state",
        "file-state",
        "an NFS stateid stands for an entry of the conflict table, which is asked under the stateids' lock",
    ),
    ("cluster-state", "api", "terms stand in tickets, and the floor of terms judges tickets"),
];

/// Edges that stand as long as they are optional: a feature for tests switches them on.
pub const OF_FEATURES: &[(&str, &str)] = &[("forebay", "testkit")];

/// Crates whose `async` traits are wanted below floor 3.
pub const ASYNC_BELOW_SERVICES: &[&str] = &["api"];

/// Crates that know no protocol, and the protocol crates that they therefore must not import although these stand below.
const WITHOUT_PROTOCOL: &[&str] =
    &["api", "file-state", "files", "io-engine", "write-journal", "pool", "namespace"];
const PROTOCOL: &[&str] =
    &["xdr", "xdr-derive", "oncrpc", "nfs4", "nfs4-state", "http-wire", "http-server", "http-client"];

pub fn floor_of(name: &str) -> Option<Floor> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

/// Whether `from` may name `to` in its `[dependencies]`; the error says why not.
pub fn edge(from: &str, to: &str) -> Result<(), String> {
    let (Some(above), Some(below)) = (floor_of(from), floor_of(to)) else {
        return Err(format!("`{from}` or `{to}` has no floor; add it to xtask/src/floors.rs"));
    };
    if EXCEPTIONS.iter().any(|(a, b, _)| *a == from && *b == to) {
        return Ok(());
    }
    if WITHOUT_PROTOCOL.contains(&from) && PROTOCOL.contains(&to) {
        return Err(format!("`{from}` knows no protocol, `{to}` is one"));
    }
    match (above, below) {
        (Floor::Fuzz, Floor::Testkit) => Ok(()),
        (_, Floor::Testkit) => Err(format!("`{to}` is a dev-dependency only")),
        (_, Floor::Fuzz) => Err("nothing imports the fuzz targets".to_owned()),
        (Floor::Chore, _) | (_, Floor::Chore) => {
            Err("chores and the product do not import each other".to_owned())
        }
        (Floor::Fuzz, Floor::Assembly) => Err("the fuzz targets stand below the binary".to_owned()),
        (Floor::Fuzz, _) => Ok(()),
        (Floor::Testkit, Floor::Assembly) => Err("the test kit stands below the binary".to_owned()),
        (Floor::Testkit, _) => Ok(()),
        (Floor::Door, Floor::Service) => {
            Err(format!("door `{from}` may know service `{to}` only through a trait of `api`"))
        }
        _ if below < above => Ok(()),
        _ if below == above => Err(format!("`{from}` and `{to}` stand on one floor ({above:?})")),
        _ => Err(format!("`{from}` ({above:?}) would import upward from `{to}` ({below:?})")),
    }
}

/// The floors with the crates on them and the crates that each may import.
pub fn table() -> String {
    let mut out = String::new();
    for (name, floor) in FLOORS {
        let may: Vec<&str> =
            FLOORS.iter().map(|(to, _)| *to).filter(|to| *to != *name && edge(name, to).is_ok()).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name:<12} {:<9} {}", format!("{floor:?}"), may.join(" "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_downward_is_allowed() {
        for (from, to) in
            [("nfs4", "xdr"), ("api", "types"), ("door-nfs", "nfs4-state"), ("forebay", "door-nfs")]
        {
            assert_eq!(edge(from, to), Ok(()), "{from} -> {to}");
        }
    }

    #[test]
    fn an_edge_upward_or_sideways_is_refused() {
        for (from, to) in [("types", "api"), ("nfs4", "oncrpc"), ("namespace", "pool"), ("pool", "namespace")]
        {
            assert!(edge(from, to).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn a_door_knows_no_service_and_a_service_no_door() {
        assert!(edge("door-nfs", "namespace").is_err());
        assert!(edge("namespace", "door-nfs").is_err());
    }

    #[test]
    fn the_pool_alone_may_use_the_io_engine() {
        assert_eq!(edge("pool", "io-engine"), Ok(()));
        assert!(edge("io-engine", "pool").is_err());
        assert!(edge("namespace", "io-engine").is_err());
    }

    #[test]
    fn the_conflict_table_knows_no_protocol() {
        assert_eq!(edge("nfs4-state", "file-state"), Ok(()));
        assert!(edge("file-state", "nfs4-state").is_err());
        assert!(edge("api", "file-state").is_err());
        assert!(edge("file-state", "nfs4").is_err());
    }

    #[test]
    fn a_shell_stands_between_the_rules_and_who_needs_it() {
        for (from, to) in [("files", "file-state"), ("http-server", "http-wire"), ("http-client", "api")] {
            assert_eq!(edge(from, to), Ok(()), "{from} -> {to}");
        }
        for (from, to) in [("door-nfs", "files"), ("door-webdav", "http-server"), ("auth", "http-client")] {
            assert_eq!(edge(from, to), Ok(()), "{from} -> {to}");
        }
        for (from, to) in [("files", "namespace"), ("http-server", "files"), ("nfs4-state", "files")] {
            assert!(edge(from, to).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn code_that_all_doors_share_knows_no_protocol() {
        for to in ["nfs4", "nfs4-state", "http-wire", "http-server"] {
            assert!(edge("files", to).is_err(), "files -> {to}");
        }
    }

    #[test]
    fn a_service_knows_no_protocol() {
        for (from, to) in
            [("namespace", "nfs4"), ("pool", "xdr"), ("io-engine", "oncrpc"), ("pool", "nfs4-state")]
        {
            assert!(edge(from, to).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn the_test_kit_is_never_a_plain_dependency() {
        assert!(edge("forebay", "testkit").is_err());
        assert_eq!(edge("testkit", "api"), Ok(()));
    }

    #[test]
    fn fuzz_targets_import_all_but_the_binary_and_chores_and_are_imported_by_none() {
        for to in ["xdr", "files", "namespace", "door-nfs", "testkit"] {
            assert_eq!(edge("fuzz", to), Ok(()), "{to}");
        }
        for to in ["forebay", "xtask"] {
            assert!(edge("fuzz", to).is_err(), "{to}");
        }
        for (from, _) in FLOORS {
            assert!(edge(from, "fuzz").is_err(), "{from}");
        }
    }

    #[test]
    fn an_unknown_crate_has_no_floor() {
        assert!(edge("forebay", "newcomer").is_err());
    }
}
