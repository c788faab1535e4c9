//! Where clients are sent while pools change.

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
use forebay_door_webdav::{Front, FrontConfig, FrontService, FrontServices, NAME, Redirect, TransferConfig};
use http::{Method, StatusCode, header};
use http_server::{Memory, Peer, Request, RequestBody, Response, Service};
use namespace::{Config, Database, SqlNamespace, Sync};
use tempfile::TempDir;
use testkit::clock::ManualClock;
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
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
    pools: Arc<MemoryPools>,
    front: FrontService,
    _dir: TempDir,
}

impl Scene {
    /// A file at the one pool, which has no address.
    async fn set() -> Scene {
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
        let pools = Arc::new(MemoryPools::of([Arc::new(MemoryPool::new(POOL)) as Arc<dyn Pool>]));
        let files = Arc::new(Files::new(FilesServices {
            namespace: namespace.clone(),
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
            namespace: namespace.clone(),
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
        let scene = Scene { pools, front, _dir: dir };
        let put = scene.ask(Method::PUT, RequestBody::of("content")).await;
        assert_eq!(put.status, StatusCode::CREATED);
        scene
    }

    async fn ask(&self, method: Method, body: RequestBody) -> Response {
        let mut headers = http::HeaderMap::new();
        headers.insert(header::HOST, "head.example:80".parse().unwrap());
        let peer = Peer { address: at(9), local: at(80), tls: None, memory: Memory::unbounded() };
        let uri = "/file".parse().unwrap();
        let version = http::Version::HTTP_11;
        self.front.serve(Request { method, uri, version, headers, peer: Arc::new(peer), body }).await
    }

    /// The status of a GET, and the server that it sends the client to.
    async fn sent_to(&self) -> (u16, Option<String>) {
        let got = self.ask(Method::GET, RequestBody::empty()).await;
        let location = got.headers.get(header::LOCATION).map(|value| value.to_str().unwrap().to_owned());
        let server = location.map(|url| url.split('/').nth(2).unwrap().to_owned());
        (got.status.as_u16(), server)
    }
}

fn config() -> FrontConfig {
    FrontConfig {
        site: "test".to_owned(),
        redirect: Redirect::Always,
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
async fn a_get_is_sent_to_the_address_that_the_pool_has_now() {
    let (scene, there) = (Scene::set().await, |server: &str| (307, Some(server.to_owned())));
    assert_eq!(scene.sent_to().await, (200, None), "the pool has no address: the head answers");
    let list = scene.pools.list();
    list.set_address(POOL, NAME, ([10, 0, 0, 1], 81).into()).unwrap();
    assert_eq!(scene.sent_to().await, there("10.0.0.1:81"));
    list.set_address(POOL, NAME, ([10, 0, 0, 2], 82).into()).unwrap();
    assert_eq!(scene.sent_to().await, there("10.0.0.2:82"));
    list.set_address(POOL, NAME, ([0, 0, 0, 0], 83).into()).unwrap();
    assert_eq!(scene.sent_to().await, there("head.example:83"), "as the client reached the head");
}

#[tokio::test]
async fn nobody_is_sent_to_a_pool_that_is_disabled_or_removed() {
    let scene = Scene::set().await;
    let list = scene.pools.list();
    list.set_address(POOL, NAME, ([10, 0, 0, 1], 81).into()).unwrap();
    list.set_disabled(POOL, true).unwrap();
    assert_eq!(scene.sent_to().await, (503, None));
    list.set_disabled(POOL, false).unwrap();
    assert_eq!(scene.sent_to().await, (307, Some("10.0.0.1:81".to_owned())));
    list.remove(POOL).unwrap();
    assert_eq!(scene.sent_to().await, (503, None));
}
