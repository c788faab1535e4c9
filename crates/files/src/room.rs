//! Quotas for bytes that reach the pools without the namespace.

use api::{NamespaceError, Quotas};
use types::{Attributes, FileId, Identity};

use crate::{Files, FilesError};

/// Clients write by pages: a bound within one would keep them from writing its beginning.
const PAGE_BYTES: u64 = 4096;

impl Files {
    pub fn quotas(&self) -> &dyn Quotas {
        &*self.services.quotas
    }

    /// Refuses more bytes in a file, or in a new one in a directory, than quotas allow. `freed` bytes go at the same time.
    pub async fn require_room(
        &self,
        who: &Identity,
        file: FileId,
        more: u64,
        freed: u64,
    ) -> Result<(), FilesError> {
        let room = self.services.quotas.room(who, file).await?;
        match room {
            Some(room) if more > room.saturating_add(freed) => Err(NamespaceError::QuotaExceeded.into()),
            _ => Ok(()),
        }
    }

    /// Up to where `who` may write a file without being asked again; `None`: anywhere.
    pub async fn writable_end(&self, who: &Identity, file: &Attributes) -> Result<Option<u64>, FilesError> {
        let room = self.services.quotas.room(who, file.file).await?;
        Ok(room.and_then(|room| file.size.checked_add(room)?.checked_next_multiple_of(PAGE_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fakes::{Fakes, attributes};

    const FILE: FileId = FileId(7);

    #[tokio::test]
    async fn bytes_that_have_no_room_are_refused() {
        let (fakes, files) = Fakes::files();
        let who = Identity::new(10, 100, &[]);
        assert!(files.require_room(&who, FILE, u64::MAX, 0).await.is_ok());
        *fakes.room.lock() = Some(9);
        assert!(files.require_room(&who, FILE, 9, 0).await.is_ok());
        assert!(files.require_room(&who, FILE, 11, 2).await.is_ok());
        let refused = files.require_room(&who, FILE, 10, 0).await;
        assert!(matches!(refused, Err(FilesError::Namespace(NamespaceError::QuotaExceeded))));
    }

    #[tokio::test]
    async fn a_file_is_written_to_the_end_of_the_page_in_which_its_room_ends() {
        let (fakes, files) = Fakes::files();
        let who = Identity::new(10, 100, &[]);
        let end = async |size| files.writable_end(&who, &attributes(FILE, size)).await.unwrap();
        assert_eq!(end(5).await, None);
        *fakes.room.lock() = Some(5000);
        assert_eq!((end(0).await, end(3192).await, end(3193).await), (Some(8192), Some(8192), Some(12_288)));
        // There is no end behind the largest one.
        *fakes.room.lock() = Some(u64::MAX);
        assert_eq!(end(1).await, None);
        *fakes.room.lock() = Some(0);
        assert_eq!((end(0).await, end(1).await), (Some(0), Some(4096)));
    }
}
