//! Any order of writes, reads, flushes, failures, cuts and commits reads as an array of bytes does.

use api::RangeKind;
use proptest::prelude::*;

use super::*;

const FILES: usize = 2;
const SPAN: u64 = 500;

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: u64,
        bytes: usize,
    },
    /// All that is gathered comes to the file between the look at the gathered bytes and the look at the file.
    Read {
        offset: u64,
        bytes: u64,
        flushes_between: bool,
    },
    TakeReady,
    TakeOld,
    TakeRange {
        offset: u64,
        bytes: u64,
    },
    /// One of the flushes in flight is over. A failed one has written some of its pieces.
    Land {
        which: usize,
        errno: Option<Errno>,
        pieces: usize,
    },
    Commit {
        errno: Option<Errno>,
    },
    Truncate {
        size: u64,
    },
    Deallocate {
        offset: u64,
        bytes: u64,
    },
    Tight {
        is_tight: bool,
    },
}

fn errno() -> impl Strategy<Value = Option<Errno>> {
    prop_oneof![8 => Just(None), 2 => Just(Some(Errno::NOSPC)), 1 => Just(Some(Errno::IO))]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (0..SPAN, 0..34_usize).prop_map(|(offset, bytes)| Step::Write { offset, bytes }),
        6 => (0..SPAN, 1..200_u64, any::<bool>())
            .prop_map(|(offset, bytes, flushes_between)| Step::Read { offset, bytes, flushes_between }),
        3 => Just(Step::TakeReady),
        2 => Just(Step::TakeOld),
        2 => (0..SPAN, 1..100_u64).prop_map(|(offset, bytes)| Step::TakeRange { offset, bytes }),
        6 => (any::<prop::sample::Index>(), errno(), 0..4_usize)
            .prop_map(|(which, errno, pieces)| Step::Land { which: which.index(100), errno, pieces }),
        1 => errno().prop_map(|errno| Step::Commit { errno }),
        1 => (0..SPAN).prop_map(|size| Step::Truncate { size }),
        1 => (0..SPAN, 1..100_u64).prop_map(|(offset, bytes)| Step::Deallocate { offset, bytes }),
        1 => prop::bool::weighted(0.3).prop_map(|is_tight| Step::Tight { is_tight }),
    ]
}

struct Modelled {
    bench: Bench,
    flights: Vec<Flush>,
    model: Vec<u8>,
    /// The device has failed a flush.
    has_lost: bool,
    next_byte: u8,
}

impl Modelled {
    fn new(file: usize, budget: &Arc<Budget>) -> Modelled {
        let mut bench = Bench::of_file(file as u64, budget);
        bench.disorder();
        Modelled { bench, flights: Vec::new(), model: Vec::new(), has_lost: false, next_byte: 1 }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Write { offset, bytes } => self.write(offset, bytes),
            Step::Read { offset, bytes, flushes_between } => self.read(range(offset, bytes), flushes_between),
            Step::TakeReady => {
                let ready = take_ready(&mut self.bench.gather);
                self.flights.extend(ready);
            }
            Step::TakeOld => {
                let take = take_opened_until(&mut self.bench.gather, self.bench.now - SECOND);
                self.flights.extend(take.flushes);
            }
            Step::TakeRange { offset, bytes } => {
                let take = take_range(&mut self.bench.gather, range(offset, bytes));
                self.flights.extend(take.flushes);
            }
            Step::Land { which, errno, pieces } => {
                if !self.flights.is_empty() {
                    let _ = self.land(which % self.flights.len(), errno, pieces);
                }
            }
            Step::Commit { errno } => self.commit(errno),
            Step::Truncate { size } => self.truncate(size),
            Step::Deallocate { offset, bytes } => self.deallocate(range(offset, bytes)),
            Step::Tight { is_tight } => self.bench.budget.set_tight(is_tight),
        }
        self.bench.now += SECOND / 10;
    }

    fn write(&mut self, offset: u64, bytes: usize) {
        let data = vec![self.next_byte; bytes];
        self.next_byte = self.next_byte.wrapping_add(1).max(1);
        if let Verdict::Bypassed(_) = self.bench.write(offset, &data) {
            let Some(range) = ByteRange::new(offset, bytes as u64) else { return };
            if self.settle(None, |gather| take_range(gather, range)).is_err() {
                return;
            }
            write_pieces(&mut self.bench.file, &[Piece { offset, data: data.clone().into() }]);
        }
        if bytes > 0 {
            write_pieces(&mut self.model, &[Piece { offset, data: data.into() }]);
        }
    }

    fn read(&mut self, range: ByteRange, flushes_between: bool) {
        let overlay = self.bench.gather.overlay(range);
        let length = self.bench.gather.length(self.bench.file.len() as u64);
        assert_eq!(length, self.model.len() as u64);
        if flushes_between {
            let _ = self.settle(None, take_all);
        }
        let end = range.end().min(length);
        let file = &self.bench.file;
        let mut data: Vec<u8> =
            (range.offset()..end).map(|at| file.get(at as usize).copied().unwrap_or(0)).collect();
        overlay.apply(range.offset(), &mut data);
        assert_eq!(data, self.model[end.min(range.offset()) as usize..end as usize]);
    }

    fn land(&mut self, which: usize, errno: Option<Errno>, pieces: usize) -> Result<(), Errno> {
        let flush = self.flights.remove(which);
        let Some(errno) = errno else {
            self.bench.land(flush);
            return Ok(());
        };
        write_pieces(&mut self.bench.file, &flush.pieces[..pieces.min(flush.pieces.len())]);
        self.has_lost |= errno == Errno::IO;
        self.bench.fail(flush, errno);
        Err(errno)
    }

    /// Flushes what `take` gives, and what it waits for; ends at the first failure.
    fn settle(
        &mut self,
        errno: Option<Errno>,
        mut take: impl FnMut(&mut Gather) -> Take,
    ) -> Result<(), Errno> {
        loop {
            let Take { flushes, behind } = take(&mut self.bench.gather);
            if flushes.is_empty() && behind.is_empty() {
                return Ok(());
            }
            let mut wanted: Vec<FlushId> = flushes.iter().map(|flush| flush.id).collect();
            wanted.extend(behind);
            self.flights.extend(flushes);
            let mut outcome = Ok(());
            for id in wanted {
                let which = self.flights.iter().position(|flush| flush.id == id).unwrap();
                outcome = outcome.and(self.land(which, errno, 1));
            }
            outcome?;
        }
    }

    fn commit(&mut self, errno: Option<Errno>) {
        let mark = self.bench.gather.mark();
        let outcome = self.settle(errno, |gather| take_before(gather, mark));
        let failure = self.bench.gather.failure();
        assert!(outcome.is_ok() || failure.is_some(), "a commit tells of the flush that failed");
        if self.has_lost {
            assert_eq!(failure.map(|failure| failure.is_passing), Some(false));
        } else if outcome.is_ok() {
            assert_eq!(failure, None, "all bytes are in the file");
        }
        if outcome.is_ok() {
            assert_eq!(self.bench.file, self.model);
        }
    }

    fn truncate(&mut self, size: u64) {
        for id in self.bench.gather.behind(ByteRange::from_bounds(size, u64::MAX).unwrap()) {
            let which = self.flights.iter().position(|flush| flush.id == id).unwrap();
            self.land(which, None, 0).unwrap();
        }
        self.bench.file.resize(size as usize, 0);
        self.bench.gather.cut(size).unwrap();
        self.model.resize(size as usize, 0);
    }

    fn deallocate(&mut self, range: ByteRange) {
        for id in self.bench.gather.behind(range) {
            let which = self.flights.iter().position(|flush| flush.id == id).unwrap();
            self.land(which, None, 0).unwrap();
        }
        for bytes in [&mut self.bench.file, &mut self.model] {
            let end = bytes.len().min(range.end() as usize);
            bytes[end.min(range.offset() as usize)..end].fill(0);
        }
        self.bench.gather.discard(range, self.bench.file.len() as u64).unwrap();
    }

    fn check(&self) {
        let gather = &self.bench.gather;
        assert_eq!(gather.length(self.bench.file.len() as u64), self.model.len() as u64);
        assert_eq!(gather.in_flight.len(), self.flights.len());
        let gathered = |at: u64| !gather.overlay(range(at, 1)).is_empty();
        let first = (0..SPAN + 40).find(|at| gathered(*at));
        assert_eq!(gather.first(ByteRange::ALL).map(|bytes| bytes.offset()), first);
        let found = gather.runs(ByteRange::ALL).seek(0, RangeKind::Data, |_, _| Ok(None));
        assert_eq!(found, Ok(first));
        let behind = first.and_then(|first| (first..).find(|at| !gathered(*at)));
        let found = first.map(|first| {
            gather.runs(ByteRange::ALL).seek(first, RangeKind::Hole, |at, _| Ok(Some(at))).unwrap().unwrap()
        });
        assert_eq!(found, behind);
    }

    /// Extents, and the fragments in them.
    fn memory(&self) -> (usize, usize) {
        let gather = &self.bench.gather;
        let open = gather.open.values().map(|extent| extent.about.fragments.len());
        let in_flight = gather.in_flight.values().map(|flight| flight.about.fragments.len());
        (gather.open.len() + gather.in_flight.len(), open.chain(in_flight).sum())
    }
}

fn check_budget(budget: &Budget, files: &[Modelled]) {
    let in_use = budget.in_use();
    let limits = budget.limits();
    assert!(in_use.bytes <= limits.pool_bytes_max && in_use.fragments <= limits.pool_fragments_max);
    let extents: usize = files.iter().map(|file| file.memory().0).sum();
    let fragments: usize = files.iter().map(|file| file.memory().1).sum();
    assert_eq!((in_use.bytes, in_use.fragments), (extents * EXTENT, fragments), "charged is used");
    let (kept, total) = budget.memories().stock_for_test();
    assert!(total - kept == extents && total * EXTENT <= limits.pool_bytes_max, "{kept} of {total} are kept");
    let open = files.iter().flat_map(|file| file.bench.gather.open.values());
    assert_eq!(in_use.open_extents, open.filter(|extent| !extent.about.has_failed).count());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gathered_files_read_as_arrays_of_bytes(steps in prop::collection::vec((0..FILES, step()), 1..150)) {
        let budget = Budget::new(GatherLimits { trial_writes: 2, pool_bytes_max: 10 * EXTENT, ..limits() });
        let mut files: Vec<Modelled> = (0..FILES).map(|file| Modelled::new(file, &budget)).collect();
        for (file, step) in &steps {
            files[*file].run(step);
            files[*file].check();
            check_budget(&budget, &files);
        }
        for file in &mut files {
            file.read(ByteRange::new(0, 2 * SPAN).unwrap(), false);
            file.settle(None, take_all).unwrap();
            assert!(file.bench.gather.is_empty());
            assert_eq!(file.bench.file, file.model);
        }
        assert_eq!(budget.in_use(), BudgetUse::default());
    }
}
