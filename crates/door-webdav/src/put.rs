//! PUT: a file is visible when it is complete and agrees with what was promised.

mod resume;

use std::sync::Arc;
use std::time::Duration;

use api::{Activity, Birth, Published, Replace};
use files::{Upload, UploadTarget, UploadTerms};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use http_server::{RequestBody, Response};
use http_wire::dav::{Condition, State};
use http_wire::{digest, range};
use types::{Access, Timestamp};

use crate::call::Call;
use crate::conditions::{if_header, lock_owner};
use crate::front::{Front, Redirect};
use crate::locks::{LockOwner, Reach};
use crate::refusal::Refusal;
use crate::representation::etag;
use crate::resolve::PathTarget;
use crate::ticket::{Purpose, UrlTicket};

/// How long a redirect to upload is good for: until the body begins, and while its name has to be waited for.
const TICKET_S: u64 = 900;

impl Front {
    pub(crate) async fn put(self: &Arc<Self>, call: &Call, body: RequestBody) -> Result<Response, Refusal> {
        let seen = self.services.files.moves();
        let place = self.resolve_new(call, &call.path).await?;
        self.authorize_put(call, &place).await?;
        if let Some(value) = call.single(header::CONTENT_RANGE)? {
            let part = range::ContentRange::parse(value.as_bytes())
                .ok_or_else(|| Refusal::bad_request("Content-Range is not understood"))?;
            return self.put_part(call, (&place, seen), part, body).await;
        }
        let mut terms = self.terms(call, &place, &body)?;
        terms.promised = promised(&call.headers)?;
        let is_redirected = self.config.redirect == Redirect::Always
            && body.is_awaited()
            && !call.caller.is_bound_to_addresses();
        let admitted = is_redirected.then(|| self.at_pools.admit(&call.caller)).transpose()?;
        let owner = lock_owner(call)?;
        let upload = self.begin_upload(call, UploadTarget::new(place, Some(seen)), terms).await?;
        // With the body still to come: what takes time is under way when it is all there.
        upload.recall_ahead().await?;
        if let Some(admitted) = admitted
            && let Some((response, patience)) = self.redirect_upload(call, &upload).await
        {
            self.at_pools.keep(upload, admitted, owner, patience);
            return Ok(response);
        }
        Ok(answer(&self.receive(upload, owner, body).await?))
    }

    /// Everything that can be refused before a byte of the body is sent.
    pub(crate) async fn authorize_put(&self, call: &Call, place: &PathTarget) -> Result<(), Refusal> {
        call.demand(Activity::Upload, &place.path)?;
        let (_, _) = place.entry()?;
        if let Some(found) = &place.found {
            if found.kind.is_directory() {
                return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a directory has this name"));
            }
            call.demand(Activity::Delete, &place.path)?;
            if !self.judge().allows(&call.caller.identity, found, Access::WRITE).await? {
                return Err(Refusal::forbidden("access denied"));
            }
        } else if call.is_directory_form {
            return Err(Refusal::conflict("a name that ends with a slash is a directory's: use MKCOL"));
        }
        self.check_conditions(call, place).await?;
        if place.found.is_none() {
            return self.check_member_locks(call, &place.path, Reach::One);
        }
        self.check_locks(call, &place.path, Reach::One)
    }

    pub(crate) fn terms(
        &self,
        call: &Call,
        place: &PathTarget,
        body: &RequestBody,
    ) -> Result<UploadTerms, Refusal> {
        let replace = match &place.found {
            // The condition was checked; here it is kept true until the name is given.
            Some(found) if speaks_of_state(call)? => {
                Replace::Exactly { file: found.file, change: found.change }
            }
            None if call.headers.contains_key(header::IF_NONE_MATCH) => Replace::Never,
            // Without Delete nothing that appears meanwhile may be replaced.
            None if !call.caller.may(Activity::Delete, &place.path) => Replace::Never,
            _ => Replace::Any,
        };
        let (size, mtime) = (body.length(), given_mtime(&call.headers));
        Ok(UploadTerms { replace, size, mtime, ..UploadTerms::default() })
    }

    /// Through the head.
    async fn receive(
        self: &Arc<Self>,
        mut upload: Upload,
        owner: LockOwner,
        mut body: RequestBody,
    ) -> Result<Published, Refusal> {
        upload.open().await?;
        while let Some(bytes) = body.next().await? {
            upload.write(bytes).await?;
        }
        self.publish(upload.finish().await?, owner).await
    }

    /// 307 to the pool, for a client that waits with its body: so the body goes once, and to the right server.
    /// `None`: it goes through the head. The ticket ends when the upload is given up.
    async fn redirect_upload(&self, call: &Call, upload: &Upload) -> Option<(Response, Duration)> {
        let (unnamed, pool) = (upload.file(), upload.pool());
        self.services.files.make_replica(unnamed, pool).await.ok()?;
        let expires_s = self.ticket_expires_s(call, TICKET_S);
        let purpose = Purpose::Upload { epoch: unnamed.epoch };
        let (file, birth) = (unnamed.file, Birth::of(unnamed.birth));
        let ticket = UrlTicket { purpose, file, birth, pool, expires_s };
        let location = self.pool_url(call, upload.path(), &ticket)?;
        let left = Duration::from_secs(expires_s.saturating_sub(self.now_s()));
        let response = Response::new(StatusCode::TEMPORARY_REDIRECT)
            .with(header::LOCATION, location)
            .with(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some((response, left))
    }
}

/// Whether the request holds for the file as it is only, by any header that says so.
fn speaks_of_state(call: &Call) -> Result<bool, Refusal> {
    let is_etag = |condition: &Condition| matches!(condition.state, State::ETag(_));
    let lists_etag = if_header(call)?
        .is_some_and(|header| header.lists().iter().any(|list| list.conditions.iter().any(is_etag)));
    let names = [header::IF_MATCH, header::IF_NONE_MATCH, header::IF_UNMODIFIED_SINCE];
    Ok(lists_etag || names.iter().any(|name| call.headers.contains_key(name)))
}

/// 201 for a new name, 204 for new contents.
pub(crate) fn answer(published: &Published) -> Response {
    let status = if published.replaced.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
    Response::new(status).with(header::ETAG, etag(&published.attributes).header_value())
}

/// The checksums that the client promises: `Digest`, `Repr-Digest`, `Content-MD5`.
pub(crate) fn promised(headers: &HeaderMap) -> Result<Vec<types::Checksum>, Refusal> {
    digest::announced(headers).map_err(|error| Refusal::bad_request(error.to_string()))
}

/// `X-OC-Mtime`, as rclone and the ownCloud clients send it: seconds since 1970.
fn given_mtime(headers: &HeaderMap) -> Option<Timestamp> {
    let value = headers.get("x-oc-mtime")?.to_str().ok()?;
    let (seconds, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let nanoseconds: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Timestamp::new(seconds.parse().ok()?, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtime_comes_in_seconds_with_or_without_a_fraction() {
        let given = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-oc-mtime", HeaderValue::from_static(text));
            given_mtime(&headers)
        };
        assert_eq!(given("1700000000"), Timestamp::new(1_700_000_000, 0));
        assert_eq!(given("1700000000.25"), Timestamp::new(1_700_000_000, 250_000_000));
        assert_eq!(given("yesterday"), None);
    }
}
