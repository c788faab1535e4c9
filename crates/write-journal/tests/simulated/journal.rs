//! The journal by itself: batches, bounds, room, failures, and what a replay brings.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_write_journal::{
    Config, Dropped, Journal, JournalError, OpenError, Record, Replay, Storage, Turn, Waiter,
};
use parking_lot::Mutex;
use types::{FileId, Random};

use crate::disk::{Dice, Disk, Name, Segments};
use crate::pool::{INSTANCE, Salts, small_config};

type Outcomes = Arc<Mutex<Vec<Result<(), JournalError>>>>;

struct Bench {
    disk: Arc<Disk>,
    journal: Arc<Journal>,
    outcomes: Outcomes,
}

fn salts(seed: u64) -> Arc<dyn Random> {
    Arc::new(Salts::Seeded(Mutex::new(Dice::seeded(seed))))
}

fn open(disk: &Arc<Disk>) -> Replay {
    Replay::open(Arc::new(Segments(Arc::clone(disk))), INSTANCE).unwrap()
}

fn replayed(disk: &Arc<Disk>) -> Vec<(u64, u64)> {
    open(disk).map(|entry| entry.unwrap()).map(|entry| (entry.record().file().0, entry.sequence)).collect()
}

impl Bench {
    fn new() -> Bench {
        Bench::on(Arc::default(), salts(1))
    }

    fn on(disk: Arc<Disk>, random: Arc<dyn Random>) -> Bench {
        let mut replay = open(&disk);
        assert!(replay.by_ref().all(|entry| entry.is_ok()));
        let journal = replay.finish(small_config(), random).unwrap();
        Bench { disk, journal, outcomes: Outcomes::default() }
    }

    fn waiter(&self) -> Waiter {
        let outcomes = Arc::clone(&self.outcomes);
        Box::new(move |outcome| outcomes.lock().push(outcome))
    }

    fn append(&self, record: &Record<'_>) -> Result<(u64, Option<Turn>), JournalError> {
        let appended = self.journal.append(record, self.waiter()).map_err(|refused| refused.reason)?;
        Ok((appended.sequence, appended.turn))
    }

    fn write(&self, file: u64, len: usize) -> Result<u64, JournalError> {
        let bytes = vec![3; len];
        let record = Record::Write { file: FileId(file), birth: 0, epoch: 0, offset: 0, bytes: &bytes };
        let (sequence, turn) = self.append(&record)?;
        turn.expect("nobody leads").lead();
        Ok(sequence)
    }

    fn barrier(&self) {
        if let Some(turn) = self.journal.barrier(self.waiter()) {
            turn.lead();
        }
    }

    fn fill(&self) {
        while self.write(1, 500).is_ok() {}
    }

    fn last(&self) -> Result<(), JournalError> {
        self.outcomes.lock().last().expect("somebody was told").clone()
    }
}

#[test]
fn one_turn_writes_the_records_of_all_who_wait() {
    let bench = Bench::new();
    let record = Record::Remove { file: FileId(1) };
    let (_, turn) = bench.append(&record).unwrap();
    for _ in 0..5 {
        assert!(bench.append(&record).unwrap().1.is_none(), "there is one turn");
    }
    assert!(bench.outcomes.lock().is_empty());
    turn.unwrap().lead();
    assert!(bench.outcomes.lock().iter().all(Result::is_ok));
    assert_eq!(bench.outcomes.lock().len(), 6);
}

#[test]
fn a_turn_that_is_given_up_is_told_and_the_next_writes_its_records() {
    let bench = Bench::new();
    let (_, turn) = bench.append(&Record::Remove { file: FileId(1) }).unwrap();
    drop(turn);
    assert!(matches!(bench.last(), Err(JournalError::Abandoned)));
    bench.write(2, 10).unwrap();
    assert_eq!(replayed(&bench.disk), [(1, 1), (2, 2)]);
}

#[test]
fn a_journal_is_at_rest_until_a_turn_is_given_and_after_it_ended() {
    let bench = Bench::new();
    let is_at_rest = || bench.journal.wait_for_rest(Duration::ZERO);
    assert!(is_at_rest());
    let record = Record::Remove { file: FileId(1) };
    let (_, turn) = bench.append(&record).unwrap();
    assert!(!is_at_rest());
    assert!(matches!(bench.journal.void(), Err(JournalError::Unsettled)));
    bench.journal.settled(FileId(1), 1);
    assert!(matches!(bench.journal.void(), Err(JournalError::Busy)));
    drop(turn);
    assert!(is_at_rest());
    let (_, turn) = bench.append(&record).unwrap();
    turn.unwrap().lead();
    assert!(is_at_rest());
}

#[test]
fn a_wait_for_rest_ends_with_the_turn() {
    for is_led in [true, false] {
        let bench = Bench::new();
        let (_, turn) = bench.append(&Record::Remove { file: FileId(1) }).unwrap();
        let (tell, told) = mpsc::channel();
        let journal = Arc::clone(&bench.journal);
        let waits = std::thread::spawn(move || {
            tell.send(()).unwrap();
            journal.wait_for_rest(Duration::MAX)
        });
        told.recv().unwrap();
        std::thread::yield_now();
        if is_led {
            turn.unwrap().lead()
        } else {
            drop(turn)
        }
        assert!(waits.join().unwrap());
    }
}

/// Twelve records, of which the first and the last have a waiter that panics.
fn append_with_waiters_that_panic(bench: &Bench) -> Turn {
    let record = Record::Remove { file: FileId(1) };
    let mut turn = None;
    for index in 0..12 {
        let panics: Waiter = Box::new(|_| panic!("expected by this test"));
        let waiter = if index % 11 == 0 { panics } else { bench.waiter() };
        let appended = bench.journal.append(&record, waiter).map_err(|refused| refused.reason).unwrap();
        turn = turn.or(appended.turn);
    }
    turn.unwrap()
}

#[test]
fn a_waiter_that_panics_keeps_no_other_untold_nor_the_turn() {
    let bench = Bench::new();
    append_with_waiters_that_panic(&bench).lead();
    assert_eq!(bench.outcomes.lock().len(), 10);
    assert!(bench.outcomes.lock().iter().all(Result::is_ok));
    bench.write(2, 10).unwrap();
    assert!(bench.last().is_ok());

    let bench = Bench::new();
    drop(append_with_waiters_that_panic(&bench));
    assert_eq!(bench.outcomes.lock().len(), 10);
    assert!(matches!(bench.last(), Err(JournalError::Abandoned)));
    bench.write(2, 10).unwrap();
    assert!(bench.last().is_ok());
}

#[test]
fn a_storage_that_panics_fails_the_journal_and_all_who_wait_are_told_once() {
    let bench = Bench::new();
    let (_, turn) = bench.append(&Record::Remove { file: FileId(1) }).unwrap();
    bench.append(&Record::Remove { file: FileId(1) }).unwrap();
    let (journal, late) = (Arc::clone(&bench.journal), bench.waiter());
    bench.disk.at_a_segment_sync(move || {
        assert!(journal.append(&Record::Remove { file: FileId(2) }, late).is_ok());
        panic!("expected by this test");
    });
    turn.unwrap().lead();
    let outcomes = std::mem::take(&mut *bench.outcomes.lock());
    assert_eq!(outcomes.len(), 3, "one came while the others were written");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(JournalError::Failed { .. }))));
    assert!(matches!(bench.write(3, 10), Err(JournalError::Failed { .. })));
    for file in [1, 2] {
        bench.journal.settled(FileId(file), u64::MAX);
    }
    bench.journal.void().unwrap();
    assert!(replayed(&bench.disk).is_empty());
}

#[test]
fn a_storage_that_panics_while_records_are_made_void_is_a_failure_of_that_segment() {
    let bench = Bench::new();
    bench.disk.at_a_segment_sync(|| panic!("expected by this test"));
    bench.journal.void().unwrap();
    bench.write(1, 10).unwrap();
    assert!(bench.last().is_ok());
}

#[test]
fn every_queue_has_a_bound() {
    let bench = Bench::new();
    let long = vec![0; small_config().payload_bytes_max + 1];
    let write = |file, bytes| Record::Write { file: FileId(file), birth: 0, epoch: 0, offset: 0, bytes };
    assert!(matches!(bench.append(&write(1, &long)), Err(JournalError::TooLarge)));
    let mut turns = Vec::new();
    for _ in 0..small_config().waiting_max {
        turns.push(bench.append(&write(1, b"a")).unwrap().1);
    }
    assert!(matches!(bench.append(&write(1, b"a")), Err(JournalError::Busy)));
    bench.journal.settled(FileId(1), 1);
    assert!(bench.journal.barrier(bench.waiter()).is_none());
    assert!(matches!(bench.last(), Err(JournalError::Busy)));
    turns.swap_remove(0).unwrap().lead();
    for file in 2..=small_config().files_max as u64 {
        bench.write(file, 1).unwrap();
    }
    assert!(matches!(bench.write(99, 1), Err(JournalError::Full)), "too many live files");
    bench.write(1, 1).unwrap();
}

#[test]
fn a_full_journal_refuses_and_a_note_on_disk_makes_room() {
    let bench = Bench::new();
    bench.fill();
    assert!(matches!(bench.write(1, 500), Err(JournalError::Full)));
    assert!(bench.journal.usage().is_half_full());
    let brought = replayed(&bench.disk).len();
    assert_eq!(bench.outcomes.lock().iter().filter(|outcome| outcome.is_ok()).count(), brought);
    bench.journal.settled(FileId(1), bench.journal.newest(FileId(1)).unwrap());
    assert!(matches!(bench.write(1, 500), Err(JournalError::Full)), "the note is not on disk");
    assert!(bench.journal.is_live(FileId(1)));
    bench.barrier();
    assert!(bench.last().is_ok() && !bench.journal.is_live(FileId(1)));
    bench.write(1, 500).unwrap();
    assert_eq!(replayed(&bench.disk).len(), 1);
}

#[test]
fn a_segment_is_not_used_again_before_its_end_is_on_disk() {
    let bench = Bench::new();
    for file in [1, 1, 1, 1, 1, 1, 2] {
        bench.write(file, 600).unwrap();
    }
    bench.journal.settled(FileId(1), 6);
    let bytes = [4; 600];
    let record = Record::Write { file: FileId(2), birth: 0, epoch: 0, offset: 0, bytes: &bytes };
    let (_, turn) = bench.append(&record).unwrap();
    for _ in 0..4 {
        assert!(bench.append(&record).unwrap().1.is_none());
    }
    assert!(matches!(bench.append(&record), Err(JournalError::Full)));
    turn.unwrap().lead();
    assert!(bench.append(&record).is_ok());
}

#[test]
fn the_oldest_files_are_named_first() {
    let bench = Bench::new();
    for file in [5, 3, 4, 5] {
        bench.write(file, 10).unwrap();
    }
    let files = |limit| {
        let unsettled = bench.journal.oldest_unsettled(limit);
        unsettled.into_iter().map(|unsettled| (unsettled.file.0, unsettled.newest)).collect::<Vec<_>>()
    };
    assert_eq!(files(2), [(5, 4), (3, 2)]);
    bench.journal.settled(FileId(3), 2);
    assert_eq!(files(9), [(5, 4), (4, 3)]);
    bench.journal.settled(FileId(5), 3);
    assert_eq!(files(9), [(4, 3), (5, 4)]);
}

#[test]
fn a_replay_leaves_out_settled_removed_and_fenced_records() {
    let bench = Bench::new();
    bench.write(1, 10).unwrap();
    bench.write(2, 10).unwrap();
    for record in [
        Record::Create { file: FileId(3), birth: 8, epoch: 1 },
        Record::Fence { file: FileId(3), epoch: 2 },
        Record::Write { file: FileId(3), birth: 8, epoch: 1, offset: 0, bytes: b"late" },
        Record::Write { file: FileId(3), birth: 8, epoch: 2, offset: 0, bytes: b"new" },
        Record::Remove { file: FileId(2) },
        Record::Write { file: FileId(1), birth: 0, epoch: 0, offset: 9, bytes: b"more" },
    ] {
        bench.append(&record).unwrap().1.unwrap().lead();
    }
    bench.journal.settled(FileId(1), 1);
    bench.barrier();
    let replay = open(&bench.disk);
    let summary = replay.summary();
    assert_eq!((summary.records, summary.settled, summary.removed, summary.fenced), (5, 1, 1, 1));
    let entries: Vec<_> = replay.map(|entry| entry.unwrap()).collect();
    assert_eq!(
        entries[4].record(),
        Record::Write { file: FileId(1), birth: 0, epoch: 0, offset: 9, bytes: b"more" }
    );
    assert_eq!(replayed(&bench.disk), [(3, 3), (3, 4), (3, 6), (2, 7), (1, 8)]);
}

#[test]
fn a_failed_sync_is_told_to_all_who_wait_and_ends_the_journal() {
    let bench = Bench::new();
    bench.write(1, 10).unwrap();
    bench.disk.fail_a_segment_sync();
    bench.write(2, 10).unwrap();
    assert!(matches!(bench.last(), Err(JournalError::Failed { .. })));
    assert!(matches!(bench.write(3, 10), Err(JournalError::Failed { .. })));
    bench.journal.settled(FileId(1), 1);
    bench.barrier();
    assert!(matches!(bench.last(), Err(JournalError::Failed { .. })));
    assert!(bench.journal.is_live(FileId(1)));
    assert!(matches!(bench.journal.void(), Err(JournalError::Unsettled)));
    bench.journal.settled(FileId(2), 2);
    bench.journal.void().unwrap();
    assert!(!bench.journal.is_live(FileId(1)));
    assert!(replayed(&bench.disk).is_empty());
    assert!(bench.journal.failure().is_some(), "it still takes nothing");
}

#[test]
fn void_finds_room_in_a_full_journal_and_appends_go_on() {
    let bench = Bench::new();
    bench.fill();
    let newest = bench.journal.newest(FileId(1)).unwrap();
    bench.journal.settled(FileId(1), newest);
    bench.journal.void().unwrap();
    assert!(replayed(&bench.disk).is_empty());
    let sequence = bench.write(4, 10).unwrap();
    assert!(sequence > newest);
    assert_eq!(replayed(&bench.disk), [(4, sequence)]);
}

#[test]
fn void_tries_the_next_segment_and_a_journal_that_cannot_is_failed() {
    let bench = Bench::new();
    bench.disk.fail_a_segment_sync();
    bench.journal.void().unwrap();
    bench.write(1, 10).unwrap();
    bench.journal.settled(FileId(1), u64::MAX);
    (0..4).for_each(|_| bench.disk.fail_a_segment_sync());
    assert!(matches!(bench.journal.void(), Err(JournalError::Failed { .. })));
    assert!(bench.journal.failure().is_some() && bench.journal.is_live(FileId(1)));
}

#[test]
fn another_instance_and_a_newer_version_are_refused_in_one_line() {
    let bench = Bench::new();
    let storage = Segments(Arc::clone(&bench.disk));
    let other = Replay::open(Arc::new(Segments(Arc::clone(&bench.disk))), [8; 16]);
    let error = other.err().expect("another instance");
    assert!(matches!(error, OpenError::OtherInstance { segment: 1 }), "{error}");
    let mut sector = [0; 512];
    storage.read_at(1, 0, &mut sector).unwrap();
    sector[12] = 2;
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &sector[12..]) as u32;
    sector[8..12].copy_from_slice(&sum.to_le_bytes());
    storage.write_at(1, 0, &sector).unwrap();
    let error = Replay::open(Arc::new(storage), INSTANCE).err().expect("a newer version");
    assert!(matches!(error, OpenError::NewerVersion { found: 2, known: 1, .. }), "{error}");
    assert!(!error.to_string().contains('\n'));
}

#[test]
fn a_record_that_had_been_on_disk_and_is_damaged_is_told_from_a_torn_end() {
    let bench = Bench::new();
    for file in 1..=3 {
        bench.write(file, 10).unwrap();
    }
    // The second record of 80 + 16 bytes.
    bench.disk.write(Name::Segment(1), 4096 + 96 + 20, &[0xff]).unwrap();
    let damaged = Dropped { from_sequence: 2, records: 1, is_damage: true };
    assert_eq!(open(&bench.disk).summary().dropped, Some(damaged));
    assert_eq!(replayed(&bench.disk), [(1, 1)]);

    let bench = Bench::new();
    let (_, turn) = bench.append(&Record::Remove { file: FileId(1) }).unwrap();
    bench.append(&Record::Remove { file: FileId(2) }).unwrap();
    turn.unwrap().lead();
    bench.disk.write(Name::Segment(1), 4096 + 20, &[0xff]).unwrap();
    let torn = Dropped { from_sequence: 1, records: 1, is_damage: false };
    assert_eq!(open(&bench.disk).summary().dropped, Some(torn));
}

#[test]
fn records_behind_a_torn_end_of_the_segment_before_are_dropped() {
    let bench = Bench::new();
    for _ in 0..5 {
        bench.write(1, 600).unwrap();
    }
    let bytes = [4; 600];
    let record = Record::Write { file: FileId(2), birth: 0, epoch: 0, offset: 0, bytes: &bytes };
    let (_, turn) = bench.append(&record).unwrap();
    bench.append(&record).unwrap();
    turn.unwrap().lead();
    assert_eq!(replayed(&bench.disk).len(), 7);
    bench.disk.write(Name::Segment(1), 4096 + 5 * 680 + 20, &[0xff]).unwrap();
    let torn = Dropped { from_sequence: 6, records: 0, is_damage: false };
    assert_eq!(open(&bench.disk).summary().dropped, Some(torn));
    assert_eq!(replayed(&bench.disk).len(), 5);
}

/// The header of the second segment says where a replay begins, and reaches the disk without the removal before it.
#[test]
fn a_removal_that_was_torn_hides_no_record_of_its_file() {
    let bench = Bench::new();
    for _ in 0..5 {
        bench.write(1, 600).unwrap();
    }
    let (_, turn) = bench.append(&Record::Remove { file: FileId(1) }).unwrap();
    let bytes = [4; 600];
    let record = Record::Write { file: FileId(2), birth: 0, epoch: 0, offset: 0, bytes: &bytes };
    bench.append(&record).unwrap();
    turn.unwrap().lead();
    assert_eq!(replayed(&bench.disk), [(1, 6), (2, 7)]);
    bench.disk.write(Name::Segment(1), 4096 + 5 * 680 + 20, &[0xff]).unwrap();
    assert_eq!(replayed(&bench.disk), [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]);
}

#[test]
fn a_header_that_no_crash_leaves_is_reported() {
    let bench = Bench::new();
    bench.write(1, 10).unwrap();
    assert_eq!(open(&bench.disk).summary().damaged_headers, 0);
    bench.disk.write(Name::Segment(1), 50, &[0xff]).unwrap();
    let replay = open(&bench.disk);
    assert_eq!((replay.summary().records, replay.summary().damaged_headers), (0, 1));
}

#[test]
fn a_journal_takes_other_bounds_at_a_start() {
    let bench = Bench::new();
    bench.write(1, 100).unwrap();
    for (segments, segment_bytes) in [(6, 8192), (5, 12288), (4, 12288)] {
        let config = Config { segments, segment_bytes, ..small_config() };
        let mut replay = open(&bench.disk);
        replay.by_ref().for_each(drop);
        let journal = replay.finish(config, salts(2)).unwrap();
        let storage = Segments(Arc::clone(&bench.disk));
        let found = storage.segments().unwrap();
        assert_eq!(found.len(), segments as usize);
        assert!(found.iter().all(|segment| storage.segment_bytes(*segment).unwrap() == segment_bytes));
        assert!(replayed(&bench.disk).is_empty());
        let appended = journal.append(&Record::Remove { file: FileId(1) }, Box::new(|_| {}));
        appended.ok().and_then(|appended| appended.turn).unwrap().lead();
        assert_eq!(replayed(&bench.disk).len(), 1);
    }
}

/// Records that reached the disk without the header of their segment, and later uses of that segment at the same
/// sequence numbers.
fn stale_records_come_back(seed: u64, random: &Arc<dyn Random>) -> bool {
    let bench = Bench::on(Arc::default(), Arc::clone(random));
    let mut dice = Dice::seeded(seed);
    for _ in 0..6 {
        bench.write(1, 600).unwrap();
    }
    let (_, turn) = bench.append(&Record::Remove { file: FileId(2) }).unwrap();
    bench.append(&Record::Remove { file: FileId(3) }).unwrap();
    bench.disk.go_down_after(1);
    turn.unwrap().lead();
    bench.disk.lose_power(&mut dice);
    let bench = Bench::on(Arc::clone(&bench.disk), Arc::clone(random));
    let (sequence, turn) = bench.append(&Record::Remove { file: FileId(4) }).unwrap();
    turn.unwrap().lead();
    bench.disk.lose_power(&mut dice);
    replayed(&bench.disk) != [(4, sequence)]
}

#[test]
fn records_of_a_use_whose_header_was_lost_do_not_come_back() {
    let same: Arc<dyn Random> = Arc::new(Salts::Same);
    assert!((0..200).any(|seed| stale_records_come_back(seed, &same)), "the salt is needed");
    let seeded = salts(5);
    assert!(!(0..200).any(|seed| stale_records_come_back(seed, &seeded)));
}
