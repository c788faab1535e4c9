//! Figures that the system has of this process, for `/metrics`.
//!
//! A unit may hide most of `/proc` (`ProcSubset=pid`), so only files below `/proc/self` are read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin::instance::ProcessView;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Counts the open descriptors one by one: to be called where it may block.
pub fn view() -> ProcessView {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Stat { threads, start, virtual_bytes, resident_bytes } = Stat::parse(&stat).unwrap_or_default();
    ProcessView {
        cpu_seconds: Some(duration(clock_gettime(ClockId::ProcessCPUTime)).as_secs_f64()),
        // One of them is for the counting.
        open_fds: std::fs::read_dir("/proc/self/fd").ok().map(|open| (open.count() as u64).saturating_sub(1)),
        max_fds: Some(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)),
        resident_bytes,
        virtual_bytes,
        threads,
        start_seconds: start.and_then(|ticks| since_1970(Duration::from_secs_f64(ticks))),
    }
}

/// Of /proc/self/stat. `start`: seconds since the system was booted.
#[derive(Debug, Default, PartialEq)]
struct Stat {
    threads: Option<u64>,
    start: Option<f64>,
    virtual_bytes: Option<u64>,
    resident_bytes: Option<u64>,
}

impl Stat {
    /// proc_pid_stat(5). The name in parentheses may have spaces and parentheses in it.
    fn parse(stat: &str) -> Option<Stat> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // The first field behind the name is the third of all.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            threads: field(20),
            start: field(22).map(|ticks| ticks as f64 / clock_ticks_per_second() as f64),
            virtual_bytes: field(23),
            resident_bytes: field(24).map(|pages| pages * page_size() as u64),
        })
    }
}

/// From a time since the boot, by how long that is ago.
fn since_1970(since_boot: Duration) -> Option<f64> {
    let running = duration(clock_gettime(ClockId::Boottime)).checked_sub(since_boot)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.checked_sub(running)?.as_secs_f64())
}

fn duration(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_a_name_with_spaces_and_parentheses() {
        let numbers: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let stat = Stat::parse(&format!("7 (a) b (c)) S {}", numbers.join(" "))).unwrap();
        assert_eq!((stat.threads, stat.virtual_bytes), (Some(20), Some(23)));
        assert_eq!(stat.resident_bytes, Some(24 * page_size() as u64));
        assert_eq!(stat.start, Some(22.0 / clock_ticks_per_second() as f64));
        assert_eq!(Stat::parse("nothing"), None);
        assert_eq!(Stat::parse("7 (a) S 1").unwrap(), Stat::default());
    }

    #[test]
    fn this_process_has_memory_descriptors_threads_and_a_start() {
        let files: Vec<_> = (0..10).map(|_| tempfile::tempfile().unwrap()).collect();
        let view = view();
        assert!(view.open_fds.unwrap() >= files.len() as u64 + 3 && view.open_fds < view.max_fds, "{view:?}");
        assert!(
            view.resident_bytes.unwrap() > 100_000 && view.virtual_bytes > view.resident_bytes,
            "{view:?}"
        );
        assert!(view.threads.unwrap() > 0 && view.cpu_seconds.unwrap() > 0.0, "{view:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - view.start_seconds.unwrap();
        assert!((-1.0..86_400.0).contains(&age), "{age}");
    }
}
