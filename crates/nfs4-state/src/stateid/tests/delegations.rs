//! Stateids of delegations: what they are good for, and what is left of one that was taken away.

use file_state::Change;
use types::Timestamp;

use super::*;

fn delegate(states: &mut ClientState, client: ClientId4) -> StateId4 {
    delegate_as(states, client, DelegationKind::Read)
}

fn delegate_as(states: &mut ClientState, client: ClientId4, kind: DelegationKind) -> StateId4 {
    states.delegations().grant(client, FILE, (kind, DelegationTerms::default()), s(0)).unwrap()
}

/// A recall for a removal.
fn recall(states: &mut ClientState) -> AddressedRecall {
    let verdict = states.table.lock().changes().ask(FILE, Some(holder(DOOR, B)), Change::Remove, s(10));
    let ChangeVerdict::Wait { recalls } = verdict else { panic!() };
    let mut sent = states.recalls().address(&recalls);
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}

/// And the end of its time.
fn recall_and_expire(states: &mut ClientState) -> Vec<Revoked> {
    recall(states);
    states.recalls().expired(s(10), s(12))
}

#[test]
fn a_delegation_reads_by_its_own_stateid_and_writes_nothing() {
    let mut states = states();
    let held = delegate(&mut states, A);
    assert_eq!(held.seqid, 1);
    for stateid in [held, newest(held)] {
        assert_eq!(states.check_io(A, FILE, stateid, Modes::READ), Ok(()));
        assert_eq!(states.check_io(A, FILE, stateid, Modes::WRITE), Err(NfsStat4::OpenMode));
        assert_eq!(states.check_io(B, FILE, stateid, Modes::READ), Err(NfsStat4::BadStateId));
    }
    assert_eq!(states.test(A, held), NfsStat4::Ok);
    assert_eq!(states.free(A, held), Err(NfsStat4::LocksHeld), "it is returned by DELEGRETURN");
    assert_eq!(states.delegations().judge(A, FILE, held), Ok(DelegationKind::Read));
    let opened = open(&mut states, A, READ);
    assert_eq!(states.delegations().judge(A, FILE, opened), Err(NfsStat4::BadStateId));
}

#[test]
fn a_delegation_gets_a_layout_and_keeps_it_over_the_last_close() {
    let mut states = states();
    let opened = open(&mut states, A, READ);
    let held = delegate(&mut states, A);
    layouts::get(&mut states, A, newest(held), LayoutMode::Read).unwrap();
    assert_eq!(layouts::get(&mut states, A, held, LayoutMode::ReadWrite), Err(NfsStat4::OpenMode));
    states.opens().close(A, FILE, opened).unwrap();
    assert_eq!(states.held_by(A).layouts, 1);
    states.delegations().give_back(A, FILE, held).unwrap();
    assert_eq!(states.held_by(A), HeldBy::default());
    assert_empty(&states);
}

#[test]
fn a_layout_stays_with_the_open_when_the_delegation_is_returned() {
    let mut states = states();
    let opened = open(&mut states, A, READ);
    let held = delegate(&mut states, A);
    layouts::get(&mut states, A, opened, LayoutMode::Read).unwrap();
    states.delegations().give_back(A, FILE, held).unwrap();
    assert_eq!(states.held_by(A).layouts, 1);
    assert_eq!(states.delegations().give_back(A, FILE, held), Err(NfsStat4::BadStateId));
}

#[test]
fn a_recall_carries_the_stateid_as_it_was_given() {
    let mut states = states();
    let held = delegate(&mut states, A);
    let verdict = states.table.lock().changes().ask(FILE, Some(holder(DOOR, B)), Change::Remove, s(10));
    let ChangeVerdict::Wait { recalls } = verdict else { panic!() };
    let granted = Granted::Delegation(DelegationKind::Read);
    let recall = AddressedRecall { client: A, file: FILE, stateid: held, granted };
    assert_eq!(states.recalls().address(&recalls), [recall]);
    assert!(states.recalls().is_recalled(&recall));
    states.delegations().give_back(A, FILE, held).unwrap();
    assert!(!states.recalls().is_recalled(&recall));
    assert_eq!(states.recalls().address(&recalls), [], "it has come back");
}

#[test]
fn the_holder_can_open_a_delegated_file_during_the_recall() {
    let mut states = states();
    let held = delegate(&mut states, A);
    let writing = Change::Access(file_state::Share::new(Modes::WRITE, Modes::NONE));
    let _ = states.table.lock().changes().ask(FILE, Some(holder(DOOR, B)), writing, s(10));
    assert_eq!(states.opens().open(request(B, WRITE, 0)), Err(NfsStat4::RecallConflict));
    // CLAIM_DELEG_CUR_FH: the writer proceeds when this is done and the delegation is back.
    assert_eq!(states.delegations().judge(A, FILE, held), Ok(DelegationKind::Read));
    open(&mut states, A, READ);
    states.delegations().give_back(A, FILE, held).unwrap();
    assert!(states.opens().open(request(B, WRITE, 0)).is_ok());
}

#[test]
fn a_revoked_delegation_says_so_until_it_is_freed() {
    let mut states = states();
    let held = delegate(&mut states, A);
    layouts::get(&mut states, A, held, LayoutMode::Read).unwrap();
    let due = recall_and_expire(&mut states);
    let granted = Granted::Delegation(DelegationKind::Read);
    let revoked = Revoked { client: A, file: FILE, granted, is_at_pools: true, is_overdue: true };
    assert_eq!(due, [revoked], "it has a layout: the pools are told too");
    assert!(states.recalls().revoke(&revoked));
    assert!(!states.recalls().revoke(&revoked), "once");
    assert_eq!(states.held_by(A), HeldBy::default(), "nothing stands in anybody's way");
    assert_eq!(states.test(A, held), NfsStat4::DelegRevoked);
    assert_eq!(states.check_io(A, FILE, held, Modes::READ), Err(NfsStat4::DelegRevoked));
    assert_eq!(states.delegations().judge(A, FILE, held), Err(NfsStat4::DelegRevoked));
    assert_eq!(states.delegations().give_back(A, FILE, held), Err(NfsStat4::DelegRevoked));
    assert!(states.delegations().has_revoked(A) && !states.delegations().has_revoked(B));
    let again = delegate(&mut states, A);
    assert_ne!(again.other, held.other);
    assert_eq!(states.free(A, held), Ok(()));
    assert!(!states.delegations().has_revoked(A));
    assert_eq!(states.test(A, held), NfsStat4::BadStateId);
    states.delegations().give_back(A, FILE, again).unwrap();
    assert_empty(&states);
}

#[test]
fn a_delegation_never_used_at_the_pools_is_revoked_without_fencing() {
    let mut states = states();
    delegate(&mut states, A);
    let due = recall_and_expire(&mut states);
    assert!(!due[0].is_at_pools);
    assert!(states.recalls().revoke(&due[0]));
    states.release(A, &[]);
    assert_empty(&states);
}

#[test]
fn io_without_an_open_waits_for_a_writers_delegation() {
    let mut states = states();
    delegate_as(&mut states, A, DelegationKind::Write);
    for stateid in [StateId4::ANONYMOUS, StateId4::BYPASS] {
        assert_eq!(states.check_io(B, FILE, stateid, Modes::READ), Err(NfsStat4::Delay));
        assert_eq!(states.check_io(A, FILE, stateid, Modes::READ), Ok(()));
    }
}

#[test]
fn a_read_with_the_bypass_stateid_still_waits_for_a_write_delegation() {
    let mut states = states();
    delegate_as(&mut states, A, DelegationKind::Write);
    states.opens().open(request(A, BOTH, READ)).unwrap();
    assert_eq!(states.check_io(B, FILE, StateId4::BYPASS, Modes::READ), Err(NfsStat4::Delay));
}

#[test]
fn a_delegation_granted_anew_while_the_old_one_is_fenced_off_is_not_revoked() {
    let mut states = states();
    let held = delegate(&mut states, A);
    let due = recall_and_expire(&mut states);
    states.delegations().give_back(A, FILE, held).unwrap();
    let again = delegate(&mut states, A);
    assert!(!states.recalls().revoke(&due[0]));
    // Nor if it is asked for anew already: that has its own time.
    let verdict = states.table.lock().changes().ask(FILE, Some(holder(DOOR, B)), Change::Remove, s(30));
    assert!(matches!(verdict, ChangeVerdict::Wait { .. }));
    assert!(!states.recalls().revoke(&due[0]));
    assert_eq!((states.test(A, again), states.delegations().has_revoked(A)), (NfsStat4::Ok, false));
}

#[test]
fn a_delegation_that_its_client_does_not_know_leaves_nothing_to_free() {
    let mut states = states();
    let held = delegate(&mut states, A);
    let sent = recall(&mut states);
    states.recalls().expire(&sent);
    let due = states.recalls().expired(s(1), s(2));
    assert!(states.recalls().revoke(&due[0]));
    assert_eq!((states.test(A, held), states.delegations().has_revoked(A)), (NfsStat4::BadStateId, false));
}

#[test]
fn a_delegation_that_is_being_revoked_gets_no_layout_that_its_fence_would_miss() {
    let mut states = states();
    let held = delegate_as(&mut states, A, DelegationKind::Write);
    let opened = open(&mut states, A, BOTH);
    let due = recall_and_expire(&mut states);
    assert!(!due[0].is_at_pools, "it has none");
    for stateid in [held, opened] {
        let refused = layouts::get(&mut states, A, stateid, LayoutMode::ReadWrite);
        assert_eq!(refused, Err(NfsStat4::RecallConflict));
    }
    assert!(states.recalls().revoke(&due[0]));
    assert_eq!(states.layouts().writable(A), []);
    layouts::get(&mut states, A, opened, LayoutMode::ReadWrite).unwrap();
}

#[test]
fn a_delegation_that_its_client_does_not_know_leaves_nothing_to_free_though_its_fence_fails_once() {
    let mut states = states();
    let held = delegate(&mut states, A);
    let sent = recall(&mut states);
    states.recalls().expire(&sent);
    assert_eq!(states.recalls().expired(s(1), s(3)).len(), 1, "and the pool cannot be told");
    let due = states.recalls().expired(s(3), s(5));
    assert!(states.recalls().revoke(&due[0]));
    assert_eq!((states.test(A, held), states.delegations().has_revoked(A)), (NfsStat4::BadStateId, false));
}

#[test]
fn a_delegation_to_write_reads_writes_and_gets_layouts_by_its_stateid() {
    let mut states = states();
    let held = delegate_as(&mut states, A, DelegationKind::Write);
    for modes in [Modes::READ, Modes::WRITE, Modes::BOTH] {
        assert_eq!(states.check_io(A, FILE, newest(held), modes), Ok(()));
    }
    assert!(states.has_open_for_writing(A, FILE));
    layouts::get(&mut states, A, held, LayoutMode::ReadWrite).unwrap();
    assert_eq!(states.layouts().writable(A), [FILE], "to be fenced off if the client is lost");
    assert_eq!(states.opens().open(request(B, READ, 0)), Err(NfsStat4::RecallConflict), "a reader, too");
    let due = recall_and_expire(&mut states);
    assert!(due[0].is_at_pools);
    assert!(states.recalls().revoke(&due[0]));
    assert_eq!(states.check_io(A, FILE, held, Modes::WRITE), Err(NfsStat4::DelegRevoked));
    assert_eq!(states.free(A, held), Ok(()));
    assert_empty(&states);
}

#[test]
fn a_read_delegation_becomes_one_to_write_and_keeps_its_stateid_and_what_the_client_was_told() {
    let time = |seconds| Timestamp::new(seconds, 0).unwrap();
    let mut states = states();
    let terms = |change, times| DelegationTerms { change: Some(change), times };
    let read = states.delegations().grant(A, FILE, (DelegationKind::Read, terms(5, None)), s(0)).unwrap();
    assert_eq!(states.delegations().judge_times(A, FILE, read), Err(NfsStat4::Inval));
    let kept = DelegatedTimes { accessed: time(1), modified: time(2) };
    let times = Some(kept);
    let write = states.delegations().grant(A, FILE, (DelegationKind::Write, terms(7, times)), s(0)).unwrap();
    assert_eq!(write, StateId4 { seqid: 2, ..read });
    assert_eq!(
        states.delegations().terms(A, FILE),
        Some(terms(5, times)),
        "a client keeps what it had first"
    );
    assert_eq!(states.delegations().judge(A, FILE, write), Ok(DelegationKind::Write));
    let judged = states.delegations().judge_times(A, FILE, write);
    assert_eq!(judged, Ok((DelegationKind::Write, kept)));
    assert_eq!(states.held_by(A).delegations, 1);
    states.delegations().give_back(A, FILE, write).unwrap();
    assert_eq!(states.delegations().terms(A, FILE), None);
    assert_empty(&states);
}

#[test]
fn a_delegated_time_lies_between_the_delegation_and_now() {
    let time = |seconds| Timestamp::new(seconds, 0).unwrap();
    let vet = |given| DelegatedTimes::vet(time(10), time(given), time(20));
    assert_eq!(
        [vet(9), vet(10), vet(11), vet(20), vet(21)],
        [None, None, Some(time(11)), Some(time(20)), Some(time(20))]
    );
}
