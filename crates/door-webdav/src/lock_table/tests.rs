//! Tables of locks, asked by hand.

use super::*;

const NOW: Duration = Duration::from_secs(100);

fn named(name: &str) -> Principal {
    Principal { name: name.into(), uid: 10 }
}

fn path(text: &str) -> Path {
    text.split('/').filter(|name| !name.is_empty()).map(|name| Name::new(name.as_bytes()).unwrap()).collect()
}

fn lock(token: &str, at: &str, scope: Scope, is_deep: bool) -> Lock {
    Lock {
        token: token.to_owned(),
        path: path(at),
        root_href: at.to_owned(),
        scope,
        is_deep,
        principal: named("ann"),
        owner: Bytes::new(),
        timeout: Duration::from_secs(10),
        expires: NOW + Duration::from_secs(10),
        opens: Vec::new(),
    }
}

fn table(locks: &[Lock]) -> LockTable {
    let mut table = LockTable::new(10);
    locks.iter().for_each(|lock| table.add(lock.clone()).unwrap());
    table
}

/// With the lock of this path.
fn conflict_with(at: &str) -> Result<(), LockError> {
    Err(LockError::Conflict { path: path(at), root_href: at.to_owned() })
}

#[test]
fn an_exclusive_lock_stands_alone_and_shared_ones_stand_together() {
    let mut locks = table(&[lock("s1", "/a", Scope::Shared, false)]);
    assert_eq!(locks.add(lock("s2", "/a", Scope::Shared, false)), Ok(()));
    assert_eq!(locks.add(lock("x", "/a", Scope::Exclusive, false)), conflict_with("/a"));
    assert_eq!(locks.add(lock("y", "/b", Scope::Exclusive, false)), Ok(()));
    assert_eq!(locks.add(lock("z", "/b", Scope::Shared, false)), conflict_with("/b"));
}

#[test]
fn a_deep_lock_covers_what_is_below_and_meets_what_is_locked_there() {
    let mut locks = table(&[lock("deep", "/a", Scope::Exclusive, true)]);
    assert!(locks.covers("deep", &path("/a/b/c")) && !locks.covers("deep", &path("/ab")));
    assert_eq!(locks.add(lock("x", "/a/b", Scope::Exclusive, false)), conflict_with("/a"));
    let mut locks = table(&[lock("x", "/a/b", Scope::Shared, false)]);
    assert_eq!(locks.add(lock("deep", "/a", Scope::Exclusive, true)), conflict_with("/a/b"));
    assert_eq!(locks.add(lock("flat", "/a", Scope::Exclusive, false)), Ok(()));
}

#[test]
fn a_change_needs_the_token_and_its_principal() {
    let locks = table(&[lock("x", "/a", Scope::Exclusive, false)]);
    let token = ["x".to_owned()];
    assert!(locks.forbidding(&path("/a"), Reach::One, &named("ann"), &[]).is_some());
    assert!(locks.forbidding(&path("/a"), Reach::One, &named("bob"), &token).is_some());
    assert!(locks.forbidding(&path("/a"), Reach::One, &named("ann"), &token).is_none());
    assert!(locks.forbidding(&path("/b"), Reach::Tree, &named("bob"), &[]).is_none());
}

#[test]
fn a_name_that_two_people_have_is_not_enough() {
    let locks = table(&[lock("x", "/a", Scope::Exclusive, false)]);
    let namesake = Principal { uid: 11, ..named("ann") };
    assert!(locks.forbidding(&path("/a"), Reach::One, &namesake, &["x".to_owned()]).is_some());
    let caller = |uid, groups: &[u32]| {
        let identity = types::Identity::new(uid, 100, groups);
        Principal::from(&Caller { name: "ann".into(), identity, ..Caller::anonymous() })
    };
    assert_eq!(caller(10, &[]), caller(10, &[7]), "tokens of one subject may differ in groups");
    assert_ne!(caller(10, &[]), caller(11, &[]));
}

#[test]
fn one_of_several_shared_locks_is_enough() {
    let locks = table(&[lock("s1", "/a", Scope::Shared, false), lock("s2", "/a", Scope::Shared, false)]);
    assert!(locks.forbidding(&path("/a"), Reach::One, &named("ann"), &["s2".to_owned()]).is_none());
    assert!(locks.forbidding(&path("/a"), Reach::One, &named("ann"), &[]).is_some());
}

#[test]
fn a_tree_is_not_changed_over_a_lock_inside_it() {
    let locks = table(&[lock("x", "/a/b/c", Scope::Exclusive, false)]);
    assert!(locks.forbidding(&path("/a"), Reach::Tree, &named("ann"), &[]).is_some());
    assert!(locks.forbidding(&path("/a"), Reach::One, &named("ann"), &[]).is_none());
    assert!(locks.forbidding(&path("/a"), Reach::Tree, &named("ann"), &["x".to_owned()]).is_none());
}

#[test]
fn locks_end_by_time_by_token_and_with_their_tree() {
    let all = [
        lock("x", "/a", Scope::Shared, true),
        lock("y", "/a/b", Scope::Shared, false),
        lock("z", "/ab", Scope::Shared, false),
    ];
    let mut locks = table(&all);
    assert!(locks.refresh("z", Duration::from_secs(99), NOW).is_some());
    assert_eq!(locks.expire(NOW + Duration::from_secs(10)).len(), 2);
    assert_eq!(locks.len(), 1);
    let mut locks = table(&all);
    assert_eq!(locks.remove_tree(&path("/a")).len(), 2);
    assert!(locks.remove("z").is_some() && locks.remove("z").is_none());
    assert_eq!((locks.len(), locks.by_path.len()), (0, 0));
}

#[test]
fn shared_locks_of_one_resource_are_bounded() {
    let mut locks = LockTable::new(1_000);
    for number in 0..COVERING_MAX {
        assert_eq!(locks.add(lock(&number.to_string(), "/a", Scope::Shared, true)), Ok(()));
    }
    assert_eq!(locks.add(lock("x", "/a", Scope::Shared, true)), Err(LockError::Limit));
    assert_eq!(locks.add(lock("y", "/a/b", Scope::Shared, true)), Err(LockError::Limit));
    assert_eq!(locks.add(lock("z", "/b", Scope::Shared, true)), Ok(()));
}

#[test]
fn beyond_the_bound_no_lock_is_given() {
    let mut locks = LockTable::new(1);
    assert_eq!(locks.add(lock("x", "/a", Scope::Shared, false)), Ok(()));
    assert_eq!(locks.add(lock("y", "/b", Scope::Shared, false)), Err(LockError::Limit));
}

#[test]
fn one_principal_does_not_use_up_the_locks_of_all() {
    let mut locks = LockTable::new(HELD_BY_ONE_MIN * SHARE_OF_ONE * 2);
    let held_max = HELD_BY_ONE_MIN * 2;
    let numbered = |number: usize| lock(&number.to_string(), &format!("/{number}"), Scope::Exclusive, false);
    for number in 0..held_max {
        assert_eq!(locks.add(numbered(number)), Ok(()));
    }
    assert_eq!(locks.add(numbered(held_max)), Err(LockError::Limit));
    let of_bob = Lock { principal: named("bob"), ..numbered(held_max + 1) };
    assert_eq!(locks.add(of_bob), Ok(()));
    locks.remove("0").unwrap();
    assert_eq!(locks.add(numbered(held_max)), Ok(()));
    locks.remove_tree(&[]);
    assert!(locks.held.is_empty());
}

#[test]
fn while_a_change_is_under_way_no_lock_is_given_that_would_have_forbidden_it() {
    let change = |locks: &mut LockTable, change| locks.begin(vec![change], &named("bob"), &[]).unwrap();
    let may_lock = |locks: &mut LockTable, at: &str, is_deep| {
        let added = locks.add(lock("x", at, Scope::Shared, is_deep));
        locks.remove("x");
        added
    };
    let mut locks = table(&[]);
    let removal = change(&mut locks, PathChange::of_tree(&path("/a/b"), true));
    for at in ["/a/b", "/a/b/c", "/a"] {
        assert_eq!(may_lock(&mut locks, at, false), Err(LockError::Changing), "{at}");
    }
    assert_eq!(may_lock(&mut locks, "/", true), Err(LockError::Changing));
    for at in ["/", "/a/bc", "/c"] {
        assert_eq!(may_lock(&mut locks, at, false), Ok(()), "{at}");
    }
    let write = change(&mut locks, PathChange::of_resource(&path("/a/b")));
    locks.end(removal);
    assert_eq!(may_lock(&mut locks, "/a/b", false), Err(LockError::Changing));
    assert_eq!(may_lock(&mut locks, "/a", false), Ok(()), "no name comes or goes");
    locks.end(write);
    assert_eq!(may_lock(&mut locks, "/a", true), Ok(()));
    assert!(locks.changes.is_empty());
}

#[test]
fn of_several_changes_all_begin_or_none() {
    let mut locks = table(&[lock("x", "/a", Scope::Exclusive, false)]);
    let both = || vec![PathChange::of_member(&path("/b")), PathChange::of_member(&path("/a/c"))];
    assert_eq!(
        locks.begin(both(), &named("bob"), &["x".to_owned()]),
        Err(BeginError::Locked { root_href: "/a".to_owned() })
    );
    assert!(locks.changes.is_empty());
    assert!(locks.begin(both(), &named("ann"), &["x".to_owned()]).is_ok());
    assert_eq!(locks.changes.len(), 2);
}

#[test]
fn a_moved_path_is_not_changed_and_a_changed_path_is_not_moved() {
    let beside = |one: PathChange, other: PathChange| {
        let mut locks = table(&[]);
        locks.begin(vec![one], &named("ann"), &[]).unwrap();
        locks.begin(vec![other], &named("bob"), &[]).is_ok()
    };
    let moved = || PathChange::of_move(&path("/a/b"));
    let (one, member, file) = (PathChange::of_resource, PathChange::of_member, PathChange::of_file);
    let tree = |path: &[Name]| PathChange::of_tree(path, false);
    for (at, may) in [
        (one(&path("/a/b/c")), false),
        (member(&path("/a/b/c/d")), false),
        (file(&path("/a/b")), false),
        (tree(&path("/a/b")), false),
        (tree(&path("/a")), false),
        (tree(&path("/a/b/c")), false),
        (PathChange::of_move(&path("/a/b/c")), false),
        (PathChange::of_move(&path("/a")), false),
        // Of the name, whatever has it then.
        (one(&path("/a/b")), true),
        (file(&path("/a")), true),
        (tree(&path("/a/bc")), true),
        (PathChange::of_move(&path("/a/c")), true),
    ] {
        assert_eq!(beside(moved(), at.clone()), may, "{at:?}");
        assert_eq!(beside(at.clone(), moved()), may, "{at:?}");
    }
    assert!(beside(tree(&path("/a")), tree(&path("/a"))), "nothing is moved");
}
