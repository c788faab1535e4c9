//! The HTTP door of `up`: identities, certificate, front, and the pools' data faces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admin::{Admin, AdminConfig, AdminServices};
use anyhow::{Context, Result, anyhow};
use api::{Observer, Subject};
use async_trait::async_trait;
use auth::Authority;
use door_webdav::{DataFace, DataFaceConfig, Front, FrontConfig, FrontService, FrontServices, HeadPlace};
use http_server::tls::ClientCertificates;
use http_server::{ExchangeLog, Limits, PlainClients, Request, Response, Service, Tls, TlsFiles, Transport};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use types::{ChecksumKind, Identity, Network};

use super::origin::Origins;
use super::overview::Overview;
use super::{Head, STOP, Services, listen};
use crate::access_log::AccessLog;
use crate::config::Config;
use crate::config::http::{Anonymous, Http, Issuer, Profile, Redirect};
use crate::data_dir::DataDir;
use crate::report::HttpReport;
use crate::system::SystemRandom;
use crate::users::{self, FirstLogin};

/// How often locks and uploads that nobody came back for are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Copies that run at a stop may tell their clients and clean up for so long.
const COPIES_STOP: Duration = Duration::from_secs(2);
/// Its clients are served also where there is no certificate.
pub const THIS_HOST: [Network; 2] = [
    Network::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    Network::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
];
/// A login to the page lasts at most so long.
const SESSION_MAX: Duration = Duration::from_secs(12 * 3600);

impl Shown {
    pub fn report(&self) -> HttpReport {
        HttpReport {
            address: self.address.to_string(),
            tls: self.is_tls,
            plain_networks: self.plain_networks.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The ports, taken before anything is touched.
pub struct Ports {
    head: TcpListener,
    pools: Vec<TcpListener>,
    tls: Option<Arc<Tls>>,
    access_log: Option<Arc<AccessLog>>,
}

/// Facts about the HTTP door that the banner and `forebay status` show.
pub struct Shown {
    pub address: SocketAddr,
    pub is_tls: bool,
    /// Clients beyond this host that need no TLS.
    pub plain_networks: Vec<Network>,
    pub first_login: Option<FirstLogin>,
    /// Others cannot reach it, although they can reach NFS.
    pub is_loopback_only: bool,
}

impl Ports {
    /// `None`: the door is switched off.
    pub async fn take(
        config: &Config,
        pools: u32,
        access_log: Option<Arc<AccessLog>>,
    ) -> Result<Option<Ports>> {
        if !config.http.enabled {
            return Ok(None);
        }
        let tls = load_certificate(config)?;
        let address = SocketAddr::new(address(config), config.http.port);
        let head = listen(address, "--http-port").await?;
        let mut data_faces = Vec::new();
        if config.http.redirect == Redirect::Always {
            for number in 0..pools {
                let port = u16::try_from(u32::from(config.http.pool_port) + number)
                    .map_err(|_| anyhow!("http.pool_port leaves no ports for {pools} pools"))?;
                data_faces.push(listen(SocketAddr::new(address.ip(), port), "http.pool_port").await?);
            }
        }
        Ok(Some(Ports { head, pools: data_faces, tls, access_log }))
    }

    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// Where clients reach the head.
    pub fn port(&self) -> Result<u16> {
        Ok(self.head.local_addr()?.port())
    }
}

/// Without a certificate, and without networks that need none, only this host is served.
pub fn address(config: &Config) -> IpAddr {
    let serves_others = config.http.certificate.is_some() || !config.http.plain_networks.is_empty();
    if serves_others || config.listen.is_loopback() {
        return config.listen;
    }
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

/// The host of `host` or `host:port`, as a URL has it.
pub fn url_host(authority: &str) -> String {
    if let Ok(IpAddr::V6(ip)) = authority.parse() {
        return format!("[{ip}]");
    }
    match authority.rfind(':') {
        // The colons of an IPv6 address stand in brackets.
        Some(at) if !authority[at..].contains(']') => authority[..at].to_owned(),
        _ => authority.to_owned(),
    }
}

/// Clients that need no TLS. `None`: all, since only this host is listened to and there is no certificate.
pub fn plain_networks(config: &Config, is_tls: bool) -> Result<Option<Vec<Network>>> {
    if !is_tls && address(config).is_loopback() {
        return Ok(None);
    }
    let mut networks = config.http.parsed_plain_networks()?;
    if !is_tls {
        networks.extend(THIS_HOST);
    }
    Ok(Some(networks))
}

pub fn load_certificate(config: &Config) -> Result<Option<Arc<Tls>>> {
    let (Some(certificate), Some(key)) = (&config.http.certificate, &config.http.key) else {
        return Ok(None);
    };
    let files = TlsFiles { certificate: certificate.clone(), key: key.clone() };
    // A browser that is asked may ask its user: only where an answer would be of use.
    let clients = match config.auth.certificates {
        Some(_) => ClientCertificates::Asked,
        None => ClientCertificates::NotAsked,
    };
    Ok(Some(Tls::load(files, clients)?))
}

pub fn start(
    ports: Ports,
    head: &Head<'_>,
    overview: Overview,
    tasks: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) -> Result<Shown> {
    let Head { config, data, services, pool_map, keys, files, cluster } = *head;
    let Ports { head: listener, pools, tls, access_log } = ports;
    let (address, is_tls) = (listener.local_addr()?, tls.is_some());
    let plain = plain_networks(config, is_tls)?;
    let plain_networks = plain.as_ref().map_or(Ok(Vec::new()), |_| config.http.parsed_plain_networks())?;
    let password_file = users::password_file(config);
    let first_login = users::first_login(&password_file, users::is_seen())?;
    let client = http_client::Client::new(client_config(config)).context("cannot set up outgoing HTTP")?;
    let authority = Arc::new(authority(config, data, services, &password_file, plain.clone())?);
    let overview = Arc::new(overview);
    let admin = make_admin(head, &overview, &authority)?;

    for (pool, listener) in services.pools.enabled().iter().zip(&pools) {
        pool_map.list().set_address(pool.id(), door_webdav::NAME, listener.local_addr()?)?;
    }
    let front = Front::new(
        FrontServices {
            namespace: services.namespace.clone(),
            properties: services.namespace.clone(),
            files: Arc::clone(files),
            authenticator: authority,
            clock: Arc::clone(&services.clock),
            random: Arc::clone(&services.random),
            ticket_keys: keys.ticket_keys(),
            client,
            copy_counts: Arc::clone(&overview.copy_counts),
        },
        FrontConfig {
            redirect: redirect(config, cluster.is_some()),
            ..front_config(config, address, is_tls)
        },
    )?;
    if let Some(cluster) = cluster {
        cluster.serve_data_faces(front.completions());
    }
    let plain = plain.map_or(PlainClients::All, |networks| PlainClients::Of(networks.into()));
    let transport = Transport { tls, plain };
    let limits = limits(config);
    for (pool, listener) in services.pools.enabled().into_iter().zip(pools) {
        let key = keys.pool_key(pool.id());
        let face = DataFace::new(
            pool,
            key,
            (Arc::clone(&services.clock), Arc::clone(&services.random)),
            Arc::new(front.completions()),
            DataFaceConfig { head: HeadPlace::Here(address) },
        );
        let face = Logged { service: face, access_log: access_log.clone() };
        tasks.spawn(http_server::serve(listener, transport.clone(), Arc::new(face), limits, stop.clone()));
    }
    let origins = Origins::new(&config.http.names);
    let router = Arc::new(Router { front: FrontService(front), admin, overview, origins, access_log });
    tasks.spawn(tick(Arc::clone(&router), stop.clone()));
    tasks.spawn(http_server::serve(listener, transport, router, limits, stop.clone()));
    Ok(Shown {
        address,
        is_tls,
        plain_networks,
        first_login,
        is_loopback_only: address.ip().is_loopback() && !config.listen.is_loopback(),
    })
}

/// With `auto`, pools of this process have no faces, and those of other hosts have.
fn redirect(config: &Config, has_cluster: bool) -> door_webdav::Redirect {
    match config.http.redirect {
        Redirect::Auto if has_cluster => door_webdav::Redirect::ToFaces,
        Redirect::Never | Redirect::Auto => door_webdav::Redirect::Never,
        Redirect::Always => door_webdav::Redirect::ToFaces,
    }
}

/// Of each listener.
pub fn limits(config: &Config) -> Limits {
    let connections_max = config.http.connections_max as usize;
    Limits { connections_max, stop_time: STOP, ..Limits::default() }
}

fn make_admin(head: &Head<'_>, overview: &Arc<Overview>, authority: &Arc<Authority>) -> Result<Arc<Admin>> {
    let Head { config, services, .. } = *head;
    let services = AdminServices {
        instance: overview.clone(),
        namespace: services.namespace.clone(),
        authenticator: authority.clone(),
        clock: Arc::clone(&services.clock),
        metrics: admin::metrics::install().context("cannot record metrics")?,
    };
    let config = AdminConfig {
        site: config.http.site.clone(),
        has_page: config.http.page,
        metrics_networks: metrics_networks(&config.http)?,
        session_validity_max: SESSION_MAX,
    };
    Ok(Admin::new(services, config))
}

/// Dispatches requests by path: a few names at the root are the instance's own, all else is the namespace.
struct Router {
    front: FrontService,
    admin: Arc<Admin>,
    overview: Arc<Overview>,
    origins: Origins,
    access_log: Option<Arc<AccessLog>>,
}

/// A face of a pool whose requests are in the access log, too.
struct Logged<S> {
    service: S,
    access_log: Option<Arc<AccessLog>>,
}

impl Router {
    async fn answer(&self, request: Request) -> Response {
        if let Some(refusal) = self.origins.refuse(&request) {
            return refusal;
        }
        let path = request.uri.path();
        if admin::owns(path) {
            // Boxed, or every request would carry its room.
            return Box::pin(self.admin.serve(request)).await;
        }
        if let Some(name) = path.strip_prefix("/.well-known/")
            && let Some(response) = self.front.0.well_known(&request.method, name).await
        {
            return response;
        }
        self.front.serve(request).await
    }
}

#[async_trait]
impl Service for Router {
    async fn serve(&self, request: Request) -> Response {
        let (operation, client) = (admin::metrics::operation_of(&request.method), request.peer.address);
        // Shared, not copied: it is looked at only if the request was slow.
        let uri = request.uri.clone();
        let start = std::time::Instant::now();
        self.overview.measures.http_client(client.ip());
        let response = self.answer(request).await;
        let subject = || Subject { what: uri.path().to_owned(), client: client.to_string() };
        self.overview.measures.took("http", operation, start.elapsed(), &subject);
        response
    }

    fn exchange_log(&self) -> Option<Arc<dyn ExchangeLog>> {
        exchange_log(self.access_log.as_ref())
    }
}

#[async_trait]
impl<S: Service> Service for Logged<S> {
    async fn serve(&self, request: Request) -> Response {
        self.service.serve(request).await
    }

    fn exchange_log(&self) -> Option<Arc<dyn ExchangeLog>> {
        exchange_log(self.access_log.as_ref())
    }
}

fn exchange_log(access_log: Option<&Arc<AccessLog>>) -> Option<Arc<dyn ExchangeLog>> {
    access_log.map(|log| Arc::clone(log) as Arc<dyn ExchangeLog>)
}

async fn tick(router: Arc<Router>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        router.front.0.tick();
        router.admin.tick();
        router.overview.sample();
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            _ = stop.changed() => {}
        }
    }
    router.front.0.stop_copies(COPIES_STOP).await;
}

pub fn metrics_networks(config: &Http) -> Result<Vec<Network>> {
    let networks = config.metrics_networks.iter().map(|text| text.parse());
    networks.collect::<Result<_, String>>().map_err(|error| anyhow!("http.metrics_networks: {error}"))
}

fn front_config(config: &Config, address: SocketAddr, is_tls: bool) -> FrontConfig {
    let config = &config.http;
    let mut authorities = config.names.clone();
    // 0.0.0.0 is no name for anybody.
    if !address.ip().is_unspecified() {
        authorities.push(address.to_string());
    }
    FrontConfig {
        site: config.site.clone(),
        redirect: door_webdav::Redirect::Never,
        is_tls,
        authorities,
        reserved: admin::RESERVED,
        checksums: config.checksums.iter().filter_map(|name| ChecksumKind::by_name(name)).collect(),
        page: config.page.then(|| "/ui/files".to_owned()),
        locks_max: config.locks_max as usize,
        uploads_max: config.uploads_max as usize,
        uploads_per_caller_max: config.uploads_per_caller_max as usize,
        copies: door_webdav::ThirdPartyConfig {
            transfers_max: config.copies_max as usize,
            streams_max: config.copy_streams_max as usize,
            require_checksum: config.copy_requires_checksum,
            ..door_webdav::ThirdPartyConfig::default()
        },
        lock_timeout_max: Duration::from_secs(config.lock_timeout_s.into()),
        recall_patience: Duration::from_millis(config.recall_patience_ms.into()),
    }
}

fn client_config(config: &Config) -> http_client::ClientConfig {
    let mut client =
        http_client::ClientConfig { ca_paths: config.http.copy_ca.clone(), ..Default::default() };
    if config.listen.is_loopback() {
        client = client.reaching_loopback();
    }
    client.allow_plain = config.http.copy_allows_plain.unwrap_or(client.allow_plain);
    client
}

fn authority(
    config: &Config,
    data: &DataDir,
    services: &Services,
    password_file: &Path,
    plain_networks: Option<Vec<Network>>,
) -> Result<Authority> {
    let is_loopback = address(config).is_loopback();
    let anonymous =
        config.http.anonymous.unwrap_or(if is_loopback { Anonymous::Read } else { Anonymous::Refuse });
    let mut settings = auth::Config::new(data.macaroon_secret(&SystemRandom)?);
    settings.password_file = Some(password_file.to_owned());
    settings.ended_file = Some(config.data.join("ended-sessions"));
    settings.mapping_file.clone_from(&config.auth.mapping);
    settings.issuers = config.auth.issuers.iter().map(issuer).collect::<Result<_>>()?;
    settings.location.clone_from(&config.http.site);
    settings.macaroon_validity_max = Duration::from_secs(config.auth.macaroon_validity_max_s);
    settings.clock_skew = Duration::from_secs(config.auth.clock_skew_s);
    settings.anonymous = match anonymous {
        Anonymous::Refuse => auth::Anonymous::Refuse,
        Anonymous::Read => auth::Anonymous::ReadOnly(Identity::nobody()),
    };
    settings.secrets_in_clear =
        plain_networks.map_or(auth::SecretsInClear::Accepted, auth::SecretsInClear::From);
    settings.x509 = config.auth.certificates.as_ref().map(|ca_dir| auth::x509::VerifierConfig {
        ca_dir: ca_dir.clone(),
        vomsdir: config.auth.vomsdir.clone(),
        crl: if config.auth.crl_required { auth::x509::Crl::Require } else { auth::x509::Crl::IfPresent },
        hosts: config.http.names.clone(),
    });
    // Issuers are named by the operator: wherever they are, they may be asked.
    let mut issuers = client_config(config).reaching_loopback();
    issuers.forbidden.clear();
    let fetch: Arc<dyn auth::Fetch> =
        Arc::new(http_client::Client::new(issuers).context("cannot set up outgoing HTTP")?);
    Authority::open(settings, &fetch, Arc::clone(&services.clock)).map_err(|error| anyhow!(error))
}

fn issuer(issuer: &Issuer) -> Result<auth::Issuer> {
    let base_path = http_wire::target::parse_path(&issuer.base_path)
        .map_err(|error| anyhow!("auth.issuers: base_path {:?}: {error}", issuer.base_path))?;
    let identity = issuer.uid.zip(issuer.gid).map(|(uid, gid)| Identity::new(uid, gid, &issuer.groups));
    Ok(auth::Issuer {
        url: issuer.url.clone(),
        profile: match issuer.profile {
            Profile::Wlcg => auth::Profile::Wlcg,
            Profile::Scitokens => auth::Profile::SciTokens,
            Profile::Auto => auth::Profile::Auto,
        },
        base_path,
        audiences: issuer.audiences.clone(),
        identity,
        members_may_read: issuer.members_may_read,
        keys: auth::config::KeyBounds::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address that is listened to, and the clients that need no TLS.
    fn judged(listen: &str, networks: &[&str], has_certificate: bool) -> (String, Option<Vec<String>>) {
        let mut config = Config { listen: listen.parse().unwrap(), ..Config::default() };
        config.http.plain_networks = networks.iter().map(ToString::to_string).collect();
        config.http.certificate = has_certificate.then(|| "/none/cert.pem".into());
        let plain = plain_networks(&config, has_certificate).unwrap();
        let plain = plain.map(|networks| networks.iter().map(ToString::to_string).collect());
        (address(&config).to_string(), plain)
    }

    #[test]
    fn without_a_certificate_hosts_beyond_plain_networks_are_not_served() {
        let networks = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(judged("0.0.0.0", &[], false), ("127.0.0.1".to_owned(), None));
        assert_eq!(judged("192.0.2.1", &[], false), ("127.0.0.1".to_owned(), None));
        assert_eq!(judged("127.0.0.1", &["10.1.0.0/16"], false), ("127.0.0.1".to_owned(), None));
        assert_eq!(
            judged("0.0.0.0", &["10.1.0.0/16"], false),
            ("0.0.0.0".to_owned(), networks(&["10.1.0.0/16", "127.0.0.0/8", "::1/128"]))
        );
    }

    #[test]
    fn with_a_certificate_plain_networks_alone_need_no_tls() {
        let networks = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(judged("0.0.0.0", &[], true), ("0.0.0.0".to_owned(), networks(&[])));
        assert_eq!(judged("127.0.0.1", &[], true), ("127.0.0.1".to_owned(), networks(&[])));
        assert_eq!(
            judged("0.0.0.0", &["10.1.0.0/16"], true),
            ("0.0.0.0".to_owned(), networks(&["10.1.0.0/16"]))
        );
    }

    #[test]
    fn a_port_is_taken_off_a_name() {
        for (authority, host) in [
            ("fb1:7413", "fb1"),
            ("fb1", "fb1"),
            ("192.0.2.1:7413", "192.0.2.1"),
            ("[2001:db8::1]:7413", "[2001:db8::1]"),
            ("2001:db8::1", "[2001:db8::1]"),
        ] {
            assert_eq!(url_host(authority), host);
        }
    }
}
