//! The head's side: what it holds, has begun and has completed for the data face of one pool.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cluster_state::Process;
use parking_lot::Mutex;
use tokio::sync::watch;
use types::{ChecksumKind, FileId, PoolId};
use xdr::{Decoder, Encoder, Xdr};

use super::wire::{
    BeginAnswer, BeginCall, CompleteAnswer, CompleteCall, HoldAnswer, HoldCall, Kinds, Note, Notes, Version,
};
use super::{DataFaces, Denied, HOLDS_MAX, Hold, StoredVersion, ToldDenial, procedure};
use crate::rpc::Refused;

/// Outcomes of uploads of one pool that are kept, for a pool that did not hear of them.
const OUTCOMES_MAX: usize = 1_024;
/// Uploads of one pool that may be begun at once. The bounds of the door are lower.
const BEGUN_MAX: usize = 65_536;
/// When a pool has been away for so long, its uploads are given up.
pub(crate) const ABSENCE_MAX: Duration = Duration::from_secs(60);

/// Of one pool; it outlives sessions.
#[derive(Default)]
pub(crate) struct FaceDesk(Mutex<State>);

#[derive(Default)]
struct State {
    /// The process that uploads belong to.
    process: Option<Process>,
    begun: BTreeSet<FileId>,
    outcomes: HashMap<FileId, Outcome>,
    /// Of `outcomes`, the oldest first.
    order: VecDeque<FileId>,
}

type Answer = Result<StoredVersion, Denied>;

/// Of an upload that is being completed, or was. `None`: not yet.
#[derive(Clone)]
struct Outcome {
    answer: watch::Receiver<Option<Answer>>,
    kinds: Vec<ChecksumKind>,
}

/// Of one session, by the numbers that the pool has drawn.
pub(crate) struct Holds(Mutex<HoldsState>);

struct HoldsState {
    /// `None`: the file is being held.
    holds: HashMap<u64, Option<Hold>>,
    is_over: bool,
}

impl FaceDesk {
    /// Answers a call of the data face. Everything up to the first wait happens in the order of the calls.
    pub async fn answer(
        self: &Arc<Self>,
        (pool, faces): (PoolId, &Arc<dyn DataFaces>),
        holds: &Holds,
        procedure: u32,
        arguments: &mut Decoder,
    ) -> Result<Encoder, Refused> {
        match procedure {
            procedure::HOLD => Ok(results(&holds.hold(pool, &**faces, taken(arguments)?).await)),
            procedure::TELL => {
                let Notes { notes } = taken(arguments)?;
                notes.into_iter().for_each(|note| self.note(pool, &**faces, holds, note));
                Ok(results(&()))
            }
            procedure::BEGIN => {
                let call: BeginCall = taken(arguments)?;
                let begun = self.begin(pool, &**faces, FileId(call.file), call.has_bytes).await;
                Ok(results(&match begun {
                    Ok(kinds) => BeginAnswer::Begun(Kinds::of(&kinds)),
                    Err(denied) => BeginAnswer::Denied(ToldDenial::of(denied)),
                }))
            }
            procedure::COMPLETE => {
                let completed = self.complete(pool, faces, taken(arguments)?)?.await;
                Ok(results(&match completed {
                    Ok(stored) => CompleteAnswer::Stored(stored),
                    Err(denied) => CompleteAnswer::Denied(ToldDenial::of(denied)),
                }))
            }
            _ => Err(Refused::NoProcedure),
        }
    }

    /// The pool has said hello: uploads that another process of it had begun are over, for their bytes are nowhere.
    pub fn greet(&self, pool: PoolId, process: Process, faces: Option<&Arc<dyn DataFaces>>) {
        let over = {
            let mut state = self.0.lock();
            let is_same = state.process.replace(process) == Some(process);
            if is_same { BTreeSet::new() } else { std::mem::take(&mut state.begun) }
        };
        give_up(pool, faces, over);
    }

    /// The pool has been away for too long.
    pub fn leave(&self, pool: PoolId, faces: Option<&Arc<dyn DataFaces>>) {
        let over = std::mem::take(&mut self.0.lock().begun);
        give_up(pool, faces, over);
    }

    fn note(&self, pool: PoolId, faces: &dyn DataFaces, holds: &Holds, note: Note) {
        match note {
            Note::Release(hold) => holds.release(hold),
            Note::PutOff(file) => {
                if self.0.lock().begun.remove(&FileId(file)) {
                    faces.put_off(pool, FileId(file));
                }
            }
            Note::GiveUp(file) => {
                if self.0.lock().begun.remove(&FileId(file)) {
                    faces.give_up(pool, FileId(file));
                }
            }
        }
    }

    async fn begin(
        &self,
        pool: PoolId,
        faces: &dyn DataFaces,
        file: FileId,
        has_bytes: bool,
    ) -> Result<Vec<ChecksumKind>, Denied> {
        let was_begun = {
            let mut state = self.0.lock();
            if let Some(outcome) = state.outcomes.get(&file).filter(|_| has_bytes) {
                // Its answer was lost on the way. The pool compares the bytes and asks for it again.
                return Ok(outcome.kinds.clone());
            }
            let was_begun = !state.begun.insert(file);
            if !was_begun && state.begun.len() > BEGUN_MAX {
                state.begun.remove(&file);
                return Err(busy("too many uploads are under way at this pool"));
            }
            was_begun
        };
        if was_begun {
            // A pool receives an upload once at a time, so the one of before has ended.
            faces.put_off(pool, file);
        }
        let begun = faces.begin(pool, file, has_bytes).await;
        if begun.is_err() {
            self.0.lock().begun.remove(&file);
        }
        begun
    }

    /// The first call completes the upload, in a task that goes on without its caller. Others wait for the same outcome.
    fn complete(
        self: &Arc<Self>,
        pool: PoolId,
        faces: &Arc<dyn DataFaces>,
        call: CompleteCall,
    ) -> Result<impl Future<Output = Answer> + use<>, Refused> {
        let file = FileId(call.file);
        let arrived = call.into_arrived().ok_or(Refused::Garbage)?;
        let mut state = self.0.lock();
        let mut answer = match state.outcomes.get(&file) {
            Some(outcome) => outcome.answer.clone(),
            None => {
                let (tell, answer) = watch::channel(None);
                let kinds = arrived.checksums.iter().map(types::Checksum::kind).collect();
                state.keep(file, Outcome { answer: answer.clone(), kinds });
                let (desk, faces) = (Arc::clone(self), Arc::clone(faces));
                crate::tasks::spawn(async move {
                    let completed = faces.complete(pool, file, arrived).await;
                    desk.settle(file, &completed);
                    tell.send_replace(Some(completed));
                });
                answer
            }
        };
        drop(state);
        Ok(async move {
            let told = answer.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
            told.unwrap_or_else(|| Err(busy("the head did not complete the upload")))
        })
    }

    /// An upload that is refused for now may be completed later.
    fn settle(&self, file: FileId, completed: &Answer) {
        let mut state = self.0.lock();
        state.begun.remove(&file);
        if completed.is_err() {
            state.outcomes.remove(&file);
            state.order.retain(|other| *other != file);
        }
    }
}

impl State {
    fn keep(&mut self, file: FileId, outcome: Outcome) {
        // Those that are under way stay: the door bounds them.
        let is_told = |outcome: &Outcome| outcome.answer.borrow().is_some();
        if self.order.len() >= OUTCOMES_MAX
            && let Some(at) = self.order.iter().position(|file| self.outcomes.get(file).is_none_or(is_told))
            && let Some(oldest) = self.order.remove(at)
        {
            self.outcomes.remove(&oldest);
        }
        self.order.push_back(file);
        self.outcomes.insert(file, outcome);
    }
}

impl Default for Holds {
    fn default() -> Holds {
        Holds(Mutex::new(HoldsState { holds: HashMap::new(), is_over: false }))
    }
}

impl Holds {
    async fn hold(&self, pool: PoolId, faces: &dyn DataFaces, call: HoldCall) -> HoldAnswer {
        if let Err(denied) = self.reserve(call.hold) {
            return HoldAnswer::Denied(ToldDenial::of(denied));
        }
        // Given back also where the caller of this is gone.
        let place = HoldPlace { holds: self, number: call.hold };
        match faces.hold(pool, FileId(call.file), call.change).await {
            Ok(Some((hold, held))) => match place.fill(hold) {
                true => HoldAnswer::Held(Version::of(&held)),
                false => HoldAnswer::Denied(ToldDenial::of(busy("the hold was given back meanwhile"))),
            },
            Ok(None) => HoldAnswer::Changed,
            Err(denied) => HoldAnswer::Denied(ToldDenial::of(denied)),
        }
    }

    fn reserve(&self, number: u64) -> Result<(), Denied> {
        let mut state = self.0.lock();
        if state.is_over || state.holds.contains_key(&number) {
            return Err(busy("the hold has a number that was used"));
        }
        if state.holds.len() >= HOLDS_MAX {
            return Err(busy("the pool sends too many files at once; try again"));
        }
        state.holds.insert(number, None);
        Ok(())
    }

    fn release(&self, number: u64) {
        // Dropped without the lock: a hold closes an open in the conflict table.
        let _hold = self.0.lock().holds.remove(&number);
    }

    /// The session is over.
    pub fn end(&self) {
        let _holds = {
            let mut state = self.0.lock();
            state.is_over = true;
            std::mem::take(&mut state.holds)
        };
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.lock().holds.len()
    }
}

/// The place of a hold that is not there yet.
struct HoldPlace<'a> {
    holds: &'a Holds,
    number: u64,
}

impl HoldPlace<'_> {
    /// `false`: it was released, or the session has ended.
    fn fill(self, hold: Hold) -> bool {
        let left_over = {
            let mut state = self.holds.0.lock();
            match state.holds.get_mut(&self.number) {
                Some(place) => place.replace(hold),
                None => Some(hold),
            }
        };
        let is_filled = left_over.is_none();
        drop(left_over);
        if is_filled {
            std::mem::forget(self);
        }
        is_filled
    }
}

impl Drop for HoldPlace<'_> {
    fn drop(&mut self) {
        self.holds.release(self.number);
    }
}

fn give_up(pool: PoolId, faces: Option<&Arc<dyn DataFaces>>, over: BTreeSet<FileId>) {
    let Some(faces) = faces else { return };
    over.into_iter().for_each(|file| faces.give_up(pool, file));
}

fn busy(reason: &str) -> Denied {
    Denied { status: 503, reason: reason.to_owned(), is_passing: true, xml: None }
}

fn taken<T: Xdr>(arguments: &mut Decoder) -> Result<T, Refused> {
    T::decode(arguments).map_err(|_| Refused::Garbage)
}

fn results(value: &impl Xdr) -> Encoder {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder
}
