//! Traces of known programs, and how many separate writes come to the file.

use super::*;

/// The record of IOR-hard in the IO500.
const RECORD: u64 = 47_008;
const RANKS: u64 = 16;
const RECORDS: u64 = 200;

/// A generator of numbers; the same for each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[derive(Default)]
struct Outcome {
    bypassed: u64,
    /// Separate writes to the file, gathered or not.
    file_writes: u64,
    file_bytes: u64,
    memory_bytes_max: usize,
    fragments_max: usize,
}

/// Makes the writes one after the other, flushes as the pool does, and commits at the end.
fn replay(limits: GatherLimits, writes: impl IntoIterator<Item = (u64, usize)>) -> Outcome {
    replay_with_commits(limits, writes, u64::MAX)
}

fn replay_with_commits(
    limits: GatherLimits,
    writes: impl IntoIterator<Item = (u64, usize)>,
    writes_per_commit: u64,
) -> Outcome {
    let budget = Budget::new(limits);
    let mut gather = Gather::new(FileId(1), Arc::clone(&budget));
    let mut now = Instant::now();
    let mut outcome = Outcome::default();
    let land = |gather: &mut Gather, flushes: Vec<Flush>| {
        let mut written = (0, 0);
        for flush in flushes {
            written.0 += flush.pieces.len() as u64;
            written.1 += flush.pieces.iter().map(|piece| piece.data.len() as u64).sum::<u64>();
            gather.written(flush.id, Ok(()));
        }
        written
    };
    let data = vec![7; 1 << 20];
    for (count, (offset, bytes)) in (1..).zip(writes) {
        now += Duration::from_micros(100);
        let mut flushes = match gather.write(offset, &data[..bytes], now) {
            Verdict::Gathered { .. } => Vec::new(),
            Verdict::Bypassed(_) => {
                outcome.bypassed += 1;
                outcome.file_writes += 1;
                outcome.file_bytes += bytes as u64;
                take_range(&mut gather, range(offset, bytes as u64)).flushes
            }
        };
        flushes.extend(take_ready(&mut gather));
        for due in budget.due(now, 8) {
            flushes.extend(take_opened_until(&mut gather, due.opened_until).flushes);
        }
        if count % writes_per_commit == 0 {
            flushes.extend(take_all(&mut gather).flushes);
        }
        outcome.memory_bytes_max = outcome.memory_bytes_max.max(budget.in_use().bytes);
        outcome.fragments_max = outcome.fragments_max.max(budget.in_use().fragments);
        let (pieces, bytes) = land(&mut gather, flushes);
        outcome.file_writes += pieces;
        outcome.file_bytes += bytes;
    }
    let rest = take_all(&mut gather);
    let (pieces, bytes) = land(&mut gather, rest.flushes);
    outcome.file_writes += pieces;
    outcome.file_bytes += bytes;
    assert!(gather.is_empty());
    outcome
}

/// Each rank writes its records in order; the ranks run ahead of each other.
fn interleaved(record: u64) -> Vec<(u64, usize)> {
    let mut dice = Dice(42);
    let mut next = vec![0; RANKS as usize];
    let mut writes = Vec::new();
    while writes.len() < (RANKS * RECORDS) as usize {
        let rank = dice.below(RANKS);
        let slowest = next.iter().min().copied().unwrap();
        let at = next[rank as usize];
        // A rank that is far ahead waits for the others, as at a barrier.
        if at < RECORDS && at < slowest + 20 {
            writes.push(((at * RANKS + rank) * record, record as usize));
            next[rank as usize] += 1;
        }
    }
    writes
}

#[test]
fn strided_records_of_many_writers_become_complete_extents() {
    let writes = interleaved(RECORD);
    let outcome = replay(GatherLimits::for_memory(64 << 20), writes.iter().copied());
    let bytes = RANKS * RECORDS * RECORD;
    assert_eq!(outcome.file_bytes, bytes);
    let extents = bytes.div_ceil(1 << 20);
    println!("{} writes became {}, {extents} extents", writes.len(), outcome.file_writes);
    assert!(outcome.file_writes < extents * 2, "{} for {extents} extents", outcome.file_writes);
    assert!(outcome.bypassed < writes.len() as u64 / 20, "{}", outcome.bypassed);
}

#[test]
fn commits_between_strided_records_do_not_end_their_gathering() {
    // If every write were gathered, these would be 429 and 1,510 writes to the file.
    for (writes_per_commit, file_writes_max) in [(1000, 500), (200, 1800)] {
        let writes = interleaved(RECORD);
        let limits = GatherLimits::for_memory(64 << 20);
        let outcome = replay_with_commits(limits, writes.iter().copied(), writes_per_commit);
        println!("a commit per {writes_per_commit}: {} became {}", writes.len(), outcome.file_writes);
        assert!(outcome.file_writes < file_writes_max, "{}", outcome.file_writes);
    }
}

#[test]
fn writes_of_one_stream_in_order_are_not_gathered() {
    let writes = (0..2000).map(|at| (at * 65_536, 65_536));
    let outcome = replay(GatherLimits::for_memory(64 << 20), writes);
    assert_eq!((outcome.bypassed, outcome.memory_bytes_max), (2000, 0));
}

#[test]
fn random_writes_use_the_memory_of_few_extents() {
    let mut dice = Dice(7);
    let writes: Vec<_> = (0..20_000).map(|_| (dice.below(1 << 18) * 4096, 4096)).collect();
    let outcome = replay(GatherLimits::for_memory(64 << 20), writes);
    assert!(outcome.memory_bytes_max <= 8 << 20, "{}", outcome.memory_bytes_max);
    assert!(outcome.bypassed > 19_000, "{}", outcome.bypassed);
}

#[test]
fn single_bytes_far_apart_take_no_memory() {
    let writes = (0..20_000).map(|at: u64| (at * 7919 % 20_000 * (1 << 20), 1));
    let outcome = replay(GatherLimits::for_memory(64 << 20), writes);
    assert_eq!((outcome.bypassed, outcome.memory_bytes_max), (20_000, 0));
}

#[test]
fn single_bytes_of_one_extent_stay_within_the_fragments() {
    let limits = GatherLimits { opening_bytes_min: 1, ..GatherLimits::for_memory(64 << 20) };
    let writes = (0..20_000).map(|at: u64| (at * 7919 % 20_000 * 2, 1));
    let bound = limits.extent_fragments_max;
    let outcome = replay(limits, writes);
    assert_eq!(outcome.fragments_max, bound);
}
