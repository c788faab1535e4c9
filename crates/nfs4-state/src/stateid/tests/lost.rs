//! Clients that have lost locks: what is withheld from them, until when, and at the bounds of what is remembered.

use super::super::lost::LostLimits;
use super::*;
use crate::Incarnation;

const OLD: ClientId4 = ClientId4(1);
const NEW: ClientId4 = ClientId4(2);
const NOW: Duration = Duration::ZERO;

fn incarnation(boot: u8) -> Incarnation {
    Incarnation { owner: Bytes::from_static(b"host"), verifier: [boot; 8] }
}

fn states(limits: LostLimits) -> ClientState {
    let mut states = ClientState::new(1, DOOR, Arc::new(Mutex::new(FileState::default())));
    states.lost.limits = limits;
    states.lost().introduce(OLD, incarnation(1));
    states
}

fn open(states: &mut ClientState, client: ClientId4, file: FileId) -> StateId4 {
    let owner = Bytes::from_static(b"owner");
    states.opens().open(OpenRequest { client, owner, file, access: 3, deny: 0, is_unlinked: false }).unwrap()
}

fn lock(states: &mut ClientState, client: ClientId4, file: FileId) {
    let open = open(states, client, file);
    let locker = Locker::New { open, owner: Bytes::from_static(b"locker") };
    let range = ByteRange::new(0, 10).unwrap();
    let request = LockRequest { client, file, locker, locktype: NfsLockType4::Write, range };
    assert!(matches!(states.locks().lock(request), Ok(LockOutcome::Granted(_))));
}

fn layout(states: &mut ClientState, client: ClientId4, open: StateId4) -> Result<StateId4, NfsStat4> {
    let request = LayoutRequest { client, file: FILE, stateid: open, mode: LayoutMode::ReadWrite };
    states.layouts().get(&request, NOW)
}

fn delegate(states: &mut ClientState, client: ClientId4) -> Result<StateId4, FileStateError> {
    states.delegations().grant(client, FILE, (DelegationKind::Write, DelegationTerms::default()), NOW)
}

#[test]
fn a_client_that_lost_a_lock_gets_no_layout_and_no_delegation_until_it_has_closed_the_file() {
    let mut states = states(LostLimits::default());
    lock(&mut states, OLD, FILE);
    states.depart(OLD);
    states.lost().introduce(NEW, incarnation(1));
    let opened = open(&mut states, NEW, FILE);
    assert_eq!(layout(&mut states, NEW, opened), Err(NfsStat4::LayoutUnavailable), "is about to lose it");
    states.release(OLD, &[FILE]);
    assert_eq!(layout(&mut states, NEW, opened), Err(NfsStat4::LayoutUnavailable), "not fenced off yet");
    states.release(OLD, &[]);
    assert_eq!(layout(&mut states, NEW, opened), Err(NfsStat4::LayoutUnavailable));
    assert_eq!(delegate(&mut states, NEW), Err(FileStateError::InUse));
    states.opens().take_back(NEW, FILE, opened).unwrap();
    let opened = open(&mut states, NEW, FILE);
    assert_eq!(layout(&mut states, NEW, opened), Err(NfsStat4::LayoutUnavailable), "it closed nothing");
    states.opens().close(NEW, FILE, opened).unwrap();
    let opened = open(&mut states, NEW, FILE);
    layout(&mut states, NEW, opened).unwrap();
}

#[test]
fn a_client_without_a_lock_or_after_its_restart_gets_a_layout() {
    let mut states = states(LostLimits::default());
    open(&mut states, OLD, FILE);
    lock(&mut states, OLD, FileId(8));
    states.depart(OLD);
    states.release(OLD, &[]);
    states.lost().introduce(NEW, incarnation(1));
    assert!(!states.lost().has(NEW, FILE) && states.lost().has(NEW, FileId(8)));
    let restarted = ClientId4(3);
    states.lost().introduce(restarted, incarnation(2));
    assert!(!states.lost().has(restarted, FileId(8)));
    states
        .lost()
        .introduce(ClientId4(4), Incarnation { owner: Bytes::from_static(b"other"), verifier: [1; 8] });
    assert!(!states.lost().has(ClientId4(4), FileId(8)));
}

#[test]
fn a_client_that_was_refused_a_reclaim_gets_no_layout_until_it_has_closed_the_file() {
    let mut states = states(LostLimits::default());
    states.lost().reclaim_refused(OLD, FILE);
    let opened = open(&mut states, OLD, FILE);
    assert_eq!(layout(&mut states, OLD, opened), Err(NfsStat4::LayoutUnavailable));
    states.opens().close(OLD, FILE, opened).unwrap();
    let opened = open(&mut states, OLD, FILE);
    layout(&mut states, OLD, opened).unwrap();
}

#[test]
fn a_delegation_to_write_that_was_revoked_counts_as_a_lock_that_was_lost() {
    let mut states = states(LostLimits::default());
    let opened = open(&mut states, OLD, FILE);
    delegate(&mut states, OLD).unwrap();
    states.table.lock().recalls().begin(
        FILE,
        holder(DOOR, OLD),
        file_state::GrantKind::Delegation,
        Duration::from_secs(1),
    );
    let due = states.recalls().expired(Duration::from_secs(2), Duration::from_secs(9));
    assert!(states.recalls().revoke(&due[0]));
    assert_eq!(layout(&mut states, OLD, opened), Err(NfsStat4::LayoutUnavailable));
    states.opens().close(OLD, FILE, opened).unwrap();
    assert!(!states.lost().has(OLD, FILE));
}

#[test]
fn a_delegation_to_write_goes_with_its_client_as_a_lock_does() {
    let mut states = states(LostLimits::default());
    delegate(&mut states, OLD).unwrap();
    states.release(OLD, &[]);
    states.lost().introduce(NEW, incarnation(1));
    assert!(states.lost().has(NEW, FILE));
}

#[test]
fn beyond_what_is_remembered_every_file_counts_until_it_is_closed_or_nothing_is_open() {
    for limits in [
        LostLimits { files_each: 2, ..LostLimits::default() },
        LostLimits { files: 2, ..LostLimits::default() },
    ] {
        let mut states = states(limits);
        (0..3).for_each(|file| states.lost().reclaim_refused(OLD, FileId(file)));
        assert!(states.lost().has(OLD, FILE), "{limits:?}");
        let (one, another) = (open(&mut states, OLD, FILE), open(&mut states, OLD, FileId(8)));
        states.opens().close(OLD, FILE, one).unwrap();
        assert!(!states.lost().has(OLD, FILE) && states.lost().has(OLD, FileId(8)));
        states.lost().reclaim_refused(OLD, FILE);
        assert!(states.lost().has(OLD, FILE));
        states.opens().close(OLD, FileId(8), another).unwrap();
        assert!(!states.lost().has(OLD, FILE) && !states.lost().has(OLD, FileId(8)));
        assert_eq!(states.lost.counts(), (0, 0));
    }
}

#[test]
fn a_client_that_may_reclaim_nothing_has_lost_every_file_until_it_has_closed_it() {
    let mut states = states(LostLimits::default());
    let (one, another) = (open(&mut states, OLD, FILE), open(&mut states, OLD, FileId(8)));
    layout(&mut states, OLD, one).unwrap();
    states.lost().reclaims_refused(OLD, FileId(8));
    assert!(states.lost().has(OLD, FILE) && states.lost().has(OLD, FileId(8)));
    let due = states.recalls().expired(NOW, NOW);
    assert_eq!(due.iter().map(|due| (due.file, due.is_at_pools)).collect::<Vec<_>>(), [(FILE, true)]);
    assert!(states.recalls().revoke(&due[0]), "what it got meanwhile");
    assert_eq!(layout(&mut states, OLD, one), Err(NfsStat4::LayoutUnavailable));
    states.lost().created(OLD, FileId(9));
    assert!(!states.lost().has(OLD, FileId(9)), "it has just been made");
    states.opens().close(OLD, FILE, one).unwrap();
    let again = open(&mut states, OLD, FILE);
    layout(&mut states, OLD, again).unwrap();
    assert!(states.lost().has(OLD, FileId(8)));
    states.opens().close(OLD, FileId(8), another).unwrap();
    assert!(!states.lost().has(OLD, FileId(8)));
}

#[test]
fn a_client_that_may_reclaim_nothing_of_this_start_has_lost_what_is_known() {
    let mut states = states(LostLimits::default());
    states.lost().obtains(OLD);
    lock(&mut states, OLD, FILE);
    states.release(OLD, &[]);
    states.lost().introduce(NEW, incarnation(1));
    states.lost().reclaims_refused(NEW, FileId(8));
    assert!(states.lost().has(NEW, FILE) && states.lost().has(NEW, FileId(8)));
    assert!(!states.lost().has(NEW, FileId(9)));
    states.lost().introduce(ClientId4(3), incarnation(2));
    states.lost().reclaims_refused(ClientId4(3), FILE);
    assert!(states.lost().has(ClientId4(3), FileId(9)), "of another incarnation nothing is known");
}

#[test]
fn a_share_that_denied_something_is_lost_like_a_lock() {
    let mut states = states(LostLimits::default());
    let owner = Bytes::from_static(b"owner");
    let denying = OpenRequest { client: OLD, owner, file: FILE, access: 3, deny: 2, is_unlinked: false };
    states.opens().open(denying).unwrap();
    states.release(OLD, &[]);
    states.lost().introduce(NEW, incarnation(1));
    assert!(states.lost().has(NEW, FILE));
}

#[test]
fn an_owner_that_was_restarted_is_remembered_with_nothing() {
    let mut states = states(LostLimits::default());
    lock(&mut states, OLD, FILE);
    states.depart(OLD);
    states.lost().introduce(NEW, incarnation(2));
    states.release(OLD, &[]);
    assert_eq!(states.lost().count(), (0, false));
}

#[test]
fn a_client_that_was_forgotten_has_lost_every_file_and_others_have_not() {
    let mut states = states(LostLimits { incarnations: 2, ..LostLimits::default() });
    lose_and_leave(&mut states, 10..13);
    assert_eq!(states.lost().count(), (3, false));
    states.lost().introduce(ClientId4(114), host(14));
    assert!(!states.lost().has(ClientId4(114), FILE), "it has lost nothing");
    states.lost().introduce(ClientId4(110), host(10));
    assert!(states.lost().has(ClientId4(110), FileId(99)));
}

fn host(host: u8) -> Incarnation {
    Incarnation { owner: Bytes::from(vec![host]), verifier: [0; 8] }
}

/// One after the other loses locks and goes.
fn lose_and_leave(states: &mut ClientState, hosts: std::ops::Range<u8>) {
    for number in hosts {
        let client = ClientId4(number.into());
        states.lost().introduce(client, host(number));
        assert!(!states.lost().has(client, FILE), "{number}");
        states.lost().reclaim_refused(client, FILE);
        states.lost.leave(client);
    }
}

#[test]
fn a_client_that_may_be_one_that_was_dropped_has_lost_every_file() {
    let mut states = states(LostLimits { incarnations: 1, forgotten: 2, ..LostLimits::default() });
    states.lost().introduce(ClientId4(109), host(9));
    lose_and_leave(&mut states, 10..14);
    assert_eq!((states.lost().count(), states.lost.counts().1), ((3, true), 1));
    for number in [20, 10, 11, 12, 13] {
        let client = ClientId4(number + 100);
        states.lost().introduce(client, host(number as u8));
        assert!(states.lost().has(client, FILE), "{number}");
    }
    assert!(!states.lost().has(ClientId4(109), FILE), "it was there all the time");
}

/// Their tags filled the room of others.
#[test]
fn a_client_that_was_restarted_takes_no_room_among_those_that_were_forgotten() {
    let mut states = states(LostLimits { incarnations: 1, forgotten: 2, ..LostLimits::default() });
    lose_and_leave(&mut states, 10..13);
    assert_eq!(states.lost().count(), (3, false));
    states.lost().introduce(ClientId4(110), Incarnation { verifier: [1; 8], ..host(10) });
    assert!(!states.lost().has(ClientId4(110), FILE));
    assert_eq!(states.lost().count(), (2, false));
    lose_and_leave(&mut states, 13..14);
    assert_eq!(states.lost().count(), (3, false));
    states.lost().introduce(ClientId4(111), host(11));
    assert!(states.lost().has(ClientId4(111), FileId(99)));
}

#[test]
fn a_client_that_is_there_makes_no_room_for_others() {
    let mut states = states(LostLimits { incarnations: 1, forgotten: 0, ..LostLimits::default() });
    for number in 10..13 {
        let client = ClientId4(number.into());
        states.lost().introduce(client, host(number));
        states.lost().reclaim_refused(client, FILE);
    }
    assert!((10..13).all(|client| states.lost().has(ClientId4(client), FILE)));
    assert_eq!(states.lost().count(), (3, false));
}
