//! Logging in and out: a password or a token becomes a macaroon in a cookie that scripts cannot read.

use std::time::Duration;

use api::{AuthError, Credential, MacaroonRequest, Role};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_server::{Request, Response};
use http_wire::credential::{self, SESSION_COOKIE};
use http_wire::target::{Query, parse_form};

use super::html::{Html, html};
use super::shell::{Frame, Tab};
use super::visitor::{Visitor, origin};
use super::{Page, see_other};
use crate::refusal::Refusal;

/// A token has at most 16 KiB, and percent-encoding makes it longer.
const FORM_BYTES_MAX: u64 = 64 << 10;
const SESSION_VALIDITY_MAX: Duration = Duration::from_secs(12 * 3600);
const HOME: &str = "/ui/files/";

impl Page {
    pub(super) fn login_form(&self, visitor: &Visitor, request: &Request) -> Result<Response, Refusal> {
        let query = request.uri.query().map(Query::parse).transpose()?.unwrap_or_default();
        let to = return_path(query.first("to"));
        let hint = visitor.session_ended.then_some("Your session has ended. Log in again to go on.");
        Ok(self.login_page(visitor, StatusCode::OK, to, "", hint.map(Note::Plain)))
    }

    pub(super) async fn log_in(&self, visitor: &Visitor, mut request: Request) -> Result<Response, Refusal> {
        check_own_page(&request)?;
        let body = request.body.collect(FORM_BYTES_MAX).await?;
        let form = parse_form(&body)?;
        let text = |name: &str| form.first(name).unwrap_or("");
        let (user, password, token) = (text("user"), text("password"), text("token").trim());
        let to = return_path(form.first("to"));
        let credential = if token.is_empty() {
            Credential::Password { user, password }
        } else {
            Credential::Bearer(token)
        };
        let refuse =
            |status, why: &str| Ok(self.login_page(visitor, status, to, user, Some(Note::Wrong(why))));
        if token.is_empty() && (user.is_empty() || password.is_empty()) {
            return refuse(StatusCode::BAD_REQUEST, "Enter a user name and a password, or a token.");
        }
        let caller = match self.authenticator.authenticate(credential, &origin(&request)).await {
            Ok(caller) if caller.role == Role::Anonymous => {
                return refuse(StatusCode::UNAUTHORIZED, "This does not say who you are.");
            }
            Ok(caller) => caller,
            // Which of the two was wrong is not for everybody to know.
            Err(AuthError::Refused(_)) if token.is_empty() => {
                return refuse(StatusCode::UNAUTHORIZED, "User name or password is wrong.");
            }
            Err(error) => return refuse(Refusal::from(error.clone()).status, &sentence(&error.to_string())),
        };
        let validity = self.session_validity_max.min(SESSION_VALIDITY_MAX);
        let wanted =
            MacaroonRequest { validity: Some(validity), is_session: true, ..MacaroonRequest::default() };
        let session = match self.authenticator.mint(&caller, &wanted) {
            Ok(session) => session,
            Err(error) => return refuse(Refusal::from(error.clone()).status, &sentence(&error.to_string())),
        };
        let now_s = self.now_s();
        if caller.role == Role::Admin {
            self.administrators.remember(&session.token, session.expires_s, now_s);
        }
        let age_s = session.expires_s.saturating_sub(now_s);
        let cookie = cookie(&session.token, age_s, request.peer.tls.is_some())?;
        tracing::info!(user = %caller.name, client = %request.peer.address, "logged in to the page");
        Ok(see_other(to).with(header::SET_COOKIE, cookie))
    }

    pub(super) async fn log_out(&self, request: &Request) -> Result<Response, Refusal> {
        check_own_page(request)?;
        if let Some(token) = credential::session(&request.headers) {
            self.administrators.forget(token);
            self.authenticator.end(token).await;
        }
        let cookie = cookie("", 0, request.peer.tls.is_some())?;
        Ok(see_other(HOME).with(header::SET_COOKIE, cookie))
    }

    fn login_page(
        &self,
        visitor: &Visitor,
        status: StatusCode,
        to: &str,
        user: &str,
        note: Option<Note<'_>>,
    ) -> Response {
        let mut main = Html::new();
        html!(main; "<div class=\"card login\"><h1>Log in</h1>");
        match note {
            Some(Note::Wrong(why)) => {
                html!(main; "<p class=\"note bad\" role=\"alert\" id=\"why\">" (why) "</p>");
            }
            Some(Note::Plain(hint)) => html!(main; "<p class=\"note\">" (hint) "</p>"),
            None => {}
        }
        html!(main;
            "<form method=\"post\" action=\"/ui/login\"><input type=\"hidden\" name=\"to\" value=\"" (to)
            "\">\
             <label for=\"user\">User name</label>\
             <input id=\"user\" name=\"user\" autocomplete=\"username\" autocapitalize=\"none\" spellcheck=\"false\" \
             required value=\"" (user) "\"" [autofocus(user.is_empty())] ">\
             <label for=\"password\">Password</label>\
             <input id=\"password\" name=\"password\" type=\"password\" autocomplete=\"current-password\" required"
            [autofocus(!user.is_empty())] ">\
             <button class=\"primary\">Log in</button></form>\
             <details class=\"token\"><summary>Use a token instead</summary>\
             <form method=\"post\" action=\"/ui/login\"><input type=\"hidden\" name=\"to\" value=\"" (to)
                 "\">\
             <label for=\"token\">Token (JWT or macaroon)</label>\
             <textarea id=\"token\" name=\"token\" rows=\"4\" autocomplete=\"off\" autocapitalize=\"none\" \
             spellcheck=\"false\" required></textarea>\
             <button>Log in with the token</button></form></details></div>");
        self.frame(visitor, Frame { status, title: "Log in", tab: Tab::None, scripts: &[], main })
    }
}

enum Note<'a> {
    Plain(&'a str),
    Wrong(&'a str),
}

fn autofocus(is_first: bool) -> Html {
    let mut out = Html::new();
    if is_first {
        out.raw(" autofocus");
    }
    out
}

fn cookie(token: &str, age_s: u64, is_encrypted: bool) -> Result<HeaderValue, Refusal> {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let text =
        format!("{SESSION_COOKIE}={token}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(text).map_err(|_| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the session does not fit into a cookie")
    })
}

/// Only a path of this page, so that a link to the login leads nobody elsewhere.
fn return_path(to: Option<&str>) -> &str {
    let is_ours = |to: &str| {
        let path = to.split('?').next().unwrap_or("");
        to.starts_with("/ui/")
            && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && !path.contains("//")
            && !path.split('/').any(|part| matches!(part, "." | ".."))
            && !matches!(path, "/ui/login" | "/ui/logout")
    };
    to.filter(|to| is_ours(to)).unwrap_or(HOME)
}

/// A form of another site must not log anybody in or out. Browsers say where a request comes from; a client that
/// does not is no browser, and has no cookie that another site could abuse.
fn check_own_page(request: &Request) -> Result<(), Refusal> {
    let word = |headers: &HeaderMap, name: &str| headers.get(name).map(|value| value.as_bytes().to_vec());
    let is_ours = match (word(&request.headers, "sec-fetch-site"), word(&request.headers, "origin")) {
        (Some(site), _) => site == b"same-origin" || site == b"none",
        (None, Some(origin)) => is_own_origin(&origin, request.authority().as_ref()),
        (None, None) => true,
    };
    if is_ours { Ok(()) } else { Err(Refusal::forbidden("This form was sent by a page of another site.")) }
}

fn is_own_origin(origin: &[u8], authority: Option<&Authority>) -> bool {
    let host = std::str::from_utf8(origin).ok().and_then(|text| text.split_once("://")).map(|(_, host)| host);
    match (host, authority) {
        (Some(host), Some(authority)) => host.eq_ignore_ascii_case(authority.as_str()),
        _ => false,
    }
}

/// Errors are written to stand in the middle of a line.
fn sentence(message: &str) -> String {
    let mut characters = message.chars();
    let mut out: String = characters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    out.push_str(characters.as_str());
    if !out.ends_with('.') {
        out.push('.');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_after_a_login_stays_on_this_page() {
        for to in ["/ui/pools", "/ui/files/a%20b/?sort=size", "/ui/files/%c3%a4"] {
            assert_eq!(return_path(Some(to)), to);
        }
        for to in [
            "https://example.org/",
            "//example.org/ui/",
            "/\\example.org",
            "/ui/\\example.org",
            "/ui//example.org",
            "/ui/../etc",
            "/ui/files/..",
            "/ui/login",
            "/ui/logout?x",
            "/ui/files/a\r\nSet-Cookie: a=b",
            "/ui/\u{e4}",
            "/etc",
            "javascript:alert(1)",
            "",
        ] {
            assert_eq!(return_path(Some(to)), HOME, "{to}");
        }
        assert_eq!(return_path(None), HOME);
    }

    #[test]
    fn an_origin_is_ours_when_host_and_port_agree() {
        let ours: Authority = "localhost:8080".parse().unwrap();
        assert!(is_own_origin(b"http://localhost:8080", Some(&ours)));
        assert!(is_own_origin(b"https://LOCALHOST:8080", Some(&ours)));
        for other in [&b"http://localhost:8081"[..], b"http://localhost:8080.evil", b"null", b"\xff", b""] {
            assert!(!is_own_origin(other, Some(&ours)), "{}", other.escape_ascii());
        }
        assert!(!is_own_origin(b"http://localhost:8080", None));
    }

    #[test]
    fn the_cookie_is_out_of_reach_of_scripts_and_of_other_sites() {
        let text = cookie("abc", 60, true).unwrap().to_str().unwrap().to_owned();
        assert_eq!(text, "forebay-session=abc; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure");
        assert!(!cookie("abc", 60, false).unwrap().to_str().unwrap().contains("Secure"));
        assert!(cookie("a\nb", 60, false).is_err());
    }
}
