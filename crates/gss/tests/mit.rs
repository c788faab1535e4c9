//! The acceptor against MIT Kerberos: a KDC of its own on loopback, tickets and tokens by MIT's library.
//!
//! Needs Debian's krb5-kdc, krb5-admin-server, krb5-user and python3-gssapi; without them the tests say so and pass, unless
//! `FOREBAY_TEST_KERBEROS=required`.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_gss::{AcceptError, Accepted, Acceptor, Entropy, Keytab, UnixSeconds};
use tempfile::TempDir;
use types::{hex, hex::Hex};

const REALM: &str = "FOREBAY.TEST";
const PYTHON: &str = "/usr/bin/python3";
const ENCTYPES: [(i32, &str); 4] = [
    (17, "aes128-cts-hmac-sha1-96"),
    (18, "aes256-cts-hmac-sha1-96"),
    (19, "aes128-cts-hmac-sha256-128"),
    (20, "aes256-cts-hmac-sha384-192"),
];
const ENTROPY: Entropy = Entropy { confounder: [5; 16], subkey: [6; 32], sequence: 1234 };

/// A realm with the user `ann` and its KDC.
struct Realm {
    dir: TempDir,
    port: u16,
    kdc: Child,
}

impl Drop for Realm {
    fn drop(&mut self) {
        let _ = self.kdc.kill();
        let _ = self.kdc.wait();
    }
}

impl Realm {
    /// `None`, and a line that says why, where the tools are not installed.
    fn start() -> Option<Realm> {
        let imports = Command::new(PYTHON).args(["-c", "import gssapi"]).stderr(Stdio::null()).status();
        let has_tools =
            ["krb5kdc", "kdb5_util", "kadmin.local", "kinit"].iter().all(|tool| path(tool).is_some());
        if !has_tools || !imports.is_ok_and(|status| status.success()) {
            let is_required = std::env::var("FOREBAY_TEST_KERBEROS").is_ok_and(|word| word == "required");
            assert!(
                !is_required,
                "krb5-kdc, krb5-admin-server, krb5-user and python3-gssapi are required here"
            );
            eprintln!("skipped: needs krb5-kdc, krb5-admin-server, krb5-user and python3-gssapi");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let all = ENCTYPES.map(|(_, name)| format!("{name}:normal")).join(" ");
        fs::write(
            dir.path().join("kdc.conf"),
            format!(
                "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n \
                 {REALM} = {{\n  database_name = {}\n  key_stash_file = {}\n  acl_file = {}\n  \
                 supported_enctypes = {all}\n }}\n[logging]\n kdc = FILE:{}\n",
                at("principal"),
                at("stash"),
                at("acl"),
                at("kdc.log"),
            ),
        )
        .unwrap();
        let conf = client_conf(dir.path(), port, "all", "");
        run(&conf, dir.path(), "kdb5_util", &["create", "-s", "-r", REALM, "-P", "master"]);
        run(&conf, dir.path(), "kadmin.local", &["-r", REALM, "addprinc", "-pw", "secret", "ann"]);
        let kdc = command(&conf, dir.path(), "krb5kdc").arg("-n").args(["-r", REALM]).spawn().unwrap();
        let realm = Realm { dir, port, kdc };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the KDC does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(realm)
    }

    fn admin(&self, arguments: &[&str]) {
        let conf = self.dir.path().join("all.conf");
        run(&conf, self.dir.path(), "kadmin.local", &[&["-r", REALM], arguments].concat());
    }

    /// A new service with a key of one encryption type, and its keytab.
    fn service(&self, host: &str, enctype: &str) -> Keytab {
        let (principal, salted) = (format!("nfs/{host}"), format!("{enctype}:normal"));
        self.admin(&["addprinc", "-randkey", "-e", &salted, &principal]);
        let file = self.dir.path().join(format!("{host}.keytab")).display().to_string();
        self.admin(&["ktadd", "-norandkey", "-k", &file, &principal]);
        Keytab::parse(&fs::read(file).unwrap()).unwrap()
    }

    /// `ann` with a fresh ticket begins a context with `nfs/host`, using this encryption type only.
    fn initiate(&self, host: &str, enctype: &str, mutual: &str) -> Initiator {
        let permitted = format!(" permitted_enctypes = {enctype}\n");
        let conf = client_conf(self.dir.path(), self.port, enctype, &permitted);
        let mut kinit = command(&conf, self.dir.path(), "kinit")
            .arg("ann")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        kinit.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        assert!(kinit.wait().unwrap().success(), "kinit with {enctype}");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/initiator.py");
        let mut process = command(&conf, self.dir.path(), PYTHON)
            .arg(script)
            .args([&format!("nfs@{host}"), mutual])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut output = BufReader::new(output);
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        Initiator {
            process,
            input,
            output,
            token: hex::decode(first.trim().as_bytes()).expect("hexadecimal digits"),
        }
    }
}

/// MIT's library in a process of its own.
struct Initiator {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    token: Vec<u8>,
}

impl Initiator {
    fn ask(&mut self, command: &str, arguments: &[&[u8]]) -> Vec<u8> {
        let arguments: Vec<String> = arguments.iter().map(|argument| Hex(argument).to_string()).collect();
        writeln!(self.input, "{command} {}", arguments.join(" ")).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer = line.strip_prefix("= ").unwrap_or_else(|| panic!("{command} failed"));
        hex::decode(answer.trim().as_bytes()).expect("hexadecimal digits")
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn contexts_with_mit_clients_carry_messages_both_ways() {
    let Some(realm) = Realm::start() else { return };
    for (number, enctype) in ENCTYPES {
        let host = format!("e{number}.forebay.test");
        let keytab = realm.service(&host, enctype);
        let mut client = realm.initiate(&host, enctype, "mutual");
        let Accepted { context, reply } = accept(keytab, &client.token, now()).unwrap();
        assert_eq!(context.client().to_string(), format!("ann@{REALM}"));
        assert_eq!(context.service().to_string(), format!("nfs/{host}@{REALM}"));
        client.ask("finish", &[&reply]);
        for message in [&b"x"[..], b"exactly sixteen!", &[7; 5000]] {
            let mic = client.ask("mic", &[message]);
            assert_eq!(context.verify_mic(&[message], &mic), Ok(()), "{enctype}");
            client.ask("verify", &[message, &context.mic(&[message])]);
            for (how, is_sealed) in [("seal", true), ("wrap", false)] {
                let opened = context.unwrap(&client.ask(how, &[message])).unwrap();
                assert_eq!((&opened.data[..], opened.is_sealed), (message, is_sealed), "{enctype}");
            }
            assert_eq!(client.ask("unwrap", &[&context.seal(&[message], &[9; 16])]), message, "{enctype}");
            assert_eq!(client.ask("unwrap", &[&context.wrap_plain(&[message])]), message, "{enctype}");
        }
    }
}

#[test]
fn without_mutual_authentication_mit_clients_use_their_own_key() {
    let Some(realm) = Realm::start() else { return };
    let (_, enctype) = ENCTYPES[1];
    let keytab = realm.service("one.forebay.test", enctype);
    let mut client = realm.initiate("one.forebay.test", enctype, "one-sided");
    let Accepted { context, reply } = accept(keytab, &client.token, now()).unwrap();
    assert!(reply.is_empty());
    let mic = client.ask("mic", &[b"x"]);
    assert_eq!(context.verify_mic(&[b"x"], &mic), Ok(()));
    assert_eq!(client.ask("unwrap", &[&context.seal(&[b"y"], &[9; 16])]), b"y");
}

#[test]
fn tickets_of_mit_that_are_old_foreign_or_used_are_refused() {
    let Some(realm) = Realm::start() else { return };
    let (_, enctype) = ENCTYPES[1];
    let keytab = realm.service("one.forebay.test", enctype);
    let other = realm.service("two.forebay.test", enctype);
    let client = realm.initiate("one.forebay.test", enctype, "mutual");

    let error = accept(other, &client.token, now()).unwrap_err();
    assert!(matches!(error, AcceptError::UnknownService { .. }), "{error}");
    let error = accept(keytab.clone(), &client.token, now() + 30 * 86_400).unwrap_err();
    assert!(matches!(error, AcceptError::Expired { .. }), "{error}");
    let error = accept(keytab.clone(), &client.token, now() - 86_400).unwrap_err();
    assert!(matches!(error, AcceptError::NotYetValid { .. }), "{error}");

    let mut acceptor = Acceptor::new(keytab.clone(), "nfs").unwrap();
    acceptor.accept(&client.token, now(), &ENTROPY).unwrap();
    let error = acceptor.accept(&client.token, now(), &ENTROPY).unwrap_err();
    assert!(matches!(error, AcceptError::Replay { .. }), "{error}");

    // The KDC has a newer key than the keytab.
    realm.admin(&["cpw", "-randkey", "nfs/one.forebay.test"]);
    let client = realm.initiate("one.forebay.test", enctype, "mutual");
    let error = accept(keytab, &client.token, now()).unwrap_err();
    assert!(matches!(error, AcceptError::NoKey { .. }), "{error}");
}

fn accept(keytab: Keytab, token: &[u8], now: UnixSeconds) -> Result<Accepted, AcceptError> {
    Acceptor::new(keytab, "nfs").unwrap().accept(token, now, &ENTROPY)
}

fn now() -> UnixSeconds {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as UnixSeconds
}

fn client_conf(dir: &Path, port: u16, name: &str, more: &str) -> PathBuf {
    let file = dir.join(format!("{name}.conf"));
    let text = format!(
        "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n \
         dns_canonicalize_hostname = false\n default_ccache_name = FILE:{}\n{more}[realms]\n {REALM} = {{\n  \
         kdc = 127.0.0.1:{port}\n }}\n[domain_realm]\n .forebay.test = {REALM}\n",
        dir.join(format!("{name}.ccache")).display()
    );
    fs::write(&file, text).unwrap();
    file
}

fn run(conf: &Path, dir: &Path, tool: &str, arguments: &[&str]) {
    let output = command(conf, dir, tool).args(arguments).output().unwrap();
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
}

fn command(conf: &Path, dir: &Path, tool: &str) -> Command {
    let mut command = Command::new(path(tool).unwrap_or_else(|| tool.into()));
    command.env("KRB5_CONFIG", conf).env("KRB5_KDC_PROFILE", dir.join("kdc.conf"));
    command
}

/// The KDC's tools are where only root's PATH looks.
fn path(tool: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin"]
        .iter()
        .map(|dir| Path::new(dir).join(tool))
        .find(|file| file.exists())
}
