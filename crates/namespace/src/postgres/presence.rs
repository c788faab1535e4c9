//! Whether the database is there, apart for who writes and who reads, as one may be refused while the other is not; and
//! what was acknowledged, behind which no answer may lie.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// How long callers wait for a database that goes away. Once somebody has waited so long, others are refused at once until
/// the background sees it again: a queue of groups would add their waits up.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// While the namespace is being closed.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Writes,
    Reads,
}

#[derive(Default)]
pub struct Presence {
    /// Leaf lock.
    known: Mutex<Known>,
    is_stopping: watch::Sender<bool>,
    acknowledged: AtomicU64,
    /// A reader has seen less than was acknowledged.
    suspicion: Notify,
}

#[derive(Default)]
struct Known {
    writes: Option<Absence>,
    reads: Option<Absence>,
    /// Why nothing is written any more.
    ended: Option<String>,
}

struct Absence {
    since: Instant,
    reason: String,
}

impl Known {
    fn side(&mut self, side: Side) -> &mut Option<Absence> {
        match side {
            Side::Writes => &mut self.writes,
            Side::Reads => &mut self.reads,
        }
    }

    fn is_whole(&self) -> bool {
        self.writes.is_none() && self.reads.is_none()
    }
}

impl Presence {
    /// From now on nobody waits long.
    pub fn stop(&self) {
        self.is_stopping.send_replace(true);
    }

    pub fn is_stopping(&self) -> bool {
        *self.is_stopping.borrow()
    }

    pub async fn stopped(&self) {
        // It ends with an error only when nobody can stop it any more.
        let _ = self.is_stopping.subscribe().wait_for(|is_stopping| *is_stopping).await;
    }

    pub fn patience(&self, usual: Duration) -> Duration {
        if self.is_stopping() { usual.min(STOP_PATIENCE) } else { usual }
    }

    /// Why the database does not answer now, or is not written any more; for health.
    pub fn reason(&self) -> Option<String> {
        let known = self.known.lock();
        let away = || known.writes.as_ref().or(known.reads.as_ref()).map(|absence| absence.reason.clone());
        known.ended.clone().or_else(away)
    }

    /// Told once when it goes and once when it is back.
    pub fn note_away(&self, side: Side, reason: &str) {
        self.note_away_at(side, reason, Instant::now());
    }

    fn note_away_at(&self, side: Side, reason: &str, now: Instant) {
        let mut known = self.known.lock();
        let was_whole = known.is_whole();
        let since = known.side(side).take().map_or(now, |absence| absence.since);
        *known.side(side) = Some(Absence { since, reason: reason.to_owned() });
        if was_whole {
            tracing::error!(reason, "namespace's database does not answer");
        }
    }

    pub fn note_there(&self, side: Side) {
        let mut known = self.known.lock();
        if known.side(side).take().is_some() && known.is_whole() {
            tracing::info!("namespace's database answers again");
        }
    }

    /// It was waited for long enough: why it is not there.
    pub fn given_up(&self, side: Side) -> Option<String> {
        self.given_up_at(side, Instant::now())
    }

    fn given_up_at(&self, side: Side, now: Instant) -> Option<String> {
        let patience = self.patience(PATIENCE);
        let mut known = self.known.lock();
        let absence = known.side(side).as_ref()?;
        (now.duration_since(absence.since) > patience).then(|| absence.reason.clone())
    }

    pub fn end(&self, reason: String) {
        self.known.lock().ended = Some(reason);
    }

    pub fn ended(&self) -> Option<String> {
        self.known.lock().ended.clone()
    }

    /// The last group whose operations may have been answered.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    pub fn acknowledge(&self, group: u64) {
        self.acknowledged.store(group, Ordering::Release);
    }

    pub fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Until somebody has a suspicion.
    pub async fn suspected(&self) {
        self.suspicion.notified().await;
    }
}

/// Pauses between attempts, longer each time. The time counts from the first that failed.
#[derive(Default)]
pub struct Attempts {
    failing_since: Option<Instant>,
    pauses: u32,
}

impl Attempts {
    pub fn lasted(&self) -> Duration {
        self.failing_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub fn pause(&mut self) -> impl Future<Output = ()> + use<> {
        self.failing_since.get_or_insert_with(Instant::now);
        let pause = (PAUSE_MIN * 2_u32.pow(self.pauses.min(10))).min(PAUSE_MAX);
        self.pauses += 1;
        tokio::time::sleep(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_late_does_not_wait_anew() {
        let (presence, start) = (Presence::default(), Instant::now());
        presence.note_away_at(Side::Writes, "gone", start);
        assert_eq!(presence.given_up_at(Side::Writes, start + PATIENCE), None);
        presence.note_away_at(Side::Writes, "still gone", start + PATIENCE);
        let later = start + PATIENCE + Duration::from_secs(1);
        assert_eq!(presence.given_up_at(Side::Writes, later).as_deref(), Some("still gone"));
        assert_eq!(presence.given_up_at(Side::Reads, later), None);
        presence.note_there(Side::Writes);
        assert_eq!((presence.given_up_at(Side::Writes, later), presence.reason()), (None, None));
        presence.note_away_at(Side::Writes, "gone again", later);
        assert_eq!(presence.given_up_at(Side::Writes, later), None);
        presence.stop();
        assert!(presence.given_up_at(Side::Writes, later + STOP_PATIENCE * 2).is_some());
    }

    /// A writer that is refused while readers are answered, as when its lock is held by another.
    #[test]
    fn an_answer_to_a_reader_does_not_say_that_the_writer_has_one() {
        let presence = Presence::default();
        presence.note_away(Side::Writes, "refused");
        presence.note_there(Side::Reads);
        assert_eq!(presence.reason().as_deref(), Some("refused"));
        presence.note_away(Side::Reads, "gone");
        presence.note_there(Side::Writes);
        assert_eq!(presence.reason().as_deref(), Some("gone"));
        presence.end("taken over".to_owned());
        presence.note_there(Side::Reads);
        assert_eq!(presence.reason().as_deref(), Some("taken over"));
    }
}
