//! Uploads to a scene, and the rules of a door for names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{NamespaceError, Publish, Published, Replace, Unnamed, Uploads};
use async_trait::async_trait;
use bytes::Bytes;
use forebay_files::{
    FilesError, Last, NameToGive, Naming, NamingGuard, PublishError, Upload, UploadTarget, UploadTerms, walk,
};
use parking_lot::Mutex;
use testkit::watched_namespace::WatchedNamespace;
use tokio::sync::RwLock;
use types::{Attributes, ChecksumKind, FileId, Identity, Name};

use super::{FOREIGN, Scene, name};

impl<P> Scene<P> {
    pub async fn target(&self, text: &str) -> UploadTarget {
        self.files.upload_target(&self.caller, &[name("dir"), name(text)]).await.unwrap()
    }

    /// Begins an upload to `dir/name`, of these bytes.
    pub async fn begin(
        &self,
        text: &str,
        replace: Replace,
        bytes: &'static str,
    ) -> Result<Upload, FilesError> {
        self.begin_with(text, replace, bytes, bytes.len() as u64).await
    }

    /// As [`Scene::begin`], with the first bytes of so many.
    pub async fn begin_with(
        &self,
        text: &str,
        replace: Replace,
        bytes: &'static str,
        size: u64,
    ) -> Result<Upload, FilesError> {
        let (target, size) = (self.target(text).await, Some(size));
        let terms =
            UploadTerms { replace, size, kinds: vec![ChecksumKind::Adler32], ..UploadTerms::default() };
        let mut upload = self.files.begin_upload(FOREIGN, &self.caller, target, terms).await?;
        upload.open().await?;
        upload.write(Bytes::from_static(bytes.as_bytes())).await?;
        Ok(upload)
    }

    pub async fn put(
        &self,
        text: &str,
        replace: Replace,
        bytes: &'static str,
    ) -> Result<Published, FilesError> {
        give_name(self.begin(text, replace, bytes).await?, &Rules::default()).await
    }
}

pub async fn give_name(upload: Upload, rules: &Rules) -> Result<Published, FilesError> {
    match upload.finish().await?.publish(rules).await {
        Ok(published) => Ok(published),
        Err(PublishError::Files(error)) => Err(error),
        Err(PublishError::Door(_)) => panic!("the door refuses nothing"),
    }
}

/// As slow as the namespace. A test may hold up that names are given.
pub struct Gated {
    pub uploads: Arc<dyn Uploads>,
    pub names: Arc<WatchedNamespace>,
    pub giving: Arc<RwLock<()>>,
    pub names_to_give: Arc<AtomicUsize>,
}

#[async_trait]
impl Uploads for Gated {
    async fn create_unnamed(
        &self,
        who: &Identity,
        dir: FileId,
        new: &Unnamed,
    ) -> Result<Attributes, NamespaceError> {
        self.names.travel().await;
        let created = self.uploads.create_unnamed(who, dir, new).await;
        self.names.travel().await;
        created
    }

    async fn publish(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
        how: &Publish,
    ) -> Result<Published, NamespaceError> {
        self.names_to_give.fetch_add(1, Ordering::Relaxed);
        let _turn = self.giving.read().await;
        self.names.travel().await;
        let published = self.uploads.publish(who, file, dir, name, how).await;
        self.names.travel().await;
        published
    }

    async fn exchange(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        taken: (&Name, FileId),
    ) -> Result<(), NamespaceError> {
        self.names.travel().await;
        let exchanged = self.uploads.exchange(who, dir, name, taken).await;
        self.names.travel().await;
        exchanged
    }
}

/// The rules of a door, and what it was asked.
#[derive(Default)]
pub struct Rules {
    pub refuses: bool,
    pub may_pass: bool,
    /// Of each time, whether the name was free.
    pub asked: Mutex<Vec<bool>>,
}

pub struct NoGuard;

impl NamingGuard for NoGuard {
    fn given(&mut self, _: &Published) {}
}

impl Naming for Rules {
    type Guard = NoGuard;
    type Refused = bool;

    async fn begin(&self, name: NameToGive<'_>) -> Result<NoGuard, bool> {
        self.asked.lock().push(name.is_new);
        if self.refuses { Err(self.may_pass) } else { Ok(NoGuard) }
    }

    fn may_pass(refused: &bool) -> bool {
        *refused
    }
}
