//! Scenarios of gathering, one rule each. The model and the traces are in modules of their own.

mod model;
mod traces;

use std::time::Duration;

use super::*;

const EXTENT: usize = 64;
const SECOND: Duration = Duration::from_secs(1);

fn limits() -> GatherLimits {
    GatherLimits {
        extent_bytes: EXTENT,
        write_bytes_max: 32,
        opening_bytes_min: 4,
        extent_fragments_max: 4,
        file_extents_max: 8,
        trial_writes: 1000,
        pool_bytes_max: 8 * EXTENT,
        pool_fragments_max: 64,
        age_max: SECOND,
    }
}

/// A file and its gathered writes.
struct Bench {
    gather: Gather,
    budget: Arc<Budget>,
    file: Vec<u8>,
    now: Instant,
}

impl Bench {
    /// Its file has been written out of order, so that it gathers.
    fn new(limits: GatherLimits) -> Bench {
        let budget = Budget::new(limits);
        let mut bench = Bench::of_file(1, &budget);
        bench.disorder();
        bench
    }

    fn of_file(file: u64, budget: &Arc<Budget>) -> Bench {
        Bench {
            gather: Gather::new(FileId(file), Arc::clone(budget)),
            budget: Arc::clone(budget),
            file: Vec::new(),
            now: Instant::now(),
        }
    }

    fn disorder(&mut self) {
        for offset in [9000, 8000, 7000] {
            let verdict = self.gather.write(offset, &[0; 40], self.now);
            assert_eq!(verdict, Verdict::Bypassed(Bypass::Large));
            // As small writes would be noted.
            self.gather.admission.note_write(offset + 500, offset + 501, self.budget.limits());
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Verdict {
        self.gather.write(offset, data, self.now)
    }

    fn gathers(&mut self, offset: u64, data: &[u8]) {
        assert!(matches!(self.write(offset, data), Verdict::Gathered { .. }), "at {offset}");
    }

    fn bypasses(&mut self, offset: u64, data: &[u8], reason: Bypass) {
        assert_eq!(self.write(offset, data), Verdict::Bypassed(reason));
    }

    fn land(&mut self, flush: Flush) {
        write_pieces(&mut self.file, &flush.pieces);
        self.gather.written(flush.id, Ok(()));
    }

    fn fail(&mut self, flush: Flush, errno: Errno) {
        self.gather.written(flush.id, Err(errno));
    }

    fn read(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let overlay = self.gather.overlay(ByteRange::new(offset, bytes as u64).unwrap());
        let end = self.gather.length(self.file.len() as u64).min(offset + bytes as u64) as usize;
        let mut data: Vec<u8> =
            (offset as usize..end).map(|at| self.file.get(at).copied().unwrap_or(0)).collect();
        overlay.apply(offset, &mut data);
        data
    }
}

fn write_pieces(file: &mut Vec<u8>, pieces: &[Piece]) {
    for piece in pieces {
        let start = piece.offset as usize;
        let end = start + piece.data.len();
        file.resize(file.len().max(end), 0);
        file[start..end].copy_from_slice(&piece.data);
    }
}

fn sole(mut take: Take) -> Flush {
    assert!(take.behind.is_empty() && take.flushes.len() == 1, "{take:?}");
    take.flushes.remove(0)
}

/// As the pool takes extents, one after the other.
fn take_extents(gather: &mut Gather, extents: &[ByteRange], mark: Mark) -> Take {
    let (mut all, mut together) = (Take::default(), Together::default());
    for extent in extents {
        let Take { flushes, behind } = gather.take(*extent, mark, &mut together);
        all.flushes.extend(flushes);
        all.behind.extend(behind);
    }
    gather.note_together(together);
    all
}

/// For a COMMIT.
fn take_before(gather: &mut Gather, mark: Mark) -> Take {
    let extents = gather.extents(ByteRange::ALL, mark);
    take_extents(gather, &extents, mark)
}

fn take_all(gather: &mut Gather) -> Take {
    let mark = gather.mark();
    take_before(gather, mark)
}

/// Behind a write that was gathered.
fn take_ready(gather: &mut Gather) -> Vec<Flush> {
    let (extents, mark) = (gather.extents_ready(), gather.mark());
    take_extents(gather, &extents, mark).flushes
}

/// For their age.
fn take_opened_until(gather: &mut Gather, opened: Instant) -> Take {
    let (extents, mark) = (gather.extents_opened_until(opened), gather.mark());
    take_extents(gather, &extents, mark)
}

/// Before a change of the file.
fn take_range(gather: &mut Gather, range: ByteRange) -> Take {
    let (whole, mark) = (gather.whole_extents(range), gather.mark());
    if gather.extents(range, mark).is_empty() {
        return Take::default();
    }
    take_extents(gather, &[whole], mark)
}

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length).unwrap()
}

#[test]
fn a_complete_extent_is_one_aligned_piece() {
    let mut bench = Bench::new(limits());
    bench.gathers(EXTENT as u64 + 32, &[2; 24]);
    bench.gathers(EXTENT as u64 + 56, &[3; 20]);
    assert!(take_ready(&mut bench.gather).is_empty());
    assert_eq!(bench.write(EXTENT as u64, &[1; 31]), Verdict::Gathered { completes: false });
    assert_eq!(bench.write(EXTENT as u64 + 31, &[1; 1]), Verdict::Gathered { completes: true });
    let ready = take_ready(&mut bench.gather);
    let [flush] = &ready[..] else { panic!("{ready:?}") };
    let [piece] = &flush.pieces[..] else { panic!("{flush:?}") };
    assert_eq!((piece.offset, piece.data.len()), (EXTENT as u64, EXTENT));
    assert_eq!(piece.data.as_ptr().addr() % 4096, 0);
    assert_eq!(
        bench.gather.length(0),
        2 * EXTENT as u64 + 12,
        "the end of the last write is in the next extent"
    );
}

#[test]
fn writes_in_order_bypass_and_writes_into_an_open_extent_do_not() {
    let budget = Budget::new(limits());
    let mut bench = Bench::of_file(1, &budget);
    for at in 0..20 {
        bench.bypasses(at * 8, &[1; 8], Bypass::InOrder);
    }
    bench.bypasses(400, &[1; 8], Bypass::InOrder);
    bench.gathers(256, &[1; 8]);
    for at in 33..40 {
        bench.gathers(at * 8, &[1; 8]);
    }
    assert_eq!(take_ready(&mut bench.gather).len(), 1);
}

#[test]
fn each_bound_is_a_reason_to_bypass() {
    let mut bench = Bench::new(GatherLimits { pool_bytes_max: 4 * EXTENT, ..limits() });
    bench.bypasses(u64::MAX - 3, &[1; 8], Bypass::TooFar);
    bench.bypasses(OFFSET_MAX - 3, &[1; 8], Bypass::TooFar);
    bench.bypasses(0, &[1; 32], Bypass::Large);
    bench.bypasses(0, &[1; 3], Bypass::Tiny);
    bench.budget.set_tight(true);
    bench.bypasses(0, &[1; 8], Bypass::Tight);
    bench.budget.set_tight(false);
    for at in [0, 10, 20, 30] {
        bench.gathers(at, &[1; 4]);
    }
    bench.bypasses(40, &[1; 4], Bypass::Fragmented);
    let crowded = take_ready(&mut bench.gather);
    assert_eq!(crowded.len(), 1, "the crowded extent is to be flushed");
    bench.land(crowded.into_iter().next().unwrap());
    for extent in 0..4 {
        bench.gathers(extent * 2 * EXTENT as u64, &[1; 4]);
    }
    bench.bypasses(63, &[1; 4], Bypass::Unearned);
    bench.gather.admission = Admission::default();
    bench.disorder();
    bench.bypasses(63, &[1; 4], Bypass::NoMemory);
    assert_eq!(bench.budget.in_use().bytes, 4 * EXTENT, "a refused write leaves nothing behind");
}

#[test]
fn fragments_of_the_pool_are_bounded_and_a_write_that_joins_two_frees_one() {
    let mut bench = Bench::new(GatherLimits { pool_fragments_max: 3, ..limits() });
    for at in [0, 8, 64] {
        bench.gathers(at, &[1; 4]);
    }
    bench.bypasses(72, &[1; 4], Bypass::NoFragments);
    bench.gathers(4, &[1; 4]);
    assert_eq!(bench.budget.in_use().fragments, 2);
    bench.gathers(72, &[1; 4]);
}

#[test]
fn random_writes_stop_to_be_gathered_until_a_trial() {
    let mut bench = Bench::new(GatherLimits { trial_writes: 50, ..limits() });
    let mut gathered = 0;
    for at in 0..200_u64 {
        let offset = (at * 7919 % 1000) * EXTENT as u64;
        if let Verdict::Gathered { .. } = bench.write(offset, &[1; 8]) {
            gathered += 1;
        }
        bench.now += SECOND / 2;
        for flush in take_opened_until(&mut bench.gather, bench.now - SECOND).flushes {
            bench.land(flush);
        }
    }
    assert!((4..=20).contains(&gathered), "{gathered} of 200 random writes");
}

#[test]
fn a_newer_flush_of_an_extent_waits_for_the_older_one() {
    let mut bench = Bench::new(limits());
    bench.gathers(0, &[1; 16]);
    let older = sole(take_all(&mut bench.gather));
    bench.gathers(8, &[2; 16]);
    assert_eq!(bench.read(0, 100), [[1; 8].as_slice(), &[2; 16]].concat());
    let take = take_all(&mut bench.gather);
    assert!(take.flushes.is_empty() && take.behind == [older.id]);
    let take = take_range(&mut bench.gather, range(20, 4));
    assert!(take.flushes.is_empty() && take.behind == [older.id], "{take:?}");
    bench.land(older);
    let newer = sole(take_all(&mut bench.gather));
    bench.land(newer);
    assert_eq!(bench.file, [[1; 8].as_slice(), &[2; 16]].concat());
    assert!(bench.gather.is_empty());
}

#[test]
fn a_commit_takes_the_writes_before_it_and_no_later_ones() {
    let mut bench = Bench::new(limits());
    bench.gathers(0, &[1; 8]);
    let mark = bench.gather.mark();
    bench.gathers(EXTENT as u64, &[2; 8]);
    let flush = sole(take_before(&mut bench.gather, mark));
    assert_eq!(flush.pieces[0].offset, 0);
    bench.gathers(8, &[3; 8]);
    assert_eq!(take_before(&mut bench.gather, mark).behind, [flush.id]);
    bench.land(flush);
    let rest = take_before(&mut bench.gather, mark);
    assert!(rest.flushes.is_empty() && rest.behind.is_empty(), "{rest:?}");
}

#[test]
fn a_device_error_is_told_to_every_commit_and_loses_no_byte() {
    let mut bench = Bench::new(limits());
    bench.gathers(0, &[1; 16]);
    let flush = sole(take_all(&mut bench.gather));
    bench.gathers(8, &[2; 16]);
    bench.fail(flush, Errno::IO);
    let expected = [[1; 8].as_slice(), &[2; 16]].concat();
    assert_eq!(bench.read(0, 100), expected);
    bench.bypasses(100, &[1; 8], Bypass::Failed);
    assert!(
        take_opened_until(&mut bench.gather, bench.now + SECOND).flushes.is_empty(),
        "age does not try again"
    );
    let again = sole(take_all(&mut bench.gather));
    assert_eq!(again.pieces.len(), 1);
    bench.land(again);
    assert_eq!(bench.file, expected);
    let failure = Failure { errno: Errno::IO, is_passing: false };
    assert_eq!(bench.gather.failure(), Some(failure), "also after the bytes came to the file");
    assert_eq!(bench.budget.in_use(), BudgetUse::default());
}

#[test]
fn a_complete_extent_that_failed_waits_for_a_commit() {
    let mut bench = Bench::new(limits());
    for at in [32, 48, 0, 16] {
        bench.gathers(at, &[1; 16]);
    }
    let flush = take_ready(&mut bench.gather).remove(0);
    bench.fail(flush, Errno::NOSPC);
    assert!(take_ready(&mut bench.gather).is_empty(), "other writes do not try again");
    let flush = sole(take_all(&mut bench.gather));
    bench.land(flush);
    assert_eq!(bench.file, [1; EXTENT]);
}

#[test]
fn a_full_disk_is_told_until_the_bytes_are_in_the_file() {
    let mut bench = Bench::new(limits());
    bench.gathers(0, &[1; 16]);
    bench.gathers(2 * EXTENT as u64, &[2; 16]);
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        let take = take_all(&mut bench.gather);
        assert_eq!(take.flushes.len(), 2);
        for flush in take.flushes {
            bench.fail(flush, errno);
        }
        assert_eq!(bench.gather.failure().map(|failure| failure.is_passing), Some(true));
    }
    let mut take = take_all(&mut bench.gather);
    bench.land(take.flushes.remove(0));
    assert!(bench.gather.failure().is_some(), "the other extent is not in the file");
    bench.land(take.flushes.remove(0));
    assert_eq!(bench.gather.failure(), None);
    bench.gathers(0, &[1; 8]);
}

#[test]
fn a_cut_ends_the_failure_of_a_full_disk_with_its_bytes() {
    let mut bench = Bench::new(limits());
    bench.gathers(0, &[1; 16]);
    let flush = sole(take_all(&mut bench.gather));
    assert_eq!(bench.gather.cut(0), Err(vec![flush.id]), "the flush may still land");
    bench.fail(flush, Errno::NOSPC);
    assert_eq!(bench.gather.cut(0), Ok(16));
    assert_eq!((bench.gather.failure(), bench.gather.length(0)), (None, 0));
    assert_eq!(bench.budget.in_use(), BudgetUse::default());
    assert_eq!(bench.budget.counts().discarded_bytes, 16);
}

#[test]
fn a_cut_ends_the_gathered_bytes() {
    let mut bench = Bench::new(limits());
    bench.gathers(0, &[1; 16]);
    bench.gathers(60, &[2; 8]);
    assert_eq!(bench.gather.cut(62), Ok(6));
    assert_eq!(bench.gather.length(0), 62);
    assert_eq!(bench.gather.cut(12), Ok(6));
    assert_eq!(bench.read(0, 100), [1; 12]);
    assert_eq!(bench.budget.in_use(), BudgetUse { bytes: EXTENT, fragments: 1, open_extents: 1 });
}

#[test]
fn discarded_bytes_are_forgotten_and_the_length_stays() {
    let mut bench = Bench::new(GatherLimits { pool_fragments_max: 3, ..limits() });
    bench.gathers(0, &[1; 24]);
    bench.gathers(60, &[2; 8]);
    let at = |offset, length| vec![range(offset, length)];
    let runs = |bench: &Bench| bench.gather.runs(ByteRange::ALL);
    assert_eq!(runs(&bench), Runs::new([at(0, 24), at(60, 8)].concat()));
    // The extents have three fragments, and there is no room for a fourth.
    bench.gather.discard(range(4, 8), 0).unwrap();
    assert_eq!(bench.read(0, 24), [[1; 4].as_slice(), &[0; 8], &[1; 12]].concat());
    assert_eq!(runs(&bench), Runs::new([at(0, 24), at(60, 8)].concat()), "zeros are data");
    bench.gather.discard(range(20, 46), 0).unwrap();
    assert_eq!(runs(&bench), Runs::new([at(0, 20), at(66, 2)].concat()));
    bench.gather.discard(range(4, 8), 0).unwrap();
    assert_eq!(runs(&bench), Runs::new([at(0, 4), at(12, 8), at(66, 2)].concat()));
    assert_eq!(bench.budget.in_use().fragments, 3);
    bench.gather.discard(range(2, u64::MAX - 2), 67).unwrap();
    assert_eq!((bench.gather.length(67), bench.read(67, 9)), (68, vec![0]), "its last byte stays");
    bench.gather.discard(range(2, u64::MAX - 2), 68).unwrap();
    assert_eq!(runs(&bench), Runs::new(at(0, 2)));
    bench.gather.discard(ByteRange::ALL, 68).unwrap();
    assert_eq!(bench.budget.in_use(), BudgetUse::default());
}

#[test]
fn discarding_ends_the_failure_of_a_full_disk_with_its_bytes() {
    let mut bench = Bench::new(limits());
    bench.gathers(0, &[1; 16]);
    let flush = sole(take_all(&mut bench.gather));
    assert_eq!(bench.gather.discard(range(8, 1), 100), Err(vec![flush.id]), "the flush may still land");
    bench.fail(flush, Errno::NOSPC);
    bench.gather.discard(range(0, 16), 100).unwrap();
    assert_eq!(bench.gather.failure(), None);
    assert_eq!(bench.budget.counts().discarded_bytes, 16);
}

#[test]
fn the_oldest_extents_of_any_file_are_due_first() {
    let budget = Budget::new(GatherLimits { pool_bytes_max: 4 * EXTENT, ..limits() });
    let start = Instant::now();
    let mut benches: Vec<Bench> = (1..=4).map(|file| Bench::of_file(file, &budget)).collect();
    for (at, bench) in benches.iter_mut().enumerate() {
        bench.disorder();
        bench.now = start + SECOND / 10 * at as u32;
        bench.gathers(0, &[1; 8]);
    }
    let due = |now: Instant| -> Vec<u64> { budget.due(now, 10).iter().map(|due| due.file.0).collect() };
    assert_eq!(due(start), [1], "the memory is full, and one extent makes enough room");
    assert_eq!(due(start + SECOND), [1]);
    assert_eq!(due(start + SECOND + SECOND / 5), [1, 2, 3]);
    assert_eq!(budget.next_due(), Some(start + SECOND));
    budget.set_tight(true);
    assert_eq!(due(start), [1, 2, 3, 4]);
    assert_eq!(budget.due(start, 2).len(), 2);
    budget.set_tight(false);
    let due_first = budget.due(start, 1)[0];
    let flush = sole(take_opened_until(&mut benches[0].gather, due_first.opened_until));
    assert!(due(start).is_empty(), "its memory is on its way back");
    benches[0].land(flush);
    assert_eq!(budget.in_use(), BudgetUse { bytes: 3 * EXTENT, fragments: 3, open_extents: 3 });
    drop(benches);
    assert_eq!(budget.in_use(), BudgetUse::default(), "a file that is given up gives its memory back");
}

#[test]
fn extents_are_named_before_they_are_taken() {
    let mut bench = Bench::new(limits());
    let extent = |position: u64| range(position * EXTENT as u64, EXTENT as u64);
    bench.gathers(3 * EXTENT as u64 + 8, &[1; 16]);
    let mark = bench.gather.mark();
    bench.now += SECOND;
    bench.gathers(0, &[2; 16]);
    let named = |bench: &Bench, of| bench.gather.extents(of, bench.gather.mark());
    assert_eq!(named(&bench, ByteRange::ALL), [extent(0), extent(3)]);
    assert_eq!(bench.gather.extents(ByteRange::ALL, mark), [extent(3)]);
    assert_eq!(named(&bench, range(15, 1)), [extent(0)]);
    assert!(named(&bench, range(16, 3 * EXTENT as u64 - 8)).is_empty(), "a gap between gathered bytes");
    assert_eq!(bench.gather.extents_opened_until(bench.now - SECOND), [extent(3)]);
    let flush = sole(take_before(&mut bench.gather, mark));
    assert_eq!(named(&bench, ByteRange::ALL), [extent(0), extent(3)], "also those in flight");
    bench.fail(flush, Errno::NOSPC);
    assert_eq!(bench.gather.extents_opened_until(bench.now), [extent(0)], "age does not try again");
    assert_eq!(bench.gather.whole_extents(range(EXTENT as u64 - 1, 2)), range(0, 2 * EXTENT as u64));
    assert_eq!(bench.gather.whole_extents(extent(3)), extent(3));
    assert_eq!(bench.gather.whole_extents(ByteRange::ALL).offset(), 0);
}

#[test]
fn complete_and_crowded_extents_are_ready() {
    let mut bench = Bench::new(limits());
    for at in [0, 32] {
        bench.gathers(at, &[1; 31]);
    }
    assert!(bench.gather.extents_ready().is_empty());
    bench.gathers(31, &[1; 1]);
    bench.gathers(63, &[1; 1]);
    assert_eq!(bench.gather.extents_ready(), [range(0, EXTENT as u64)]);
    for at in [0, 8, 16, 24] {
        bench.gathers(2 * EXTENT as u64 + at, &[1; 4]);
    }
    bench.bypasses(2 * EXTENT as u64 + 40, &[1; 4], Bypass::Fragmented);
    assert_eq!(bench.gather.extents_ready().len(), 2);
}

/// A COMMIT took the right to gather from a file whose writers it had only interrupted.
#[test]
fn extents_that_are_flushed_one_after_the_other_count_as_one() {
    let earned = |is_together: bool| {
        let mut bench = Bench::new(limits());
        let mark = bench.gather.mark();
        for position in 0..4 {
            bench.gathers(position * EXTENT as u64, &[1; 16]);
        }
        let mut together = Together::default();
        for extent in bench.gather.extents(ByteRange::ALL, bench.gather.mark()) {
            let mark = bench.gather.mark();
            let flush = match is_together {
                true => sole(bench.gather.take(extent, mark, &mut together)),
                false => sole(take_range(&mut bench.gather, extent)),
            };
            bench.land(flush);
        }
        assert!(bench.gather.extents(ByteRange::ALL, mark).is_empty());
        bench.gather.note_together(together);
        bench.gather.admission.earned_extents()
    };
    assert_eq!((earned(true), earned(false)), (4, 0));
}
