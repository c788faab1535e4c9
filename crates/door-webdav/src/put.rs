//! PUT: a file is visible when it is complete and agrees with what was promised.

mod resume;
mod terms;

use std::sync::Arc;
use std::time::Duration;

use api::{Birth, Published};
use files::{Upload, UploadsAtPools};
use http::StatusCode;
use http::header::{self, HeaderValue};
use http_server::{RequestBody, Response};
use http_wire::range;

use self::terms::{promised, terms};
use crate::access::FileAccess;
use crate::call::Call;
use crate::completions::StoredUpload;
use crate::lock_table::LockOwner;
use crate::redirects::Redirects;
use crate::refusal::Refusal;
use crate::representation::stored;
use crate::ticket::{Purpose, UrlTicket};
use crate::upload::Uploading;

pub(crate) use self::resume::PartialPuts;

/// How long a redirect to upload is good for: until the body begins, and while its name has to be waited for.
const TICKET_S: u64 = 900;

pub(crate) struct Puts {
    pub access: Arc<FileAccess>,
    pub uploading: Arc<Uploading>,
    pub redirects: Arc<Redirects>,
    /// Uploads that were sent to a pool.
    pub at_pools: Arc<UploadsAtPools<LockOwner>>,
    /// Uploads in several requests.
    pub partial: PartialPuts,
}

impl Puts {
    /// Ends uploads that nobody came back for.
    pub fn give_up_idle(&self) {
        self.at_pools.give_up_idle();
        self.partial.in_parts.give_up_idle();
    }

    pub async fn put(&self, call: &Call, body: RequestBody) -> Result<Response, Refusal> {
        let target = self.uploading.authorize(call).await?;
        if let Some(value) = call.single(header::CONTENT_RANGE)? {
            let part = range::ContentRange::parse(value.as_bytes())
                .ok_or_else(|| Refusal::bad_request("Content-Range is not understood"))?;
            return Box::pin(self.partial.put(call, &target, part, body)).await;
        }
        let mut terms = terms(call, target.place(), &body)?;
        terms.promised = promised(&call.headers)?;
        let is_redirected = self.redirects.may_lead_away(call) && body.is_awaited();
        let admitted = is_redirected.then(|| self.at_pools.admit(&call.caller)).transpose()?;
        let owner = call.lock_owner()?;
        let upload = self.uploading.begin(call, target, terms).await?;
        // With the body still to come: what takes time is under way when it is all there.
        upload.recall_ahead().await?;
        if let Some(admitted) = admitted
            && let Some((response, patience)) = self.redirect_upload(call, &upload).await
        {
            self.at_pools.keep(upload, admitted, owner, patience);
            return Ok(response);
        }
        Ok(stored(&StoredUpload::of(&self.receive(upload, owner, body).await?)))
    }

    /// Through the head.
    async fn receive(
        &self,
        mut upload: Upload,
        owner: LockOwner,
        mut body: RequestBody,
    ) -> Result<Published, Refusal> {
        upload.open().await?;
        while let Some(bytes) = body.next().await? {
            upload.write(bytes).await?;
        }
        self.uploading.publish(upload.finish().await?, owner).await
    }

    /// 307 to the pool, for a client that waits with its body: so the body goes once, and to the right server.
    /// `None`: it goes through the head. The ticket ends when the upload is given up.
    async fn redirect_upload(&self, call: &Call, upload: &Upload) -> Option<(Response, Duration)> {
        let (unnamed, pool) = (upload.file(), upload.pool());
        let origin = self.redirects.origin(call, pool)?;
        self.access.files.make_replica(unnamed, pool).await.ok()?;
        let expires_s = self.redirects.expires_s(call, TICKET_S);
        let purpose = Purpose::Upload { epoch: unnamed.epoch };
        let (file, birth, io) = (unnamed.file, Birth::of(unnamed.birth), unnamed.io);
        let ticket = UrlTicket { purpose, file, birth, pool, io, expires_s };
        let location = self.redirects.url(call, &origin, upload.path(), &ticket)?;
        let left = Duration::from_secs(expires_s.saturating_sub(self.redirects.now_s()));
        let response = Response::new(StatusCode::TEMPORARY_REDIRECT)
            .with(header::LOCATION, location)
            .with(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some((response, left))
    }
}
