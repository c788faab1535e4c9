//! The terminal that a process was started from, and SIGHUP, which its end sends.

use std::fs;
use std::io::IsTerminal;

/// Whether the server was started from a terminal, and not with SIGHUP ignored.
///
/// To be asked before SIGHUP gets a handler.
pub fn ends_with_terminal() -> bool {
    std::io::stdin().is_terminal() && !is_outlived()
}

/// Of a process whose standard input was a terminal: whether that was closed. Else somebody has sent SIGHUP, as to a
/// server in a container with a terminal.
pub fn is_gone() -> bool {
    !std::io::stdin().is_terminal()
}

/// Whether the process goes on without its terminal, as `nohup` arranges: bit 0 of `SigIgn` is SIGHUP.
pub fn is_outlived() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}
