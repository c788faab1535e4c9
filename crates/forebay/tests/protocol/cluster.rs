//! Pools on other hosts: they join, keep their leases, and come back; a head and its pools are processes of their own here.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nfs4::{FfLayoutReturn4, LayoutIomode4, NfsFh4, NfsStat4, StableHow4};
use tempfile::TempDir;
use testkit::nfs_client::{ClientOptions, Layout, NfsClient, OpenFile, when_ready};

use crate::server::{FOREBAY, Instance, Server, Setup, free_ports, status_of};

pub const WAIT: Duration = Duration::from_secs(30);
/// Short, so that a silent pool is suspect soon, and long enough for a busy machine.
const LEASE_S: u32 = 3;
const DATA: &[u8] = b"bytes on another host";

/// A head with hosts that have joined; its own pool gets no files.
pub struct Cluster {
    pub head: Instance,
    pub server: Option<Server>,
    pub hosts: Vec<Host>,
}

pub struct Host {
    dir: TempDir,
    pub server: Option<Server>,
}

impl Host {
    pub fn new() -> Host {
        Host { dir: tempfile::tempdir().unwrap(), server: None }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("pool")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(FOREBAY);
        command
            .args(["pool", "up", "--listen", "127.0.0.1", "--pool-port", "0", "--no-http", "--data"])
            .arg(self.data());
        command.args(arguments);
        command
    }

    pub fn up(&mut self, arguments: &[&str]) {
        self.server = Some(Server::started(self.command(arguments), self.dir.path().join("log")));
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("the host runs")
    }

    fn signal(&self, signal: &str) {
        let pid = self.server().pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub fn kill(&mut self) {
        self.server.take().expect("the host runs").kill();
    }

    /// Its journal is empty, so that the next start finds the replicas as they lie on the disk.
    fn kill_without_journal(&mut self) {
        self.server.take().expect("the host runs").terminate();
        self.up(&[]);
        self.kill();
    }

    /// The only one.
    fn replica(&self) -> PathBuf {
        fn below(place: PathBuf) -> Vec<PathBuf> {
            match std::fs::read_dir(&place) {
                Ok(entries) => entries.flat_map(|entry| below(entry.unwrap().path())).collect(),
                Err(_) => vec![place],
            }
        }
        below(self.data().join("pool/data")).pop().expect("there is a replica")
    }
}

impl Cluster {
    fn head_of(grace_s: u32) -> Instance {
        let head = Instance::new(Setup { grace_s, arguments: &["--cluster"], ..Setup::default() });
        let file = head.path().join("forebay.toml");
        let port = free_ports(2);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}[cluster]\nport = {port}\nlease_s = {LEASE_S}\n")).unwrap();
        head
    }

    pub fn start(hosts: usize) -> Cluster {
        let head = Cluster::head_of(0);
        let server = head.up();
        let mut cluster = Cluster { head, server: Some(server), hosts: Vec::new() };
        for _ in 0..hosts {
            let mut host = Host::new();
            host.up(&["--join", &cluster.token()]);
            cluster.hosts.push(host);
        }
        cluster.wait_for(|standings| standings.iter().all(|standing| standing == "ready"));
        assert!(cluster.head.run(&["pool", "drain", "pool-0", "--keep-files"]).status.success());
        cluster
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("the head runs")
    }

    pub fn json(&self, command: &[&str]) -> serde_json::Value {
        let output = self.head.run(&[command, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn token(&self) -> String {
        self.json(&["cluster", "token"])["token"].as_str().unwrap().to_owned()
    }

    /// As `cluster status` has them.
    fn standings(&self) -> Vec<String> {
        let report = self.json(&["cluster", "status"]);
        let pools = report["pools"].as_array().unwrap();
        pools.iter().map(|pool| pool["standing"].as_str().unwrap().to_owned()).collect()
    }

    pub fn wait_for(&self, is_so: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + WAIT;
        loop {
            let standings = self.standings();
            if is_so(&standings) {
                return;
            }
            assert!(Instant::now() < deadline, "{standings:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// At the first host, as it told last.
    fn wait_for_replicas(&self, count: u64) {
        let deadline = Instant::now() + WAIT;
        while self.json(&["status"])["pools"][1]["replicas"] != count {
            assert!(Instant::now() < deadline, "{}", self.json(&["status"]));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Calls of the head to the first pool host since its start, by procedure, but for the copies of names that it sends now and then.
    fn calls(&self) -> BTreeMap<String, u64> {
        let status = self.json(&["cluster", "status"]);
        let mut calls: BTreeMap<String, u64> =
            serde_json::from_value(status["pools"][0]["calls"].clone()).unwrap();
        calls.remove("DESCRIBE");
        calls
    }

    /// A client with a layout of a new file, whose first bytes it has written at the pool.
    pub fn written(&self) -> Written {
        let mut client = self.server().client("writer");
        let root = client.root().unwrap();
        let file = client.create(&root, "file").unwrap();
        let layout = layout_when_open(&mut client, &file);
        let mut pool = client.data_server(&layout).unwrap();
        write(&mut pool, &layout, 0, DATA).unwrap();
        let end = Some(DATA.len() as u64 - 1);
        client.layout_commit(&file.handle, layout.stateid, end).unwrap();
        Written { client, root, file, layout, pool }
    }
}

pub struct Written {
    pub client: NfsClient,
    root: NfsFh4,
    pub file: OpenFile,
    layout: Layout,
    pool: NfsClient,
}

/// With the length that its label knows.
fn cut(replica: &Path, size: u64) {
    let mut label = [0; 128];
    let length = rustix::fs::getxattr(replica, "user.forebay.id", &mut label[..]).unwrap();
    let label = std::str::from_utf8(&label[..length]).unwrap();
    let (kept, birth) = label.rsplit_once(' ').expect("the birth comes last");
    let (kept, _) = kept.rsplit_once(' ').expect("the length comes before it");
    let label = format!("{kept} {size:x} {birth}");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(replica, "user.forebay.id", label.as_bytes(), flags).unwrap();
    std::fs::File::options().write(true).open(replica).unwrap().set_len(size).unwrap();
}

fn write(
    pool: &mut NfsClient,
    layout: &Layout,
    offset: u64,
    data: &[u8],
) -> Result<(), testkit::nfs_client::ClientError> {
    let stateid = layout.data_server().stateid;
    pool.write(layout.ticket(), stateid, offset, StableHow4::FileSync, data).map(drop)
}

fn read_through_head(client: &mut NfsClient, file: &OpenFile) -> Vec<u8> {
    let read = when_ready(|| client.read(&file.handle, file.stateid, 0, 1 << 16)).unwrap();
    read.data.to_vec()
}

/// Clients are sent to a pool once its host answers.
fn layout_when_open(client: &mut NfsClient, file: &OpenFile) -> Layout {
    let deadline = Instant::now() + WAIT;
    loop {
        let layout = when_ready(|| client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw));
        match layout {
            Err(error) if error.status() == Some(NfsStat4::LayoutUnavailable) => {}
            layout => return layout.unwrap(),
        }
        assert!(Instant::now() < deadline, "no client is sent to the pool");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The layout at a pool that is suspect is called back.
pub fn return_recalled(client: &mut NfsClient, file: &OpenFile) {
    let recall = client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    let nfs4::LayoutRecall4::File(recalled) = recall.recall else { panic!("{recall:?}") };
    let returned = FfLayoutReturn4::default();
    when_ready(|| client.layout_return(&file.handle, recalled.stateid, &returned)).unwrap();
}

pub fn error_of(output: &Output) -> String {
    assert!(!output.status.success(), "it succeeded");
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_host_joins_and_clients_write_and_read_there() {
    let cluster = Cluster::start(1);
    let Written { mut client, file, layout, mut pool, .. } = cluster.written();
    assert_eq!(pool.server(), cluster.hosts[0].server().pools[0], "the layout leads to the other process");
    let stateid = layout.data_server().stateid;
    assert_eq!(&pool.read(layout.ticket(), stateid, 0, 100).unwrap().data[..], DATA);
    assert_eq!(client.size(&file.handle).unwrap(), DATA.len() as u64);
    assert_eq!(read_through_head(&mut client, &file), DATA);
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"BYTES").unwrap();
    assert_eq!(&pool.read(layout.ticket(), stateid, 0, 5).unwrap().data[..], b"BYTES");
    cluster.wait_for_replicas(1);
}

#[test]
fn a_host_keeps_its_number_when_it_comes_back_and_another_gets_the_next() {
    let mut cluster = Cluster::start(1);
    let Written { mut client, file, .. } = cluster.written();
    let (status, _) = cluster.hosts[0].server.take().unwrap().terminate();
    assert!(status.success());
    // It says so, and is not waited for.
    cluster.wait_for(|standings| standings == ["out"]);
    cluster.hosts[0].up(&[]);
    let token = cluster.token();
    let mut other = Host::new();
    other.up(&["--join", &token]);
    assert!(other.server().banner.contains("pool-2 of cluster"), "{}", other.server().banner);
    cluster.hosts.push(other);
    cluster.wait_for(|standings| standings == ["ready", "ready"]);
    assert_eq!(read_through_head(&mut client, &file), DATA);
}

#[test]
fn a_token_that_cannot_be_used_is_told_in_a_line() {
    let (cluster, other) = (Cluster::start(0), Cluster::start(0));
    let host = Host::new();
    let refused = |arguments: &[&str]| error_of(&host.command(arguments).output().unwrap());
    assert!(refused(&[]).contains("has not joined a cluster"), "{}", refused(&[]));
    let token = cluster.token();
    let mistyped = token.replacen("fb1.", "fb1.x", 1);
    for wrong in ["word", &token[..token.len() - 3], &mistyped] {
        let error = refused(&["--join", wrong]);
        assert!(error.contains("--join"), "{error}");
    }
    let kept = std::fs::read_to_string(cluster.head.data().join("cluster.json")).unwrap();
    assert!(!kept.contains(token.rsplit('.').next().unwrap()), "a token is kept as a hash only");
    let mut elsewhere = Host::new();
    elsewhere.up(&["--join", &other.token()]);
    let error = error_of(&elsewhere.command(&["--join", &token]).output().unwrap());
    assert!(error.contains("in use by another forebay process"), "{error}");
    elsewhere.server.take().unwrap().terminate();
    let output =
        Command::new(FOREBAY).args(["up", "--no-http", "--data"]).arg(elsewhere.data()).output().unwrap();
    assert!(error_of(&output).contains("data directory of a pool host"), "{}", error_of(&output));
    let mut strange = Command::new(FOREBAY);
    strange.args(["pool", "up", "--join", &other.token(), "--data"]).arg(cluster.head.data());
    let error = error_of(&strange.output().unwrap());
    assert!(error.contains("data directory of a head"), "{error}");
    let error = error_of(&elsewhere.command(&["--join", &token]).output().unwrap());
    assert!(error.contains("belongs to another cluster"), "{error}");
}

#[test]
fn a_pool_that_is_killed_comes_back_with_what_was_acknowledged() {
    let mut cluster = Cluster::start(1);
    let Written { mut client, root, file, .. } = cluster.written();
    cluster.hosts[0].kill();
    // Names are served meanwhile, also of files that lie there.
    let mut reader = cluster.server().client("reader");
    assert_eq!(reader.size(&file.handle).unwrap(), DATA.len() as u64);
    client.mkdir(&root, "directory", 0o755).unwrap();
    return_recalled(&mut client, &file);
    cluster.hosts[0].up(&[]);
    assert_eq!(read_through_head(&mut client, &file), DATA);
    let anew = layout_when_open(&mut client, &file);
    let mut pool = client.data_server(&anew).unwrap();
    write(&mut pool, &anew, 0, b"again").unwrap();
}

/// The client is not asked: it knows the pool still, and the pool answers it.
#[test]
fn a_pool_without_a_lease_takes_no_writes_and_still_reads() {
    let mut cluster = Cluster::start(1);
    let Written { layout, mut pool, .. } = cluster.written();
    cluster.server.take().unwrap().kill();
    std::thread::sleep(Duration::from_secs(u64::from(LEASE_S) + 1));
    assert_eq!(status_of(write(&mut pool, &layout, 0, b"late")), NfsStat4::Stale);
    let stateid = layout.data_server().stateid;
    assert_eq!(&pool.read(layout.ticket(), stateid, 0, 100).unwrap().data[..], DATA);
    cluster.server = Some(cluster.head.up());
    cluster.wait_for(|standings| standings == ["ready"]);
    // Its tickets are of the start before, and the pool may have been passed over.
    assert_eq!(status_of(write(&mut pool, &layout, 0, b"late")), NfsStat4::Stale);
}

#[test]
fn a_lock_waits_for_the_lease_of_a_pool_that_is_silent_and_its_fence_comes_before_the_next() {
    let cluster = Cluster::start(1);
    let Written { mut client, file, layout, mut pool, .. } = cluster.written();
    cluster.hosts[0].signal("-STOP");
    cluster.wait_for(|standings| standings == ["suspect"] || standings == ["out"]);
    return_recalled(&mut client, &file);
    cluster.wait_for(|standings| standings == ["out"]);
    cluster.hosts[0].signal("-CONT");
    cluster.wait_for(|standings| standings == ["ready"]);
    assert_eq!(status_of(write(&mut pool, &layout, 0, b"late")), NfsStat4::Stale, "it was fenced off");
    assert_eq!(read_through_head(&mut client, &file), DATA);
}

#[test]
fn a_silent_pool_holds_up_nobody_who_does_not_need_it() {
    let cluster = Cluster::start(2);
    let Written { mut client, root, file, .. } = cluster.written();
    for host in &cluster.hosts {
        host.signal("-STOP");
    }
    cluster.wait_for(|standings| standings.iter().all(|standing| standing == "out"));
    let began = Instant::now();
    let mut reader = cluster.server().client("reader");
    assert_eq!(reader.size(&file.handle).unwrap(), DATA.len() as u64);
    // It may have written more, of which only the pool knows.
    assert_eq!(status_of(client.size(&file.handle)), NfsStat4::Delay);
    assert!(!client.list(&root, 4_096).unwrap().is_empty());
    client.mkdir(&root, "directory", 0o755).unwrap();
    // Not a measure: the waits of a call to a pool are longer.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    for host in &cluster.hosts {
        host.signal("-CONT");
    }
    cluster.wait_for(|standings| standings.iter().all(|standing| standing == "ready"));
    assert_eq!(read_through_head(&mut client, &file), DATA);
}

#[test]
fn a_head_that_restarts_finds_its_pools_again() {
    let mut cluster = Cluster::start(1);
    let Written { .. } = cluster.written();
    cluster.server.take().unwrap().kill();
    cluster.server = Some(cluster.head.up());
    cluster.wait_for(|standings| standings == ["ready"]);
    let mut client = cluster.server().client_by(ClientOptions::named("reader"));
    let root = client.root().unwrap();
    let share = nfs4::OPEN4_SHARE_ACCESS_READ;
    let file = when_ready(|| client.open(&root, "file", share)).unwrap();
    assert_eq!(read_through_head(&mut client, &file), DATA);
    // Unlinked files leave the other host, too.
    client.close(&file).unwrap();
    client.remove(&root, "file").unwrap();
    cluster.wait_for_replicas(0);
}

/// As a head leaves it that is killed when the pool has cut the replica, and before the namespace knows.
#[test]
fn a_truncation_at_another_host_that_a_kill_of_the_head_interrupted_is_finished() {
    let mut cluster = Cluster::start(1);
    let Written { .. } = cluster.written();
    cluster.hosts[0].kill_without_journal();
    cluster.server.take().unwrap().kill();
    let replica = cluster.hosts[0].replica();
    let file = u64::from_str_radix(replica.file_name().unwrap().to_str().unwrap(), 16).unwrap();
    cut(&replica, 5);
    let note = format!(r#"{{"version":1,"file":{file},"pool":1,"size":5}}"#);
    let notes = std::fs::File::options().write(true).open(cluster.head.data().join("cuts.jsonl")).unwrap();
    notes.write_all_at(format!("{note:<127}\n").as_bytes(), 0).unwrap();
    cluster.server = Some(cluster.head.up());
    // Its pool does not hold up anybody before it comes.
    let mut client = cluster.server().client_by(ClientOptions::named("reader"));
    let root = client.root().unwrap();
    let file = when_ready(|| client.open(&root, "file", nfs4::OPEN4_SHARE_ACCESS_READ)).unwrap();
    assert_eq!(client.size(&file.handle).unwrap(), DATA.len() as u64);
    cluster.hosts[0].up(&[]);
    assert_eq!(read_through_head(&mut client, &file), &DATA[..5]);
    assert_eq!(client.size(&file.handle).unwrap(), 5);
    let is_blank = || std::fs::read(cluster.head.data().join("cuts.jsonl")).unwrap().trim_ascii().is_empty();
    let deadline = Instant::now() + WAIT;
    while !is_blank() {
        assert!(Instant::now() < deadline, "the note stays");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_ticket_makes_the_replica_of_a_new_file_and_not_of_one_that_was_removed() {
    let mut cluster = Cluster::start(1);
    let mut client = cluster.server().client("writer");
    let root = client.root().unwrap();
    let mut with_layout = |name| {
        let file = client.create(&root, name).unwrap();
        let layout = layout_when_open(&mut client, &file);
        (file, layout)
    };
    let (kept, of_kept) = with_layout("kept");
    let (removed, of_removed) = with_layout("removed");
    let (late, of_late) = with_layout("late");
    let mut pool = client.data_server(&of_kept).unwrap();
    assert_eq!(cluster.calls()["MAKE"], 0);
    write(&mut pool, &of_kept, 0, DATA).unwrap();
    client.layout_commit(&kept.handle, of_kept.stateid, Some(DATA.len() as u64 - 1)).unwrap();
    cluster.wait_for_replicas(1);
    client.layout_return(&removed.handle, of_removed.stateid, &FfLayoutReturn4::default()).unwrap();
    client.close(&removed).unwrap();
    client.remove(&root, "removed").unwrap();
    let deadline = Instant::now() + WAIT;
    while cluster.calls()["REMOVE"] == 0 {
        assert!(Instant::now() < deadline, "the removal does not reach the pool");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(status_of(write(&mut pool, &of_removed, 0, b"late")), NfsStat4::Stale);
    // Tickets stay good when layouts are returned.
    for (file, layout) in [(&kept, &of_kept), (&late, &of_late)] {
        client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
    }
    // A new process does not know which older files were removed.
    cluster.hosts[0].kill();
    cluster.hosts[0].up(&[]);
    cluster.wait_for(|standings| standings == ["ready"]);
    let at_new_port = layout_when_open(&mut client, &kept);
    let mut pool = client.data_server(&at_new_port).unwrap();
    for layout in [&of_removed, &of_late] {
        assert_eq!(status_of(write(&mut pool, layout, 0, b"late")), NfsStat4::Stale);
    }
    write(&mut pool, &of_kept, 0, DATA).unwrap();
    let anew = layout_when_open(&mut client, &late);
    assert_eq!(cluster.calls()["MAKE"], 1, "the file is older than the process of the pool");
    write(&mut pool, &anew, 0, DATA).unwrap();
    assert_eq!(read_through_head(&mut client, &kept), DATA);
    cluster.wait_for_replicas(2);
}

#[test]
fn opening_reading_and_stat_of_a_file_at_another_host_calls_no_pool() {
    let cluster = Cluster::start(1);
    let Written { mut client, file, layout, .. } = cluster.written();
    client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
    client.close(&file).unwrap();
    let before = cluster.calls();
    assert_eq!(before["MAKE"], 0, "for the layout of the new file: {before:?}");
    let mut reader = cluster.server().client("reader");
    let root = reader.root().unwrap();
    let file = reader.open(&root, "file", nfs4::OPEN4_SHARE_ACCESS_READ).unwrap();
    assert_eq!(reader.size(&file.handle).unwrap(), DATA.len() as u64);
    let layout = reader.layout_get(&file.handle, file.stateid, LayoutIomode4::Read).unwrap();
    let mut pool = reader.data_server(&layout).unwrap();
    let read = pool.read(layout.ticket(), layout.data_server().stateid, 0, 99).unwrap();
    assert_eq!(&read.data[..], DATA);
    reader.close(&file).unwrap();
    assert_eq!(cluster.calls(), before);
}

#[test]
fn renewed_keys_reach_pools_of_other_hosts() {
    let cluster = Cluster::start(1);
    let Written { mut client, file, layout, mut pool, .. } = cluster.written();
    let renewed = cluster.json(&["keys", "renew"]);
    assert_eq!(renewed["generation"], 1);
    // The former ones are accepted for a time.
    write(&mut pool, &layout, 0, DATA).unwrap();
    client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
    let anew = layout_when_open(&mut client, &file);
    assert_ne!(anew.ticket(), layout.ticket());
    write(&mut pool, &anew, 0, DATA).unwrap();
}

#[test]
fn a_client_writes_at_a_pool_while_its_host_takes_new_keys() {
    let cluster = Cluster::start(1);
    let Written { mut client, file, layout, mut pool, .. } = cluster.written();
    let stopped = std::sync::atomic::AtomicBool::new(false);
    let writes = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writes = 0_u64;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                write(&mut pool, &layout, 0, DATA).unwrap();
                writes += 1;
            }
            writes
        });
        let keys = cluster.json(&["cluster", "rotate-keys"]);
        stopped.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(
            (keys["generation"].as_u64(), keys["overlap"].as_bool()),
            (Some(1), Some(false)),
            "{keys}"
        );
        writer.join().unwrap()
    });
    assert!(writes > 0);
    cluster.wait_for(|standings| standings == ["ready"]);
    assert_eq!(read_through_head(&mut client, &file), DATA);
    let kept = cluster.hosts[0].data();
    assert!(kept.join("member-1.key").exists() && !kept.join("member.key").exists());
    write(&mut pool, &layout, 0, DATA).unwrap();
}

#[test]
fn a_host_that_is_shut_out_takes_no_writes_when_its_lease_is_over_and_comes_back_by_a_new_key() {
    let mut cluster = Cluster::start(1);
    let Written { mut client, file, layout, mut pool, .. } = cluster.written();
    let shut_out = cluster.json(&["cluster", "shut-out", "pool-1"]);
    assert_eq!(shut_out["pool"], "pool-1", "{shut_out}");
    cluster.wait_for(|standings| standings == ["out"]);
    assert_eq!(status_of(write(&mut pool, &layout, 0, b"late")), NfsStat4::Stale);
    let refused = error_of(&cluster.head.run(&["pool", "remove", "pool-1"]));
    assert!(refused.contains("1 file has its data on pool-1"), "{refused}");
    let listed = cluster.head.run(&["pool", "files", "pool-1"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "/file\n");
    cluster.hosts[0].kill();
    let token = cluster.json(&["cluster", "readmit", "pool-1"])["token"].as_str().unwrap().to_owned();
    cluster.hosts[0].up(&["--join", &token]);
    cluster.wait_for(|standings| standings == ["ready"]);
    assert_eq!(read_through_head(&mut client, &file), DATA);
    // The same command again, as a service may run it.
    cluster.hosts[0].kill();
    cluster.hosts[0].up(&["--join", &token]);
    cluster.wait_for(|standings| standings == ["ready"]);
}

#[test]
fn a_check_does_not_take_files_of_other_hosts_for_lost() {
    let mut cluster = Cluster::start(1);
    let Written { .. } = cluster.written();
    let report = cluster.json(&["fsck"]);
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(0), "{report}");
    cluster.server.take().unwrap().terminate();
    let report = cluster.json(&["fsck"]);
    assert_eq!(report["problems"].as_array().map(Vec::len), Some(0), "{report}");
    assert!(report.to_string().contains("pools of other hosts"), "{report}");
}

#[test]
fn a_check_beside_a_running_head_finds_replicas_that_other_hosts_lack() {
    let mut cluster = Cluster::start(1);
    let Written { .. } = cluster.written();
    cluster.hosts[0].kill_without_journal();
    std::fs::remove_file(cluster.hosts[0].replica()).unwrap();
    cluster.hosts[0].up(&[]);
    cluster.wait_for(|standings| standings == ["ready"]);
    let output = cluster.head.run(&["fsck", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report["problems_found"].as_u64()), (Some(1), Some(1)), "{report}");
    assert_eq!(report["problems"][0]["path"], "/file", "{report}");
    assert!(report["problems"][0].to_string().contains("pool-1 has no replica of it"), "{report}");
    cluster.hosts[0].signal("-STOP");
    cluster.wait_for(|standings| standings == ["out"]);
    let report = cluster.json(&["fsck"]);
    assert!(report.to_string().contains("pools of other hosts"), "{report}");
    cluster.hosts[0].signal("-CONT");
}

#[test]
fn own_pools_cannot_take_the_number_of_another_host() {
    let mut cluster = Cluster::start(1);
    cluster.server.take().unwrap().terminate();
    let mut command = Command::new(FOREBAY);
    command.args(["up", "--no-http", "--nfs-port", "0", "--pools", "2", "--pool-port"]);
    let output =
        command.arg(free_ports(2).to_string()).arg("--data").arg(cluster.head.data()).output().unwrap();
    assert!(error_of(&output).contains("pool-1 is on host"), "{}", error_of(&output));
    let output = command.arg("--cluster").output().unwrap();
    assert!(error_of(&output).contains("pool-1 is on host"), "{}", error_of(&output));
    // Neither start has taken the number.
    cluster.server = Some(cluster.head.up());
    cluster.wait_for(|standings| standings == ["ready"]);
}
