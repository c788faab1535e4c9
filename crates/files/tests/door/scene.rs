//! A line door on a loopback port, over a namespace in SQLite and a pool in memory, and a second door whose clients are in
//! its way.

use std::sync::Arc;
use std::time::Duration;

use api::{Caller, CreateKind, CreateMode, CreateSpec, Locations, Namespace, Pool, SetAttributes};
use file_state::Holder;
use forebay_files::{Files, FilesServices, OpenFile, Recall, Recaller, Share};
use namespace::{Config, Database, SqlNamespace, Sync};
use parking_lot::Mutex;
use testkit::clock::ManualClock;
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use types::{Attributes, FileId, Identity, Name, PoolId};

use crate::line_door::LineDoor;

/// For what comes, and for what must not be waited for.
pub const LONG: Duration = Duration::from_secs(60);
pub const SHORT: Duration = Duration::from_millis(20);

pub struct Scene {
    pub files: Arc<Files>,
    pub namespace: Arc<SqlNamespace>,
    pub other: Arc<OtherDoor>,
    pub holder: Holder,
    address: std::net::SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
    dir: FileId,
    _database: tempfile::TempDir,
}

impl Scene {
    /// With a directory `/dir` that everybody may write.
    pub async fn set(patience: Duration) -> Scene {
        let database = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_000));
        let config = Config {
            database: Database::Sqlite(database.path().to_owned()),
            clock: clock.clone(),
            root_owner: (0, 0),
            sync: Sync::Interval(LONG),
            cache_bytes: 1 << 20,
            queue_len_max: 100,
            group_len_max: 100,
        };
        let namespace = Arc::new(SqlNamespace::open(config).unwrap());
        let pool = Arc::new(MemoryPool::new(PoolId(3))) as Arc<dyn Pool>;
        let files = Arc::new(Files::new(FilesServices {
            namespace: namespace.clone(),
            acls: namespace.clone(),
            locations: namespace.clone(),
            properties: namespace.clone(),
            xattrs: namespace.clone(),
            quotas: namespace.clone(),
            uploads: namespace.clone(),
            pools: Arc::new(MemoryPools::of([pool])),
            clock,
            recall_time: LONG,
        }));
        let number = files.register("other").unwrap();
        let other = Arc::new(OtherDoor::default());
        files.recall_through(number, other.clone());
        let caller = Caller { identity: Identity::new(10, 100, &[]), ..Caller::anonymous() };
        let door = LineDoor::register(files.clone(), namespace.clone(), caller, patience).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(Arc::new(door).serve(listener));
        let holder = Holder::of(number, 1);
        let dir = make_directory(&namespace).await;
        Scene { files, namespace, other, holder, address, serving, dir, _database: database }
    }

    pub async fn connect(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(self.address).await.unwrap()))
    }

    pub async fn found(&self, text: &str) -> Option<Attributes> {
        let name = Name::new(text.as_bytes()).unwrap();
        self.namespace.lookup(&Identity::root(), self.dir, &name).await.ok().map(|found| found.entry)
    }

    /// A client of the other door opens the file.
    pub async fn open(&self, text: &str, share: Share) -> OpenFile {
        let file = self.found(text).await.unwrap().file;
        self.files.open(file, self.holder, share).await.unwrap().0
    }

    /// A client of the other door gets a delegation of the file.
    pub async fn delegate(&self, text: &str) -> FileId {
        let file = self.found(text).await.unwrap().file;
        self.files.delegate_reading(file, self.holder).unwrap();
        file
    }

    /// Frees files without a name that nobody holds, as the reaper does. Returns how many it has found.
    pub async fn reap(&self) -> (usize, usize) {
        let left = self.namespace.orphans(FileId(0), 100).await.unwrap();
        assert!(self.files.births_settled(LONG).await);
        let unused = self.files.begin_freeing(left.iter().map(|left| left.attributes.file));
        let unused: Vec<FileId> = unused.into_iter().collect();
        self.namespace.forget(&unused).await.unwrap();
        (left.len(), unused.len())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn make_directory(namespace: &SqlNamespace) -> FileId {
    let spec = CreateSpec {
        kind: CreateKind::Directory,
        mode: CreateMode::Guarded,
        permissions: 0o777,
        umask: None,
        set: SetAttributes::default(),
        location: None,
    };
    let name = Name::new(b"dir").unwrap();
    let made = namespace.create(&Identity::root(), FileId::ROOT, &name, &spec).await;
    made.unwrap().attributes.file
}

/// Its clients give back when the test does it for them.
#[derive(Default)]
pub struct OtherDoor(Mutex<Vec<Recall>>);

impl OtherDoor {
    pub fn recalled(&self) -> Vec<FileId> {
        self.0.lock().iter().map(|recall| recall.file).collect()
    }

    pub async fn until_asked(&self) {
        while self.recalled().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

impl Recaller for OtherDoor {
    fn recall(&self, recalls: &[Recall]) {
        self.0.lock().extend(recalls);
    }
}

/// A client of the line door.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    pub async fn line(&mut self) -> String {
        let mut line = String::new();
        tokio::time::timeout(LONG, self.0.read_line(&mut line)).await.unwrap().unwrap();
        line.trim_end().to_owned()
    }

    pub async fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\n")).await;
        self.line().await
    }

    pub async fn put(&mut self, path: &str, bytes: &[u8]) -> String {
        self.send(format!("PUT {path} {}\n", bytes.len())).await;
        self.send(bytes).await;
        self.line().await
    }

    /// The bytes, or the word in their place.
    pub async fn get(&mut self, path: &str) -> Result<Vec<u8>, String> {
        let answer = self.ask(&format!("GET {path}")).await;
        let Some(length) = answer.strip_prefix("OK ") else { return Err(answer) };
        let mut bytes = vec![0; length.parse().unwrap()];
        tokio::time::timeout(LONG, self.0.read_exact(&mut bytes)).await.unwrap().unwrap();
        Ok(bytes)
    }
}
