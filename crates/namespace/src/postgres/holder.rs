//! Which process has the namespace, noted in the database: a head that finds that the one before it is dead need not wait
//! until that one's memory is out of date.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Keys of `meta`.
pub const KEYS: [&str; 3] = ["holder_machine", "holder_began", "holder_process"];

/// Heads of this process. Leaf lock.
static HERE: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
static LAST: AtomicU32 = AtomicU32::new(0);

/// A head of this process, while it lives.
pub struct Seat {
    number: u32,
}

impl Seat {
    pub fn take() -> Seat {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        HERE.lock().insert(number);
        Seat { number }
    }

    /// As `KEYS`; zeros, of which nobody can tell whether it lives, where the system does not say.
    pub fn notes(&self) -> [i64; 3] {
        let known = || {
            let process = i64::from(process::id()) << 32 | i64::from(self.number);
            Some([machine()?, began(process::id())?, process])
        };
        known().unwrap_or_default()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        HERE.lock().remove(&self.number);
    }
}

/// Whether the head that noted this is certainly no more.
pub fn is_dead([of_machine, of_began, process]: [i64; 3]) -> bool {
    if of_machine == 0 || machine() != Some(of_machine) {
        return false;
    }
    let (Ok(pid), number) = (u32::try_from(process >> 32), process as u32) else { return false };
    match began(pid) {
        Some(found) if found == of_began => pid == process::id() && !HERE.lock().contains(&number),
        // Another process has its number.
        Some(_) => true,
        // Not shown, which may be as it is another user's (`hidepid`).
        None => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
        }
    }
}

/// This machine since it was started, as far as process ids mean the same.
fn machine() -> Option<i64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.replace('-', "");
    let boot = u64::from_str_radix(boot.get(..16)?, 16).ok()?;
    Some((boot ^ fs::metadata("/proc/self/ns/pid").ok()?.ino()).cast_signed())
}

/// When the process began, in the system's own unit; field 22 of proc_pid_stat(5), behind a name with any characters.
fn began(pid: u32) -> Option<i64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_dead_when_its_process_is_or_it_has_ended_in_this_one() {
        let seat = Seat::take();
        let notes = seat.notes();
        assert!(!is_dead(notes), "it is here");
        drop(seat);
        assert!(is_dead(notes));
        let [machine, began, process] = notes;
        assert!(!is_dead([machine + 1, began, process]), "of another machine nothing is known");
        assert!(is_dead([machine, began + 1, process]), "its number was given again");
        assert!(!is_dead([0; 3]));
        let mut child = process::Command::new("sleep").arg("100").spawn().unwrap();
        let of_child = [machine, super::began(child.id()).unwrap(), i64::from(child.id()) << 32];
        assert!(!is_dead(of_child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_dead(of_child));
    }
}
