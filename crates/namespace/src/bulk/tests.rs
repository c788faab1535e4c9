//! On both engines, where there is PostgreSQL: first the list of tables against their schemas.

mod backups;
mod copies;
mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{
    Acls, ClientRecord, Cookie, CreateKind, CreateSpec, Locations, Namespace, Properties, Property,
    PropertyChange, RecoveryRecords, ReplicaRef, ReplicaState, SetAttributes, SetXattr, Unnamed, Uploads,
    XATTR_BYTES_MAX, Xattrs,
};
use bytes::Bytes;
use rusqlite::Connection;
use tempfile::TempDir;
use testkit::postgres::Cluster;
use types::{
    Access, Ace, AceWho, Acl, Checksum, ChecksumKind, FileId, FileKind, Identity, PoolId, SymlinkTarget,
    Timestamp, XattrName,
};

use super::tables::{APART, TABLES};
use super::*;
use crate::config::{Config, Database, Server};
use crate::inode::{Instance, new_inode};
use crate::locality::{Placement, state_number};
use crate::scratch::{config, name, pools, regular};
use crate::service::SqlNamespace;
use crate::session::Purpose;
use crate::store::{NumberEnds, Totals};

/// Tables that a database has and the list does not, and the other way round, with their columns.
fn differences(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let names: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut different = Vec::new();
    for name in names.iter().filter(|name| !APART.contains(&name.as_str())) {
        let mut statement =
            connection.prepare(&format!("SELECT name, pk FROM pragma_table_info('{name}')"))?;
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize)))?;
        let found = found.collect::<rusqlite::Result<Vec<(String, usize)>>>()?;
        different.extend(compare(name, &found));
    }
    let missing = TABLES.iter().filter(|table| !names.iter().any(|name| name == table.name));
    different.extend(missing.map(|table| format!("{} is in no schema", table.name)));
    Ok(different)
}

/// A table's columns with their places in the primary key, from one, or zero.
fn compare(name: &str, found: &[(String, usize)]) -> Vec<String> {
    let Some(table) = TABLES.into_iter().find(|table| table.name == name) else {
        return vec![format!("{name} is not in the list")];
    };
    let mut known: Vec<(String, usize)> = (table.columns.iter().enumerate())
        .map(|(at, column)| (column.name.to_owned(), if at < table.key_len { at + 1 } else { 0 }))
        .collect();
    let mut found = found.to_vec();
    known.sort();
    found.sort();
    if known == found { Vec::new() } else { vec![format!("{name}: {known:?} and not {found:?}")] }
}

#[test]
fn every_table_of_sqlite_is_in_the_list() {
    let mut connection = Connection::open_in_memory().unwrap();
    crate::sqlite::schema::migrate(&mut connection, 0).unwrap();
    assert_eq!(differences(&connection).unwrap(), Vec::<String>::new());
    connection.execute_batch("CREATE TABLE others (inode INTEGER PRIMARY KEY)").unwrap();
    assert_eq!(differences(&connection).unwrap(), ["others is not in the list"]);
}

#[test]
fn every_table_of_postgres_is_in_the_list() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    drop(open_postgres(&url));
    let sql = "SELECT c.table_name || ' ' || c.column_name || ' ' || coalesce(k.ordinal_position, 0) \
        FROM information_schema.columns c LEFT JOIN information_schema.key_column_usage k \
        ON k.table_schema = c.table_schema AND k.table_name = c.table_name AND k.column_name = c.column_name \
        WHERE c.table_schema = 'forebay'";
    let mut tables: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for line in cluster.query(&url, sql).unwrap().lines() {
        let [table, column, at] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        tables.entry(table.to_owned()).or_default().push((column.to_owned(), at.parse().unwrap()));
    }
    let different = tables
        .iter()
        .filter(|(name, _)| !APART.contains(&name.as_str()))
        .flat_map(|(name, found)| compare(name, found));
    assert_eq!(different.collect::<Vec<_>>(), Vec::<String>::new());
    assert!(TABLES.iter().all(|table| tables.contains_key(table.name)));
}

const INSTANCE: [u8; 16] = [7; 16];

fn open_postgres(url: &str) -> Arc<SqlNamespace> {
    let dir = tempfile::tempdir().unwrap();
    let server = Server { url: url.to_owned(), instance: INSTANCE, may_be_new: true };
    Arc::new(SqlNamespace::open(Config { database: Database::Postgres(server), ..config(&dir) }).unwrap())
}

fn open_at(place: &NamespaceLocation) -> Arc<SqlNamespace> {
    let dir = tempfile::tempdir().unwrap();
    match place {
        NamespaceLocation::Sqlite(path) => {
            let config = Config { database: Database::Sqlite(path.clone()), ..config(&dir) };
            Arc::new(SqlNamespace::open(config).unwrap())
        }
        NamespaceLocation::Postgres(url) => open_postgres(url),
        NamespaceLocation::File(_) => panic!("a file is not opened"),
    }
}

/// Empty places of every kind; the directory keeps SQLite's.
fn places() -> (TempDir, Vec<NamespaceLocation>) {
    let dir = tempfile::tempdir().unwrap();
    let mut places = vec![NamespaceLocation::Sqlite(dir.path().join("namespace"))];
    if let Some(cluster) = Cluster::shared() {
        places.push(NamespaceLocation::Postgres(cluster.create_database().unwrap()));
    }
    (dir, places)
}

const TOP: FileId = FileId::ROOT;
const FILES: usize = 60;

/// One of everything. Says the highest file id and the root's change attribute.
async fn fill(namespace: &SqlNamespace) -> (FileId, u64) {
    let root = Identity::root();
    let folder = CreateSpec { kind: CreateKind::Directory, ..regular() };
    let dir = namespace.create(&root, TOP, &name("dir"), &folder).await.unwrap().attributes.file;
    let placed = CreateSpec { location: Some(PoolId(1)), ..regular() };
    let mut last = dir;
    for at in 0..FILES {
        let text = name(&format!("file {at} \u{e9} \\ '"));
        last = namespace.create(&root, dir, &text, &placed).await.unwrap().attributes.file;
    }
    namespace.link(&root, last, TOP, &name("second name")).await.unwrap();
    let link = CreateKind::Symlink(SymlinkTarget::new(b"../else\xffwhere").unwrap());
    namespace.create(&root, TOP, &name("link"), &CreateSpec { kind: link, ..regular() }).await.unwrap();
    let set = PropertyChange::Set(Property { name: "{DAV:}\u{e4}".to_owned(), value: "red".into() });
    namespace.set_properties(&root, last, &[set]).await.unwrap();
    for (text, value) in xattrs() {
        namespace.set_xattr(&root, last, &text, &value, SetXattr::Create).await.unwrap();
    }
    let given = SetAttributes { acl: Some(acl()), ..SetAttributes::default() };
    let change = namespace.set_attributes(&root, last, &given).await.unwrap().change;
    let sum = Checksum::new(ChecksumKind::Adler32, &[1, 2, 3, 4]).unwrap();
    namespace.record_checksums(last, change, &[sum]).await.unwrap();
    namespace.put(&ClientRecord { owner: b"host\0".to_vec(), reclaim_complete: true }).await.unwrap();
    let unnamed = Unnamed { permissions: 0o600, location: PoolId(2) };
    let upload = namespace.create_unnamed(&root, TOP, &unnamed).await.unwrap().file;
    (upload.max(last), namespace.attributes(TOP).await.unwrap().change)
}

fn acl() -> Acl {
    Acl::new(vec![Ace::deny(AceWho::User(7), Access::READ), Ace::allow(AceWho::Everyone, Access::READ)])
        .unwrap()
}

/// In the order in which they are set.
fn xattrs() -> [(XattrName, Bytes); 2] {
    [(&b"\xff\x01"[..], Bytes::new()), (b"large", vec![7; XATTR_BYTES_MAX].into())]
        .map(|(name, value)| (XattrName::new(name).unwrap(), value))
}

async fn require_xattrs_and_acl(namespace: &SqlNamespace, file: FileId) {
    assert_eq!(namespace.acl(&namespace.attributes(file).await.unwrap()).await.unwrap(), Some(acl()));
    let root = Identity::root();
    let listed = namespace.xattrs(&root, file, Cookie::START).await.unwrap();
    let names: Vec<XattrName> = listed.into_iter().map(|listed| listed.name).collect();
    assert_eq!(names, xattrs().map(|(name, _)| name));
    for (name, value) in xattrs() {
        assert!(namespace.xattr(&root, file, &name).await.unwrap() == value, "{name:?}");
    }
}

/// In a thread that drives nothing.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Each file has a second replica, which is stale.
async fn filled(place: &NamespaceLocation) -> (FileId, u64) {
    let namespace = open_at(place);
    let known = fill(&namespace).await;
    namespace.close().await;
    let mut session = namespace.reads.session(Purpose::Change).unwrap();
    let (pool, state, since) = (STALE.pool.0, state_number(STALE.state), STALE.since.seconds);
    session
        .run(&format!("INSERT INTO locations SELECT inode, {pool}, {state}, {since} FROM locations"))
        .unwrap();
    known
}

const STALE: ReplicaRef =
    ReplicaRef { pool: PoolId(9), state: ReplicaState::Stale, since: Timestamp::from_seconds(77) };

/// In each state once.
fn replica(at: u64) -> ReplicaRef {
    let state = ReplicaState::ALL[at as usize % ReplicaState::ALL.len()];
    ReplicaRef { pool: PoolId(0), state, since: Timestamp::from_seconds(at as i64) }
}

fn order(begin: Begin) -> Order {
    Order { begin, instance: Some(INSTANCE) }
}

fn copy_quietly(from: &NamespaceLocation, to: &NamespaceLocation, begin: Begin) -> BulkResult<Copied> {
    copy(from, to, &order(begin), &mut |_| {})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_from_the_bulk_writer_make_a_namespace() {
    let (_scratch, places) = places();
    for place in places {
        let to = place.clone();
        aside(move || {
            let now = Timestamp::new(5, 0).unwrap();
            let first = Instance { start: 1 };
            let mut bulk = Bulk::begin(&to).unwrap();
            let mut root = new_inode(TOP, FileKind::Directory, now, first);
            root.attributes.mode = 0o755;
            bulk.inode(&root).unwrap();
            for at in 0..5000 {
                let mut inode = new_inode(FileId(3 + at), FileKind::Regular, now, first);
                (inode.parent, inode.attributes.size) = (TOP, 2);
                inode.extras.placement = Placement::Replicas;
                bulk.inode(&inode).unwrap();
                bulk.name(TOP, &name(&format!("{at}")), 3 + at, inode.id()).unwrap();
                bulk.location(inode.id(), &replica(at)).unwrap();
            }
            let end = End {
                ends: NumberEnds { files: 5003, cookies: 5003 },
                totals: Totals { files: 5001, bytes: 10_000 },
                instance: None,
            };
            let problems = bulk.finish(&end).unwrap();
            assert!(!problems.iter().any(|problem| problem.kind() == crate::check::Kind::Placements));
        })
        .await;
        let namespace = open_at(&place);
        let found = namespace.lookup(&Identity::root(), TOP, &name("4999")).await.unwrap().entry;
        assert_eq!((found.file, found.size), (FileId(5002), 2));
        let locality = namespace.locality(found.file).await.unwrap();
        assert_eq!(locality.replicas(), [replica(4999)]);
        let made = namespace.create(&Identity::root(), TOP, &name("new"), &regular()).await.unwrap();
        assert_eq!(made.attributes.file, FileId(5003));
    }
}
