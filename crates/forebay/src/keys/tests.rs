//! Renewals over restarts, kills and clocks that are set, seen by the tickets that pools accept.

use api::{Birth, Conditions, Demand, Presence, Ticket, TicketError, TicketMode};
use testkit::clock::ManualClock;
use types::{Epoch, FileId};

use super::*;
use crate::system::SystemRandom;

const POOL: PoolId = PoolId(0);
const RULES: KeyRules = KeyRules { renew_after_s: 0, overlap_s: 100 };

struct Scene {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
}

impl Scene {
    fn new() -> Scene {
        Scene { dir: tempfile::tempdir().unwrap(), clock: Arc::new(ManualClock::new(1_000)) }
    }

    /// As a start does; the one before has ended, or was killed.
    fn start(&self, rules: KeyRules) -> Keys {
        let data = DataDir::open(self.dir.path(), None, &SystemRandom).unwrap();
        Keys::open(&data, rules, self.clock.clone()).unwrap()
    }
}

const TICKET: Ticket = Ticket {
    file: FileId(7),
    birth: Birth(5),
    pool: POOL,
    mode: TicketMode::Read,
    epoch: Epoch(0),
    presence: Presence::Written,
    io: types::IoMode::Auto,
};

fn sealed(keys: &Keys) -> Vec<u8> {
    keys.ticket_keys().seal(&TICKET, Conditions::of_sole_replica(Demand(0))).to_vec()
}

/// Whether the pool accepts each of the tickets.
fn accepted<const N: usize>(keys: &Keys, tickets: [&Vec<u8>; N]) -> [bool; N] {
    tickets.map(|ticket| match keys.pool_key(POOL).open(ticket) {
        Ok(_) => true,
        Err(TicketError::UnknownGeneration) => false,
        Err(error) => panic!("{error}"),
    })
}

fn report(generation: u32, age_s: u64, former_left_s: u64) -> KeysReport {
    KeysReport { generation, age_s, former_left_s }
}

#[test]
fn a_pool_accepts_the_former_generation_for_the_time_of_the_overlap() {
    let scene = Scene::new();
    let keys = scene.start(RULES);
    let face = keys.pool_key(POOL);
    let first = sealed(&keys);
    assert_eq!(keys.report(), report(0, 0, 0));
    assert_eq!(keys.renew().unwrap(), report(1, 0, 100));
    let second = sealed(&keys);
    assert_ne!(first, second);
    assert_eq!(accepted(&keys, [&first, &second]), [true, true]);
    scene.clock.advance(99);
    keys.end_overlap();
    assert_eq!((accepted(&keys, [&first, &second]), keys.report()), ([true, true], report(1, 99, 1)));
    scene.clock.advance(1);
    keys.end_overlap();
    assert_eq!((accepted(&keys, [&first, &second]), keys.report()), ([false, true], report(1, 100, 0)));
    assert!(face.open(&first).is_err() && face.open(&second).is_ok(), "a face that started before");
    assert!(keys.pool_key(PoolId(1)).open(&first).is_err(), "a pool that came later");
}

#[test]
fn two_renewals_at_once_refuse_all_tickets_from_before() {
    let scene = Scene::new();
    let keys = scene.start(RULES);
    let first = sealed(&keys);
    keys.renew().unwrap();
    let second = sealed(&keys);
    assert_eq!(keys.renew().unwrap(), report(2, 0, 100));
    let third = sealed(&keys);
    assert_eq!(accepted(&keys, [&first, &second, &third]), [false, true, true]);
}

#[test]
fn a_start_has_the_keys_and_what_is_left_of_the_overlap() {
    let scene = Scene::new();
    let keys = scene.start(RULES);
    let first = sealed(&keys);
    keys.renew().unwrap();
    let second = sealed(&keys);
    drop(keys);
    scene.clock.advance(60);
    let keys = scene.start(RULES);
    assert_eq!((accepted(&keys, [&first, &second]), keys.report()), ([true, true], report(1, 60, 40)));
    scene.clock.advance(40);
    let keys = scene.start(RULES);
    assert_eq!((accepted(&keys, [&first, &second]), keys.report()), ([false, true], report(1, 100, 0)));
}

#[tokio::test]
async fn tickets_to_write_of_former_terms_end_for_good_once_writes_by_them_are_over() {
    let scene = Scene::new();
    let of_mode = |keys: &Keys, mode| {
        let ticket = Ticket { mode, ..TICKET };
        keys.ticket_keys().seal(&ticket, Conditions::of_sole_replica(Demand(0)))
    };
    let (write, read) = (TicketMode::ReadWrite, TicketMode::Read);
    let keys = scene.start(RULES);
    let former = [write, read].map(|mode| of_mode(&keys, mode));
    let keys = Arc::new(scene.start(RULES));
    let (face, newer) = (keys.pool_key(POOL), of_mode(&keys, write));
    let term = face.open(&former[0]).expect("its client may reclaim").term;
    let pass = face.floor().begin_write(term).unwrap().expect("it is waited for");
    let bytes = pass.go_with(bytes::Bytes::from_static(b"late"));
    let former_terms = FormerTerms(Arc::clone(&keys));
    tokio::time::pause();
    assert!(former_terms.void().await.unwrap_err().contains("do not end"));
    assert_eq!(face.open(&former[0]), Err(TicketError::FormerTerm));
    drop(bytes);
    former_terms.void().await.unwrap();
    assert!(face.open(&former[1]).is_ok() && face.open(&newer).is_ok());
    let later = scene.start(RULES);
    for pool in [POOL, PoolId(1)] {
        assert!(!later.pool_key(pool).floor().admits(term), "{pool}");
    }
    assert!(later.pool_key(POOL).open(&newer).is_ok());
}

/// The process ends after the renewal is on disk and before a pool or the head knows of it.
#[test]
fn a_renewal_that_was_cut_off_is_finished_by_the_next_start() {
    let scene = Scene::new();
    let keys = scene.start(RULES);
    let before = sealed(&keys);
    keys.store.lock().store(Renewal { generation: KeyGeneration(1), renewed_s: 1_000 }).unwrap();
    assert_eq!(sealed(&keys), before);
    let keys = scene.start(RULES);
    assert_eq!(keys.report(), report(1, 0, 100));
    assert_eq!(accepted(&keys, [&before, &sealed(&keys)]), [true, true]);
    assert_eq!(keys.renew().unwrap().generation, 2);
}

#[test]
fn a_renewal_that_is_not_on_disk_did_not_happen() {
    let scene = Scene::new();
    let keys = scene.start(RULES);
    let before = sealed(&keys);
    let in_the_way = scene.dir.path().join("keys.json.new");
    std::fs::create_dir(&in_the_way).unwrap();
    assert!(keys.renew().unwrap_err().to_string().contains("keys.json"));
    assert_eq!((sealed(&keys), keys.report()), (before, report(0, 0, 0)));
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(keys.renew().unwrap().generation, 1);
}

#[test]
fn a_wall_clock_that_is_set_back_makes_no_overlap_longer_than_it_is() {
    let scene = Scene::new();
    scene.start(RULES).renew().unwrap();
    scene.clock.set(10);
    let keys = scene.start(RULES);
    assert_eq!(keys.report(), report(1, 0, 100));
    scene.clock.advance(100);
    scene.clock.set(0);
    keys.end_overlap();
    assert_eq!(keys.report(), report(1, 100, 0));
}

#[test]
fn keys_are_renewed_by_themselves_when_they_are_old_enough() {
    let scene = Scene::new();
    let keys = scene.start(KeyRules { renew_after_s: 500, ..RULES });
    scene.clock.advance(499);
    keys.renew_if_due().unwrap();
    assert_eq!(keys.report(), report(0, 499, 0));
    scene.clock.advance(1);
    for _ in 0..2 {
        keys.renew_if_due().unwrap();
        assert_eq!(keys.report(), report(1, 0, 100), "once");
    }
    scene.clock.advance(1_000_000);
    let never = scene.start(RULES);
    never.renew_if_due().unwrap();
    assert_eq!(never.report().generation, 1);
}

#[test]
fn the_state_of_the_keys_is_told_in_a_line() {
    assert_eq!(report(0, 60, 0).to_string(), "generation 0, 1 min 0 s old");
    let text = report(3, 3_600, 82_800).to_string();
    assert_eq!(text, "generation 3, 1 h 0 min old; tickets of generation 2 for 23 h 0 min more");
}

/// As where the disk fails to sync the directory: the new file is there, and the renewal an error.
#[test]
fn a_renewal_whose_write_failed_half_way_does_not_stop_the_next_one() {
    let scene = Scene::new();
    let keys = scene.start(RULES);
    let first = sealed(&keys);
    assert_eq!(accepted(&keys, [&first]), [true]);
    let in_the_way = scene.dir.path().join("keys.json.new");
    std::fs::create_dir(&in_the_way).unwrap();
    keys.renew().unwrap_err();
    assert_eq!(
        (sealed(&keys), keys.report()),
        (first.clone(), report(0, 0, 0)),
        "nothing is sealed that is not on disk"
    );
    std::fs::remove_dir(&in_the_way).unwrap();
    let data = DataDir::open_existing(scene.dir.path(), &SystemRandom).unwrap();
    KeyStore::of(&data).store(Renewal { generation: KeyGeneration(1), renewed_s: 1 }).unwrap();
    assert_eq!(keys.renew().unwrap(), report(1, 0, 100));
    let second = sealed(&keys);
    assert_eq!(accepted(&keys, [&first, &second]), [true, true]);
}

/// A start that was killed between its pools and its keys made the next one complain.
#[test]
fn the_first_generation_is_noted_before_pools_are_recorded_and_a_lost_note_is_not_made_up() {
    let scene = Scene::new();
    let open = || DataDir::open(scene.dir.path(), None, &SystemRandom).unwrap();
    let note = scene.dir.path().join("keys.json");
    let data = open();
    begin(&data, &*scene.clock).unwrap();
    data.record_pools().unwrap();
    drop(data);
    assert!(note.exists());
    std::fs::remove_file(&note).unwrap();
    begin(&open(), &*scene.clock).unwrap();
    assert!(!note.exists());
}
