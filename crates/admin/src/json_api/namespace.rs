//! `namespace/…`: what is at a path and, of a directory, what is in it.
//!
//! The caller sees what its mode bits and its credential let it see. A symbolic link at the end of the path is shown, not
//! followed. A size is what the namespace knows: of a file that is being written it may be older than what its writer
//! sees.

use api::{Activity, Caller, Cookie};
use files::Last;
use http_server::{Request, Response};
use http_wire::target::{Query, encode_path, parse_path};
use serde_json::{Value, json};
use types::{Attributes, FileKind, Name, Timestamp};

use super::{PREFIX, limit, number, ok, reconsider};
use crate::caller::{memory, query};
use crate::refusal::Refusal;
use crate::service::Admin;

impl Admin {
    pub(super) async fn namespace(&self, caller: &Caller, request: &Request) -> Result<Response, Refusal> {
        let below = request.uri.path().strip_prefix(PREFIX).and_then(|path| path.strip_prefix("namespace"));
        let path = match below.unwrap_or("") {
            "" => Vec::new(),
            below => parse_path(below)?,
        };
        let _held = memory(request).await?;
        let shown = self.show(caller, &path, &query(request)?).await;
        shown.map(|body| ok(&body)).map_err(|refusal| reconsider(refusal, caller))
    }

    async fn show(&self, caller: &Caller, path: &[Name], query: &Query) -> Result<Value, Refusal> {
        let place = files::walk(&*self.services.namespace, caller, path, Last::Itself).await?;
        let (path, attributes) = (&*place.path, place.existing()?);
        let mut body = described(path, &attributes);
        if attributes.kind == FileKind::Symlink {
            let target = self.services.namespace.read_link(attributes.file).await?;
            body["target"] = json!(String::from_utf8_lossy(target.as_bytes()));
        }
        let is_listed = match query.first("list") {
            None | Some("true") => attributes.kind.is_directory(),
            Some("false") => false,
            Some(_) => return Err(Refusal::bad_request("list is true or false")),
        };
        if is_listed {
            demand(caller, Activity::List, path)?;
            let after = Cookie(number(query, "after")?.unwrap_or(Cookie::START.0));
            let who = &caller.identity;
            let page = self.services.namespace.list(who, attributes.file, after, limit(query)?).await?;
            let next = page.entries.last().filter(|_| !page.is_last).map(|entry| entry.cookie.0.to_string());
            let entry = |name: &Name, attributes: &Attributes| {
                let mut path = path.to_vec();
                path.push(name.clone());
                described(&path, attributes)
            };
            body["entries"] =
                page.entries.iter().map(|found| entry(&found.name, &found.attributes)).collect();
            // Text, for a script's numbers end at 2⁵³.
            body["next"] = json!(next);
        }
        Ok(body)
    }
}

fn demand(caller: &Caller, activity: Activity, path: &[Name]) -> Result<(), Refusal> {
    if caller.may(activity, path) {
        return Ok(());
    }
    Err(Refusal::forbidden(format!("{} may not do this here", caller.name)))
}

/// The name may not be text, so it is only to be read; `path` is exact and may stand in a URL as it is.
fn described(path: &[Name], attributes: &Attributes) -> Value {
    json!({
        "path": encode_path(path, attributes.kind.is_directory()),
        "name": path.last().map(Name::to_string).unwrap_or_default(),
        "file": attributes.file.to_string(),
        "kind": kind(attributes.kind),
        "mode": format!("{:04o}", attributes.mode),
        "uid": attributes.uid,
        "gid": attributes.gid,
        "links": attributes.nlink,
        "size_bytes": attributes.size,
        "used_bytes": attributes.space_used,
        "modified_s": seconds(attributes.mtime),
        "changed_s": seconds(attributes.ctime),
        "born_s": seconds(attributes.birth),
    })
}

fn seconds(time: Timestamp) -> f64 {
    time.seconds as f64 + f64::from(time.nanoseconds()) / 1e9
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::BlockDevice(_) => "block-device",
        FileKind::CharacterDevice(_) => "character-device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}
