//! A PostgreSQL server of a test's own: made in a temporary directory by the binaries that Debian installs, reached by
//! a Unix socket and by a loopback port, and gone with its directory when the test is done or killed.
//!
//! A watching shell reads a pipe that only this process writes to: however the process ends, the pipe does, and the
//! shell stops the server and removes the directory. The kernel's signal on a parent's death would not do: it comes
//! when the *thread* ends that started the server, and each test is a thread.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use types::hex::Hex;

mod pooler;
#[cfg(test)]
mod tests;

pub use pooler::Pooler;

/// Where Debian has a directory for each major version.
const INSTALLED: &str = "/usr/lib/postgresql";
const VERSION_MIN: u32 = 15;
/// The account that Debian makes; the server refuses to run as root.
const ACCOUNT: &str = "postgres";
const SUPERUSER: &str = "forebay";
/// Recovery after a kill is part of a start.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const START_ATTEMPTS: usize = 5;
/// Lines of the server's log that are kept, for the error if it does not start.
const LOG_LINES: usize = 50;
/// "required": a test that finds no PostgreSQL fails and is not skipped.
const REQUIRED: &str = "FOREBAY_TEST_POSTGRES";

/// Kills the server whose pid was told last (0: none), removes what it left, the directory last. A server that was
/// killed leaves a small System V segment behind, which its lock file names.
const WATCHER: &str = r#"
    pid=0
    while read -r told; do pid=$told; done
    if [ "$pid" != 0 ]; then
        kill -QUIT "$pid"
        turns=0
        while kill -0 "$pid" && [ $turns -lt 200 ]; do sleep 0.05; turns=$((turns + 1)); done
    fi
    segment=$(sed -n 7p "$0/data/postmaster.pid" | awk '{print $2}')
    [ -z "$segment" ] || ipcrm -m "$segment"
    rm -rf "$0"
"#;

#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error(
        "PostgreSQL {VERSION_MIN} or newer is not installed below {INSTALLED} (apt-get install postgresql)"
    )]
    NotInstalled,
    #[error("cannot run `{program}`: {source}")]
    Run { program: String, source: io::Error },
    #[error("`{program}` fails: {output}")]
    Failed { program: String, output: String },
    #[error("PostgreSQL does not start:\n{log}")]
    Start { log: String },
    #[error("cannot make or reach a PostgreSQL server: {0}")]
    Directory(#[from] io::Error),
}

type Result<T> = std::result::Result<T, PostgresError>;

/// Options with which a cluster is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether commits reach the disk. Only tests of power cuts or of speed need it.
    pub fsync: bool,
    /// Further settings of the server, by name.
    pub settings: Vec<(String, String)>,
    /// Files in its data directory that are added, or replace those that `initdb` made: keys, `pg_hba.conf`.
    pub files: Vec<(String, String)>,
}

/// One server with its data directory.
pub struct Cluster {
    programs: PathBuf,
    account: Option<Account>,
    directory: PathBuf,
    port: u16,
    password: String,
    options: Options,
    server: Option<Server>,
    watcher: Child,
    databases: AtomicU32,
}

struct Server {
    process: Child,
    log: Log,
}

/// The last lines that the server wrote.
type Log = Arc<Mutex<Vec<String>>>;

#[derive(Clone, Copy)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Cluster {
    pub fn start() -> Result<Cluster> {
        Cluster::start_with(&Options::default())
    }

    pub fn start_with(options: &Options) -> Result<Cluster> {
        let cluster = Cluster::prepare(options.clone(), password()?)?;
        let password_file = cluster.directory.join("password");
        fs::write(&password_file, &cluster.password)?;
        // Only we and the server's account come through the directory to the file, and to the socket.
        cluster.run("initdb", |initdb| {
            initdb.args(["--no-sync", "--encoding=UTF8", "--locale=C", "--auth-local=trust"]);
            initdb
                .args(["--auth-host=scram-sha-256", "--username", SUPERUSER, "--pwfile"])
                .arg(&password_file);
            initdb.arg("-D").arg(cluster.data());
        })?;
        for (name, text) in &options.files {
            cluster.put(name, text)?;
        }
        cluster.started()
    }

    /// One for all tests of a process, which make a database each. `None`, said on standard error: there is no
    /// PostgreSQL, and the test is to be skipped.
    pub fn shared() -> Option<&'static Cluster> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        SHARED.get_or_init(|| unless_missing(Cluster::start())).as_ref()
    }

    /// A new server that follows this one, as of now and from now on.
    pub fn standby(&self) -> Result<Cluster> {
        let standby = Cluster::prepare(self.options.clone(), self.password.clone())?;
        standby.run("pg_basebackup", |backup| {
            self.point(backup);
            backup.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
            backup.arg("-D").arg(standby.data());
        })?;
        standby.started()
    }

    /// Makes a standby a primary; returns when it takes writes.
    pub fn promote(&self) -> Result<()> {
        self.run("pg_ctl", |pg_ctl| {
            pg_ctl.args(["promote", "--wait", "-D"]).arg(self.data());
        })?;
        Ok(())
    }

    /// By TCP, with a password, as the superuser, to the database `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// A new empty database; its URL.
    pub fn create_database(&self) -> Result<String> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.run("createdb", |createdb| {
            self.point(createdb);
            createdb.args(["--template=template0", &name]);
        })?;
        Ok(self.url_of(&name))
    }

    /// The output of `psql` for the query, a row a line, its values with `|` between them.
    pub fn query(&self, url: &str, sql: &str) -> Result<String> {
        run(
            "psql",
            self.program("psql").args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                url,
                "-c",
                sql,
            ]),
        )
    }

    /// Changes a setting of the whole server while it runs; new sessions have it when this returns.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let (url, set) = (self.url(), format!("ALTER SYSTEM SET {name} = '{value}'"));
        for sql in [set.as_str(), "SELECT pg_reload_conf()"] {
            self.query(&url, sql)?;
        }
        while self.query(&url, &format!("SHOW {name}"))?.trim() != value {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Writes a file of its data directory, for its account alone.
    pub fn put(&self, name: &str, text: &str) -> Result<()> {
        let file = self.data().join(name);
        fs::write(&file, text)?;
        if let Some(account) = self.account {
            chown(&file, Some(account.uid), Some(account.gid))?;
        }
        Ok(fs::set_permissions(&file, Permissions::from_mode(0o600))?)
    }

    /// As an administrator saves a database; kept by its name.
    pub fn dump(&self, url: &str, name: &str) -> Result<()> {
        let file = self.directory.join(name);
        self.run("pg_dump", |dump| {
            dump.args(["--format=custom", "--dbname", url, "--file"]).arg(file);
        })
    }

    /// As an administrator puts back what `dump` saved, over what is there.
    pub fn restore(&self, url: &str, name: &str) -> Result<()> {
        let file = self.directory.join(name);
        self.run("pg_restore", |restore| {
            restore.args(["--clean", "--if-exists", "--single-transaction", "--dbname", url]).arg(file);
        })
    }

    /// Where the Unix socket is; by it no password is asked.
    pub fn socket_directory(&self) -> &Path {
        &self.directory
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn superuser(&self) -> &'static str {
        SUPERUSER
    }

    /// The process that all others of the server are children of.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.process.id())
    }

    /// As an administrator stops it: connections are ended, everything is written.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let pid = Pid::from_child(&server.process);
        let _ = rustix::process::kill_process(pid, Signal::INT);
        if !has_ended(pid, STOP_TIMEOUT) {
            let _ = rustix::process::kill_process(pid, Signal::QUIT);
        }
        server.process.wait()?;
        self.tell_watcher(0)
    }

    /// As if the machine's power went, for the server alone: none of its processes runs another instruction.
    pub fn kill_9(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let pid = Pid::from_child(&server.process);
        // Stopped, it starts no more children while those there are looked for.
        let _ = rustix::process::kill_process(pid, Signal::STOP);
        let children = children_of(pid);
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        for child in &children {
            let _ = rustix::process::kill_process(*child, Signal::KILL);
        }
        server.process.wait()?;
        for child in children {
            has_ended(child, STOP_TIMEOUT);
        }
        self.tell_watcher(0)
    }

    /// With the same data and under the same URLs; returns when it answers.
    pub fn start_again(&mut self) -> Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        // While it was down somebody else may have been given the port, for a connection of some moments.
        for _ in 1..START_ATTEMPTS {
            match self.serve() {
                Err(PostgresError::Start { log }) if is_port_taken(&log) => {}
                other => return other,
            }
        }
        self.serve()
    }

    fn prepare(options: Options, password: String) -> Result<Cluster> {
        let programs = installed()?;
        let account = if rustix::process::geteuid().is_root() { Some(Account::of(ACCOUNT)?) } else { None };
        let directory = tempfile::Builder::new().prefix("forebay-pg-").tempdir()?;
        if let Some(account) = account {
            chown(directory.path(), Some(account.uid), Some(account.gid))?;
        }
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700))?;
        let watcher = watch(directory.path())?;
        // From here on the watcher removes it.
        let directory = directory.keep();
        let databases = AtomicU32::new(0);
        Ok(Cluster {
            programs,
            account,
            directory,
            port: 0,
            password,
            options,
            server: None,
            watcher,
            databases,
        })
    }

    /// The first start, at a port that is free. Between asking for it and using it another may take it.
    fn started(mut self) -> Result<Cluster> {
        for _ in 1..START_ATTEMPTS {
            self.port = free_port()?;
            match self.serve() {
                Err(PostgresError::Start { log }) if is_port_taken(&log) => {}
                other => return other.map(|()| self),
            }
        }
        self.port = free_port()?;
        self.serve().map(|()| self)
    }

    fn serve(&mut self) -> Result<()> {
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.directory);
        let port = self.port.to_string();
        let fsync = if self.options.fsync { "on" } else { "off" };
        let ours = [
            ("port", port.as_str()),
            ("listen_addresses", "127.0.0.1"),
            ("fsync", fsync),
            // In the data directory, so that a killed server leaves nothing elsewhere.
            ("dynamic_shared_memory_type", "mmap"),
        ];
        let theirs = self.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in ours.into_iter().chain(theirs) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A group of its own: an interrupt from the keyboard is for the test, which ends the server in its own way.
        command.process_group(0);
        let mut process = spawn(&mut command)?;
        let log = Log::default();
        let ready = follow(process.stderr.take(), Arc::clone(&log));
        let pid = process.id();
        self.server = Some(Server { process, log });
        self.tell_watcher(pid)?;
        if ready.recv_timeout(START_TIMEOUT).is_ok() {
            return Ok(());
        }
        let log = self.server.as_ref().map(|server| log_text(&server.log)).unwrap_or_default();
        self.kill_9()?;
        Err(PostgresError::Start { log })
    }

    fn tell_watcher(&mut self, pid: u32) -> Result<()> {
        if let Some(stdin) = &mut self.watcher.stdin {
            writeln!(stdin, "{pid}")?;
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgresql://{SUPERUSER}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// Tells a client program where this server is.
    fn point(&self, client: &mut Command) {
        client.arg("-h").arg(&self.directory).args(["-p", &self.port.to_string(), "-U", SUPERUSER]);
    }

    fn run(&self, name: &str, arguments: impl FnOnce(&mut Command)) -> Result<()> {
        let mut command = self.program(name);
        arguments(&mut command);
        run(name, &mut command).map(|_| ())
    }

    /// One of PostgreSQL's programs, as its account and in a directory that it may enter.
    fn program(&self, name: &str) -> Command {
        self.as_account(&self.programs.join(name))
    }

    fn as_account(&self, program: &Path) -> Command {
        let mut command = match self.account {
            None => Command::new(program),
            Some(Account { uid, gid }) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
                command.arg("--clear-groups").arg("--").arg(program);
                command
            }
        };
        command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
        // Variables that a user set for another server do not apply to this one.
        for name in ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGOPTIONS", "PGSERVICE"] {
            command.env_remove(name);
        }
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The end of its input: it kills the server, whose end must be waited for here, by the parent.
        drop(self.watcher.stdin.take());
        if let Some(server) = &mut self.server {
            let _ = server.process.wait();
        }
        let _ = self.watcher.wait();
    }
}

impl Account {
    fn of(name: &str) -> Result<Account> {
        let ask = |which: &str| -> Result<u32> {
            let output = run("id", Command::new("id").args([which, name]))?;
            output.trim().parse().map_err(|_| PostgresError::Failed { program: "id".to_owned(), output })
        };
        Ok(Account { uid: ask("-u")?, gid: ask("-g")? })
    }
}

/// `None` where there is no PostgreSQL and none is required. Any other failure ends the test.
pub fn unless_missing(started: Result<Cluster>) -> Option<Cluster> {
    match started {
        Ok(cluster) => Some(cluster),
        Err(PostgresError::NotInstalled)
            if std::env::var_os(REQUIRED).is_none_or(|value| value != "required") =>
        {
            // Not by a macro: what those print is shown for tests that fail only.
            let why = PostgresError::NotInstalled;
            let _ = writeln!(io::stderr(), "skipped: {why}; {REQUIRED}=required makes this a failure");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The programs of the newest version.
fn installed() -> Result<PathBuf> {
    let entries = fs::read_dir(INSTALLED).map_err(|_| PostgresError::NotInstalled)?;
    let version = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut versions: Vec<u32> =
        entries.filter_map(version).filter(|version| *version >= VERSION_MIN).collect();
    versions.sort_unstable();
    let programs =
        versions.iter().rev().map(|version| Path::new(INSTALLED).join(version.to_string()).join("bin"));
    // A client alone has a directory too.
    programs.into_iter().find(|bin| bin.join("postgres").exists()).ok_or(PostgresError::NotInstalled)
}

fn watch(directory: &Path) -> Result<Child> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(WATCHER).arg(directory).current_dir("/");
    // It may outlive us by a moment: whoever reads our output must not wait for it.
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    spawn(&mut shell)
}

/// Hears once when the server takes connections; hears the end when it ended before.
fn follow(stderr: Option<ChildStderr>, log: Log) -> mpsc::Receiver<()> {
    let (tell, ready) = mpsc::channel();
    std::thread::spawn(move || {
        let lines =
            stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines().map_while(|line| line.ok()));
        for line in lines {
            if line.contains("database system is ready to accept") {
                // Nobody may be waiting any more.
                let _ = tell.send(());
            }
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.len() == LOG_LINES {
                log.remove(0);
            }
            log.push(line);
        }
    });
    ready
}

fn log_text(log: &Log) -> String {
    log.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
}

fn is_port_taken(log: &str) -> bool {
    log.contains("Address already in use")
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// For whoever else is on this machine: by TCP the superuser could run programs as the server's account.
fn password() -> Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(io::Error::from)?;
    Ok(Hex(&bytes).to_string())
}

fn children_of(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_nonzero();
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Whether it ended within the time. That it is still to be waited for does not matter.
fn has_ended(pid: Pid, timeout: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return true;
    };
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready == 1)
}

fn spawn(command: &mut Command) -> Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|source| PostgresError::Run { program, source })
}

/// Its standard output.
fn run(name: &str, command: &mut Command) -> Result<String> {
    let program = name.to_owned();
    let output =
        command.output().map_err(|source| PostgresError::Run { program: program.clone(), source })?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(PostgresError::Failed { program, output });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
