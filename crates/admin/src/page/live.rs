//! Pools, clients and operations, as they are now.
//!
//! The page and the piece that the script fetches every two seconds are made by the same functions. Space and state of
//! pools are for every user who is logged in. Clients, their open files, busy and slow files are for administrators,
//! because permissions protect the names of files.

mod busy_files;
mod clients;
mod operations;
mod pool_work;
mod pools;

use std::cmp::Ordering;
use std::time::Duration;

use api::{Activity, Role};
use http::StatusCode;
use http_server::Response;

use super::format::Grouped;
use super::html::{Html, html};
use super::shell::{Frame, Tab, protect};
use super::visitor::Visitor;
use super::{Page, see_other};
use crate::instance::find_paths;
use crate::refusal::Refusal;

/// The instance answers from memory, and waits for names of files a second at most. A client that waits longer gets an
/// error.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rows of one table; further ones are only counted.
const ROWS_MAX: usize = 500;

#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Pools,
    Clients,
    Operations,
}

impl View {
    fn of(name: &str) -> Option<View> {
        match name {
            "pools" => Some(View::Pools),
            "clients" => Some(View::Clients),
            "operations" => Some(View::Operations),
            _ => None,
        }
    }

    fn words(self) -> (&'static str, &'static str, Tab) {
        match self {
            View::Pools => ("pools", "Pools", Tab::Pools),
            View::Clients => ("clients", "Clients", Tab::Clients),
            View::Operations => ("operations", "Operations", Tab::Operations),
        }
    }
}

impl Page {
    /// `below` begins behind `/ui`.
    pub(super) async fn live(&self, visitor: &Visitor, below: &str) -> Result<Response, Refusal> {
        let (name, is_piece) = match below.strip_prefix("/live/") {
            Some(name) => (name, true),
            None => (below.trim_start_matches('/'), false),
        };
        let view = View::of(name).ok_or_else(Refusal::not_found)?;
        let (name, title, tab) = view.words();
        if visitor.caller.role == Role::Anonymous || visitor.link_token.is_some() {
            if is_piece {
                return Ok(protect(Response::text(StatusCode::UNAUTHORIZED, "the session has ended")));
            }
            return Ok(see_other(&visitor.login_url()));
        }
        // As in the JSON interface, the answers here are of the whole instance.
        if !visitor.caller.may(Activity::List, &[]) {
            return Err(Refusal::forbidden("the credential is bound to a path"));
        }
        let is_administrator = visitor.is_administrator;
        let snapshot = self.within(self.instance.snapshot()).await?;
        let mut snapshot = if is_administrator { snapshot } else { snapshot.without_names() };
        if is_administrator && view == View::Clients {
            snapshot.open_files.truncate(ROWS_MAX);
            self.within(find_paths(&*self.instance, &mut snapshot.open_files)).await?;
        }
        let mut piece = Html::new();
        match view {
            View::Pools => {
                pools::render(&mut piece, &snapshot, &self.within(self.instance.problems()).await?);
                pool_work::render(&mut piece, &snapshot);
                if is_administrator {
                    let busiest = self.within(self.instance.busiest_files(busy_files::ROWS_MAX)).await?;
                    busy_files::render(&mut piece, &busiest);
                }
            }
            View::Clients => clients::render(&mut piece, &snapshot, is_administrator),
            View::Operations => operations::render(&mut piece, &snapshot, is_administrator),
        }
        if is_piece {
            return Ok(protect(Response::full(
                StatusCode::OK,
                "text/html; charset=utf-8",
                piece.into_string(),
            )));
        }
        let mut main = Html::new();
        html!(main; "<div class=\"bar\"><h1>" (title) "</h1><div class=\"actions scripted\">\
            <p id=\"pulse\" class=\"pulse\">Live</p><button type=\"button\" class=\"quiet\" id=\"pause\" aria-pressed=\"false\">\
            Pause</button></div></div><div id=\"live\" data-view=\"" (name) "\">" [piece] "</div>");
        Ok(self.frame(visitor, Frame { status: StatusCode::OK, title, tab, scripts: &["live.js"], main }))
    }

    async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T, Refusal> {
        let late = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the instance does not answer in time");
        tokio::time::timeout(PATIENCE, answer).await.map_err(late)
    }
}

/// A table whose rows the script keeps apart by their key.
struct Table<'a> {
    caption: &'static str,
    /// Title, and whether it is a number.
    columns: &'a [(&'static str, bool)],
    /// Text for a table without rows.
    empty: &'static str,
}

impl Table<'_> {
    fn render<T>(&self, out: &mut Html, rows: &[T], row: impl Fn(&mut Html, &T)) {
        self.render_of(rows.len() as u64, out, rows, row);
    }

    /// Of `total`, `rows` are those that are known one by one.
    fn render_of<T>(&self, total: u64, out: &mut Html, rows: &[T], row: impl Fn(&mut Html, &T)) {
        html!(out; "<section class=\"block\"><h2>" (self.caption));
        if !rows.is_empty() {
            html!(out; " <span class=\"count\">" (Grouped(total)) "</span>");
        }
        html!(out; "</h2>");
        if rows.is_empty() {
            html!(out; "<p class=\"nothing\">" (self.empty) "</p></section>");
            return;
        }
        html!(out; "<div class=\"scroll\" role=\"region\" aria-label=\"" (self.caption)
            "\" tabindex=\"0\"><table class=\"facts-table\"><thead><tr>");
        for (title, is_number) in self.columns {
            html!(out; "<th scope=\"col\"" [number_mark(*is_number)] ">" (title) "</th>");
        }
        html!(out; "</tr></thead><tbody>");
        for one in rows.iter().take(ROWS_MAX) {
            row(out, one);
        }
        let more = total.saturating_sub(rows.len().min(ROWS_MAX) as u64);
        html!(out; "</tbody></table></div>");
        if more > 0 {
            html!(out; "<p class=\"fine\">and " (Grouped(more)) " more</p>");
        }
        html!(out; "</section>");
    }
}

fn number_mark(is_number: bool) -> Html {
    let mut out = Html::new();
    if is_number {
        out.raw(" class=\"n\"");
    }
    out
}

/// A line of the last values, which the script keeps; `key` tells them apart.
fn sparkline(out: &mut Html, key: &str, value: u64) {
    html!(out; "<svg class=\"spark\" viewBox=\"0 0 60 16\" preserveAspectRatio=\"none\" aria-hidden=\"true\" data-key=\""
        (key) "\" data-value=\"" (value) "\"><polyline/></svg>");
}

/// A bar of the share that `part` has of `whole`. `is_room`: that it is nearly full is a warning.
fn fill(part: u64, whole: u64, is_room: bool) -> Html {
    // Of a thousand, which is finer than the bar is wide.
    let share = (u128::from(part) * 1000 / u128::from(whole.max(1))).min(1000);
    let mut out = Html::new();
    html!(out; "<svg class=\"fill");
    if is_room && share >= 900 {
        html!(out; " full");
    }
    html!(out; "\" viewBox=\"0 0 1000 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"1000\" height=\"8\"/>\
        <rect class=\"used\" width=\"" (share) "\" height=\"8\"/></svg>");
    out
}

fn descending(a: u64, b: u64) -> Ordering {
    b.cmp(&a)
}
