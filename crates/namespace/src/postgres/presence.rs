//! Whether the database is there, apart for writes and reads, as one may be refused while the other is not; and
//! what was acknowledged, behind which no answer may lie.

use std::future::Future;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::NamespaceError;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_postgres::error::SqlState;

use super::tenure::{Moment, Tenure};
use crate::trouble::{Trouble, TroubleKind};

/// How long callers wait for a database that goes away, or that says nothing. Then all are refused at once until the
/// background sees it again: a queue of groups would add their waits up.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether somebody has waited long enough.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
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
    known: Mutex<Absences>,
    is_stopping: watch::Sender<bool>,
    acknowledged: AtomicU64,
    pub tenure: Tenure,
    /// Nobody waits for the database any more.
    is_hopeless: watch::Sender<bool>,
    /// A reader has seen less than was acknowledged.
    suspicion: Notify,
    /// Another head has the namespace.
    is_taken_over: watch::Sender<bool>,
}

#[derive(Default)]
struct Absences {
    writes: Option<Absence>,
    reads: Option<Absence>,
    /// Why nothing is written any more.
    ended: Option<Trouble>,
}

struct Absence {
    since: Instant,
    reason: String,
}

impl Absences {
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
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble_at(Moment::now())
    }

    fn trouble_at(&self, now: Moment) -> Option<Trouble> {
        let known = self.known.lock();
        if let Some(ended) = &known.ended {
            return Some(ended.clone());
        }
        let noted = known.writes.as_ref().or(known.reads.as_ref()).map(|absence| absence.reason.clone());
        let why = noted.or_else(|| {
            // The query may still be answered, so its failure is not noted yet; but callers wait by now.
            let silence = self.tenure.silence(now).filter(|_| !self.tenure.is_certain(now))?;
            Some(format!("database has said nothing for {} s", silence.as_secs()))
        })?;
        let kind = match super::trouble::is_of(&why, &SqlState::TOO_MANY_CONNECTIONS) {
            true => TroubleKind::TooManyConnections,
            false => TroubleKind::Away,
        };
        Some(Trouble { kind, why })
    }

    /// Logged once when the database goes and once when it is back.
    pub fn note_away(&self, side: Side, reason: &str) {
        self.note_away_at(side, reason, Instant::now());
    }

    /// As `note_away`; it was asked then and did not answer since.
    pub fn note_away_at(&self, side: Side, reason: &str, now: Instant) {
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
        self.given_up_at(side, Instant::now()).or_else(|| self.silent(side, Moment::now()))
    }

    /// As what was asked may still be answered, nobody has noted it as away.
    fn silent(&self, side: Side, now: Moment) -> Option<String> {
        let silence = self.tenure.silence(now).filter(|_| side == Side::Writes)?;
        (silence > PATIENCE).then(|| format!("database has said nothing for {} s", silence.as_secs()))
    }

    /// That what is in memory is the truth: this head is the one that writes. Where that is not known any more it waits
    /// until it is known again, or nobody waits any more.
    pub async fn certain(&self) -> Result<(), NamespaceError> {
        if self.tenure.is_certain(Moment::now()) {
            return Ok(());
        }
        let (mut renewals, mut hopeless) = (self.tenure.renewals(), self.is_hopeless.subscribe());
        while !self.tenure.is_certain(Moment::now()) {
            if let Some(ended) = self.ended() {
                return Err(NamespaceError::Database(ended));
            }
            if self.is_stopping() || self.given_up(Side::Writes).is_some() {
                return Err(NamespaceError::Busy);
            }
            // Ends never: both senders are here.
            tokio::select! { _ = renewals.changed() => {} _ = hopeless.changed() => {} }
        }
        Ok(())
    }

    /// Until nobody waits for the database any more.
    pub async fn hopeless(&self) {
        // Ends never with an error: the sender is here.
        let _ = self.is_hopeless.subscribe().wait_for(|is_hopeless| *is_hopeless).await;
    }

    /// Until it is gone: tells those that wait when there is no use in it.
    pub async fn watch(presence: Weak<Presence>) {
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            let Some(presence) = presence.upgrade() else { return };
            let is_hopeless = presence.ended().is_some() || presence.given_up(Side::Writes).is_some();
            presence
                .is_hopeless
                .send_if_modified(|known| std::mem::replace(known, is_hopeless) != is_hopeless);
        }
    }

    fn given_up_at(&self, side: Side, now: Instant) -> Option<String> {
        let patience = self.patience(PATIENCE);
        let mut known = self.known.lock();
        let absence = known.side(side).as_ref()?;
        (now.duration_since(absence.since) > patience).then(|| absence.reason.clone())
    }

    pub fn end(&self, why: Trouble) {
        self.known.lock().ended = Some(why);
        self.tenure.end();
    }

    /// Another head has the namespace. Call after `end`.
    pub fn hand_over(&self) {
        self.is_taken_over.send_replace(true);
    }

    /// Until another head has the namespace.
    pub async fn taken_over(&self) {
        // Ends never with an error: the sender is here.
        let _ = self.is_taken_over.subscribe().wait_for(|is_taken_over| *is_taken_over).await;
    }

    pub fn ended(&self) -> Option<String> {
        self.known.lock().ended.as_ref().map(|trouble| trouble.why.clone())
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

    fn why(presence: &Presence) -> Option<String> {
        presence.trouble().map(|trouble| trouble.why)
    }

    #[test]
    fn a_late_caller_does_not_wait_anew() {
        let (presence, start) = (Presence::default(), Instant::now());
        presence.note_away_at(Side::Writes, "gone", start);
        assert_eq!(presence.given_up_at(Side::Writes, start + PATIENCE), None);
        presence.note_away_at(Side::Writes, "still gone", start + PATIENCE);
        let later = start + PATIENCE + Duration::from_secs(1);
        assert_eq!(presence.given_up_at(Side::Writes, later).as_deref(), Some("still gone"));
        assert_eq!(presence.given_up_at(Side::Reads, later), None);
        presence.note_there(Side::Writes);
        assert_eq!((presence.given_up_at(Side::Writes, later), why(&presence)), (None, None));
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
        assert_eq!(why(&presence).as_deref(), Some("refused"));
        presence.note_away(Side::Reads, "gone");
        presence.note_there(Side::Writes);
        assert_eq!(why(&presence).as_deref(), Some("gone"));
        presence.end(Trouble { kind: TroubleKind::TakenOver, why: "taken over".to_owned() });
        presence.note_there(Side::Reads);
        assert_eq!(why(&presence).as_deref(), Some("taken over"));
    }
    /// Health said to make space and to restart.
    #[test]
    fn a_database_that_is_away_silent_or_full_of_connections_is_told_apart() {
        let kind = |presence: &Presence, at| presence.trouble_at(at).map(|trouble| trouble.kind);
        let (presence, start) = (Presence::default(), Moment::now());
        presence.tenure.renew(start);
        assert_eq!(kind(&presence, start), None);
        let later = start.after(Duration::from_secs(11));
        assert_eq!(kind(&presence, later), Some(TroubleKind::Away), "callers wait for it");
        presence.note_away(Side::Writes, "sorry, too many clients already (53300): forebay uses five");
        assert_eq!(kind(&presence, later), Some(TroubleKind::TooManyConnections));
        presence.note_there(Side::Writes);
        presence.tenure.renew(later);
        assert_eq!(kind(&presence, later), None, "it is over by itself");
    }
}
