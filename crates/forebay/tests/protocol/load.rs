//! Many clients at once, with and without a crash in between: acknowledged data is there, and fsck finds nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nfs4::{FfLayoutReturn4, LayoutIomode4, NfsFh4, StableHow4, StateId4};
use testkit::nfs_client::{ClientError, ClientOptions, NfsClient, when_ready};

use crate::server::{Instance, Server, Setup};

const CLIENTS: u32 = 6;

fn content(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(20_000).collect()
}

/// One file from creation to close, its bytes by way of the pool; acknowledged when this returns.
fn make(client: &mut NfsClient, pools: &mut Pools, dir: &NfsFh4, name: &str) -> Result<(), ClientError> {
    // A server that has just come back may not have ended its grace period yet.
    let file = when_ready(|| client.create(dir, name))?;
    let layout = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw)?;
    let pool = pools.of(client, &layout)?;
    let (stateid, data) = (layout.data_server().stateid, content(name));
    pool.write(layout.ticket(), stateid, 0, StableHow4::Unstable, &data)?;
    pool.commit(layout.ticket())?;
    client.layout_commit(&file.handle, layout.stateid, Some(data.len() as u64 - 1))?;
    client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default())?;
    client.close(&file)
}

/// One session for each data server, as Linux keeps them.
#[derive(Default)]
struct Pools(HashMap<nfs4::DeviceId4, NfsClient>);

impl Pools {
    fn of(
        &mut self,
        client: &mut NfsClient,
        layout: &testkit::nfs_client::Layout,
    ) -> Result<&mut NfsClient, ClientError> {
        match self.0.entry(layout.device()) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => Ok(entry.insert(client.data_server(layout)?)),
        }
    }
}

fn assert_clean(instance: &Instance) {
    let fsck = instance.run(&["fsck"]);
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
}

#[test]
fn many_clients_in_one_directory_leave_it_as_they_say() {
    let (instance, server) = Server::start_with(Setup { pools: 3, ..Setup::default() });
    let root = server.client("host").root().unwrap();
    let work = |head: SocketAddr, number: u32| {
        let mut client = NfsClient::connect(head, ClientOptions::named(&format!("host{number}"))).unwrap();
        let mut pools = Pools::default();
        for n in 0..30 {
            let name = format!("c{number}n{n}");
            make(&mut client, &mut pools, &root, &name).unwrap();
            match n % 3 {
                0 => client.remove(&root, &name).unwrap(),
                1 => client.rename((&root, &name), (&root, &format!("{name}moved"))).unwrap(),
                _ => {}
            }
        }
    };
    let head = server.head();
    std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|number| {
            let work = &work;
            scope.spawn(move || work(head, number));
        });
    });
    let mut client = server.client("host");
    assert_eq!(client.list(&root, 1 << 16).unwrap().len(), CLIENTS as usize * 20);
    for number in 0..CLIENTS {
        let kept = client.lookup(&root, &format!("c{number}n2")).unwrap();
        let read = when_ready(|| client.read(&kept, StateId4::ANONYMOUS, 0, 30_000)).unwrap();
        assert_eq!(read.data[..], content(&format!("c{number}n2")));
    }
    assert_clean(&instance);
}

#[test]
fn data_acknowledged_before_a_kill_under_load_is_there() {
    let (instance, mut server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let root = server.client("host").root().unwrap();
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..4 {
        let (head, count) = (server.head(), AtomicU64::new(0));
        let work = |number: u32| {
            let options = ClientOptions::named(&format!("host{number}"));
            let Ok(mut client) = NfsClient::connect(head, options) else { return Vec::new() };
            let mut pools = Pools::default();
            let mut made = Vec::new();
            for n in 0.. {
                let name = format!("r{round}c{number}n{n}");
                if make(&mut client, &mut pools, &root, &name).is_err() {
                    return made;
                }
                made.push(name);
                count.fetch_add(1, Ordering::Relaxed);
            }
            made
        };
        let made: Vec<Vec<String>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let work = &work;
                    scope.spawn(move || work(number))
                })
                .collect();
            let deadline = Instant::now() + Duration::from_secs(60);
            while count.load(Ordering::Relaxed) < 40 {
                assert!(Instant::now() < deadline, "nothing gets done");
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        acknowledged.extend(made.into_iter().flatten());
        assert_clean(&instance);
        server = instance.up();
        let mut client = server.client("reader");
        for name in &acknowledged {
            let file = client.lookup(&root, name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let read = when_ready(|| client.read(&file, StateId4::ANONYMOUS, 0, 30_000)).unwrap();
            assert_eq!(read.data[..], content(name), "{name}");
        }
    }
    assert_clean(&instance);
}
