//! PROPPATCH (RFC 4918 §9.2): all changes or none.

use api::{Activity, NamespaceError, Property, PropertyChange, SetAttributes};
use http::StatusCode;
use http_server::{RequestBody, Response, ResponseBody};
use http_wire::dav::{self, LiveProperty, Multistatus, Precondition, PropPatch, PropPatchOp};
use types::Attributes;

use crate::call::Call;
use crate::front::Front;
use crate::locks::Reach;
use crate::propfind::{href, multistatus};
use crate::refusal::Refusal;
use crate::resolve::Last;

impl Front {
    pub(crate) async fn patch_properties(
        &self,
        call: &Call,
        mut body: RequestBody,
    ) -> Result<Response, Refusal> {
        let body = body.collect(dav::BODY_BYTES_MAX as u64).await?;
        let patch = PropPatch::parse(&body).map_err(|error| Refusal::bad_request(error.to_string()))?;
        let place = self.resolve(call, &call.path, Last::Followed).await?;
        let found = place.existing()?;
        call.demand(Activity::UpdateMetadata, &place.path)?;
        self.check_conditions(call, &place)?;
        self.check_locks(call, &place.path, Reach::One)?;

        let href = href(&call.path, found.kind.is_directory());
        let is_protected =
            |op: &PropPatchOp| LiveProperty::from_qname(op.name()).is_some_and(LiveProperty::is_protected);
        if patch.ops.iter().any(is_protected) {
            return Ok(refused(&href, &patch, is_protected));
        }
        match self.apply(call, &found, &patch).await {
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
        for op in &patch.ops {
            match op {
                PropPatchOp::Set { name, value_xml, .. }
                    if LiveProperty::from_qname(name) == Some(LiveProperty::Executable) =>
                {
                    self.set_executable(call, file, value_xml).await?;
                }
                PropPatchOp::Set { name, value_xml, .. } => changes
                    .push(PropertyChange::Set(Property { name: name.to_string(), value: value_xml.clone() })),
                PropPatchOp::Remove(name) => changes.push(PropertyChange::Remove(name.to_string())),
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        match self.services.properties.set_properties(who, file.file, &changes).await {
            Ok(_) => Ok(()),
            Err(NamespaceError::NoSpace) => Err(Refusal::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "the properties of one file may have 64 KiB together",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// mod_dav's property is the execute bits of the mode.
    async fn set_executable(&self, call: &Call, file: &Attributes, value_xml: &[u8]) -> Result<(), Refusal> {
        let text = dav::value_text(value_xml).map_err(|error| Refusal::bad_request(error.to_string()))?;
        // Who may read may then execute.
        let readers = (file.mode & 0o444) >> 2;
        let mode = match text.trim() {
            "T" => file.mode | readers,
            "F" => file.mode & !0o111,
            _ => return Err(Refusal::conflict("executable is T or F")),
        };
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.services.namespace.set_attributes(&call.caller.identity, file.file, &set).await?;
        Ok(())
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
