//! MKCOL.

use std::sync::Arc;

use http::StatusCode;
use http_server::{RequestBody, Response};

use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::{ATTEMPTS_MAX, Conditions, ELSEWHERE};
use crate::lock_table::PathChange;
use crate::path_locks::PathLocks;
use crate::refusal::Refusal;
use crate::resolve::{Last, Resolver};

pub(crate) struct Collections {
    pub access: Arc<FileAccess>,
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub locks: Arc<PathLocks>,
}

impl Collections {
    pub async fn make(&self, call: &Call) -> Result<Response, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let target = self.resolver.resolve_new(call, &call.path).await?;
            if !call.caller.may_make_directory(&target.path) {
                return Err(call.denied());
            }
            if target.found.is_some() {
                return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "name is taken"));
            }
            self.conditions.check(call, &target).await?;
            let _changing =
                self.locks.begin(&call.lock_owner()?, vec![PathChange::of_member(&target.path)]).await?;
            if let Some(target) = self.conditions.still_at(call, &call.path, Last::Followed, &target).await {
                let (dir, name) = target.entry()?;
                self.access.make_directory(&call.caller.identity, dir, name).await?;
                return Ok(Response::new(StatusCode::CREATED));
            }
        }
        Err(Refusal::busy(ELSEWHERE))
    }
}

/// RFC 4918 §9.3: of a body of MKCOL none is understood.
pub(crate) async fn refuse_body(mut body: RequestBody) -> Result<(), Refusal> {
    match body.next().await? {
        None => Ok(()),
        Some(_) => Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MKCOL takes no body")),
    }
}
