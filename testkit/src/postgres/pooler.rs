//! A pgbouncer between a test and its server. It ends with the test: a shell reads a pipe that only this process writes to.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Cluster, PostgresError, REQUIRED, Result, START_TIMEOUT, free_port, spawn};

const PROGRAM: &str = "/usr/sbin/pgbouncer";
const SHELL: &str = r#""$@" & read -r _; kill $!; wait"#;
const PAUSE: Duration = Duration::from_millis(10);

pub struct Pooler {
    port: u16,
    file: PathBuf,
    process: Child,
}

impl Cluster {
    /// `None`, said on standard error: pgbouncer is missing, and the test is to be skipped. `settings`: lines of its section.
    pub fn pooler(&self, settings: &str) -> Option<Pooler> {
        if !Path::new(PROGRAM).exists() {
            let is_required = std::env::var_os(REQUIRED).is_some_and(|value| value == "required");
            assert!(!is_required, "{PROGRAM} is missing (apt-get install pgbouncer)");
            eprintln!("skipped: {PROGRAM} is missing; {REQUIRED}=required makes this a failure");
            return None;
        }
        let port = free_port().expect("a port is free");
        // Tests share a server.
        let file = self.directory.join(format!("pgbouncer-{port}.ini"));
        let process = self.pool(&file, port, settings).expect("pgbouncer starts");
        Some(Pooler { port, file, process })
    }

    /// Ends it and begins it anew at the same port.
    pub fn change_pooler(&self, pooler: &mut Pooler, settings: &str) {
        pooler.stop();
        pooler.process = self.pool(&pooler.file, pooler.port, settings).expect("pgbouncer starts");
    }

    /// Starts a pooler that admits every role without a password and connects to the server by its socket.
    fn pool(&self, file: &Path, port: u16, settings: &str) -> Result<Child> {
        let roles = self.query(&self.url(), "SELECT rolname FROM pg_roles WHERE rolcanlogin")?;
        let users: String = roles.lines().map(|role| format!("\"{role}\" \"\"\n")).collect();
        let list = file.with_extension("users");
        let text = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\n{settings}\n",
            self.directory.display(),
            self.port,
            list.display()
        );
        for (file, text) in [(file, text), (&list, users)] {
            fs::write(file, text)?;
            if let Some(account) = self.account {
                chown(file, Some(account.uid), Some(account.gid))?;
            }
        }
        let mut pgbouncer = self.as_account(Path::new(PROGRAM));
        pgbouncer.arg("--quiet").arg(file);
        let mut shell = Command::new("sh");
        shell.args(["-c", SHELL, "sh"]).arg(pgbouncer.get_program()).args(pgbouncer.get_args());
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let process = spawn(&mut shell)?;
        let end = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > end {
                return Err(PostgresError::Start { log: "pgbouncer does not listen".to_owned() });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(process)
    }
}

impl Pooler {
    /// The same database and user.
    pub fn url(&self, url: &str) -> String {
        let (start, database) = url.rsplit_once('/').expect("a URL names its database");
        let user =
            start.split(['/', ':', '@']).find(|part| !part.is_empty() && !part.starts_with("postgres"));
        let user = user.expect("a URL names its user");
        format!("postgres://{user}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    fn stop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.stop();
    }
}
