//! The file system behind the exports, as the handlers ask it: names, attributes, permissions and bytes.

use std::sync::Arc;
use std::time::Duration;

use api::{HandleKey, Namespace, Xattrs};
use file_state::{Door, Holder};
use files::{By, Content, ContentMode, Files};
use nfs4::{ClientId4, FsId4, NfsFh4, NfsStat4};
use nfs4_state::stateid;
use types::{Access, Acl, Attributes, Clock, FileId, Identity};

use super::offers::Offers;
use crate::context::Compound;
use crate::owners::OwnerNames;
use crate::{fh, status};

/// How long an operation waits for others before it answers DELAY: Linux comes again after 100 ms at the earliest.
pub(super) const WAIT: Duration = Duration::from_millis(100);

pub(crate) struct FileSystem {
    pub namespace: Arc<dyn Namespace>,
    pub xattrs: Arc<dyn Xattrs>,
    pub files: Arc<Files>,
    /// This door, as `files` knows it.
    pub door: Door,
    pub clock: Arc<dyn Clock>,
    pub handle_key: HandleKey,
    pub fsid: FsId4,
    /// Names of users and groups, if clients get names.
    pub owners: Option<Arc<OwnerNames>>,
    pub lease: Duration,
    pub offers: Offers,
}

impl FileSystem {
    /// The attributes of a file that a handle names: STALE if it is gone.
    pub async fn attributes(&self, file: FileId) -> Result<Attributes, NfsStat4> {
        self.files.attributes(file).await.map_err(status::of_files)
    }

    /// As [`FileSystem::attributes`], with what the pools know better.
    pub async fn fresh_attributes(&self, file: FileId) -> Result<Attributes, NfsStat4> {
        self.files.fresh_attributes(file).await.map_err(status::of_files)
    }

    /// The bytes of a file, as [`Files::content`].
    pub async fn content(&self, file: &Attributes, mode: ContentMode) -> Result<Content, NfsStat4> {
        self.files.content(file, mode).await.map_err(status::of_files)
    }

    /// The caller, as the conflict table knows it. `None`: a caller without a client id.
    pub fn caller(&self, compound: &Compound) -> Option<Holder> {
        compound.client.map(|client| self.holder(client))
    }

    /// The caller of an operation on entries.
    pub fn by<'a>(&self, compound: &'a Compound) -> By<'a> {
        By { identity: &compound.identity, holder: self.caller(compound), patience: WAIT }
    }

    pub fn holder(&self, client: ClientId4) -> Holder {
        stateid::holder(self.door, client)
    }

    /// The file handle that clients get.
    pub fn handle(&self, file: FileId) -> NfsFh4 {
        fh::encode(&self.handle_key, file)
    }

    /// Of the directories on the way to exports: a file system of its own, as RFC 8881 §7.3 wants it.
    pub fn pseudo_fsid(&self) -> FsId4 {
        FsId4 { major: self.fsid.major ^ 2, ..self.fsid }
    }

    /// The accesses to a file that the caller has, by its ACL or its mode.
    pub async fn granted(&self, who: &Identity, file: &Attributes) -> Result<Access, NfsStat4> {
        self.files.judge().granted(who, file).await.map_err(status::of_namespace)
    }

    pub async fn allows(&self, who: &Identity, file: &Attributes, wanted: Access) -> Result<bool, NfsStat4> {
        Ok(self.granted(who, file).await?.contains(wanted))
    }

    pub async fn acl(&self, file: &Attributes) -> Result<Option<Acl>, NfsStat4> {
        self.files.judge().acl(file).await.map_err(status::of_namespace)
    }
}
