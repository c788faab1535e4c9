//! The list of pool hosts admits hosts and keys, also after it was read anew.

use super::*;
use crate::system::SystemRandom;

const KEY_1: Fingerprint = Fingerprint([1; 32]);
const KEY_2: Fingerprint = Fingerprint([2; 32]);
const KEY_3: Fingerprint = Fingerprint([3; 32]);
const TOKEN: [u8; 32] = [7; 32];
const POOL: PoolId = PoolId(1);

fn data(dir: &tempfile::TempDir) -> DataDir {
    DataDir::open(dir.path(), None, &SystemRandom).unwrap()
}

fn host(key: Fingerprint, pool: Option<u32>) -> Newcomer<'static> {
    Newcomer { key, host: "host", pool }
}

fn again(data: &DataDir) -> Book {
    Book::open(data).unwrap().unwrap()
}

/// With a token for new pools and the pool of the first key.
fn joined(data: &DataDir) -> Book {
    let mut book = Book::make(data, 50).unwrap();
    book.add_token(&TOKEN, None, 100, 50).unwrap();
    assert_eq!(book.join(&TOKEN, &host(KEY_1, None), 1, 50).unwrap(), POOL);
    book
}

fn accepted(book: &Book, pool: PoolId) -> Vec<Fingerprint> {
    let keys = book.keys();
    book.pool(pool.0).unwrap().accepted(keys).iter().map(|key| key.parse().unwrap()).collect()
}

fn refusal<T>(outcome: Result<T>) -> String {
    let text = outcome.err().expect("it is refused").to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_token_admits_until_it_expires_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(&dir);
    assert!(Book::open(&data).unwrap().is_none());
    Book::make(&data, 50).unwrap().add_token(&TOKEN, None, 100, 50).unwrap();
    let mut book = again(&data);
    assert_eq!(book.join(&TOKEN, &host(KEY_1, None), 1, 99).unwrap(), POOL);
    assert!(refusal(book.join(&TOKEN, &host(KEY_1, None), 1, 100)).contains("expired"));
    assert!(refusal(book.join(&[8; 32], &host(KEY_1, None), 1, 50)).contains("not known"));
}

#[test]
fn tokens_have_a_bound_and_expired_ones_leave_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::make(&data(&dir), 50).unwrap();
    for number in 0..TOKENS_MAX {
        book.add_token(&[u8::try_from(number).unwrap(); 32], None, 100, 50).unwrap();
    }
    assert!(book.add_token(&[255; 32], None, 100, 50).is_err());
    book.add_token(&[255; 32], None, 200, 100).unwrap();
}

#[test]
fn a_host_keeps_its_number_and_no_other_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(&dir);
    let mut book = joined(&data);
    assert_eq!(book.join(&TOKEN, &host(KEY_2, None), 1, 50).unwrap(), PoolId(2));
    let mut book = again(&data);
    assert_eq!(book.join(&TOKEN, &host(KEY_1, None), 1, 60).unwrap(), POOL);
    assert_eq!(book.pools().len(), 2);
}

#[test]
fn own_pools_do_not_take_the_number_of_a_host() {
    let dir = tempfile::tempdir().unwrap();
    joined(&data(&dir));
    let data = DataDir::open(dir.path(), Some(2), &SystemRandom).unwrap();
    assert!(refusal(Book::open(&data)).contains("pool-1 is on host host"));
}

#[test]
fn a_cluster_without_its_list_of_hosts_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(&dir);
    let book = Book::make(&data, 1).unwrap();
    authorities::open(&data, book.keys()).unwrap();
    std::fs::remove_file(dir.path().join(NAME)).unwrap();
    assert!(refusal(Book::open(&data)).contains("cluster.json is missing"));
    assert!(Book::pools_of(dir.path()).is_err(), "a check would find every file lost");
}

/// With no key of a later version.
#[test]
fn a_list_of_the_version_before_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(&dir);
    let key = KEY_1.to_string();
    let text = format!(
        r#"{{"version": 1, "tokens": [{{"hash": "{}", "expires_s": 100}}],
            "pools": [{{"number": 3, "key": "{key}", "host": "one", "joined_s": 5}}], "lease_s_max": 10}}"#,
        Hex(&TOKEN)
    );
    std::fs::write(dir.path().join(NAME), text).unwrap();
    let mut book = again(&data);
    assert_eq!(book.keys(), KeptKeys::default());
    assert_eq!(accepted(&book, PoolId(3)), [KEY_1]);
    assert_eq!(book.join(&TOKEN, &host(KEY_2, None), 1, 50).unwrap(), PoolId(4));
}

#[test]
fn both_keys_of_a_pool_are_accepted_until_the_new_one_was_used() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(&dir);
    let mut book = joined(&data);
    book.rotate(60).unwrap();
    assert_eq!(book.lagging().collect::<Vec<_>>(), [POOL]);
    book.add_next(POOL, KEY_2).unwrap();
    assert_eq!(accepted(&again(&data), POOL), [KEY_2, KEY_1]);
    // The host did not get the answer, and asks with another key.
    book.add_next(POOL, KEY_3).unwrap();
    assert_eq!(accepted(&again(&data), POOL), [KEY_3, KEY_1]);
    assert!(!book.take_next(POOL, KEY_1).unwrap() && !book.take_next(POOL, KEY_2).unwrap());
    assert!(book.take_next(POOL, KEY_3).unwrap());
    let book = again(&data);
    assert_eq!((accepted(&book, POOL), book.lagging().count()), (vec![KEY_3], 0));
}

#[test]
fn a_host_that_missed_a_rotation_is_not_let_in_when_the_overlap_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(&dir);
    let mut book = joined(&data);
    book.rotate(60).unwrap();
    assert_eq!(accepted(&again(&data), POOL), [KEY_1]);
    assert_eq!(book.join(&TOKEN, &host(KEY_2, None), 1, 61).unwrap(), PoolId(2), "a token of before");
    book.end_overlap().unwrap();
    let mut book = again(&data);
    assert_eq!(book.pool(POOL.0).unwrap().standing(book.keys()), KeyStanding::LeftBehind);
    assert_eq!((accepted(&book, POOL), accepted(&book, PoolId(2))), (vec![], vec![KEY_2]));
    assert!(refusal(book.join(&TOKEN, &host(KEY_3, None), 1, 62)).contains("not known"));
    // A further rotation does not bring it back, nor is it waited for.
    book.rotate(70).unwrap();
    assert_eq!((accepted(&book, POOL), book.lagging().collect::<Vec<_>>()), (vec![], vec![PoolId(2)]));
}

#[test]
fn a_host_that_was_shut_out_comes_back_by_a_token_of_its_own_and_a_new_key() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(&dir);
    let mut book = joined(&data);
    book.rotate(51).unwrap();
    book.add_next(POOL, KEY_2).unwrap();
    assert!(book.shut_out(POOL, 60).unwrap() && !book.shut_out(POOL, 61).unwrap());
    let mut book = again(&data);
    assert_eq!((accepted(&book, POOL), book.lagging().count()), (vec![], 0));
    // Its host may know it, and could join as another pool.
    assert!(refusal(book.join(&TOKEN, &host(KEY_3, None), 1, 62)).contains("not known"));
    book.add_token(&TOKEN, None, 100, 62).unwrap();
    assert!(refusal(book.join(&TOKEN, &host(KEY_1, None), 1, 62)).contains("readmit pool-1"));
    assert!(refusal(book.join(&TOKEN, &host(KEY_3, Some(1)), 1, 62)).contains("for new pools"));
    const OWN: [u8; 32] = [9; 32];
    book.add_token(&OWN, Some(POOL), 100, 63).unwrap();
    for pool in [None, Some(2)] {
        assert!(refusal(book.join(&OWN, &host(KEY_3, pool), 1, 64)).contains("for the host of pool-1"));
    }
    for known in [KEY_1, KEY_2] {
        assert!(refusal(book.join(&OWN, &host(known, Some(1)), 1, 64)).contains("its key is that of pool-1"));
    }
    assert_eq!(book.join(&OWN, &host(KEY_3, Some(1)), 1, 65).unwrap(), POOL);
    // Its answer may be lost, and a thief of the token comes too late.
    assert_eq!(book.join(&OWN, &host(KEY_3, Some(1)), 1, 66).unwrap(), POOL);
    let thief = Fingerprint([4; 32]);
    assert!(refusal(book.join(&OWN, &host(thief, Some(1)), 1, 67)).contains("used already"));
    assert_eq!(accepted(&again(&data), POOL), [KEY_3]);
}

#[test]
fn a_host_whose_answer_was_lost_comes_back_by_a_further_token_and_others_for_its_pool_are_void() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = joined(&data(&dir));
    book.shut_out(POOL, 52).unwrap();
    let tokens = [[9; 32], [8; 32], [7; 32]];
    for token in &tokens {
        book.add_token(token, Some(POOL), 100, 53).unwrap();
    }
    assert_eq!(book.join(&tokens[0], &host(KEY_2, Some(1)), 1, 54).unwrap(), POOL);
    assert!(refusal(book.join(&tokens[1], &host(KEY_3, Some(1)), 1, 55)).contains("not known"));
    book.add_token(&tokens[1], Some(POOL), 100, 56).unwrap();
    assert_eq!(book.join(&tokens[1], &host(KEY_2, Some(1)), 1, 57).unwrap(), POOL, "by the same key");
    assert_eq!(accepted(&book, POOL), [KEY_2]);
}

#[test]
fn a_host_that_was_left_behind_does_not_come_back_by_a_token_for_new_pools() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = joined(&data(&dir));
    book.rotate(60).unwrap();
    book.end_overlap().unwrap();
    book.add_token(&[9; 32], None, 100, 61).unwrap();
    assert!(refusal(book.join(&[9; 32], &host(KEY_1, None), 1, 62)).contains("readmit pool-1"));
    assert_eq!(accepted(&book, POOL), Vec::<Fingerprint>::new());
}

#[test]
fn a_token_of_a_pool_is_forgotten_when_the_pool_is_shut_out_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = joined(&data(&dir));
    book.add_token(&[9; 32], Some(POOL), 100, 51).unwrap();
    book.shut_out(POOL, 52).unwrap();
    assert!(refusal(book.join(&[9; 32], &host(KEY_3, Some(1)), 1, 53)).contains("not known"));
}

#[test]
fn the_number_of_a_pool_that_was_removed_is_given_to_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let data = data(&dir);
    let mut book = joined(&data);
    book.remove(POOL).unwrap();
    assert!(refusal(book.remove(POOL)).contains("not on another host"));
    let mut book = again(&data);
    assert_eq!(book.pools().len(), 0);
    assert_eq!(book.join(&TOKEN, &host(KEY_1, None), 1, 60).unwrap(), PoolId(2), "also with its key");
}
