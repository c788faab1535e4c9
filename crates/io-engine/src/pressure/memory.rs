//! Whether memory is short. The page cache fills whatever memory it gets, so a full control group alone is not short of
//! memory; stalls of its tasks and memory that cannot be reclaimed are.
//!
//! | shortage | begins | ends |
//! |---|---|---|
//! | stalls | `some avg10` ≥ 10 % | < 5 % |
//! | pinned | memory that cannot be reclaimed ≥ 95 % of the limit | < 90 % |
//! | reclaim | all memory ≥ 95 % of the limit and `some avg10` ≥ 1 % | < 90 % or < 0.5 % |
//! | available | `MemAvailable` ≤ 5 % of the machine | > 10 % |
//!
//! The first row that holds is the reason. 95 % of the limit is the paper's (FAST '24); the other levels are choices.
//! Stalls are those of the own control group if it tells them, because another group that stalls at its own limit takes
//! nothing from this one; else those of the machine. A stall that the kernel has for want of memory counts in both.

use std::time::Instant;

use super::control_group::{ControlGroup, percent};
use super::{dirty, is_due};
use crate::system_files::{SystemFiles, value_of};

#[derive(Debug)]
pub struct MemorySampler {
    files: SystemFiles,
    looked_at: Option<Instant>,
    memory: Memory,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub shortage: Option<Shortage>,
    /// Bytes that may become dirty before the kernel makes writers wait. `None`: unknown.
    pub dirty_headroom_bytes: Option<u64>,
}

/// Why memory is tight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Tasks wait for memory.
    Stalls,
    /// The control group is full of memory that cannot be reclaimed.
    Pinned,
    /// The control group is full, and tasks begin to wait for its reclaim.
    Reclaim,
    /// The machine has little memory left.
    Available,
}

impl Memory {
    pub fn is_tight(&self) -> bool {
        self.shortage.is_some()
    }
}

impl Shortage {
    /// The order of the table above.
    pub const ALL: [Shortage; 4] =
        [Shortage::Stalls, Shortage::Pinned, Shortage::Reclaim, Shortage::Available];

    pub fn label(self) -> &'static str {
        match self {
            Shortage::Stalls => "stalls",
            Shortage::Pinned => "pinned",
            Shortage::Reclaim => "reclaim",
            Shortage::Available => "available",
        }
    }
}

impl MemorySampler {
    pub fn new(files: SystemFiles) -> MemorySampler {
        MemorySampler { files, looked_at: None, memory: Memory::default() }
    }

    pub fn sample(&mut self, now: Instant) -> Memory {
        if is_due(self.looked_at, now) {
            self.looked_at = Some(now);
            self.memory = self.look();
        }
        self.memory
    }

    fn look(&self) -> Memory {
        let group = ControlGroup::read(&self.files);
        let meminfo = self.files.read("proc/meminfo").unwrap_or_default();
        let dirty_headroom_bytes = dirty::headroom_bytes(&self.files, &meminfo, &group);
        let reading = Reading::new(&self.files, &meminfo, &group);
        Memory { shortage: reading.shortage(self.memory.shortage), dirty_headroom_bytes }
    }
}

/// Percentages of one look; an unknown one is that of a machine with plenty.
#[derive(Clone, Copy, Debug)]
struct Reading {
    stalls: f64,
    pinned: f64,
    used: f64,
    available: f64,
}

impl Reading {
    fn new(files: &SystemFiles, meminfo: &str, group: &ControlGroup) -> Reading {
        let own = group.stalls.as_deref().and_then(some_avg10);
        let stalls = own.or_else(|| some_avg10(&files.read("proc/pressure/memory")?));
        let available = value_of(meminfo, "MemAvailable:").zip(value_of(meminfo, "MemTotal:"));
        Reading {
            stalls: stalls.unwrap_or(0.0),
            pinned: group.tightest.map_or(0.0, |usage| usage.unreclaimable_percent()),
            used: group.tightest.map_or(0.0, |usage| usage.used_percent()),
            available: available.map_or(100.0, |(available, total)| percent(available, total)),
        }
    }

    fn shortage(self, before: Option<Shortage>) -> Option<Shortage> {
        Shortage::ALL.into_iter().find(|shortage| self.has(*shortage, before == Some(*shortage)))
    }

    /// A shortage that held at the last look ends later than it begins.
    fn has(self, shortage: Shortage, held: bool) -> bool {
        let level = |begins: f64, ends: f64| if held { ends } else { begins };
        match shortage {
            Shortage::Stalls => self.stalls >= level(10.0, 5.0),
            Shortage::Pinned => self.pinned >= level(95.0, 90.0),
            Shortage::Reclaim => self.used >= level(95.0, 90.0) && self.stalls >= level(1.0, 0.5),
            Shortage::Available => self.available <= level(5.0, 10.0),
        }
    }
}

/// From a file as Documentation/accounting/psi.rst has it: `some avg10=0.12 avg60=0.00 avg300=0.00 total=345`.
fn some_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    value.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::system_files::invented::InventedFiles;

    const GROUP: &str = "sys/fs/cgroup/pool";

    fn machine() -> InventedFiles {
        InventedFiles::new().with("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n")
    }

    fn stalls(percent: &str) -> String {
        format!("some avg10={percent} avg60=90.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0.00\n")
    }

    /// A group with a limit of 1,000 bytes.
    fn grouped(used: u64, clean: u64) -> InventedFiles {
        machine()
            .with("sys/fs/cgroup/cgroup.controllers", "memory")
            .with("proc/self/cgroup", "0::/pool\n")
            .with(&format!("{GROUP}/memory.max"), "1000")
            .with(&format!("{GROUP}/memory.current"), &used.to_string())
            .with(
                &format!("{GROUP}/memory.stat"),
                &format!("inactive_file {clean}\nactive_file 0\nfile_dirty 0\nfile_writeback 0\n"),
            )
    }

    /// The shortages that a sampler sees in steps of a second, each after a change.
    fn shortages(invented: &InventedFiles, changes: &[(&str, String)]) -> Vec<Option<Shortage>> {
        let mut sampler = MemorySampler::new(invented.files());
        let mut now = Instant::now();
        let mut look = |(path, text): &(&str, String)| {
            invented.write(path, text);
            now += Duration::from_secs(1);
            sampler.sample(now).shortage
        };
        changes.iter().map(&mut look).collect()
    }

    #[test]
    fn a_group_that_the_page_cache_fills_is_not_tight() {
        let full = grouped(1000, 900);
        let mut sampler = MemorySampler::new(full.files());
        assert_eq!(sampler.sample(Instant::now()).shortage, None);
    }

    #[test]
    fn a_full_group_is_tight_once_its_tasks_wait_for_reclaim() {
        let full = grouped(1000, 900);
        let path = format!("{GROUP}/memory.pressure");
        let steps = ["0.90", "1.00", "0.60", "0.40", "0.60"].map(|percent| (path.as_str(), stalls(percent)));
        let reclaim = Some(Shortage::Reclaim);
        assert_eq!(shortages(&full, &steps), [None, reclaim, reclaim, None, None]);
    }

    #[test]
    fn stalls_make_memory_tight_and_end_at_a_lower_level() {
        let steps = ["9.99", "10.00", "5.01", "4.99", "9.00", "60.00"]
            .map(|percent| ("proc/pressure/memory", stalls(percent)));
        let held = Some(Shortage::Stalls);
        assert_eq!(shortages(&machine(), &steps), [None, held, held, None, None, held]);
    }

    #[test]
    fn memory_that_cannot_be_reclaimed_makes_a_group_tight() {
        let path = format!("{GROUP}/memory.current");
        let steps = [949, 950, 910, 899, 940].map(|used| (path.as_str(), used.to_string()));
        let held = Some(Shortage::Pinned);
        assert_eq!(shortages(&grouped(0, 0), &steps), [None, held, held, None, None]);
    }

    #[test]
    fn little_available_memory_is_tight_without_a_group() {
        let steps = [51, 50, 99, 101, 60]
            .map(|kib| ("proc/meminfo", format!("MemTotal: 1000 kB\nMemAvailable: {kib} kB\n")));
        let held = Some(Shortage::Available);
        assert_eq!(shortages(&machine(), &steps), [None, held, held, None, None]);
    }

    #[test]
    fn stalls_of_another_group_do_not_count_if_the_own_one_tells() {
        let invented = grouped(10, 0).with("proc/pressure/memory", &stalls("80.00"));
        let path = format!("{GROUP}/memory.pressure");
        assert_eq!(shortages(&invented, &[(&path, stalls("0.00"))]), [None]);
        assert_eq!(shortages(&invented, &[(&path, "damaged".to_owned())]), [Some(Shortage::Stalls)]);
    }

    #[test]
    fn it_looks_at_most_once_in_an_interval() {
        let invented = machine().with("proc/pressure/memory", &stalls("0.00"));
        let mut sampler = MemorySampler::new(invented.files());
        let start = Instant::now();
        assert!(!sampler.sample(start).is_tight());
        invented.write("proc/pressure/memory", &stalls("50.00"));
        assert!(!sampler.sample(start + Duration::from_millis(999)).is_tight());
        assert!(sampler.sample(start + Duration::from_secs(1)).is_tight());
        assert!(sampler.sample(start).is_tight(), "an earlier time is no new look");
    }

    #[test]
    fn nothing_to_read_is_plenty_and_an_unknown_headroom() {
        let mut sampler = MemorySampler::new(InventedFiles::new().files());
        assert_eq!(sampler.sample(Instant::now()), Memory::default());
        for damaged in ["", "some", "some avg10=", "some avg10=-1", "some avg10=NaN", "some avg10=1e9"] {
            assert_eq!(some_avg10(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let memory = MemorySampler::new(SystemFiles::default()).sample(Instant::now());
        assert!(memory.dirty_headroom_bytes.is_some(), "Linux has /proc/meminfo and /proc/sys/vm");
    }
}
