//! A folder: its entries in a table, and what can be put into it.

use api::{Activity, DirEntry};
use http::StatusCode;
use http_server::Response;
use http_wire::target::{Query, encode_path, put_name};
use types::{Access, Attributes, DateTime, FileKind, Name, display::Size, permission};

use super::entries::{self, Entries, Key, View};
use super::{FILES, Rights, Seen, breadcrumbs, data_of, dialogs, menu_button, title};
use crate::page::Page;
use crate::page::format::{Count, Grouped, Minute};
use crate::page::html::{Html, Shown, html};
use crate::page::shell::{Frame, Tab, icon};
use crate::page::visitor::Visitor;
use crate::refusal::Refusal;

/// A folder as its visitor sees it.
struct Folder<'a> {
    visitor: &'a Visitor,
    path: &'a [Name],
    attributes: &'a Attributes,
    view: View,
    suffix: String,
    /// The path of the folder as it stands in addresses, with a slash at its end.
    encoded: String,
}

impl Page {
    pub(super) async fn folder(
        &self,
        visitor: &Visitor,
        place: &Seen,
        query: &Query,
    ) -> Result<Response, Refusal> {
        if !visitor.caller.may(Activity::List, &place.path) {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "access denied"));
        }
        let view = View::of(query);
        let who = &visitor.caller.identity;
        let entries = entries::read(&*self.namespace, who, place.attributes.file, &view).await?;
        let folder = Folder {
            visitor,
            path: &place.path,
            attributes: &place.attributes,
            view,
            suffix: visitor.link_suffix(),
            encoded: encode_path(&place.path, true),
        };
        let mut main = Html::new();
        html!(main; [folder.bar()] [folder.listing(&entries)] [dialogs()]
            "<section id=\"transfers\" class=\"transfers\" aria-label=\"Uploads\" hidden>\
             <div class=\"transfers-head\"><h2 id=\"transfers-title\">Uploads</h2>\
             <button type=\"button\" class=\"quiet\" id=\"transfers-close\">Close</button></div>\
             <ul id=\"transfers-list\"></ul></section>");
        let scripts = &["files.js", "upload.js"];
        let title = title(&place.path);
        Ok(self
            .frame(visitor, Frame { status: StatusCode::OK, title: &title, tab: Tab::Files, scripts, main }))
    }
}

impl Folder<'_> {
    fn may_add(&self, activity: Activity) -> bool {
        self.visitor.may(activity, self.path, self.attributes, Access::WRITE | Access::EXECUTE)
    }

    fn bar(&self) -> Html {
        let mut out = Html::new();
        html!(out; "<div class=\"bar\">" [breadcrumbs(self.visitor, self.path)]
            "<div class=\"actions scripted\">");
        if self.visitor.may_share() {
            html!(out; "<button type=\"button\" id=\"share-folder\" data-path=\"" (self.encoded)
                "\" data-label=\""
                (title(self.path)) "\">" [icon("link")] "<span>Share</span></button>");
        }
        if self.may_add(Activity::Manage) {
            html!(out; "<button type=\"button\" id=\"new-folder\">" [icon("plus")]
                "<span>New folder</span></button>");
        }
        if self.may_add(Activity::Upload) {
            html!(out; "<button type=\"button\" class=\"primary\" id=\"upload\">" [icon("up")]
                "<span>Upload</span></button><input type=\"file\" id=\"upload-files\" multiple hidden>");
        }
        html!(out; "</div></div>");
        out
    }

    fn listing(&self, entries: &Entries) -> Html {
        let mut out = Html::new();
        html!(out; "<div id=\"listing\" class=\"listing\" data-path=\"" (self.encoded) "\"");
        if self.may_add(Activity::Upload) {
            html!(out; " data-upload");
        }
        html!(out; ">");
        let (shown, is_sorted) = match entries {
            Entries::Sorted { shown, .. } => (shown, true),
            Entries::Unsorted { shown, .. } => (shown, false),
        };
        if shown.is_empty() && self.view.after.is_none() {
            html!(out; [self.empty()] "</div>");
            return out;
        }
        if !is_sorted {
            html!(out; "<p class=\"note\">This folder has more than " (Grouped(entries::SORTED_MAX as u64))
                " entries. They are shown in the order in which the server keeps them.</p>");
        }
        html!(out; "<table class=\"entries\"><caption class=\"unseen\">Contents of " (title(self.path))
            "</caption><thead><tr>"
            [self.column(Key::Name, "Name", "name", is_sorted)]
            [self.column(Key::Size, "Size", "size", is_sorted)]
            [self.column(Key::Modified, "Modified", "modified", is_sorted)]
            "<th class=\"act\"><span class=\"unseen\">Actions</span></th></tr></thead><tbody>");
        for entry in shown {
            out.append(&self.row(entry));
        }
        html!(out; "</tbody></table>" [self.foot(entries)] "</div>");
        out
    }

    fn empty(&self) -> Html {
        let mut out = Html::new();
        html!(out; "<div class=\"empty\">" [icon("folder")] "<p>This folder is empty.</p>");
        if self.may_add(Activity::Upload) {
            html!(out; "<p class=\"fine scripted\">Drop files here, or choose Upload.</p>");
        }
        html!(out; "</div>");
        out
    }

    fn column(&self, key: Key, text: &'static str, class: &'static str, is_sorted: bool) -> Html {
        let mut out = Html::new();
        if !is_sorted {
            html!(out; "<th class=\"" (class) "\" scope=\"col\">" (text) "</th>");
            return out;
        }
        let is_current = self.view.key == key;
        let order = match (is_current, self.view.is_descending) {
            (false, _) => "none",
            (true, false) => "ascending",
            (true, true) => "descending",
        };
        let then = View { key, is_descending: is_current && !self.view.is_descending, page: 0, after: None };
        html!(out; "<th class=\"" (class) "\" scope=\"col\" aria-sort=\"" (order) "\"><a href=\""
            (self.url(&then)) "\">"
            (text) [icon("sort")] "</a></th>");
        out
    }

    /// The address of this folder in another view.
    fn url(&self, view: &View) -> String {
        let mut url = format!("{FILES}{}{}", self.encoded, self.suffix);
        let query = view.query();
        if !query.is_empty() {
            url.push(if self.suffix.is_empty() { '?' } else { '&' });
            url.push_str(&query);
        }
        url
    }

    fn row(&self, entry: &DirEntry) -> Html {
        let attributes = &entry.attributes;
        let is_folder = attributes.kind.is_directory();
        let mut path = self.encoded.clone();
        put_name(&mut path, entry.name.as_bytes());
        if is_folder {
            path.push('/');
        }
        let mut name = Html::new();
        name.name(&entry.name);
        let rights = self.rights(entry);
        let mut out = Html::new();
        html!(out; "<tr data-path=\"" (path) "\" data-label=\"" (Shown(&entry.name)) "\"" [data_of(rights)]);
        if is_folder {
            html!(out; " data-folder");
        }
        if attributes.kind.is_regular() {
            html!(out; " data-file");
        }
        html!(out; "><td class=\"name\"><div class=\"entry\">" [icon(icon_of(entry))] "<a href=\""
            (FILES) (path)
            (self.suffix) "\">" [name] "</a>" [kind_of(attributes.kind)] "</div></td>");
        if attributes.kind.is_regular() {
            html!(out; "<td class=\"size\" title=\"" (Grouped(attributes.size)) " bytes\">"
                (Size(attributes.size)) "</td>");
        } else {
            html!(out; "<td class=\"size\"></td>");
        }
        html!(out; "<td class=\"modified\"><time datetime=\"" (DateTime::from(attributes.mtime)) "\">"
            (Minute(attributes.mtime))
            "</time></td><td class=\"act\">");
        if rights.any() || attributes.kind.is_regular() {
            out.append(&menu_button(&entry.name));
        }
        html!(out; "</td></tr>");
        out
    }

    fn rights(&self, entry: &DirEntry) -> Rights {
        let caller = &self.visitor.caller;
        let mut path = self.path.to_vec();
        path.push(entry.name.clone());
        let has_acl = self.attributes.has_acl || entry.attributes.has_acl;
        let is_stuck =
            !has_acl && permission::sticky_forbids(&caller.identity, self.attributes, &entry.attributes);
        Rights {
            share: self.visitor.may_share()
                && matches!(entry.attributes.kind, FileKind::Regular | FileKind::Directory),
            rename: self.may_add(Activity::Manage) && !is_stuck && caller.may(Activity::Manage, &path),
            delete: self.may_add(Activity::Delete) && !is_stuck && caller.may(Activity::Delete, &path),
        }
    }

    fn foot(&self, entries: &Entries) -> Html {
        let mut out = Html::new();
        html!(out; "<div class=\"foot\">");
        match *entries {
            Entries::Sorted { count, file_bytes, pages, page, .. } => {
                html!(out; "<p>" (Count(count as u64, "entry", "entries")) ", " (Size(file_bytes))
                    " in files here</p>");
                if pages > 1 {
                    let to = |page| View { page, ..self.view };
                    html!(out; "<nav class=\"pages\" aria-label=\"Pages\">"
                        [step(page > 0, "prev", "Previous", &self.url(&to(page.saturating_sub(1))))]
                        "<span>Page " (page + 1) " of " (pages) "</span>"
                        [step(page + 1 < pages, "next", "Next", &self.url(&to(page + 1)))] "</nav>");
                }
            }
            Entries::Unsorted { ref shown, next } => {
                html!(out; "<p>" (Count(shown.len() as u64, "entry", "entries")) " of many</p>");
                let to = |after| self.url(&View { after, ..self.view });
                html!(out; "<nav class=\"pages\" aria-label=\"Pages\">"
                    [step(self.view.after.is_some(), "prev", "First", &to(None))]
                    [step(next.is_some(), "next", "Next", &to(next))] "</nav>");
            }
        }
        html!(out; "</div>");
        out
    }
}

fn step(is_possible: bool, relation: &'static str, text: &'static str, url: &str) -> Html {
    let mut out = Html::new();
    if is_possible {
        html!(out; "<a class=\"button\" rel=\"" (relation) "\" href=\"" (url) "\">" (text) "</a>");
    } else {
        html!(out; "<span class=\"button off\" aria-hidden=\"true\">" (text) "</span>");
    }
    out
}

fn icon_of(entry: &DirEntry) -> &'static str {
    match entry.attributes.kind {
        FileKind::Directory => "folder",
        FileKind::Symlink => "alias",
        FileKind::Regular => super::single::icon_of(&entry.name),
        FileKind::BlockDevice(_) | FileKind::CharacterDevice(_) | FileKind::Fifo | FileKind::Socket => "gear",
    }
}

/// For what is neither file nor folder.
fn kind_of(kind: FileKind) -> Html {
    let text = match kind {
        FileKind::Regular | FileKind::Directory => return Html::new(),
        FileKind::Symlink => "link",
        FileKind::BlockDevice(_) | FileKind::CharacterDevice(_) => "device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    };
    let mut out = Html::new();
    html!(out; "<span class=\"tag\">" (text) "</span>");
    out
}
