//! PROPPATCH (RFC 4918 §9.2): all changes or none.

use std::sync::Arc;

use api::{Activity, NamespaceError, Property, PropertyChange, SetAttributes};
use files::FilesError;
use http::StatusCode;
use http_server::{RequestBody, Response, ResponseBody};
use http_wire::dav::{self, LiveProperty, Multistatus, Precondition, PropPatch, PropPatchOp};
use types::{Attributes, permission};

use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::{ATTEMPTS_MAX, Conditions, ELSEWHERE};
use crate::lock_table::PathChange;
use crate::multistatus::{href, multistatus};
use crate::path_locks::PathLocks;
use crate::refusal::Refusal;
use crate::resolve::{Last, Resolver};

pub(crate) struct PropertyPatches {
    pub access: Arc<FileAccess>,
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub locks: Arc<PathLocks>,
}

impl PropertyPatches {
    pub async fn patch(&self, call: &Call, patch: PropPatch) -> Result<Response, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let target = self.resolver.resolve(call, &call.path, Last::Followed).await?;
            target.existing()?;
            call.demand(Activity::UpdateMetadata, &target.path)?;
            self.conditions.check(call, &target).await?;
            let _changing =
                self.locks.begin(&call.lock_owner()?, vec![PathChange::of_file(&target.path)]).await?;
            if let Some(target) = self.conditions.still_at(call, &call.path, Last::Followed, &target).await {
                let found = target.existing()?;
                let patched = self.patch_found(call, &found, &patch).await?;
                // A file that got the name meanwhile has taken over the properties from before the patch.
                if !self.is_replaced(call, &found).await {
                    return Ok(patched);
                }
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }

    /// Whether the name stands for another file by now. If the file was removed or moved, the patch came first.
    async fn is_replaced(&self, call: &Call, found: &Attributes) -> bool {
        let now = self.resolver.resolve(call, &call.path, Last::Followed).await;
        now.is_ok_and(|now| now.found.is_some_and(|now| now.file != found.file))
    }

    async fn patch_found(
        &self,
        call: &Call,
        found: &Attributes,
        patch: &PropPatch,
    ) -> Result<Response, Refusal> {
        let href = href(&call.path, found.kind.is_directory());
        let is_protected =
            |op: &PropPatchOp| LiveProperty::from_qname(op.name()).is_some_and(LiveProperty::is_protected);
        if patch.ops.iter().any(is_protected) {
            return Ok(refused(&href, patch, is_protected));
        }
        match self.apply(call, found, patch).await {
            Ok(()) => {
                let mut out = Multistatus::begin();
                out.response(&href, |groups| {
                    groups
                        .group(StatusCode::OK, |props| patch.ops.iter().for_each(|op| props.name(op.name())));
                });
                Ok(multistatus(ResponseBody::Full(out.end())))
            }
            Err(refusal) => Err(refusal),
        }
    }

    async fn apply(&self, call: &Call, file: &Attributes, patch: &PropPatch) -> Result<(), Refusal> {
        let who = &call.caller.identity;
        let mut changes = Vec::new();
        let mut mode = None;
        for op in &patch.ops {
            match op {
                PropPatchOp::Set { name, value_xml, .. }
                    if LiveProperty::from_qname(name) == Some(LiveProperty::Executable) =>
                {
                    mode = Some(executable_mode(call, file, value_xml)?);
                }
                PropPatchOp::Set { name, value_xml, .. } => changes
                    .push(PropertyChange::Set(Property { name: name.to_string(), value: value_xml.clone() })),
                PropPatchOp::Remove(name) => changes.push(PropertyChange::Remove(name.to_string())),
            }
        }
        let mode = mode.map(|mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() });
        let has_properties = !changes.is_empty();
        let set = self.access.files.set_properties(self.access.by(who), file, changes, mode).await;
        set.map_err(|error| match error {
            FilesError::Namespace(NamespaceError::NoSpace) if has_properties => Refusal::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "the properties of one file may have 64 KiB together",
            ),
            error => error.into(),
        })
    }
}

pub(crate) async fn patch_in(mut body: RequestBody) -> Result<PropPatch, Refusal> {
    let body = body.collect(dav::BODY_BYTES_MAX as u64).await?;
    PropPatch::parse(&body).map_err(|error| Refusal::bad_request(error.to_string()))
}

/// mod_dav's property is the execute bits of the mode, which only the owner changes.
fn executable_mode(call: &Call, file: &Attributes, value_xml: &[u8]) -> Result<u32, Refusal> {
    if !permission::is_owner(&call.caller.identity, file) {
        return Err(Refusal::forbidden("only the owner makes a file executable"));
    }
    let text = dav::value_text(value_xml).map_err(|error| Refusal::bad_request(error.to_string()))?;
    // Users who may read may then execute.
    let readers = (file.mode & 0o444) >> 2;
    match text.trim() {
        "T" => Ok(file.mode | readers),
        "F" => Ok(file.mode & !0o111),
        _ => Err(Refusal::conflict("executable is T or F")),
    }
}

/// Nothing was changed: those that cannot be are told why, the others that they depend on them.
fn refused(href: &str, patch: &PropPatch, is_protected: impl Fn(&PropPatchOp) -> bool) -> Response {
    let mut out = Multistatus::begin();
    out.response(href, |groups| {
        let why = Precondition::CannotModifyProtectedProperty;
        groups.group_because(StatusCode::FORBIDDEN, Some(&why), |props| {
            patch.ops.iter().filter(|op| is_protected(op)).for_each(|op| props.name(op.name()));
        });
        groups.group(StatusCode::FAILED_DEPENDENCY, |props| {
            patch.ops.iter().filter(|op| !is_protected(op)).for_each(|op| props.name(op.name()));
        });
    });
    multistatus(ResponseBody::Full(out.end()))
}
