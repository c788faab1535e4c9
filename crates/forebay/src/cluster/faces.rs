//! The head's answers to the HTTP data faces of pools on other hosts: the front of the HTTP door, asked for one pool.

use async_trait::async_trait;
use cluster::{ArrivedBytes, DataFaces, Denied, HeldVersion, Hold, StoredVersion};
use door_webdav::{Completions, FileVersion, LocalCompletions, Refusal, StoredUpload};
use files::Received;
use http::header;
use types::{ChecksumKind, FileId, PoolId};

pub struct Faces(pub LocalCompletions);

#[async_trait]
impl DataFaces for Faces {
    async fn hold(
        &self,
        pool: PoolId,
        file: FileId,
        change: u64,
    ) -> Result<Option<(Hold, HeldVersion)>, Denied> {
        let held = self.0.of_pool(pool).hold_version(file, change).await.map_err(denied)?;
        Ok(held.map(|(hold, FileVersion { birth, size, mtime, io, .. })| {
            (hold, HeldVersion { birth, size, mtime, io })
        }))
    }

    async fn begin(&self, pool: PoolId, file: FileId, has_bytes: bool) -> Result<Vec<ChecksumKind>, Denied> {
        self.0.of_pool(pool).begin(file, has_bytes).await.map_err(denied)
    }

    fn put_off(&self, pool: PoolId, file: FileId) {
        self.0.of_pool(pool).put_off(file);
    }

    fn give_up(&self, pool: PoolId, file: FileId) {
        self.0.of_pool(pool).give_up(file);
    }

    async fn complete(
        &self,
        pool: PoolId,
        file: FileId,
        arrived: ArrivedBytes,
    ) -> Result<StoredVersion, Denied> {
        let ArrivedBytes { size, checksums } = arrived;
        let stored = self.0.of_pool(pool).complete(file, Received { size, checksums }).await;
        let StoredUpload { file, change, is_new } = stored.map_err(denied)?;
        Ok(StoredVersion { file: file.0, change, is_new })
    }
}

fn denied(refusal: Refusal) -> Denied {
    let is_passing = refusal.headers.iter().any(|(name, _)| *name == header::RETRY_AFTER);
    let Refusal { status, message, xml, .. } = refusal;
    Denied { status: status.as_u16(), reason: message, is_passing, xml: xml.map(|xml| xml.to_vec()) }
}
