//! An administrator's interface over a real namespace and an instance that says what a test wants, for tests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::{
    Activities, Activity, AuthError, Authenticator, Caller, CreateKind, CreateMode, CreateSpec, Credential,
    Macaroon, MacaroonRequest, Namespace, Origin, PathGrant, Role, SetAttributes,
};
use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use http_server::{Memory, Peer, Request, RequestBody, Response, ResponseBody};
use namespace::SqlNamespace;
use parking_lot::Mutex;
use types::{Clock, FileId, Identity, Name, SymlinkTarget, Timestamp};

use crate::instance::{
    BusyFileView, ClientView, LogLevels, OpenView, PoolView, Problem, ProcessView, SlowOperation, Snapshot,
};
use crate::metrics::Recorder;
use crate::{Admin, AdminConfig, AdminServices, Instance};

pub(crate) const ADMIN: &str = "Bearer admin";
pub(crate) const ANN: &str = "Bearer ann";
/// May list and read below `/shared` only.
pub(crate) const GUEST: &str = "Bearer guest";

const ANN_UID: u32 = 1000;

#[derive(Default)]
pub(crate) struct FakeInstance {
    pub problems: Mutex<Vec<Problem>>,
    pub levels: Mutex<LogLevels>,
    pub paths_asked: Mutex<Vec<FileId>>,
    pub is_stuck: bool,
}

#[async_trait]
impl Instance for FakeInstance {
    async fn snapshot(&self) -> Snapshot {
        if self.is_stuck {
            std::future::pending::<()>().await;
        }
        let nfs = || "nfs".to_owned();
        Snapshot {
            version: "1.2".to_owned(),
            site: "test".to_owned(),
            files: 3,
            pools: vec![PoolView {
                name: "pool-0".to_owned(),
                total_bytes: 9,
                free_bytes: 4,
                ..PoolView::default()
            }],
            clients: (0..3)
                .map(|number| ClientView {
                    door: nfs(),
                    name: format!("secret-host-{number}"),
                    address: format!("192.0.2.{number}"),
                    ..ClientView::default()
                })
                .collect(),
            open_count: 2,
            open_files: vec![OpenView {
                file: 7,
                path: None,
                door: nfs(),
                client: "secret-host-0".to_owned(),
                mode: "read".to_owned(),
            }],
            slow_operations: vec![SlowOperation {
                door: nfs(),
                operation: "WRITE".to_owned(),
                subject: "/secret-file".to_owned(),
                client: "secret-host-0".to_owned(),
                took_ms: 900,
                ..SlowOperation::default()
            }],
            ..Snapshot::default()
        }
    }

    async fn problems(&self) -> Vec<Problem> {
        if self.is_stuck {
            std::future::pending::<()>().await;
        }
        self.problems.lock().clone()
    }

    async fn process(&self) -> ProcessView {
        ProcessView { open_fds: Some(12), ..ProcessView::default() }
    }

    async fn paths(&self, files: &[FileId]) -> Vec<Option<Vec<Name>>> {
        self.paths_asked.lock().extend(files);
        vec![Some(vec![Name::new(b"secret-dir").unwrap(), Name::new(b"caf\xe9").unwrap()]); files.len()]
    }

    async fn busiest_files(&self, _: usize) -> Vec<BusyFileView> {
        let path = Some("/secret-dir/busy".to_owned());
        vec![BusyFileView { pool: "pool-0".to_owned(), path, ..BusyFileView::default() }]
    }

    fn log_levels(&self) -> LogLevels {
        self.levels.lock().clone()
    }

    fn set_log_levels(&self, levels: &LogLevels) -> Result<(), String> {
        if levels.level.as_deref() == Some("loud") {
            return Err("\"loud\" is no level".to_owned());
        }
        *self.levels.lock() = levels.clone();
        Ok(())
    }
}

struct FakeAuthenticator;

#[async_trait]
impl Authenticator for FakeAuthenticator {
    async fn authenticate(&self, credential: Credential<'_>, _: &Origin) -> Result<Caller, AuthError> {
        let user = |name: &str, role| Caller {
            name: name.into(),
            identity: Identity::new(ANN_UID, ANN_UID, &[]),
            role,
            grants: None,
            expires_s: None,
            password: None,
        };
        match credential {
            Credential::None => Ok(Caller::anonymous()),
            Credential::Bearer("admin") => Ok(user("root", Role::Admin)),
            Credential::Bearer("ann") => Ok(user("ann", Role::User)),
            Credential::Bearer("guest") => {
                let activities = Activities::of(&[Activity::List, Activity::Download]);
                let path = vec![Name::new(b"shared").unwrap()];
                let grant = PathGrant { activities, path, is_below_only: false };
                Ok(Caller { grants: Some([grant].into()), ..user("guest", Role::User) })
            }
            _ => Err(AuthError::Refused("nobody knows this token".to_owned())),
        }
    }

    fn mint(&self, _: &Caller, _: &MacaroonRequest) -> Result<Macaroon, AuthError> {
        Err(AuthError::Forbidden("not here".to_owned()))
    }

    async fn end(&self, _: &str) {}
}

struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(Duration::from_millis(1_500))
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

pub(crate) struct Fixture {
    pub admin: Arc<Admin>,
    pub instance: Arc<FakeInstance>,
    pub namespace: Arc<SqlNamespace>,
    _dir: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(FakeInstance::default())
    }

    pub fn with(instance: FakeInstance) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Arc::new(
            SqlNamespace::open(namespace::Config {
                database: namespace::Database::Sqlite(dir.path().to_owned()),
                clock: Arc::new(StillClock),
                root_owner: (0, 0),
                sync: namespace::Sync::Interval(Duration::from_secs(1)),
                cache_bytes: 1 << 20,
                queue_len_max: 100,
                group_len_max: 10,
            })
            .unwrap(),
        );
        let instance = Arc::new(instance);
        let services = AdminServices {
            instance: Arc::clone(&instance) as Arc<dyn Instance>,
            namespace: Arc::clone(&namespace) as Arc<dyn Namespace>,
            authenticator: Arc::new(FakeAuthenticator),
            clock: Arc::new(StillClock),
            metrics: Recorder::new().unwrap(),
        };
        let config = AdminConfig {
            site: "test".to_owned(),
            has_page: true,
            metrics_networks: vec!["198.51.100.0/24".parse().unwrap()],
            session_validity_max: Duration::from_secs(3_600),
        };
        Fixture { admin: Admin::new(services, config), instance, namespace, _dir: dir }
    }

    pub async fn make(&self, dir: FileId, name: &[u8], kind: CreateKind, permissions: u32) -> FileId {
        let spec = CreateSpec {
            kind,
            mode: CreateMode::Guarded,
            permissions,
            umask: None,
            set: SetAttributes::default(),
            location: None,
        };
        let name = Name::new(name).unwrap();
        self.namespace.create(&Identity::root(), dir, &name, &spec).await.unwrap().attributes.file
    }

    pub async fn make_link(&self, dir: FileId, name: &[u8], target: &str) {
        let target = SymlinkTarget::new(target.as_bytes()).unwrap();
        self.make(dir, name, CreateKind::Symlink(target), 0o777).await;
    }

    /// From elsewhere.
    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(request(method, path, headers, "203.0.113.9", "")).await
    }

    pub async fn ask_from(&self, address: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(request("GET", path, headers, address, "")).await
    }

    pub async fn get(&self, path: &str, who: &str) -> Answer {
        self.ask("GET", path, &[("authorization", who)]).await
    }

    pub async fn put(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(request("PUT", path, headers, "203.0.113.9", body)).await
    }

    async fn send(&self, request: Request) -> Answer {
        let Response { status, headers, body, .. } = self.admin.serve(request).await;
        let (text, length) = match body {
            ResponseBody::Empty => (String::new(), Some(0)),
            ResponseBody::Full(bytes) => {
                (String::from_utf8(bytes.to_vec()).unwrap(), Some(bytes.len() as u64))
            }
            ResponseBody::Absent { length } => (String::new(), length),
            ResponseBody::Pieces { length, .. } => (String::new(), Some(length)),
            ResponseBody::Stream(_) => (String::new(), None),
        };
        Answer { status, headers, text, length }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
    pub length: Option<u64>,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.headers["content-type"], "application/json", "{self:?}");
        serde_json::from_str(&self.text).unwrap()
    }

    pub fn error(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["error"].as_str().unwrap().to_owned())
    }
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], from: &str, body: &str) -> Request {
    let address: IpAddr = from.parse().unwrap();
    let local: SocketAddr = "127.0.0.1:8080".parse().unwrap();
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    Request {
        method: Method::from_bytes(method.as_bytes()).unwrap(),
        uri: path.parse().unwrap(),
        version: Version::HTTP_11,
        headers: headers.iter().map(pair).collect(),
        peer: Arc::new(Peer {
            address: SocketAddr::new(address, 4_000),
            local,
            tls: None,
            memory: Memory::unbounded(),
        }),
        body: RequestBody::of(body.to_owned()),
    }
}
