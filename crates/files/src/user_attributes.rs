//! Attributes that users attach to files: extended attributes, which an NFS client sees, and properties, which a door keeps.
//!
//! A client with a delegation answers from its cache, so extended attributes are set as other attributes are: once the
//! delegations of others are back. Properties are read at the server only, and nothing is recalled for them.

use std::sync::Arc;

use api::{PropertyChange, SetAttributes, SetXattr};
use bytes::Bytes;
use types::{Attributes, ChangeInfo, FileId, Identity, XattrName};

use crate::{By, Files, FilesError};

impl Files {
    /// As `Xattrs::set_xattr`. `Recalled`: as of [`Files::before_change`].
    pub async fn set_xattr(
        self: &Arc<Self>,
        by: By<'_>,
        file: FileId,
        (name, value): (XattrName, Bytes),
        how: SetXattr,
    ) -> Result<ChangeInfo, FilesError> {
        let found = self.attributes(file).await?;
        let change = move |files: Arc<Files>, who: Identity| async move {
            files.services.xattrs.set_xattr(&who, file, &name, &value, how).await
        };
        self.change_beside_bytes(by, &found, change).await
    }

    /// As `Xattrs::remove_xattr`. `Recalled`: as of [`Files::before_change`].
    pub async fn remove_xattr(
        self: &Arc<Self>,
        by: By<'_>,
        file: FileId,
        name: XattrName,
    ) -> Result<ChangeInfo, FilesError> {
        let found = self.attributes(file).await?;
        let change = move |files: Arc<Files>, who: Identity| async move {
            files.services.xattrs.remove_xattr(&who, file, &name).await
        };
        self.change_beside_bytes(by, &found, change).await
    }

    /// As `Properties::set_properties`, and attributes after them: all or nothing where the door has judged that the caller
    /// may set the attributes. They come last since properties may be refused for their size. `Recalled`, for attributes:
    /// as of [`Files::before_change`].
    pub async fn set_properties(
        self: &Arc<Self>,
        by: By<'_>,
        file: &Attributes,
        changes: Vec<PropertyChange>,
        attributes: Option<SetAttributes>,
    ) -> Result<(), FilesError> {
        let changing = match attributes {
            Some(_) => self.before_setting(by, file).await?,
            None => None,
        };
        let (files, who, file) = (Arc::clone(self), by.identity.clone(), file.file);
        let set = async move {
            let _changing = changing;
            if !changes.is_empty() {
                files.services.properties.set_properties(&who, file, &changes).await?;
            }
            if let Some(attributes) = attributes {
                files.services.namespace.set_attributes(&who, file, &attributes).await?;
            }
            Ok(())
        };
        self.tasks.carry_on(set).await
    }
}
