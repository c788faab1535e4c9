//! Bytes that a client has written and not yet sent, under a delegation to write (RFC 8881 §10.4.3).
//!
//! Three parties know such a file: its holder knows the bytes in its memory, the pool those written there, the
//! namespace those committed. The holder is asked first. While the holder has unsent bytes, its size counts: it has
//! itself written all bytes that the pool has. Without unsent bytes the holder has nothing to add, and the pool and the
//! namespace know all (`fresh`). While a file is being modified, each answer to other clients has a new change
//! attribute. So no client takes its cache for the file's later content, nor for the content that remains if the holder
//! is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Stability, Written};
use file_state::{Change, GrantKind, Holder, Modes, Share};
use parking_lot::Mutex;
use tokio::time::Instant;
use types::{Attributes, FileId, Timestamp};

use crate::{Files, FilesError};

/// A client that is there answers in milliseconds, unless its machine is very busy; it is recalled then, which helps neither.
const ANSWER: Duration = Duration::from_secs(2);
/// A client that did not answer is not asked again for so long: a list of a thousand of its files would take minutes.
const SILENCE: Duration = Duration::from_secs(10);

/// Of one walk over many lists, besides the first: for tens of thousands of files whose holders answer as they should.
const WALK: Duration = Duration::from_secs(60);

const READING: Share = Share { access: Modes::READ, deny: Modes::NONE };

/// Size and times of a file, as reported by the holder of its delegation to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The holder has bytes that it has not sent.
    pub is_modified: bool,
    pub size: u64,
    /// The file's times, where its holder keeps them.
    pub accessed: Option<Timestamp>,
    pub modified: Option<Timestamp>,
}

/// How long one list may still wait for clients to say what they have written, however many have files in it.
#[derive(Debug)]
pub struct Patience {
    pub(crate) left: Duration,
    /// For the lists that follow.
    pub(crate) in_reserve: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { left: ANSWER, in_reserve: Duration::ZERO }
    }
}

impl Patience {
    /// Of a walk that makes one list after the other.
    pub fn of_walk() -> Patience {
        Patience { left: ANSWER, in_reserve: WALK }
    }

    /// The next list may wait as long as the first, until the walk has used up its own patience: the waits of earlier
    /// lists, for slow clients or for many quick ones, do not make the next list's sizes wrong.
    pub fn begin_list(&mut self) {
        let given = self.in_reserve.min(ANSWER.saturating_sub(self.left));
        self.left += given;
        self.in_reserve -= given;
    }
}

/// The outcome of asking a holder.
enum Heard {
    Seen(Attributes),
    /// The holder does not answer: its delegation has to be recalled.
    Nothing,
    /// The holder had too little time for an answer, or none at all: it does not count as silent.
    TooLittleTime,
}

/// Holders that did not answer, and until when they are left alone. Leaf lock.
#[derive(Default)]
pub(crate) struct Silent(Mutex<BTreeMap<Holder, Instant>>);

impl Silent {
    fn contains(&self, holder: Holder) -> bool {
        self.0.lock().get(&holder).is_some_and(|until| Instant::now() < *until)
    }

    fn insert(&self, holder: Holder) {
        let now = Instant::now();
        let mut silent = self.0.lock();
        // As many as clients were silent lately.
        silent.retain(|_, until| now < *until);
        silent.insert(holder, now + SILENCE);
    }
}

impl Files {
    /// The attributes of a file that was just looked at, as `by` is to see them. Where another client does not say what it
    /// has written, its delegation is recalled: this call waits for that up to `patience`, and then answers `Recalled`.
    pub async fn seen_by(
        self: &Arc<Self>,
        found: Attributes,
        by: Option<Holder>,
        patience: Duration,
    ) -> Result<Attributes, FilesError> {
        if let Heard::Seen(seen) = self.hear(&found, by, &mut Patience::default()).await? {
            return Ok(seen);
        }
        drop(Box::pin(self.before_change(found.file, by, Change::Access(READING), patience)).await?);
        self.fresh_attributes(found.file).await
    }

    /// As [`Files::seen_by`], of one file of many: a client that does not answer is recalled and not waited for,
    /// and the attributes known without it are returned. Once the patience of the list is used up, the same holds for
    /// the remaining files; then no client counts as silent, and nothing is recalled.
    pub async fn listed_for(
        self: &Arc<Self>,
        found: Attributes,
        by: Option<Holder>,
        patience: &mut Patience,
    ) -> Result<Attributes, FilesError> {
        match self.hear(&found, by, patience).await? {
            Heard::Seen(seen) => return Ok(seen),
            Heard::Nothing => self.call_back(found.file, by, Change::Access(READING)),
            Heard::TooLittleTime => {}
        }
        self.freshen(found).await
    }

    async fn hear(
        &self,
        found: &Attributes,
        by: Option<Holder>,
        patience: &mut Patience,
    ) -> Result<Heard, FilesError> {
        if !found.kind.is_regular() {
            return Ok(Heard::Seen(*found));
        }
        let file = found.file;
        // All in one look: everybody's GETATTR comes by here.
        let (writer, is_written_at_pools, is_own) = {
            let table = self.table();
            let writer = table.file(file).writer_beside(by);
            let recalled = |writer| (writer, table.file(file).is_recalled(writer, GrantKind::Delegation));
            let is_used = |by| {
                table.file(file).is_writing_at_pools(by) || table.file(file).access_of(by) != Modes::NONE
            };
            let is_own = by.is_some_and(is_used);
            (writer.map(recalled), table.file(file).is_written_at_pools(), is_own)
        };
        let (writer, is_recalled) = match (writer, is_written_at_pools) {
            (Some(writer), _) => writer,
            (None, true) if is_own => {
                return Box::pin(self.ask_pools_for_user(*found)).await.map(Heard::Seen);
            }
            (None, true) => return Box::pin(self.ask_pools(*found)).await.map(Heard::Seen),
            (None, false) => return Ok(Heard::Seen(*found)),
        };
        // A client that returns its delegation sends all its bytes first.
        if is_recalled || self.silent.contains(writer) {
            return Ok(Heard::Nothing);
        }
        let Some(recaller) = self.doors.recaller(writer.door) else { return Ok(Heard::Nothing) };
        let (given, began) = (patience.left, Instant::now());
        if given.is_zero() {
            return Ok(Heard::TooLittleTime);
        }
        let told = recaller.ask_writer(file, writer, given).await;
        patience.left = given.saturating_sub(began.elapsed());
        match told {
            Some(told) => Box::pin(self.apply(file, told)).await.map(Heard::Seen),
            None if given < ANSWER => Ok(Heard::TooLittleTime),
            None => {
                if self.table().file(file).writer_beside(by) == Some(writer) {
                    self.silent.insert(writer);
                }
                Ok(Heard::Nothing)
            }
        }
    }

    async fn apply(&self, file: FileId, told: Told) -> Result<Attributes, FilesError> {
        // Read after the answer: includes all writes before it.
        let known = self.fresh_attributes(file).await?;
        let times = |attributes: Attributes| Attributes {
            atime: told.accessed.unwrap_or(attributes.atime),
            mtime: told.modified.unwrap_or(attributes.mtime),
            ..attributes
        };
        if !told.is_modified && told.size <= known.size {
            return Ok(times(known));
        }
        let now = self.services.clock.now();
        let modified = Written {
            size_at_least: None,
            mtime: Some(told.modified.unwrap_or(now)),
            space_used: None,
            stability: Stability::Unstable,
        };
        let shown = self.services.namespace.record_write(file, &modified).await?;
        // Later answers have another change attribute, even if the holder is lost.
        self.services.namespace.record_write(file, &modified).await?;
        Ok(times(Attributes { size: told.size, ..shown }))
    }
}
