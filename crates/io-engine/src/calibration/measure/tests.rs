//! The order, the bounds and the result of a measurement, on invented devices with a clock of their own.

use std::cell::Cell;
use std::collections::HashSet;

use super::super::Cancel;
use super::super::fit::thresholds;
use super::*;
use crate::mode::Crossover;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A device whose costs are a function, with a clock of its own.
struct Invented {
    now: Instant,
    cost: Box<dyn Fn(&Series) -> Duration>,
    fill_time: Duration,
    settle_time: Duration,
    /// Costs vary by so many percent in both directions.
    noise_percent: u64,
    state: u64,
    refuses: Option<(Mode, u64, Errno)>,
    read_bytes: u64,
    disk_bytes_max: u64,
    paused: Duration,
    begun: Vec<Series>,
}

impl Invented {
    fn new(ns_per_kib: impl Fn(&Series) -> u64 + 'static) -> Invented {
        let cost =
            move |series: &Series| Duration::from_nanos(ns_per_kib(series) * series.request_bytes / KIB);
        Invented {
            now: Instant::now(),
            cost: Box::new(cost),
            fill_time: Duration::from_millis(4),
            settle_time: Duration::ZERO,
            noise_percent: 0,
            state: 1,
            refuses: None,
            read_bytes: 0,
            disk_bytes_max: 0,
            paused: Duration::ZERO,
            begun: Vec::new(),
        }
    }

    fn direct_from_32_kib() -> Invented {
        Invented::new(|series| match series.mode {
            Mode::Buffered => 1000,
            Mode::Uncached => 1500,
            Mode::Direct if series.request_bytes >= 32 * KIB => 400,
            Mode::Direct => 4000,
        })
    }

    fn noisy(self, noise_percent: u64, seed: u64) -> Invented {
        Invented { noise_percent, state: seed, ..self }
    }

    fn passes(&mut self, time: Duration) {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let percent = 100 - self.noise_percent + (self.state >> 33) % (2 * self.noise_percent + 1);
        self.now += time * percent as u32 / 100;
    }

    fn occupies(&mut self, written_bytes: u64) {
        self.disk_bytes_max = self.disk_bytes_max.max(self.read_bytes + written_bytes);
    }
}

impl Probe for Invented {
    fn modes(&self) -> Vec<Mode> {
        Mode::ALL.to_vec()
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn cpu(&self) -> Duration {
        Duration::ZERO
    }

    fn pause(&mut self, time: Duration) {
        self.paused += time;
        self.now += time;
    }

    fn fill(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        assert_eq!(offset, self.read_bytes, "the file has no holes");
        self.read_bytes += length;
        self.occupies(0);
        self.passes(self.fill_time);
        Ok(())
    }

    fn begin(&mut self, series: &Series) -> Result<(), Errno> {
        self.begun.push(*series);
        Ok(())
    }

    fn operate(&mut self, series: &Series, offset: u64) -> Result<(), Errno> {
        if let Some((mode, request_bytes, errno)) = self.refuses
            && (mode, request_bytes) == (series.mode, series.request_bytes)
        {
            return Err(errno);
        }
        assert_eq!(offset % series.request_bytes, 0);
        let end = offset + series.request_bytes;
        match series.access {
            Access::Write => self.occupies(end),
            Access::ReadSequential | Access::ReadRandom => assert!(end <= self.read_bytes, "{series:?}"),
        }
        let cost = (self.cost)(series);
        self.passes(cost);
        Ok(())
    }

    fn settle(&mut self, _: &Series) -> Result<(), Errno> {
        self.now += self.settle_time;
        Ok(())
    }
}

fn run(probe: &mut Invented, free_bytes: u64) -> Result<Costs, Stopped> {
    let cancel = Cancel::default();
    let control = Control { cancel: &cancel, is_busy: &|| false };
    measure(probe, &control, Plan::within(free_bytes).ok_or(Stopped::NoSpace)?)
}

fn write_crossover(probe: &mut Invented) -> Crossover {
    let found = thresholds(&run(probe, 1 << 40).unwrap());
    assert_eq!(found.write, found.read_random);
    assert_eq!(found.write, found.read_sequential);
    found.write
}

#[test]
fn a_device_that_is_best_buffered_is_found_so() {
    let mut probe = Invented::new(|series| if series.mode == Mode::Buffered { 1000 } else { 1300 });
    assert_eq!(write_crossover(&mut probe), Crossover::buffered(32 * KIB));
}

#[test]
fn a_crossover_at_32_kib_is_found() {
    let expected =
        Crossover { small_bytes: 32 * KIB, uncached_bytes_min: None, direct_bytes_min: Some(32 * KIB) };
    assert_eq!(write_crossover(&mut Invented::direct_from_32_kib()), expected);
}

#[test]
fn noise_of_30_percent_moves_no_crossover() {
    for seed in 0..50 {
        let mut probe = Invented::direct_from_32_kib().noisy(30, seed);
        assert_eq!(write_crossover(&mut probe).direct_bytes_min, Some(32 * KIB), "seed {seed}");
        let mut buffered = Invented::new(|series| if series.mode == Mode::Buffered { 1000 } else { 1300 });
        buffered = buffered.noisy(30, seed);
        assert_eq!(write_crossover(&mut buffered), Crossover::buffered(32 * KIB), "seed {seed}");
    }
}

#[test]
fn costs_hold_the_share_of_the_sync() {
    let mut probe = Invented::new(|_| 1000);
    probe.settle_time = Duration::from_millis(8);
    let costs = run(&mut probe, 1 << 40).unwrap();
    let weighed = costs.weighed(Access::Write, Mode::Direct).unwrap();
    // 8 ms for two requests of 4 MiB at 1 µs a KiB.
    assert_eq!(weighed[SIZES.len() - 1], 4_000_000 + 4_096_000);
}

#[test]
fn the_disk_holds_no_more_than_one_percent_of_the_free_space_and_256_mib() {
    for (free_bytes, is_enough) in
        [(0, false), (2 << 30, false), (3 << 30, true), (10 << 30, true), (100 << 30, true), (u64::MAX, true)]
    {
        let mut probe = Invented::new(|_| 1000);
        match run(&mut probe, free_bytes) {
            Ok(_) => assert!(is_enough),
            Err(stopped) => assert!(matches!(stopped, Stopped::NoSpace) && !is_enough, "{stopped}"),
        }
        assert!(probe.disk_bytes_max <= (free_bytes / 100).min(DISK_BYTES_MAX), "{free_bytes}");
    }
}

#[test]
fn the_time_is_bounded_whatever_the_device_is() {
    // From an instant device to one that moves a few MiB in a second.
    for ns_per_kib in [1, 1000, 10_000, 25_000, 300_000] {
        let mut probe = Invented::new(move |_| ns_per_kib).noisy(30, ns_per_kib);
        probe.settle_time = Duration::from_nanos(20 * ns_per_kib);
        probe.fill_time = Duration::from_nanos(4096 * ns_per_kib);
        let begun = probe.now;
        let outcome = run(&mut probe, 1 << 40);
        // The longest series so far foretells the next one to the noise.
        let slack = Duration::from_nanos(ns_per_kib * 2 * 4096);
        assert!(probe.now - begun <= TIME_MAX + slack, "{ns_per_kib}: {:?}", probe.now - begun);
        let is_slow = ns_per_kib > 25_000;
        assert_eq!(matches!(outcome, Err(Stopped::OutOfTime)), is_slow, "{ns_per_kib}: {outcome:?}");
    }
}

#[test]
fn a_device_too_slow_to_be_filled_is_given_up() {
    let mut probe = Invented::new(|_| 1000);
    probe.fill_time = Duration::from_secs(2);
    assert!(matches!(run(&mut probe, 1 << 40), Err(Stopped::OutOfTime)));
    assert!(probe.begun.is_empty());
    let mut half = Invented::new(|_| 1000);
    half.fill_time = Duration::from_millis(500);
    assert!(run(&mut half, 1 << 40).is_ok(), "a smaller file will do");
    assert!(half.read_bytes < READ_BYTES_MAX);
}

#[test]
fn modes_take_turns_in_going_first() {
    let mut probe = Invented::new(|_| 1000);
    run(&mut probe, 1 << 40).unwrap();
    for block in probe.begun.chunks(Mode::ALL.len()) {
        let modes: HashSet<Mode> = block.iter().map(|series| series.mode).collect();
        assert_eq!(modes.len(), Mode::ALL.len(), "{block:?}");
        assert!(block.iter().all(|series| series.request_bytes == block[0].request_bytes));
    }
    for mode in Mode::ALL {
        let of_one_size = probe.begun.iter().filter(|series| series.request_bytes == 4 * KIB);
        let first: Vec<&Series> = of_one_size.step_by(Mode::ALL.len()).collect();
        assert!(first.iter().any(|series| series.mode == mode), "{mode:?} never went first");
    }
    assert!(probe.paused >= PAUSE_MIN * (probe.begun.len() / Mode::ALL.len()) as u32);
}

#[test]
fn a_refused_mode_is_left_out_and_a_failed_disk_ends_the_run() {
    let mut refusing = Invented::direct_from_32_kib();
    refusing.refuses = Some((Mode::Direct, MIB, Errno::INVAL));
    let costs = run(&mut refusing, 1 << 40).unwrap();
    assert!(costs.iter().all(|cost| cost.mode != Mode::Direct));
    for (mode, errno) in [(Mode::Direct, Errno::IO), (Mode::Buffered, Errno::INVAL)] {
        let mut failing = Invented::direct_from_32_kib();
        failing.refuses = Some((mode, MIB, errno));
        assert!(matches!(run(&mut failing, 1 << 40), Err(Stopped::Io(_))));
    }
    let mut full = Invented::direct_from_32_kib();
    full.refuses = Some((Mode::Buffered, MIB, Errno::NOSPC));
    assert!(matches!(run(&mut full, 1 << 40), Err(Stopped::NoSpace)));
}

#[test]
fn work_of_the_pool_ends_the_run_at_the_next_series() {
    let asked = Cell::new(0);
    let is_busy = || {
        asked.set(asked.get() + 1);
        asked.get() > 100
    };
    let cancel = Cancel::default();
    let mut probe = Invented::new(|_| 1000);
    let plan = Plan::within(1 << 40).unwrap();
    let stopped = measure(&mut probe, &Control { cancel: &cancel, is_busy: &is_busy }, plan);
    assert!(matches!(stopped, Err(Stopped::Busy)));
    assert_eq!(asked.get(), 101, "nothing runs behind the answer");
}

#[test]
fn a_cancelled_run_stops_before_the_next_request() {
    let cancel = Cancel::default();
    let requests = std::rc::Rc::new(Cell::new(0));
    let (flag, count) = (cancel.clone(), std::rc::Rc::clone(&requests));
    let mut probe = Invented::new(move |_| {
        count.set(count.get() + 1);
        if count.get() == 50 {
            flag.cancel();
        }
        1000
    });
    let plan = Plan::within(1 << 40).unwrap();
    let stopped = measure(&mut probe, &Control { cancel: &cancel, is_busy: &|| false }, plan);
    assert!(matches!(stopped, Err(Stopped::Cancelled)));
    assert_eq!(requests.get(), 50);
}

#[test]
fn random_reads_touch_no_place_twice() {
    for slots in [4, 8, 32, 4096, 32_768] {
        let places: HashSet<u64> = (0..slots).map(|index| scattered(index, slots)).collect();
        assert_eq!(places.len() as u64, slots);
        assert!(places.iter().all(|place| *place < slots));
    }
    let neighbours =
        (0..4095).filter(|index| scattered(*index, 4096).abs_diff(scattered(index + 1, 4096)) < 8);
    assert!(neighbours.count() < 41, "that would be sequential");
}
