//! The server as a service: what its manager is told, SIGHUP, the log and its forms, the environment, the access log.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::server::{ADMIN, Instance, Server, basic, until};
use crate::wire::{Ask, base64};

/// A service manager that listens.
struct Manager {
    socket: UnixDatagram,
    path: std::path::PathBuf,
}

impl Manager {
    fn listen(dir: &Path) -> Manager {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Manager { socket, path }
    }

    /// The next message that has `text` in it; others are passed over.
    fn hears(&self, text: &str) -> String {
        loop {
            let mut buffer = [0; 4096];
            let length = self.socket.recv(&mut buffer).unwrap_or_else(|error| panic!("no {text}: {error}"));
            let message = String::from_utf8(buffer[..length].to_vec()).unwrap();
            if message.contains(text) {
                return message;
            }
        }
    }

    /// No message with `text` in it for so long.
    fn hears_nothing_of(&self, text: &str, time: Duration) {
        let end = std::time::Instant::now() + time;
        while let Some(left) =
            end.checked_duration_since(std::time::Instant::now()).filter(|left| !left.is_zero())
        {
            self.socket.set_read_timeout(Some(left)).unwrap();
            let mut buffer = [0; 4096];
            let Ok(length) = self.socket.recv(&mut buffer) else { break };
            let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
            assert!(!message.contains(text), "{message}");
        }
        self.socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }

    fn command(&self, instance: &Instance) -> Command {
        let mut command = instance.up_command();
        command.env("NOTIFY_SOCKET", &self.path);
        command
    }
}

#[test]
fn the_manager_is_told_of_start_state_reload_and_stop() {
    let instance = Instance::new("");
    let manager = Manager::listen(&instance.path(""));
    let server = instance.up_by(manager.command(&instance));
    let opening = manager.hears("STATUS=");
    assert!(!opening.contains("READY=1"), "{opening}");
    let ready = manager.hears("READY=1");
    assert!(ready.contains("STATUS=") && ready.contains("1 file, 0 clients"), "{ready}");
    server.signal(Signal::HUP);
    let reloading = manager.hears("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.hears("READY=1");
    server.signal(Signal::TERM);
    manager.hears("STOPPING=1");
    server.stop();
}

#[test]
fn the_watchdog_is_fed_while_all_parts_answer() {
    let instance = Instance::new("redirect = \"always\"");
    let manager = Manager::listen(&instance.path(""));
    let mut command = manager.command(&instance);
    command.env("WATCHDOG_USEC", "2000000");
    let server = instance.up_by(command);
    (0..4).for_each(|_| _ = manager.hears("WATCHDOG=1"));
    assert_eq!(server.status_of("GET", "/"), 200);
    server.stop();
}

#[test]
fn the_watchdog_of_another_process_is_not_fed() {
    let instance = Instance::new("");
    let manager = Manager::listen(&instance.path(""));
    let mut command = manager.command(&instance);
    command.env("WATCHDOG_USEC", "400000").env("WATCHDOG_PID", "1");
    let server = instance.up_by(command);
    manager.hears("READY=1");
    manager.hears_nothing_of("WATCHDOG", Duration::from_secs(2));
    server.stop();
}

#[test]
fn a_hangup_takes_new_exports_and_log_level_and_says_what_needs_a_restart() {
    let instance = Instance::new("");
    let file = instance.path("forebay.toml");
    let text = fs::read_to_string(&file).unwrap();
    let export = |path: &str| format!("[[nfs.export]]\npath = {path:?}\nclients = [\"127.0.0.1\"]\n");
    fs::write(&file, format!("{text}\n{}", export("/old"))).unwrap();
    let server = instance.up();
    for directory in ["/old", "/new"] {
        assert_eq!(server.call("MKCOL", directory).status, 201);
    }
    // One session: the server has room for a number of them only, and this asks often.
    let mut client = server.nfs("client");
    let mut sees = |directory: &str| {
        let root = client.root().unwrap();
        client.lookup(&root, directory).is_ok()
    };
    until("the export is there", || sees("old"));
    assert!(!sees("new"));
    let waiting = |keys: &str| {
        let line = format!("keys=\"{keys}\"");
        let log = server.log();
        log.lines().any(|told| told.contains("these keys need a restart") && told.contains(&line))
    };

    let log_level = "[log]\nlevel = \"info\"\n";
    let both = export("/old") + &export("/new");
    fs::write(&file, format!("{text}\nlocks_max = 7\n{both}{log_level}")).unwrap();
    server.signal(Signal::HUP);
    until("it says what needs a restart", || waiting("http.locks_max"));
    until("the new export is there", || sees("new"));

    // Clients may have files open there.
    fs::write(&file, format!("{text}\n{}{log_level}", export("/new"))).unwrap();
    server.signal(Signal::HUP);
    until("it says that an export is not taken away", || waiting("nfs.export"));
    assert!(sees("old"));

    fs::write(&file, format!("{text}\n{both}{log_level}")).unwrap();
    server.signal(Signal::HUP);
    until("it is told that all is in force", || server.log().contains("read again and in force"));
    server.stop();
}

/// A server that `script` has started at a terminal of its own, with what the terminal showed.
struct AtTerminal {
    script: std::process::Child,
    log: std::path::PathBuf,
    pid: rustix::process::Pid,
}

impl AtTerminal {
    /// `{}` in `line` is the command that starts the server.
    fn start(instance: &Instance, line: &str) -> AtTerminal {
        let log = instance.path("terminal");
        let up = instance.up_command();
        let words = std::iter::once(up.get_program()).chain(up.get_args());
        let command: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let line = line.replace("{}", &command.join(" "));
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--flush", "--command", &line]).arg(&log);
        script.env("FOREBAY_LOG_LEVEL", "info").stdin(Stdio::null()).stdout(Stdio::null());
        let script = script.spawn().expect("run script (bsdutils)");
        let pid = || shown(&log).split_once("or: kill ")?.1.split_once(char::is_whitespace)?.0.parse().ok();
        until("it serves", || pid().is_some());
        let pid = pid().expect("it was there above");
        AtTerminal { script, log, pid: rustix::process::Pid::from_raw(pid).unwrap() }
    }

    /// Returns what the terminal showed.
    fn stop(mut self) -> String {
        rustix::process::kill_process(self.pid, Signal::TERM).unwrap();
        let is_success = self.script.wait().unwrap().success();
        let text = shown(&self.log);
        assert!(is_success, "{text}");
        text
    }

    /// The terminal goes with `script`.
    fn close(&mut self) {
        self.script.kill().unwrap();
        self.script.wait().unwrap();
    }

    fn is_there(&self) -> bool {
        let words = fs::read(format!("/proc/{}/cmdline", self.pid.as_raw_nonzero()));
        !words.unwrap_or_default().is_empty()
    }

    fn reads_again_at_a_hangup(&self) {
        rustix::process::kill_process(self.pid, Signal::HUP).unwrap();
        until("it reads its configuration again", || {
            shown(&self.log).contains("configuration is read again")
        });
    }
}

fn shown(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}

#[test]
fn a_hangup_does_not_end_a_server_that_outlives_its_terminal() {
    let instance = Instance::new("");
    // As `StandardOutput=tty` has it; as nohup does.
    for line in ["exec {} </dev/null", "trap '' HUP; exec {}"] {
        let mut server = AtTerminal::start(&instance, line);
        server.reads_again_at_a_hangup();
        server.close();
        rustix::process::kill_process(server.pid, Signal::HUP).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(server.is_there(), "{line}");
        rustix::process::kill_process(server.pid, Signal::TERM).unwrap();
        until("it ends", || !server.is_there());
        fs::remove_file(&server.log).unwrap();
    }
}

/// `docker run -t` and `docker run -it` give the server a terminal on all three streams; `docker kill -s HUP` is no end.
#[test]
fn a_server_at_a_terminal_ends_when_that_is_closed_and_not_at_a_hangup_before() {
    let instance = Instance::new("");
    // The tests themselves may have been started with SIGHUP ignored.
    let mut server = AtTerminal::start(&instance, "exec env --default-signal=HUP {}");
    server.reads_again_at_a_hangup();
    server.close();
    until("it ends", || !server.is_there());
}

/// As zsh does to jobs in the background when it ends.
#[test]
fn a_server_that_is_hung_up_just_before_its_terminal_is_closed_ends() {
    let instance = Instance::new("");
    // A job in the background: the kernel tells only the shell and the job in front that the terminal is closed.
    let mut server = AtTerminal::start(&instance, "set -m; env --default-signal=HUP {} & wait");
    server.reads_again_at_a_hangup();
    server.close();
    until("it ends", || !server.is_there());
}

#[test]
fn a_stop_during_the_start_ends_the_server_at_once() {
    let instance = Instance::new("");
    // A database that takes the connection and never answers, as a migration that lasts.
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = database.local_addr().unwrap();
    let mut command = instance.up_command();
    command.env("FOREBAY_NAMESPACE_DATABASE", format!("postgres://forebay@{address}/forebay"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _asked = database.accept().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success(), "it was told to stop, and did not fail");
}

#[test]
fn a_configuration_with_a_mistake_is_not_taken_at_a_hangup() {
    let instance = Instance::new("");
    let mut server = instance.up();
    server.expect_errors(&["configuration is not taken"]);
    let file = instance.path("forebay.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}\nlocks_mox = 7\n")).unwrap();
    server.signal(Signal::HUP);
    until("the mistake is told", || server.log().contains("unknown field `locks_mox`"));
    assert_eq!(server.status_of("GET", "/"), 200);
    server.stop();
}

#[test]
fn the_first_login_is_in_a_file_of_its_owner_until_the_password_is_changed() {
    let instance = Instance::new("");
    let server = instance.up();
    let file = instance.data().join("first-login");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let login = fs::read_to_string(&file).unwrap();
    assert_eq!(server.credential, format!("Basic {}", base64(login.trim_end().as_bytes())));
    assert!(!server.log().contains(login.trim_end().split_once(':').unwrap().1));
    instance.forebay(&["user", "set-password", ADMIN]);
    assert!(!file.exists());
    server.stop();
}

/// `docker run -t` and `tty: true` give the server a terminal whose output is the container's log.
#[test]
fn the_first_login_is_not_printed_where_the_terminal_is_a_container_log() {
    // The server leads the session of the terminal, or a script that does so has started it.
    for line in ["exec {}", "{}; true", "sh -c \"{}; true\"; true"] {
        let instance = Instance::new("");
        let text = AtTerminal::start(&instance, line).stop();
        let login = fs::read_to_string(instance.data().join("first-login")).unwrap();
        assert!(!text.contains(login.trim_end().split_once(':').unwrap().1), "{line}: {text}");
    }
}

#[test]
fn the_first_login_is_printed_for_a_person_at_a_shell() {
    let instance = Instance::new("");
    // Job control, as of an interactive shell.
    let text = AtTerminal::start(&instance, "set -m; {}; true").stop();
    assert!(!instance.data().join("first-login").exists());
    assert!(text.contains("shown this once"), "{text}");
}

#[test]
fn a_password_that_was_set_a_moment_ago_is_accepted_at_once() {
    let instance = Instance::new("");
    let server = instance.up();
    // More than wrong passwords are accepted in a row.
    for _ in 0..7 {
        let password = instance.output(&["user", "set-password", ADMIN]);
        let credential = basic(ADMIN, std::str::from_utf8(&password).unwrap().trim());
        let answer = server.send(&Ask::new("GET", "/").with("Authorization", &credential));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    server.stop();
}

#[test]
fn the_access_log_has_a_line_for_each_request_and_is_reopened_at_a_hangup() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let instance = Instance::new(&format!("access_log = {path:?}"));
    let server = instance.up();
    assert_eq!(server.put("/a", "0123456789").status, 201);
    assert_eq!(server.read("/a"), b"0123456789");
    let ask = server.ask("GET", "/none?authz=SECRET").with("User-Agent", "a \"client\"");
    assert!(server.send(&ask).status >= 400);
    let lines = || fs::read_to_string(&path).unwrap_or_default();
    until("three lines", || lines().lines().count() == 3);
    let found = lines();
    let line_of =
        |text: &str| found.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{found}"));
    let put = line_of("\"PUT /a HTTP/1.1\" 201 ");
    assert!(put.starts_with("127.0.0.1 - admin [") && put.ends_with(" 10"), "bytes received: {put}");
    line_of("\"GET /a HTTP/1.1\" 200 10 \"-\" \"-\" ");
    assert!(line_of("GET /none?authz=... ").contains("a \\x22client\\x22"), "{found}");
    assert!(!found.contains("SECRET"));

    let moved = dir.path().join("access.log.1");
    fs::rename(&path, &moved).unwrap();
    server.signal(Signal::HUP);
    until("it is opened again", || path.exists());
    assert_eq!(server.status_of("GET", "/a"), 200);
    server.stop();
    assert_eq!(fs::read_to_string(&moved).unwrap(), found);
    assert_eq!(lines().lines().count(), 1, "the last line is written before the end");
}

#[test]
fn an_access_log_that_cannot_be_written_is_told_at_the_start() {
    let instance = Instance::new("access_log = \"/none/access.log\"");
    let output = instance.up_command().output().unwrap();
    assert_one_line(&output, "cannot open http.access_log = /none/access.log");
}

#[test]
fn with_json_every_line_on_both_outputs_is_an_object() {
    let instance = Instance::new("");
    let mut command = instance.up_command();
    command.env("FOREBAY_LOG_FORMAT", "json").env("FOREBAY_LOG_LEVEL", "info");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("\"ready\"") {
        assert!(stdout.read_line(&mut text).unwrap() > 0, "it ends before it is ready: {text}");
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    stdout.read_to_string(&mut text).unwrap();
    text += &String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let mut messages = Vec::new();
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(object["timestamp"].is_string() && object["level"].is_string(), "{line}");
        messages.push(object["fields"]["message"].as_str().unwrap_or_default().to_owned());
    }
    assert!(messages.iter().any(|message| message == "ready"), "{text}");
    assert!(messages.iter().any(|message| message == "stopping"), "{text}");
}

#[test]
fn in_the_journal_each_line_has_its_priority() {
    let instance = Instance::new("");
    let log = instance.path("log");
    fs::write(&log, "").unwrap();
    let found = fs::metadata(&log).unwrap();
    let stream = format!("{}:{}", found.dev(), found.ino());
    let mut command = instance.up_command();
    command.env("JOURNAL_STREAM", &stream).env("FOREBAY_LOG_LEVEL", "info");
    let mut server = instance.up_by(command);
    server.expect_errors(&["configuration is not taken"]);
    fs::remove_file(instance.path("forebay.toml")).unwrap();
    server.signal(Signal::HUP);
    until("the mistake is told", || server.log().contains("configuration is not taken"));
    let text = server.log();
    let line = text.lines().find(|line| line.contains("not taken")).unwrap();
    assert!(line.starts_with("<3>ERROR forebay::up::reload: "), "{line}");
    assert!(text.lines().all(|line| line.starts_with('<')), "{text}");

    let mut again = instance.up_command();
    let refused =
        again.env("JOURNAL_STREAM", &stream).stderr(fs::File::options().append(true).open(&log).unwrap());
    assert!(!refused.status().unwrap().success());
    assert!(server.log().lines().last().unwrap().starts_with("<3>forebay: "), "{}", server.log());
    server.stop();
}

#[test]
fn the_environment_goes_before_the_file_and_behind_the_command_line() {
    let instance = Instance::new("site = \"of-the-file\"\nport = 1");
    let mut command = instance.up_command();
    command.env("FOREBAY_HTTP_SITE", "of-the-environment").env("FOREBAY_HTTP_PORT", "2");
    let server = instance.up_by(command);
    assert!(server.web().port() > 2, "--http-port 0 is on the command line");
    let metrics = Ask::new("GET", "/metrics").send(server.web()).text();
    assert!(metrics.contains("site=\"of-the-environment\""), "{metrics}");
    server.stop();
}

#[test]
fn a_variable_that_is_no_key_is_refused_in_a_line() {
    let instance = Instance::new("");
    let output = instance.up_command().env("FOREBAY_HTTP_PROT", "1").output().unwrap();
    assert_one_line(&output, "FOREBAY_HTTP_PROT is no configuration key");
    let mut status = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let output =
        status.args(["status", "--data"]).arg(instance.data()).env("FOREBAY_X", "1").output().unwrap();
    assert_one_line(&output, "FOREBAY_X is no configuration key");
}

#[test]
fn the_process_is_in_the_metrics_by_the_usual_names() {
    let (_instance, server) = Server::start();
    let metrics = Ask::new("GET", "/metrics").send(server.web()).text();
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("process_cpu_seconds_total") > 0.0);
    assert!(value("process_open_fds") > 5.0 && value("process_open_fds") < value("process_max_fds"));
    assert!(value("process_resident_memory_bytes") > 1e6);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - value("process_start_time_seconds")).abs() < 600.0);
}

fn assert_one_line(output: &Output, words: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it succeeds");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("forebay: ") && text.contains(words), "{text}");
}

#[test]
fn third_party_copies_are_counted_in_the_metrics() {
    let ((_instance, server), (_other, source)) = (Server::start(), Server::start());
    assert_eq!(source.put("/file", "12345678").status, 201);
    for name in ["/file", "/none"] {
        let pull = server.ask("COPY", "/copy").with("Source", source.url(name));
        assert_eq!(server.send(&pull).status, 202);
    }
    let metrics = Ask::new("GET", "/metrics").send(server.web()).text();
    for line in [
        "forebay_third_party_copies{direction=\"pull\"} 0",
        "forebay_third_party_copies_started_total{direction=\"pull\"} 2",
        "forebay_third_party_copies_finished_total{direction=\"pull\",result=\"done\"} 1",
        "forebay_third_party_copies_finished_total{direction=\"pull\",result=\"failed\"} 1",
        "forebay_third_party_copy_bytes_total{direction=\"pull\"} 8",
        "forebay_third_party_copies_started_total{direction=\"push\"} 0",
    ] {
        assert!(metrics.lines().any(|known| known == line), "no {line} in {metrics}");
    }
}
