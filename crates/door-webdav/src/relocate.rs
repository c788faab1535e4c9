//! COPY and MOVE inside the instance (RFC 4918 §9.8, §9.9): the server does them, no byte passes the client.

use std::sync::Arc;

use api::{Activity, Cookie, PropertyChange, Replace, TicketMode};
use http::StatusCode;
use http_server::Response;
use http_wire::dav::Depth;
use http_wire::target::Reference;
use types::{Access, Attributes, FileKind, Name, permission};

use crate::call::Call;
use crate::collection::{FAILURES_MAX, Failures, PAGE, extended, may_take};
use crate::front::{Front, REQUESTS};
use crate::locks::{Path, Reach};
use crate::refusal::Refusal;
use crate::resolve::{Last, Place};
use crate::upload::Terms;

/// One read of a copy.
const STEP_BYTES: u32 = 1 << 20;

/// Both ends of a COPY or MOVE, checked.
struct Ends {
    source: Place,
    found: Attributes,
    target: Place,
    may_overwrite: bool,
}

impl Ends {
    /// A directory that is overwritten loses its contents before its name: first whether the name may go.
    fn judge_overwrite(&self, call: &Call) -> Result<(), Refusal> {
        match (&self.target.parent, &self.target.found) {
            (Some(parent), Some(old)) => may_take(&call.caller.identity, parent, old),
            _ => Ok(()),
        }
    }

    fn check_target_locks(&self, front: &Front, call: &Call) -> Result<(), Refusal> {
        if self.target.found.is_none() {
            return front.check_member_locks(call, &self.target.path, Reach::Tree);
        }
        front.check_locks(call, &self.target.path, Reach::Tree)
    }
}

impl Front {
    pub(crate) async fn copy(self: &Arc<Self>, call: &Call) -> Result<Response, Refusal> {
        if let Some(response) = self.copy_elsewhere(call).await? {
            return Ok(response);
        }
        let depth = call.depth()?.unwrap_or(Depth::Infinity);
        if depth == Depth::One {
            return Err(Refusal::bad_request("Depth of a COPY is 0 or infinity"));
        }
        let ends = self.ends(call).await?;
        call.demand(Activity::Download, &ends.source.path)?;
        call.demand(Activity::Upload, &ends.target.path)?;
        if ends.found.kind.is_directory() {
            call.demand(Activity::Manage, &ends.target.path)?;
        }
        ends.check_target_locks(self, call)?;
        let is_deep = depth == Depth::Infinity;
        if ends.found.kind.is_directory() && is_deep && ends.target.path.starts_with(&ends.source.path) {
            return Err(Refusal::conflict("a directory cannot be copied into itself"));
        }
        // Before anything is removed for it.
        let needed =
            if ends.found.kind.is_directory() { Access::READ | Access::EXECUTE } else { Access::READ };
        if ends.found.kind != FileKind::Symlink
            && !permission::allows(&call.caller.identity, &ends.found, needed)
        {
            return Err(Refusal::forbidden("the source may not be read"));
        }
        let replaces_tree = ends.target.found.is_some_and(|found| found.kind.is_directory())
            || (ends.target.found.is_some() && ends.found.kind.is_directory());
        if replaces_tree {
            ends.judge_overwrite(call)?;
            let failures = self.remove_tree(call, &ends.target).await;
            if !failures.is_empty() {
                return Ok(crate::propfind::failures(&failures));
            }
        }
        let failures = self.copy_tree(call, &ends, is_deep).await?;
        if !failures.is_empty() {
            return Ok(crate::propfind::failures(&failures));
        }
        Ok(Response::new(created_or_replaced(&ends.target)))
    }

    pub(crate) async fn relocate(self: &Arc<Self>, call: &Call) -> Result<Response, Refusal> {
        let ends = self.ends(call).await?;
        call.demand(Activity::Manage, &ends.source.path)?;
        call.demand(Activity::Manage, &ends.target.path)?;
        self.check_member_locks(call, &ends.source.path, Reach::Tree)?;
        self.check_member_locks(call, &ends.target.path, Reach::Tree)?;
        let (from_dir, from_name) = ends.source.entry()?;
        let (to_dir, to_name) = ends.target.entry()?;
        if ends.target.path.len() > ends.source.path.len() && ends.target.path.starts_with(&ends.source.path)
        {
            return Err(Refusal::conflict("a directory cannot be moved into itself"));
        }
        let who = &call.caller.identity;
        // Before anything is removed for it.
        if let Some(parent) = &ends.source.parent {
            may_take(who, parent, &ends.found)?;
        }
        if ends.found.kind.is_directory()
            && from_dir != to_dir
            && !permission::allows(who, &ends.found, Access::WRITE)
        {
            return Err(Refusal::forbidden("a directory that may not be written is not moved to another"));
        }
        if ends.found.kind.is_regular() {
            self.services.access.judge_change(ends.found.file, Some(REQUESTS))?;
        }
        ends.judge_overwrite(call)?;
        match ends.target.found {
            Some(old) if old.kind.is_directory() || ends.found.kind.is_directory() => {
                let failures = self.remove_tree(call, &ends.target).await;
                if !failures.is_empty() {
                    return Ok(crate::propfind::failures(&failures));
                }
            }
            Some(old) if old.file != ends.found.file => self.make_way(old.file).await?,
            _ => {}
        }
        if ends.target.found.is_some_and(|old| old.file == ends.found.file) {
            // Two names of one file: rename(2) would leave both.
            self.services.namespace.unlink(who, from_dir, from_name).await?;
        } else {
            self.services.namespace.rename(who, (from_dir, from_name), (to_dir, to_name)).await?;
        }
        // Locks do not move (RFC 4918 §7.5).
        self.forget_locks(&ends.source.path);
        self.forget_locks(&ends.target.path);
        Ok(Response::new(created_or_replaced(&ends.target)))
    }

    async fn ends(&self, call: &Call) -> Result<Ends, Refusal> {
        let may_overwrite = call.may_overwrite()?;
        let source = self.resolve(call, &call.path, Last::Itself).await?;
        let found = source.existing()?;
        self.check_conditions(call, &source)?;
        let path = self.destination(call)?;
        let target = self.resolve(call, &path, Last::Itself).await.map_err(|refusal| {
            if refusal.status == StatusCode::NOT_FOUND {
                return Refusal::conflict("the directory that would hold it does not exist");
            }
            refusal
        })?;
        target.entry()?;
        if source.path == target.path {
            return Err(Refusal::forbidden("source and destination are one"));
        }
        if target.found.is_some() {
            if !may_overwrite {
                return Err(Refusal::precondition("destination exists"));
            }
            call.demand(Activity::Delete, &target.path)?;
        }
        refuse_ancestor(&source.path, &target.path)?;
        Ok(Ends { source, found, target, may_overwrite })
    }

    /// The path in `Destination`, which must be of this instance.
    fn destination(&self, call: &Call) -> Result<Path, Refusal> {
        let value = call.headers.get("destination");
        let value = value.ok_or_else(|| Refusal::bad_request("Destination is missing"))?;
        self.own_path(call, value.as_bytes())
    }

    /// The path that a URL of this instance, or a bare path, names.
    pub(crate) fn own_path(&self, call: &Call, url: &[u8]) -> Result<Path, Refusal> {
        let reference =
            Reference::parse(url).map_err(|error| Refusal::new(error.status(), error.to_string()))?;
        match reference {
            Reference::Here(target) => Ok(target.path),
            Reference::Absolute(url) if self.is_own(call, url.authority().as_str()) => {
                let target = url.target().map_err(|error| Refusal::new(error.status(), error.to_string()))?;
                Ok(target.path)
            }
            Reference::Absolute(url) => {
                Err(Refusal::new(StatusCode::BAD_GATEWAY, format!("{} is another server", url.authority())))
            }
        }
    }

    pub(crate) fn is_own(&self, call: &Call, authority: &str) -> bool {
        let host = call.header(&http::header::HOST);
        host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
            || self.config.authorities.iter().any(|own| own.eq_ignore_ascii_case(authority))
            || call.peer.local.to_string() == authority
    }

    async fn copy_tree(
        self: &Arc<Self>,
        call: &Call,
        ends: &Ends,
        is_deep: bool,
    ) -> Result<Failures, Refusal> {
        // Without Delete nothing that appears meanwhile may be replaced.
        let may_replace = ends.may_overwrite && call.caller.may(Activity::Delete, &ends.target.path);
        let replace = if may_replace { Replace::Any } else { Replace::Never };
        let mut failures = Failures::new();
        if !ends.found.kind.is_directory() {
            self.copy_file(call, &ends.found, &ends.target, replace).await?;
            return Ok(failures);
        }
        let made = self.copy_directory(call, &ends.found, &ends.target).await?;
        let mut open = vec![];
        if is_deep {
            open.push((ends.found.file, Cookie::START, ends.target.path.clone(), made));
        }
        while let Some((source, after, path, target)) = open.pop() {
            if failures.len() >= FAILURES_MAX {
                break;
            }
            let page = match self.list_to_enter(&call.caller.identity, source, after, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    failures.push((path, error.into()));
                    continue;
                }
            };
            if let Some(last) = page.entries.last().filter(|_| !page.is_last) {
                open.push((source, last.cookie, path.clone(), target));
            }
            for entry in &page.entries {
                let place = Place { path: extended(&path, &entry.name), parent: Some(target), found: None };
                let copied = if entry.attributes.kind.is_directory() {
                    self.copy_directory(call, &entry.attributes, &place).await.map(|made| {
                        open.push((entry.attributes.file, Cookie::START, place.path.clone(), made));
                    })
                } else {
                    self.copy_file(call, &entry.attributes, &place, Replace::Never).await
                };
                if let Err(refusal) = copied {
                    failures.push((place.path, refusal));
                }
            }
        }
        Ok(failures)
    }

    async fn copy_directory(
        &self,
        call: &Call,
        source: &Attributes,
        target: &Place,
    ) -> Result<Attributes, Refusal> {
        let (dir, name) = target.entry()?;
        let made = self.make_directory(&call.caller.identity, dir, name).await?;
        self.copy_properties(call, source, &made).await?;
        Ok(made)
    }

    /// A file that replaces another takes over its properties, which a copy of one without any is not to have.
    async fn drop_properties(&self, call: &Call, file: &Attributes) -> Result<(), Refusal> {
        let taken_over = self.services.properties.properties(file.file).await?;
        if !taken_over.is_empty() {
            let changes: Vec<_> =
                taken_over.into_iter().map(|property| PropertyChange::Remove(property.name)).collect();
            self.services.properties.set_properties(&call.caller.identity, file.file, &changes).await?;
        }
        Ok(())
    }

    /// Whether there were any.
    async fn copy_properties(
        &self,
        call: &Call,
        source: &Attributes,
        target: &Attributes,
    ) -> Result<bool, Refusal> {
        let properties = self.services.properties.properties(source.file).await?;
        if properties.is_empty() {
            return Ok(false);
        }
        let changes: Vec<_> = properties.into_iter().map(PropertyChange::Set).collect();
        self.services.properties.set_properties(&call.caller.identity, target.file, &changes).await?;
        Ok(true)
    }

    async fn copy_file(
        self: &Arc<Self>,
        call: &Call,
        source: &Attributes,
        target: &Place,
        replace: Replace,
    ) -> Result<(), Refusal> {
        if let types::FileKind::Symlink = source.kind {
            return self.copy_symlink(call, source, target).await;
        }
        self.check_readable(call, source)?;
        let (_held, source) = self.hold_for_reading(source.file).await?;
        let terms = Terms { replace, size: Some(source.size), ..Terms::default() };
        let pending = self.begin(call, target, terms).await?;
        let mut writer = self.writer(&pending, &[]).await?;
        if let Some(replica) = self.services.access.open_replica(&source, TicketMode::Read).await? {
            while writer.offset() < source.size {
                let length = u64::from(STEP_BYTES).min(source.size - writer.offset());
                let read = replica.read_at(writer.offset(), length as u32).await?;
                let mut data = read.data;
                if data.is_empty() {
                    // A hole at the end that was never written.
                    data = bytes::Bytes::from(vec![0; length as usize]);
                }
                writer.write(data).await?;
            }
        } else {
            while writer.offset() < source.size {
                let length = u64::from(STEP_BYTES).min(source.size - writer.offset());
                writer.write(bytes::Bytes::from(vec![0; length as usize])).await?;
            }
        }
        let received = writer.finish().await?;
        // Before it has its name: the file with the copy's contents never shows without them.
        let has_properties = self.copy_properties(call, &source, &pending.file).await?;
        let published = self.publish(&pending, received).await?;
        if !has_properties {
            self.drop_properties(call, &published.attributes).await?;
        }
        Ok(())
    }

    async fn copy_symlink(&self, call: &Call, source: &Attributes, target: &Place) -> Result<(), Refusal> {
        let (dir, name) = target.entry()?;
        let link = self.services.namespace.read_link(source.file).await?;
        if let Some(old) = &target.found {
            self.remove_entry(&call.caller.identity, dir, name, old).await?;
        }
        let spec = api::CreateSpec {
            kind: api::CreateKind::Symlink(link),
            mode: api::CreateMode::Guarded,
            permissions: 0o777,
            set: api::SetAttributes::default(),
            location: None,
        };
        self.services.namespace.create(&call.caller.identity, dir, name, &spec).await?;
        Ok(())
    }
}

/// What is overwritten is removed first, and the source with it where it lies below.
fn refuse_ancestor(source: &[Name], target: &[Name]) -> Result<(), Refusal> {
    if source.starts_with(target) {
        return Err(Refusal::conflict("the destination is a directory above the source"));
    }
    Ok(())
}

fn created_or_replaced(target: &Place) -> StatusCode {
    if target.found.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED }
}

#[cfg(test)]
mod tests {
    use http_wire::target::parse_path;

    use super::*;

    #[test]
    fn a_directory_above_the_source_is_not_overwritten() {
        let judged = |source, target| {
            refuse_ancestor(&parse_path(source).unwrap(), &parse_path(target).unwrap())
                .map_err(|refusal| refusal.status)
        };
        assert_eq!(judged("/a/b/c", "/a"), Err(StatusCode::CONFLICT));
        assert_eq!(judged("/a/b", "/a"), Err(StatusCode::CONFLICT));
        assert_eq!(judged("/a", "/a/b"), Ok(()));
        assert_eq!(judged("/a/b", "/a/bc"), Ok(()));
    }
}
