//! Directories above a file, for judging in which export it lies.
//!
//! One directory above is mostly in the namespace's own cache. All directories of a file of several names are not: the
//! answers are kept for a moment, and only one request asks at a time, so that no client keeps the database busy.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Lineage, NamespaceError};
use parking_lot::Mutex;
use types::FileId;

/// So long a name that is gone still opens the way.
const KEPT: Duration = Duration::from_secs(1);
const KEPT_MAX: usize = 1024;
/// Directories in which a file is looked for; more names than that lead nowhere.
const HOMES_MAX: usize = 256;

pub(crate) struct Homes {
    lineage: Arc<dyn Lineage>,
    /// Files of several names, with when they were asked for. Leaf lock.
    known: Mutex<HashMap<FileId, KnownHomes>>,
    /// The turn to ask the database. Held while it answers, and guards nothing else.
    asking: tokio::sync::Mutex<()>,
}

struct KnownHomes {
    since: Duration,
    homes: Arc<[FileId]>,
}

impl Homes {
    pub fn new(lineage: Arc<dyn Lineage>) -> Homes {
        Homes { lineage, known: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// `None`: there is nothing above, or the file has no name.
    pub async fn one(&self, file: FileId) -> Result<Option<FileId>, NamespaceError> {
        self.lineage.home(file).await
    }

    pub async fn all(&self, file: FileId, now: Duration) -> Result<Arc<[FileId]>, NamespaceError> {
        if let Some(known) = self.known(file, now) {
            return Ok(known);
        }
        let _turn = self.asking.lock().await;
        if let Some(known) = self.known(file, now) {
            return Ok(known);
        }
        let homes: Arc<[FileId]> = self.lineage.homes(file, HOMES_MAX).await?.into();
        let mut known = self.known.lock();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(file, KnownHomes { since: now, homes: Arc::clone(&homes) });
        Ok(homes)
    }

    fn known(&self, file: FileId, now: Duration) -> Option<Arc<[FileId]>> {
        let known = self.known.lock();
        let KnownHomes { since, homes } = known.get(&file)?;
        (now.saturating_sub(*since) < KEPT).then(|| Arc::clone(homes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    #[async_trait]
    impl Lineage for Counted {
        async fn home(&self, _: FileId) -> Result<Option<FileId>, NamespaceError> {
            Ok(None)
        }

        async fn homes(&self, file: FileId, _: usize) -> Result<Vec<FileId>, NamespaceError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(vec![file])
        }
    }

    #[tokio::test]
    async fn the_database_is_asked_once_a_moment_for_a_file_and_what_is_kept_is_bounded() {
        let lineage = Arc::new(Counted::default());
        let homes = Homes::new(lineage.clone());
        let asked = || lineage.0.load(Ordering::Relaxed);
        homes.all(FileId(7), Duration::ZERO).await.unwrap();
        homes.all(FileId(7), KEPT / 2).await.unwrap();
        assert_eq!(asked(), 1);
        homes.all(FileId(7), KEPT).await.unwrap();
        assert_eq!(asked(), 2);
        for file in 0..2 * KEPT_MAX as u64 {
            homes.all(FileId(file), KEPT).await.unwrap();
        }
        assert!(homes.known.lock().len() <= KEPT_MAX);
    }
}
