//! Starting and ending the binary, and what every test asks of it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nfs4::{NfsFh4, NfsStat4};
use tempfile::TempDir;
use testkit::nfs_client::{ClientError, ClientOptions, NfsClient};

/// Long enough for a busy machine: nothing depends on how fast it goes.
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// How an instance is set up.
#[derive(Clone)]
pub struct Setup {
    pub lease_s: u32,
    pub grace_s: u32,
    pub pools: u32,
    /// Lines of the configuration file, after the ones that follow from the above.
    pub configuration: &'static str,
    pub arguments: &'static [&'static str],
}

impl Default for Setup {
    /// A lease that no test outlives by accident, and no grace period to wait for.
    fn default() -> Setup {
        Setup { lease_s: 60, grace_s: 0, pools: 1, configuration: "", arguments: &[] }
    }
}

/// A data directory and its configuration; servers come and go on it.
pub struct Instance {
    dir: TempDir,
    setup: Setup,
}

impl Instance {
    pub fn new(setup: Setup) -> Instance {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let configuration = format!(
            "[nfs]\nlease_s = {}\ngrace_s = {}\n{}\n",
            setup.lease_s, setup.grace_s, setup.configuration
        );
        std::fs::write(dir.path().join("forebay.toml"), configuration).expect("write the configuration");
        Instance { dir, setup }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `forebay up`, with all that this instance needs, not started yet.
    pub fn up_command(&self) -> Command {
        let mut command = Command::new(FOREBAY);
        command.arg("up").arg("--data").arg(self.data());
        command.arg("--config").arg(self.dir.path().join("forebay.toml"));
        command.args(["--nfs-port", "0", "--no-http", "--pools", &self.setup.pools.to_string()]);
        command.args(["--pool-port", &free_ports(self.setup.pools).to_string()]);
        command.args(self.setup.arguments);
        command
    }

    /// Starts, and waits for the banner.
    pub fn up(&self) -> Server {
        Server::started(self.up_command(), self.dir.path().join("log"))
    }

    /// Another command on this data directory, finished.
    pub fn run(&self, command: &[&str]) -> Output {
        Command::new(FOREBAY).args(command).arg("--data").arg(self.data()).output().expect("run forebay")
    }
}

impl Server {
    /// Starts, and waits for the banner.
    pub fn started(mut command: Command, log: PathBuf) -> Server {
        let stderr = File::options().create(true).append(true).open(&log).expect("open the log");
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("start forebay");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut server = Server { child, lines, banner: String::new(), head: None, pools: Vec::new(), log };
        server.read_banner();
        server
    }
}

/// Below the range from which the kernel takes the ports of connections, so that none of these takes a server's.
const ROWS: std::ops::Range<u32> = 10_000..32_000;
/// Ports that this process has given to its servers, whether they listen yet or not.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// The first of so many neighbouring ports that nobody listens on and no other test was given. One: the kernel chooses.
pub fn free_ports(count: u32) -> u16 {
    if count == 1 {
        return 0;
    }
    let last = ROWS.end - ROWS.start - count;
    for _ in 0..100 {
        let given = GIVEN.fetch_add(count, Ordering::Relaxed);
        let first = ROWS.start + std::process::id().wrapping_mul(64).wrapping_add(given) % last;
        let first = u16::try_from(first).expect("the range has ports only");
        if (first..).take(count as usize).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
    panic!("no {count} neighbouring ports are free");
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    lines: mpsc::Receiver<String>,
    pub banner: String,
    head: Option<SocketAddr>,
    pub pools: Vec<SocketAddr>,
    log: PathBuf,
}

impl Server {
    /// A new instance of one pool with a server on it.
    pub fn start() -> (Instance, Server) {
        Server::start_with(Setup::default())
    }

    pub fn start_with(setup: Setup) -> (Instance, Server) {
        let instance = Instance::new(setup);
        let server = instance.up();
        (instance, server)
    }

    fn read_banner(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no banner but {:?}; log:\n{}", self.banner, self.log());
            };
            self.banner += &format!("{line}\n");
            let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
            match (words.next(), words.next()) {
                (Some("head"), Some(address)) => self.head = address.parse().ok(),
                (Some("NFS"), Some(address)) => self.pools.extend(address.parse::<SocketAddr>()),
                (Some(pool), Some(address)) if pool.starts_with("pool-") => {
                    self.pools.push(address.parse().expect("the banner tells the pool's address"));
                }
                (Some("stop"), _) => return,
                _ => {}
            }
        }
    }

    pub fn head(&self) -> SocketAddr {
        self.head.expect("the banner tells the head's address")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A client of the head with a session.
    pub fn client(&self, name: &str) -> NfsClient {
        self.client_by(ClientOptions::named(name))
    }

    pub fn client_by(&self, options: ClientOptions) -> NfsClient {
        NfsClient::connect(self.head(), options).expect("connect to the head")
    }

    /// A client of the first pool with a session, for who has a ticket already.
    pub fn client_of_pool(&self, name: &str) -> NfsClient {
        let address = *self.pools.first().expect("the banner tells the pool's address");
        NfsClient::connect(address, ClientOptions::named(name).for_data_server())
            .expect("connect to the pool")
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("ask for the child").is_none()
    }

    /// SIGKILL: as a crash of the process.
    pub fn kill(mut self) {
        self.child.kill().expect("kill the server");
        self.child.wait().expect("wait for the server");
    }

    /// SIGTERM; how it ended and how long it took.
    pub fn terminate(mut self) -> (ExitStatus, Duration) {
        let since = Instant::now();
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().expect("send SIGTERM");
        assert!(sent.success(), "SIGTERM is sent");
        let status = self.child.wait().expect("wait for the server");
        (status, since.elapsed())
    }

    /// Memory in use, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the server runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is told");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("VmRSS is a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        if std::thread::panicking() {
            eprintln!("log of the server:\n{log}");
        } else {
            assert!(!log.contains("panicked") && !log.contains(" ERROR "), "the server complains:\n{log}");
        }
    }
}

/// The status of what may fail; anything but an answer is a failed test.
pub fn status_of<T>(outcome: Result<T, ClientError>) -> NfsStat4 {
    match outcome {
        Ok(_) => NfsStat4::Ok,
        Err(error) => error.status().unwrap_or_else(|| panic!("no status but: {error}")),
    }
}

/// A directory that belongs to an ordinary user, with mode 0755.
pub fn directory_of(client: &mut NfsClient, name: &str, uid: u32) -> NfsFh4 {
    let root = client.root().unwrap();
    let dir = client.mkdir(&root, name, 0o755).unwrap();
    let attributes = nfs4::FileAttributes {
        owner: Some(nfs4::attr::Principal4::numeric(uid)),
        owner_group: Some(nfs4::attr::Principal4::numeric(uid)),
        ..nfs4::FileAttributes::default()
    };
    client.set_attributes(&dir, nfs4::StateId4::ANONYMOUS, &attributes).unwrap();
    dir
}
