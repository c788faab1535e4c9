//! A namespace from before files had a locality, on both engines.

use api::{Locality, Locations};
use testkit::namespace_suite::placed;

use super::*;
use crate::migration::Migration;
use crate::postgres::schema::MIGRATIONS as POSTGRES;
use crate::sqlite::schema::{APPLICATION_ID, MIGRATIONS as SQLITE};

const LOCALITIES: &str = "where the data of each file is";

/// Files of the version before: number, length, and whether there is a replica on pool 3.
const OLD_FILES: [(u64, u64, bool); 4] =
    [(1001, 5, true), (1002, 0, true), (1003, 0, false), (1004, 5, false)];

/// A root with files, a directory, a symbolic link and a file without a name, as the version before made them.
fn rows() -> String {
    let row = |id: u64, kind: u32, nlink: u32, size: u64, parent: u64, extras: u32| {
        format!(
            "INSERT INTO inodes (id, kind, mode, uid, gid, nlink, size, space_used, parent, atime_s, atime_ns, mtime_s, \
             mtime_ns, ctime_s, ctime_ns, birth_s, birth_ns, change, epoch, major, minor, extras) VALUES \
             ({id}, {kind}, 420, 0, 0, {nlink}, {size}, 0, {parent}, 9, 0, 9, 0, 9, 0, 9, 0, 4294967296, 0, 0, 0, \
             {extras}); "
        )
    };
    let mut sql = row(1, 1, 3, 0, 0, 0) + &row(900, 1, 2, 0, 1, 0) + &row(901, 2, 1, 4, 1, 0);
    for (id, size, is_placed) in OLD_FILES {
        sql += &row(id, 0, 1, size, 1, 0);
        if is_placed {
            sql += &format!("INSERT INTO locations (inode, pool) VALUES ({id}, 3); ");
        }
    }
    // An upload that a restore left without its place.
    sql += &row(1005, 0, 0, 0, 0, 4);
    sql
}

fn names() -> Vec<(u64, String)> {
    let files = OLD_FILES.iter().map(|(id, ..)| (*id, format!("file {id}")));
    files.chain([(900, "dir".to_owned()), (901, "link".to_owned())]).collect()
}

fn make_old(place: &NamespaceLocation) {
    let before = |all: &'static [Migration]| {
        let localities = all.iter().position(|migration| migration.what.starts_with(LOCALITIES));
        &all[..localities.expect("there is such a migration")]
    };
    match place {
        NamespaceLocation::Sqlite(dir) => {
            std::fs::create_dir_all(dir).unwrap();
            let connection = Connection::open(dir.join("namespace.db")).unwrap();
            connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
            let versions = "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied TEXT NOT NULL)";
            connection.execute_batch(versions).unwrap();
            for (version, migration) in (1..).zip(before(SQLITE)) {
                connection.execute_batch(migration.sql).unwrap();
                connection.execute("INSERT INTO schema_version VALUES (?1, '')", [version]).unwrap();
            }
            connection.execute_batch(&(rows() + &rest("x'", "'"))).unwrap();
        }
        NamespaceLocation::Postgres(url) => {
            let mut sql = "CREATE SCHEMA forebay; SET search_path = forebay; \
                CREATE TABLE schema_version (version integer PRIMARY KEY, applied timestamptz NOT NULL); "
                .to_owned();
            for (version, migration) in (1..).zip(before(POSTGRES)) {
                sql += migration.sql;
                sql += &format!("; INSERT INTO schema_version VALUES ({version}, now()); ");
            }
            sql += &(rows() + &rest("'\\x", "'::bytea"));
            Cluster::shared().unwrap().query(url, &sql).unwrap();
        }
        NamespaceLocation::File(_) => panic!("no head has one"),
    }
}

/// Names and counts; `open` and `close` stand around the digits of a name.
fn rest(open: &str, close: &str) -> String {
    let hex = |text: &str| text.bytes().flat_map(types::hex::digits).map(char::from).collect::<String>();
    let names: String = names()
        .iter()
        .map(|(id, text)| {
            let text = hex(text);
            format!("INSERT INTO dentries (parent, name, cookie, inode) VALUES (1, {open}{text}{close}, {id}, {id}); ")
        })
        .collect();
    let target = hex("else");
    names
        + &format!("INSERT INTO symlinks VALUES (901, {open}{target}{close}); ")
        + "INSERT INTO meta VALUES ('starts', 1), ('clean_end', 1), ('next_file', 5000), ('next_cookie', 5000); \
           UPDATE progress SET groups = 1, files = 8, bytes = 10;"
}

fn expected(size: u64, is_placed: bool) -> Locality {
    match (is_placed, size) {
        // Since when it is good was not noted.
        (true, _) => placed(&[(PoolId(3), Timestamp::EPOCH)]),
        (false, 0) => Locality::Empty,
        (false, _) => Locality::Lost,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_of_the_version_before_gets_the_locality_of_each_file() {
    let (_scratch, places) = places();
    for place in places {
        let old = place.clone();
        let plan = aside(move || {
            make_old(&old);
            plan(&old).unwrap()
        })
        .await;
        assert_eq!((plan.known - plan.found, plan.steps.len()), (2, 2), "{place}");
        assert!(plan.steps[0].what.starts_with(LOCALITIES));
        assert_eq!(plan.steps[0].rows, 8 + 2, "all files, and all replicas");
        let namespace = open_at(&place);
        for (file, size, is_placed) in OLD_FILES {
            let found = namespace.locality(FileId(file)).await.unwrap();
            assert_eq!(found, expected(size, is_placed), "{place}: {file}");
        }
        let listed = namespace.files(FileId(0), 100).await.unwrap();
        let of_upload = listed.iter().find(|listed| listed.attributes.file == FileId(1005)).unwrap();
        assert_eq!(of_upload.locality, Locality::Empty);
        for listed in &listed[..4] {
            let (_, size, is_placed) =
                OLD_FILES.into_iter().find(|(id, ..)| *id == listed.attributes.file.0).unwrap();
            assert_eq!(listed.locality, expected(size, is_placed), "{place}: {}", listed.attributes.file);
        }
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), [], "{place}");
    }
}

/// The program before compares this version with its own, finds it newer and refuses it, as this one does with the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_program_refuses_a_namespace_that_was_migrated_and_says_what_to_do() {
    let (_scratch, places) = places();
    for place in places {
        let old = place.clone();
        let done = aside(move || {
            make_old(&old);
            migrate(&old, &mut |_| {}).unwrap()
        })
        .await;
        assert!(done.found < done.known, "the program before knows up to the version that was found");
        let (known, next) = (done.known, done.known + 1);
        let opened = open_at(&place);
        opened.close().await;
        drop(opened);
        let newer = place.clone();
        let refused = aside(move || {
            match &newer {
                NamespaceLocation::Sqlite(dir) => {
                    let connection = Connection::open(dir.join("namespace.db")).unwrap();
                    connection.execute("INSERT INTO schema_version VALUES (?1, '')", [next]).unwrap();
                }
                NamespaceLocation::Postgres(url) => {
                    let sql = format!("INSERT INTO forebay.schema_version VALUES ({next}, now())");
                    Cluster::shared().unwrap().query(url, &sql).unwrap();
                }
                NamespaceLocation::File(_) => panic!("no head has one"),
            }
            [plan(&newer).unwrap_err(), migrate(&newer, &mut |_| {}).unwrap_err()]
                .map(|error| error.to_string())
        })
        .await;
        let versions = format!("has schema version {next}, this program knows up to {known}; ");
        for message in refused {
            assert!(message.contains(&versions), "{message}");
            assert!(message.ends_with("or restore a backup from before the update"), "{message}");
        }
    }
}
