//! The pool's side: asks the head of now, waits for one that is away for a bounded time, and keeps what it has to tell until
//! the head has heard it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};
use types::{ChecksumKind, FileId, Random};
use xdr::Xdr;

use super::wire::{
    BeginAnswer, BeginCall, CompleteAnswer, CompleteCall, HoldAnswer, HoldCall, NOTES_MAX, Note, Notes,
};
use super::{ArrivedBytes, Denied, HOLDS_MAX, HeadHttp, HeldVersion, StoredVersion, procedure};
use crate::rpc::{CallError, Connection};

/// A head that is away is waited for so long.
const AWAY_MAX: Duration = Duration::from_secs(3);
/// At the end of an upload, whose bytes are all there.
const AWAY_AT_END_MAX: Duration = Duration::from_secs(10);
/// For the answers. A hold may wait for the recall of a delegation, and the end of an upload for those of layouts.
const HOLD_TIME: Duration = Duration::from_secs(30);
const BEGIN_TIME: Duration = Duration::from_secs(10);
const COMPLETE_TIME: Duration = Duration::from_secs(600);
const TELL_TIME: Duration = Duration::from_secs(10);
const TELL_AGAIN: Duration = Duration::from_secs(1);
/// Calls under way. The control connection takes more, and has to carry leases.
const CALLS_MAX: usize = 256;
/// Calls that wait for the end of an upload, of these.
const COMPLETIONS_MAX: usize = 192;
/// Ends of uploads that the head has not heard of. Beyond them it gives the uploads up by itself.
const ENDED_MAX: usize = 65_536;

/// Why the head does not do what the data face asks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FaceError {
    #[error("the head refuses: {}", .0.reason)]
    Denied(Denied),
    /// It was not asked, or gave no answer in time.
    #[error("the head of this pool does not answer; try again")]
    Away,
    #[error("too many requests wait for the head of this pool; try again")]
    Busy,
    /// This process receives the upload already.
    #[error("this upload is being received, or is over; start again at the head")]
    Begun,
}

/// The head, as the data face of a pool reaches it.
pub struct FaceLink {
    /// The control connection, once the head has said welcome.
    head: watch::Sender<Option<Arc<Connection>>>,
    random: Arc<dyn Random>,
    calls: Semaphore,
    completions: Semaphore,
    holds: Arc<Semaphore>,
    /// Leaf lock.
    state: Mutex<State>,
    /// There is something to tell.
    noted: Notify,
}

#[derive(Default)]
struct State {
    http: Option<HeadHttp>,
    /// Uploads that this process receives: of one file at most one at a time.
    begun: BTreeSet<FileId>,
    /// Uploads that have ended here without the head, and how.
    ended: BTreeMap<FileId, End>,
    /// Holds of the session.
    released: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    PutOff,
    GivenUp,
}

/// A file that the head holds, until this is dropped or the session with the head ends.
pub struct FaceHold {
    link: Arc<FaceLink>,
    number: u64,
    _place: tokio::sync::OwnedSemaphorePermit,
}

impl Drop for FaceHold {
    fn drop(&mut self) {
        self.link.release(self.number);
    }
}

impl FaceLink {
    pub fn new(random: Arc<dyn Random>) -> Arc<FaceLink> {
        Arc::new(FaceLink {
            head: watch::Sender::new(None),
            random,
            calls: Semaphore::new(CALLS_MAX),
            completions: Semaphore::new(COMPLETIONS_MAX),
            holds: Arc::new(Semaphore::new(HOLDS_MAX)),
            state: Mutex::default(),
            noted: Notify::new(),
        })
    }

    /// Where clients reach the head. `None`: no head has told.
    pub fn head_http(&self) -> Option<HeadHttp> {
        self.state.lock().http.clone()
    }

    /// A session has begun.
    pub(crate) fn connect(&self, connection: Arc<Connection>, http: Option<HeadHttp>) {
        {
            let mut state = self.state.lock();
            state.http = http;
            // Holds ended with the session before.
            state.released.clear();
        }
        self.head.send_replace(Some(connection));
    }

    pub(crate) fn disconnect(&self) {
        self.head.send_replace(None);
    }

    /// Holds the file if it is still that version. `None`: it is not, or not on this pool.
    pub async fn hold(
        self: &Arc<Self>,
        file: FileId,
        change: u64,
    ) -> Result<Option<(FaceHold, HeldVersion)>, FaceError> {
        let place = Arc::clone(&self.holds).try_acquire_owned().map_err(|_| FaceError::Busy)?;
        let hold = FaceHold { link: Arc::clone(self), number: self.random.u64(), _place: place };
        let call = HoldCall { hold: hold.number, file: file.0, change };
        // Dropped where the answer does not come: the head may hold it.
        match self.call(procedure::HOLD, &call, HOLD_TIME).await? {
            HoldAnswer::Held(version) => {
                let held = version.into_held().ok_or(FaceError::Away)?;
                Ok(Some((hold, held)))
            }
            HoldAnswer::Changed => Ok(None),
            HoldAnswer::Denied(denied) => Err(FaceError::Denied(denied.into_denied())),
        }
    }

    /// The bytes of an upload are about to come in, or are there already. Answers the sums to make of them.
    pub async fn begin(&self, file: FileId, has_bytes: bool) -> Result<Vec<ChecksumKind>, FaceError> {
        {
            let mut state = self.state.lock();
            if !state.begun.insert(file) {
                return Err(FaceError::Begun);
            }
            // The head takes this for the end of the one of before.
            state.ended.remove(&file);
        }
        let beginning = Receiving { link: self, file };
        let call = BeginCall { file: file.0, has_bytes };
        match self.call(procedure::BEGIN, &call, BEGIN_TIME).await? {
            BeginAnswer::Begun(kinds) => {
                std::mem::forget(beginning);
                Ok(kinds.into_kinds())
            }
            BeginAnswer::Denied(denied) => {
                beginning.settle();
                Err(FaceError::Denied(denied.into_denied()))
            }
        }
    }

    /// The upload may be begun again.
    pub fn put_off(&self, file: FileId) {
        self.end(file, End::PutOff);
    }

    /// The upload is over.
    pub fn give_up(&self, file: FileId) {
        self.end(file, End::GivenUp);
    }

    fn end(&self, file: FileId, end: End) {
        {
            let mut state = self.state.lock();
            state.begun.remove(&file);
            if state.ended.len() < ENDED_MAX {
                state.ended.insert(file, end);
            }
        }
        self.noted.notify_one();
    }

    fn release(&self, hold: u64) {
        // Without a session nothing is held.
        if self.head.borrow().as_ref().is_some_and(|head| !head.is_closed()) {
            self.state.lock().released.push(hold);
            self.noted.notify_one();
        }
    }

    /// All bytes are on the disk. An error other than `Denied` leaves it open whether the file has its name; it may be begun
    /// and completed again then.
    pub async fn complete(&self, file: FileId, arrived: &ArrivedBytes) -> Result<StoredVersion, FaceError> {
        let receiving = Receiving { link: self, file };
        let _place = self.completions.try_acquire().map_err(|_| FaceError::Busy)?;
        let call = CompleteCall::of(file.0, arrived);
        let end = Instant::now() + COMPLETE_TIME;
        let answer = loop {
            let asked: Result<CompleteAnswer, _> =
                self.ask(procedure::COMPLETE, &call, (AWAY_AT_END_MAX, end)).await;
            match asked {
                Ok(answer) => break answer,
                // The head keeps the outcome for this process.
                Err(CallError::Closed) if Instant::now() < end => {}
                Err(error) => return Err(error.into()),
            }
        };
        receiving.settle();
        match answer {
            CompleteAnswer::Stored(stored) => Ok(stored),
            CompleteAnswer::Denied(denied) => Err(FaceError::Denied(denied.into_denied())),
        }
    }

    async fn call<A: Xdr, R: Xdr>(
        &self,
        procedure: u32,
        arguments: &A,
        within: Duration,
    ) -> Result<R, FaceError> {
        Ok(self.ask(procedure, arguments, (AWAY_MAX, Instant::now() + within)).await?)
    }

    /// `TimedOut`: there is no head, or it gave no answer.
    async fn ask<A: Xdr, R: Xdr>(
        &self,
        procedure: u32,
        arguments: &A,
        (away_max, end): (Duration, Instant),
    ) -> Result<R, CallError> {
        let _place = self.calls.try_acquire().map_err(|_| CallError::Busy)?;
        let mut head = self.head.subscribe();
        let is_open = |head: &Option<Arc<Connection>>| head.as_ref().is_some_and(|head| !head.is_closed());
        let connection = timeout(away_max, head.wait_for(is_open)).await;
        let connection = connection.ok().and_then(|head| head.ok()?.clone()).ok_or(CallError::TimedOut)?;
        connection.call(procedure, arguments, end.saturating_duration_since(Instant::now())).await
    }

    /// Tells the head of one session what there is to tell, until the connection is closed.
    pub(crate) async fn keep_telling(self: Arc<Self>, connection: Arc<Connection>) {
        loop {
            let notes = self.take_notes();
            if notes.all.is_empty() {
                tokio::select! {
                    biased;
                    () = connection.closed() => return,
                    () = self.noted.notified() => continue,
                }
            }
            let message = Notes { notes: notes.all.clone() };
            match connection.call::<_, ()>(procedure::TELL, &message, TELL_TIME).await {
                // A head without HTTP refuses the call: it holds nothing either.
                Ok(()) | Err(CallError::Refused) => notes.are_told(),
                Err(CallError::Closed | CallError::TimedOut | CallError::Busy) => {
                    drop(notes);
                    if connection.is_closed() {
                        return;
                    }
                    tokio::time::sleep(TELL_AGAIN).await;
                }
            }
        }
    }

    fn take_notes(&self) -> Untold<'_> {
        let mut state = self.state.lock();
        let count = state.released.len().min(NOTES_MAX);
        let mut all: Vec<_> = state.released.drain(..count).map(Note::Release).collect();
        while all.len() < NOTES_MAX
            && let Some((FileId(file), end)) = state.ended.pop_first()
        {
            all.push(match end {
                End::PutOff => Note::PutOff(file),
                End::GivenUp => Note::GiveUp(file),
            });
        }
        Untold { all, link: self }
    }
}

/// Notes that the head has not heard. They are kept when this is dropped.
struct Untold<'a> {
    all: Vec<Note>,
    link: &'a FaceLink,
}

impl Untold<'_> {
    fn are_told(mut self) {
        self.all.clear();
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if self.all.is_empty() {
            return;
        }
        let mut state = self.link.state.lock();
        for note in self.all.drain(..) {
            let (file, end) = match note {
                Note::Release(hold) => {
                    state.released.push(hold);
                    continue;
                }
                Note::PutOff(file) => (FileId(file), End::PutOff),
                Note::GiveUp(file) => (FileId(file), End::GivenUp),
            };
            // One that has been begun again meanwhile has not ended.
            if !state.begun.contains(&file) {
                state.ended.entry(file).or_insert(end);
            }
        }
    }
}

/// An upload of which the head's answer is waited for. If that ends without one, it is put off.
struct Receiving<'a> {
    link: &'a FaceLink,
    file: FileId,
}

impl Receiving<'_> {
    /// The head has answered, and knows.
    fn settle(self) {
        self.link.state.lock().begun.remove(&self.file);
        std::mem::forget(self);
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.link.put_off(self.file);
    }
}

impl From<CallError> for FaceError {
    fn from(error: CallError) -> FaceError {
        match error {
            CallError::Busy => FaceError::Busy,
            CallError::Closed | CallError::TimedOut | CallError::Refused => FaceError::Away,
        }
    }
}
