//! GET of a directory by programs: a page of links and nothing else, as fsspec, wget and people with curl read it. The
//! page for browsers is the administrator's crate's.

use std::sync::Arc;

use api::Cookie;
use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderValue};
use http::{Method, StatusCode};
use http_server::{Held, Response, ResponseBody};
use http_wire::target::{encode_path, put_name};
use types::{Attributes, FileId};

use crate::access::FileAccess;
use crate::call::Call;
use crate::refusal::Refusal;
use crate::resolve::PathTarget;

struct Listing {
    access: Arc<FileAccess>,
    who: types::Identity,
    dir: FileId,
    /// `None`: all is listed.
    after: Option<Cookie>,
    head: Option<String>,
    _held: Held,
}

/// Entries that are listed at once: with long names each takes more than a kilobyte in links.
const PAGE: usize = 128;
/// The memory of a listing, about: a page of entries, and the text of one.
const LISTING_BYTES: usize = 256 << 10;

pub(crate) async fn index(
    access: &Arc<FileAccess>,
    call: &Call,
    target: &PathTarget,
    dir: &Attributes,
) -> Result<Response, Refusal> {
    let response = Response::new(StatusCode::OK)
        .with(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))
        .with(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"))
        .with(header::VARY, HeaderValue::from_static("accept"))
        .with(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; base-uri 'self'"),
        );
    // Refused before the answer has begun.
    access.list_to_enter(&call.caller.identity, dir.file, Cookie::START, 1).await?;
    if call.method == Method::HEAD {
        return Ok(response.with_body(ResponseBody::Absent { length: None }));
    }
    // Links are relative to the directory, also where the request left out the slash.
    let base = encode_path(&target.path, true);
    let head = format!("<!doctype html>\n<title>{base}</title>\n<base href=\"{base}\">\n<pre>\n");
    let listing = Listing {
        access: Arc::clone(access),
        who: call.caller.identity.clone(),
        dir: dir.file,
        after: Some(Cookie::START),
        head: Some(head),
        _held: call.memory(LISTING_BYTES).await?,
    };
    let pages = stream::unfold(listing, |mut listing| async move {
        let after = listing.after?;
        Some((listing.page(after).await, listing))
    });
    Ok(response.with_body(ResponseBody::Stream(Box::pin(pages))))
}

impl Listing {
    async fn page(&mut self, after: Cookie) -> std::io::Result<Bytes> {
        let page = self.access.namespace.list(&self.who, self.dir, after, PAGE).await;
        let page = page.map_err(std::io::Error::other)?;
        self.after = page.entries.last().filter(|_| !page.is_last).map(|last| last.cookie);
        let mut out = self.head.take().unwrap_or_default();
        for entry in &page.entries {
            let slash = if entry.attributes.kind.is_directory() { "/" } else { "" };
            let mut name = String::new();
            put_name(&mut name, entry.name.as_bytes());
            // In the first component of a relative link what stands before a colon is a scheme: `javascript:` too.
            let name = name.replace(':', "%3A");
            let text = escaped(&String::from_utf8_lossy(entry.name.as_bytes()));
            out.push_str(&format!("<a href=\"{name}{slash}\">{text}{slash}</a> {}\n", entry.attributes.size));
        }
        if self.after.is_none() {
            out.push_str("</pre>\n");
        }
        Ok(out.into())
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
