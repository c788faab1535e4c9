//! PROPFIND (RFC 4918 §9.1): a walk over the namespace, written as it goes. A collection of a hundred thousand entries
//! passes through one buffer, and nothing is listed or written before the client has taken what came before: whatever
//! the tree is like, a page of entries, a chunk of text and a bounded number of directories are kept.

use std::sync::Arc;

use api::{Activity, Cookie, DirEntry};
use bytes::Bytes;
use files::Patience;
use futures_util::stream;
use http::StatusCode;
use http_server::{Held, RequestBody, Response, ResponseBody};
use http_wire::dav::{self, Depth, LiveProperty, Multistatus, PropFind, QName};
use types::{FileId, FileKind};

use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::Conditions;
use crate::live::{Facts, LiveProperties, Resource};
use crate::lock_table::Path;
use crate::multistatus::{href, multistatus};
use crate::refusal::Refusal;
use crate::resolve::{Last, Resolver};
use crate::tree::{Descent, PAGE};

/// Bytes that are handed to the connection at once, without those that the last resource adds.
const CHUNK_BYTES: usize = 64 << 10;
/// The memory of a walk, about: a chunk in a buffer that has doubled, and a page of entries.
const WALK_BYTES: usize = 256 << 10;
/// Directories that wait to be listed. With so many of them, they come one by one.
const PENDING_MAX: usize = 4_096;

/// The walk: directories that are still to be listed, deepest last.
struct Walk {
    access: Arc<FileAccess>,
    live: Arc<LiveProperties>,
    call: Arc<Call>,
    asked: Arc<PropFind>,
    /// With clients that are asked what they have written.
    patience: Patience,
    is_deep: bool,
    /// Where it began, without symbolic links. The answer has the path that was asked for.
    top: Path,
    open: Vec<(Descent, FileId, Cookie)>,
    page: Option<Listed>,
    /// `None` when the end is written.
    out: Option<Multistatus>,
    _held: Option<Held>,
}

/// A page of a directory, and how much of it is written.
struct Listed {
    descent: Descent,
    shown: Path,
    path: Path,
    entries: std::vec::IntoIter<DirEntry>,
    /// Directories among those that were written.
    below: Vec<(Descent, FileId, Cookie)>,
}

pub(crate) struct PropertyListing {
    pub access: Arc<FileAccess>,
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub live: Arc<LiveProperties>,
}

impl PropertyListing {
    pub async fn find(&self, call: &Arc<Call>, mut body: RequestBody) -> Result<Response, Refusal> {
        let body = body.collect(dav::BODY_BYTES_MAX as u64).await?;
        let asked = PropFind::parse(&body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let depth = call.depth()?.unwrap_or(Depth::Infinity);
        let target = self.resolver.resolve(call, &call.path, Last::Followed).await?;
        let found = target.existing()?;
        call.demand(Activity::ReadMetadata, &target.path)?;
        self.conditions.check_if(call, &target).await?;
        let is_listed = found.kind.is_directory() && depth != Depth::Zero;
        let held = if is_listed { Some(call.memory(WALK_BYTES).await?) } else { None };
        if is_listed {
            call.demand(Activity::List, &target.path)?;
            // A directory that may not be read is refused before the answer has begun.
            self.access.list_to_enter(&call.caller.identity, found.file, Cookie::START, 1).await?;
        }
        let mut walk = Walk {
            access: Arc::clone(&self.access),
            live: Arc::clone(&self.live),
            call: Arc::clone(call),
            asked: Arc::new(asked),
            patience: Patience::of_walk(),
            is_deep: depth == Depth::Infinity,
            top: target.path.clone(),
            open: Vec::new(),
            page: None,
            out: Some(Multistatus::begin()),
            _held: held,
        };
        let whole = Resource { shown: &call.path, path: &target.path, attributes: &found };
        walk.write(&whole).await?;
        if is_listed {
            walk.open.push((Descent::default(), found.file, Cookie::START));
        }
        Ok(multistatus(walk.into_body().await?))
    }
}

impl Walk {
    /// Small answers have a length; larger ones are streamed.
    async fn into_body(mut self) -> Result<ResponseBody, Refusal> {
        let first = self.next().await?.unwrap_or_default();
        if self.out.is_none() {
            return Ok(ResponseBody::Full(first));
        }
        let rest = stream::unfold(self, |mut walk| async move {
            match walk.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), walk)),
                Ok(None) => None,
                // Too late for a status: the connection ends in the middle of the body.
                Err(refusal) => Some((Err(std::io::Error::other(refusal.message)), walk)),
            }
        });
        let first = stream::once(async move { Ok(first) });
        Ok(ResponseBody::Stream(Box::pin(futures_util::StreamExt::chain(first, rest))))
    }

    /// The next stretch of the answer.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        while let Some(out) = &mut self.out {
            if out.buffered() >= CHUNK_BYTES {
                return Ok(Some(out.take()));
            }
            if let Some(page) = self.page.take() {
                self.page = self.write_next(page).await?;
                continue;
            }
            let Some((descent, dir, after)) = self.open.pop() else {
                return Ok(self.out.take().map(Multistatus::end));
            };
            self.list(descent, dir, after).await?;
        }
        Ok(None)
    }

    async fn list(&mut self, descent: Descent, dir: FileId, after: Cookie) -> Result<(), Refusal> {
        self.patience.begin_list();
        let shown = descent.path(&self.call.path);
        let who = self.call.caller.identity.clone();
        let page = match self.access.list_to_enter(&who, dir, after, page_len(self.open.len())).await {
            Ok(page) => page,
            // Below the top: a directory that the caller may not read, or that has gone meanwhile.
            Err(error) => {
                let refusal = Refusal::from(error);
                if refusal.status != StatusCode::NOT_FOUND {
                    self.write_status(&shown, &refusal);
                }
                return Ok(());
            }
        };
        if let Some(last) = page.entries.last().filter(|_| !page.is_last) {
            self.open.push((descent.clone(), dir, last.cookie));
        }
        let path = descent.path(&self.top);
        let entries = page.entries.into_iter();
        self.page = Some(Listed { descent, shown, path, entries, below: Vec::new() });
        Ok(())
    }

    /// One entry of a page; what is left of it.
    async fn write_next(&mut self, mut page: Listed) -> Result<Option<Listed>, Refusal> {
        let Some(entry) = page.entries.next() else {
            // The first of them comes next.
            self.open.extend(page.below.into_iter().rev());
            return Ok(None);
        };
        page.shown.push(entry.name.clone());
        page.path.push(entry.name.clone());
        let resource = Resource { shown: &page.shown, path: &page.path, attributes: &entry.attributes };
        match self.write(&resource).await {
            // It was removed since it was listed.
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => {}
            written => {
                written?;
                if self.is_deep && entry.attributes.kind.is_directory() {
                    match page.descent.down(&entry.name) {
                        Ok(descent) => page.below.push((descent, entry.attributes.file, Cookie::START)),
                        Err(refusal) => self.write_status(&page.shown, &refusal),
                    }
                }
            }
        }
        page.shown.pop();
        page.path.pop();
        Ok(Some(page))
    }

    /// Why a directory is not listed.
    fn write_status(&mut self, shown: &Path, refusal: &Refusal) {
        if let Some(out) = &mut self.out {
            out.status(&href(shown, true), refusal.status, None);
        }
    }

    async fn write(&mut self, resource: &Resource<'_>) -> Result<(), Refusal> {
        let asking = (&*self.asked, &mut self.patience);
        let facts = self.live.gather(&self.call.caller, resource, asking).await?;
        let Some(out) = &mut self.out else { return Ok(()) };
        let is_collection = resource.attributes.kind == FileKind::Directory;
        out.response(&href(resource.shown, is_collection), |groups| match &*self.asked {
            PropFind::PropName => groups.group(StatusCode::OK, |props| {
                facts.live_names().for_each(|live| props.live_name(live));
                facts.dead_names().for_each(|name| props.name(&name));
            }),
            PropFind::AllProp { include } => groups.group(StatusCode::OK, |props| {
                let all = LiveProperty::ALL.into_iter().filter(|live| live.is_in_allprop());
                let more = include.iter().filter_map(LiveProperty::from_qname);
                let mut wanted: Vec<LiveProperty> =
                    all.chain(more.filter(|live| !live.is_in_allprop())).collect();
                wanted.dedup();
                wanted.into_iter().for_each(|live| _ = facts.write(live, props));
                facts.dead.iter().for_each(|property| props.dead(&property.value));
            }),
            PropFind::Props(names) => write_named(&facts, names, groups),
        });
        Ok(())
    }
}

/// How much of a directory is listed at once: its directories wait beside those that wait already.
fn page_len(pending: usize) -> usize {
    PAGE.min(PENDING_MAX.saturating_sub(pending)).max(1)
}

fn write_named(facts: &Facts<'_>, names: &[QName], groups: &mut dav::PropStats<'_>) {
    let mut missing = Vec::new();
    groups.group(StatusCode::OK, |props| {
        for name in names {
            let is_known = match LiveProperty::from_qname(name) {
                Some(live) => facts.write(live, props),
                None => facts.write_dead(name, props),
            };
            if !is_known {
                missing.push(name);
            }
        }
    });
    groups.group(StatusCode::NOT_FOUND, |props| missing.iter().for_each(|name| props.name(name)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::DEPTH_MAX;

    #[test]
    fn a_walk_over_any_tree_keeps_a_bounded_number_of_directories() {
        // Every entry is a directory, and every directory has more entries than are listed at once.
        let mut pending: usize = 1;
        for _ in 0..DEPTH_MAX {
            pending -= 1;
            let listed = page_len(pending);
            assert!((1..=PAGE).contains(&listed));
            pending += 1 + listed;
        }
        assert!(pending <= PENDING_MAX + 2 * DEPTH_MAX, "{pending}");
        assert_eq!(page_len(0), PAGE, "where there are few, a directory is listed by pages");
    }
}
