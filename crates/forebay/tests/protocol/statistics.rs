//! Reports of clients on how long their I/O took (RFC 7862 §15.7, RFC 8435 §9.2), and their effects.

use std::time::{Duration, Instant};

use nfs4::{
    FfIoLatency4, FfIoStats4, FfLayoutReturn4, FfLayoutUpdate4, IoInfo4, LayoutIomode4, LayoutStats4Args,
    LayoutType4, LayoutUpdate4, NetAddr4, NfsArgop4, NfsFh4, NfsStat4, NfsTime4, StateId4, encode_body,
};
use testkit::nfs_client::{Layout, NfsClient, OpenFile, ops, socket_address};
use xdr::Opaque;

use crate::server::{Instance, Server, Setup, status_of};

const WAIT: Duration = Duration::from_secs(60);

fn layout_of(client: &mut NfsClient, file: &OpenFile) -> Layout {
    client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap()
}

/// At which of the server's pools.
fn place(client: &mut NfsClient, server: &Server, layout: &Layout) -> usize {
    let (device, _) = client.device_info(layout.device()).unwrap();
    let port = device.netaddrs.iter().find_map(socket_address).unwrap().port();
    server.pools.iter().position(|pool| pool.port() == port).unwrap()
}

/// A file at each of two pools.
fn at_both(client: &mut NfsClient, server: &Server, name: &str) -> [(OpenFile, Layout); 2] {
    let root = client.root().unwrap();
    let mut found = [None, None];
    for n in 0..100 {
        let file = client.create(&root, &format!("{name}{n}")).unwrap();
        let layout = layout_of(client, &file);
        let pool = place(client, server, &layout);
        found[pool] = Some((file, layout));
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.map(|found| found.expect("files spread over the pools"))
}

/// A hundred writes of 1 MiB, each of which took so many seconds.
fn writes(layout: &Layout, each_s: i64) -> FfLayoutUpdate4 {
    FfLayoutUpdate4 {
        addr: NetAddr4 { netid: "tcp".into(), addr: "127.0.0.1.8.1".into() },
        fhandle: layout.ticket().clone(),
        read: FfIoLatency4::default(),
        write: FfIoLatency4 {
            ops_requested: 100,
            bytes_requested: 100 << 20,
            ops_completed: 100,
            bytes_completed: 100 << 20,
            bytes_not_delivered: 0,
            total_busy_time: NfsTime4 { seconds: 100 * each_s, nseconds: 0 },
            aggregate_completion_time: NfsTime4 { seconds: 100 * each_s, nseconds: 0 },
        },
        duration: NfsTime4 { seconds: 30, nseconds: 0 },
        local: false,
    }
}

fn statistics(layout: &Layout, stateid: StateId4, body: Opaque) -> LayoutStats4Args {
    LayoutStats4Args {
        offset: 0,
        length: u64::MAX,
        stateid,
        read: IoInfo4::default(),
        write: IoInfo4 { count: 100, bytes: 100 << 20 },
        deviceid: layout.device(),
        layoutupdate: LayoutUpdate4 { layout_type: LayoutType4::FLEX_FILES, body },
    }
}

fn tell(client: &mut NfsClient, handle: &NfsFh4, told: LayoutStats4Args) -> NfsStat4 {
    status_of(client.call(&[ops::put_fh(handle), NfsArgop4::LayoutStats(told)]))
}

fn tell_writes(client: &mut NfsClient, (file, layout): &(OpenFile, Layout), each_s: i64) {
    let told = statistics(layout, layout.stateid, encode_body(&writes(layout, each_s)));
    assert_eq!(tell(client, &file.handle, told), NfsStat4::Ok);
}

/// As Linux gives a layout back.
fn return_with(client: &mut NfsClient, (file, layout): &(OpenFile, Layout), each_s: i64) {
    let stats = FfIoStats4 {
        offset: 0,
        length: u64::MAX,
        stateid: layout.stateid,
        read: IoInfo4::default(),
        write: IoInfo4 { count: 100, bytes: 100 << 20 },
        deviceid: layout.device(),
        layoutupdate: writes(layout, each_s),
    };
    let report = FfLayoutReturn4 { ioerr_report: Vec::new(), iostats_report: vec![stats] };
    client.layout_return(&file.handle, layout.stateid, &report).unwrap();
}

fn pool_list(instance: &Instance) -> String {
    String::from_utf8(instance.run(&["pool", "list"]).stdout).unwrap()
}

#[test]
fn a_pool_that_clients_tell_is_slow_gets_fewer_files() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let (mut one, mut two) = (server.client("one"), server.client("two"));
    let [slow, fast] = at_both(&mut one, &server, "one");
    tell_writes(&mut one, &slow, 3);
    tell_writes(&mut one, &fast, 1);
    let [slow, fast] = at_both(&mut two, &server, "two");
    return_with(&mut two, &slow, 3);
    return_with(&mut two, &fast, 1);

    let deadline = Instant::now() + WAIT;
    while pool_list(&instance) != "pool    state\npool-0  enabled; slow to clients\npool-1  enabled\n" {
        assert!(Instant::now() < deadline, "{}", pool_list(&instance));
        std::thread::sleep(Duration::from_millis(100));
    }
    let root = one.root().unwrap();
    let mut counts = [0; 2];
    for n in 0..400 {
        let file = one.create(&root, &format!("file{n}")).unwrap();
        let layout = layout_of(&mut one, &file);
        counts[place(&mut one, &server, &layout)] += 1;
        one.close(&file).unwrap();
    }
    // 133 are expected, and 200 where pools are alike; both within 10, mostly.
    assert!((80..175).contains(&counts[0]), "{counts:?}");
}

#[test]
fn statistics_that_mean_nothing_are_borne() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let layout = layout_of(&mut client, &file);
    assert_eq!(layout.body.stats_collect_hint, 60, "so often they are wanted");

    let good = statistics(&layout, layout.stateid, encode_body(&writes(&layout, 1)));
    let mut tell = |told: LayoutStats4Args| tell(&mut client, &file.handle, told);
    assert_eq!(tell(good.clone()), NfsStat4::Ok);
    let torn = statistics(&layout, layout.stateid, Opaque(vec![0xff; 60].into()));
    assert_eq!(tell(torn), NfsStat4::Ok);
    let backwards = statistics(&layout, layout.stateid, encode_body(&writes(&layout, i64::MIN / 100)));
    assert_eq!(tell(backwards), NfsStat4::Ok);
    let mut elsewhere = good.clone();
    elsewhere.deviceid.0[..4].fill(0xff);
    assert_eq!(tell(elsewhere), NfsStat4::Ok);
    let mut other = good.clone();
    other.layoutupdate.layout_type = LayoutType4::SCSI;
    assert_eq!(tell(other), NfsStat4::UnknownLayoutType);
    let stranger = LayoutStats4Args { stateid: file.stateid, ..good };
    assert_eq!(tell(stranger), NfsStat4::BadStateId);
    assert_eq!(pool_list(&instance), "pool    state\npool-0  enabled\n");
}
