//! Damage by SQL past everything, and what the check makes of it, on every engine.

use api::{CreateKind, CreateSpec, Namespace};
use types::Identity;

use super::*;
use crate::scratch::{Engine, name, regular};

/// Problems after `sql` in a namespace with a directory `d` that holds a file `f`, on every engine.
async fn after(sql: &str) -> (Vec<Problem>, FileId, FileId) {
    let mut found = Vec::new();
    for engine in Engine::all() {
        let namespace = engine.open();
        let directory = CreateSpec { kind: CreateKind::Directory, ..regular() };
        let root = Identity::root();
        let dir =
            namespace.create(&root, FileId::ROOT, &name("d"), &directory).await.unwrap().attributes.file;
        let file = namespace.create(&root, dir, &name("f"), &regular()).await.unwrap().attributes.file;
        namespace.close().await;
        engine.damage(&namespace, sql);
        found.push((namespace.check().unwrap(), dir, file));
    }
    let first = found.swap_remove(0);
    for other in found {
        assert_eq!(other, first, "engines differ");
    }
    first
}

#[tokio::test]
async fn a_sound_namespace_has_no_problems() {
    assert_eq!(after("").await.0, []);
}

#[tokio::test]
async fn a_check_ends_after_the_kind_at_which_it_is_broken_off() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let mut told = 0;
        let mut break_off = |after: usize| {
            told = 0;
            let found = namespace.check_telling(&mut || {
                told += 1;
                if told == after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            (found.unwrap(), told)
        };
        assert_eq!(break_off(2), (None, 2));
        assert_eq!(break_off(usize::MAX), (Some(Vec::new()), Kind::ALL.len()));
        namespace.close().await;
    }
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_found() {
    let (problems, dir, file) = after("DELETE FROM inodes WHERE kind = 0").await;
    assert!(problems.contains(&Problem::NameOfNothing { dir, name: b"f".to_vec(), file }), "{problems:?}");
}

#[tokio::test]
async fn a_wrong_link_count_is_found() {
    let (problems, dir, file) = after("UPDATE inodes SET nlink = 7 WHERE id > 1").await;
    assert_eq!(
        problems,
        [
            Problem::LinkCount { file, nlink: 7, counted: 1 },
            Problem::LinkCount { file: dir, nlink: 7, counted: 2 }
        ]
    );
}

#[tokio::test]
async fn pending_changes_count_in_link_counts_and_those_of_nothing_are_found() {
    let sql = "UPDATE inodes SET nlink = 7 WHERE kind = 1 AND id > 1; \
               INSERT INTO dir_deltas SELECT id, 1, -3, 0, 0, 0 FROM inodes WHERE kind = 1 AND id > 1; \
               INSERT INTO dir_deltas SELECT id, 2, -2, 0, 0, 0 FROM inodes WHERE kind = 1 AND id > 1; \
               INSERT INTO dir_deltas VALUES (4711, 2, 1, 0, 0, 0)";
    assert_eq!(after(sql).await.0, [Problem::DeltaOfNothing { dir: FileId(4711) }]);
}

#[tokio::test]
async fn a_cycle_and_a_wrong_parent_are_found() {
    let (problems, dir, _) = after("UPDATE inodes SET parent = id WHERE kind = 1 AND id > 1").await;
    let wrong = Problem::WrongParent { dir, parent: dir, named_in: FileId::ROOT };
    // Entries below it are then in no tree.
    assert_eq!(problems[..2], [wrong, Problem::Unreachable { dir }]);
}

#[tokio::test]
async fn rows_that_no_file_speaks_of_and_missing_ones_are_found() {
    let sql = "INSERT INTO properties VALUES (4711, 'a', ''); INSERT INTO checksums VALUES (4712, 'md5', ''); \
               INSERT INTO xattrs SELECT 4713, name, 7, name FROM dentries WHERE parent = 1; \
               INSERT INTO acls VALUES (4714, ''); \
               INSERT INTO checksums SELECT id, 'md5', '' FROM inodes WHERE kind = 0";
    let (problems, _, file) = after(sql).await;
    let rows = |table, file| Problem::RowsOfNothing { table, file };
    assert_eq!(
        problems,
        [
            rows("checksums", file),
            rows("checksums", FileId(4712)),
            rows("properties", FileId(4711)),
            rows("xattrs", FileId(4713)),
            rows("acls", FileId(4714))
        ]
    );
    for (sql, table) in [
        ("UPDATE inodes SET extras = extras | 2 WHERE id > 1", "properties"),
        ("UPDATE inodes SET extras = extras | 64 WHERE id > 1", "xattrs"),
        ("UPDATE inodes SET extras = extras | 128 WHERE id > 1", "acls"),
    ] {
        let (problems, dir, file) = after(sql).await;
        let missing = |file| Problem::RowsMissing { table, file };
        assert_eq!(problems, [missing(dir), missing(file)]);
    }
}

#[tokio::test]
async fn a_file_that_was_not_published_and_has_a_name_is_found() {
    let (problems, _, file) = after("UPDATE inodes SET extras = extras | 4 WHERE kind = 0").await;
    assert_eq!(problems, [Problem::Unnamed { file, nlink: 1 }]);
}

#[tokio::test]
async fn a_file_without_a_name_and_one_that_counts_elsewhere_are_found() {
    let (problems, _, file) = after("DELETE FROM dentries WHERE name = (SELECT name FROM dentries d JOIN inodes i ON i.id = d.inode WHERE i.kind = 0)").await;
    assert!(problems.contains(&Problem::Nameless { file, nlink: 1 }), "{problems:?}");
    let (problems, _, file) =
        after("INSERT INTO usage VALUES (1, 4711, 1, 1, 1); UPDATE inodes SET parent = 1 WHERE kind = 0")
            .await;
    assert!(problems.contains(&Problem::WrongHome { file, home: FileId::ROOT }), "{problems:?}");
}

#[tokio::test]
async fn wrong_totals_and_strange_locations_are_found() {
    let sql = "UPDATE inodes SET size = 9223372036854775807 WHERE kind = 0; INSERT INTO locations VALUES (4711, 1, 1, 0)";
    let (problems, _, _) = after(sql).await;
    let location = Problem::LocationOfNothing { file: FileId(4711), pool: PoolId(1) };
    assert!(problems.contains(&location), "{problems:?}");
    let is_right = |problem: &Problem| matches!(problem, Problem::Totals { counted_bytes, .. } if *counted_bytes == u64::MAX >> 1);
    assert!(problems.iter().any(is_right), "{problems:?}");
}

#[tokio::test]
async fn a_location_of_what_is_no_regular_file_is_found() {
    let sql = "INSERT INTO locations SELECT id, 1, 1, 0 FROM inodes WHERE kind = 0 OR id > 1; \
               UPDATE inodes SET extras = 0 WHERE kind = 0";
    let (problems, dir, _) = after(sql).await;
    assert_eq!(problems, [Problem::LocationOfNothing { file: dir, pool: PoolId(1) }]);
}

#[tokio::test]
async fn a_placement_that_is_not_what_the_rows_say_is_found() {
    let row = "INSERT INTO locations SELECT id, 1, 1, 0 FROM inodes WHERE kind = 0";
    // A file of a length that says it is empty; one that is lost and has none; a lost row; a row that no inode speaks of;
    // a number that is not known; a directory that has any.
    for (damage, noted, found) in [
        ("UPDATE inodes SET size = 7 WHERE kind = 0; UPDATE progress SET bytes = 7".to_owned(), 1, 2),
        ("UPDATE inodes SET extras = 512 WHERE kind = 0".to_owned(), 2, 1),
        ("UPDATE inodes SET extras = 0 WHERE kind = 0".to_owned(), 0, 1),
        (row.to_owned(), 1, 0),
        (format!("{row}; UPDATE inodes SET extras = 1024 WHERE kind = 0"), 4, 0),
    ] {
        let (mut problems, _, file) = after(&damage).await;
        // Its length counts in accounts, too.
        problems.retain(|problem| problem.kind() != Kind::Usage);
        assert_eq!(problems, [Problem::Placement { file, noted, found }], "{damage}");
    }
    let (problems, dir, _) = after("UPDATE inodes SET extras = 512 WHERE kind = 1 AND id > 1").await;
    assert_eq!(problems, [Problem::Placement { file: dir, noted: 2, found: 0 }]);
    assert_eq!(
        problems[0].to_string(),
        format!(
            "{dir} is noted as a file with a length and no replica, and is an entry that needs no note (a directory, or a file with replicas)"
        )
    );
}

#[tokio::test]
async fn a_replica_in_a_state_that_is_not_known_is_found() {
    for state in [0, 6] {
        let sql = format!(
            "INSERT INTO locations SELECT id, 3, {state}, 0 FROM inodes WHERE kind = 0; \
             INSERT INTO locations SELECT id, 4, 5, 0 FROM inodes WHERE kind = 0; \
             UPDATE inodes SET extras = 0 WHERE kind = 0"
        );
        let (problems, _, file) = after(&sql).await;
        assert_eq!(problems, [Problem::StrangeReplica { file, pool: PoolId(3), state }]);
    }
}

#[tokio::test]
async fn accounts_that_are_not_what_is_there_are_found() {
    let sql = "UPDATE inodes SET parent = (SELECT max(id) FROM inodes WHERE kind = 1) WHERE kind = 0; \
               DELETE FROM usage; INSERT INTO usage VALUES (0, 0, 1, 2, 0), (1, 0, 1, 2, 9), (2, 4711, 1, 1, 1)";
    let (problems, _, _) = after(sql).await;
    let told: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert_eq!(
        told,
        [
            "there is a count of directory 0000000000001267, which is not there",
            "group 0 is said to have 1 files, 2 directories and 9 bytes, 1 files, 2 directories and 0 bytes were counted",
            "what lies below directory 0000000000000001 is said to have 0 files, 0 directories and 0 bytes, \
             1 files, 1 directories and 0 bytes were counted",
            "what lies below directory 0000000000000003 is said to have 0 files, 0 directories and 0 bytes, \
             1 files, 0 directories and 0 bytes were counted",
            "what lies below directory 0000000000001267 is said to have 1 files, 1 directories and 1 bytes, \
             0 files, 0 directories and 0 bytes were counted",
        ]
    );
}

/// Kinds after it were not looked at, and a problem of theirs stayed unknown until the first was repaired.
#[tokio::test]
async fn a_flood_of_one_kind_hides_no_other_kind() {
    let flood = "INSERT INTO locations (inode, pool) WITH RECURSIVE numbers(n) AS \
                 (SELECT 1000 UNION ALL SELECT n + 1 FROM numbers WHERE n < 11000) SELECT n, 0 FROM numbers";
    let (problems, _, file) = after(&format!("{flood}; UPDATE inodes SET nlink = 7 WHERE kind = 0")).await;
    let is_flood = |problem: &&Problem| problem.kind() == Kind::Locations;
    assert_eq!(problems.iter().filter(is_flood).count(), PROBLEMS_MAX);
    assert!(problems.contains(&Problem::LinkCount { file, nlink: 7, counted: 1 }));
}
