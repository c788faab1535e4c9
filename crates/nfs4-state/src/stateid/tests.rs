//! The rules of stateids, one test each, and random steps of several clients.

use std::time::Duration;

use bytes::Bytes;
use file_state::{Change, ChangeVerdict, Holder, Limits, Owner};
use nfs4::{NfsLockType4, NfsStat4, StateId4};
use proptest::prelude::*;
use types::{ByteRange, FileId};

use super::table::judge_seqid;
use super::*;

const A: ClientId4 = ClientId4(0x0a);
const B: ClientId4 = ClientId4(0x0b);
const FILE: FileId = FileId(7);
const DOOR: Door = Door::numbered(3);
const OTHER_DOOR: Door = Door::numbered(1);
const READ: u32 = 1;
const WRITE: u32 = 2;
const BOTH: u32 = 3;

fn states() -> ClientState {
    with_limits(Limits::default())
}

fn with_limits(limits: Limits) -> ClientState {
    ClientState::new(0x00c0_ffee, DOOR, Arc::new(Mutex::new(FileState::new(limits))))
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn request(client: ClientId4, access: u32, deny: u32) -> OpenRequest {
    let owner = Bytes::from_static(b"open owner");
    OpenRequest { client, owner, file: FILE, access, deny, is_unlinked: false }
}

fn open(states: &mut ClientState, client: ClientId4, access: u32) -> StateId4 {
    states.opens().open(request(client, access, 0)).unwrap()
}

fn older(stateid: StateId4) -> StateId4 {
    StateId4 { seqid: stateid.seqid - 1, ..stateid }
}

fn newer(stateid: StateId4) -> StateId4 {
    StateId4 { seqid: stateid.seqid + 1, ..stateid }
}

fn newest(stateid: StateId4) -> StateId4 {
    StateId4 { seqid: 0, ..stateid }
}

/// Whether a file may be made smaller, and what is to be sent if not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Resize {
    Proceed,
    Wait(Vec<AddressedRecall>),
}

/// As the shell does: asks the table, and then for the stateids of the grants to recall.
fn begin_resize(states: &mut ClientState, file: FileId, by: Option<ClientId4>, deadline: Duration) -> Resize {
    let verdict = states.table.lock().changes().ask(
        file,
        by.map(|client| holder(DOOR, client)),
        Change::Truncate,
        deadline,
    );
    match verdict {
        ChangeVerdict::Proceed => Resize::Proceed,
        ChangeVerdict::Wait { recalls } => Resize::Wait(states.recalls().address(&recalls)),
    }
}

fn assert_empty(states: &ClientState) {
    assert!(states.states.is_empty() && states.owners.is_empty());
    assert_eq!(states.table.lock().holders().total(), file_state::Held::default());
}

mod opens {
    use super::*;

    #[test]
    fn an_owner_has_one_stateid_of_a_file_and_each_open_adds_one_to_its_seqid() {
        let mut states = states();
        let first = open(&mut states, A, READ);
        let second = open(&mut states, A, WRITE);
        assert_eq!((first.seqid, second.seqid), (1, 2));
        assert_eq!(first.other, second.other);
        assert_eq!(states.check_io(A, FILE, second, Modes::BOTH), Ok(()));
        assert_eq!(states.held_by(A).opens, 1);
        let other = states
            .opens()
            .open(OpenRequest { owner: Bytes::from_static(b"x"), ..request(A, READ, 0) })
            .unwrap();
        assert_ne!(other.other, first.other);
    }

    #[test]
    fn a_seqid_is_current_old_or_from_nowhere_and_zero_stands_for_the_newest() {
        let mut states = states();
        let first = open(&mut states, A, READ);
        let second = open(&mut states, A, READ);
        let check = |stateid| states.check_io(A, FILE, stateid, Modes::READ);
        assert_eq!(check(second), Ok(()));
        assert_eq!(check(newest(second)), Ok(()));
        assert_eq!(check(first), Err(NfsStat4::OldStateId));
        assert_eq!(check(newer(second)), Err(NfsStat4::BadStateId));
    }

    #[test]
    fn seqids_wrap_past_zero() {
        assert_eq!(judge_seqid(StateId4 { seqid: u32::MAX, other: [1; 12] }, 1), Err(NfsStat4::OldStateId));
        assert_eq!(judge_seqid(StateId4 { seqid: 1, other: [1; 12] }, u32::MAX), Err(NfsStat4::BadStateId));
        let mut table = StateTable::new(1);
        let key = table.insert(A, FILE, table::Kind::Layout);
        table.set_seqid(key, u32::MAX);
        assert_eq!(table.bump(key).seqid, 1);
    }

    #[test]
    fn a_stateid_is_bad_for_another_client_another_file_and_another_start() {
        let mut states = states();
        let stateid = open(&mut states, A, READ);
        assert_eq!(states.check_io(B, FILE, stateid, Modes::READ), Err(NfsStat4::BadStateId));
        assert_eq!(states.check_io(A, FileId(8), stateid, Modes::READ), Err(NfsStat4::BadStateId));
        let another_start = ClientState::new(2, DOOR, Arc::default());
        assert_eq!(another_start.check_io(A, FILE, stateid, Modes::READ), Err(NfsStat4::BadStateId));
    }

    #[test]
    fn io_needs_the_access_that_was_opened() {
        let mut states = states();
        let stateid = open(&mut states, A, READ);
        assert_eq!(states.check_io(A, FILE, stateid, Modes::WRITE), Err(NfsStat4::OpenMode));
        assert_eq!(states.check_io(A, FILE, stateid, Modes::BOTH), Err(NfsStat4::OpenMode));
    }

    #[test]
    fn without_an_open_denials_count_and_only_reading_goes_past_them() {
        let mut states = states();
        states.opens().open(request(A, READ, BOTH)).unwrap();
        let check = |stateid, access| states.check_io(B, FILE, stateid, access);
        assert_eq!(check(StateId4::ANONYMOUS, Modes::READ), Err(NfsStat4::Locked));
        assert_eq!(check(StateId4::BYPASS, Modes::READ), Ok(()));
        assert_eq!(check(StateId4::BYPASS, Modes::WRITE), Err(NfsStat4::Locked));
        assert_eq!(check(StateId4::INVALID, Modes::READ), Err(NfsStat4::BadStateId));
        assert_eq!(check(StateId4::CURRENT, Modes::READ), Err(NfsStat4::BadStateId));
        assert_eq!(states.check_io(B, FileId(8), StateId4::ANONYMOUS, Modes::WRITE), Ok(()));
    }

    #[test]
    fn a_denied_open_leaves_nothing_behind() {
        let mut states = states();
        let held = states.opens().open(request(A, READ, WRITE)).unwrap();
        assert_eq!(states.opens().open(request(B, WRITE, 0)), Err(NfsStat4::ShareDenied));
        states.opens().close(A, FILE, held).unwrap();
        assert_empty(&states);
    }

    #[test]
    fn share_bits_are_validated() {
        let mut states = states();
        for (access, deny) in [(0, 0), (4, 0), (1, 4)] {
            assert_eq!(states.opens().open(request(A, access, deny)), Err(NfsStat4::Inval));
        }
        assert_empty(&states);
    }

    #[test]
    fn at_the_bound_an_open_fails_at_once() {
        let limits = Limits { opens_per_holder: 0, ..Limits::default() };
        let mut states = with_limits(limits);
        assert_eq!(states.opens().open(request(A, READ, 0)), Err(NfsStat4::ServerFault));
        assert_empty(&states);
    }

    #[test]
    fn a_downgrade_names_the_union_of_some_of_the_opens() {
        let mut states = states();
        open(&mut states, A, READ);
        let both = open(&mut states, A, BOTH);
        assert_eq!(
            states.opens().downgrade(A, FILE, both, WRITE, 0),
            Err(NfsStat4::Inval),
            "never opened so"
        );
        assert_eq!(states.opens().downgrade(A, FILE, both, READ, READ), Err(NfsStat4::Inval));
        let read = states.opens().downgrade(A, FILE, both, READ, 0).unwrap();
        assert_eq!(read.seqid, both.seqid + 1);
        assert_eq!(states.check_io(A, FILE, read, Modes::WRITE), Err(NfsStat4::OpenMode));
        assert_eq!(states.opens().downgrade(A, FILE, read, BOTH, 0), Err(NfsStat4::Inval));
    }

    #[test]
    fn a_downgrade_lets_others_in() {
        let mut states = states();
        states.opens().open(request(A, READ, 0)).unwrap();
        let denying = states.opens().open(request(A, READ, WRITE)).unwrap();
        assert_eq!(states.opens().open(request(B, WRITE, 0)), Err(NfsStat4::ShareDenied));
        states.opens().downgrade(A, FILE, denying, READ, 0).unwrap();
        assert!(states.opens().open(request(B, WRITE, 0)).is_ok());
    }

    #[test]
    fn a_closed_stateid_is_bad() {
        let mut states = states();
        let stateid = open(&mut states, A, READ);
        assert!(states.table.lock().file(FILE).is_in_use());
        assert_eq!(states.opens().close(A, FILE, newer(stateid)), Err(NfsStat4::BadStateId));
        assert_eq!(states.opens().close(A, FILE, stateid), Ok(()));
        assert!(!states.table.lock().file(FILE).is_in_use());
        assert_eq!(states.opens().close(A, FILE, stateid), Err(NfsStat4::BadStateId));
        assert_eq!(states.test(A, stateid), NfsStat4::BadStateId);
    }

    #[test]
    fn a_client_that_is_gone_leaves_nothing() {
        let mut states = states();
        let stateid = open(&mut states, A, BOTH);
        locks::lock(&mut states, A, stateid, 0, 10).unwrap();
        layouts::get(&mut states, A, stateid, LayoutMode::ReadWrite).unwrap();
        assert!(states.holds(A));
        assert_eq!(states.layouts().writable(A), [FILE]);
        states.release(A, &[]);
        assert!(!states.holds(A));
        assert_empty(&states);
    }
}

mod locks {
    use super::*;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length).unwrap()
    }

    pub(super) fn request(client: ClientId4, locker: Locker, offset: u64, length: u64) -> LockRequest {
        LockRequest {
            client,
            file: FILE,
            locker,
            locktype: NfsLockType4::Write,
            range: range(offset, length),
        }
    }

    fn by_new(open: StateId4) -> Locker {
        Locker::New { open, owner: Bytes::from_static(b"lock owner") }
    }

    pub(super) fn lock(
        states: &mut ClientState,
        client: ClientId4,
        open: StateId4,
        offset: u64,
        length: u64,
    ) -> Result<StateId4, LockOutcome> {
        match states.locks().lock(request(client, by_new(open), offset, length)).unwrap() {
            LockOutcome::Granted(stateid) => Ok(stateid),
            denied => Err(denied),
        }
    }

    #[test]
    fn the_first_lock_makes_a_stateid_and_later_ones_add_to_it() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        let first = lock(&mut states, A, opened, 0, 10).unwrap();
        assert_eq!(first.seqid, 1);
        let again = states.locks().lock(request(A, Locker::Existing(first), 20, 10)).unwrap();
        assert_eq!(again, LockOutcome::Granted(newer(first)));
        // An owner that is introduced once more is the same.
        assert_eq!(lock(&mut states, A, opened, 40, 10).unwrap().other, first.other);
        assert_eq!(states.held_by(A).locks, 3);
        assert_eq!(states.check_io(A, FILE, newest(first), Modes::BOTH), Ok(()));
    }

    #[test]
    fn a_lock_in_the_way_is_told_with_its_owner_and_makes_no_stateid() {
        let mut states = states();
        let (a, b) = (open(&mut states, A, BOTH), open(&mut states, B, BOTH));
        lock(&mut states, A, a, 5, 10).unwrap();
        let Err(LockOutcome::Denied(denied)) = lock(&mut states, B, b, 0, 100) else { panic!() };
        assert_eq!((denied.offset, denied.length, denied.locktype), (5, 10, NfsLockType4::Write));
        assert_eq!((denied.owner.clientid, &denied.owner.owner[..]), (A, &b"lock owner"[..]));
        states.opens().close(B, FILE, b).unwrap();
        assert!(!states.holds(B));
    }

    #[test]
    fn a_lock_needs_the_access_that_fits_its_kind() {
        let mut states = states();
        let read = open(&mut states, A, READ);
        assert_eq!(states.locks().lock(request(A, by_new(read), 0, 1)), Err(NfsStat4::OpenMode));
        let read = LockRequest { locktype: NfsLockType4::ReadW, ..request(A, by_new(read), 0, 1) };
        assert!(matches!(states.locks().lock(read), Ok(LockOutcome::Granted(_))));
        let write = open(&mut states, B, WRITE);
        let read = LockRequest { locktype: NfsLockType4::Read, ..request(B, by_new(write), 50, 1) };
        assert_eq!(states.locks().lock(read), Err(NfsStat4::OpenMode));
    }

    #[test]
    fn a_test_sees_others_locks_and_not_its_own() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        lock(&mut states, A, opened, 0, 10).unwrap();
        let mut test = |client, owner: &'static [u8]| {
            states.locks().test(
                client,
                FILE,
                &Bytes::from_static(owner),
                NfsLockType4::Read,
                range(9, u64::MAX),
            )
        };
        assert_eq!(test(A, b"lock owner"), None);
        assert!(test(A, b"another").is_some());
        assert!(test(B, b"lock owner").is_some());
    }

    #[test]
    fn unlocking_counts_the_seqid_even_of_what_is_not_locked() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        let locked = lock(&mut states, A, opened, 0, 10).unwrap();
        let unlocked = states.locks().unlock(A, FILE, locked, range(0, u64::MAX)).unwrap();
        assert_eq!(unlocked, newer(locked));
        assert_eq!(states.locks().unlock(A, FILE, locked, range(0, 1)), Err(NfsStat4::OldStateId));
        assert!(states.locks().unlock(A, FILE, unlocked, range(0, 1)).is_ok());
        assert_eq!(
            states.locks().unlock(A, FILE, opened, range(0, 1)),
            Err(NfsStat4::BadStateId),
            "of an open"
        );
    }

    #[test]
    fn a_close_frees_the_locks_that_came_through_the_open() {
        let mut states = states();
        let (a, b) = (open(&mut states, A, BOTH), open(&mut states, B, BOTH));
        let locked = lock(&mut states, A, a, 0, 10).unwrap();
        states.opens().close(A, FILE, a).unwrap();
        assert_eq!(states.test(A, locked), NfsStat4::BadStateId);
        assert!(lock(&mut states, B, b, 0, 10).is_ok());
    }

    #[test]
    fn only_a_lock_stateid_without_locks_can_be_freed() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        let locked = lock(&mut states, A, opened, 0, 10).unwrap();
        assert_eq!(states.free(A, locked), Err(NfsStat4::LocksHeld));
        assert_eq!(states.free(A, opened), Err(NfsStat4::LocksHeld));
        assert_eq!(states.free(B, locked), Err(NfsStat4::BadStateId));
        let unlocked = states.locks().unlock(A, FILE, locked, range(0, 10)).unwrap();
        assert_eq!(states.test(A, unlocked), NfsStat4::Ok);
        assert_eq!(states.test(A, locked), NfsStat4::OldStateId);
        assert_eq!(states.free(A, locked), Err(NfsStat4::OldStateId));
        assert_eq!(states.free(A, unlocked), Ok(()));
        assert_eq!(states.free(A, unlocked), Err(NfsStat4::BadStateId));
    }

    #[test]
    fn lock_stateids_of_a_client_have_a_bound() {
        let mut states = ClientState::with_lock_states_max(1, DOOR, Arc::default(), 1);
        let opened = open(&mut states, A, BOTH);
        let locked = lock(&mut states, A, opened, 0, 1).unwrap();
        let another = Locker::New { open: opened, owner: Bytes::from_static(b"another") };
        assert_eq!(states.locks().lock(request(A, another.clone(), 10, 1)), Err(NfsStat4::ServerFault));
        let unlocked = states.locks().unlock(A, FILE, locked, range(0, 1)).unwrap();
        states.free(A, unlocked).unwrap();
        assert!(matches!(states.locks().lock(request(A, another, 10, 1)), Ok(LockOutcome::Granted(_))));
    }
}

mod layouts {
    use super::*;

    pub(super) fn get(
        states: &mut ClientState,
        client: ClientId4,
        stateid: StateId4,
        mode: LayoutMode,
    ) -> Result<StateId4, NfsStat4> {
        states.layouts().get(&LayoutRequest { client, file: FILE, stateid, mode }, s(0))
    }

    #[test]
    fn an_open_a_lock_or_the_layout_itself_gets_a_layout_with_one_stateid() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        let locked = locks::lock(&mut states, A, opened, 0, 1).unwrap();
        let first = get(&mut states, A, newest(opened), LayoutMode::Read).unwrap();
        let second = get(&mut states, A, newest(locked), LayoutMode::ReadWrite).unwrap();
        let third = get(&mut states, A, first, LayoutMode::Read).unwrap();
        assert_eq!([first.seqid, second.seqid, third.seqid], [1, 2, 3]);
        assert!(first.other == second.other && second.other == third.other);
        assert_eq!(states.held_by(A).layouts, 1);
        assert_eq!(get(&mut states, A, newer(third), LayoutMode::Read), Err(NfsStat4::BadStateId));
        assert_eq!(get(&mut states, A, StateId4::ANONYMOUS, LayoutMode::Read), Err(NfsStat4::BadStateId));
    }

    #[test]
    fn writing_needs_an_open_for_writing() {
        let mut states = states();
        let opened = open(&mut states, A, READ);
        assert_eq!(get(&mut states, A, opened, LayoutMode::ReadWrite), Err(NfsStat4::OpenMode));
        let layout = get(&mut states, A, opened, LayoutMode::Read).unwrap();
        assert_eq!(get(&mut states, A, layout, LayoutMode::ReadWrite), Err(NfsStat4::OpenMode));
        assert_eq!(states.layouts().judge_commit(A, FILE, layout), Err(NfsStat4::BadIoMode));
        open(&mut states, A, WRITE);
        let layout = get(&mut states, A, layout, LayoutMode::ReadWrite).unwrap();
        assert_eq!(states.layouts().judge_commit(A, FILE, layout), Ok(()));
        assert_eq!(states.layouts().judge_commit(A, FILE, opened), Err(NfsStat4::BadStateId));
        assert_eq!(states.check_io(A, FILE, layout, Modes::READ), Err(NfsStat4::BadStateId));
    }

    #[test]
    fn a_return_answers_a_stateid_while_something_is_held() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        get(&mut states, A, opened, LayoutMode::Read).unwrap();
        let held = get(&mut states, A, opened, LayoutMode::ReadWrite).unwrap();
        let part = states.layouts().give_back(A, FILE, held, LayoutModes::NONE).unwrap().unwrap();
        assert_eq!(part, newer(held));
        let read_only = LayoutModes::only(LayoutMode::Read);
        assert_eq!(states.layouts().give_back(A, FILE, older(part), read_only), Err(NfsStat4::OldStateId));
        let read = states.layouts().give_back(A, FILE, part, read_only).unwrap().unwrap();
        assert_eq!(read, newer(part));
        assert_eq!(states.layouts().give_back(A, FILE, read, LayoutModes::ALL), Ok(None));
        assert_eq!(states.layouts().give_back(A, FILE, part, LayoutModes::ALL), Err(NfsStat4::BadStateId));
    }

    #[test]
    fn returning_all_files_spares_the_other_mode() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        get(&mut states, A, opened, LayoutMode::ReadWrite).unwrap();
        let all = states.layouts().held(A);
        states.layouts().give_back_all(A, LayoutModes::only(LayoutMode::Read), &all);
        assert_eq!(states.held_by(A).layouts, 1);
        let all = states.layouts().held(A);
        states.layouts().give_back_all(A, LayoutModes::ALL, &all);
        assert_eq!(states.held_by(A).layouts, 0);
    }

    #[test]
    fn the_last_close_returns_the_layout() {
        let mut states = states();
        let first = open(&mut states, A, BOTH);
        let owner = Bytes::from_static(b"second");
        let second = states.opens().open(OpenRequest { owner, ..request(A, READ, 0) }).unwrap();
        get(&mut states, A, first, LayoutMode::ReadWrite).unwrap();
        states.opens().close(A, FILE, first).unwrap();
        assert_eq!(states.held_by(A).layouts, 1);
        states.opens().close(A, FILE, second).unwrap();
        assert_empty(&states);
    }

    #[test]
    fn a_recall_carries_the_seqid_after_the_clients() {
        let mut states = states();
        let opened = open(&mut states, B, BOTH);
        let held = get(&mut states, B, opened, LayoutMode::ReadWrite).unwrap();
        let granted = Granted::Layout(LayoutModes::only(LayoutMode::ReadWrite));
        let recall = AddressedRecall { client: B, file: FILE, stateid: newer(held), granted };
        assert_eq!(begin_resize(&mut states, FILE, Some(A), s(10)), Resize::Wait(vec![recall]));
        assert_eq!(begin_resize(&mut states, FILE, Some(A), s(10)), Resize::Wait(vec![]), "once");
        assert_eq!(get(&mut states, B, held, LayoutMode::Read), Err(NfsStat4::RecallConflict));
        assert_eq!(states.layouts().give_back(B, FILE, recall.stateid, LayoutModes::ALL), Ok(None));
        assert_eq!(begin_resize(&mut states, FILE, Some(A), s(10)), Resize::Proceed);
    }

    #[test]
    fn a_recall_that_was_not_heard_is_repeated_with_the_same_stateid() {
        let mut states = states();
        let opened = open(&mut states, B, BOTH);
        get(&mut states, B, opened, LayoutMode::ReadWrite).unwrap();
        let first = begin_resize(&mut states, FILE, Some(A), s(10));
        let Resize::Wait(sent) = &first else { panic!() };
        states.recalls().note_unheard(&sent[0]);
        assert_eq!(begin_resize(&mut states, FILE, Some(A), s(11)), first);
        assert_eq!(begin_resize(&mut states, FILE, Some(A), s(11)), Resize::Wait(vec![]));
    }

    #[test]
    fn a_recall_of_all_layouts_is_over_with_a_return_of_all_and_changes_no_stateid() {
        let mut states = states();
        let opened = open(&mut states, B, BOTH);
        let held = get(&mut states, B, opened, LayoutMode::ReadWrite).unwrap();
        assert_eq!(states.recalls().begin_at_once(B, &[FILE], s(10)), 1);
        assert_eq!(get(&mut states, B, opened, LayoutMode::Read), Err(NfsStat4::RecallConflict));
        assert_eq!(states.layouts().judge_commit(B, FILE, held), Ok(()), "what was written is still told");
        let all = states.layouts().held(B);
        states.layouts().give_back_all(B, LayoutModes::ALL, &all);
        assert_eq!(states.layouts().judge_commit(B, FILE, held), Err(NfsStat4::BadStateId));
        assert!(get(&mut states, B, opened, LayoutMode::Read).is_ok());
    }

    #[test]
    fn a_layout_that_is_recalled_alone_after_all_has_the_next_seqid() {
        let mut states = states();
        let opened = open(&mut states, B, BOTH);
        let held = get(&mut states, B, opened, LayoutMode::ReadWrite).unwrap();
        assert_eq!(states.recalls().begin_at_once(B, &[FILE], s(10)), 1);
        assert_eq!(begin_resize(&mut states, FILE, Some(A), s(10)), Resize::Wait(vec![]), "it was asked for");
        states.recalls().forget_at_once(B);
        let granted = Granted::Layout(LayoutModes::only(LayoutMode::ReadWrite));
        let recall = AddressedRecall { client: B, file: FILE, stateid: newer(held), granted };
        assert_eq!(begin_resize(&mut states, FILE, Some(A), s(10)), Resize::Wait(vec![recall]));
    }

    #[test]
    fn a_client_does_not_wait_for_its_own_layout() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        get(&mut states, A, opened, LayoutMode::ReadWrite).unwrap();
        assert_eq!(begin_resize(&mut states, FILE, Some(A), s(10)), Resize::Proceed);
    }

    #[test]
    fn a_layout_that_is_not_given_back_is_revoked_and_its_stateid_is_bad() {
        let mut states = states();
        let opened = open(&mut states, B, BOTH);
        let held = get(&mut states, B, opened, LayoutMode::ReadWrite).unwrap();
        let Resize::Wait(sent) = begin_resize(&mut states, FILE, None, s(10)) else { panic!() };
        assert_eq!(states.recalls().expired(s(9), s(10)), []);
        states.recalls().expire(&sent[0]);
        let granted = Granted::Layout(LayoutModes::only(LayoutMode::ReadWrite));
        let revoked = Revoked { client: B, file: FILE, granted, is_at_pools: true, is_overdue: false };
        assert_eq!(states.recalls().expired(s(9), s(12)), [revoked], "nobody waited for it");
        assert!(states.recalls().revoke(&revoked));
        assert_eq!(states.layouts().judge_commit(B, FILE, held), Err(NfsStat4::BadStateId));
        assert_eq!(begin_resize(&mut states, FILE, None, s(12)), Resize::Proceed);
        assert_eq!(states.check_io(B, FILE, opened, Modes::WRITE), Ok(()), "through the head");
    }

    #[test]
    fn at_the_bound_the_client_goes_through_the_head() {
        let limits = Limits { layouts_per_holder: 0, ..Limits::default() };
        let mut states = with_limits(limits);
        let opened = open(&mut states, A, READ);
        assert_eq!(get(&mut states, A, opened, LayoutMode::Read), Err(NfsStat4::LayoutUnavailable));
    }
}

mod departures {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_fenced_off_keeps_its_state_until_it_can() {
        let mut states = states();
        let opened = open(&mut states, A, BOTH);
        layouts::get(&mut states, A, opened, LayoutMode::ReadWrite).unwrap();
        let elsewhere = OpenRequest { file: FileId(8), ..request(A, READ, WRITE) };
        states.opens().open(elsewhere.clone()).unwrap();
        states.depart(A);
        assert_eq!(states.departed(), [A]);
        let unfenced = states.layouts().writable(A);
        states.release(A, &unfenced);
        assert_eq!((states.departed(), states.layouts().writable(A)), (vec![A], vec![FILE]));
        assert!(states.opens().open(OpenRequest { client: B, access: WRITE, ..elsewhere }).is_ok(), "freed");
        states.release(A, &[]);
        assert!(states.departed().is_empty() && !states.holds(A));
        states.release(B, &[]);
        assert_empty(&states);
    }

    #[test]
    fn a_stray_is_gone_when_it_is_found_twice() {
        let mut states = states();
        open(&mut states, A, READ);
        assert_eq!(states.clients(), [A]);
        states.note_strays([A]);
        assert_eq!(states.departed(), []);
        states.note_strays([]);
        states.note_strays([A]);
        assert_eq!(states.departed(), []);
        states.note_strays([A]);
        assert_eq!(states.departed(), [A]);
    }
}

mod delegations;
mod doors;
mod lost;
mod waiters;

#[derive(Clone, Debug)]
enum Step {
    Open(u64, u8, u32, u32),
    Close(u64, usize),
    Lock(u64, usize, u64),
    Layout(u64, usize),
    Resize(u64),
    Revoke,
    Release(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..4u64, 0..2u8, 1..4u32, 0..2u32).prop_map(|(c, o, a, d)| Step::Open(c, o, a, d)),
        2 => (1..4u64, 0..8usize).prop_map(|(c, i)| Step::Close(c, i)),
        3 => (1..4u64, 0..8usize, 0..20u64).prop_map(|(c, i, at)| Step::Lock(c, i, at)),
        3 => (1..4u64, 0..8usize).prop_map(|(c, i)| Step::Layout(c, i)),
        1 => (1..4u64).prop_map(Step::Resize),
        1 => Just(Step::Revoke),
        1 => (1..4u64).prop_map(Step::Release),
    ]
}

proptest! {
    /// After any steps, every stateid that is answered is the successor of the one before it, no `other` comes twice
    /// for different state, and when the clients are gone nothing is left.
    #[test]
    fn stateids_count_by_one_and_state_goes_with_its_client(steps in proptest::collection::vec(step(), 0..80)) {
        let mut states = states();
        let mut seen: std::collections::BTreeMap<[u8; 12], (u64, u32)> = Default::default();
        let mut given: Vec<StateId4> = Vec::new();
        for step in steps {
            let pick = |i: usize| given.get(i % given.len().max(1)).copied().unwrap_or(StateId4::ANONYMOUS);
            let answered = match step {
                Step::Open(c, owner, access, deny) => {
                    let owner = Bytes::copy_from_slice(&[owner]);
                    states.opens().open(OpenRequest { owner, ..request(ClientId4(c), access, deny) }).ok().map(|s| (c, s))
                }
                Step::Close(c, i) => {
                    let _ = states.opens().close(ClientId4(c), FILE, newest(pick(i)));
                    None
                }
                Step::Lock(c, i, at) => {
                    let locker = Locker::New { open: newest(pick(i)), owner: Bytes::from_static(b"l") };
                    // Every other one would wait.
                    let locktype = if at % 2 == 0 { NfsLockType4::WriteW } else { NfsLockType4::Write };
                    let request = locks::request(ClientId4(c), locker, at, 5);
                    match states.locks().lock(LockRequest { locktype, ..request }) {
                        Ok(LockOutcome::Granted(stateid)) => Some((c, stateid)),
                        _ => None,
                    }
                }
                Step::Layout(c, i) => {
                    layouts::get(&mut states, ClientId4(c), newest(pick(i)), LayoutMode::Read).ok().map(|s| (c, s))
                }
                Step::Resize(c) => {
                    if let Resize::Wait(recalls) = begin_resize(&mut states, FILE, Some(ClientId4(c)), s(10)) {
                        for recall in recalls {
                            let (client, seqid) = seen[&recall.stateid.other];
                            prop_assert_eq!((client, seqid + 1), (recall.client.0, recall.stateid.seqid));
                            seen.insert(recall.stateid.other, (client, seqid + 1));
                        }
                    }
                    None
                }
                Step::Revoke => {
                    for revoked in states.recalls().expired(s(10), s(11)) {
                        states.recalls().revoke(&revoked);
                    }
                    None
                }
                Step::Release(c) => {
                    states.release(ClientId4(c), &[]);
                    let notices = states.waiters().notices(s(1), s(1));
                    prop_assert!(notices.iter().all(|notice| states.holds(notice.client)));
                    None
                }
            };
            if let Some((client, stateid)) = answered {
                let before = seen.insert(stateid.other, (client, stateid.seqid));
                prop_assert_eq!(before.unwrap_or((client, 0)), (client, stateid.seqid - 1));
                given.push(stateid);
            }
        }
        (1..4).for_each(|c| states.release(ClientId4(c), &[]));
        assert_empty(&states);
    }
}
