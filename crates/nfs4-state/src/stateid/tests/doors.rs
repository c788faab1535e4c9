//! State of clients of another door, as clients of this one meet it.

use file_state::{LockKind, Share};

use super::*;

const FOREIGN: Owner = Owner { holder: Holder::of(OTHER_DOOR, A.0), number: 1 };

fn share(access: Modes, deny: Modes) -> Share {
    Share::new(access, deny)
}

#[test]
fn a_denial_of_another_door_keeps_a_writer_out_and_goes_with_its_holder() {
    let mut states = states();
    states.table.lock().open(FILE, FOREIGN, share(Modes::NONE, Modes::WRITE)).unwrap();
    assert_eq!(states.opens().open(request(A, WRITE, 0)), Err(NfsStat4::ShareDenied));
    assert_eq!(states.check_io(A, FILE, StateId4::ANONYMOUS, Modes::WRITE), Err(NfsStat4::Locked));
    assert!(states.opens().open(request(A, READ, 0)).is_ok());
    states.table.lock().release_holder(FOREIGN.holder);
    assert!(states.opens().open(request(A, WRITE, 0)).is_ok());
}

#[test]
fn state_of_another_door_belongs_to_no_client() {
    let mut states = states();
    states.table.lock().open(FILE, FOREIGN, share(Modes::READ, Modes::NONE)).unwrap();
    assert!(states.clients().is_empty() && !states.holds(A));
    states.release(A, &[]);
    assert!(states.table.lock().file(FILE).is_in_use());
}

#[test]
fn a_byte_range_lock_of_another_door_is_told_without_a_name() {
    let mut states = states();
    let opened = open(&mut states, A, BOTH);
    // The number of the client's own lock owner, at another door.
    let mine = locks::lock(&mut states, A, opened, 90, 1).unwrap();
    let range = ByteRange::new(0, 10).unwrap();
    for number in 1..4 {
        let owner = Owner { number, ..FOREIGN };
        states.table.lock().locks().lock(FILE, owner, range, LockKind::Write).unwrap();
        let asked = locks::request(A, Locker::Existing(mine), 0, 1);
        let Ok(LockOutcome::Denied(denied)) = states.locks().lock(asked) else { panic!() };
        assert_eq!((denied.owner.clientid, denied.owner.owner.len()), (ClientId4(0), 0));
        states.table.lock().locks().release(FILE, owner);
    }
}

#[test]
fn a_file_without_a_name_can_be_opened_while_any_door_holds_it() {
    let mut states = states();
    let unlinked = || OpenRequest { is_unlinked: true, ..request(A, READ, 0) };
    assert_eq!(states.opens().open(unlinked()), Err(NfsStat4::Stale));
    assert_empty(&states);
    states.table.lock().open(FILE, FOREIGN, share(Modes::READ, Modes::NONE)).unwrap();
    assert!(states.opens().open(unlinked()).is_ok());
}

#[test]
fn a_recall_that_comes_too_late_is_not_sent() {
    let mut states = states();
    let opened = open(&mut states, B, BOTH);
    let held = layouts::get(&mut states, B, opened, LayoutMode::ReadWrite).unwrap();
    let verdict = states.table.lock().changes().ask(FILE, Some(FOREIGN.holder), Change::Replace, s(10));
    let ChangeVerdict::Wait { recalls } = verdict else { panic!() };
    // The layout is returned before the recall gets its stateid, and is granted anew after the change.
    states.layouts().give_back(B, FILE, held, LayoutModes::ALL).unwrap();
    assert_eq!(states.recalls().address(&recalls), []);
    let verdict = states.table.lock().changes().ask(FILE, Some(FOREIGN.holder), Change::Replace, s(10));
    assert_eq!(verdict, ChangeVerdict::Proceed);
    let again = layouts::get(&mut states, B, opened, LayoutMode::ReadWrite).unwrap();
    assert_eq!(states.recalls().address(&recalls), []);
    assert_eq!(states.layouts().give_back(B, FILE, again, LayoutModes::ALL), Ok(None), "no seqid was spent");
}
