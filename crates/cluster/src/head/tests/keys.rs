//! Pool hosts whose keys are rotated, and who are shut out.

use std::time::Instant;

use cluster_state::HeldLease;
use testkit::memory_pool::MemoryPool;

use super::*;
use crate::MakingPool;
use crate::member::{KeyRing, MemberConfig, PoolMember};
use crate::rotation::{KeySet, KeyStore};
use crate::transport::TlsDialer;

/// Waits are for events; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

struct RunningClock(Instant);

impl Clock for RunningClock {
    fn now(&self) -> types::Timestamp {
        types::Timestamp::new(1, 0).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// For holds, of which there are none.
struct NoChance;

impl types::Random for NoChance {
    fn fill(&self, _: &mut [u8]) {}
}

/// A disk in memory: the keys in use, and the next ones.
#[derive(Default)]
struct Disk {
    kept: Mutex<(Option<Fingerprint>, Option<Fingerprint>)>,
    /// It does not note that keys were adopted.
    forgets: AtomicBool,
}

impl KeyStore for Disk {
    fn keep_next(&self, next: &KeySet) -> Result<(), String> {
        self.kept.lock().1 = Some(next.key.fingerprint());
        Ok(())
    }

    fn adopt_next(&self) -> Result<(), String> {
        if self.forgets.load(Ordering::Relaxed) {
            return Err("it is full".to_owned());
        }
        let mut kept = self.kept.lock();
        kept.0 = kept.1.take();
        Ok(())
    }
}

struct Host {
    member: Arc<PoolMember>,
    disk: Arc<Disk>,
    stop: watch::Sender<bool>,
}

impl Host {
    fn start(head: &Head, current: &KeySet, next: Option<&KeySet>, starts: u64) -> Host {
        let disk = Arc::new(Disk::default());
        *disk.kept.lock() = (Some(current.key.fingerprint()), next.map(|next| next.key.fingerprint()));
        let keys = KeyRing::new(Arc::clone(&disk) as _, current, next).unwrap();
        let config = MemberConfig {
            cluster: CLUSTER,
            addresses: vec![head.address.to_string()],
            keys,
            dialer: Arc::new(TlsDialer),
            process: Process { starts, draw: 1 },
            host: "host".to_owned(),
            program: "0.1.0".to_owned(),
            address: None,
            nfs_port: 1,
            http: None,
        };
        let (pool, lease) =
            (MakingPool::new(Arc::new(MemoryPool::new(POOL))), Arc::new(HeldLease::default()));
        let clock: Arc<dyn Clock> = Arc::new(RunningClock(Instant::now()));
        let member = PoolMember::new(config, pool, lease, (clock, Arc::new(NoChance)));
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Arc::clone(&member).run(stopped));
        Host { member, disk, stop }
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Host) -> bool) {
        let looking = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, looking).await;
        assert!(seen.is_ok(), "{what}: {:?}", self.member.standing());
    }
}

impl Head {
    async fn joined(&self) -> KeySet {
        let key = MemberKey::make().unwrap();
        let Joined::Pool { certificate, authority, generation, .. } = self.join(&key, SECRET).await else {
            panic!("it is not let in")
        };
        KeySet { generation, key, certificate, authority }
    }

    /// Both authorities are accepted from now on.
    fn rotate(&self) {
        let made = Arc::new(Authority::make(&CLUSTER).unwrap());
        let former = std::mem::replace(&mut *self.registry.authority.lock(), Arc::clone(&made));
        self.tls.send_replace(made.server_config(Some(&former)).unwrap());
        self.registry.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn end_overlap(&self) {
        self.tls.send_replace(self.registry.authority().server_config(None).unwrap());
    }

    async fn dial_by(&self, Dialling { tls, name }: Dialling) -> std::io::Result<Arc<Connection>> {
        let stream = TcpStream::connect(self.address).await?;
        let stream = TlsConnector::from(tls).connect(name, stream).await?;
        Ok(Connection::start(stream, Arc::new(Nothing)))
    }
}

fn has_lease(host: &Host) -> bool {
    host.member.has_lease()
}

#[tokio::test]
async fn a_pool_host_takes_new_keys_and_its_former_key_is_refused() {
    let head = head().await;
    let first = head.joined().await;
    let host = Host::start(&head, &first, None, 1);
    host.until("the first lease", has_lease).await;
    head.rotate();
    let (watched, former) = (Arc::clone(&host.member), first.key.fingerprint());
    let has_rotated = move |host: &Host| {
        // No client that writes is interrupted.
        assert!(watched.has_lease());
        host.disk.kept.lock().0 != Some(former)
    };
    host.until("a rotation", has_rotated).await;
    let kept = host.disk.kept.lock().0.unwrap();
    assert_eq!(head.registry.keys_of(POOL), [kept]);
    host.until("its connection", |host| host.member.standing().is_connected).await;
    // A thief of the former key is told so in a line.
    let stolen = head.dial_by(first.dialling().unwrap()).await.unwrap();
    assert!(say(&stolen, &hello(9, false)).await.unwrap_err().contains("does not belong"));
    head.end_overlap();
    head.dial_by(first.dialling().unwrap()).await.err().expect("nobody has its authority any more");
    host.until("a lease", has_lease).await;
    assert_eq!(host.member.standing().sessions, 2);
    let _ = host.stop.send(true);
}

#[tokio::test]
async fn a_pool_host_that_was_away_takes_new_keys_when_it_is_back() {
    let head = head().await;
    let first = head.joined().await;
    head.rotate();
    let host = Host::start(&head, &first, None, 1);
    host.until("a rotation", |host| host.disk.kept.lock().0 != Some(first.key.fingerprint())).await;
    host.until("a lease", has_lease).await;
}

/// The head has noted the next key, and the host has stopped before it noted so.
#[tokio::test]
async fn a_host_that_stopped_before_it_adopted_its_keys_comes_back_with_them() {
    let head = head().await;
    let first = head.joined().await;
    let second = head.further(&first).await;
    head.registry.used(POOL, second.key.fingerprint()).await;
    assert_eq!(head.registry.keys_of(POOL), [second.key.fingerprint()]);
    let host = Host::start(&head, &first, Some(&second), 2);
    host.until("a lease", has_lease).await;
    host.until("its keys", |host| host.disk.kept.lock().0 == Some(second.key.fingerprint())).await;
}

/// A head that was put back from a copy.
#[tokio::test]
async fn a_host_whose_next_key_the_head_does_not_know_comes_back_with_the_former_one() {
    let head = head().await;
    let first = head.joined().await;
    let second = head.further(&first).await;
    head.registry.set_keys(POOL, vec![first.key.fingerprint()]);
    let host = Host::start(&head, &first, Some(&second), 2);
    host.until("a lease", has_lease).await;
    assert_eq!(host.disk.kept.lock().0, Some(first.key.fingerprint()));
}

#[tokio::test]
async fn a_disk_that_does_not_note_the_new_keys_interrupts_nothing() {
    let head = head().await;
    let first = head.joined().await;
    let host = Host::start(&head, &first, None, 1);
    host.disk.forgets.store(true, Ordering::Relaxed);
    host.until("the first lease", has_lease).await;
    head.rotate();
    host.until("new keys", |_| head.registry.keys_of(POOL) != [first.key.fingerprint()]).await;
    host.until("one key", |_| head.registry.keys_of(POOL).len() == 1).await;
    host.until("its connection", |host| host.member.standing().is_connected && has_lease(host)).await;
}

#[tokio::test]
async fn a_pool_host_that_is_shut_out_is_cut_within_a_second() {
    let head = head().await;
    let first = head.joined().await;
    let tls = client_config(&first.key, &first.certificate, &first.authority).unwrap();
    let (control, data) = (head.dial(Arc::clone(&tls)).await, head.dial(Arc::clone(&tls)).await);
    say(&control, &hello(1, false)).await.unwrap();
    assert!(data.call::<_, bool>(ATTACH, &Attach { process: process(1) }, TIME).await.unwrap());
    // One that has not said what it is for.
    let idle = head.dial(Arc::clone(&tls)).await;
    assert!(matches!(idle.call(RENEW, &renewal(), TIME).await, Ok(Renewed::Unknown)));
    let seat = head.registry.seats.lock()[&POOL].1.clone();
    head.registry.set_keys(POOL, Vec::new());
    let cut = async {
        control.closed().await;
        data.closed().await;
        idle.closed().await;
    };
    tokio::time::timeout(Duration::from_secs(1), cut).await.expect("its connections end");
    // Neither is it asked for anything.
    let gone = async {
        while seat.pool.report().connections > 0 || seat.pool.is_heard() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), gone).await.expect("its session ends");
    let again = head.dial(tls).await;
    assert!(say(&again, &hello(1, true)).await.unwrap_err().contains("does not belong"));
    let refused = again.call::<_, Renewed>(RENEW, &renewal(), TIME).await;
    assert!(matches!(refused, Err(CallError::Refused)), "it gets no lease");
}

impl Head {
    /// A further key of the host, certified over a link that shows its key.
    async fn further(&self, of: &KeySet) -> KeySet {
        let link = self.dial_by(of.dialling().unwrap()).await.unwrap();
        say(&link, &hello(1, false)).await.unwrap();
        let key = MemberKey::make().unwrap();
        let certify = Certify { public_key: Opaque(key.public_key().into()) };
        let certified: Certified = link.call(CERTIFY, &certify, TIME).await.unwrap();
        let Certified::Certificate { generation, certificate, authority } = certified else {
            panic!("it gets no certificate")
        };
        link.close();
        KeySet { generation, key, certificate, authority }
    }
}
