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

/// Whether a shell with job control, as a person has it, has started this process: then it leads a process group of its
/// own, and not the session. The first process of a container leads the session, is a child of process 1, or runs a
/// script, whose commands are in the group of the script.
pub fn is_job() -> bool {
    // Not by getsid(2) and getpgid(2) of the library: both are 0 where the leader is in another PID namespace.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Lineage::of_stat(&stat).is_some_and(|lineage| lineage.is_job())
}

struct Lineage {
    process: u32,
    parent: u32,
    group: u32,
    session: u32,
}

impl Lineage {
    /// Of a line of proc_pid_stat(5). The name of the program is in parentheses, and may have any character.
    fn of_stat(stat: &str) -> Option<Lineage> {
        let process = stat.split_once(' ')?.0.parse().ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1).map(|field| field.parse().ok());
        let mut next = || fields.next().flatten();
        Some(Lineage { process, parent: next()?, group: next()?, session: next()? })
    }

    fn is_job(&self) -> bool {
        self.group == self.process && self.session != self.process && self.parent > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_of_a_shell_with_job_control_is_one() {
        let is_job = |stat: &str| Lineage::of_stat(stat).is_some_and(|lineage| lineage.is_job());
        assert!(is_job("40 (fore) bay) S 30 40 30 34816 40 4194304"));
        for (stat, case) in [
            ("40 (forebay) S 30 40 40 34816 40 0", "leads the session"),
            ("40 (forebay) S 1 40 1 34816 40 0", "child of the first process"),
            ("40 (forebay) S 30 30 30 34816 30 0", "command of a script"),
            ("1 (forebay) S 0 0 0 0 -1 0", "first process, leaders in another PID namespace"),
            ("", "no /proc"),
        ] {
            assert!(!is_job(stat), "{case}");
        }
        assert!(Lineage::of_stat(&fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }
}
