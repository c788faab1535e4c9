//! The page as a browser asks for it, over a real namespace.

use std::sync::Arc;
use std::time::Duration;

use api::{
    AuthError, Authenticator, Caller, CreateKind, Credential, Macaroon, MacaroonRequest, Origin, Role,
};
use async_trait::async_trait;
use http::{StatusCode, header};
use http_server::{Request, ResponseBody};
use parking_lot::Mutex;
use types::{Clock, FileId, Identity, Timestamp};

use super::visitor::Administrators;
use super::{Page, Response};
use crate::fixture::{FakeInstance, Fixture, request};
use crate::instance::Problem;

/// Knows `ann` and `root` by the password `right`, gives out sessions, and lets anybody read.
#[derive(Default)]
struct Issuer {
    sessions: Mutex<Vec<(String, String, Option<Duration>)>>,
}

#[async_trait]
impl Authenticator for Issuer {
    async fn authenticate(&self, credential: Credential<'_>, _: &Origin) -> Result<Caller, AuthError> {
        let user = |name: &str, role| Caller {
            name: name.into(),
            identity: Identity::new(1_000, 1_000, &[]),
            role,
            grants: None,
            expires_s: None,
            password: None,
        };
        match credential {
            Credential::None => Ok(Caller::anonymous()),
            Credential::Password { user: "ann", password: "right" } => Ok(user("ann", Role::User)),
            Credential::Password { user: "root", password: "right" } => Ok(user("root", Role::Admin)),
            Credential::Password { user: "ann", .. } => {
                Err(AuthError::Refused("the password is wrong".to_owned()))
            }
            Credential::Bearer(token) => {
                let sessions = self.sessions.lock();
                let found = sessions.iter().find(|(known, _, _)| known == token);
                // As a macaroon: an administrator's is an ordinary user's.
                found
                    .map(|(_, name, _)| user(name, Role::User))
                    .ok_or_else(|| AuthError::Refused("the macaroon has expired".to_owned()))
            }
            _ => Err(AuthError::Refused("nobody has this name".to_owned())),
        }
    }

    fn mint(&self, caller: &Caller, request: &MacaroonRequest) -> Result<Macaroon, AuthError> {
        let mut sessions = self.sessions.lock();
        let token = format!("session-{}-{}", caller.name, sessions.len());
        sessions.push((token.clone(), caller.name.to_string(), request.validity));
        Ok(Macaroon { token, expires_s: 1_000 })
    }

    async fn end(&self, session: &str) {
        self.sessions.lock().retain(|(token, ..)| token != session);
    }
}

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(100))
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

struct Browser {
    page: Page,
    fixture: Fixture,
    issuer: Arc<Issuer>,
}

struct Seen {
    status: StatusCode,
    headers: http::HeaderMap,
    text: String,
    user: Option<Arc<str>>,
}

impl Seen {
    fn location(&self) -> &str {
        self.headers[header::LOCATION].to_str().unwrap()
    }

    fn cookie(&self) -> &str {
        self.headers[header::SET_COOKIE].to_str().unwrap()
    }
}

impl Browser {
    fn new() -> Browser {
        Browser::on(FakeInstance::default())
    }

    fn on(instance: FakeInstance) -> Browser {
        let fixture = Fixture::with(instance);
        let issuer = Arc::new(Issuer::default());
        let page = Page {
            instance: Arc::clone(&fixture.instance) as _,
            namespace: Arc::clone(&fixture.namespace) as _,
            authenticator: Arc::clone(&issuer) as _,
            clock: Arc::new(Still),
            site: "test <site>".to_owned(),
            session_validity_max: Duration::from_secs(86_400),
            administrators: Administrators::default(),
        };
        Browser { page, fixture, issuer }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Seen {
        self.ask(request(method, path, headers, "127.0.0.1", body)).await
    }

    async fn ask(&self, request: Request) -> Seen {
        let Response { status, headers, body, user, .. } = self.page.handle(request).await;
        let text = match body {
            ResponseBody::Full(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => String::new(),
        };
        Seen { status, headers, text, user }
    }

    async fn see(&self, path: &str) -> Seen {
        self.send("GET", path, &[], "").await
    }

    async fn see_as(&self, session: &str, path: &str) -> Seen {
        self.send("GET", path, &[("cookie", session)], "").await
    }

    async fn log_in(&self, user: &str) -> String {
        let seen = self.send("POST", "/ui/login", &[], &format!("user={user}&password=right")).await;
        assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
        seen.cookie().split(';').next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_login_becomes_a_cookie_of_at_most_twelve_hours_and_leads_back() {
    let browser = Browser::new();
    let form = "user=ann&password=right&to=%2Fui%2Fpools";
    let seen = browser.send("POST", "/ui/login", &[("sec-fetch-site", "same-origin")], form).await;
    assert_eq!((seen.status, seen.location()), (StatusCode::SEE_OTHER, "/ui/pools"));
    assert_eq!(
        seen.cookie(),
        "forebay-session=session-ann-0; Path=/; Max-Age=900; HttpOnly; SameSite=Strict"
    );
    assert_eq!(browser.issuer.sessions.lock()[0].2, Some(Duration::from_secs(12 * 3_600)));
    let seen = browser.see_as("forebay-session=session-ann-0", "/ui/files/").await;
    assert!(seen.text.contains("Logged in as ann") && seen.text.contains("Log out"));
}

#[tokio::test]
async fn a_wrong_login_does_not_say_what_was_wrong() {
    let browser = Browser::new();
    let mut texts = Vec::new();
    for form in ["user=ann&password=wrong", "user=bob&password=wrong"] {
        let seen = browser.send("POST", "/ui/login", &[], form).await;
        assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
        assert!(seen.text.contains("User name or password is wrong."));
        assert!(
            !seen.headers.contains_key(header::SET_COOKIE)
                && !seen.headers.contains_key(header::WWW_AUTHENTICATE)
        );
        texts.push(seen.text.replace("value=\"ann\"", "").replace("value=\"bob\"", ""));
    }
    assert_eq!(texts[0], texts[1]);
    let seen = browser.send("POST", "/ui/login", &[], "user=%22%3E%3Cscript%3E&password=x").await;
    assert!(seen.text.contains("value=\"&quot;&gt;&lt;script&gt;\""));
}

#[tokio::test]
async fn a_form_of_another_site_logs_nobody_in_or_out() {
    let browser = Browser::new();
    for headers in [
        [("sec-fetch-site", "cross-site"), ("host", "a:1")],
        [("sec-fetch-site", "same-site"), ("host", "a:1")],
        [("origin", "http://evil.example"), ("host", "a:1")],
        [("origin", "null"), ("host", "a:1")],
    ] {
        for path in ["/ui/login", "/ui/logout"] {
            let seen = browser.send("POST", path, &headers, "user=ann&password=right").await;
            assert_eq!(seen.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
            assert!(!seen.headers.contains_key(header::SET_COOKIE));
        }
    }
    let ours = [("origin", "http://a:1"), ("host", "a:1")];
    assert_eq!(browser.send("POST", "/ui/logout", &ours, "").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_session_that_is_over_is_nobody_and_not_an_error() {
    let browser = Browser::new();
    for cookie in ["forebay-session=gone", "forebay-session=\"no token\""] {
        let seen = browser.see_as(cookie, "/ui/files/").await;
        assert_eq!(seen.status, StatusCode::OK, "{cookie}");
        assert!(seen.text.contains("Your session has ended"));
        assert!(seen.text.contains("href=\"/ui/login?to=%2Fui%2Ffiles%2F\""));
    }
    let seen = browser.see_as("forebay-session=gone", "/ui/pools").await;
    assert_eq!(seen.location(), "/ui/login?to=%2Fui%2Fpools");
    let seen = browser.see_as("forebay-session=gone", "/ui/live/pools").await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn only_administrators_see_who_the_clients_are_and_what_they_have_open() {
    let browser = Browser::new();
    let (ann, root) = (browser.log_in("ann").await, browser.log_in("root").await);
    for view in ["clients", "operations", "pools"] {
        for path in [format!("/ui/{view}"), format!("/ui/live/{view}")] {
            let seen = browser.see_as(&ann, &path).await;
            assert_eq!(seen.status, StatusCode::OK, "{path}");
            assert!(!seen.text.contains("secret-"), "{path}: {}", seen.text);
            assert!(!seen.text.contains("192.0.2."), "{path}");
        }
    }
    let seen = browser.see_as(&root, "/ui/live/clients").await.text;
    assert!(seen.contains("secret-host-0") && seen.contains("/secret-dir/caf\\xe9"), "{seen}");
    assert!(seen.contains("and 1 more"), "one of two is known: {seen}");
    assert!(browser.see_as(&root, "/ui/operations").await.text.contains("/secret-file"));
    // The token alone, in the address, is an ordinary user's and sees no view of the instance at all.
    let token = root.split('=').nth(1).unwrap();
    let seen = browser.see(&format!("/ui/live/clients?authz={token}")).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
    browser.send("POST", "/ui/logout", &[("cookie", &root)], "").await;
    assert!(!browser.see_as(&root, "/ui/live/clients").await.text.contains("secret-"));
}

#[tokio::test]
async fn the_busiest_files_are_shown_to_administrators_only() {
    let browser = Browser::new();
    let (ann, root) = (browser.log_in("ann").await, browser.log_in("root").await);
    for page in ["/ui/pools", "/ui/live/pools"] {
        assert!(browser.see_as(&root, page).await.text.contains("/secret-dir/busy"), "{page}");
        let seen = browser.see_as(&ann, page).await;
        assert_eq!(seen.status, StatusCode::OK);
        assert!(!seen.text.contains("secret-") && !seen.text.contains("Busiest"), "{}", seen.text);
    }
}

#[tokio::test]
async fn problems_are_told_with_advice_and_a_stuck_instance_is_said_to_be_one() {
    let browser = Browser::new();
    let ann = browser.log_in("ann").await;
    let problem = Problem {
        kind: "pool-offline",
        what: "pool-0 is <offline>".to_owned(),
        advice: "look at its disk".to_owned(),
    };
    browser.fixture.instance.problems.lock().push(problem);
    let seen = browser.see_as(&ann, "/ui/pools").await;
    assert!(seen.text.contains("pool-0 is &lt;offline&gt;") && seen.text.contains("data-say=\"1 problem\""));

    let browser = Browser::on(FakeInstance { is_stuck: true, ..FakeInstance::default() });
    let ann = browser.log_in("ann").await;
    tokio::time::pause();
    assert_eq!(browser.see_as(&ann, "/ui/pools").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_folder_shows_its_entries_and_what_their_visitor_may_do() {
    let browser = Browser::new();
    let fixture = &browser.fixture;
    fixture.make(FileId::ROOT, b"<script>alert(1)<", CreateKind::Regular, 0o644).await;
    fixture.make(FileId::ROOT, b"\xff\n\"", CreateKind::Regular, 0o644).await;
    let open = fixture.make(FileId::ROOT, b"open", CreateKind::Directory, 0o777).await;
    fixture.make(open, b"run10.root", CreateKind::Regular, 0o644).await;
    fixture.make(open, b"run9.root", CreateKind::Regular, 0o644).await;
    fixture.make_link(open, b"up", "..").await;
    let seen = browser.see("/ui/files/").await;
    assert_eq!(seen.status, StatusCode::OK);
    assert!(!seen.text.contains("<script>alert") && seen.text.contains("&lt;script&gt;alert(1)&lt;"));
    assert!(
        seen.text.contains("href=\"/ui/files/%FF%0A%22\"")
            && seen.text.contains("data-label=\"\\xff\\n&quot;\"")
    );
    assert!(!seen.text.contains("id=\"upload\"") && !seen.text.contains(" data-delete"));
    let ann = browser.log_in("ann").await;
    let seen = browser.see_as(&ann, "/ui/files/open/").await;
    let at = |text: &str| seen.text.find(text).unwrap_or_else(|| panic!("{text} is not in {}", seen.text));
    assert!(at("run9.root") < at("run10.root"));
    assert!(seen.text.contains("id=\"upload\"") && seen.text.contains(" data-share data-rename data-delete"));
    // Through the link, without it in the path.
    assert!(browser.see_as(&ann, "/ui/files/open/up/open").await.text.contains("data-path=\"/open/\""));
}

#[tokio::test]
async fn a_folder_is_sorted_as_asked_and_comes_in_pages() {
    let browser = Browser::new();
    let dir = browser.fixture.make(FileId::ROOT, b"many", CreateKind::Directory, 0o755).await;
    for number in 0..501 {
        browser.fixture.make(dir, format!("f{number}").as_bytes(), CreateKind::Regular, 0o644).await;
    }
    let rows = |seen: &Seen| seen.text.matches("<tr data-path").count();
    let first = browser.see("/ui/files/many/").await;
    assert!(rows(&first) == 500 && first.text.contains("Page 1 of 2") && first.text.contains("501 entries"));
    assert!(first.text.contains("href=\"/ui/files/many/?page=2\""));
    let last = browser.see("/ui/files/many/?page=99").await;
    assert!(rows(&last) == 1 && last.text.contains("Page 2 of 2") && last.text.contains(">f500<"));
    let reverse = browser.see("/ui/files/many/?order=desc").await;
    assert!(reverse.text.find(">f500<").unwrap() < reverse.text.find(">f499<").unwrap());
    let part = browser.see("/ui/files/many/?after=0").await;
    assert!(rows(&part) == 500 && part.text.contains("rel=\"next\" href=\"/ui/files/many/?after="));
}

#[tokio::test]
async fn a_file_has_facts_and_a_look_into_it_but_only_for_its_readers() {
    let browser = Browser::new();
    let fixture = &browser.fixture;
    fixture.make(FileId::ROOT, b"a.png", CreateKind::Regular, 0o644).await;
    fixture.make(FileId::ROOT, b"a.svg", CreateKind::Regular, 0o644).await;
    fixture.make(FileId::ROOT, b"secret.txt", CreateKind::Regular, 0o600).await;
    let seen = browser.see("/ui/files/a.png").await;
    assert!(seen.text.contains("<img src=\"/a.png\"") && seen.text.contains("download href=\"/a.png\""));
    // An SVG may run scripts: it is never shown as a picture.
    assert!(!browser.see("/ui/files/a.svg").await.text.contains("<img"));
    let seen = browser.see("/ui/files/secret.txt").await;
    assert!(seen.text.contains("no permission to read") && !seen.text.contains("Download"));
}

#[tokio::test]
async fn a_view_that_cannot_be_shown_is_explained_in_words() {
    let browser = Browser::new();
    browser.fixture.make(FileId::ROOT, b"private", CreateKind::Directory, 0o700).await;
    let seen = browser.see("/ui/files/private/").await;
    assert!(seen.status == StatusCode::UNAUTHORIZED && seen.text.contains("Log in to see this"));
    let ann = browser.log_in("ann").await;
    let seen = browser.see_as(&ann, "/ui/files/private/").await;
    assert!(seen.status == StatusCode::FORBIDDEN && seen.text.contains("You have no permission"));
    let seen = browser.see_as(&ann, "/ui/files/gone").await;
    assert!(seen.status == StatusCode::NOT_FOUND && seen.text.contains("There is nothing here"));
    for path in ["/ui/files/a%2fb", "/ui/files/%00", "/ui/files/../x"] {
        assert_eq!(browser.see(path).await.status, StatusCode::BAD_REQUEST, "{path}");
    }
    assert_eq!(browser.see("/ui/nothing").await.status, StatusCode::NOT_FOUND);
    let seen = browser.send("DELETE", "/ui/files/", &[], "").await;
    assert_eq!(
        (seen.status, &seen.headers[header::ALLOW]),
        (StatusCode::METHOD_NOT_ALLOWED, &"GET, HEAD".parse().unwrap())
    );
}

#[tokio::test]
async fn a_shared_link_is_carried_on_and_shows_no_more_than_files() {
    let browser = Browser::new();
    let dir = browser.fixture.make(FileId::ROOT, b"dir", CreateKind::Directory, 0o777).await;
    browser.fixture.make(dir, b"a.txt", CreateKind::Regular, 0o644).await;
    browser.log_in("ann").await;
    let seen = browser.see("/ui/files/dir/?authz=session-ann-0").await;
    assert!(
        seen.text.contains("href=\"/ui/files/dir/a.txt?authz=session-ann-0\"")
            && seen.text.contains("Shared link")
    );
    assert!(!seen.text.contains("/ui/pools") && !seen.text.contains("data-share"));
    assert!(seen.text.contains("href=\"/ui/files/dir/?authz=session-ann-0&amp;sort=size\""));
    let seen = browser.see("/ui/files/dir/?authz=expired").await;
    assert!(seen.status == StatusCode::FORBIDDEN && seen.text.contains("This link has expired"));
}

#[tokio::test]
async fn links_to_share_are_offered_where_the_door_gives_them() {
    let browser = Browser::new();
    let dir = browser.fixture.make(FileId::ROOT, b"dir", CreateKind::Directory, 0o777).await;
    browser.fixture.make(dir, b"a.txt", CreateKind::Regular, 0o644).await;
    let ann = browser.log_in("ann").await;
    for (from, is_offered) in [("127.0.0.1", true), ("10.1.0.9", false)] {
        for path in ["/ui/files/dir/", "/ui/files/dir/a.txt"] {
            let seen = browser.ask(request("GET", path, &[("cookie", &ann)], from, "")).await;
            assert!(seen.text.contains("Logged in as ann"));
            let has = |text| seen.text.contains(text);
            assert_eq!(has("data-share") || has("id=\"share-folder\""), is_offered, "{from} {path}");
        }
    }
}

#[tokio::test]
async fn pages_name_their_user_for_the_access_log() {
    let browser = Browser::new();
    assert_eq!(browser.see("/ui/files/").await.user, None);
    let ann = browser.log_in("ann").await;
    for path in ["/ui/files/", "/ui/files/gone", "/ui/clients"] {
        assert_eq!(browser.see_as(&ann, path).await.user.as_deref(), Some("ann"), "{path}");
    }
}

#[tokio::test]
async fn every_page_allows_nothing_inline_and_nothing_from_elsewhere() {
    let browser = Browser::new();
    browser.fixture.make(FileId::ROOT, b"a.txt", CreateKind::Regular, 0o644).await;
    let root = browser.log_in("root").await;
    for path in [
        "/ui/files/",
        "/ui/files/a.txt",
        "/ui/login",
        "/ui/pools",
        "/ui/clients",
        "/ui/operations",
        "/ui/gone",
    ] {
        let seen = browser.see_as(&root, path).await;
        let policy = seen.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(seen.headers[header::CACHE_CONTROL], "no-store");
        // The page has nothing that the policy would refuse.
        assert!(
            !seen.text.contains(" style=")
                && !seen.text.contains("<style")
                && !seen.text.contains(" onclick"),
            "{path}"
        );
        assert_eq!(
            seen.text.matches("<script").count(),
            seen.text.matches("<script defer src=\"/ui/assets/").count()
        );
        assert!(!seen.text.contains("http:") && !seen.text.contains("https:"), "{path}");
        assert!(seen.text.contains("<title>") && seen.text.contains("test &lt;site&gt;"));
    }
}
