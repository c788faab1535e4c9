//! Saved while it is used, put back, brought up to date.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::{ExpectedEnds, Locations, Namespace, RecoveryRecords, Replace};
use testkit::clock::ManualClock;

use super::*;

fn clock() -> ManualClock {
    ManualClock::new(1_000_000)
}

/// Creators go on until the backups are made.
async fn backups_under_load(place: &NamespaceLocation, dir: &Path) -> Vec<PathBuf> {
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
                    namespace
                        .rename(&root, (TOP, &one), (TOP, &other), Replace::Never, ExpectedEnds::ANY)
                        .await
                        .unwrap();
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
async fn a_restored_namespace_goes_on_above_all_numbers_given_since_the_backup() {
    let (scratch, targets) = places();
    let from = NamespaceLocation::Sqlite(scratch.path().join("from"));
    filled(&from).await;
    let (saved, file) = (from.clone(), scratch.path().join("backup"));
    let to = file.clone();
    aside(move || backup(&saved, &to, Some(INSTANCE), &mut |_| {})).await.unwrap();
    // These starts, and the files made and changed in them, are lost.
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
        let old = namespace.lookup(&Identity::root(), TOP, &name("second name")).await.unwrap().entry;
        assert!(old.epoch.0 > 1000, "tickets that were taken back since are refused for good");
        assert_eq!(pools(&namespace, old.file).await, [PoolId(1), STALE.pool]);
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
            orphans[0].locality == api::Locality::Empty,
            "an upload may have got its name since: its data is not removed"
        );
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

/// Migrates, and expects that rows are counted from the first to the last.
fn migrate_counting(place: &NamespaceLocation) -> Plan {
    let mut told = Vec::new();
    let done = migrate(place, &mut |progress| {
        assert_eq!(progress.phase, Phase::Migrating);
        told.push((progress.done, progress.total));
    })
    .unwrap();
    let rows = done.steps.iter().map(|step| step.rows);
    let total = rows.clone().sum();
    let sums = rows.scan(0, |sum, rows| {
        *sum += rows;
        Some((*sum, total))
    });
    assert_eq!(told, std::iter::once((0, total)).chain(sums).collect::<Vec<_>>());
    done
}

#[test]
fn a_dry_run_says_what_would_be_done_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("namespace.db");
    crate::sqlite::schema::make_first_version(&path);
    let (before, place) = (std::fs::read(&path).unwrap(), NamespaceLocation::Sqlite(dir.path().to_owned()));
    let planned = plan(&place).unwrap();
    assert_eq!(planned.found, 1);
    assert_eq!(planned.steps.len() as u32 + 1, planned.known);
    let index = planned.steps.iter().find(|step| step.what.contains("index from files")).unwrap();
    assert_eq!((index.version, index.rows), (3, 1));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let refused =
        copy_quietly(&place, &NamespaceLocation::Sqlite(dir.path().join("to")), Begin::Resume).unwrap_err();
    assert!(refused.to_string().contains("namespace migrate"), "{refused}");
    assert_eq!(migrate_counting(&place), planned);
    let done = plan(&place).unwrap();
    assert_eq!((done.found, done.steps), (planned.known, Vec::new()));
    drop(crate::scratch::open(&dir));
}

#[test]
fn a_dry_run_on_postgres_changes_nothing() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let place = NamespaceLocation::Postgres(url.clone());
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
    assert_eq!(migrate_counting(&place), planned);
    assert_eq!(plan(&place).unwrap().steps, []);
    drop(open_postgres(&url));
}

/// A backup from before an update is as good as one from after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_of_an_older_version_is_saved_and_its_backup_migrated() {
    let dir = tempfile::tempdir().unwrap();
    crate::sqlite::schema::make_first_version(&dir.path().join("namespace.db"));
    let (from, file) = (NamespaceLocation::Sqlite(dir.path().to_owned()), dir.path().join("backup"));
    let to = NamespaceLocation::Sqlite(dir.path().join("to"));
    let into = to.clone();
    aside(move || {
        assert_eq!(backup(&from, &file, None, &mut |_| {}).unwrap().problems, []);
        let old = restore(&file, &into, None, Begin::Resume, &clock(), &mut |_| {}).unwrap_err();
        assert!(matches!(old, BulkError::OldVersion { found: 1, .. }), "{old}");
        migrate(&NamespaceLocation::File(file.clone()), &mut |_| {}).unwrap();
        restore(&file, &into, None, Begin::Resume, &clock(), &mut |_| {}).unwrap();
    })
    .await;
    let namespace = open_at(&to);
    assert_eq!(namespace.lookup(&Identity::root(), TOP, &name("old")).await.unwrap().entry.size, 5);
}

/// The file had lost its seal by then, and was half migrated.
#[test]
fn a_backup_whose_migration_fails_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (database, file) = (dir.path().join("namespace.db"), dir.path().join("backup"));
    crate::sqlite::schema::make_first_version(&database);
    // A later step finds its table made.
    Connection::open(&database).unwrap().execute_batch("CREATE TABLE acls (a)").unwrap();
    backup(&NamespaceLocation::Sqlite(dir.path().to_owned()), &file, None, &mut |_| {}).unwrap();
    let before = std::fs::read(&file).unwrap();
    let refused = migrate(&NamespaceLocation::File(file.clone()), &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("acls"), "{refused}");
    assert!(std::fs::read(&file).unwrap() == before);
    crate::bulk::seal::verify(&file, &mut |_| {}).unwrap().unwrap();
    assert!(!dir.path().join("backup.migrating").exists());
}

#[test]
fn a_backup_is_migrated_after_an_attempt_that_was_killed_and_keeps_its_mode_and_its_seal() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("backup"), dir.path().join("link"));
    crate::sqlite::schema::make_first_version(&dir.path().join("namespace.db"));
    backup(&NamespaceLocation::Sqlite(dir.path().to_owned()), &file, None, &mut |_| {}).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for suffix in ["", "-wal", "-journal"] {
        std::fs::write(dir.path().join(format!("backup.migrating{suffix}")), "half of it").unwrap();
    }
    let open = Connection::open(dir.path().join("namespace.db")).unwrap();
    open.pragma_update(None, "journal_mode", "WAL").unwrap();
    open.execute("UPDATE meta SET value = value + 1", []).unwrap();
    let refused = migrate(&NamespaceLocation::File(dir.path().join("namespace.db")), &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(refused.contains("namespace.db-wal holds a part of it"), "{refused}");
    assert!(migrate(&NamespaceLocation::File(link.clone()), &mut |_| {}).unwrap().found == 1);
    assert!(link.is_symlink() && !dir.path().join("backup.migrating").exists());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    crate::bulk::seal::verify(&file, &mut |_| {}).unwrap().unwrap();
    let before = std::fs::read(&file).unwrap();
    assert_eq!(migrate(&NamespaceLocation::File(file.clone()), &mut |_| {}).unwrap().steps, []);
    assert!(std::fs::read(&file).unwrap() == before, "there was nothing to do");
}

/// As `a_restored_namespace_goes_on_above_all_numbers_given_since_the_backup`, but without a backup file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_is_taken_as_it_is_goes_on_as_if_restored() {
    let (_scratch, places) = places();
    for place in places {
        filled(&place).await;
        let namespace = open_at(&place);
        let before = namespace.lookup(&Identity::root(), TOP, &name("second name")).await.unwrap().entry;
        let made = namespace.create(&Identity::root(), TOP, &name("last"), &regular()).await.unwrap();
        let (into, change) = (place.clone(), namespace.attributes(TOP).await.unwrap().change);
        let running = aside(move || retake(&into, &clock()).unwrap_err()).await;
        assert!(
            running.to_string().contains("use") || running.to_string().contains("another head"),
            "{running}"
        );
        namespace.close().await;
        drop(namespace);
        let into = place.clone();
        let taken = aside(move || retake(&into, &clock())).await.unwrap();
        assert!(taken.files > made.attributes.file.0 + 1_000_000, "{place}");
        let namespace = open_at(&place);
        assert!(namespace.attributes(TOP).await.unwrap().change > change, "{place}");
        let new = namespace.create(&Identity::root(), TOP, &name("new"), &regular()).await.unwrap();
        assert!(new.attributes.file.0 >= taken.files, "{place}");
        let old = namespace.lookup(&Identity::root(), TOP, &name("second name")).await.unwrap().entry;
        assert_eq!(old.epoch.0, before.epoch.0 + (1 << 16), "{place}");
        require_xattrs_and_acl(&namespace, old.file).await;
        assert_eq!(namespace.checksums(old.file).await.unwrap(), []);
        assert_eq!(namespace.load().await.unwrap(), []);
        let orphans = namespace.orphans(FileId(0), 10).await.unwrap();
        assert!(orphans.len() == 1 && orphans[0].locality == api::Locality::Empty);
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

fn restored(file: &Path) -> BulkResult<Copied> {
    let dir = tempfile::tempdir().unwrap();
    let to = NamespaceLocation::Sqlite(dir.path().join("to"));
    let done = restore(file, &to, Some(INSTANCE), Begin::Resume, &clock(), &mut |_| {});
    assert!(done.is_ok() || !dir.path().join("to").exists(), "what is refused leaves nothing");
    done
}

/// Of every engine, a backup of a namespace that has one of everything.
async fn saved(dir: &Path) -> Vec<PathBuf> {
    let (_scratch, places) = places();
    let mut files = Vec::new();
    for (at, place) in places.into_iter().enumerate() {
        filled(&place).await;
        let file = dir.join(format!("{at}.backup"));
        let to = file.clone();
        aside(move || backup(&place, &to, Some(INSTANCE), &mut |_| {})).await.unwrap();
        files.push(file);
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_with_a_flipped_bit_or_without_its_tail_is_not_restored() {
    let scratch = tempfile::tempdir().unwrap();
    for file in saved(scratch.path()).await {
        let damaged = scratch.path().join("damaged");
        let bytes = std::fs::read(&file).unwrap();
        let whole = file.clone();
        assert!(aside(move || restored(&whole)).await.unwrap().is_verified);
        let mut dice = testkit::dice::Dice::seeded(28);
        let bits = bytes.len() as u64 * 8;
        // Anywhere, and each of the last lines.
        let anywhere: Vec<u64> = (0..40).map(|_| dice.below(bits)).collect();
        let at_the_end = (1..=120).map(|back| bits - back * 7);
        for bit in anywhere.into_iter().chain(at_the_end).chain([60 * 8 + 3]) {
            let mut changed = bytes.clone();
            changed[(bit / 8) as usize] ^= 1 << (bit % 8);
            std::fs::write(&damaged, changed).unwrap();
            let refused = aside({
                let damaged = damaged.clone();
                move || restored(&damaged)
            });
            let refused = refused.await.map(drop).unwrap_err().to_string();
            assert!(refused.contains("is damaged"), "bit {bit}: {refused}");
        }
        for lost in [1, 13, 20, 100, 4096, bytes.len() / 2] {
            std::fs::write(&damaged, &bytes[..bytes.len() - lost]).unwrap();
            let refused = aside({
                let damaged = damaged.clone();
                move || restored(&damaged)
            });
            let refused = refused.await.map(drop).unwrap_err().to_string();
            assert!(
                refused.contains("is damaged") && refused.contains("end is missing"),
                "{lost}: {refused}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_says_what_it_has_and_one_of_an_older_program_is_restored_unverified() {
    let scratch = tempfile::tempdir().unwrap();
    for file in saved(scratch.path()).await {
        let contents = crate::bulk::seal::verify(&file, &mut |_| {}).unwrap().unwrap();
        assert_eq!(contents.rows["inodes"], FILES as u64 + 4, "{contents:?}");
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        assert!(text.contains("\ntimeline 1 ") && text.contains("\nrows dentries "));
        // As an older program left it.
        crate::bulk::seal::unseal(&file).unwrap();
        Connection::open(&file).unwrap().pragma_update(None, "user_version", 0).unwrap();
        let done = aside(move || restored(&file)).await.unwrap();
        assert!(!done.is_verified && done.problems.is_empty());
    }
}

/// The connection is lost in the middle of it.
#[test]
fn a_backup_that_fails_leaves_nothing() {
    let Some(cluster) = Cluster::shared() else { return };
    let (dir, url) = (tempfile::tempdir().unwrap(), cluster.create_database().unwrap());
    drop(open_postgres(&url));
    let mut is_cut = false;
    let mut cut = |progress: Progress| {
        if progress.phase == Phase::Copying && !is_cut {
            is_cut = true;
            let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid != pg_backend_pid()";
            cluster.query(&url, sql).unwrap();
        }
    };
    let to = dir.path().join("saved");
    backup(&NamespaceLocation::Postgres(url.clone()), &to, None, &mut cut).unwrap_err();
    assert!(is_cut);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
