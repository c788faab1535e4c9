//! Pool hosts and strangers at the head's port, over TLS on loopback.

mod keys;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;

use api::{KeyMaterial, PoolStatus};
use cluster_state::{LeaseRules, Process};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use types::{Clock, FileId};
use xdr::Opaque;

use super::*;
use crate::face::{ArrivedBytes, Denied, FaceLink, HeldVersion, Hold, StoredVersion};
use crate::rpc::CallError;
use crate::session::{Incarnation, Key};
use crate::trust::{Authority, Dialling, HEAD_NAME, MemberKey, client_config, join_config, secret_hash};
use crate::wire::Status;

const CLUSTER: [u8; 16] = [7; 16];
const POOL: PoolId = PoolId(3);
const SECRET: [u8; 16] = [9; 16];
const TIME: Duration = Duration::from_secs(20);

struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> types::Timestamp {
        types::Timestamp::new(1, 0).unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }
}

type Placed = (Vec<Fingerprint>, Arc<Seat>);

/// Lets in who has the secret, as [`POOL`].
struct TestRegistry {
    authority: Mutex<Arc<Authority>>,
    faces: Arc<CountingFaces>,
    generation: AtomicU32,
    /// The keys of each, of which the last is the newest.
    seats: Mutex<BTreeMap<PoolId, Placed>>,
}

impl TestRegistry {
    fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority.lock())
    }

    fn keys_of(&self, pool: PoolId) -> Vec<Fingerprint> {
        self.seats.lock().get(&pool).map(|(keys, _)| keys.clone()).unwrap_or_default()
    }

    fn set_keys(&self, pool: PoolId, keys: Vec<Fingerprint>) {
        let seat = {
            let mut seats = self.seats.lock();
            let (known, seat) = seats.get_mut(&pool).unwrap();
            *known = keys;
            Arc::clone(seat)
        };
        seat.end_unknown();
    }
}

#[async_trait]
impl KeyRegistry for TestRegistry {
    fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    async fn certify(&self, pool: PoolId, public_key: &[u8]) -> Result<Certified, String> {
        let authority = self.authority();
        let certificate =
            authority.issue(Member::Pool(pool), public_key).map_err(|error| error.to_string())?;
        let mut keys = self.keys_of(pool);
        keys.truncate(1);
        keys.push(Fingerprint::of_key(public_key));
        self.set_keys(pool, keys);
        let generation = self.generation();
        Ok(Certified::Certificate {
            generation,
            certificate,
            authority: authority.certificate_pem().to_owned(),
        })
    }

    async fn used(&self, pool: PoolId, key: Fingerprint) {
        if self.keys_of(pool).last() == Some(&key) {
            self.set_keys(pool, vec![key]);
        }
    }

    fn refusal(&self, pool: PoolId) -> String {
        format!("{pool} does not belong to this cluster any more")
    }
}

#[async_trait]
impl Registry for TestRegistry {
    fn cluster(&self) -> [u8; 16] {
        CLUSTER
    }

    async fn join(&self, join: Join, _: SocketAddr) -> Result<Joined, String> {
        if secret_hash(&join.secret) != secret_hash(&SECRET) {
            return Err("the token is not known here".to_owned());
        }
        let rules = LeaseRules { lease: Duration::from_secs(10), suspect: Duration::from_secs(3) };
        let seat = Seat::new(RemotePool::new(POOL, rules, Arc::new(StoppedClock)));
        self.seats.lock().insert(POOL, (vec![Fingerprint::of_key(&join.public_key.0)], seat));
        Ok(Joined::Pool {
            cluster: CLUSTER,
            pool: POOL.0,
            certificate: self.authority().issue(Member::Pool(POOL), &join.public_key.0).unwrap(),
            authority: self.authority().certificate_pem().to_owned(),
            generation: self.generation(),
        })
    }

    fn seat(&self, pool: PoolId, key: Fingerprint) -> Option<Arc<Seat>> {
        let seats = self.seats.lock();
        seats.get(&pool).filter(|(known, _)| known.contains(&key)).map(|(_, seat)| Arc::clone(seat))
    }

    fn arrived(&self, _: PoolId, _: SocketAddr, _: Option<&HttpFace>) {}

    fn keys(&self, _: PoolId) -> Keys {
        let material = KeyMaterial { generation: KeyGeneration::FIRST, nfs: [1; 32], http: [2; 32] };
        Keys { newest: Key::of(&material), former: None }
    }

    fn terms(&self) -> Terms {
        Terms { term: 5, floor: 4 }
    }

    fn newest_file(&self) -> FileId {
        FileId(7)
    }

    fn nfs_lease(&self) -> Duration {
        Duration::from_secs(90)
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn data_faces(&self) -> Option<Arc<dyn DataFaces>> {
        Some(Arc::clone(&self.faces) as Arc<dyn DataFaces>)
    }

    fn http(&self) -> Option<HeadHttp> {
        Some(HeadHttp { name: "head.example.org".to_owned(), port: 8080 })
    }
}

/// Holds every file; the count of the `Arc` has how many.
#[derive(Default)]
struct CountingFaces(Arc<()>);

#[async_trait]
impl DataFaces for CountingFaces {
    async fn hold(&self, _: PoolId, _: FileId, _: u64) -> Result<Option<(Hold, HeldVersion)>, Denied> {
        let time = types::Timestamp::new(1, 0).unwrap();
        let held = HeldVersion { birth: time, size: 1, mtime: time, io: types::IoMode::Auto };
        Ok(Some((Box::new(Arc::clone(&self.0)), held)))
    }

    async fn begin(&self, _: PoolId, _: FileId, _: bool) -> Result<Vec<types::ChecksumKind>, Denied> {
        unreachable!("no test begins an upload here")
    }

    fn put_off(&self, _: PoolId, _: FileId) {}

    fn give_up(&self, _: PoolId, _: FileId) {}

    async fn complete(&self, _: PoolId, _: FileId, _: ArrivedBytes) -> Result<StoredVersion, Denied> {
        unreachable!("no test completes an upload here")
    }
}

struct Head {
    address: SocketAddr,
    registry: Arc<TestRegistry>,
    tls: watch::Sender<Arc<ServerConfig>>,
    _stop: watch::Sender<bool>,
}

async fn head() -> Head {
    let authority = Authority::make(&CLUSTER).unwrap();
    let (tls, of_serve) = watch::channel(authority.server_config(None).unwrap());
    let authority = Mutex::new(Arc::new(authority));
    let (generation, faces) = (AtomicU32::new(0), Arc::default());
    let registry = Arc::new(TestRegistry { authority, faces, generation, seats: Mutex::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(serve(listener, of_serve, Arc::clone(&registry) as Arc<dyn Registry>, stopped));
    Head { address, registry, tls, _stop: stop }
}

struct Nothing;

#[async_trait]
impl Answerer for Nothing {
    async fn answer(&self, _: u32, _: Decoder) -> Result<Encoder, Refused> {
        Err(Refused::NoProcedure)
    }
}

impl Head {
    async fn dial(&self, tls: Arc<ClientConfig>) -> Arc<Connection> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(HEAD_NAME).unwrap();
        Connection::start(TlsConnector::from(tls).connect(name, stream).await.unwrap(), Arc::new(Nothing))
    }

    async fn stranger(&self) -> Arc<Connection> {
        self.dial(join_config(self.registry.authority().fingerprint()).unwrap()).await
    }

    async fn join(&self, key: &MemberKey, secret: [u8; 16]) -> Joined {
        let public_key = Opaque(key.public_key().into());
        let join = Join { secret, public_key, host: "host".to_owned(), pool: None };
        self.stranger().await.call(JOIN, &join, TIME).await.unwrap()
    }

    /// Connections of a host that has joined.
    async fn member(&self) -> Arc<ClientConfig> {
        let key = MemberKey::make().unwrap();
        let Joined::Pool { certificate, authority, .. } = self.join(&key, SECRET).await else {
            panic!("it is not let in")
        };
        client_config(&key, &certificate, &authority).unwrap()
    }
}

fn process(starts: u64) -> Incarnation {
    Incarnation::of(Process { starts, draw: starts })
}

fn hello(incarnation: u64, has_lease: bool) -> Hello {
    let status = PoolStatus::untold(POOL);
    Hello {
        version: VERSION,
        version_min: VERSION_MIN,
        cluster: CLUSTER,
        process: process(incarnation),
        has_lease,
        host: "host".to_owned(),
        program: "0.1.0".to_owned(),
        address: String::new(),
        nfs_port: 1,
        pool: POOL.0,
        clone_granularity: None,
        status: Status::of(&status),
        http: Added(None),
    }
}

async fn say(connection: &Connection, hello: &Hello) -> Result<Terms, String> {
    match connection.call::<_, Welcome>(HELLO, hello, TIME).await.unwrap() {
        Welcome::Welcome { terms, .. } => Ok(terms),
        Welcome::Refused { reason } => Err(reason),
    }
}

fn renewal() -> Renew {
    let held =
        Held { generation: 0, has_former: false, terms: Terms { term: 5, floor: 5 }, is_settled: true };
    Renew { held, status: hello(1, false).status }
}

#[tokio::test]
async fn a_token_opens_nothing_but_joining() {
    let head = head().await;
    let Joined::Refused { reason } = head.join(&MemberKey::make().unwrap(), [0; 16]).await else {
        panic!("a wrong secret is let in")
    };
    assert!(reason.contains("not known"), "{reason}");
    let stranger = head.stranger().await;
    assert!(say(&stranger, &hello(1, false)).await.unwrap_err().contains("no certificate"));
    let refused = stranger.call::<_, Renewed>(RENEW, &renewal(), TIME).await;
    assert!(matches!(refused, Err(CallError::Refused)));
    for procedure in [ATTACH, BYE, 0, 10, 11, 12, 28, 39, 40, 41, 42, 43, 59, CERTIFY, u32::MAX] {
        let refused = stranger.call::<_, ()>(procedure, &(), TIME).await;
        assert!(matches!(refused, Err(CallError::Refused)), "{procedure}");
    }
}

#[tokio::test]
async fn a_pool_says_hello_and_gets_a_lease() {
    let head = head().await;
    let tls = head.member().await;
    let control = head.dial(Arc::clone(&tls)).await;
    let early: Renewed = control.call(RENEW, &renewal(), TIME).await.unwrap();
    assert!(matches!(early, Renewed::Unknown), "it has said no hello");
    // It has no lease: tickets to write of the terms before are void there.
    assert_eq!(say(&control, &hello(1, false)).await, Ok(Terms { term: 5, floor: 5 }));
    let renewed: Renewed = control.call(RENEW, &renewal(), TIME).await.unwrap();
    let Renewed::Renewed { lease_ms, terms, keys, .. } = renewed else { panic!("it is not known") };
    assert_eq!((lease_ms, terms, keys.is_none()), (10_000, Terms { term: 5, floor: 4 }, true));
    let data = head.dial(Arc::clone(&tls)).await;
    assert!(data.call::<_, bool>(ATTACH, &Attach { process: process(1) }, TIME).await.unwrap());
    let stray = head.dial(tls).await;
    assert!(!stray.call::<_, bool>(ATTACH, &Attach { process: process(2) }, TIME).await.unwrap());
    let seat = head.registry.seats.lock()[&POOL].1.clone();
    assert!(seat.has_floor(Term(5)) && !seat.has_floor(Term(6)));
    control.call::<_, ()>(BYE, &(), TIME).await.unwrap();
    assert!(seat.has_floor(Term(6)), "it has no lease any more");
}

/// A data connection may end before the control connection; it was told of as lost.
#[tokio::test]
async fn a_pool_that_said_that_it_stops_loses_no_connection_until_it_comes_again() {
    let head = head().await;
    let tls = head.member().await;
    let control = head.dial(Arc::clone(&tls)).await;
    say(&control, &hello(1, false)).await.unwrap();
    let seat = head.registry.seats.lock()[&POOL].1.clone();
    let is_leaving = || seat.is_leaving.load(Ordering::Relaxed);
    assert!(!is_leaving());
    control.call::<_, ()>(BYE, &(), TIME).await.unwrap();
    assert!(is_leaving());
    let again = head.dial(tls).await;
    say(&again, &hello(2, false)).await.unwrap();
    assert!(!is_leaving());
}

#[tokio::test]
async fn a_pool_that_has_a_lease_keeps_its_floor() {
    let head = head().await;
    let control = head.dial(head.member().await).await;
    assert_eq!(say(&control, &hello(1, true)).await, Ok(Terms { term: 5, floor: 4 }));
}

#[tokio::test]
async fn a_process_that_came_before_does_not_take_the_place_of_a_later_one() {
    let head = head().await;
    let tls = head.member().await;
    let later = head.dial(Arc::clone(&tls)).await;
    say(&later, &hello(2, false)).await.unwrap();
    let earlier = head.dial(Arc::clone(&tls)).await;
    let refused = say(&earlier, &hello(1, false)).await;
    assert!(refused.unwrap_err().contains("later process"));
    let renewed: Renewed = later.call(RENEW, &renewal(), TIME).await.unwrap();
    assert!(matches!(renewed, Renewed::Renewed { .. }));
    // The same process dials again: its connection of before ends.
    let again = head.dial(tls).await;
    say(&again, &hello(2, true)).await.unwrap();
    later.closed().await;
}

#[tokio::test]
async fn a_pool_that_was_removed_and_one_of_another_cluster_are_refused() {
    let head = head().await;
    let tls = head.member().await;
    let connection = head.dial(Arc::clone(&tls)).await;
    let strange = Hello { cluster: [0; 16], ..hello(1, false) };
    assert!(say(&connection, &strange).await.unwrap_err().contains("another cluster"));
    let strange = Hello { pool: 4, ..hello(1, false) };
    assert!(say(&connection, &strange).await.unwrap_err().contains("pool-4"));
    let strange = Hello { version: 9, version_min: 8, ..hello(1, false) };
    assert!(say(&connection, &strange).await.unwrap_err().contains("versions 8 to 9"));
    head.registry.set_keys(POOL, Vec::new());
    connection.closed().await;
    let connection = head.dial(tls).await;
    assert!(say(&connection, &hello(1, false)).await.unwrap_err().contains("does not belong"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_cut() {
    let head = head().await;
    let stranger = head.stranger().await;
    tokio::time::timeout(Duration::from_secs(60), stranger.closed()).await.expect("it is cut");
}

/// Draws the same number each time.
struct OneNumber;

impl types::Random for OneNumber {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(1);
    }
}

#[tokio::test]
async fn a_pool_holds_files_after_its_hello_and_until_its_session_ends() {
    let head = head().await;
    let control = head.dial(head.member().await).await;
    let link = FaceLink::new(Arc::new(OneNumber));
    link.connect(Arc::clone(&control), None);
    let held = || Arc::strong_count(&head.registry.faces.0) - 1;
    assert!(link.hold(FileId(7), 1).await.is_err(), "it has said no hello");
    let welcome: Welcome = control.call(HELLO, &hello(1, false), TIME).await.unwrap();
    let Welcome::Welcome { http, .. } = welcome else { panic!("it is refused") };
    assert_eq!(http.0, head.registry.http());
    let _hold = link.hold(FileId(7), 1).await.unwrap().expect("it is held");
    assert_eq!(held(), 1);
    control.close();
    let all = async {
        while held() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIME, all).await.expect("nothing is held any more");
}

#[tokio::test]
async fn a_pool_with_a_face_that_cannot_be_is_refused() {
    let head = head().await;
    let control = head.dial(head.member().await).await;
    let face = HttpFace { port: 0, ..HttpFace::default() };
    let strange = Hello { http: Added(Some(ToldFace::of(&face))), ..hello(1, false) };
    assert!(say(&control, &strange).await.unwrap_err().contains("port"));
}

#[test]
fn strangers_of_one_address_keep_no_other_out() {
    let crowd = Crowd::new(20, 4);
    let admit = |address: &str| crowd.admit(neighbourhood(address.parse().unwrap()));
    let mut of_one: Vec<_> = (0..4).map(|_| admit("192.0.2.1").unwrap()).collect();
    assert!(admit("192.0.2.1").is_none() && admit("::ffff:192.0.2.1").is_none());
    assert!(admit("192.0.2.2").is_some());
    of_one.pop();
    assert!(admit("192.0.2.1").is_some());
    let _of_network: Vec<_> = (0..4).map(|last| admit(&format!("2001:db8::{last}")).unwrap()).collect();
    assert!(admit("2001:db8::5").is_none() && admit("2001:db8:0:1::5").is_some());
    let all: Vec<_> = (0..40).filter_map(|last| admit(&format!("198.51.100.{last}"))).collect();
    assert_eq!(all.len() + of_one.len() + 4, 20);
}

/// A host that is shut out by a crowd would lose its lease.
#[tokio::test]
async fn a_silent_crowd_of_one_host_has_a_bound() {
    let head = head().await;
    let mut crowd = Vec::new();
    for _ in 0..STRANGERS_OF_ADDRESS_MAX {
        crowd.push(TcpStream::connect(head.address).await.unwrap());
    }
    let mut late = TcpStream::connect(head.address).await.unwrap();
    let mut byte = [0; 1];
    let read = tokio::io::AsyncReadExt::read(&mut late, &mut byte);
    // Those that have a place are cut later than that.
    let refused = tokio::time::timeout(ARRIVAL_TIME / 2, read).await;
    assert_eq!(refused.expect("it has no place").unwrap_or(0), 0);
}
