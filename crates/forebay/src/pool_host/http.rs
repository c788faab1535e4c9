//! HTTP of a pool host: the data face of its pool, and `/health` and `/metrics` of the host.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::http::StatusCode;
use admin::{HostAdmin, HostInstance, HostSnapshot};
use anyhow::{Context, Result, bail};
use api::{Pool, PoolKey, Subject};
use async_trait::async_trait;
use cluster::{ArrivedBytes, Denied, FaceError, FaceLink, HttpFace, PoolMember};
use door_webdav::{
    Completions, DataFace, DataFaceConfig, FileVersion, HeadPlace, Hold, Refusal, StoredUpload,
};
use files::Received;
use http_server::{PlainClients, Request, Response, Service, Tls, Transport};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use types::{ChecksumKind, Clock, FileId, Random};

use super::responder::HostResponder;
use crate::config::Config;
use crate::up::http::{self, THIS_HOST, url_host};
use crate::up::origin::Origins;
use crate::up::{Measures, listen};

const TICK: Duration = Duration::from_secs(1);

/// The port, taken before anything is touched.
pub struct HttpPort {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<Tls>>,
    /// As the head is told it. `None`: clients of other hosts cannot come here.
    face: Option<HttpFace>,
}

/// As banner and status show it.
#[derive(Clone, Copy, Debug)]
pub struct ShownHttp {
    pub address: SocketAddr,
    pub is_tls: bool,
    /// Clients are sent here.
    pub has_data: bool,
}

impl fmt::Display for ShownHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        let what = if self.has_data { "data, for clients of the head; " } else { "" };
        write!(f, "{scheme}://{} ({what}/health, /metrics)", self.address)
    }
}

impl HttpPort {
    /// `None`: it is switched off.
    pub async fn take(config: &Config) -> Result<Option<HttpPort>> {
        if !config.http.enabled {
            return Ok(None);
        }
        if config.http.certificate.is_some() && config.http.names.is_empty() {
            bail!(
                "http.certificate needs http.names: the name of this host as its certificate has it, by which the head sends \
                 clients here"
            );
        }
        let tls = http::load_certificate(config)?;
        let ip = http::address(config);
        let listener = listen(SocketAddr::new(ip, config.http.pool_port), "--http-port").await?;
        let address = listener.local_addr()?;
        let face = face(config, address, tls.is_some())?;
        Ok(Some(HttpPort { listener, address, tls, face }))
    }

    pub fn face(&self) -> Option<HttpFace> {
        self.face.clone()
    }

    pub fn shown(&self) -> ShownHttp {
        ShownHttp { address: self.address, is_tls: self.tls.is_some(), has_data: self.face.is_some() }
    }
}

/// Without a certificate and without networks that need none, only this host is served. That is of use to clients where all
/// of the cluster is on this host.
fn face(config: &Config, address: SocketAddr, is_tls: bool) -> Result<Option<HttpFace>> {
    if address.ip().is_loopback() && !config.listen.is_loopback() {
        return Ok(None);
    }
    let mut plain_networks = config.http.parsed_plain_networks()?;
    if !is_tls && address.ip().is_loopback() {
        plain_networks.extend(THIS_HOST);
    }
    let name = config.http.names.first().map(|name| url_host(name));
    Ok(Some(HttpFace { port: address.port(), name, is_tls, plain_networks }))
}

/// Serves HTTP from here on. The data face serves once it is put in place.
pub fn start(
    port: HttpPort,
    config: &Config,
    responder: &Arc<HostResponder>,
    measures: &Arc<Measures>,
    tasks: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) -> Result<Arc<HostRouter>> {
    let plain = http::plain_networks(config, port.tls.is_some())?;
    let plain = plain.map_or(PlainClients::All, |networks| PlainClients::Of(networks.into()));
    let transport = Transport { tls: port.tls, plain };
    let recorder = admin::metrics::install().context("cannot record metrics")?;
    let instance = HostFigures { responder: Arc::clone(responder), measures: Arc::clone(measures) };
    let admin = HostAdmin::new(Arc::new(instance), recorder, http::metrics_networks(&config.http)?);
    let router = Arc::new(HostRouter {
        admin,
        origins: Origins::new(&config.http.names),
        measures: Arc::clone(measures),
        face: OnceLock::new(),
    });
    let limits = http::limits(config);
    tasks.spawn(http_server::serve(port.listener, transport, Arc::clone(&router) as _, limits, stop.clone()));
    tasks.spawn(tick(Arc::clone(&router), stop.clone()));
    Ok(router)
}

async fn tick(router: Arc<HostRouter>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        router.admin.tick();
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            _ = stop.changed() => {}
        }
    }
}

/// The data face of the pool. It asks the head over the connections of the cluster.
pub fn data_face(
    pool: Arc<dyn Pool>,
    key: PoolKey,
    (clock, random): (Arc<dyn Clock>, Arc<dyn Random>),
    member: &Arc<PoolMember>,
) -> DataFace {
    let completions = RemoteCompletions(Arc::clone(member.face()));
    let head = Arc::clone(member);
    let head = HeadPlace::Elsewhere(Box::new(move || head_authority(&head)));
    DataFace::new(pool, key, (clock, random), Arc::new(completions), DataFaceConfig { head })
}

/// As the head has told. Without a name it is where this host reaches it.
fn head_authority(member: &PoolMember) -> Option<String> {
    let http = member.face().head_http()?;
    if !http.name.is_empty() {
        return Some(format!("{}:{}", http.name, http.port));
    }
    let head = member.standing().head?;
    Some(format!("{}:{}", url_host(&head), http.port))
}

/// Dispatches requests by path: a few names at the root are the host's own, all else needs a ticket.
pub struct HostRouter {
    admin: HostAdmin,
    origins: Origins,
    measures: Arc<Measures>,
    /// Set when the head has answered.
    face: OnceLock<DataFace>,
}

impl HostRouter {
    pub fn serve_data(&self, face: DataFace) {
        let _ = self.face.set(face);
    }

    async fn answer(&self, request: Request) -> Response {
        if HostAdmin::owns(request.uri.path()) {
            if let Some(refusal) = self.origins.refuse(&request) {
                return refusal;
            }
            return Box::pin(self.admin.serve(&request)).await;
        }
        match self.face.get() {
            Some(face) => face.serve(request).await,
            None => away().into_response(),
        }
    }
}

#[async_trait]
impl Service for HostRouter {
    async fn serve(&self, request: Request) -> Response {
        use api::Observer;
        let (operation, client) = (admin::metrics::operation_of(&request.method), request.peer.address);
        let uri = request.uri.clone();
        let start = std::time::Instant::now();
        let response = self.answer(request).await;
        let subject = || Subject { what: uri.path().to_owned(), client: client.to_string() };
        self.measures.took("http", operation, start.elapsed(), &subject);
        response
    }
}

/// The head, as the data face asks it.
struct RemoteCompletions(Arc<FaceLink>);

#[async_trait]
impl Completions for RemoteCompletions {
    async fn hold_version(&self, file: FileId, change: u64) -> Result<Option<(Hold, FileVersion)>, Refusal> {
        let held = self.0.hold(file, change).await.map_err(refusal)?;
        Ok(held.map(|(hold, held)| {
            let cluster::HeldVersion { birth, size, mtime, io } = held;
            (Box::new(hold) as Hold, FileVersion { file, change, birth, size, mtime, io })
        }))
    }

    async fn begin(&self, file: FileId, has_bytes: bool) -> Result<Vec<ChecksumKind>, Refusal> {
        self.0.begin(file, has_bytes).await.map_err(refusal)
    }

    fn put_off(&self, file: FileId) {
        self.0.put_off(file);
    }

    fn give_up(&self, file: FileId) {
        self.0.give_up(file);
    }

    async fn complete(&self, file: FileId, received: Received) -> Result<StoredUpload, Refusal> {
        let Received { size, checksums } = received;
        let stored = self.0.complete(file, &ArrivedBytes { size, checksums }).await.map_err(refusal)?;
        Ok(StoredUpload { file: FileId(stored.file), change: stored.change, is_new: stored.is_new })
    }
}

fn refusal(error: FaceError) -> Refusal {
    match error {
        FaceError::Denied(Denied { status, reason, is_passing, xml }) => {
            if is_passing && status == StatusCode::SERVICE_UNAVAILABLE {
                return Refusal::busy(reason);
            }
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Refusal { xml: xml.map(bytes::Bytes::from), ..Refusal::new(status, reason) }
        }
        FaceError::Away | FaceError::Busy => Refusal::busy(error.to_string()),
        FaceError::Begun => Refusal::new(StatusCode::GONE, error.to_string()),
    }
}

fn away() -> Refusal {
    Refusal::busy(FaceError::Away.to_string())
}

/// The pool host as `/health` and `/metrics` see it.
struct HostFigures {
    responder: Arc<HostResponder>,
    measures: Arc<Measures>,
}

#[async_trait]
impl HostInstance for HostFigures {
    async fn snapshot(&self) -> HostSnapshot {
        self.responder.figures(self.measures.counts())
    }

    async fn problems(&self) -> Vec<admin::instance::Problem> {
        self.responder.problems()
    }

    async fn process(&self) -> admin::instance::ProcessView {
        tokio::task::spawn_blocking(crate::process::view).await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    //! The HTTP face as a pool host tells it to the head.

    use super::*;

    fn told(listen: &str, networks: &[&str], names: &[&str], has_certificate: bool) -> Option<HttpFace> {
        let mut config = Config { listen: listen.parse().unwrap(), ..Config::default() };
        config.http.plain_networks = networks.iter().map(ToString::to_string).collect();
        config.http.names = names.iter().map(ToString::to_string).collect();
        config.http.certificate = has_certificate.then(|| "/none/cert.pem".into());
        let address = SocketAddr::new(http::address(&config), 8081);
        face(&config, address, has_certificate).unwrap()
    }

    #[test]
    fn no_client_is_sent_to_a_host_that_serves_itself_alone() {
        assert_eq!(told("0.0.0.0", &[], &[], false), None);
        let all_on_one_host = told("127.0.0.1", &[], &[], false).unwrap();
        assert_eq!((all_on_one_host.is_tls, all_on_one_host.plain_networks), (false, THIS_HOST.to_vec()));
    }

    #[test]
    fn clients_with_tls_are_sent_to_the_name_of_the_certificate() {
        let face = told("0.0.0.0", &[], &["fb2.example.org:8081", "other"], true).unwrap();
        assert_eq!((face.name.as_deref(), face.is_tls), (Some("fb2.example.org"), true));
        assert_eq!(face.plain_networks, []);
    }

    #[test]
    fn clients_without_tls_are_those_of_plain_networks() {
        let face = told("0.0.0.0", &["10.1.0.0/16"], &[], false).unwrap();
        assert_eq!((face.name, face.is_tls), (None, false));
        assert_eq!(face.plain_networks, ["10.1.0.0/16".parse().unwrap()]);
    }
}
