//! From one engine to the other: whole, or gone on with, or refused.

use api::{ExpectedFile, Locations, Namespace, Properties};

use super::*;
use crate::bulk::copy::carry;
use crate::bulk::tables::{TABLES, Table, Value};

type Dump = (Marks, Vec<Vec<Value>>);

fn dump(mut source: Box<dyn Source>) -> Dump {
    let tables = TABLES.iter().map(|table| source.tables().page(table, None, 100_000).unwrap()).collect();
    (source.marks().clone(), tables)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_copy_is_the_same_and_goes_on_above_it() {
    let (scratch, mut places) = places();
    places.push(NamespaceLocation::Sqlite(scratch.path().join("last")));
    let (highest, change) = filled(&places[0]).await;
    let dumped = aside(move || {
        let mut before = dump(open_source(&places[0]).unwrap());
        before.0.claim(Some(INSTANCE), "").unwrap();
        for ends in places.windows(2) {
            let copied = copy_quietly(&ends[0], &ends[1], Begin::Resume).unwrap();
            assert_eq!((copied.problems, copied.resumed), (Vec::new(), 0));
            let width: usize =
                (before.1.iter().zip(TABLES)).map(|(rows, table)| rows.len() / table.width()).sum();
            assert_eq!(copied.rows, width as u64);
            if let NamespaceLocation::Sqlite(dir) = &ends[1] {
                // One file is the whole of it, but for the lock.
                assert_eq!(std::fs::read_dir(dir).unwrap().count(), 2);
            }
            let after = dump(open_source(&ends[1]).unwrap());
            assert_eq!(after, before);
        }
        places
    })
    .await;
    for place in &dumped[1..] {
        let namespace = open_at(place);
        let made = namespace.create(&Identity::root(), TOP, &name("new"), &regular()).await.unwrap();
        assert!(made.attributes.file > highest, "{place}");
        assert!(namespace.attributes(TOP).await.unwrap().change > change, "{place}");
        let found = namespace.lookup(&Identity::root(), TOP, &name("second name")).await.unwrap().entry;
        assert_eq!(namespace.properties(found.file).await.unwrap().len(), 1);
        require_xattrs_and_acl(&namespace, found.file).await;
        let locality = namespace.locality(found.file).await.unwrap();
        assert_eq!(
            locality.replicas(),
            [ReplicaRef::good(PoolId(1), Timestamp::from_seconds(1_000_000)), STALE]
        );
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

/// Ends in the middle of a table, as if the program were killed.
struct Ending {
    sink: Box<dyn Sink>,
    writes_left: usize,
}

impl Sink for Ending {
    fn write(&mut self, table: &'static Table, rows: &[Value]) -> BulkResult<()> {
        if self.writes_left > 0 {
            self.writes_left -= 1;
            return self.sink.write(table, rows);
        }
        let half = rows.len() / table.width() / 2 * table.width();
        self.sink.write(table, &rows[..half])?;
        // So much is there for good.
        self.sink.execute("SELECT 1")?;
        Err(BulkError::failed("test", "killed"))
    }

    fn last_key(&mut self, table: &'static Table) -> BulkResult<Option<Vec<Value>>> {
        self.sink.last_key(table)
    }

    fn execute(&mut self, sql: &str) -> BulkResult<()> {
        self.sink.execute(sql)
    }

    fn index(&mut self) -> BulkResult<()> {
        self.sink.index()
    }

    fn publish(&mut self, marks: &Marks) -> BulkResult<()> {
        self.sink.publish(marks)
    }

    fn check(&mut self) -> BulkResult<Vec<Problem>> {
        self.sink.check()
    }

    fn tables(&mut self) -> &mut dyn Tables {
        self.sink.tables()
    }
}

fn begin_and_be_killed(from: &NamespaceLocation, to: &NamespaceLocation, writes: usize) {
    let mut source = open_source(from).unwrap();
    let mut marks = source.marks().clone();
    marks.claim(Some(INSTANCE), from).unwrap();
    let sink = open_sink(to, &marks.state(), Begin::Resume).unwrap();
    let mut sink = Ending { sink, writes_left: writes };
    let killed = carry((&mut *source, from), (&mut sink, to), &marks, &mut |_| {});
    assert!(killed.unwrap_err().to_string().contains("killed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_killed_goes_on_where_it_was() {
    let (scratch, targets) = places();
    let from = NamespaceLocation::Sqlite(scratch.path().join("from"));
    filled(&from).await;
    aside(move || {
        let before = dump(open_source(&from).unwrap()).1;
        for to in &targets {
            // First within the inodes, then in a later table.
            begin_and_be_killed(&from, to, 0);
            assert!(matches!(open_source(to), Err(BulkError::Nothing(_))), "{to}: half a namespace is there");
            begin_and_be_killed(&from, to, 2);
            let copied = copy_quietly(&from, to, Begin::Resume).unwrap();
            assert!(copied.resumed > FILES as u64 && copied.resumed < copied.rows, "{copied:?}");
            assert_eq!(copied.problems, []);
            assert_eq!(dump(open_source(to).unwrap()).1, before);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_changed_since_is_refused_unless_all_is_begun_anew() {
    let (scratch, targets) = places();
    let from = NamespaceLocation::Sqlite(scratch.path().join("from"));
    filled(&from).await;
    for to in targets {
        let ends = (from.clone(), to.clone());
        aside(move || begin_and_be_killed(&ends.0, &ends.1, 1)).await;
        let namespace = open_at(&from);
        let file = namespace.create(&Identity::root(), TOP, &name("later"), &regular()).await.unwrap();
        namespace.unlink(&Identity::root(), TOP, &name("later"), ExpectedFile::Any).await.unwrap();
        namespace.forget(&[file.attributes.file]).await.unwrap();
        namespace.close().await;
        drop(namespace);
        let ends = (from.clone(), to.clone());
        aside(move || {
            let refused = copy_quietly(&ends.0, &ends.1, Begin::Resume).unwrap_err();
            assert!(refused.to_string().contains("--start-over"), "{refused}");
            let copied = copy_quietly(&ends.0, &ends.1, Begin::Afresh).unwrap();
            assert_eq!((copied.resumed, copied.problems), (0, Vec::new()));
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_refuses_a_namespace_in_use_a_full_target_and_another_instance() {
    let (scratch, places) = places();
    let other = NamespaceLocation::Sqlite(scratch.path().join("other"));
    filled(&other).await;
    for place in places {
        let namespace = open_at(&place);
        fill(&namespace).await;
        let (here, there) = (place.clone(), NamespaceLocation::Sqlite(scratch.path().join("there")));
        aside(move || {
            let running = copy_quietly(&here, &there, Begin::Resume).unwrap_err().to_string();
            assert!(running.contains("forebay namespace backup"), "{running}");
        })
        .await;
        namespace.close().await;
        drop(namespace);
        let (here, from, dir) = (place.clone(), other.clone(), scratch.path().to_owned());
        aside(move || {
            let full = copy_quietly(&from, &here, Begin::Afresh).unwrap_err();
            assert!(matches!(full, BulkError::NotEmpty { .. }), "{full}");
            let to = NamespaceLocation::Sqlite(dir.join("strange"));
            if matches!(here, NamespaceLocation::Postgres(_)) {
                let order = Order { begin: Begin::Resume, instance: Some([8; 16]) };
                let strange = copy(&here, &to, &order, &mut |_| {}).unwrap_err();
                assert!(matches!(strange, BulkError::OtherInstance { .. }), "{strange}");
            }
            let nothing = copy_quietly(&to, &here, Begin::Resume).unwrap_err();
            assert!(matches!(nothing, BulkError::Nothing(_)), "{nothing}");
        })
        .await;
    }
}

/// SQLite would replay the left-over log of another database into the new one.
#[test]
fn a_left_over_wal_without_its_database_refuses_a_new_namespace() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("namespace.db-wal"), "left over").unwrap();
    let refused = Bulk::begin(&NamespaceLocation::Sqlite(dir.path().to_owned())).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("namespace.db-wal"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_not_the_same_are_not_put_in_place() {
    let (scratch, targets) = places();
    let from = NamespaceLocation::Sqlite(scratch.path().join("from"));
    filled(&from).await;
    aside(move || {
        for to in &targets {
            begin_and_be_killed(&from, to, 1);
            let state = {
                let mut marks = open_source(&from).unwrap().marks().clone();
                marks.claim(Some(INSTANCE), "").unwrap();
                marks.state()
            };
            open_sink(to, &state, Begin::Resume).unwrap().execute("UPDATE inodes SET mode = 511").unwrap();
            let different = copy_quietly(&from, to, Begin::Resume).unwrap_err();
            assert!(different.to_string().contains("inodes has the same number of rows"), "{different}");
            assert!(matches!(open_source(to), Err(BulkError::Nothing(_))));
        }
    })
    .await;
}
