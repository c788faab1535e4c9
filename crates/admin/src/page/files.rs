//! Files and folders: the view of each, and the actions on it.
//!
//! The page offers actions by mode bits and credential; the WebDAV door decides when they are executed.

mod entries;
mod folder;
mod single;

use api::Activity;
use files::{Last, PathTarget};
use http_server::{Request, Response};
use http_wire::target::{Query, encode_path, parse_path};
use types::{Attributes, Name};

use super::Page;
use super::html::{Html, Shown, html};
use super::shell::icon;
use super::visitor::Visitor;
use crate::caller::memory;
use crate::refusal::Refusal;

/// Where a view of the page begins in its address.
const FILES: &str = "/ui/files";

/// The file or folder of a view.
struct Seen {
    /// Without symbolic links.
    path: Vec<Name>,
    attributes: Attributes,
    /// `None` for the root.
    parent: Option<Attributes>,
}

impl Page {
    pub(super) async fn files(&self, visitor: &Visitor, request: &Request) -> Result<Response, Refusal> {
        let path = parse_path(request.uri.path().strip_prefix(FILES).unwrap_or("/"))?;
        let query = request.uri.query().map(Query::parse).transpose()?.unwrap_or_default();
        let PathTarget { path, parent, found } =
            files::walk(&*self.namespace, &visitor.caller, &path, Last::Followed).await?;
        let attributes = found.ok_or_else(Refusal::not_found)?;
        let place = Seen { path, attributes, parent };
        if attributes.kind.is_directory() {
            let _held = memory(request).await?;
            self.folder(visitor, &place, &query).await
        } else {
            self.single(visitor, &place)
        }
    }
}

/// The way from the root: links to what may be listed.
fn breadcrumbs(visitor: &Visitor, path: &[Name]) -> Html {
    let suffix = visitor.link_suffix();
    let mut out = Html::new();
    html!(out; "<nav class=\"crumbs\" aria-label=\"Path\"><ol>");
    for end in 0..=path.len() {
        let upto = &path[..end];
        let mut text = Html::new();
        match upto.last() {
            Some(name) => text.name(name),
            None => text.raw("Files"),
        }
        if end == path.len() {
            html!(out; "<li><h1 aria-current=\"page\">" [text] "</h1></li>");
        } else if visitor.caller.may(Activity::List, upto) {
            html!(out; "<li><a href=\"" (FILES) (encode_path(upto, true)) (suffix) "\">" [text] "</a></li>");
        } else {
            html!(out; "<li>" [text] "</li>");
        }
    }
    html!(out; "</ol></nav>");
    out
}

/// Actions that the script offers for an entry; it finds them at the entry's element.
#[derive(Clone, Copy, Default)]
struct Rights {
    share: bool,
    rename: bool,
    delete: bool,
}

impl Rights {
    fn any(self) -> bool {
        self.share || self.rename || self.delete
    }
}

/// The words of the title: the last name, or that of the root.
fn title(path: &[Name]) -> String {
    path.last().map_or_else(|| "Files".to_owned(), |name| Shown(name).to_string())
}

fn data_of(rights: Rights) -> Html {
    let mut out = Html::new();
    for (is_allowed, attribute) in
        [(rights.share, " data-share"), (rights.rename, " data-rename"), (rights.delete, " data-delete")]
    {
        if is_allowed {
            out.raw(attribute);
        }
    }
    out
}

/// The dialogs that the script opens. They are in every page of files, so that opening one fetches nothing.
fn dialogs() -> Html {
    let mut out = Html::new();
    html!(out;
        "<div id=\"menu\" popover class=\"menu\" role=\"menu\"></div>\
         <dialog id=\"name-dialog\" aria-labelledby=\"name-title\"><form method=\"dialog\">\
         <h2 id=\"name-title\"></h2><label for=\"name-field\" id=\"name-label\">Name</label>\
         <input id=\"name-field\" autocomplete=\"off\" autocapitalize=\"none\" spellcheck=\"false\" \
         aria-describedby=\"name-problem\"><p class=\"problem\" id=\"name-problem\" role=\"alert\"></p>\
         <p class=\"row end\"><button type=\"button\" data-close>Cancel</button>\
         <button class=\"primary\" id=\"name-ok\"></button></p></form></dialog>\
         <dialog id=\"delete-dialog\" aria-labelledby=\"delete-title\" aria-describedby=\"delete-text\">\
         <form method=\"dialog\"><h2 id=\"delete-title\"></h2><p id=\"delete-text\"></p>\
         <p class=\"problem\" id=\"delete-problem\" role=\"alert\"></p>\
         <p class=\"row end\"><button type=\"button\" data-close autofocus>Cancel</button>\
         <button class=\"danger\" id=\"delete-ok\">Delete</button></p></form></dialog>\
         <dialog id=\"share-dialog\" aria-labelledby=\"share-title\"><form method=\"dialog\">\
         <h2 id=\"share-title\"></h2><p id=\"share-text\"></p>\
         <fieldset><legend>Valid for</legend><div class=\"choices\">\
         <label><input type=\"radio\" name=\"validity\" value=\"PT1H\"> 1 hour</label>\
         <label><input type=\"radio\" name=\"validity\" value=\"P1D\" checked> 1 day</label>\
         <label><input type=\"radio\" name=\"validity\" value=\"P7D\"> 7 days</label></div></fieldset>\
         <div id=\"share-result\" hidden><label for=\"share-link\">Link</label>\
         <div class=\"row tight\"><input id=\"share-link\" readonly spellcheck=\"false\">\
         <button type=\"button\" id=\"share-copy\">Copy</button></div>\
         <p class=\"fine\">Whoever has the link can read, and nothing else. Before its time it ends only with the password that you logged in by.</p></div>\
         <p class=\"problem\" id=\"share-problem\" role=\"alert\"></p>\
         <p class=\"row end\"><button type=\"button\" data-close>Close</button>\
         <button class=\"primary\" id=\"share-ok\">Create link</button></p></form></dialog>");
    out
}

fn menu_button(name: &Name) -> Html {
    let mut out = Html::new();
    html!(out; "<button class=\"dots scripted\" type=\"button\" data-menu aria-haspopup=\"menu\" aria-expanded=\"false\" \
        aria-label=\"Actions for " (Shown(name)) "\">" [icon("dots")] "</button>");
    out
}
