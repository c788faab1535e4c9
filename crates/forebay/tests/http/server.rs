//! Starting and ending the binary with its HTTP door, and the requests that nearly every test makes.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nfs4::NfsStat4;
use tempfile::TempDir;
use testkit::nfs_client::{ClientError, ClientOptions, NfsClient};

use crate::wire::{Answer, Ask, Connection, base64};

/// Long enough for a busy machine: nothing depends on how fast it goes.
const START_TIMEOUT: Duration = Duration::from_secs(60);
pub const ADMIN: &str = "admin";

/// A data directory; servers come and go on it.
pub struct Instance {
    dir: TempDir,
    /// Made by the first start.
    password: OnceCell<String>,
}

/// Else a start brings back the bytes that a test takes from the replicas of a server that was killed.
pub const WITHOUT_JOURNAL: &str = "[pools]\njournal = \"off\"\n";

impl Instance {
    /// `http`: lines of the section of that name.
    pub fn new(http: &str) -> Instance {
        Instance::with_lease(60, http)
    }

    pub fn with_lease(lease_s: u32, http: &str) -> Instance {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let nfs = format!("[nfs]\nlease_s = {lease_s}\ngrace_s = 0\n");
        let configuration = format!("{nfs}[http]\npool_port = 0\n{http}\n");
        std::fs::write(dir.path().join("forebay.toml"), configuration).expect("write the configuration");
        Instance { dir, password: OnceCell::new() }
    }

    /// The same on another machine: a copy of everything, as it is.
    pub fn twin(&self) -> Instance {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut copying = Command::new("cp");
        copying.arg("-a").arg(self.dir.path().join(".")).arg(dir.path());
        assert!(copying.status().expect("run cp").success());
        Instance { dir, password: self.password.clone() }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Bytes of replicas that lie in the pool.
    pub fn bytes_in_pool(&self) -> u64 {
        fn below(dir: &std::path::Path) -> u64 {
            let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
            entries
                .flatten()
                .map(|entry| match entry.metadata() {
                    Ok(about) if about.is_dir() => below(&entry.path()),
                    Ok(about) => about.len(),
                    Err(_) => 0,
                })
                .sum()
        }
        below(&self.data().join("pools/pool-0/data"))
    }

    /// All replicas in the pool, the largest first.
    pub fn replicas(&self) -> Vec<PathBuf> {
        fn below(dir: &std::path::Path, into: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() { below(&path, into) } else { into.push(path) }
            }
        }
        let mut all = Vec::new();
        below(&self.data().join("pools/pool-0/data"), &mut all);
        all.sort_by_key(|path| std::cmp::Reverse(path.metadata().map_or(0, |about| about.len())));
        all
    }

    /// Another command of the binary, on this instance; it must succeed.
    pub fn forebay(&self, arguments: &[&str]) {
        self.output(arguments);
    }

    /// As `forebay`; its standard output.
    pub fn output(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let ended = command.args(arguments).arg("--data").arg(self.data()).output().expect("run forebay");
        let told = [&ended.stdout[..], &ended.stderr].concat();
        assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&told));
        ended.stdout
    }

    /// Somebody who may log in, by the `Authorization` that does it; a running server sees that in a while.
    pub fn user(&self, name: &str, uid: u32) -> String {
        let (uid, data) = (uid.to_string(), self.data());
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["user", "add", name, "--uid", &uid, "--gid", &uid, "--data"]).arg(data);
        let ended = command.output().expect("run forebay");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        basic(name, String::from_utf8(ended.stdout).expect("a password is text").trim())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `forebay up`, with all that this instance needs, not started yet.
    pub fn up_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.arg("up").arg("--data").arg(self.data());
        command.arg("--config").arg(self.path("forebay.toml"));
        command.args(["--nfs-port", "0", "--http-port", "0", "--pool-port", "0"]);
        command
    }

    pub fn up(&self) -> Server {
        self.up_by(self.up_command())
    }

    /// Starts, and waits for the banner.
    pub fn up_by(&self, mut command: Command) -> Server {
        let log = self.path("log");
        let stderr = File::options().create(true).append(true).open(&log).expect("open the log");
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("start forebay");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut server =
            Server { child, head: None, web: None, credential: String::new(), log, expected_errors: &[] };
        server.read_banner(&lines, &self.password);
        let password = self.password.get().expect("the first start tells of a login");
        server.credential = basic(ADMIN, password);
        server
    }
}

pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", base64(format!("{user}:{password}").as_bytes()))
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    head: Option<SocketAddr>,
    web: Option<SocketAddr>,
    /// `Authorization` of the first login, who is root here.
    pub credential: String,
    log: PathBuf,
    expected_errors: &'static [&'static str],
}

impl Server {
    pub fn start() -> (Instance, Server) {
        Server::start_with("")
    }

    pub fn start_with(http: &str) -> (Instance, Server) {
        let instance = Instance::new(http);
        let server = instance.up();
        (instance, server)
    }

    fn read_banner(&mut self, lines: &mpsc::Receiver<String>, password: &OnceCell<String>) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = lines.recv_timeout(left) else { panic!("no banner; log:\n{}", self.log()) };
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("head"), Some(address), _) => self.head = address.parse().ok(),
                (Some("web"), Some(url), _) => {
                    let address = url.strip_prefix("http://").or(url.strip_prefix("https://"));
                    let address = address.and_then(|url| url.strip_suffix('/'));
                    self.web = address.and_then(|address| address.parse().ok());
                }
                (Some("login"), ..) => {
                    let (_, file) = line.split_once("the password is in ").expect("a file is named");
                    let login = std::fs::read_to_string(file).expect("read the first login");
                    let (user, kept) = login.trim_end().split_once(':').expect("user and password");
                    assert_eq!(user, ADMIN);
                    password.set(kept.to_owned()).expect("a first login is made once");
                }
                (Some("stop"), ..) => return,
                _ => {}
            }
        }
    }

    pub fn web(&self) -> SocketAddr {
        self.web.expect("the banner tells the web's address")
    }

    /// The URL of a path, for Destination and the like.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.web())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A request with the first login's credential.
    pub fn ask(&self, method: &str, target: &str) -> Ask {
        Ask::new(method, target).with("Authorization", &self.credential)
    }

    pub fn send(&self, ask: &Ask) -> Answer {
        ask.send(self.web())
    }

    pub fn call(&self, method: &str, target: &str) -> Answer {
        self.send(&self.ask(method, target))
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.web())
    }

    pub fn put(&self, target: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send(&self.ask("PUT", target).body(body))
    }

    pub fn read(&self, target: &str) -> Vec<u8> {
        let answer = self.call("GET", target);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    pub fn status_of(&self, method: &str, target: &str) -> u16 {
        self.call(method, target).status
    }

    /// An NFS client of the head with a session, root by AUTH_SYS.
    pub fn nfs(&self, name: &str) -> NfsClient {
        self.try_nfs(name).expect("connect to the head")
    }

    pub fn try_nfs(&self, name: &str) -> Result<NfsClient, ClientError> {
        let head = self.head.expect("the banner tells the head's address");
        NfsClient::connect(head, ClientOptions::named(name))
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("signal the server");
    }

    /// SIGTERM, and waits until everything is closed.
    pub fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        let ended = self.child.wait().expect("wait for the server");
        assert!(ended.success(), "{ended}");
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("look for the server")
    }

    /// The log may tell of errors that have one of these in them.
    pub fn expect_errors(&mut self, texts: &'static [&'static str]) {
        self.expected_errors = texts;
    }

    /// As `kill`, of a server that had reason to complain.
    pub fn kill_complaining(mut self) {
        self.log = PathBuf::new();
    }

    /// SIGKILL: as a crash of the process.
    pub fn kill(mut self) {
        self.child.kill().expect("kill the server");
        self.child.wait().expect("wait for the server");
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
            let is_expected = |line: &str| self.expected_errors.iter().any(|text| line.contains(text));
            let is_complaint = |line: &str| line.contains("panicked") || line.contains(" ERROR ");
            let complains = log.lines().any(|line| is_complaint(line) && !is_expected(line));
            assert!(!complains, "the server complains:\n{log}");
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

/// Asks again until it is so; how often is nobody's business, but not for ever.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + START_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
