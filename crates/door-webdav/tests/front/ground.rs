//! A front over a namespace in SQLite and one pool in memory, asked without a connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{
    AuthError, Authenticator, Caller, Credential, KeyGeneration, Macaroon, MacaroonRequest, Origin, Pool,
    Role, Term, TicketKeys,
};
use async_trait::async_trait;
use files::{Files, FilesServices};
use forebay_door_webdav::{
    Front, FrontConfig, FrontService, FrontServices, LocalCompletions, Redirect, ThirdPartyConfig,
};
use http::{Method, header};
use http_server::{Memory, Peer, Request, RequestBody, Response, Service, TlsPeer};
use namespace::{Config, Database, SqlNamespace, Sync};
use tempfile::TempDir;
use testkit::clock::ManualClock;
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use testkit::watched_namespace::WatchedNamespace;
use types::{Identity, PoolId, Random};

pub const POOL: PoolId = PoolId(0);

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

pub struct Scene {
    pub names: Arc<WatchedNamespace>,
    pub pools: Arc<MemoryPools>,
    pub front: Asked,
    _dir: TempDir,
}

/// The front, to be asked by several at once.
#[derive(Clone)]
pub struct Asked(Arc<FrontService>);

impl Scene {
    pub fn set(redirect: Redirect) -> Scene {
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
            xattrs: namespace.clone(),
            quotas: namespace.clone(),
            uploads: namespace.clone(),
            pools: pools.clone(),
            clock: clock.clone(),
            recall_time: Duration::from_secs(1),
        }));
        let services = FrontServices {
            namespace: names.clone(),
            properties: namespace.clone(),
            files,
            authenticator: Arc::new(Trusting),
            clock,
            random: Arc::new(NoChance),
            ticket_keys: TicketKeys::new(&[1; 32], Term::UNCOUNTED, KeyGeneration::FIRST),
            client: http_client::Client::new(http_client::ClientConfig::default()).unwrap(),
            copy_counts: Arc::default(),
        };
        let front = Asked(Arc::new(FrontService(Front::new(services, config(redirect)).unwrap())));
        Scene { names, pools, front, _dir: dir }
    }
}

/// How a client has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Asked {
    /// The head, as data faces ask it.
    pub fn completions(&self) -> LocalCompletions {
        self.0.0.completions()
    }

    /// Asks with headers of its own.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        own: &[(&'static str, &str)],
        body: RequestBody,
    ) -> Response {
        self.ask_by(Scheme::Http, method, path, own, body).await
    }

    pub async fn ask_by(
        &self,
        scheme: Scheme,
        method: &str,
        path: &str,
        own: &[(&'static str, &str)],
        body: RequestBody,
    ) -> Response {
        let mut headers = http::HeaderMap::new();
        headers.insert(header::HOST, "head.example:80".parse().unwrap());
        own.iter().for_each(|(name, value)| _ = headers.insert(*name, value.parse().unwrap()));
        let tls = (scheme == Scheme::Https).then(|| TlsPeer { certificates: Vec::new() });
        let peer = Peer { address: at(9), local: at(80), tls, memory: Memory::unbounded() };
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let uri = path.parse().unwrap();
        let version = http::Version::HTTP_11;
        self.0.serve(Request { method, uri, version, headers, peer: Arc::new(peer), body }).await
    }
}

fn config(redirect: Redirect) -> FrontConfig {
    FrontConfig {
        site: "test".to_owned(),
        redirect,
        is_tls: false,
        authorities: Vec::new(),
        reserved: &[],
        checksums: Vec::new(),
        page: None,
        locks_max: 10,
        uploads_max: 10,
        uploads_per_caller_max: 10,
        copies: ThirdPartyConfig::default(),
        lock_timeout_max: Duration::from_secs(60),
        recall_patience: Duration::from_millis(50),
    }
}

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}
