//! The terminal that a process was started from, and SIGHUP, which its end sends.

use std::fs;
use std::io::IsTerminal;

/// Whether SIGHUP ends the server and does not have it read its configuration again. Standard input decides: a
/// container with a terminal for its output, or a unit with `StandardOutput=tty`, was not started from there.
///
/// To be asked before SIGHUP gets a handler.
pub fn ends_at_hangup() -> bool {
    std::io::stdin().is_terminal() && !is_outlived()
}

/// Whether the process goes on without its terminal, as `nohup` arranges: bit 0 of `SigIgn` is SIGHUP.
pub fn is_outlived() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}
