//! The measurement: which series of requests run, in which order, and when they stop.
//!
//! Modes take turns: all modes of one size and access run one after the other, another mode first each time, and the
//! whole is repeated. A machine that is busy for a while thus hurts all modes alike. Of each cost the lower quartile counts: other
//! work only adds to a cost.
//!
//! Bounds: `DISK_BYTES_MAX` and 1 % of the free space; `TIME_MAX`, which only a series that takes longer than every one
//! before it can exceed. One thread; a pause after each block of series; cancelled between two requests.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::cost::{Access, Cost, Costs, SIZES};
use super::{Control, Stopped};
use crate::mode::Mode;

pub const DISK_BYTES_MAX: u64 = 256 << 20;
pub const TIME_MAX: Duration = Duration::from_secs(20);
const FILL_TIME_MAX: Duration = Duration::from_secs(4);
const FILL_CHUNK_BYTES: u64 = 4 << 20;
const READ_BYTES_MIN: u64 = 16 << 20;
const READ_BYTES_MAX: u64 = 128 << 20;
const SERIES_TIME_MAX: Duration = Duration::from_millis(30);
const SERIES_BYTES: u64 = 4 << 20;
const SERIES_LEN_MIN: u64 = 2;
const SERIES_LEN_MAX: u64 = 128;
/// Two of the largest requests.
const WRITE_BYTES_MAX: u64 = SIZES[SIZES.len() - 1] * SERIES_LEN_MIN;
const TURNS_MAX: u64 = 7;
/// Fewer tell nothing.
const TURNS_MIN: usize = 3;
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Requests to a device, and the clocks that time them. Tests invent both.
pub trait Probe {
    /// The modes that can be measured; `Buffered` is one of them.
    fn modes(&self) -> Vec<Mode>;

    fn now(&self) -> Instant;

    /// CPU time of this thread.
    fn cpu(&self) -> Duration;

    fn pause(&mut self, time: Duration);

    /// Extends the file that is read. The bytes are on disk and not in the page cache when this returns.
    fn fill(&mut self, offset: u64, length: u64) -> Result<(), Errno>;

    /// Empties the file that is written, or drops the pages of the one that is read. Not timed.
    fn begin(&mut self, series: &Series) -> Result<(), Errno>;

    fn operate(&mut self, series: &Series, offset: u64) -> Result<(), Errno>;

    /// Brings to disk what the series has written. Timed.
    fn settle(&mut self, series: &Series) -> Result<(), Errno>;
}

/// Requests of one kind, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    pub access: Access,
    pub mode: Mode,
    pub request_bytes: u64,
    len: u64,
    /// Differs between all series of an access and a size, so that none reads what another has read just before.
    position: u64,
}

/// The sizes of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// A power of two.
    read_bytes: u64,
}

impl Plan {
    /// `None`: too little is free.
    pub fn within(free_bytes: u64) -> Option<Plan> {
        let budget_bytes = DISK_BYTES_MAX.min(free_bytes / 100);
        Plan::of(budget_bytes.saturating_sub(WRITE_BYTES_MAX))
    }

    fn of(bytes: u64) -> Option<Plan> {
        let read_bytes = 1 << bytes.min(READ_BYTES_MAX).checked_ilog2()?;
        (read_bytes >= READ_BYTES_MIN).then_some(Plan { read_bytes })
    }
}

impl Series {
    fn offset(&self, index: u64, read_bytes: u64) -> u64 {
        let slots = read_bytes / self.request_bytes;
        match self.access {
            Access::Write => index * self.request_bytes,
            Access::ReadSequential => (self.position * self.len + index) % slots * self.request_bytes,
            Access::ReadRandom => scattered(self.position * self.len + index, slots) * self.request_bytes,
        }
    }
}

/// A permutation of the numbers below `slots`, a power of two: each step can be undone. Neighbours come out far apart.
fn scattered(index: u64, slots: u64) -> u64 {
    let (mask, bits) = (slots - 1, slots.trailing_zeros());
    let mut slot = index & mask;
    for _ in 0..2 {
        slot = slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
        slot ^= slot >> bits.div_ceil(2);
    }
    slot
}

/// Runs the measurement. Blocks for up to `TIME_MAX`.
pub fn measure(probe: &mut impl Probe, control: &Control<'_>, plan: Plan) -> Result<Costs, Stopped> {
    let (started, modes) = (probe.now(), probe.modes());
    assert!(modes.contains(&Mode::Buffered), "buffered is always possible");
    let mut run = Run { probe, control, started, modes, longest: Duration::ZERO, samples: HashMap::new() };
    let plan = run.fill(plan)?;
    'turns: for turn in 0..TURNS_MAX {
        for (index, request_bytes) in (0..).zip(SIZES) {
            for access in Access::ALL {
                if !run.block(access, request_bytes, turn, index, plan)? {
                    break 'turns;
                }
            }
        }
    }
    run.costs()
}

struct Run<'a, P> {
    probe: &'a mut P,
    control: &'a Control<'a>,
    started: Instant,
    /// Those that have not failed so far.
    modes: Vec<Mode>,
    /// The longest series, preparation included: no series begins that could end too late.
    longest: Duration,
    samples: HashMap<(Access, Mode, u64), Vec<Sample>>,
}

#[derive(Clone, Copy)]
struct Sample {
    wall_ns: u64,
    cpu_ns: u64,
}

impl<P: Probe> Run<'_, P> {
    /// The plan that was filled in time.
    fn fill(&mut self, plan: Plan) -> Result<Plan, Stopped> {
        let mut filled_bytes = 0;
        while filled_bytes < plan.read_bytes {
            self.check()?;
            self.probe.fill(filled_bytes, FILL_CHUNK_BYTES).map_err(stopped)?;
            filled_bytes += FILL_CHUNK_BYTES;
            if self.since(self.started) > FILL_TIME_MAX {
                break;
            }
            self.probe.pause(PAUSE_MIN);
        }
        Plan::of(filled_bytes).ok_or(Stopped::OutOfTime)
    }

    /// Series of all modes. `false`: there is no time left.
    fn block(
        &mut self,
        access: Access,
        request_bytes: u64,
        turn: u64,
        index: u64,
        plan: Plan,
    ) -> Result<bool, Stopped> {
        let begun = self.probe.now();
        let mut modes = self.modes.clone();
        modes.rotate_left((turn + index) as usize % self.modes.len());
        let len = (SERIES_BYTES / request_bytes).clamp(SERIES_LEN_MIN, SERIES_LEN_MAX);
        for mode in modes {
            self.check()?;
            if self.since(self.started) + self.longest + PAUSE_MAX > TIME_MAX {
                return Ok(false);
            }
            let position = turn * Mode::ALL.len() as u64 + mode as u64;
            let series = Series { access, mode, request_bytes, len, position };
            match self.series(&series, plan) {
                Err(SeriesError::Failed(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS))
                    if mode != Mode::Buffered =>
                {
                    tracing::info!(mode = mode.label(), request_bytes, "file system refuses a mode of I/O");
                    self.modes.retain(|known| *known != mode);
                    self.samples.retain(|(_, known, _), _| *known != mode);
                }
                Err(SeriesError::Failed(errno)) => return Err(stopped(errno)),
                Err(SeriesError::Stopped(stopped)) => return Err(stopped),
                Ok(sample) => {
                    self.samples.entry((access, mode, request_bytes)).or_default().push(sample);
                }
            }
        }
        let pause = self.since(begun) / 4;
        self.probe.pause(pause.clamp(PAUSE_MIN, PAUSE_MAX));
        Ok(true)
    }

    fn series(&mut self, series: &Series, plan: Plan) -> Result<Sample, SeriesError> {
        let begun = self.probe.now();
        self.probe.begin(series)?;
        let (wall, cpu) = (self.probe.now(), self.probe.cpu());
        let mut requests = 0;
        while requests < series.len && (requests == 0 || self.since(wall) < SERIES_TIME_MAX) {
            if self.control.cancel.is_cancelled() {
                return Err(SeriesError::Stopped(Stopped::Cancelled));
            }
            self.probe.operate(series, series.offset(requests, plan.read_bytes))?;
            requests += 1;
        }
        self.probe.settle(series)?;
        let (wall, cpu) = (self.since(wall), self.probe.cpu().saturating_sub(cpu));
        self.longest = self.longest.max(self.since(begun));
        let each_ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / requests;
        Ok(Sample { wall_ns: each_ns(wall).max(1), cpu_ns: each_ns(cpu) })
    }

    fn check(&self) -> Result<(), Stopped> {
        if self.control.cancel.is_cancelled() {
            return Err(Stopped::Cancelled);
        }
        if (self.control.is_busy)() {
            return Err(Stopped::Busy);
        }
        Ok(())
    }

    fn since(&self, earlier: Instant) -> Duration {
        self.probe.now().saturating_duration_since(earlier)
    }

    fn costs(mut self) -> Result<Costs, Stopped> {
        let mut costs = Vec::new();
        for access in Access::ALL {
            for mode in &self.modes {
                for request_bytes in SIZES {
                    let samples = self.samples.remove(&(access, *mode, request_bytes)).unwrap_or_default();
                    if samples.len() < TURNS_MIN {
                        return Err(Stopped::OutOfTime);
                    }
                    let wall_ns = lower_quartile(samples.iter().map(|sample| sample.wall_ns));
                    let cpu_ns = lower_quartile(samples.iter().map(|sample| sample.cpu_ns));
                    costs.push(Cost { access, mode: *mode, request_bytes, wall_ns, cpu_ns });
                }
            }
        }
        // Only a clock that is wrong makes a cost absurd.
        Costs::try_from(costs).map_err(|_| Stopped::OutOfTime)
    }
}

enum SeriesError {
    Failed(Errno),
    Stopped(Stopped),
}

impl From<Errno> for SeriesError {
    fn from(errno: Errno) -> SeriesError {
        SeriesError::Failed(errno)
    }
}

fn stopped(errno: Errno) -> Stopped {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Stopped::NoSpace,
        errno => Stopped::Io(errno.into()),
    }
}

fn lower_quartile(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values[values.len() / 4]
}

#[cfg(test)]
mod tests;
