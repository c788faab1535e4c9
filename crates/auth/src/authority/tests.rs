//! The whole of it: from a credential to a caller.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use testkit::clock::ManualClock;
use types::Name;

use super::fixture::{ISSUER, NOW_S, TestFetch, TestKey, with, without, wlcg};
use super::*;
use crate::config::{Issuer, KeyBounds, Profile};
use crate::macaroons::instant;
use crate::macaroons::tests::append;
use crate::passwords::file::{self, NewUser};

const MAPPING: &str = "\
user:boss                                 -> 0 0 admin
sub:https://issuer.example anna           -> 1001 1000,27 admin
group:https://issuer.example /wlcg/test   -> 3000 3000
group:https://issuer.example /wlcg/*      -> 3001 3001
";

struct Trial {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    key: TestKey,
    authority: Authority,
}

impl Trial {
    fn mapping_file(&self) -> PathBuf {
        self.folder.path().join("mapping")
    }
}

fn trial_with(change: impl FnOnce(&mut Config)) -> Trial {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mapping"), MAPPING).unwrap();
    let clock = Arc::new(ManualClock::new(NOW_S.cast_signed()));
    let key = TestKey::p256("k");
    let fetch = TestFetch::default();
    fetch.publish(ISSUER, &[&key]);
    let mut config = Config::new([7; 32]);
    config.password_file = Some(folder.path().join("passwords"));
    config.mapping_file = Some(folder.path().join("mapping"));
    config.issuers = vec![Issuer {
        url: ISSUER.to_owned(),
        profile: Profile::Auto,
        base_path: names("/vo"),
        audiences: vec!["https://storage.example".to_owned()],
        identity: Some(Identity::new(5000, 5000, &[])),
        members_may_read: true,
        keys: KeyBounds::default(),
    }];
    change(&mut config);
    let fetch: Arc<dyn Fetch> = Arc::new(fetch);
    let authority = Authority::open(config, &fetch, clock.clone()).unwrap();
    Trial { folder, clock, key, authority }
}

fn trial() -> Trial {
    trial_with(|_| {})
}

fn names(path: &str) -> Vec<Name> {
    crate::paths::parse(path.as_bytes()).unwrap()
}

fn origin(is_encrypted: bool) -> Origin {
    Origin { address: "192.0.2.1".parse().unwrap(), is_encrypted }
}

impl Trial {
    async fn ask(&self, credential: Credential<'_>) -> Result<Caller, AuthError> {
        self.authority.authenticate(credential, &origin(true)).await
    }

    async fn by_claims(&self, claims: &serde_json::Value) -> Result<Caller, AuthError> {
        self.ask(Credential::Bearer(&self.key.token(claims))).await
    }
}

#[tokio::test]
async fn a_token_with_scopes_is_its_subject_within_them_and_no_administrator() {
    let trial = trial();
    let caller = trial.by_claims(&wlcg("storage.read:/data")).await.unwrap();
    assert_eq!((caller.name.as_ref(), caller.identity.uid, caller.role), ("anna", 1001, Role::User));
    assert_eq!(caller.expires_s, Some(NOW_S + 3600));
    assert!(caller.may(Activity::Download, &names("/vo/data/x")));
    assert!(!caller.may(Activity::Download, &names("/vo/other")));
    let stranger = with(wlcg("storage.read:/"), "sub", "bert");
    assert_eq!(trial.by_claims(&stranger).await.unwrap().identity.uid, 5000);
}

#[tokio::test]
async fn scopes_win_over_groups_and_groups_act_where_there_are_none() {
    let trial = trial();
    let bert =
        |scope: &str, groups: &[&str]| with(with(wlcg(scope), "sub", "bert"), "wlcg.groups", json!(groups));
    let scoped = trial.by_claims(&bert("storage.read:/", &["/wlcg/test"])).await.unwrap();
    assert_eq!(scoped.identity.uid, 5000);
    assert!(!scoped.may(Activity::Upload, &names("/vo/x")));
    let computing = trial.by_claims(&bert("compute.read", &["/wlcg/test"])).await.unwrap();
    assert_eq!(computing.identity.uid, 5000, "a capability for another service silences groups too");
    assert!(Activity::ALL.iter().all(|activity| !computing.may(*activity, &names("/vo/x"))));

    let member = trial.by_claims(&bert("openid", &["/wlcg", "/wlcg/test"])).await.unwrap();
    assert_eq!(member.identity.uid, 3000);
    assert!(member.may(Activity::Upload, &names("/vo/x")));
    assert!(!member.may(Activity::Upload, &names("/other/x")), "not outside of the issuer's base path");

    let nobody = trial.by_claims(&bert("openid", &["/other"])).await.unwrap();
    assert_eq!(nobody.identity.uid, 5000);
    assert!(
        nobody.may(Activity::Download, &names("/vo/x")) && !nobody.may(Activity::Upload, &names("/vo/x"))
    );
}

#[tokio::test]
async fn a_token_that_says_nothing_we_know_is_forbidden_unless_members_may_read() {
    let trial = trial_with(|config| config.issuers[0].members_may_read = false);
    let claims = with(wlcg("openid"), "sub", "bert");
    assert!(matches!(trial.by_claims(&claims).await, Err(AuthError::Forbidden(_))));
    let trial = trial_with(|config| config.issuers[0].identity = None);
    let claims = with(wlcg("storage.read:/"), "sub", "bert");
    assert!(matches!(trial.by_claims(&claims).await, Err(AuthError::Forbidden(_))));
}

#[tokio::test]
async fn a_changed_mapping_is_in_force_for_tokens_that_were_seen_before() {
    let trial = trial();
    let claims = wlcg("storage.read:/");
    let token = trial.key.token(&claims);
    assert_eq!(trial.ask(Credential::Bearer(&token)).await.unwrap().identity.uid, 1001);
    fs::write(trial.mapping_file(), "sub:https://issuer.example anna -> 77 77\n").unwrap();
    trial.clock.advance(2);
    assert_eq!(trial.ask(Credential::Bearer(&token)).await.unwrap().identity.uid, 77);
}

#[tokio::test]
async fn a_token_without_a_subject_goes_by_its_issuer() {
    let trial = trial();
    let claims = with(without(without(wlcg("read:/"), "sub"), "wlcg.ver"), "ver", "scitoken:2.0");
    assert_eq!(trial.by_claims(&claims).await.unwrap().name.as_ref(), ISSUER);
}

#[tokio::test]
async fn a_macaroon_is_minted_for_a_caller_and_taken_as_a_bearer() {
    let trial = trial();
    let caller = trial.by_claims(&wlcg("storage.read:/data")).await.unwrap();
    let made = trial.authority.mint(&caller, &MacaroonRequest::default()).unwrap();
    assert_eq!(made.expires_s, NOW_S + 3600, "not longer than the token");
    let bearer = trial.ask(Credential::Bearer(&made.token)).await.unwrap();
    assert_eq!((&bearer.identity, bearer.role), (&caller.identity, Role::User));
    assert!(bearer.may(Activity::Download, &names("/vo/data/x")));
    assert!(!bearer.may(Activity::Upload, &names("/vo/data/x")));
    trial.clock.advance(3600);
    assert!(trial.ask(Credential::Bearer(&made.token)).await.is_err());
}

#[tokio::test]
async fn secrets_are_not_taken_in_clear_unless_it_is_said() {
    let strict = trial();
    let token = strict.key.token(&wlcg("storage.read:/"));
    for credential in [Credential::Bearer(&token), Credential::Password { user: "a", password: "b" }] {
        let why = strict.authority.authenticate(credential, &origin(false)).await.unwrap_err();
        assert!(why.to_string().contains("over TLS only"), "{why}");
    }
    let lax = trial_with(|config| config.secrets_in_clear = SecretsInClear::Accepted);
    let token = lax.key.token(&wlcg("storage.read:/"));
    assert!(lax.authority.authenticate(Credential::Bearer(&token), &origin(false)).await.is_ok());
}

#[tokio::test]
async fn secrets_in_clear_are_taken_from_the_networks_that_are_named() {
    let networks = vec!["10.1.0.0/16".parse().unwrap()];
    let trial = trial_with(|config| config.secrets_in_clear = SecretsInClear::From(networks));
    let token = trial.key.token(&wlcg("storage.read:/"));
    for (address, is_accepted) in [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("10.2.0.1", false)] {
        let from = Origin { address: address.parse().unwrap(), is_encrypted: false };
        let answer = trial.authority.authenticate(Credential::Bearer(&token), &from).await;
        assert_eq!(answer.is_ok(), is_accepted, "{address}: {answer:?}");
    }
}

#[tokio::test]
async fn nobody_is_refused_or_reads() {
    assert!(matches!(trial().ask(Credential::None).await, Err(AuthError::Refused(_))));
    let open = trial_with(|config| config.anonymous = Anonymous::ReadOnly(Identity::new(99, 99, &[])));
    let caller = open.ask(Credential::None).await.unwrap();
    assert_eq!((caller.role, caller.identity.uid), (Role::Anonymous, 99));
    assert!(caller.may(Activity::Download, &names("/x")) && caller.may(Activity::List, &[]));
    for activity in [Activity::Upload, Activity::Delete, Activity::Manage, Activity::UpdateMetadata] {
        assert!(!caller.may(activity, &names("/x")), "{activity:?}");
    }
    assert!(matches!(
        open.authority.mint(&caller, &MacaroonRequest::default()),
        Err(AuthError::Forbidden(_))
    ));
}

#[tokio::test]
async fn a_wrong_credential_is_not_nobody() {
    let open = trial_with(|config| config.anonymous = Anonymous::ReadOnly(Identity::nobody()));
    for bad in ["", "x", "a.b.c", "AgEB"] {
        assert!(open.ask(Credential::Bearer(bad)).await.is_err(), "{bad}");
    }
    let certificate = [Bytes::from_static(b"not DER")];
    assert!(open.ask(Credential::Certificates(&certificate)).await.is_err());
}

fn new_user(name: &str) -> NewUser {
    NewUser {
        name: name.to_owned(),
        identity: Identity::new(1001, 1000, &[]),
        role: Role::User,
        password: None,
    }
}

#[tokio::test]
async fn a_user_logs_in_with_the_password_that_was_made_up() {
    let trial = trial();
    let passwords = trial.folder.path().join("passwords");
    let password = file::add(&passwords, &new_user("boss")).unwrap();
    trial.clock.advance(2);
    let caller = trial.ask(Credential::Password { user: "boss", password: &password }).await.unwrap();
    assert_eq!((caller.name.as_ref(), caller.identity.uid), ("boss", 0), "the mapping file wins");
    assert_eq!((caller.role, caller.grants, caller.expires_s), (Role::Admin, None, None));
}

#[tokio::test]
async fn macaroons_made_by_password_end_when_it_is_changed_or_its_user_removed() {
    let trial = trial();
    let passwords = trial.folder.path().join("passwords");
    let (bert, carl) = (
        file::add(&passwords, &new_user("bert")).unwrap(),
        file::add(&passwords, &new_user("carl")).unwrap(),
    );
    trial.clock.advance(2);
    let log_in = async |user, password: &str| trial.ask(Credential::Password { user, password }).await;
    let mint = |caller: &Caller| trial.authority.mint(caller, &MacaroonRequest::default()).unwrap().token;
    let taken = async |token: &str| trial.ask(Credential::Bearer(token)).await;
    let before = log_in("bert", &bert).await.unwrap();
    let first = mint(&before);
    let of_first = mint(&taken(&first).await.unwrap());
    let of_carl = mint(&log_in("carl", &carl).await.unwrap());

    let bert = file::set_password(&passwords, "bert", None).unwrap();
    trial.clock.advance(2);
    for ended in [&first, &of_first, &mint(&before)] {
        assert!(matches!(taken(ended).await, Err(AuthError::Refused(_))));
    }
    assert!(taken(&of_carl).await.is_ok());
    assert!(taken(&mint(&log_in("bert", &bert).await.unwrap())).await.is_ok());
    file::remove(&passwords, "carl").unwrap();
    trial.clock.advance(2);
    assert!(matches!(taken(&of_carl).await, Err(AuthError::Refused(_))));
}

fn session() -> MacaroonRequest {
    MacaroonRequest { is_session: true, ..Default::default() }
}

#[tokio::test]
async fn a_session_ends_with_its_logout_also_after_a_restart_and_others_go_on() {
    let trial = trial();
    let ended_file = trial.folder.path().join("ended-sessions");
    let open = || trial_with(|config| config.ended_file = Some(ended_file.clone()));
    let server = open();
    let caller = server.by_claims(&wlcg("storage.read:/data")).await.unwrap();
    let mint = || server.authority.mint(&caller, &session()).unwrap().token;
    let (session, other) = (mint(), mint());
    server.authority.end("not one of ours").await;
    server.authority.end(&session).await;
    for server in [&server, &open()] {
        assert!(matches!(server.ask(Credential::Bearer(&session)).await, Err(AuthError::Refused(_))));
        assert!(server.ask(Credential::Bearer(&other)).await.is_ok());
    }
}

#[tokio::test]
async fn a_session_ends_with_all_that_was_made_of_it_by_appending_caveats() {
    let trial = trial();
    let caller = trial.by_claims(&wlcg("storage.read:/data")).await.unwrap();
    let session = trial.authority.mint(&caller, &session()).unwrap().token;
    let in_it = trial.ask(Credential::Bearer(&session)).await.unwrap();
    let link = trial.authority.mint(&in_it, &MacaroonRequest::default()).unwrap().token;
    let (narrow, beside) = (append(&session, "activity:DOWNLOAD"), append(&session, "path:/vo/data"));
    let taken = async |token: &str| trial.ask(Credential::Bearer(token)).await.is_ok();
    assert!(taken(&narrow).await && taken(&beside).await);
    trial.authority.end(&narrow).await;
    assert!(!taken(&session).await && !taken(&narrow).await && !taken(&beside).await);
    assert!(taken(&link).await, "it was given, not appended to");
}

/// Anybody makes as many different tokens of a share link as he likes.
#[tokio::test]
async fn a_logout_with_a_macaroon_that_is_no_session_leaves_no_trace() {
    let trial = trial();
    let ended_file = trial.folder.path().join("ended-sessions");
    let server = trial_with(|config| config.ended_file = Some(ended_file.clone()));
    let caller = server.by_claims(&wlcg("storage.read:/data")).await.unwrap();
    let link = server.authority.mint(&caller, &MacaroonRequest::default()).unwrap();
    for sooner_s in 0..100 {
        let narrow =
            append(&link.token, &format!("before:{}", instant::show(link.expires_s - 60 - sooner_s)));
        server.authority.end(&narrow).await;
        assert!(server.ask(Credential::Bearer(&narrow)).await.is_ok());
    }
    server.authority.end(&link.token).await;
    assert!(server.ask(Credential::Bearer(&link.token)).await.is_ok());
    assert!(!ended_file.exists());
}

#[tokio::test]
async fn an_ended_session_is_remembered_until_it_would_have_expired_and_no_longer() {
    let trial = trial();
    let ended_file = trial.folder.path().join("ended-sessions");
    let server = trial_with(|config| config.ended_file = Some(ended_file.clone()));
    let caller = server.by_claims(&wlcg("storage.read:/data")).await.unwrap();
    let session = server.authority.mint(&caller, &session()).unwrap();
    let end_s = session.expires_s;
    server.authority.end(&append(&session.token, &format!("before:{}", instant::show(end_s - 60)))).await;
    let text = fs::read_to_string(ended_file).unwrap();
    assert!(
        text.ends_with(&format!(" {end_s}\n")),
        "the whole session has ended, not what was made of it: {text}"
    );
}

/// Password checks, syncs of logs and reads of files need these threads too.
#[test]
fn logouts_that_wait_for_the_disk_take_one_thread_and_are_written_together() {
    const LOGOUTS: usize = 50;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build().unwrap();
    runtime.block_on(async {
        let trial = trial();
        let ended_file = trial.folder.path().join("ended-sessions");
        let server = Arc::new(trial_with(|config| config.ended_file = Some(ended_file.clone())));
        let caller = server.by_claims(&wlcg("storage.read:/data")).await.unwrap();
        // A disk that stands still: a pipe without a reader is not opened.
        let pipe = trial.folder.path().join("ended-sessions.new");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut logouts = tokio::task::JoinSet::new();
        for _ in 0..LOGOUTS {
            let session = server.authority.mint(&caller, &session()).unwrap().token;
            let server = server.clone();
            logouts.spawn(async move {
                server.authority.end(&session).await;
                assert!(server.ask(Credential::Bearer(&session)).await.is_err());
            });
        }
        tokio::task::yield_now().await;
        let other = tokio::task::spawn_blocking(|| ());
        let is_run = tokio::time::timeout(Duration::from_secs(5), other).await.is_ok();
        // The pipe does not end between two writes.
        let kept_open = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let mut reader = fs::File::open(&pipe).unwrap();
        let written = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        while let Some(ended) = logouts.join_next().await {
            ended.unwrap();
        }
        drop(kept_open);
        assert!(is_run, "another call that blocks is served meanwhile");
        let lines = written.join().unwrap().lines().count();
        assert!(lines <= 2 * LOGOUTS, "each was written with all others that waited: {lines} lines");
    });
}

#[test]
fn a_broken_file_is_told_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mapping");
    fs::write(&path, "\nuser:anna\n").unwrap();
    let config = Config { mapping_file: Some(path.clone()), ..Config::new([0; 32]) };
    let fetch: Arc<dyn Fetch> = Arc::new(TestFetch::default());
    let error = Authority::open(config, &fetch, Arc::new(ManualClock::new(0))).err().unwrap();
    assert!(error.starts_with(&format!("{}:2: ", path.display())), "{error}");
}

/// DER of a certificate of `CN=name`, and PEM of the authority that signed it.
fn certificate(name: &str) -> (Bytes, String) {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let params = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = epoch + Duration::from_secs(NOW_S - 3600);
        params.not_after = epoch + Duration::from_secs(NOW_S + 7200);
        params
    };
    let mut authority = params("Authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let mut user = params(name);
    user.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let issuer = Issuer::new(authority, authority_key);
    let signed = user.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    (Bytes::copy_from_slice(signed.der()), pem)
}

#[tokio::test]
async fn a_certificate_is_who_the_mapping_says_until_it_ends() {
    let (anna, authority) = certificate("Anna Doe");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("authority.pem"), authority).unwrap();
    let trial = trial_with(|config| {
        config.x509 = Some(x509::VerifierConfig {
            ca_dir: folder.path().to_path_buf(),
            vomsdir: folder.path().join("vomsdir"),
            ..x509::VerifierConfig::default()
        });
    });
    let unknown = trial.ask(Credential::Certificates(std::slice::from_ref(&anna))).await.unwrap_err();
    assert!(matches!(unknown, AuthError::Forbidden(_)), "{unknown}");
    assert!(unknown.to_string().contains("/O=Example/CN=Anna Doe"), "{unknown}");

    fs::write(trial.mapping_file(), "dn:/O=Example/CN=Anna Doe -> 1001 1000,27\n").unwrap();
    trial.clock.advance(2);
    let caller = trial.ask(Credential::Certificates(std::slice::from_ref(&anna))).await.unwrap();
    assert_eq!((caller.identity.uid, caller.expires_s), (1001, Some(NOW_S + 7200)));
    let macaroon = trial.authority.mint(&caller, &MacaroonRequest::default()).unwrap();
    assert_eq!(macaroon.expires_s, NOW_S + 7200);

    let (stranger, _) = certificate("Anna Doe");
    let refused = trial.ask(Credential::Certificates(&[stranger])).await.unwrap_err();
    assert!(matches!(refused, AuthError::Refused(_)), "of another authority: {refused}");
    trial.clock.advance(8000);
    assert!(matches!(trial.ask(Credential::Certificates(&[anna])).await, Err(AuthError::Refused(_))));
}

#[tokio::test]
async fn certificates_are_refused_where_none_are_configured() {
    let (anna, _) = certificate("Anna Doe");
    assert!(matches!(trial().ask(Credential::Certificates(&[anna])).await, Err(AuthError::Refused(_))));
}

/// As in a trial: the issuer is a server on this machine, asked by the client that the binary uses.
#[tokio::test]
async fn keys_come_from_a_server_on_loopback() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let key = TestKey::rsa("k");
    let discovery = json!({"issuer": url, "jwks_uri": format!("{url}/jwks")}).to_string();
    let keys = json!({"keys": [key.jwk()]}).to_string();
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let body = if head.starts_with(b"GET /jwks ") { &keys } else { &discovery };
            assert!(
                head.starts_with(b"GET /jwks ")
                    || head.starts_with(b"GET /.well-known/openid-configuration ")
            );
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let client = http_client::Client::new(http_client::ClientConfig::default().reaching_loopback()).unwrap();
    let issuer = Issuer {
        url: url.clone(),
        profile: Profile::Wlcg,
        base_path: Vec::new(),
        audiences: vec!["https://storage.example".to_owned()],
        identity: Some(Identity::nobody()),
        members_may_read: false,
        keys: KeyBounds { deadline: Duration::from_secs(60), ..KeyBounds::default() },
    };
    let config = Config { issuers: vec![issuer], ..Config::new([0; 32]) };
    let fetch: Arc<dyn Fetch> = Arc::new(client);
    let authority = Authority::open(config, &fetch, Arc::new(ManualClock::new(NOW_S.cast_signed()))).unwrap();
    let token = key.token(&with(wlcg("storage.read:/"), "iss", url.as_str()));
    let caller = authority.authenticate(Credential::Bearer(&token), &origin(true)).await.unwrap();
    assert!(caller.may(Activity::Download, &names("/x")));
    server.await.unwrap();
}
