//! Damage by SQL past everything, mended, on every engine.

use api::Scope;
use api::{
    CreateKind, CreateSpec, Locality, Locations, Namespace, Paths, Properties, Property, PropertyChange,
    ReplicaRef, ReplicaState, SetXattr, Xattrs,
};
use testkit::clock::ManualClock;
use testkit::namespace_suite::placed;
use types::{Epoch, FileId, Identity, PoolId, SymlinkTarget, Timestamp, XattrName};

use super::*;
use crate::accounts::journal;
use crate::scratch::{Engine, name, pools, regular};
use crate::timeline::{Mark, Noted};

#[derive(Default)]
struct Lines {
    lines: Vec<(String, String)>,
    secured: usize,
}

impl RepairLog for Lines {
    fn note(&mut self, was: &str, made: &str) -> io::Result<()> {
        self.lines.push((was.to_owned(), made.to_owned()));
        Ok(())
    }

    fn secure(&mut self) -> io::Result<()> {
        self.secured = self.lines.len();
        Ok(())
    }
}

/// A directory `d` with a directory `e`, a file `f` with a property, and a symbolic link `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scene {
    d: FileId,
    e: FileId,
    f: FileId,
    s: FileId,
}

async fn make(namespace: &SqlNamespace) -> Scene {
    let root = Identity::root();
    let create = async |dir, text, kind| {
        let spec = CreateSpec { kind, location: Some(PoolId(0)), ..regular() };
        namespace.create(&root, dir, &name(text), &spec).await.unwrap().attributes.file
    };
    let d = create(FileId::ROOT, "d", CreateKind::Directory).await;
    let e = create(d, "e", CreateKind::Directory).await;
    let f = create(d, "f", CreateKind::Regular).await;
    let target = SymlinkTarget::new(b"f").unwrap();
    let s = create(d, "s", CreateKind::Symlink(target)).await;
    let property = Property { name: "colour".to_owned(), value: "red".into() };
    namespace.set_properties(&root, f, &[PropertyChange::Set(property)]).await.unwrap();
    namespace.set_xattr(&root, f, &xattr_name(), &"blue".into(), SetXattr::Create).await.unwrap();
    Scene { d, e, f, s }
}

fn xattr_name() -> XattrName {
    XattrName::new(b"colour").unwrap()
}

struct Repaired {
    scene: Scene,
    log: Vec<(String, String)>,
    namespace: Arc<SqlNamespace>,
    _engine: Engine,
}

impl Repaired {
    async fn path(&self, file: FileId) -> Option<String> {
        let paths = self.namespace.paths(&[file]).await.unwrap();
        let names = paths.into_iter().next().flatten()?;
        Some(names.iter().map(|name| format!("/{}", name.as_bytes().escape_ascii())).collect())
    }

    fn made(&self) -> Vec<&str> {
        self.log.iter().map(|(_, made)| made.as_str()).collect()
    }
}

/// Damages and repairs the scene on every engine; all must end alike, and without a problem.
async fn repaired(damage: &str, work: impl Fn(&mut Repairs, &mut Lines, &Scene)) -> Repaired {
    let mut first: Option<Repaired> = None;
    for engine in Engine::all() {
        let namespace = engine.open();
        let scene = make(&namespace).await;
        namespace.close().await;
        let [d, e, f, s] = [scene.d, scene.e, scene.f, scene.s].map(|file| file.0.to_string());
        let sql = damage.replace("{d}", &d).replace("{e}", &e).replace("{f}", &f).replace("{s}", &s);
        engine.damage(&namespace, &sql);
        let mut log = Lines::default();
        let mut repairs = namespace.repairs().unwrap();
        work(&mut repairs, &mut log, &scene);
        repairs.settle(&mut log).unwrap();
        drop(repairs);
        assert_eq!(log.secured, log.lines.len(), "all that was done is in the log");
        assert_eq!(namespace.check().unwrap(), []);
        drop(namespace);
        let namespace = engine.open();
        let done = Repaired { scene, log: log.lines, namespace, _engine: engine };
        match &first {
            Some(first) => assert_eq!((&done.scene, &done.log), (&first.scene, &first.log), "engines differ"),
            None => first = Some(done),
        }
    }
    first.unwrap()
}

async fn mended(damage: &str, kinds: &[Kind]) -> Repaired {
    repaired(damage, |repairs, log, _| {
        for kind in kinds {
            assert!(repairs.mend(*kind, log).unwrap() > 0, "{kind:?}");
        }
    })
    .await
}

#[tokio::test]
async fn names_of_nothing_are_removed_and_are_in_the_log() {
    let done = mended(
        "INSERT INTO dentries (parent, name, cookie, inode) SELECT {d}, name, 900, 4711 FROM dentries WHERE inode = {d}",
        &[Kind::Names],
    )
    .await;
    assert!(done.log[0].0.starts_with("name \"d\" in directory"), "{:?}", done.log);
    assert!(done.log[0].0.contains("0000000000001267"), "{:?}", done.log);
}

#[tokio::test]
async fn a_directory_of_several_names_keeps_the_one_in_its_parent() {
    let done = mended(
        "INSERT INTO dentries (parent, name, cookie, inode) SELECT 1, name, 900, {e} FROM dentries WHERE inode = {f}",
        &[Kind::DirectoryNames],
    )
    .await;
    assert_eq!(done.path(done.scene.e).await.unwrap(), "/d/e");
}

#[tokio::test]
async fn a_directory_without_a_name_goes_to_lost_and_found_with_all_below_it() {
    let done = mended("DELETE FROM dentries WHERE inode = {d}", &[Kind::DirectoryNames]).await;
    let Scene { d, f, .. } = done.scene;
    assert_eq!(done.path(f).await.unwrap(), format!("/lost+found/{d}/f"));
    let root = Identity::root();
    let found = done.namespace.lookup(&root, FileId::ROOT, &name("lost+found")).await.unwrap().entry;
    assert_eq!(found.mode, 0o700);
}

#[tokio::test]
async fn a_wrong_parent_is_put_right() {
    let done = mended("UPDATE inodes SET parent = 1 WHERE id = {e}", &[Kind::Parents]).await;
    assert_eq!(done.path(done.scene.e).await.unwrap(), "/d/e");
}

#[tokio::test]
async fn a_circle_of_directories_is_cut_and_hangs_in_lost_and_found() {
    let done = mended(
        "UPDATE dentries SET parent = {e} WHERE inode = {d}; UPDATE inodes SET parent = {e} WHERE id = {d}",
        &[Kind::Unreachable],
    )
    .await;
    let Scene { d, f, .. } = done.scene;
    assert_eq!(done.path(f).await.unwrap(), format!("/lost+found/{d}/f"));
    assert!(done.log[0].1.contains("removed \"d\" in"), "{:?}", done.log);
}

#[tokio::test]
async fn a_file_without_a_name_goes_to_lost_and_found_with_all_that_hangs_on_it() {
    let done = mended("DELETE FROM dentries WHERE inode = {f}", &[Kind::Nameless]).await;
    let f = done.scene.f;
    assert_eq!(done.path(f).await.unwrap(), format!("/lost+found/{f}"));
    assert_eq!(pools(&done.namespace, f).await, [PoolId(0)]);
    assert_eq!(done.namespace.properties(f).await.unwrap().len(), 1);
    assert_eq!(done.namespace.xattr(&Identity::root(), f, &xattr_name()).await.unwrap(), "blue");
}

#[tokio::test]
async fn a_name_that_is_taken_in_lost_and_found_is_not_taken_twice() {
    let done = mended("DELETE FROM dentries WHERE inode = {f}", &[Kind::Nameless]).await;
    let f = done.scene.f;
    let Repaired { namespace, _engine: engine, .. } = done;
    namespace.close().await;
    engine
        .damage(&namespace, &format!("UPDATE dentries SET inode = {} WHERE inode = {}", done.scene.s.0, f.0));
    let mut repairs = namespace.repairs().unwrap();
    assert_eq!(repairs.mend(Kind::Nameless, &mut Lines::default()).unwrap(), 1);
    repairs.settle(&mut Lines::default()).unwrap();
    drop((repairs, namespace));
    let paths = engine.open().paths(&[f]).await.unwrap();
    assert_eq!(paths[0].as_ref().unwrap()[1], name(&format!("{f}.1")));
}

#[tokio::test]
async fn a_repair_corrects_wrong_facts_and_removes_rows_of_missing_files() {
    let done = mended(
        "UPDATE inodes SET extras = extras | 4 WHERE id = {f}; UPDATE inodes SET extras = 1 WHERE id = {e}; \
         UPDATE inodes SET nlink = 9 WHERE id = {d}; INSERT INTO locations (inode, pool) VALUES (4711, 0); \
         INSERT INTO checksums SELECT 4711, 'md5', name FROM dentries WHERE inode = {f}; \
         INSERT INTO xattrs SELECT 4711, name, 9, name FROM dentries WHERE inode = {f}; \
         INSERT INTO dir_deltas VALUES (4711, 1, 2, 3, 4, 5); UPDATE progress SET files = 1, bytes = 99; \
         INSERT INTO usage VALUES (2, 4711, 1, 2, 3)",
        &[
            Kind::Unnamed,
            Kind::Locations,
            Kind::Attachments,
            Kind::LinkCounts,
            Kind::Deltas,
            Kind::Accounts,
            Kind::Totals,
        ],
    )
    .await;
    assert!(done.made().contains(&"removed: checksums (4711, \"md5\", \"f\")"), "{:?}", done.log);
    assert!(done.made().contains(&"removed: xattrs (4711, \"f\", 9, \"f\")"), "{:?}", done.log);
    let (f, name) = (done.scene.f, xattr_name());
    assert_eq!(done.namespace.xattr(&Identity::root(), f, &name).await.unwrap(), "blue");
    assert!(done.made().contains(&"removed: dir_deltas (4711, 1, 2, 3, 4, 5)"), "{:?}", done.log);
    assert_eq!(done.namespace.properties(done.scene.f).await.unwrap().len(), 1);
    let d = done.namespace.attributes(done.scene.d).await.unwrap();
    assert_eq!(d.nlink, 3);
}

#[tokio::test]
async fn usage_is_counted_anew() {
    let done = mended(
        "DELETE FROM usage; INSERT INTO usage VALUES (0, 4711, 7, 7, 7), (2, 1, 1, 1, 1); \
         UPDATE inodes SET size = 5 WHERE id = {f}",
        &[Kind::Usage],
    )
    .await;
    let Repaired { namespace, _engine: engine, scene, .. } = done;
    namespace.close().await;
    let mut session = namespace.reads.session(Purpose::Look).unwrap();
    let sql = "SELECT scope, id, files, directories, bytes FROM usage WHERE scope != 1 ORDER BY scope, id";
    let rows = session.rows(sql, |row| [0, 1, 2, 3, 4].map(|at| row.number(at))).unwrap();
    let (root, d) = (1, scene.d.0.cast_signed());
    assert_eq!(rows, [[0, 0, 2, 3, 5], [2, root, 2, 2, 5], [2, d, 2, 1, 5]]);
    drop(engine);
}

#[tokio::test]
async fn a_repair_counts_the_usage_journal_and_folds_it() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let scene = make(&namespace).await;
        namespace.close().await;
        let one = api::Counted { files: 1, ..Default::default() };
        let accounts =
            [api::Account { scope: Scope::User, id: 0 }, api::Account { scope: Scope::Tree, id: scene.d.0 }];
        let row = journal::encode(accounts.iter().map(|account| (account, &one)));
        let mut session = namespace.reads.session(Purpose::Change).unwrap();
        session.execute("INSERT INTO usage_journal (groups, deltas) VALUES (1, $1)", &[&row]).unwrap();
        let less = format!(
            "UPDATE usage SET files = files - 1 WHERE (scope = 0 AND id = 0) OR (scope = 2 AND id IN (1, {}))",
            scene.d.0
        );
        assert_eq!(session.run(&less).unwrap(), 3);
        drop(session);
        assert_eq!(namespace.check().unwrap(), []);
        engine.damage(&namespace, "UPDATE usage SET files = 99 WHERE scope = 1");
        let mut repairs = namespace.repairs().unwrap();
        assert_eq!(repairs.mend(Kind::Usage, &mut Lines::default()).unwrap(), 1);
        drop(repairs);
        assert_eq!(namespace.check().unwrap(), []);
        let mut session = namespace.reads.session(Purpose::Look).unwrap();
        assert_eq!(session.number("SELECT count(*) FROM usage_journal").unwrap(), Some(0));
    }
}

#[tokio::test]
async fn a_symbolic_link_without_a_target_is_removed_and_is_in_the_log() {
    let done = mended("DELETE FROM symlinks WHERE inode = {s}", &[Kind::Symlinks]).await;
    assert!(done.log[0].1.contains("\"s\" in"), "{:?}", done.log);
    assert!(done.namespace.attributes(done.scene.s).await.is_err());
}

#[tokio::test]
async fn a_root_that_is_gone_is_made_anew_with_what_was_in_it() {
    let done = mended("DELETE FROM inodes WHERE id = 1", &[Kind::NoRoot]).await;
    assert_eq!(done.path(done.scene.f).await.unwrap(), "/d/f");
}

fn stray(file: u64) -> Stray {
    Stray {
        file: FileId(file),
        pool: PoolId(3),
        size: 77,
        space_used: 4096,
        epoch: Epoch(5),
        modified: None,
        birth: None,
    }
}

#[tokio::test]
async fn a_replica_of_no_file_is_adopted_under_its_number_and_numbers_go_on_behind_it() {
    let done = repaired("", |repairs, log, _| {
        assert_eq!(repairs.adopt(&[stray(1 << 40)], log).unwrap(), 1);
    })
    .await;
    let file = FileId(1 << 40);
    assert_eq!(done.path(file).await.unwrap(), format!("/lost+found/pool-3/{file}"));
    let attributes = done.namespace.attributes(file).await.unwrap();
    assert_eq!((attributes.size, attributes.epoch, attributes.mode), (77, Epoch(5), 0o600));
    assert_eq!(pools(&done.namespace, file).await, [PoolId(3)]);
    let new = done.namespace.create(&Identity::root(), FileId::ROOT, &name("new"), &regular()).await.unwrap();
    assert!(new.attributes.file > file);
}

#[tokio::test]
async fn locations_are_added_and_dropped_and_sizes_cut() {
    let done = repaired("UPDATE inodes SET size = 100 WHERE id = {f}", |repairs, log, scene| {
        let there = Stray { file: scene.f, ..stray(0) };
        repairs.place(&[there], log).unwrap();
        repairs.drop_locations(&[(scene.f, PoolId(0))], log).unwrap();
        repairs.shorten(&[(scene.f, 77)], log).unwrap();
    })
    .await;
    let f = done.namespace.attributes(done.scene.f).await.unwrap();
    assert_eq!((f.size, f.epoch), (77, Epoch(5)));
    assert_eq!(pools(&done.namespace, done.scene.f).await, [PoolId(3)]);
}

#[tokio::test]
async fn a_file_whose_replica_goes_is_lost_and_empty_once_its_length_is_given_up() {
    for (size, found) in [(0, Locality::Empty), (77, Locality::Lost)] {
        let done = repaired("UPDATE inodes SET size = 100 WHERE id = {f}", |repairs, log, scene| {
            repairs.drop_locations(&[(scene.f, PoolId(0))], log).unwrap();
            repairs.shorten(&[(scene.f, size)], log).unwrap();
        })
        .await;
        assert_eq!(done.namespace.locality(done.scene.f).await.unwrap(), found);
    }
}

#[tokio::test]
async fn the_placement_of_a_file_is_noted_as_its_rows_say() {
    // A row that was lost; a file that says that it is empty, and has a replica; a number that is not known.
    for (damage, found) in [
        (
            "UPDATE inodes SET size = 9 WHERE id = {f}; DELETE FROM locations WHERE inode = {f}",
            Locality::Lost,
        ),
        ("DELETE FROM locations WHERE inode = {f}", Locality::Empty),
        (
            "UPDATE inodes SET extras = extras | 256 WHERE id = {f}",
            placed(&[(PoolId(0), Timestamp::from_seconds(1_000_000))]),
        ),
        (
            "UPDATE inodes SET extras = extras | 1792 WHERE id = {f}",
            placed(&[(PoolId(0), Timestamp::from_seconds(1_000_000))]),
        ),
    ] {
        let done = mended(damage, &[Kind::Placements]).await;
        assert_eq!(done.made()[0], "noted as it is");
        assert_eq!(done.namespace.locality(done.scene.f).await.unwrap(), found, "{damage}");
    }
}

#[tokio::test]
async fn a_replica_in_an_unknown_state_is_good_if_it_is_the_only_one_and_else_stale() {
    let done = mended("UPDATE locations SET state = 9", &[Kind::Locations]).await;
    assert_eq!(done.made(), ["it is good"]);
    let damage = "INSERT INTO locations VALUES ({f}, 1, 0, 5)";
    let done = mended(damage, &[Kind::Locations]).await;
    assert_eq!(done.made(), ["it is stale"]);
    let locality = done.namespace.locality(done.scene.f).await.unwrap();
    assert_eq!(locality.good_pools().collect::<Vec<_>>(), [PoolId(0)]);
    assert_eq!(locality.replicas()[1].state, ReplicaState::Stale);
}

/// As a restore leaves it, which keeps the upload and not where it lies.
#[tokio::test]
async fn an_upload_without_a_name_gets_one_with_its_replica_and_is_not_reaped() {
    let damage = "UPDATE inodes SET nlink = 0, extras = 4 + (extras & 67) + 256, size = 0 WHERE id = {f}; \
        DELETE FROM dentries WHERE inode = {f}; DELETE FROM locations WHERE inode = {f}";
    let done = repaired(damage, |repairs, log, scene| {
        let there = Stray { file: scene.f, ..stray(0) };
        assert_eq!(repairs.place(&[there, Stray { pool: PoolId(4), ..there }], log).unwrap(), 2);
    })
    .await;
    let f = done.scene.f;
    assert_eq!(done.path(f).await.unwrap(), format!("/lost+found/pool-3/{f}"));
    let attributes = done.namespace.attributes(f).await.unwrap();
    assert_eq!((attributes.nlink, attributes.size, attributes.space_used), (1, 77, 4096));
    assert_eq!(pools(&done.namespace, f).await, [PoolId(3), PoolId(4)]);
}

#[tokio::test]
async fn a_file_that_is_cut_has_no_checksums_and_uses_no_more_than_it_has() {
    let damage = "UPDATE inodes SET size = 100000, space_used = 102400, extras = extras | 1 WHERE id = {f}; \
        INSERT INTO checksums SELECT {f}, 'md5', name FROM dentries WHERE inode = {f}";
    let done = repaired(damage, |repairs, log, scene| {
        repairs.shorten(&[(scene.f, 5000)], log).unwrap();
    })
    .await;
    let attributes = done.namespace.attributes(done.scene.f).await.unwrap();
    assert_eq!((attributes.size, attributes.space_used), (5000, 8192));
    assert_eq!(done.namespace.properties(done.scene.f).await.unwrap().len(), 1);
}

#[tokio::test]
async fn clients_forget_what_they_cached_of_a_repaired_namespace() {
    let engine = Engine::all().swap_remove(0);
    let namespace = engine.open();
    let scene = make(&namespace).await;
    let before = namespace.attributes(scene.d).await.unwrap().change;
    namespace.close().await;
    engine.damage(&namespace, "UPDATE inodes SET nlink = 9");
    let mut repairs = namespace.repairs().unwrap();
    repairs.mend(Kind::LinkCounts, &mut Lines::default()).unwrap();
    drop((repairs, namespace));
    assert!(engine.open().attributes(scene.d).await.unwrap().change > before);
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_the_repair() {
    struct Full;
    impl RepairLog for Full {
        fn note(&mut self, _: &str, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn secure(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }
    for engine in Engine::all() {
        let namespace = engine.open();
        make(&namespace).await;
        namespace.close().await;
        engine.damage(&namespace, "UPDATE inodes SET nlink = 9 WHERE kind = 0");
        let mut repairs = namespace.repairs().unwrap();
        assert!(matches!(repairs.mend(Kind::LinkCounts, &mut Full), Err(RepairError::Log(_))));
        drop(repairs);
        assert_eq!(namespace.check().unwrap().len(), 1);
    }
}

fn stray_of(file: FileId, size: u64) -> Stray {
    Stray { file, size, pool: PoolId(0), modified: Some(types::Timestamp::EPOCH), ..stray(0) }
}

/// Descriptions as pools would have them, and one replica without a description.
fn known(namespace: &SqlNamespace) -> Vec<FileFacts> {
    let mut describer = namespace.describer().unwrap();
    let (mut known, mut after) = (Vec::new(), FileId(0));
    loop {
        // So small that files of several names lie at the edges.
        let page = describer.page(after, 2).unwrap();
        assert_eq!(page.after, after);
        for described in page.files {
            let replicas = described.replicas.iter().map(|_| stray_of(described.file, 9)).collect();
            known.push(FileFacts { described: Some(described), replicas, ..FileFacts::default() });
        }
        after = page.through;
        if page.is_last {
            break;
        }
    }
    known.push(FileFacts { replicas: vec![stray_of(FileId(1 << 40), 77)], ..FileFacts::default() });
    known
}

#[tokio::test]
async fn a_namespace_is_built_anew_from_what_was_told_of_it() {
    for engine in Engine::all() {
        let (root, namespace) = (Identity::root(), engine.open());
        let Scene { d, e, f, s } = make(&namespace).await;
        namespace.link(&root, f, FileId::ROOT, &name("second")).await.unwrap();
        let before = namespace.attributes(f).await.unwrap();
        let mut known = known(&namespace);
        namespace.close().await;
        let stale =
            ReplicaRef { pool: PoolId(4), state: ReplicaState::Stale, since: Timestamp::from_seconds(77) };
        let told_of_f = known.iter_mut().find_map(|known| {
            known.described.as_mut().filter(|described| described.file == f)?.replicas.push(stale);
            Some(&mut known.replicas)
        });
        // A longer one, which is not what there is of the file.
        told_of_f.unwrap().push(Stray { pool: stale.pool, ..stray_of(f, 99) });

        let engine = Engine::all().into_iter().find(|other| other.is_like(&engine)).unwrap();
        let namespace = engine.open();
        namespace.close().await;
        let mut repairs = namespace.repairs().unwrap();
        let (mut load, mut log) = (Load::default(), Lines::default());
        for some in known.chunks(3) {
            repairs.load(&mut load, some).unwrap();
        }
        repairs.finish_load(&load, &mut log).unwrap();
        for kind in Kind::ALL {
            assert_eq!(repairs.find(kind).unwrap(), [], "{kind:?}");
        }
        drop((repairs, namespace));

        let namespace = engine.open();
        let paths = namespace.paths(&[e, s]).await.unwrap();
        assert_eq!(paths, ["e", "s"].map(|last| Some(vec![name("d"), name(last)])));
        for (dir, text) in [(d, "f"), (FileId::ROOT, "second")] {
            assert_eq!(namespace.lookup(&root, dir, &name(text)).await.unwrap().entry.file, f);
        }
        let after = namespace.attributes(f).await.unwrap();
        assert_eq!((after.nlink, after.size, after.mode), (2, 9, before.mode));
        assert!(after.change > before.change && after.epoch == Epoch(5));
        let good = ReplicaRef::good(PoolId(0), before.birth);
        assert_eq!(namespace.locality(f).await.unwrap().replicas(), [good, stale]);
        assert_eq!(namespace.read_link(s).await.unwrap(), SymlinkTarget::new(b"f").unwrap());
        let unknown = namespace.paths(&[FileId(1 << 40)]).await.unwrap();
        assert_eq!(unknown[0].as_ref().unwrap()[0], name("lost+found"));
        let new = namespace.create(&root, d, &name("new"), &regular()).await.unwrap().attributes;
        assert!(new.file.0 > 1 << 40, "no number is given twice");
    }
}

#[tokio::test]
async fn a_rebuild_reconciles_descriptions_from_different_times() {
    let described = |file: u64, kind, dir: u64, text: &str| api::Description {
        file: FileId(file),
        kind,
        mode: 0o700,
        uid: 1,
        gid: 2,
        size: 0,
        mtime: types::Timestamp::EPOCH,
        change: 5 << 32,
        epoch: Epoch(0),
        names: vec![(FileId(dir), name(text))],
        target: None,
        replicas: Vec::new(),
    };
    let (directory, file) = (types::FileKind::Directory, types::FileKind::Regular);
    let told = [
        described(10, directory, 11, "a"),
        described(11, directory, 10, "b"),
        described(12, file, 1, "same"),
        described(13, file, 1, "same"),
        described(14, file, 99, "in a directory that nobody knows"),
    ];
    for engine in Engine::all() {
        let namespace = engine.open();
        namespace.close().await;
        let mut repairs = namespace.repairs().unwrap();
        let known: Vec<FileFacts> = told
            .iter()
            .map(|told| FileFacts { described: Some(told.clone()), ..FileFacts::default() })
            .collect();
        let mut load = Load::default();
        repairs.load(&mut load, &known).unwrap();
        repairs.finish_load(&load, &mut Lines::default()).unwrap();
        drop(repairs);
        assert_eq!(namespace.check().unwrap(), []);
        drop(namespace);
        let namespace = engine.open();
        let path = async |file: u64| {
            let paths = namespace.paths(&[FileId(file)]).await.unwrap();
            let names = paths.into_iter().next().flatten().unwrap();
            names.iter().map(|name| format!("/{}", name.as_bytes().escape_ascii())).collect::<String>()
        };
        assert_eq!(path(10).await, "/lost+found/000000000000000a");
        assert_eq!(path(11).await, "/lost+found/000000000000000a/b");
        assert_eq!(
            (path(12).await.as_str(), path(13).await.as_str()),
            ("/lost+found/000000000000000c", "/same")
        );
        assert_eq!(path(14).await, "/lost+found/000000000000000e");
    }
}

/// A database that was set back knows of fewer than the pools do.
#[tokio::test]
async fn a_repair_gives_no_number_that_was_noted_as_given_beside_the_database() {
    for engine in Engine::all() {
        let namespace = engine.open();
        namespace.close().await;
        engine.damage(
            &namespace,
            "INSERT INTO meta VALUES ('restored', 1) ON CONFLICT (key) DO UPDATE SET value = 1",
        );
        drop(namespace);
        let mark = Mark { files: 1 << 20, ..Mark::default() };
        let noted = vec![Noted { by: "pool-0".to_owned(), mark }];
        let namespace = engine.open_after(Arc::new(ManualClock::new(1_000_000)), noted);
        namespace.close().await;
        let mut repairs = namespace.repairs().unwrap();
        assert!(repairs.new_files(2).unwrap().0 >= 1 << 20);
        repairs.adopt(&[stray(9)], &mut Lines::default()).unwrap();
        drop(repairs);
        drop(namespace);
        let found =
            engine.open().lookup(&Identity::root(), FileId::ROOT, &name("lost+found")).await.unwrap().entry;
        assert!(found.file.0 >= (1 << 20) + 2, "{}", found.file);
    }
}
