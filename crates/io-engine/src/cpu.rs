//! CPU time: of requests by kind and mode, and of the threads of a lane.
//!
//! The clock of a thread costs a system call, so that short requests are measured by samples. A request has the time of
//! the thread that runs it, in the kernel too. Not in it: syncs, write-back by threads of the kernel, interrupts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use std::os::unix::thread::JoinHandleExt;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::counters::{MODE_CELLS, place_of_mode};
use crate::mode::{Kind, Mode};

/// Requests of that size are measured one by one.
const LONG_BYTES: u64 = 1 << 20;
/// Of shorter ones the first are measured one by one, and then one in so many.
const MEASURED_EACH: u64 = 256;
/// As above, of reads from the page cache.
const HOT_MEASURED_EACH: u64 = 1024;
const FIRST: u64 = 64;

/// The CPU times of the requests of one pool.
pub struct CpuCounts {
    cells: [Cell; MODE_CELLS],
    /// Short requests of each kind so far.
    short: [AtomicU64; Kind::ALL.len()],
}

#[derive(Default)]
struct Cell {
    bytes: AtomicU64,
    ns: AtomicU64,
}

/// A request that is measured, in the thread that runs it.
pub(crate) struct CpuTimer {
    began: Duration,
    /// It stands for so many.
    count: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Of the requests that were measured, each counted for those that it stands for.
    pub bytes: u64,
    /// Of the same requests.
    pub time: Duration,
}

impl Default for CpuCounts {
    fn default() -> CpuCounts {
        let cells = std::array::from_fn(|_| Cell::default());
        CpuCounts { cells, short: Default::default() }
    }
}

impl CpuCounts {
    /// `None`: this one is not measured.
    pub(crate) fn start(&self, kind: Kind, bytes: u64) -> Option<CpuTimer> {
        if bytes >= LONG_BYTES {
            return Some(CpuTimer::start(1));
        }
        let before = self.short[kind as usize].fetch_add(1, Relaxed);
        sample(before, MEASURED_EACH)
    }

    pub(crate) fn record(&self, kind: Kind, mode: Mode, bytes: u64, timer: Option<CpuTimer>) {
        let Some(CpuTimer { began, count }) = timer else { return };
        self.add(kind, mode, CpuTime { bytes, time: thread_time().saturating_sub(began) }, count);
    }

    fn add(&self, kind: Kind, mode: Mode, of_one: CpuTime, count: u64) {
        let cell = &self.cells[place_of_mode(kind, mode)];
        let ns = u64::try_from(of_one.time.as_nanos()).unwrap_or(u64::MAX);
        cell.bytes.fetch_add(of_one.bytes.saturating_mul(count), Relaxed);
        cell.ns.fetch_add(ns.saturating_mul(count), Relaxed);
    }

    pub fn time(&self, kind: Kind, mode: Mode) -> CpuTime {
        let cell = &self.cells[place_of_mode(kind, mode)];
        CpuTime { bytes: cell.bytes.load(Relaxed), time: Duration::from_nanos(cell.ns.load(Relaxed)) }
    }
}

impl CpuTimer {
    /// Of a read from the page cache, of which there were so many `before`.
    pub fn start_hot(before: u64) -> Option<CpuTimer> {
        sample(before, HOT_MEASURED_EACH)
    }

    fn start(count: u64) -> CpuTimer {
        CpuTimer { began: thread_time(), count }
    }
}

fn sample(before: u64, each: u64) -> Option<CpuTimer> {
    match before {
        0..FIRST => Some(CpuTimer::start(1)),
        // The first ones have counted for themselves.
        _ if before == each - 1 => Some(CpuTimer::start(each - FIRST)),
        _ if before % each == each - 1 => Some(CpuTimer::start(each)),
        _ => None,
    }
}

/// Of this thread since its start, in user and kernel mode.
fn thread_time() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// Of another thread that was not joined yet. Nothing, if it has ended.
pub(crate) fn time_of(thread: &JoinHandle<()>) -> Duration {
    let mut clock: libc::clockid_t = 0;
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the handle has neither been joined nor dropped, so the thread's id is valid; both calls write one value each,
    // into variables of this function. rustix has no clock of another thread.
    #[allow(unsafe_code)]
    let is_known = unsafe {
        libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut now) == 0
    };
    if is_known { duration(Timespec { tv_sec: now.tv_sec, tv_nsec: now.tv_nsec }) } else { Duration::ZERO }
}

fn duration(time: Timespec) -> Duration {
    // The kernel's times are never negative.
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn is_measured(counts: &CpuCounts, kind: Kind, bytes: u64) -> Option<u64> {
        counts.start(kind, bytes).map(|timer| timer.count)
    }

    #[test]
    fn short_requests_are_measured_by_samples_that_stand_for_all_and_long_ones_one_by_one() {
        let counts = CpuCounts::default();
        let measured: Vec<u64> = (0..512).filter_map(|_| is_measured(&counts, Kind::Write, 4096)).collect();
        assert_eq!((measured.len(), measured.iter().sum::<u64>()), (66, 512));
        assert_eq!(is_measured(&counts, Kind::Write, 4096), None);
        assert_eq!(is_measured(&counts, Kind::Write, 1 << 20), Some(1));
        assert_eq!(is_measured(&counts, Kind::Read, 4096), Some(1), "each kind has its own first ones");
        assert_eq!(CpuTimer::start_hot(2047).map(|timer| timer.count), Some(1024));
        assert!(CpuTimer::start_hot(1024).is_none());
    }

    #[test]
    fn times_and_bytes_of_kinds_and_modes_stay_apart_and_are_weighted() {
        let counts = CpuCounts::default();
        let of_one = CpuTime { bytes: 10, time: Duration::from_nanos(7) };
        counts.add(Kind::Read, Mode::Buffered, of_one, 64);
        counts.add(Kind::Read, Mode::Buffered, of_one, 1);
        counts.add(Kind::Write, Mode::Direct, of_one, 1);
        let expected = CpuTime { bytes: 650, time: Duration::from_nanos(455) };
        assert_eq!(counts.time(Kind::Read, Mode::Buffered), expected);
        assert_eq!(counts.time(Kind::Write, Mode::Direct), of_one);
        counts.record(Kind::Write, Mode::Uncached, 10, None);
        assert_eq!(counts.time(Kind::Write, Mode::Uncached), CpuTime::default());
    }

    #[test]
    fn work_of_this_and_of_another_thread_is_found_in_its_clock() {
        let work = || {
            let began = thread_time();
            while thread_time() == began {
                std::hint::spin_loop();
            }
        };
        let counts = CpuCounts::default();
        let timer = counts.start(Kind::Write, 5);
        work();
        counts.record(Kind::Write, Mode::Buffered, 5, timer);
        let measured = counts.time(Kind::Write, Mode::Buffered);
        assert!(measured.bytes == 5 && measured.time > Duration::ZERO, "{measured:?}");

        let (tell, told) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            work();
            tell.send(thread_time()).unwrap();
            let _ = wait.recv();
        });
        let seen_by_itself = told.recv().unwrap();
        assert!(time_of(&thread) >= seen_by_itself && seen_by_itself > Duration::ZERO);
        drop(end);
        thread.join().unwrap();
    }
}
