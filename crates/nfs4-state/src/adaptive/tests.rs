//! The rule played through as clients would, and a million random steps beside a model that is plain enough to be read.

use super::*;

mod model;

const A: ClientId4 = ClientId4(1);
const B: ClientId4 = ClientId4(2);
const FILE: FileId = FileId(7);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn rules() -> DelegationRules {
    DelegationRules { eviction_max: 100, active_max: 50, quiet_files_max: 10, ..DelegationRules::default() }
}

fn adaptive() -> Adaptive {
    Adaptive::new(rules())
}

/// Makes the file active for the client at `now`.
fn activate(adaptive: &mut Adaptive, client: ClientId4, file: FileId, now: Duration) {
    adaptive.accessed(client, file, now);
    assert!(adaptive.accessed(client, file, now));
}

#[test]
fn a_loop_over_ten_files_is_offered_each_from_its_second_open_on() {
    let mut adaptive = adaptive();
    for pass in 0..5 {
        for file in 0..10 {
            let offered = adaptive.accessed(A, FileId(file), s(pass * 20 + file));
            assert_eq!(offered, pass > 0, "file {file} in pass {pass}");
        }
    }
    let counts = adaptive.counts();
    assert_eq!((counts.in_eviction, counts.in_active), (0, 10));
}

#[test]
fn a_loop_over_more_files_than_active_holds_goes_on_in_eviction() {
    let mut adaptive = adaptive();
    for pass in 0..5 {
        for file in 0..100 {
            let offered = adaptive.accessed(A, FileId(file), s(pass * 50) + Duration::from_millis(file));
            assert_eq!(offered, pass > 0, "file {file} in pass {pass}");
        }
    }
    let counts = adaptive.counts();
    assert_eq!((counts.in_eviction, counts.in_active), (50, 50));
}

#[test]
fn a_scan_over_a_million_files_is_offered_none_and_stays_within_its_bounds() {
    let mut adaptive = Adaptive::new(DelegationRules::default());
    for file in 0..1_000_000 {
        assert!(!adaptive.accessed(A, FileId(file), Duration::from_micros(file)));
        assert!(adaptive.files <= 4_096);
    }
    let counts = adaptive.counts();
    assert_eq!((counts.clients, counts.in_eviction, counts.in_active), (1, 4_096, 0));
}

#[test]
fn a_scan_takes_no_active_file_away() {
    let mut adaptive = adaptive();
    activate(&mut adaptive, A, FILE, s(0));
    for file in 1_000..2_000 {
        adaptive.accessed(A, FileId(file), s(1));
    }
    assert!(adaptive.accessed(A, FILE, s(2)));
}

#[test]
fn a_file_reopened_slower_than_the_window_is_not_offered() {
    let mut adaptive = adaptive();
    for turn in 0..20 {
        assert!(!adaptive.accessed(A, FILE, s(turn * 61)));
    }
    assert!(adaptive.accessed(A, FILE, s(19 * 61 + 60)), "just within the window");
}

#[test]
fn an_active_file_is_offered_beyond_the_window_until_it_was_idle() {
    let mut adaptive = adaptive();
    activate(&mut adaptive, A, FILE, s(0));
    assert!(adaptive.accessed(A, FILE, s(600)), "idle for no longer than allowed");
    assert!(!adaptive.accessed(A, FILE, s(1_201)), "a second too long");
    assert!(adaptive.accessed(A, FILE, s(1_202)));
}

#[test]
fn idle_files_fall_back_to_eviction_when_the_client_opens_anything() {
    let mut adaptive = adaptive();
    (0..3).for_each(|file| activate(&mut adaptive, A, FileId(file), s(file)));
    adaptive.accessed(A, FILE, s(602));
    let counts = adaptive.counts();
    assert_eq!((counts.in_eviction, counts.in_active), (3, 1));
}

#[test]
fn a_full_active_queue_demotes_its_least_recently_used_file() {
    let mut adaptive = adaptive();
    (0..50).for_each(|file| activate(&mut adaptive, A, FileId(file), s(0)));
    assert!(adaptive.accessed(A, FileId(0), s(1)));
    activate(&mut adaptive, A, FileId(50), s(2));
    let counts = adaptive.counts();
    assert_eq!((counts.in_eviction, counts.in_active), (1, 50));
    let queues = &adaptive.clients[&A];
    assert!(queues.active.last_use(FileId(0)).is_some());
    assert!(queues.eviction.last_use(FileId(1)).is_some());
}

#[test]
fn a_full_eviction_queue_forgets_its_least_recently_used_file() {
    let mut adaptive = adaptive();
    (0..101).for_each(|file| assert!(!adaptive.accessed(A, FileId(file), s(0))));
    assert!(!adaptive.accessed(A, FileId(0), s(1)), "it was forgotten");
    assert!(adaptive.accessed(A, FileId(2), s(1)));
}

#[test]
fn accesses_of_one_client_do_not_count_for_another() {
    let mut adaptive = adaptive();
    activate(&mut adaptive, A, FILE, s(0));
    assert!(!adaptive.accessed(B, FILE, s(1)));
    for file in 1_000..2_000 {
        adaptive.accessed(B, FileId(file), s(1));
    }
    assert!(adaptive.accessed(A, FILE, s(2)));
}

#[test]
fn after_a_recall_nobody_is_offered_the_file_until_it_was_quiet_for_long_enough() {
    for mode in [DelegationMode::Adaptive, DelegationMode::Always] {
        let mut adaptive = Adaptive::new(DelegationRules { mode, ..rules() });
        for client in [A, B] {
            activate(&mut adaptive, client, FILE, s(0));
        }
        adaptive.recalled(FILE, s(10));
        for client in [A, B] {
            assert!(!adaptive.accessed(client, FILE, s(20)));
        }
        adaptive.recalled(FILE, s(20));
        assert!(adaptive.is_quiet(FILE, s(49)));
        assert!(!adaptive.accessed(A, FILE, s(49)), "the second recall counts");
        assert!(!adaptive.is_quiet(FILE, s(50)));
        assert!(adaptive.accessed(A, FILE, s(50)));
        assert_eq!(adaptive.counts().quiet_files, 0);
    }
}

#[test]
fn a_recall_keeps_no_other_file_from_being_offered() {
    let mut adaptive = adaptive();
    activate(&mut adaptive, A, FILE, s(0));
    adaptive.recalled(FileId(8), s(0));
    assert!(adaptive.accessed(A, FILE, s(1)));
}

#[test]
fn at_the_bound_of_quiet_files_the_one_recalled_first_is_forgotten() {
    let mut adaptive = adaptive();
    (0..11).for_each(|file| adaptive.recalled(FileId(file), s(file)));
    assert_eq!(adaptive.counts().quiet_files, 10);
    assert!(!adaptive.is_quiet(FileId(0), s(11)));
    assert!((1..11).all(|file| adaptive.is_quiet(FileId(file), s(11))));
}

#[test]
fn switched_off_nothing_is_offered_or_remembered() {
    let mut adaptive = Adaptive::new(DelegationRules { mode: DelegationMode::Off, ..rules() });
    for turn in 0..10 {
        assert!(!adaptive.accessed(A, FILE, s(turn)));
    }
    adaptive.recalled(FILE, s(10));
    assert_eq!(adaptive.counts(), AdaptiveCounts::default());
}

#[test]
fn always_means_with_the_first_open_and_remembers_no_client() {
    let mut adaptive = Adaptive::new(DelegationRules { mode: DelegationMode::Always, ..rules() });
    assert!(adaptive.accessed(A, FILE, s(0)));
    assert!(adaptive.accessed(A, FILE, s(1_000_000)));
    assert_eq!(adaptive.counts(), AdaptiveCounts::default());
}

#[test]
fn a_forgotten_client_leaves_nothing_and_begins_anew() {
    let mut adaptive = adaptive();
    activate(&mut adaptive, A, FILE, s(0));
    adaptive.forget_client(A);
    adaptive.forget_client(B);
    assert_eq!((adaptive.counts(), adaptive.files), (AdaptiveCounts::default(), 0));
    assert!(!adaptive.accessed(A, FILE, s(1)));
}

#[test]
fn at_the_bound_of_all_clients_the_one_longest_silent_forgets_first() {
    let mut adaptive = Adaptive::bounded(rules(), 10);
    (0..5).for_each(|file| activate(&mut adaptive, A, FileId(file), s(0)));
    (5..10).for_each(|file| assert!(!adaptive.accessed(A, FileId(file), s(0))));
    (0..5).for_each(|file| assert!(!adaptive.accessed(B, FileId(file), s(1))));
    let counts = adaptive.counts();
    assert_eq!((counts.in_eviction, counts.in_active), (5, 5), "what A opened once is gone first");
    (5..10).for_each(|file| assert!(!adaptive.accessed(B, FileId(file), s(2))));
    assert_eq!((adaptive.counts().clients, adaptive.files), (1, 10));
    // Alone, a client forgets its own.
    assert!(!adaptive.accessed(B, FileId(10), s(3)));
    assert_eq!((adaptive.counts().clients, adaptive.files), (1, 10));
}

#[test]
fn a_file_in_a_queue_is_48_bytes_and_its_share_of_the_trees_nodes() {
    assert_eq!(size_of::<(FileId, Use)>() + size_of::<(u64, FileId)>(), 48);
}
