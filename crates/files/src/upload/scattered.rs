//! Bytes of an upload that come in any order: those of several streams, each of which sums its own.

use std::sync::Arc;

use api::{ANSWER_TIME, Birth, OpenReplica, PoolError, Stability, Verifier};
use bytes::Bytes;
use types::Checksum;

use super::{Complete, Upload, UploadError};
use crate::{FilesError, Received};

pub struct ScatteredUpload {
    upload: Upload,
    replica: Arc<dyn OpenReplica>,
    /// As of before the first write.
    verifier: Verifier,
}

impl Upload {
    /// For bytes that come in any order. None may have been written before.
    pub async fn scattered(self) -> Result<ScatteredUpload, FilesError> {
        let replica = self.body().files.open_for_writing(self.file()).await?;
        let verifier = replica.verifier();
        Ok(ScatteredUpload { upload: self, replica, verifier })
    }
}

impl ScatteredUpload {
    pub async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<(), FilesError> {
        self.replica.write_at(offset, bytes, Stability::Unstable).await?;
        Ok(())
    }

    /// Empty at the end.
    pub async fn read_at(&self, offset: u64, length: u32) -> Result<Bytes, FilesError> {
        Ok(self.replica.read_at(offset, length).await?.data)
    }

    /// All bytes up to `size` have come, and are on disk when this is answered.
    pub async fn finish(self, size: u64, checksums: Vec<Checksum>) -> Result<Complete, FilesError> {
        let (body, id) = (self.upload.body(), self.upload.pool());
        let pool = body.files.services.pools.pool(id).ok_or(PoolError::Offline(id))?;
        let (file, birth) = (body.file.file, Birth::of(body.file.birth));
        let found = pool.facts(&[file], ANSWER_TIME).await.sole()?;
        // An attempt that was given up may have left bytes behind the end.
        if found.is_some_and(|facts| facts.size > size && facts.birth.agrees_with(birth)) {
            pool.truncate(&[(file, size)], ANSWER_TIME).await.sole()?;
        }
        if size > 0 && self.replica.sync().await? != self.verifier {
            return Err(UploadError::Lost.into());
        }
        Ok(self.upload.received(Received { size, checksums }))
    }
}
