//! The cost of a PUT, in questions to the namespace.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{
    AuthError, Authenticator, Caller, Credential, KeyGeneration, Macaroon, MacaroonRequest, Origin, Pool,
    Role, Term, TicketKeys,
};
use async_trait::async_trait;
use files::{Files, FilesServices};
use forebay_door_webdav::{Front, FrontConfig, FrontService, FrontServices, Redirect, TransferConfig};
use http::{Method, StatusCode, header};
use http_server::{Memory, Peer, Request, RequestBody, Response, Service};
use namespace::{Config, Database, SqlNamespace, Sync};
use tempfile::TempDir;
use testkit::clock::ManualClock;
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use testkit::watched_namespace::WatchedNamespace;
use types::{Identity, PoolId, Random};

const POOL: PoolId = PoolId(0);

struct NoChance;

impl Random for NoChance {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// Everybody is root.
struct Trusting;

#[async_trait]
impl Authenticator for Trusting {
    async fn authenticate(&self, _: Credential<'_>, _: &Origin) -> Result<Caller, AuthError> {
        Ok(Caller {
            name: "root".into(),
            identity: Identity::root(),
            role: Role::User,
            grants: None,
            expires_s: None,
            password: None,
        })
    }

    fn mint(&self, _: &Caller, _: &MacaroonRequest) -> Result<Macaroon, AuthError> {
        Err(AuthError::Refused("no macaroons here".into()))
    }

    async fn end(&self, _: &str) {}
}

struct Scene {
    names: Arc<WatchedNamespace>,
    front: FrontService,
    _dir: TempDir,
}

impl Scene {
    fn set() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_800_000_000));
        let namespace = SqlNamespace::open(Config {
            database: Database::Sqlite(dir.path().to_owned()),
            clock: clock.clone(),
            root_owner: (0, 0),
            sync: Sync::Interval(Duration::from_secs(60)),
            cache_bytes: 1 << 20,
            queue_len_max: 100,
            group_len_max: 100,
        });
        let namespace = Arc::new(namespace.unwrap());
        let names = Arc::new(WatchedNamespace::new(namespace.clone()));
        let pools = Arc::new(MemoryPools::of([Arc::new(MemoryPool::new(POOL)) as Arc<dyn Pool>]));
        let files = Arc::new(Files::new(FilesServices {
            namespace: names.clone(),
            acls: namespace.clone(),
            locations: namespace.clone(),
            properties: namespace.clone(),
            quotas: namespace.clone(),
            uploads: namespace.clone(),
            pools: pools.clone(),
            clock: clock.clone(),
            recall_time: Duration::from_secs(1),
        }));
        let services = FrontServices {
            namespace: names.clone(),
            uploads: namespace.clone(),
            properties: namespace.clone(),
            files,
            authenticator: Arc::new(Trusting),
            clock,
            random: Arc::new(NoChance),
            ticket_keys: TicketKeys::new(&[1; 32], Term::UNCOUNTED, KeyGeneration::FIRST),
            client: http_client::Client::new(http_client::ClientConfig::default()).unwrap(),
        };
        let front = FrontService(Front::new(services, config()).unwrap());
        Scene { names, front, _dir: dir }
    }

    async fn ask(&self, method: Method, path: &str, body: RequestBody) -> Response {
        self.ask_with(method, path, &[], body).await
    }

    async fn ask_with(
        &self,
        method: Method,
        path: &str,
        own: &[(&'static str, &str)],
        body: RequestBody,
    ) -> Response {
        let mut headers = http::HeaderMap::new();
        headers.insert(header::HOST, "head.example:80".parse().unwrap());
        own.iter().for_each(|(name, value)| _ = headers.insert(*name, value.parse().unwrap()));
        let peer = Peer { address: at(9), local: at(80), tls: None, memory: Memory::unbounded() };
        let uri = path.parse().unwrap();
        let version = http::Version::HTTP_11;
        self.front.serve(Request { method, uri, version, headers, peer: Arc::new(peer), body }).await
    }

    /// The status of a PUT, and the namespace's questions that it cost.
    async fn put(&self, path: &str) -> (StatusCode, Vec<&'static str>) {
        self.names.take_asked();
        let status = self.ask(Method::PUT, path, RequestBody::of("content")).await.status;
        (status, self.names.take_asked())
    }
}

fn config() -> FrontConfig {
    FrontConfig {
        site: "test".to_owned(),
        redirect: Redirect::Never,
        is_tls: false,
        authorities: Vec::new(),
        reserved: &[],
        checksums: Vec::new(),
        page: None,
        locks_max: 10,
        uploads_max: 10,
        uploads_per_caller_max: 10,
        copies: TransferConfig::default(),
        lock_timeout_max: Duration::from_secs(60),
        recall_patience: Duration::from_millis(50),
    }
}

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

#[tokio::test]
async fn a_put_walks_its_path_once() {
    let scene = Scene::set();
    let made = scene.ask(Method::from_bytes(b"MKCOL").unwrap(), "/dir", RequestBody::empty()).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let walk = vec!["attributes", "lookup", "lookup"];
    assert_eq!(scene.put("/dir/file").await, (StatusCode::CREATED, walk.clone()), "a new file");
    assert_eq!(scene.put("/dir/file").await, (StatusCode::NO_CONTENT, walk), "a file that is replaced");
}

/// The namespace refuses nothing here: the file would appear in the directory that was moved.
#[tokio::test]
async fn an_upload_whose_directory_was_moved_and_made_anew_is_refused() {
    let scene = Scene::set();
    let ask = async |method: &str, path: &str, headers: &[(&'static str, &str)], body| {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        scene.ask_with(method, path, headers, body).await.status
    };
    let part = [("content-range", "bytes 0-2/6")];
    let last = [("content-range", "bytes 3-5/6")];
    let to = [("destination", "/moved")];
    assert_eq!(ask("MKCOL", "/dir", &[], RequestBody::empty()).await, StatusCode::CREATED);
    assert_eq!(ask("PUT", "/dir/file", &part, RequestBody::of("con")).await, StatusCode::ACCEPTED);
    assert_eq!(ask("MOVE", "/dir", &to, RequestBody::empty()).await, StatusCode::CREATED);
    assert_eq!(ask("MKCOL", "/dir", &[], RequestBody::empty()).await, StatusCode::CREATED);
    assert_eq!(ask("PUT", "/dir/file", &last, RequestBody::of("ten")).await, StatusCode::CONFLICT);
    for path in ["/dir/file", "/moved/file"] {
        assert_eq!(ask("GET", path, &[], RequestBody::empty()).await, StatusCode::NOT_FOUND, "{path}");
    }
}
