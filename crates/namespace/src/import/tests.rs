//! Whole listings into both engines, read back through the namespace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::sync::Arc;

use api::{Cookie, ExpectedFile, Locations, Namespace};
use testkit::clock::ManualClock;
use testkit::postgres::{Cluster, unless_missing};
use types::{FileId, FileKind, Identity};

use super::*;
use crate::config::{Config, Database, Server, Sync};
use crate::service::SqlNamespace;

fn options() -> Options {
    Options {
        under: Vec::new(),
        now: Timestamp::new(1000, 0).unwrap(),
        first_file: 0,
        instance: Some([7; 16]),
    }
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn import(place: &NamespaceLocation, format: Format, listing: &[u8]) -> Result<Made, ImportError> {
    let mut import = Import::begin(place, &options())?;
    import.add_all(&mut *read(format, file_of(listing)), &mut |_| {})?;
    import.finish()
}

/// Type, mode, owner, links and size of everything, by its path.
type Seen = BTreeMap<String, (FileKind, u32, u32, u32, u64)>;

async fn seen(namespace: &SqlNamespace) -> Seen {
    let (root, mut seen, mut ahead) = (Identity::root(), Seen::new(), vec![(FileId::ROOT, String::new())]);
    let mut note = |path: &str, of: &types::Attributes| {
        seen.insert(path.to_owned(), (of.kind, of.mode, of.uid, of.nlink, of.size));
    };
    note("", &namespace.attributes(FileId::ROOT).await.unwrap());
    while let Some((dir, above)) = ahead.pop() {
        let page = namespace.list(&root, dir, Cookie::START, 4096).await.unwrap();
        assert!(page.is_last);
        for entry in page.entries {
            let path = format!("{above}/{}", entry.name);
            note(&path, &entry.attributes);
            if entry.attributes.kind.is_directory() {
                ahead.push((entry.attributes.file, path));
            }
        }
    }
    seen
}

fn open(database: Database) -> SqlNamespace {
    let config = Config {
        database,
        clock: Arc::new(ManualClock::new(1_000_000)),
        root_owner: (0, 0),
        sync: Sync::Always,
        cache_bytes: 1 << 20,
        queue_len_max: 8,
        group_len_max: 4,
    };
    SqlNamespace::open(config).unwrap()
}

/// Opened as a head does, changed a little, and checked.
fn look(database: Database) -> Seen {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let namespace = open(database);
        let seen = seen(&namespace).await;
        let (root, name) = (Identity::root(), crate::scratch::name("made later"));
        let made = namespace.create(&root, FileId::ROOT, &name, &crate::scratch::regular()).await.unwrap();
        namespace.unlink(&root, FileId::ROOT, &name, ExpectedFile::Any).await.unwrap();
        namespace.forget(&[made.attributes.file]).await.unwrap();
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
        seen
    })
}

const FIND: &[u8] = b"d 750 1 2 3 1:1 4096 8 5.5 6.5 7.5 4.5 \0\0\
    d 755 4000000000 2 2 1:2 4096 8 5.0 5.0 5.0  sub\0\0\
    f 4711 3 4 2 1:3 70000 144 5.0 5.0 5.0  sub/with two names\0\0\
    f 644 3 4 1 1:4 5 8 5.0 5.0 5.0  sub/plain\0\0\
    f 4711 3 4 2 1:3 70000 144 5.0 5.0 5.0  also\0\0\
    l 777 3 4 1 1:5 1 0 5.0 5.0 5.0  to\0sub/plain\0\
    p 600 3 4 1 1:6 0 0 5.0 5.0 5.0  pipe\0\0";

fn expected() -> Seen {
    use FileKind::{Directory, Fifo, Regular, Symlink};
    [
        ("", (Directory, 0o750, 1, 3, 0)),
        ("/sub", (Directory, 0o755, 4_000_000_000, 2, 0)),
        ("/sub/with two names", (Regular, 0o4711, 3, 2, 70_000)),
        ("/also", (Regular, 0o4711, 3, 2, 70_000)),
        ("/sub/plain", (Regular, 0o644, 3, 1, 5)),
        ("/to", (Symlink, 0o777, 3, 1, 9)),
        ("/pipe", (Fifo, 0o600, 3, 1, 0)),
    ]
    .map(|(path, seen)| (path.to_owned(), seen))
    .into()
}

#[test]
fn a_listing_becomes_a_sound_namespace_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let made = import(&NamespaceLocation::Sqlite(dir.path().to_owned()), Format::Find, FIND).unwrap();
    assert_eq!(made, Made { directories: 2, files: 4, names: 6, bytes: 70_005, untold: 0 });
    assert_eq!(look(Database::Sqlite(dir.path().to_owned())), expected());
}

#[test]
fn a_listing_becomes_a_sound_namespace_in_postgresql() {
    let Some(cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    import(&NamespaceLocation::Postgres(url.clone()), Format::Find, FIND).unwrap();
    let server = Server { url, instance: [7; 16], may_be_new: false };
    assert_eq!(look(Database::Postgres(server)), expected());
}

#[test]
fn an_mtree_of_the_same_tree_becomes_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let listing = b"#mtree\n/set type=file uid=3 gid=4 time=5.0\n\
        . type=dir mode=0750 uid=1\n sub type=dir mode=0755 uid=4000000000\n\
        with\\040two\\040names mode=4711 size=70000 nlink=2 inode=3\n plain mode=0644 size=5\n..\n\
        also mode=4711 size=70000 nlink=2 inode=3\n to type=link mode=0777 link=sub/plain\n pipe type=fifo mode=0600\n";
    import(&NamespaceLocation::Sqlite(dir.path().to_owned()), Format::Mtree, listing).unwrap();
    assert_eq!(look(Database::Sqlite(dir.path().to_owned())), expected());
}

#[test]
fn hard_links_of_a_tar_archive_are_further_names() {
    let dir = tempfile::tempdir().unwrap();
    let archive = tar::archive_of(&[("./a", b'0', ""), ("./d/b", b'1', "./a"), ("c", b'1', "d/b")]);
    import(&NamespaceLocation::Sqlite(dir.path().to_owned()), Format::Tar, &archive).unwrap();
    let seen = look(Database::Sqlite(dir.path().to_owned()));
    for path in ["/a", "/d/b", "/c"] {
        assert_eq!(seen[path].3, 3, "{seen:?}");
    }
}

#[test]
fn a_bad_listing_leaves_nothing_and_the_place_may_be_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let place = NamespaceLocation::Sqlite(dir.path().to_owned());
    let bad = [FIND, b"f 6x4 0"].concat();
    let error = import(&place, Format::Find, &bad).unwrap_err().to_string();
    assert!(error.starts_with("entry 7 of the listing: it does not end with NUL"), "{error}");
    import(&place, Format::Find, FIND).unwrap();
    let error = import(&place, Format::Find, FIND).unwrap_err();
    assert!(matches!(error, ImportError::Bulk(BulkError::NotEmpty { .. })), "{error}");
    assert_eq!(look(Database::Sqlite(dir.path().to_owned())), expected());
}

/// The database tells it long after the entry was read.
#[test]
fn a_name_that_is_there_twice_is_told_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let place = NamespaceLocation::Sqlite(dir.path().to_owned());
    let line = |path: &str| format!("f 644 0 0 1 1:4 5 8 5.0 5.0 5.0  {path}\0\0");
    let near = line("a/b/twice") + &line("a/b/twice");
    let many: String = (0..300_000).map(|number| line(&format!("a/b/{number}"))).collect();
    let far = line("a/b/twice") + &many + &line("a/b/twice");
    for listing in [near, far] {
        let error = import(&place, Format::Find, listing.as_bytes()).unwrap_err().to_string();
        assert!(error.ends_with("\"a/b/twice\" is there twice, or a directory and not one"), "{error}");
    }
}
