//! Security flavors by export: a client that uses AUTH_SYS where an export requires Kerberos.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Birth, Conditions, CreateKind, Demand, KeyGeneration, Term, Ticket, TicketKeys, TicketMode};
use bytes::Bytes;
use forebay_door_nfs::{
    Export, ExportRules, Flavor, Flavors, Flight, Hosts, PoolDoor, PoolDoorConfig, Security, ServedHosts,
    Squash,
};
use nfs4::attr::number;
use nfs4::{
    Copy4Args, FileAttributes, NfsArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_READ, RpcGssSvc, SecInfo4,
    SecInfo4Args, SecInfoNoName4Args, SecInfoStyle4, StateId4,
};
use testkit::body;
use testkit::memory_pool::MemoryPool;
use testkit::nfs_client::{ClientOptions, NfsClient, Reply, ops};
use tokio::net::TcpListener;
use types::{Epoch, FileId, PoolId};

use crate::ground::{Ground, client, name, status_of};

const POOL: PoolId = PoolId(3);
/// The pool has its replica.
const FILE: FileId = FileId(7);

fn export(path: &[&str], flavors: &[Flavor]) -> Export {
    let (anonymous, flavors) = ((77, 78), Flavors::new(flavors));
    let rules = ExportRules { is_read_only: false, squash: Squash::None, anonymous, flavors };
    Export { path: path.iter().map(|text| name(text)).collect(), hosts: vec![Hosts::Any], rules }
}

/// `/a`, and `/a/secret` with `file` in it, for which krb5p or krb5i are asked.
struct Scene {
    host: NfsClient,
    a: NfsFh4,
    secret: NfsFh4,
    file: NfsFh4,
    /// In `/a`.
    open: NfsFh4,
}

impl Scene {
    fn set() -> Scene {
        let ground = Box::leak(Box::new(Ground::new()));
        let a = ground.make(FileId::ROOT, "a", CreateKind::Directory, 0o777);
        ground.make(a, "open", CreateKind::Regular, 0o666);
        let secret = ground.make(a, "secret", CreateKind::Directory, 0o777);
        ground.make(secret, "file", CreateKind::Regular, 0o666);
        let mut all = client(ground.door(vec![Export::of_everything(Squash::None)]), "all");
        let mut find = |dir: &NfsFh4, name| all.lookup(dir, name).unwrap();
        let root = client(ground.door(vec![Export::of_everything(Squash::None)]), "root").root().unwrap();
        let a = find(&root, "a");
        let (secret, open) = (find(&a, "secret"), find(&a, "open"));
        let file = find(&secret, "file");
        let exports =
            vec![export(&[], &[Flavor::Sys]), export(&["a", "secret"], &[Flavor::Krb5p, Flavor::Krb5i])];
        Scene { host: client(ground.door(exports), "host"), a, secret, file, open }
    }

    fn status(&mut self, operations: &[NfsArgop4]) -> NfsStat4 {
        status_of(self.host.call(operations))
    }

    fn services(&mut self, operations: &[NfsArgop4]) -> Vec<Option<RpcGssSvc>> {
        let reply: Reply = self.host.call(operations).unwrap();
        let named = body!(reply, SecInfo).or_else(|| body!(reply, SecInfoNoName)).unwrap();
        let service = |info: &SecInfo4| match info {
            SecInfo4::RpcSecGss(info) => Some(info.service),
            SecInfo4::Flavor(_) => None,
        };
        named.flavors.iter().map(service).collect()
    }
}

fn secinfo(name: &str) -> NfsArgop4 {
    NfsArgop4::SecInfo(SecInfo4Args { name: nfs4::Component4::from(name) })
}

fn secinfo_no_name(style: SecInfoStyle4) -> NfsArgop4 {
    NfsArgop4::SecInfoNoName(SecInfoNoName4Args { style })
}

#[test]
fn a_handle_in_an_export_with_kerberos_is_refused_where_it_is_put_down_unless_nothing_is_done_with_it() {
    let mut scene = Scene::set();
    let (secret, file, open) =
        (ops::put_fh(&scene.secret), ops::put_fh(&scene.file), ops::put_fh(&scene.open));
    let wanted = ops::get_attr(&[number::SIZE]);
    for refused in [
        vec![file.clone(), wanted.clone()],
        vec![file.clone(), NfsArgop4::GetFh],
        vec![file.clone(), ops::read(StateId4::ANONYMOUS, 0, 10)],
        vec![secret.clone(), ops::read_dir(0, 4096, &[])],
        // The handle is let through for what follows, and what comes after that is judged.
        vec![file.clone(), NfsArgop4::SaveFh, wanted.clone()],
        vec![file.clone(), NfsArgop4::SaveFh, open.clone(), NfsArgop4::RestoreFh, wanted.clone()],
        vec![file.clone(), NfsArgop4::SaveFh, ops::put_fh(&scene.a), ops::link("link")],
        vec![secret.clone(), NfsArgop4::SaveFh, ops::put_fh(&scene.a), ops::rename("file", "stolen")],
    ] {
        assert_eq!(scene.status(&refused), NfsStat4::WrongSec, "{refused:?}");
    }
    for good in [
        vec![file.clone()],
        vec![file.clone(), open.clone(), wanted.clone()],
        vec![file.clone(), NfsArgop4::SaveFh],
        vec![open.clone(), wanted],
    ] {
        assert_eq!(scene.status(&good), NfsStat4::Ok, "{good:?}");
    }
    let copy = Copy4Args {
        src_stateid: StateId4::ANONYMOUS,
        dst_stateid: StateId4::ANONYMOUS,
        src_offset: 0,
        dst_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: true,
        source_server: Vec::new(),
    };
    let copying = [file, NfsArgop4::SaveFh, open, NfsArgop4::Copy(copy)];
    assert_eq!(scene.status(&copying), NfsStat4::Access);
}

#[test]
fn the_crossing_into_an_export_with_kerberos_is_refused_and_what_is_behind_it_is_not_told() {
    let mut scene = Scene::set();
    let (a, secret) = (ops::put_fh(&scene.a), ops::put_fh(&scene.secret));
    assert_eq!(scene.status(&[a.clone(), ops::lookup("secret")]), NfsStat4::WrongSec);
    for name in ["file", "nothing"] {
        assert_eq!(scene.status(&[secret.clone(), ops::lookup(name)]), NfsStat4::WrongSec);
        let open = ops::open("owner", OPEN4_SHARE_ACCESS_READ, nfs4::OpenFlag4::NoCreate, name);
        assert_eq!(scene.status(&[secret.clone(), open]), NfsStat4::WrongSec);
    }
    assert_eq!(scene.status(&[secret.clone(), NfsArgop4::LookupP, NfsArgop4::GetFh]), NfsStat4::Ok);

    let wanted = [number::RDATTR_ERROR, number::SIZE, number::MODE, number::MOUNTED_ON_FILEID];
    let reply = scene.host.call(&[a, ops::read_dir(0, 4096, &wanted)]).unwrap();
    for entry in body!(reply, ReadDir).unwrap().entries {
        let told = FileAttributes::decode(&entry.attrs).unwrap();
        let is_secret = entry.name.as_bytes() == b"secret";
        assert_eq!(told.rdattr_error == Some(NfsStat4::WrongSec), is_secret);
        assert_eq!(told.mode.is_none(), is_secret);
        assert!(told.mounted_on_fileid.is_some());
    }
}

#[test]
fn secinfo_says_what_the_export_takes_to_which_the_name_leads() {
    let mut scene = Scene::set();
    let (a, secret) = (ops::put_fh(&scene.a), ops::put_fh(&scene.secret));
    let kerberos = [Some(RpcGssSvc::Privacy), Some(RpcGssSvc::Integrity)];
    assert_eq!(scene.services(&[a.clone(), secinfo("secret")]), kerberos);
    assert_eq!(scene.services(&[a.clone(), secinfo("open")]), [None]);
    assert_eq!(scene.status(&[a.clone(), secinfo("nothing")]), NfsStat4::NoEnt);
    for name in ["file", "nothing"] {
        assert_eq!(scene.services(&[secret.clone(), secinfo(name)]), kerberos, "names are not told");
    }
    let (current, parent) =
        (secinfo_no_name(SecInfoStyle4::CurrentFh), secinfo_no_name(SecInfoStyle4::Parent));
    assert_eq!(scene.services(&[secret.clone(), current.clone()]), kerberos);
    assert_eq!(scene.services(&[secret.clone(), parent]), [None]);
    assert_eq!(scene.services(&[NfsArgop4::PutRootFh, current.clone()]), [None]);
    let consumed = [secret, current, NfsArgop4::GetFh];
    assert_eq!(scene.status(&consumed), NfsStat4::NoFileHandle);
}

fn keys() -> TicketKeys {
    TicketKeys::new(&[1; 32], Term::FIRST, KeyGeneration::FIRST)
}

/// A door of a pool with one replica.
fn pool_door(ground: &Ground, connections_max: usize, hosts: Vec<Hosts>) -> SocketAddr {
    let config = PoolDoorConfig {
        instance: [2; 16],
        lease: crate::ground::LONG,
        clients_max: 10,
        connections_max,
        flight: Flight::new(1 << 20),
        slots_max: 16,
        security: Security::sys(),
        hosts: ServedHosts::of(&[Export { hosts, ..Export::of_everything(Squash::All) }]),
    };
    let (clock, random) = ground.chances();
    let (key, observer) = (keys().pool_key(POOL), Arc::new(api::Unobserved));
    let pool = MemoryPool::new(POOL);
    pool.put(FILE, Birth::UNKNOWN, "data");
    let door = PoolDoor::start(Arc::new(pool), key, clock, random, observer, config);
    let stopped = ground.stopped();
    ground.runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(door.serve(listener, stopped));
        address
    })
}

/// The status of a READ with a ticket to that pool.
fn read_by_ticket(host: &mut NfsClient, presence: api::Presence, demand: Demand) -> NfsStat4 {
    read_with_conditions(host, presence, Conditions::of_sole_replica(demand))
}

fn read_with_conditions(host: &mut NfsClient, presence: api::Presence, conditions: Conditions) -> NfsStat4 {
    let ticket = Ticket {
        file: FILE,
        birth: Birth::UNKNOWN,
        pool: POOL,
        mode: TicketMode::ReadWrite,
        epoch: Epoch(0),
        presence,
        io: types::IoMode::Auto,
    };
    let handle = NfsFh4::from(Bytes::copy_from_slice(&keys().seal(&ticket, conditions)));
    status_of(host.call(&[ops::put_fh(&handle), ops::read(StateId4::ANONYMOUS, 0, 10)]))
}

#[test]
fn a_ticket_of_an_export_with_kerberos_is_good_for_nothing_at_the_pool_by_auth_sys() {
    let ground = Ground::new();
    let mut host = client(pool_door(&ground, 10, vec![Hosts::Any]), "host");
    let mut reads = |demand| read_by_ticket(&mut host, api::Presence::Unmade, demand);
    let (sys, krb5, krb5p) = (1, 2, 8);
    for demand in [Demand(krb5p), Demand(krb5 | krb5p), Demand(0)] {
        assert_eq!(reads(demand), NfsStat4::WrongSec, "{demand:?}");
    }
    assert_eq!(reads(Demand(sys | krb5p)), NfsStat4::Ok);
}

#[test]
fn a_pool_without_a_lease_honours_no_ticket_of_a_mirror_or_of_a_replica_that_is_being_filled() {
    let ground = Ground::new();
    let address = pool_door(&ground, 16, vec![Hosts::Network("192.0.2.0/24".parse().unwrap())]);
    let mut host = client(address, "host");
    let sole = Conditions::of_sole_replica(Demand(1));
    for conditions in [Conditions { is_mirrored: true, ..sole }, Conditions { is_write_only: true, ..sole }] {
        assert_eq!(read_with_conditions(&mut host, api::Presence::Made, conditions), NfsStat4::Stale);
    }
    assert!(NfsClient::connect(address, ClientOptions::named("another")).is_err(), "no ticket was shown");
}

#[test]
fn a_host_without_an_export_shares_a_few_places_at_a_pool_until_it_shows_a_ticket() {
    let ground = Ground::new();
    // A 16th is one.
    let address = pool_door(&ground, 16, vec![Hosts::Network("192.0.2.0/24".parse().unwrap())]);
    let mut host = client(address, "host");
    assert!(NfsClient::connect(address, ClientOptions::named("another")).is_err(), "the place is taken");
    // By the second the first is known.
    for _ in 0..2 {
        assert_eq!(read_by_ticket(&mut host, api::Presence::Made, Demand(1)), NfsStat4::Ok);
    }
    client(address, "another");
}

#[test]
fn an_export_that_comes_while_a_client_is_there_is_found_by_it() {
    let ground = Ground::new();
    let a = ground.make(FileId::ROOT, "a", CreateKind::Directory, 0o755);
    let mut host = client(ground.door(vec![export(&["a", "b"], &[Flavor::Sys])]), "host");
    let root = host.root().unwrap();
    assert_eq!(status_of(host.lookup(&root, "a")), NfsStat4::NoEnt, "it leads nowhere yet");
    ground.make(a, "b", CreateKind::Directory, 0o755);
    let begun = Instant::now();
    while status_of(host.lookup(&root, "a")) != NfsStat4::Ok {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is never found");
        std::thread::sleep(Duration::from_millis(50));
    }
    let a = host.lookup(&root, "a").unwrap();
    assert!(host.lookup(&a, "b").is_ok());
}
