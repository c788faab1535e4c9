//! Saved while it is used, put back, brought up to date.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::{Locations, Namespace, RecoveryRecords, Replace};
use testkit::namespace_suite::HandClock;

use super::*;

fn clock() -> HandClock {
    HandClock::new(1_000_000)
}

/// Creators go on until the backups are made.
async fn backups_under_load(place: &Place, dir: &Path) -> Vec<PathBuf> {
    let namespace = open_at(place);
    fill(&namespace).await;
    let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let creators: Vec<_> = (0..3)
        .map(|creator| {
            let (namespace, is_over, made) =
                (Arc::clone(&namespace), Arc::clone(&is_over), Arc::clone(&made));
            tokio::spawn(async move {
                let root = Identity::root();
                for at in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let (one, other) = (name(&format!("{creator}-{at}")), name(&format!("{creator}-{at}'")));
                    namespace.create(&root, TOP, &one, &regular()).await.unwrap();
                    namespace.rename(&root, (TOP, &one), (TOP, &other), Replace::Never).await.unwrap();
                    made.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut files = Vec::new();
    for round in 1..=3 {
        while made.load(Ordering::Relaxed) < round * 20 {
            tokio::task::yield_now().await;
        }
        let file = dir.join(format!("{round}.backup"));
        let (from, to) = (place.clone(), file.clone());
        let saved = aside(move || backup(&from, &to, Some(INSTANCE), &mut |_| {})).await.unwrap();
        assert_eq!(saved.problems, []);
        files.push(file);
    }
    is_over.store(true, Ordering::Relaxed);
    for creator in creators {
        creator.await.unwrap();
    }
    namespace.close().await;
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_while_files_are_made_is_of_one_moment_and_can_be_restored() {
    let (scratch, places) = places();
    for (at, place) in places.iter().enumerate() {
        let dir = scratch.path().join(format!("backups {at}"));
        std::fs::create_dir(&dir).unwrap();
        let files = backups_under_load(place, &dir).await;
        let again = files[0].clone();
        let from = place.clone();
        let refused = aside(move || backup(&from, &again, None, &mut |_| {}).unwrap_err()).await;
        assert!(matches!(refused, BulkError::NotEmpty { .. }), "{refused}");
        // Into the other engine, where there is one.
        let (_keep, mut empty) = self::places();
        let to = if at == 0 { empty.pop().unwrap() } else { empty.swap_remove(0) };
        let (file, into) = (files[2].clone(), to.clone());
        let restored =
            aside(move || restore(&file, &into, Some(INSTANCE), Begin::Resume, &clock(), &mut |_| {})).await;
        assert_eq!(restored.unwrap().problems, []);
        let namespace = open_at(&to);
        namespace.lookup(&Identity::root(), TOP, &name("dir")).await.unwrap();
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_restored_goes_on_above_all_that_may_have_been_since() {
    let (scratch, targets) = places();
    let from = Place::Sqlite(scratch.path().join("from"));
    filled(&from).await;
    let (saved, file) = (from.clone(), scratch.path().join("backup"));
    let to = file.clone();
    aside(move || backup(&saved, &to, Some(INSTANCE), &mut |_| {})).await.unwrap();
    // What is lost: some starts, and files made and changed in them.
    let (mut highest, mut change) = (FileId(0), 0);
    for round in 0..3 {
        let namespace = open_at(&from);
        let text = format!("after {round}");
        let made = namespace.create(&Identity::root(), TOP, &name(&text), &regular()).await.unwrap();
        highest = made.attributes.file;
        change = namespace.attributes(TOP).await.unwrap().change;
        namespace.close().await;
    }
    for to in targets {
        let (file, into) = (file.clone(), to.clone());
        let restored = aside(move || {
            let refused =
                restore(&file, &into, Some([8; 16]), Begin::Resume, &clock(), &mut |_| {}).unwrap_err();
            assert!(matches!(refused, BulkError::OtherInstance { .. }), "{refused}");
            restore(&file, &into, Some(INSTANCE), Begin::Resume, &clock(), &mut |_| {})
        });
        assert_eq!(restored.await.unwrap().problems, []);
        let namespace = open_at(&to);
        assert!(namespace.attributes(TOP).await.unwrap().change > change, "{to}: before anything is changed");
        let made = namespace.create(&Identity::root(), TOP, &name("new"), &regular()).await.unwrap();
        assert!(made.attributes.file.0 > highest.0 + 1_000_000, "{to}");
        assert!(made.attributes.change > change);
        assert!(namespace.lookup(&Identity::root(), TOP, &name("after 0")).await.is_err());
        let old = namespace.lookup(&Identity::root(), TOP, &name("second name")).await.unwrap();
        assert!(old.epoch.0 > 1000, "tickets that were taken back since are refused for good");
        assert_eq!(namespace.locations(old.file).await.unwrap(), [PoolId(1)]);
        require_xattrs_and_acl(&namespace, old.file).await;
        assert_eq!(
            namespace.checksums(old.file).await.unwrap(),
            [],
            "what was written over since would be told with an old sum"
        );
        assert_eq!(
            namespace.load().await.unwrap(),
            [],
            "nobody reclaims what has been somebody else's since"
        );
        let orphans = namespace.orphans(FileId(0), 10).await.unwrap();
        assert_eq!(orphans.len(), 1);
        assert!(
            orphans[0].pools.is_empty(),
            "an upload may have got its name since: its data is not removed"
        );
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

#[test]
fn a_dry_run_says_what_would_be_done_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("namespace.db");
    crate::sqlite::schema::make_first_version(&path);
    let (before, place) = (std::fs::read(&path).unwrap(), Place::Sqlite(dir.path().to_owned()));
    let planned = plan(&place).unwrap();
    assert_eq!(planned.found, 1);
    assert_eq!(planned.steps.len() as u32 + 1, planned.known);
    let index = planned.steps.iter().find(|step| step.what.contains("index from files")).unwrap();
    assert_eq!((index.version, index.rows), (3, 1));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let refused = copy_quietly(&place, &Place::Sqlite(dir.path().join("to")), Begin::Resume).unwrap_err();
    assert!(refused.to_string().contains("namespace migrate"), "{refused}");
    assert_eq!(migrate(&place).unwrap(), planned);
    let done = plan(&place).unwrap();
    assert_eq!((done.found, done.steps), (planned.known, Vec::new()));
    drop(crate::scratch::open(&dir));
}

#[test]
fn a_dry_run_on_postgres_changes_nothing() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let place = Place::Postgres(url.clone());
    assert!(matches!(plan(&place), Err(BulkError::Nothing(_))));
    // As the first version left it.
    let first = crate::postgres::schema::MIGRATIONS[0].sql;
    let sql = format!(
        "CREATE SCHEMA forebay; SET search_path = forebay; {first}; \
         CREATE TABLE schema_version (version integer PRIMARY KEY, applied timestamptz NOT NULL); \
         INSERT INTO schema_version VALUES (1, now())"
    );
    cluster.query(&url, &sql).unwrap();
    let state = "SELECT max(version), (SELECT count(*) FROM pg_class) FROM forebay.schema_version";
    let before = cluster.query(&url, state).unwrap();
    let planned = plan(&place).unwrap();
    assert_eq!((planned.found, planned.steps[0].version), (1, 2));
    assert_eq!(cluster.query(&url, state).unwrap(), before);
    assert_eq!(migrate(&place).unwrap(), planned);
    assert_eq!(plan(&place).unwrap().steps, []);
    drop(open_postgres(&url));
}

/// A backup from before an update is as good as one from after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_of_an_older_version_is_saved_and_its_backup_migrated() {
    let dir = tempfile::tempdir().unwrap();
    crate::sqlite::schema::make_first_version(&dir.path().join("namespace.db"));
    let (from, file) = (Place::Sqlite(dir.path().to_owned()), dir.path().join("backup"));
    let to = Place::Sqlite(dir.path().join("to"));
    let into = to.clone();
    aside(move || {
        assert_eq!(backup(&from, &file, None, &mut |_| {}).unwrap().problems, []);
        let old = restore(&file, &into, None, Begin::Resume, &clock(), &mut |_| {}).unwrap_err();
        assert!(matches!(old, BulkError::OldVersion { found: 1, .. }), "{old}");
        migrate(&Place::File(file.clone())).unwrap();
        restore(&file, &into, None, Begin::Resume, &clock(), &mut |_| {}).unwrap();
    })
    .await;
    let namespace = open_at(&to);
    assert_eq!(namespace.lookup(&Identity::root(), TOP, &name("old")).await.unwrap().size, 5);
}
