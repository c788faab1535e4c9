//! Calls that a floor must not make, and words that must not stand anywhere.
//!
//! Rules take time and randomness as arguments and do no I/O; that is what makes them simulable. The compiler cannot
//! say so, this table can.

use super::Finding;
use super::tree::{Tree, crate_of};
use crate::floors::{self, Floor};

/// Where a call may not stand, outside tests.
enum Where {
    Everywhere,
    /// Floors 0 to 2.
    LowerFloors,
    /// Floors 0 to 2 but for the crates whose traits are async.
    LowerFloorsNotAsync,
    Services,
    AllBut(&'static [&'static str]),
}

struct Ban {
    needle: &'static str,
    place: Where,
    why: &'static str,
}

const fn ban(needle: &'static str, place: Where, why: &'static str) -> Ban {
    Ban { needle, place, why }
}

const NO_IO: &str = "what decides does no I/O";
const NO_CLOCK: &str = "time is an argument on floors 0-2";
const NO_RANDOM: &str = "randomness is an argument on floors 0-2";
const NO_ASYNC: &str = "what decides does not wait";
const TELL: &str = "only the binary speaks to a terminal; use tracing";
const NO_SQL: &str = "only the namespace and the pool know SQL";
const NO_WIRE: &str = "a service knows no protocol";
const NO_CALENDAR: &str = "dates are types::DateTime";
const NO_DIGITS: &str = "hexadecimal digits are types::hex";
const NO_WATCH: &str = "files that may change are durable::WatchedFiles";
const TALKERS: &[&str] = &["forebay", "load", "sim", "xtask"];
const SQL_CRATES: &[&str] = &["namespace", "pool"];

const BANS: &[Ban] = &[
    ban(".unwrap()", Where::Everywhere, "say why it holds with expect, or return the error"),
    ban("todo!", Where::Everywhere, "unfinished"),
    ban("unimplemented!", Where::Everywhere, "unfinished"),
    ban("dbg!", Where::Everywhere, "left over"),
    ban("std::fs", Where::LowerFloors, NO_IO),
    // Addresses are values and may be named; what opens a socket may not.
    ban("TcpStream", Where::LowerFloors, NO_IO),
    ban("TcpListener", Where::LowerFloors, NO_IO),
    ban("UdpSocket", Where::LowerFloors, NO_IO),
    ban("ToSocketAddrs", Where::LowerFloors, NO_IO),
    ban("UnixStream", Where::LowerFloors, NO_IO),
    ban("UnixListener", Where::LowerFloors, NO_IO),
    ban("rustix", Where::LowerFloors, NO_IO),
    ban("tokio", Where::LowerFloors, NO_IO),
    ban("Instant::now", Where::LowerFloors, NO_CLOCK),
    ban("SystemTime::now", Where::LowerFloors, NO_CLOCK),
    ban("thread::sleep", Where::LowerFloors, NO_CLOCK),
    ban("thread::spawn", Where::LowerFloors, NO_ASYNC),
    ban("rand::", Where::LowerFloors, NO_RANDOM),
    ban("getrandom", Where::LowerFloors, NO_RANDOM),
    ban("RandomState", Where::LowerFloors, NO_RANDOM),
    ban("async fn", Where::LowerFloorsNotAsync, NO_ASYNC),
    ban(".await", Where::LowerFloors, NO_ASYNC),
    ban("println!", Where::AllBut(TALKERS), TELL),
    ban("eprintln!", Where::AllBut(TALKERS), TELL),
    ban("print!", Where::AllBut(TALKERS), TELL),
    ban("eprint!", Where::AllBut(TALKERS), TELL),
    ban("rusqlite", Where::AllBut(SQL_CRATES), NO_SQL),
    ban("tokio_postgres", Where::AllBut(SQL_CRATES), NO_SQL),
    ban("146_097", Where::Everywhere, NO_CALENDAR),
    ban("UtcDateTime", Where::AllBut(&["types"]), NO_CALENDAR),
    ban("to_digit(16)", Where::AllBut(&["types"]), NO_DIGITS),
    ban("ctime_nsec", Where::AllBut(&["durable"]), NO_WATCH),
    ban("inotify", Where::Everywhere, NO_WATCH),
    ban("nfs4::", Where::Services, NO_WIRE),
    ban("xdr::", Where::Services, NO_WIRE),
    ban("oncrpc::", Where::Services, NO_WIRE),
];

impl Where {
    fn covers(&self, krate: &str) -> bool {
        let floor = floors::floor_of(krate);
        let lower = floor.is_some_and(|floor| floor <= Floor::Rules);
        match self {
            Where::Everywhere => true,
            Where::LowerFloors => lower,
            Where::LowerFloorsNotAsync => lower && !floors::ASYNC_BELOW_SERVICES.contains(&krate),
            Where::Services => floor == Some(Floor::Service),
            Where::AllBut(these) => !these.contains(&krate),
        }
    }
}

pub fn calls(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, scan) in tree.rust() {
        let Some(krate) = crate_of(&file.path) else { continue };
        // Cargo reads what a build script prints.
        let is_script = file.path.ends_with("/build.rs");
        for ban in BANS.iter().filter(|ban| ban.place.covers(krate) && !(is_script && ban.why == TELL)) {
            for line in scan.find(ban.needle).into_iter().map(|at| scan.line_at(at)) {
                if !scan.is_test(line) {
                    findings.push(Finding::failure(
                        &file.path,
                        line,
                        format!("`{}`: {}", ban.needle, ban.why),
                    ));
                }
            }
        }
    }
    findings
}

/// Paths of one person's machine; written in halves so that this file passes its own rule.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("..", "/shared")];

pub fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for needle in MACHINE_PATHS {
            for (index, line) in file.text.lines().enumerate() {
                if line.match_indices(needle).any(|(at, _)| begins_a_path(line, at)) {
                    findings.push(Finding::failure(
                        &file.path,
                        index + 1,
                        format!("`{needle}` is one machine's own path"),
                    ));
                }
            }
        }
    }
    findings
}

/// `a/home/b` and `$D/home/b` are relative to something; only an absolute path speaks of a machine.
fn begins_a_path(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back();
    !before.is_some_and(|before| before.is_alphanumeric() || "_-.}/*>)]".contains(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> usize {
        rule(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn unfinished_and_unwrapped_code_is_caught_everywhere() {
        for call in ["a.unwrap()", "todo!()", "unimplemented!()", "dbg!(a)"] {
            assert_eq!(
                found(calls, "crates/forebay/src/main.rs", &format!("fn f() {{ {call}; }}")),
                1,
                "{call}"
            );
        }
    }

    #[test]
    fn the_clock_the_disk_and_chance_are_caught_on_the_lower_floors() {
        for call in [
            "std::fs::read(p)",
            "std::net::TcpStream::connect(a)",
            "Instant::now()",
            "std::time::SystemTime::now()",
            "rand::random()",
            "std::thread::sleep(d)",
            "tokio::spawn(t)",
        ] {
            let text = format!("fn f() {{ {call}; }}");
            assert_eq!(found(calls, "crates/nfs4-state/src/lease.rs", &text), 1, "{call}");
            assert_eq!(found(calls, "crates/pool/src/lib.rs", &text), 0, "{call}");
        }
    }

    #[test]
    fn an_address_is_a_value_and_a_socket_is_not() {
        assert_eq!(found(calls, "crates/nfs4-state/src/config.rs", "use std::net::SocketAddr;"), 0);
        assert_eq!(
            found(calls, "crates/nfs4-state/src/config.rs", "use std::net::{IpAddr, TcpListener};"),
            1
        );
    }

    #[test]
    fn an_async_function_below_the_services_stands_in_the_seams_only() {
        assert_eq!(found(calls, "crates/file-state/src/lib.rs", "async fn f() {}"), 1);
        assert_eq!(found(calls, "crates/api/src/lib.rs", "async fn f() {}"), 0);
    }

    #[test]
    fn only_the_binary_prints() {
        for call in ["println!(\"a\")", "eprintln!(\"a\")"] {
            let text = format!("fn f() {{ {call}; }}");
            assert_eq!(found(calls, "crates/namespace/src/lib.rs", &text), 1);
            assert_eq!(found(calls, "crates/forebay/src/banner.rs", &text), 0);
        }
    }

    #[test]
    fn sql_in_a_door_and_wire_types_in_a_service_are_caught() {
        assert_eq!(found(calls, "crates/door-nfs/src/lib.rs", "use rusqlite::Connection;"), 1);
        assert_eq!(found(calls, "crates/namespace/src/lib.rs", "use rusqlite::Connection;"), 0);
        assert_eq!(found(calls, "crates/pool/src/lib.rs", "use nfs4::StateId4;"), 1);
        assert_eq!(found(calls, "crates/namespace/src/lib.rs", "fn f(e: xdr::Encoder) {}"), 1);
    }

    #[test]
    fn a_second_calendar_reader_of_digits_or_watcher_of_files_is_caught() {
        for (text, home) in [
            ("fn f() { days / 146_097; }", None),
            ("fn f() { time::UtcDateTime::now(); }", Some("types")),
            ("fn f() { byte.to_digit(16); }", Some("types")),
            ("fn f() { found.ctime_nsec(); }", Some("durable")),
        ] {
            assert_eq!(found(calls, "crates/auth/src/lib.rs", text), 1, "{text}");
            if let Some(home) = home {
                assert_eq!(found(calls, &format!("crates/{home}/src/lib.rs"), text), 0, "{text}");
            }
        }
    }

    #[test]
    fn fuzz_targets_are_held_to_the_bans_as_the_product_is() {
        for text in ["fn f() { a.unwrap(); }", "fn f() { eprintln!(\"a\"); }", "use rusqlite::Connection;"] {
            for path in ["fuzz/src/world.rs", "fuzz/fuzz_targets/xdr.rs"] {
                assert_eq!(found(calls, path, text), 1, "{text} in {path}");
            }
        }
    }

    #[test]
    fn tests_and_comments_may_say_what_code_may_not() {
        let text = "// Instant::now()\n#[cfg(test)]\nmod tests { fn f() { a.unwrap(); Instant::now(); } }\n";
        assert_eq!(found(calls, "crates/types/src/lib.rs", text), 0);
    }

    #[test]
    fn a_path_of_one_machine_is_caught_in_any_file() {
        for needle in MACHINE_PATHS {
            assert_eq!(found(machine_paths, "tests/run", &format!("cd \"{needle}x\"\n")), 1, "{needle}");
        }
    }

    #[test]
    fn a_path_below_a_scratch_folder_is_not_a_machines_own() {
        assert_eq!(
            found(
                machine_paths,
                "tests/run",
                concat!("cd $D/wo", "rk/x; cd ${T}/ho", "me/y; cd a/ro", "ot/z\n")
            ),
            0
        );
    }
}
