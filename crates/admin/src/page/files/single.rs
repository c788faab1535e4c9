//! One file: what is known of it, a look into it, and what can be done with it.

use api::Activity;
use http::StatusCode;
use http_server::Response;
use http_wire::content;
use http_wire::target::encode_path;
use types::permission::{self, Removal};
use types::{Access, Attributes, DateTime, FileKind, Name, display::Size};

use super::{Rights, Seen, breadcrumbs, data_of, dialogs, title};
use crate::page::Page;
use crate::page::format::{Grouped, Minute, Mode};
use crate::page::html::{Html, Shown, html};
use crate::page::shell::{Frame, Tab, icon};
use crate::page::visitor::Visitor;
use crate::refusal::Refusal;

/// A text that gets less room, which is kept for it before it comes.
const SHORT_BYTES_MAX: u64 = 400;
/// Larger pictures are not loaded unasked.
const PICTURE_BYTES_MAX: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Picture,
    Text,
    /// The script looks whether it is text.
    Perhaps,
    Nothing,
}

impl Page {
    pub(super) fn single(&self, visitor: &Visitor, place: &Seen) -> Result<Response, Refusal> {
        let (Some(name), Some(parent)) = (place.path.last(), &place.parent) else {
            return Err(Refusal::not_found());
        };
        let attributes = &place.attributes;
        let (address, suffix) = (encode_path(&place.path, false), visitor.link_suffix());
        let rights = rights(visitor, place, parent);
        let may_read = visitor.may(Activity::Download, &place.path, attributes, Access::READ);
        let mut main = Html::new();
        html!(main; "<div class=\"bar\" id=\"file\" data-path=\"" (address) "\" data-label=\"" (Shown(name))
            "\" data-file"
            [data_of(rights)] ">" [breadcrumbs(visitor, &place.path)] "<div class=\"actions\">");
        for (is_allowed, act, text, picture) in [
            (rights.share, "share", "Share", "link"),
            (rights.rename, "rename", "Rename", "pen"),
            (rights.delete, "delete", "Delete", "bin"),
        ] {
            if is_allowed {
                html!(main; "<button type=\"button\" class=\"scripted\" data-act=\"" (act) "\">"
                    [icon(picture)]
                    "<span>" (text) "</span></button>");
            }
        }
        if may_read && attributes.kind.is_regular() {
            html!(main; "<a class=\"button primary\" download href=\"" (address) (suffix) "\">" [icon("down")]
                "<span>Download</span></a>");
        }
        html!(main; "</div></div><div class=\"file\">" [facts(name, attributes)]);
        if may_read {
            main.append(&preview(name, attributes, &format!("{address}{suffix}")));
        } else {
            html!(main; "<p class=\"nothing\">You have no permission to read this file.</p>");
        }
        html!(main; "</div>" [dialogs()]);
        let title = title(&place.path);
        let scripts = &["files.js", "preview.js"];
        Ok(self
            .frame(visitor, Frame { status: StatusCode::OK, title: &title, tab: Tab::Files, scripts, main }))
    }
}

fn rights(visitor: &Visitor, place: &Seen, parent: &Attributes) -> Rights {
    let (caller, path) = (&visitor.caller, &place.path);
    // ACLs are the door's matter.
    let may_change = parent.has_acl
        || place.attributes.has_acl
        || permission::judge_removal(&caller.identity, (parent, None), (&place.attributes, None))
            == Removal::Allowed;
    Rights {
        share: visitor.may_share() && place.attributes.kind.is_regular(),
        rename: may_change && caller.may(Activity::Manage, path),
        delete: may_change && caller.may(Activity::Delete, path),
    }
}

fn facts(name: &Name, attributes: &Attributes) -> Html {
    let mut out = Html::new();
    let kind = match attributes.kind {
        FileKind::Regular => content::media_type(name.as_bytes()),
        FileKind::Directory => "folder",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice(_) => "block device",
        FileKind::CharacterDevice(_) => "character device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    };
    html!(out; "<dl class=\"facts\"><div><dt>Size</dt><dd title=\"" (Grouped(attributes.size)) " bytes\">"
        (Size(attributes.size)) "</dd></div><div><dt>Modified</dt><dd><time datetime=\""
        (DateTime::from(attributes.mtime)) "\">"
        (Minute(attributes.mtime)) "</time></dd></div><div><dt>Type</dt><dd>" (kind)
        "</dd></div><div><dt>Access</dt><dd><code>"
        (Mode(attributes.mode)) "</code> <span class=\"fine\">" (attributes.uid) ":" (attributes.gid)
        "</span></dd></div>");
    if attributes.nlink > 1 {
        html!(out; "<div><dt>Names</dt><dd>" (attributes.nlink) "</dd></div>");
    }
    html!(out; "</dl>");
    out
}

fn preview(name: &Name, attributes: &Attributes, url: &str) -> Html {
    let mut out = Html::new();
    match look(name, attributes) {
        Look::Picture if attributes.size > PICTURE_BYTES_MAX => {
            html!(out; "<p class=\"nothing\">This picture is too large to be shown here; download it.</p>");
        }
        Look::Picture => {
            html!(out; "<figure class=\"picture\"><img src=\"" (url) "\" alt=\"" (Shown(name))
                "\" decoding=\"async\">\
                </figure>");
        }
        kind @ (Look::Text | Look::Perhaps) if attributes.size > 0 => {
            html!(out; "<section class=\"text\" id=\"preview\" aria-label=\"Preview\" data-src=\"" (url)
                "\" data-size=\""
                (attributes.size) "\"");
            if kind == Look::Perhaps {
                html!(out; " data-perhaps");
            }
            if attributes.size <= SHORT_BYTES_MAX {
                html!(out; " data-short");
            }
            html!(out; "><pre tabindex=\"0\" class=\"scripted\">Loading …</pre><p class=\"nothing unscripted\">The preview of \
                text needs a script. <a href=\"" (url) "\">Open the file</a> instead.</p></section>");
        }
        Look::Text | Look::Perhaps => html!(out; "<p class=\"nothing\">This file is empty.</p>"),
        Look::Nothing => html!(out; "<p class=\"nothing\">There is no preview of this kind of file.</p>"),
    }
    out
}

/// The door sends content that is active in a browser (HTML, SVG) as plain text; the page shows it as such.
fn look(name: &Name, attributes: &Attributes) -> Look {
    if !attributes.kind.is_regular() {
        return Look::Nothing;
    }
    const TEXTS: [&str; 8] = [
        "application/json",
        "application/jsonl",
        "application/toml",
        "application/x-ndjson",
        "application/x-ipynb+json",
        "application/xhtml+xml",
        "application/xml",
        "application/yaml",
    ];
    match content::media_type(name.as_bytes()) {
        "image/svg+xml" => Look::Text,
        "image/tiff" => Look::Nothing,
        picture if picture.starts_with("image/") => Look::Picture,
        text if text.starts_with("text/") || TEXTS.contains(&text) => Look::Text,
        content::UNKNOWN => Look::Perhaps,
        _ => Look::Nothing,
    }
}

/// By the name alone: a listing opens no file.
pub(super) fn icon_of(name: &Name) -> &'static str {
    match content::media_type(name.as_bytes()) {
        picture if picture.starts_with("image/") => "image",
        text if text.starts_with("text/") => "text",
        "application/zip"
        | "application/gzip"
        | "application/x-tar"
        | "application/zstd"
        | "application/x-xz"
        | "application/x-bzip2"
        | "application/x-7z-compressed" => "pack",
        "application/json" | "application/toml" | "application/xml" | "application/yaml" => "text",
        "application/x-root"
        | "application/x-hdf5"
        | "application/x-netcdf"
        | "application/fits"
        | "application/x-npy"
        | "application/x-npz"
        | "application/parquet"
        | "application/vnd+zarr" => "data",
        _ => "file",
    }
}
