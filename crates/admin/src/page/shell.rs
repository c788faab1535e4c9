//! The frame of every view: head, navigation, and the headers that keep a browser from doing more than it should.

use http::{HeaderValue, StatusCode, header};
use http_server::Response;

use super::html::{Html, html};
use super::visitor::Visitor;
use super::{Page, assets};
use crate::refusal::Refusal;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tab {
    None,
    Files,
    Pools,
    Clients,
    Operations,
}

pub(crate) struct Frame<'a> {
    pub status: StatusCode,
    pub title: &'a str,
    pub tab: Tab,
    /// Besides `page.js`.
    pub scripts: &'a [&'a str],
    pub main: Html,
}

const TABS: [(Tab, &str, &str); 4] = [
    (Tab::Files, "/ui/files/", "Files"),
    (Tab::Pools, "/ui/pools", "Pools"),
    (Tab::Clients, "/ui/clients", "Clients"),
    (Tab::Operations, "/ui/operations", "Operations"),
];

/// Scripts, styles, pictures and connections of this origin; no inline code, no frames, no plug-ins, nobody around us.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);

impl Page {
    pub(super) fn frame(&self, visitor: &Visitor, frame: Frame<'_>) -> Response {
        let mut out = Html::new();
        html!(out;
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <title>" (frame.title) " · " (self.name()) "</title>\
             <link rel=\"icon\" type=\"image/svg+xml\" href=\"" (assets::url(assets::ICON)) "\">\
             <link rel=\"stylesheet\" href=\"" (assets::url(assets::STYLE)) "\">");
        for script in ["page.js"].iter().chain(frame.scripts) {
            html!(out; "<script defer src=\"" (assets::url(script)) "\"></script>");
        }
        html!(out; "</head><body>" [sprite()]
            "<a class=\"skip\" href=\"#main\">Skip to content</a>"
            [self.header(visitor, frame.tab)]
            "<main id=\"main\" tabindex=\"-1\">" [reminder(visitor, frame.tab)] [frame.main] "</main>\
             <div id=\"said\" class=\"unseen\" role=\"status\" aria-live=\"polite\"></div></body></html>\n");
        protect(Response::full(frame.status, "text/html; charset=utf-8", out.into_string()))
    }

    fn name(&self) -> &str {
        if self.site.is_empty() { "Forebay" } else { &self.site }
    }

    fn header(&self, visitor: &Visitor, current: Tab) -> Html {
        let mut out = Html::new();
        html!(out; "<header class=\"top\"><a class=\"brand\" href=\"/ui/files/\">\
            <svg class=\"mark\" viewBox=\"0 0 24 24\" aria-hidden=\"true\"><use href=\"#i-mark\"/></svg>\
            <span>" (self.name()) "</span></a>");
        if visitor.link_token.is_some() {
            html!(out; "<p class=\"who\"><span class=\"tag\">Shared link</span></p></header>");
            return out;
        }
        html!(out; "<nav class=\"tabs\" aria-label=\"Views\"><ul>");
        for (tab, url, text) in TABS {
            html!(out; "<li><a href=\"" (url) "\"" [current_mark(tab == current)] ">" (text) "</a></li>");
        }
        html!(out; "</ul></nav><div class=\"who\">");
        if visitor.is_logged_in() {
            html!(out; "<span class=\"user\" title=\"Logged in as " (visitor.caller.name) "\"><bdi>"
                (visitor.caller.name)
                "</bdi></span><form method=\"post\" action=\"/ui/logout\"><button class=\"quiet\">Log out</button></form>");
        } else {
            html!(out; "<a class=\"button quiet\" href=\"" (visitor.login_url()) "\">Log in</a>");
        }
        html!(out; "</div></header>");
        out
    }

    /// A refusal as a page that says what is the matter and what one can do.
    pub(super) fn explain(&self, visitor: &Visitor, refusal: &Refusal) -> Response {
        // Our own refusals are whole sentences, and a login does not change them.
        let needs_login = matches!(refusal.status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED)
            && !refusal.message.ends_with('.')
            && !visitor.is_logged_in()
            && visitor.link_token.is_none();
        let (status, title, text) = words(refusal, needs_login);
        let mut main = Html::new();
        html!(main; "<div class=\"card\"><h1>" (title) "</h1><p>" (text) "</p><p class=\"row\">");
        if needs_login {
            html!(main; "<a class=\"button primary\" href=\"" (visitor.login_url()) "\">Log in</a>");
        }
        if visitor.link_token.is_none() {
            html!(main; "<a class=\"button\" href=\"/ui/files/\">All files</a>");
        }
        html!(main; "</p></div>");
        let mut response = self.frame(visitor, Frame { status, title, tab: Tab::None, scripts: &[], main });
        if let Some(allow) = refusal.allow {
            response = response.with(header::ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

fn words(refusal: &Refusal, needs_login: bool) -> (StatusCode, &'static str, String) {
    let status = refusal.status;
    let (title, text) = match status {
        _ if needs_login => ("Log in to see this", "It is not open to everybody.".to_owned()),
        StatusCode::NOT_FOUND => (
            "There is nothing here",
            "No file or folder has this name. It may have been renamed or deleted meanwhile.".to_owned(),
        ),
        StatusCode::FORBIDDEN if refusal.message.ends_with('.') => ("Not allowed", refusal.message.clone()),
        StatusCode::FORBIDDEN => ("Not allowed", "You have no permission to see this.".to_owned()),
        StatusCode::SERVICE_UNAVAILABLE => (
            "Busy",
            format!("The server cannot answer this now ({}). Try again in a moment.", refusal.message),
        ),
        StatusCode::INTERNAL_SERVER_ERROR => {
            ("Something failed", "The server has written the reason to its log.".to_owned())
        }
        _ => ("This did not work", format!("The server says: {}.", refusal.message)),
    };
    (if needs_login { StatusCode::UNAUTHORIZED } else { status }, title, text)
}

/// Why a page shows less than it did. The login says so itself.
fn reminder(visitor: &Visitor, tab: Tab) -> Html {
    let mut out = Html::new();
    if visitor.session_ended && tab != Tab::None {
        html!(out; "<p class=\"note ended\">Your session has ended. <a href=\"" (visitor.login_url())
            "\">Log in again</a> to go on.</p>");
    }
    out
}

/// Pages are of the person who asks, and of now. The referrer stays with us, and does reach us: with `no-referrer` a form
/// would come from the origin `null`.
pub(super) fn protect(response: Response) -> Response {
    response
        .with(header::CONTENT_SECURITY_POLICY, POLICY)
        .with(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
        .with(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"))
        .with(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"))
        .with(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

fn current_mark(is_current: bool) -> Html {
    let mut out = Html::new();
    if is_current {
        out.raw(" aria-current=\"page\"");
    }
    out
}

/// An icon of the sprite; the words beside it give its meaning.
pub(super) fn icon(name: &'static str) -> Html {
    let mut out = Html::new();
    html!(out; "<svg class=\"i i-" (name) "\" viewBox=\"0 0 16 16\" aria-hidden=\"true\"><use href=\"#i-"
        (name) "\"/></svg>");
    out
}

/// Drawn once in each page and used by reference, which no Content-Security-Policy minds.
fn sprite() -> Html {
    let mut out = Html::new();
    out.raw(include_str!("../../assets/sprite.svg"));
    out
}
