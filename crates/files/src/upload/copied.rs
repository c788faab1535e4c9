//! An upload whose bytes are those of another file.

use api::Stretch;
use types::{Attributes, Checksum};

use super::{Complete, Upload, UploadError};
use crate::content::copy_whole;
use crate::{Content, ContentMode, Files, FilesError, Received};

/// Read, summed and written at once, where the checksums are not known.
const STEP_BYTES: u32 = 1 << 20;

impl Upload {
    /// Takes over the bytes of another file, which the caller holds open. Where the checksums of the file are kept, its
    /// bytes need not be seen: pools copy among themselves as far as they can, and holes stay holes. Otherwise the bytes
    /// are read and summed. None may have been written before.
    pub async fn copy_from(mut self, source: &Content) -> Result<Complete, FilesError> {
        if let Some(checksums) = self.kept_sums(source).await? {
            self.copy_unseen(source).await?;
            if is_unchanged(&self.body().files, source.file()).await? {
                return Ok(self.received(Received { size: source.file().size, checksums }));
            }
            // It was written meanwhile, and nobody knows the checksums of the copy.
        }
        let size = source.file().size;
        while self.arrived() < size {
            let length = u64::from(STEP_BYTES).min(size - self.arrived()) as u32;
            let data = source.read(self.arrived(), length).await?.data;
            if data.is_empty() {
                return Err(FilesError::Shortened);
            }
            self.write(data).await?;
        }
        self.finish().await
    }

    /// Of every kind that the upload is to have. `None`: they are not all known.
    async fn kept_sums(&self, source: &Content) -> Result<Option<Vec<Checksum>>, FilesError> {
        let (files, file) = (&self.body().files, source.file().file);
        if source.file().size == 0 || files.is_being_written(file) {
            return Ok(None);
        }
        let kept = files.services.properties.checksums(file).await?;
        let is_kept = |kind| kept.iter().any(|sum| sum.kind() == kind);
        let is_known = self.kinds().into_iter().all(is_kept) && is_unchanged(files, source.file()).await?;
        Ok(is_known.then_some(kept))
    }

    async fn copy_unseen(&self, source: &Content) -> Result<(), FilesError> {
        let body = self.body();
        let target = body.files.content(&body.file, ContentMode::Write).await?;
        let size = source.file().size;
        source.require_bytes(size).await?;
        let verifier = target.verifier()?;
        copy_whole(source, &target, Stretch { from: 0, to: 0, length: size }).await?;
        let synced = target.replica().expect("it is open to be written").sync().await?;
        if synced == verifier { Ok(()) } else { Err(UploadError::Lost.into()) }
    }
}

async fn is_unchanged(files: &Files, file: &Attributes) -> Result<bool, FilesError> {
    Ok(files.attributes(file.file).await?.change == file.change && !files.is_being_written(file.file))
}
