//! Waiters for a lock, and the name by which they are notified.

use super::locks::request;
use super::*;

const PATIENCE: Duration = Duration::from_secs(2);

fn waiting(client: ClientId4, open: StateId4, owner: &'static [u8]) -> LockRequest {
    let locker = Locker::New { open, owner: Bytes::from_static(owner) };
    LockRequest { locktype: NfsLockType4::WriteW, ..request(client, locker, 0, 10) }
}

fn is_denied(outcome: Result<LockOutcome, NfsStat4>) -> bool {
    matches!(outcome, Ok(LockOutcome::Denied(_)))
}

fn told(states: &mut ClientState, now: Duration) -> Vec<(ClientId4, Vec<u8>)> {
    let notices = states.waiters().notices(now, PATIENCE);
    notices.into_iter().map(|notice| (notice.client, notice.owner.owner.to_vec())).collect()
}

#[test]
fn a_waiter_is_told_by_the_name_that_it_gave_and_gets_the_lock() {
    let mut states = states();
    let (a, b) = (open(&mut states, A, BOTH), open(&mut states, B, BOTH));
    let held = locks::lock(&mut states, A, a, 0, 10).unwrap();
    assert!(is_denied(states.locks().lock(waiting(B, b, b"sleeper"))));
    assert_eq!(told(&mut states, s(0)), []);
    states.locks().unlock(A, FILE, held, ByteRange::ALL).unwrap();
    assert_eq!(told(&mut states, s(0)), [(B, b"sleeper".to_vec())]);
    assert!(matches!(states.locks().lock(waiting(B, b, b"sleeper")), Ok(LockOutcome::Granted(_))));
    assert_eq!(told(&mut states, s(9)), []);
    states.opens().close(A, FILE, a).unwrap();
    states.opens().close(B, FILE, b).unwrap();
    assert_empty(&states);
}

#[test]
fn a_client_that_only_tries_a_lock_is_not_notified() {
    let mut states = states();
    let (a, b) = (open(&mut states, A, BOTH), open(&mut states, B, BOTH));
    let held = locks::lock(&mut states, A, a, 0, 10).unwrap();
    let test = LockRequest { locktype: NfsLockType4::Write, ..waiting(B, b, b"trier") };
    assert!(is_denied(states.locks().lock(test)));
    states.locks().unlock(A, FILE, held, ByteRange::ALL).unwrap();
    assert_eq!(told(&mut states, s(0)), []);
}

#[test]
fn a_close_and_the_end_of_a_client_let_others_through() {
    let mut states = states();
    let (a, b) = (open(&mut states, A, BOTH), open(&mut states, B, BOTH));
    locks::lock(&mut states, A, a, 0, 10).unwrap();
    assert!(is_denied(states.locks().lock(waiting(B, b, b"sleeper"))));
    states.opens().close(A, FILE, a).unwrap();
    assert_eq!(told(&mut states, s(0)), [(B, b"sleeper".to_vec())]);
    assert!(matches!(states.locks().lock(waiting(B, b, b"sleeper")), Ok(LockOutcome::Granted(_))));

    let a = open(&mut states, A, BOTH);
    assert!(is_denied(states.locks().lock(waiting(A, a, b"first"))));
    states.release(B, &[]);
    assert_eq!(told(&mut states, s(0)), [(A, b"first".to_vec())]);
    states.release(A, &[]);
    assert_empty(&states);
}

#[test]
fn a_silent_or_unreachable_waiter_keeps_nobody_waiting() {
    let mut states = states();
    let (a, b) = (open(&mut states, A, BOTH), open(&mut states, B, BOTH));
    let held = locks::lock(&mut states, A, a, 0, 10).unwrap();
    for owner in [b"one" as &[u8], b"two", b"three"] {
        assert!(is_denied(states.locks().lock(waiting(B, b, owner))));
    }
    states.locks().unlock(A, FILE, held, ByteRange::ALL).unwrap();
    assert_eq!(told(&mut states, s(0)), [(B, b"one".to_vec())]);
    let notices = states.waiters().notices(PATIENCE, PATIENCE);
    assert_eq!(notices.iter().map(|notice| notice.owner.owner.0.as_ref()).collect::<Vec<_>>(), [b"two"]);
    states.locks().unlock(A, FILE, newest(held), ByteRange::ALL).unwrap();
    assert_eq!(states.waiters().notices(PATIENCE, PATIENCE), []);
    states.waiters().notice_unheard(&notices[0]);
    assert_eq!(told(&mut states, PATIENCE), [(B, b"three".to_vec())]);
    states.opens().close(B, FILE, b).unwrap();
    states.opens().close(A, FILE, a).unwrap();
    assert_empty(&states);
}
