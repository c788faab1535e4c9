//! The latency and the queue of a pool's block device since the last look.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{fstat, major, minor};
use rustix::io::Errno;

use super::is_due;
use crate::system_files::SystemFiles;

/// Reads `/sys/dev/block/MAJOR:MINOR/stat`, which disks, partitions and device-mapper targets have.
///
/// A file system without a block device of its own (tmpfs, overlay, Btrfs with its device numbers per subvolume) has
/// no such file: its load is unknown.
#[derive(Debug)]
pub struct DeviceSampler {
    files: SystemFiles,
    stat_path: String,
    last: Option<(Instant, Counters)>,
    load: DeviceLoad,
}

/// Requests that the device completed between the last two looks. Empty until there were two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLoad {
    reads: u64,
    writes: u64,
    read_time: Duration,
    write_time: Duration,
    elapsed: Duration,
}

/// As the kernel counts since the device appeared: Documentation/block/stat.rst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counters {
    reads: u64,
    read_ms: u64,
    writes: u64,
    write_ms: u64,
}

impl DeviceSampler {
    /// Looks at the device of the file system that `dir` lies in.
    pub fn new(files: SystemFiles, dir: impl AsFd) -> Result<DeviceSampler, Errno> {
        let device = fstat(dir)?.st_dev;
        Ok(DeviceSampler::of_device(files, major(device), minor(device)))
    }

    fn of_device(files: SystemFiles, major: u32, minor: u32) -> DeviceSampler {
        let stat_path = format!("sys/dev/block/{major}:{minor}/stat");
        DeviceSampler { files, stat_path, last: None, load: DeviceLoad::default() }
    }

    pub fn sample(&mut self, now: Instant) -> DeviceLoad {
        if is_due(self.last.map(|(at, _)| at), now) {
            let counters = self.files.read(&self.stat_path).and_then(|text| Counters::parse(&text));
            self.load = match (self.last, counters) {
                (Some((at, before)), Some(after)) => {
                    after.since(before, now.saturating_duration_since(at)).unwrap_or_default()
                }
                _ => DeviceLoad::default(),
            };
            self.last = counters.map(|counters| (now, counters));
        }
        self.load
    }
}

impl DeviceLoad {
    /// Mean time of a read, its wait in the queue included. `None`: no read was completed.
    pub fn read_latency(&self) -> Option<Duration> {
        mean(self.read_time, self.reads)
    }

    /// As `read_latency`, of a write.
    pub fn write_latency(&self) -> Option<Duration> {
        mean(self.write_time, self.writes)
    }

    /// Mean time of a request of either kind.
    pub fn latency(&self) -> Option<Duration> {
        mean(self.read_time + self.write_time, self.reads + self.writes)
    }

    /// Reads and writes that the device had at a time, on average. Discards and flushes do not count. `None`: unknown.
    pub fn queue_depth(&self) -> Option<f64> {
        let is_known = !self.elapsed.is_zero();
        is_known.then(|| (self.read_time + self.write_time).as_secs_f64() / self.elapsed.as_secs_f64())
    }
}

fn mean(time: Duration, requests: u64) -> Option<Duration> {
    (requests > 0).then(|| Duration::from_secs_f64(time.as_secs_f64() / requests as f64))
}

impl Counters {
    fn parse(text: &str) -> Option<Counters> {
        let fields: Vec<u64> =
            text.split_ascii_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        match fields[..] {
            [reads, _, _, read_ms, writes, _, _, write_ms] => {
                Some(Counters { reads, read_ms, writes, write_ms })
            }
            _ => None,
        }
    }

    /// `None`: a counter went backward, because it wrapped or because another device has this number now.
    fn since(self, before: Counters, elapsed: Duration) -> Option<DeviceLoad> {
        let time = |after: u64, before: u64| Some(Duration::from_millis(after.checked_sub(before)?));
        Some(DeviceLoad {
            reads: self.reads.checked_sub(before.reads)?,
            writes: self.writes.checked_sub(before.writes)?,
            read_time: time(self.read_ms, before.read_ms)?,
            write_time: time(self.write_ms, before.write_ms)?,
            elapsed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_files::invented::InventedFiles;

    const STAT: &str = "sys/dev/block/8:1/stat";

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn latencies_and_depth_are_of_the_time_between_two_looks() {
        let invented = InventedFiles::new().with(STAT, "100 0 800 1000 50 0 400 9000 3 0 0 0 0 0 0 0 0\n");
        let mut sampler = DeviceSampler::of_device(invented.files(), 8, 1);
        let start = Instant::now();
        assert_eq!(sampler.sample(start), DeviceLoad::default());
        assert_eq!(sampler.sample(start).queue_depth(), None);
        invented.write(STAT, "110 0 800 1020 54 0 400 11000 3 0 0 0 0 0 0 0 0\n");
        let load = sampler.sample(after(start, 2000));
        assert_eq!(load.read_latency(), Some(Duration::from_millis(2)));
        assert_eq!(load.write_latency(), Some(Duration::from_millis(500)));
        assert_eq!(load.latency(), Some(Duration::from_secs_f64(2.020 / 14.0)));
        assert_eq!(load.queue_depth(), Some(1.01));
    }

    #[test]
    fn an_idle_device_has_no_latency_and_an_empty_queue() {
        let invented = InventedFiles::new().with(STAT, "1 0 8 1 5 0 4 9 0 0 0\n");
        let mut sampler = DeviceSampler::of_device(invented.files(), 8, 1);
        let start = Instant::now();
        sampler.sample(start);
        let load = sampler.sample(after(start, 1000));
        assert_eq!((load.read_latency(), load.write_latency(), load.latency()), (None, None, None));
        assert_eq!(load.queue_depth(), Some(0.0));
    }

    #[test]
    fn it_looks_at_most_once_in_an_interval() {
        let invented = InventedFiles::new().with(STAT, "1 0 8 1 5 0 4 9\n");
        let mut sampler = DeviceSampler::of_device(invented.files(), 8, 1);
        let start = Instant::now();
        sampler.sample(start);
        let known = sampler.sample(after(start, 1000));
        invented.write(STAT, "2 0 8 2 5 0 4 9\n");
        assert_eq!(sampler.sample(after(start, 1999)), known);
        assert_eq!(sampler.sample(after(start, 2000)).read_latency(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_counter_that_goes_backward_or_a_device_that_vanishes_is_unknown() {
        let invented = InventedFiles::new().with(STAT, "100 0 8 100 5 0 4 9\n");
        let mut sampler = DeviceSampler::of_device(invented.files(), 8, 1);
        let start = Instant::now();
        sampler.sample(start);
        invented.write(STAT, "1 0 8 1 5 0 4 9\n");
        assert_eq!(sampler.sample(after(start, 1000)), DeviceLoad::default());
        for damaged in ["", "1 2 3 4 5 6 7\n", "1 x 3 4 5 6 7 8\n", "-1 2 3 4 5 6 7 8\n"] {
            invented.write(STAT, damaged);
            assert_eq!(sampler.sample(after(start, 2000)), DeviceLoad::default(), "{damaged:?}");
        }
        let mut none = DeviceSampler::of_device(invented.files(), 0, 45);
        assert_eq!(none.sample(start), DeviceLoad::default());
        assert_eq!(none.sample(after(start, 5000)), DeviceLoad::default());
    }

    #[test]
    fn the_device_of_a_real_directory_is_found_or_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let open = std::fs::File::open(dir.path()).unwrap();
        let mut sampler = DeviceSampler::new(SystemFiles::default(), &open).unwrap();
        let start = Instant::now();
        sampler.sample(start);
        let load = sampler.sample(after(start, 1000));
        assert!(load.queue_depth().is_none_or(|depth| depth >= 0.0));
    }
}
