//! COPY to and from other servers: what a third-party copy needs of this one.

use std::sync::Arc;
use std::time::Duration;

use api::{Activity, Properties, Replace};
use async_trait::async_trait;
use bytes::Bytes;
use files::{Content, ContentMode, Files, FilesError, OpenFile, ScatteredUpload, UploadTerms};
use http_client::AbsoluteUrl;
use http_server::Response;
use types::{Attributes, Checksum, ChecksumKind};

use crate::access::FileAccess;
use crate::call::Call;
use crate::conditions::Conditions;
use crate::lock_table::LockOwner;
use crate::own_urls::OwnUrls;
use crate::refusal::Refusal;
use crate::resolve::{Last, Resolver};
use crate::tpc::{
    CopyRefusal, CopyRequest, CopySource, CopyTarget, Direction, LocalError, RunningCopies, is_third_party,
};
use crate::upload::Uploading;

pub(crate) struct ThirdPartyCopies {
    pub access: Arc<FileAccess>,
    pub resolver: Arc<Resolver>,
    pub conditions: Arc<Conditions>,
    pub uploading: Arc<Uploading>,
    pub properties: Arc<dyn Properties>,
    pub own_urls: Arc<OwnUrls>,
    pub running: RunningCopies,
}

impl ThirdPartyCopies {
    /// `None`: it is a COPY inside this instance.
    pub async fn copy(&self, call: &Call) -> Result<Option<Response>, Refusal> {
        let is_own = |url: &AbsoluteUrl| self.own_urls.contain(call, url);
        if !is_third_party(&call.headers, is_own) {
            return Ok(None);
        }
        let request = match CopyRequest::parse(&call.headers) {
            Ok(request) => request,
            Err(refusal) => return Ok(Some(CopyRefusal::into_response(refusal))),
        };
        // Before anything is made for it.
        let slot = match self.running.admit() {
            Ok(slot) => slot,
            Err(refusal) => return Ok(Some(refusal.into_response())),
        };
        tracing::info!(
            client = %call.peer.address,
            remote = %request.remote.authority(),
            // The flow's id, where the client gives one (SciTag); packets are not marked yet.
            flow = request.flow_id,
            running = self.running.count(),
            "third-party copy"
        );
        Ok(Some(match request.direction {
            Direction::Pull => {
                let pulled = self.pull_target(call, &request).await?;
                slot.pull(request, Box::new(pulled))
            }
            Direction::Push => slot.push(request, Arc::new(self.push_source(call).await?)),
        }))
    }

    async fn pull_target(&self, call: &Call, request: &CopyRequest) -> Result<PullTarget, Refusal> {
        let upload_target = self.uploading.authorize(call).await?;
        let target = upload_target.place();
        if target.found.is_some() && !request.overwrite {
            return Err(Refusal::precondition("destination exists"));
        }
        let replace = if request.overwrite && call.caller.may(Activity::Delete, &target.path) {
            Replace::Any
        } else {
            Replace::Never
        };
        let owner = call.lock_owner()?;
        let terms = UploadTerms { replace, ..UploadTerms::default() };
        let upload = self.uploading.begin(call, upload_target, terms).await?;
        upload.recall_ahead().await?;
        Ok(PullTarget { uploading: Arc::clone(&self.uploading), owner, upload: upload.scattered().await? })
    }

    async fn push_source(&self, call: &Call) -> Result<PushSource, Refusal> {
        let target = self.resolver.resolve(call, &call.path, Last::Followed).await?;
        call.demand(Activity::Download, &target.path)?;
        let found = target.existing()?;
        self.access.check_readable(call, &found).await?;
        self.conditions.check(call, &target).await?;
        let (held, file) = self.access.hold_for_reading(found.file).await?;
        let checksums = self.properties.checksums(file.file).await?;
        let content = self.access.files.content(&file, ContentMode::Read).await?;
        Ok(PushSource { files: Arc::clone(&self.access.files), file, content, checksums, _held: held })
    }

    /// Ends the copies that run; for a stop.
    pub async fn stop(&self, patience: Duration) {
        self.running.stop(patience).await;
    }
}

/// A file that is fetched: unnamed until it is complete.
struct PullTarget {
    uploading: Arc<Uploading>,
    owner: LockOwner,
    upload: ScatteredUpload,
}

#[async_trait]
impl CopyTarget for PullTarget {
    fn kinds(&self) -> Vec<ChecksumKind> {
        self.uploading.checksums.clone()
    }

    async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), LocalError> {
        self.upload.write_at(offset, data).await.map_err(local)
    }

    async fn read_at(&self, offset: u64, length: u32) -> Result<Bytes, LocalError> {
        self.upload.read_at(offset, length).await.map_err(local)
    }

    async fn publish(self: Box<Self>, size: u64, checksums: Vec<Checksum>) -> Result<(), LocalError> {
        let PullTarget { uploading, owner, upload } = *self;
        let complete = upload.finish(size, checksums).await.map_err(local)?;
        uploading.publish(complete, owner).await.map_err(|refusal| LocalError(refusal.message))?;
        Ok(())
    }
}

/// A file that is sent: held, so that it stays whole although it may lose its name.
struct PushSource {
    files: Arc<Files>,
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
        let now = self.files.fresh_attributes(self.file.file).await.map_err(local)?;
        Ok((now.size, now.mtime) == (self.file.size, self.file.mtime))
    }
}

fn local(error: impl std::fmt::Display) -> LocalError {
    LocalError(error.to_string())
}
