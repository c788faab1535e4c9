//! Turns at the length of a file. It stands at the pool and in the namespace, and is set at the pool first; a truncation
//! between the two steps of a write would leave a size in the namespace that the replica has not.
//!
//! A writer, or a reader of a pool's facts, keeps the length [`Steady`] until the namespace has heard of it; a truncation
//! is alone. A waiting truncation lets no new writes in. Nothing is recalled and no other turn is
//! taken while one is held, so every turn ends with the pool's and the namespace's I/O. A cut whose
//! namespace is busy keeps its turn for some seconds, in which the namespace is told again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use types::FileId;

use crate::Files;

#[derive(Default)]
pub(crate) struct Lengths {
    /// Of files at which somebody has a turn or waits for one: at most as many as requests are in flight. Leaf lock.
    files: Mutex<HashMap<FileId, Arc<RwLock<()>>>>,
}

/// While this lives nobody sets the length of the file; others may write.
#[must_use = "the turn is over when this is dropped"]
pub(crate) struct Steady {
    // Before the entry, which looks whether anybody is left.
    _turn: OwnedRwLockReadGuard<()>,
    _entry: Entry,
}

/// While this lives nobody else writes or sets the length.
pub(crate) struct Alone {
    _turn: OwnedRwLockWriteGuard<()>,
    _entry: Entry,
}

/// Keeps the file in the table.
struct Entry {
    lengths: Arc<Lengths>,
    file: FileId,
    /// `None` while it is dropped.
    turns: Option<Arc<RwLock<()>>>,
}

impl Lengths {
    async fn steady(self: &Arc<Lengths>, file: FileId) -> Steady {
        let (entry, turns) = self.enter(file);
        Steady { _turn: turns.read_owned().await, _entry: entry }
    }

    pub async fn alone(self: &Arc<Lengths>, file: FileId) -> Alone {
        let (entry, turns) = self.enter(file);
        Alone { _turn: turns.write_owned().await, _entry: entry }
    }

    fn enter(self: &Arc<Lengths>, file: FileId) -> (Entry, Arc<RwLock<()>>) {
        let turns = Arc::clone(self.files.lock().entry(file).or_default());
        let entry = Entry { lengths: Arc::clone(self), file, turns: Some(Arc::clone(&turns)) };
        (entry, turns)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut files = self.lengths.files.lock();
        // Under the lock, or of two that leave at once each would see the other.
        self.turns = None;
        if files.get(&self.file).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            files.remove(&self.file);
        }
    }
}

impl Files {
    /// To be kept from before bytes are written at a pool, or a pool is asked for what was written, until the namespace
    /// has heard of it. Not while another turn is held, and nothing may be recalled meanwhile.
    pub(crate) async fn steady(&self, file: FileId) -> Steady {
        self.lengths.steady(file).await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;

    const FILE: FileId = FileId(7);

    /// `None`: it waits.
    async fn poll<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn writers_share_a_length_and_a_truncation_is_alone() {
        let lengths = Arc::new(Lengths::default());
        let (one, other) = (lengths.steady(FILE).await, lengths.steady(FILE).await);
        let mut cut = Box::pin(lengths.alone(FILE));
        assert!(poll(&mut cut).await.is_none());
        let mut late = Box::pin(lengths.steady(FILE));
        assert!(poll(&mut late).await.is_none(), "or a truncation would wait for ever");
        lengths.alone(FileId(8)).await;
        drop(one);
        assert!(poll(&mut cut).await.is_none());
        drop(other);
        let alone = poll(&mut cut).await.expect("nobody writes");
        assert!(poll(&mut late).await.is_none());
        drop(alone);
        assert!(poll(&mut late).await.is_some());
    }

    #[tokio::test]
    async fn nothing_is_left_of_turns_that_are_over_or_given_up() {
        let lengths = Arc::new(Lengths::default());
        let (one, other) = (lengths.steady(FILE).await, lengths.steady(FILE).await);
        let mut given_up = Box::pin(lengths.alone(FILE));
        assert!(poll(&mut given_up).await.is_none());
        drop((given_up, one));
        assert_eq!(lengths.files.lock().len(), 1);
        drop(other);
        assert!(lengths.files.lock().is_empty());
    }
}
