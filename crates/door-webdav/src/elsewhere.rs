//! COPY to and from other servers: what a third-party copy needs of this one. And the addresses of our own pools.

use std::sync::Arc;
use std::time::Duration;

use api::{Activity, Replace};
use async_trait::async_trait;
use bytes::Bytes;
use files::{Content, ContentMode, FilesError, OpenFile, ScatteredUpload, UploadTarget, UploadTerms};
use http::header::HeaderValue;
use http_client::AbsoluteUrl;
use http_server::Response;
use http_wire::target;
use types::{Attributes, Checksum, ChecksumKind, Name};

use crate::call::Call;
use crate::conditions::lock_owner;
use crate::data::host_for;
use crate::front::{Front, NAME};
use crate::locks::LockOwner;
use crate::refusal::Refusal;
use crate::resolve::Last;
use crate::ticket::{PARAMETER, UrlTicket};
use crate::tpc::{CopyRefusal, CopyRequest, CopySource, CopyTarget, Direction, LocalError, is_third_party};

impl Front {
    /// `None`: it is a COPY inside this instance.
    pub(crate) async fn copy_elsewhere(self: &Arc<Self>, call: &Call) -> Result<Option<Response>, Refusal> {
        let is_own = |url: &AbsoluteUrl| self.is_own(call, url);
        if !is_third_party(&call.headers, is_own) {
            return Ok(None);
        }
        let request = match CopyRequest::parse(&call.headers) {
            Ok(request) => request,
            Err(refusal) => return Ok(Some(CopyRefusal::into_response(refusal))),
        };
        // Before anything is made for it.
        let slot = match self.transfers.admit() {
            Ok(slot) => slot,
            Err(refusal) => return Ok(Some(refusal.into_response())),
        };
        tracing::info!(
            client = %call.peer.address,
            remote = %request.remote.authority(),
            // The flow's id, where the client gives one (SciTag); packets are not marked yet.
            flow = request.flow_id,
            running = self.transfers.running(),
            "third-party copy"
        );
        Ok(Some(match request.direction {
            Direction::Pull => {
                let target = self.pull_target(call, &request).await?;
                slot.pull(request, Box::new(target))
            }
            Direction::Push => slot.push(request, Arc::new(self.push_source(call).await?)),
        }))
    }

    async fn pull_target(
        self: &Arc<Self>,
        call: &Call,
        request: &CopyRequest,
    ) -> Result<PullTarget, Refusal> {
        let seen = self.services.files.moves();
        let place = self.resolve_new(call, &call.path).await?;
        self.authorize_put(call, &place).await?;
        if place.found.is_some() && !request.overwrite {
            return Err(Refusal::precondition("destination exists"));
        }
        let replace = if request.overwrite && call.caller.may(Activity::Delete, &place.path) {
            Replace::Any
        } else {
            Replace::Never
        };
        let owner = lock_owner(call)?;
        let terms = UploadTerms { replace, ..UploadTerms::default() };
        let upload = self.begin_upload(call, UploadTarget::new(place, Some(seen)), terms).await?;
        upload.recall_ahead().await?;
        Ok(PullTarget { front: Arc::clone(self), owner, upload: upload.scattered().await? })
    }

    async fn push_source(self: &Arc<Self>, call: &Call) -> Result<PushSource, Refusal> {
        let place = self.resolve(call, &call.path, Last::Followed).await?;
        call.demand(Activity::Download, &place.path)?;
        let found = place.existing()?;
        self.check_readable(call, &found).await?;
        self.check_conditions(call, &place).await?;
        let (held, file) = self.hold_for_reading(found.file).await?;
        let checksums = self.services.properties.checksums(file.file).await?;
        let content = self.services.files.content(&file, ContentMode::Read).await?;
        Ok(PushSource { front: Arc::clone(self), file, content, checksums, _held: held })
    }

    /// Ends the copies that run; for a stop.
    pub async fn stop_copies(&self, patience: Duration) {
        self.transfers.stop(patience).await;
    }

    /// A ticket ends with the credential that it was given to.
    pub(crate) fn ticket_expires_s(&self, call: &Call, validity_s: u64) -> u64 {
        (self.now_s() + validity_s).min(call.caller.expires_s.unwrap_or(u64::MAX))
    }

    /// Where the pool of a ticket serves the path to this client.
    pub(crate) fn pool_url(&self, call: &Call, path: &[Name], ticket: &UrlTicket) -> Option<HeaderValue> {
        let listener = self.services.files.pools().address(ticket.pool, NAME)?;
        let host = host_for(&call.headers, listener, call.peer.local);
        let scheme = if self.config.is_tls { "https" } else { "http" };
        let path = target::encode_path(path, false);
        let mut url =
            format!("{scheme}://{host}{path}?{PARAMETER}={}", ticket.seal(&self.services.ticket_keys));
        if let Some(token) = &call.token_in_query {
            // For the way back, if the pool cannot serve it.
            url.push_str("&authz=");
            target::put_query_text(&mut url, token);
        }
        HeaderValue::try_from(url).ok()
    }
}

/// A file that is fetched: unnamed until it is complete.
struct PullTarget {
    front: Arc<Front>,
    owner: LockOwner,
    upload: ScatteredUpload,
}

#[async_trait]
impl CopyTarget for PullTarget {
    fn kinds(&self) -> Vec<ChecksumKind> {
        self.front.config.checksums.clone()
    }

    async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), LocalError> {
        self.upload.write_at(offset, data).await.map_err(local)
    }

    async fn read_at(&self, offset: u64, length: u32) -> Result<Bytes, LocalError> {
        self.upload.read_at(offset, length).await.map_err(local)
    }

    async fn publish(self: Box<Self>, size: u64, checksums: Vec<Checksum>) -> Result<(), LocalError> {
        let PullTarget { front, owner, upload } = *self;
        let complete = upload.finish(size, checksums).await.map_err(local)?;
        front.publish(complete, owner).await.map_err(|refusal| LocalError(refusal.message))?;
        Ok(())
    }
}

/// A file that is sent: held, so that it stays whole although it may lose its name.
struct PushSource {
    front: Arc<Front>,
    file: Attributes,
    content: Content,
    checksums: Vec<Checksum>,
    _held: OpenFile,
}

#[async_trait]
impl CopySource for PushSource {
    fn size(&self) -> u64 {
        self.file.size
    }

    fn checksums(&self) -> Vec<Checksum> {
        self.checksums.clone()
    }

    async fn read_at(&self, offset: u64, length: u32) -> Result<Bytes, LocalError> {
        let data = self.content.read(offset, length).await.map_err(local)?.data;
        if data.is_empty() && offset < self.file.size {
            return Err(local(FilesError::Shortened));
        }
        Ok(data)
    }

    async fn is_unchanged(&self) -> Result<bool, LocalError> {
        let now = self.front.services.files.fresh_attributes(self.file.file).await.map_err(local)?;
        Ok((now.size, now.mtime) == (self.file.size, self.file.mtime))
    }
}

fn local(error: impl std::fmt::Display) -> LocalError {
    LocalError(error.to_string())
}
