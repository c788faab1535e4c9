//! The connection that writes: that of the only head, to a database that holds what was acknowledged.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, join3};
use postgres_types::ToSql;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::Error;
use tokio_postgres::error::Severity;

use super::change::Change;
use super::connection::{ANSWER_TIMEOUT, Link, Target, in_time};
use super::presence::{Attempts, Presence, Side};
use super::rows::get;
use super::tenure::Moment;
use super::trouble::{Trouble, describe, slow};
use super::unsynced::{Group, UnsyncedGroups};
use super::whole::is_unordered;
use crate::engine::State;
use crate::keeper::Keeper;
use crate::store::{Batch, NumberEnds, StoreError, StoreResult};
use crate::timeline::{self, Timeline};
use crate::trouble::TroubleKind;

/// A group that was sent and of which no answer came may be in the database or not. So long it is asked for.
const OUTCOME_PATIENCE: Duration = Duration::from_secs(300);
/// Of the advisory lock that a head holds while it is connected: "FBns".
pub const LOCK: i64 = 0x4642_6e73;
/// How often the background looks whether the connection is there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const PROGRESS: &str = "SELECT groups, epoch FROM progress WHERE id = 1";

const BEGIN: &str = "BEGIN";
pub const BEGIN_DURABLY: &str = "BEGIN; SET LOCAL synchronous_commit = on";
const BEGIN_DEFERRED: &str = "BEGIN; SET LOCAL synchronous_commit = off";
pub const GROUPS: &str = "SELECT groups FROM progress WHERE id = 1";
/// Errs unless this head is the one that writes, and the last group is the one it takes for that; for what is no group.
const HOLD: &str = "WITH held AS (UPDATE progress SET epoch = epoch WHERE id = 1 AND epoch = $1::bigint \
    AND groups = $2::bigint RETURNING 1) SELECT 1 / (SELECT count(*) FROM held)";
pub const NOTE: &str =
    "INSERT INTO meta VALUES ($1::text, $2::bigint) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

pub struct Writer {
    target: Target,
    /// To a database that was found to hold what was acknowledged.
    link: Option<Link>,
    epoch: i64,
    /// The last group that was acknowledged.
    sequence: u64,
    ends: NumberEnds,
    /// As this head wrote it last.
    timeline: Timeline,
    keeper: Arc<Keeper>,
    kept: UnsyncedGroups,
    /// Why nothing is written any more.
    ended: Option<StoreError>,
}

impl Writer {
    /// `link` holds the lock; its last answer is to what was asked at `asked`.
    pub fn new(
        target: Target,
        (link, asked): (Link, Moment),
        epoch: i64,
        state: &State,
        (timeline, keeper): (Timeline, Arc<Keeper>),
    ) -> Writer {
        let State { sequence, ends, .. } = *state;
        target.presence().acknowledge(sequence);
        target.presence().tenure.renew(asked);
        let (link, kept) = (Some(link), UnsyncedGroups::default());
        Writer { target, link, epoch, sequence, ends, timeline, keeper, kept, ended: None }
    }

    /// Until it is gone: connects again though nobody writes, so that it is known soon whether the database is as it was,
    /// and what it lost is sent again.
    pub async fn watch(writer: Weak<Mutex<Writer>>, target: Target) {
        loop {
            let is_suspected = timeout(LOOK_INTERVAL, target.presence().suspected()).await.is_ok();
            let Some(writer) = writer.upgrade() else { return };
            // The task that holds it connects itself.
            let Ok(mut writer) = writer.try_lock() else { continue };
            tokio::select! {
                () = writer.look(is_suspected) => {}
                // Closing the namespace does not wait for a silent server.
                () = target.presence().stopped() => return,
            }
        }
    }

    async fn look(&mut self, is_suspected: bool) {
        if self.ended.is_some() {
            return;
        }
        let looked = match self.ready().await {
            Ok(()) if is_suspected || self.presence().tenure.is_old(Moment::now()) => self.compare().await,
            looked => looked,
        };
        match looked {
            Ok(()) => self.presence().note_there(Side::Writes),
            Err(trouble) => {
                self.link = None;
                if self.ended.is_none() {
                    self.presence().note_away(Side::Writes, &trouble.reason());
                }
            }
        }
    }

    /// By the connection that is there.
    async fn compare(&mut self) -> Result<(), Trouble> {
        let (Some(link), asked) = (&self.link, Moment::now()) else { return Ok(()) };
        let answered = timeout(ANSWER_TIMEOUT, link.query(PROGRESS, &[])).await;
        let rows = answered.map_err(|_| slow())??;
        let row = rows.first().ok_or_else(no_progress)?;
        let groups: i64 = get(row, 0).map_err(Trouble::Lasting)?;
        let epoch: i64 = get(row, 1).map_err(Trouble::Lasting)?;
        if groups.cast_unsigned() != self.sequence || epoch != self.epoch {
            // How it stands is then found out anew.
            return Err(Trouble::Moved);
        }
        self.presence().tenure.renew(asked);
        Ok(())
    }

    fn presence(&self) -> &Arc<Presence> {
        self.target.presence()
    }

    /// The database has gone another way: what is known here is not what it holds.
    fn end(&mut self, kind: TroubleKind, why: String) -> StoreError {
        let error = StoreError::NeedsRestart(why.clone());
        tracing::error!(%error, "namespace accepts no changes until a restart");
        self.presence().end(crate::trouble::Trouble { kind, why });
        self.link = None;
        self.ended = Some(error.clone());
        error
    }

    fn lost(&mut self, groups: u64) -> StoreError {
        let sequence = self.sequence;
        let why = format!(
            "database holds {groups} groups of changes, {sequence} were acknowledged: it is another one, or it was set \
             back, or a standby was promoted that had not received everything"
        );
        self.end(TroubleKind::SetBack, why)
    }

    fn strange(&mut self) -> StoreError {
        self.end(
            TroubleKind::SetBack,
            "database lacks what this head noted in it last: it is another one, or it was set back, or a standby was \
             promoted that had not received everything"
                .to_owned(),
        )
    }

    /// Connected, and the only head; with the number of the last group that the database has.
    async fn establish(&mut self) -> Result<(Link, u64), Trouble> {
        let link = self.target.connect_to_write().await?;
        self.target.require_own(&link).await?;
        let row = link
            .query(
                // FOR UPDATE waits for what an earlier session of ours still has under way.
                "SELECT groups, epoch, pg_try_advisory_lock($1::bigint), (SELECT value FROM meta WHERE key = $2::text) \
                 FROM progress WHERE id = 1 FOR UPDATE",
                &[&LOCK, &self.timeline.last_key()],
            )
            .await?;
        let row = row.first().ok_or_else(no_progress)?;
        let groups: i64 = get(row, 0).map_err(Trouble::Lasting)?;
        let epoch: i64 = get(row, 1).map_err(Trouble::Lasting)?;
        if epoch > self.epoch {
            let why = "another head has taken the namespace over".to_owned();
            let ended = self.end(TroubleKind::TakenOver, why);
            self.presence().hand_over();
            return Err(Trouble::Lasting(ended));
        }
        if epoch < self.epoch {
            return Err(Trouble::Lasting(self.lost(groups.cast_unsigned())));
        }
        let drawn: Option<i64> = get(row, 3).map_err(Trouble::Lasting)?;
        if drawn != Some(self.timeline.last().1) {
            return Err(Trouble::Lasting(self.strange()));
        }
        if !get::<bool>(row, 2).map_err(Trouble::Lasting)? {
            // Most likely our own session, whose end the server has not noticed.
            return Err(Trouble::Passing("another session holds the namespace".to_owned()));
        }
        Ok((link, groups.cast_unsigned()))
    }

    async fn established(&mut self) -> Result<(Link, u64), Trouble> {
        // Rare and large: the writing of groups does not carry its room.
        in_time(Box::pin(self.establish())).await
    }

    /// Connects if need be. Between groups the database has to hold exactly the last one.
    async fn ready(&mut self) -> Result<(), Trouble> {
        if let Some(ended) = &self.ended {
            return Err(Trouble::Lasting(ended.clone()));
        }
        if self.is_connected() {
            return Ok(());
        }
        let asked = Moment::now();
        let (link, groups) = self.established().await?;
        self.catch_up(link, groups).await?;
        self.presence().tenure.renew(asked);
        Ok(())
    }

    fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.client.is_closed())
    }

    /// Sends groups again that the database lost before they were on disk. Only then others see the connection: a task
    /// that is interrupted here leaves no connection that could write a clean end.
    async fn catch_up(&mut self, link: Link, groups: u64) -> Result<(), Trouble> {
        if groups != self.sequence && self.kept.behind(groups, self.sequence).is_none() {
            return Err(Trouble::Lasting(self.lost(groups)));
        }
        // Before the groups, which have numbers of files and cookies below these ends.
        self.note_ends(&link, groups).await?;
        let sent = match self.kept.behind(groups, self.sequence) {
            Some(behind) => send_again(&link, behind, self.sequence).await,
            None => Ok(()),
        };
        sent.map_err(|trouble| self.end_if_torn(trouble))?;
        if groups != self.sequence {
            self.kept.clear();
            let lost = self.sequence - groups;
            tracing::info!(groups = lost, "namespace's database had lost changes, which were sent again");
        }
        self.link = Some(link);
        Ok(())
    }

    /// A standby that was promoted may have every group and not what was reserved behind the last. Durable, and with it
    /// every group before it.
    async fn note_ends(&mut self, link: &Link, groups: u64) -> Result<(), Trouble> {
        let mut timeline = self.timeline.clone();
        let drawn = timeline.go_on(timeline::draw()).map(|(key, value)| note((key, value)));
        let notes = notes_of(self.ends).into_iter().map(note).chain(drawn);
        let changes: Vec<Change> = [hold(self.epoch, groups)].into_iter().chain(notes).collect();
        let sent = in_time(send(link, BEGIN_DURABLY, &changes)).await;
        sent.map_err(|trouble| self.end_if_torn(trouble))?;
        let (last, keeper) = (timeline.last(), Arc::clone(&self.keeper));
        self.timeline = timeline;
        // It was noted where it can be: nothing here depends on it.
        let _ = tokio::task::spawn_blocking(move || keeper.move_on(last)).await;
        Ok(())
    }

    fn end_if_torn(&mut self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Torn(reason) => Trouble::Lasting(self.end_torn(&reason)),
            trouble => trouble,
        }
    }

    fn end_torn(&mut self, reason: &str) -> StoreError {
        self.end(TroubleKind::NeedsRestart, format!("what was sent last may be there in part: {reason}"))
    }

    /// Asks until there is an answer, or patience ends.
    pub async fn ask<T>(&mut self, question: impl AsyncFn(&Link) -> Result<T, Trouble>) -> StoreResult<T> {
        let mut attempts = Attempts::default();
        loop {
            self.refuse_if_given_up()?;
            let mut asked = Moment::now();
            let answered = match self.ready().await {
                Ok(()) => match &self.link {
                    Some(link) => {
                        asked = Moment::now();
                        in_time(question(link)).await
                    }
                    None => Err(not_connected()),
                },
                Err(trouble) => Err(trouble),
            };
            match answered {
                Ok(answer) => {
                    self.presence().tenure.renew(asked);
                    self.presence().note_there(Side::Writes);
                    return Ok(answer);
                }
                Err(Trouble::Lasting(error)) => return Err(error),
                Err(Trouble::Torn(reason)) => return Err(self.end_torn(&reason)),
                Err(Trouble::Moved) => self.link = None,
                Err(Trouble::Passing(reason)) => {
                    self.link = None;
                    self.presence().note_away(Side::Writes, &reason);
                    attempts.pause().await;
                }
            }
        }
    }

    fn refuse_if_given_up(&self) -> StoreResult<()> {
        self.presence().given_up(Side::Writes).map_or(Ok(()), |reason| Err(StoreError::Busy(reason)))
    }

    /// Sends until it is known to be there, or known not to be.
    pub async fn carry(&mut self, batch: &Batch, changes: Vec<Change>) -> StoreResult<()> {
        let is_durable = batch.is_durable || self.kept.is_full(Instant::now());
        let begin = match (is_durable, self.target.is_deferred()) {
            (true, true) => BEGIN_DURABLY,
            (false, false) => BEGIN_DEFERRED,
            (true, false) | (false, true) => BEGIN,
        };
        let mut attempts = Attempts::default();
        let mut may_have_arrived = false;
        loop {
            if !may_have_arrived {
                self.refuse_if_given_up()?;
            }
            let mut asked = Moment::now();
            let sent = match self.connected_for(batch, may_have_arrived).await {
                Ok(true) => Ok(()),
                Ok(false) => {
                    may_have_arrived = false;
                    asked = Moment::now();
                    let sent = match &self.link {
                        Some(link) => in_time(send_group(link, begin, &changes)).await,
                        None => Err(not_connected()),
                    };
                    may_have_arrived |= matches!(sent, Err(Trouble::Passing(_)));
                    sent
                }
                Err(trouble) => Err(trouble),
            };
            let reason = match sent {
                Ok(()) => {
                    self.presence().tenure.renew(asked);
                    self.acknowledge(batch, changes, is_durable);
                    return Ok(());
                }
                // A server that refuses us says nothing of what it did before.
                Err(Trouble::Lasting(error)) if self.ended.is_some() || !may_have_arrived => {
                    return Err(error);
                }
                Err(Trouble::Torn(reason)) => {
                    let why = format!("group {} may be there in part: {reason}", batch.sequence);
                    return Err(self.end(TroubleKind::NeedsRestart, why));
                }
                // How it stands is found out anew.
                Err(trouble @ (Trouble::Moved | Trouble::Lasting(_))) => trouble.reason(),
                Err(Trouble::Passing(reason)) => {
                    self.presence().note_away(Side::Writes, &reason);
                    reason
                }
            };
            self.link = None;
            if may_have_arrived && attempts.lasted() > self.presence().patience(OUTCOME_PATIENCE) {
                return Err(self.end(
                    TroubleKind::NeedsRestart,
                    format!("whether group {} arrived cannot be told: {reason}", batch.sequence),
                ));
            }
            attempts.pause().await;
        }
    }

    fn acknowledge(&mut self, batch: &Batch, changes: Vec<Change>, is_durable: bool) {
        if is_durable {
            self.kept.clear();
        } else {
            self.kept.push(batch, changes, Instant::now());
        }
        self.sequence = batch.sequence;
        self.presence().acknowledge(batch.sequence);
        self.presence().note_there(Side::Writes);
    }

    /// Whether the batch is in the database already.
    async fn connected_for(&mut self, batch: &Batch, may_have_arrived: bool) -> Result<bool, Trouble> {
        if self.is_connected() {
            return Ok(false);
        }
        let (link, groups) = self.established().await?;
        if groups == batch.sequence && may_have_arrived {
            // It is there, but nobody waited until the disk or a standby has it.
            self.note_ends(&link, groups).await?;
            self.link = Some(link);
            return Ok(true);
        }
        self.catch_up(link, groups).await.map(|()| false)
    }

    pub async fn reserve(&mut self, ends: NumberEnds) -> StoreResult<()> {
        self.note(&notes_of(ends)).await?;
        self.ends = ends;
        Ok(())
    }

    /// Nothing comes after this.
    pub async fn end_cleanly(&mut self) -> StoreResult<()> {
        self.note(&[("clean_end", 1)]).await?;
        self.ended = Some(StoreError::Failed("namespace is closed".to_owned()));
        // Another head may begin at once.
        self.presence().tenure.end();
        self.link = None;
        Ok(())
    }

    /// Writes notes, which may happen twice, durably and only as the head.
    async fn note(&mut self, notes: &[(&'static str, i64)]) -> StoreResult<()> {
        let (epoch, sequence) = (self.epoch, self.sequence);
        self.ask(async |link| {
            let changes: Vec<Change> =
                [hold(epoch, sequence)].into_iter().chain(notes.iter().copied().map(note)).collect();
            send(link, BEGIN_DURABLY, &changes).await
        })
        .await?;
        // It is behind them on disk.
        self.kept.clear();
        Ok(())
    }
}

fn notes_of(ends: NumberEnds) -> [(&'static str, i64); 2] {
    [("next_file", ends.files.cast_signed()), ("next_cookie", ends.cookies.cast_signed())]
}

fn note((key, value): (impl Into<String>, i64)) -> Change {
    Change { sql: NOTE, values: vec![Box::new(key.into()), Box::new(value)] }
}

fn hold(epoch: i64, groups: u64) -> Change {
    Change { sql: HOLD, values: vec![Box::new(epoch), Box::new(groups.cast_signed())] }
}

fn no_progress() -> Trouble {
    Trouble::Lasting(StoreError::Failed("database has no progress".to_owned()))
}

fn not_connected() -> Trouble {
    Trouble::Passing("not connected".to_owned())
}

/// Whether it was to be had. The server may take a moment to notice that an earlier head is gone.
pub async fn take_lock(link: &Link, patience: Duration) -> Result<bool, Trouble> {
    let mut attempts = Attempts::default();
    loop {
        let row = link.client.query_one(&format!("SELECT pg_try_advisory_lock({LOCK})"), &[]).await?;
        let is_ours = get(&row, 0).map_err(Trouble::Lasting)?;
        if is_ours || attempts.lasted() > patience {
            return Ok(is_ours);
        }
        attempts.pause().await;
    }
}

/// With the last all are on disk.
async fn send_again(link: &Link, groups: impl Iterator<Item = &Group>, last: u64) -> Result<(), Trouble> {
    for group in groups {
        let begin = if group.sequence == last { BEGIN_DURABLY } else { BEGIN };
        in_time(send(link, begin, &group.changes)).await?;
    }
    Ok(())
}

/// As one statement, or in order where it has to be.
async fn send_group(link: &Link, begin: &str, changes: &[Change]) -> Result<(), Trouble> {
    let parts: Vec<&'static str> = changes.iter().map(|change| change.sql).collect();
    if begin != BEGIN || !is_unordered(&parts) {
        return send(link, begin, changes).await;
    }
    link.renew_plans().await?;
    let counts: Vec<usize> = changes.iter().map(|change| change.values.len()).collect();
    let Some(whole) = link.prepared_whole(&parts, &counts).await? else {
        return send(link, begin, changes).await;
    };
    let values: Vec<&(dyn ToSql + Sync)> =
        changes.iter().flat_map(|change| change.values.iter().map(|value| &**value as _)).collect();
    link.client.query_one(&whole, &values).await?;
    Ok(())
}

/// In one transaction and without waiting in between.
async fn send(link: &Link, begin: &str, changes: &[Change]) -> Result<(), Trouble> {
    link.renew_plans().await?;
    let mut statements = Vec::with_capacity(changes.len());
    for change in changes {
        statements.push(link.prepared(change.sql).await?);
    }
    let values: Vec<Vec<&(dyn ToSql + Sync)>> =
        changes.iter().map(|change| change.values.iter().map(|value| &**value as _).collect()).collect();
    // Requests go out in the order of their first polls.
    let executing =
        statements.iter().zip(&values).map(|(statement, values)| link.client.execute(statement, values));
    let (begun, executed, committed) =
        join3(link.client.batch_execute(begin), join_all(executing), link.client.batch_execute("COMMIT"))
            .await;
    // Of an aborted transaction the COMMIT says nothing, and every statement behind the one that failed says only that.
    if let Err(error) = begun {
        // An error that ends the session ends the statements behind it, too.
        let is_refused = error
            .as_db_error()
            .is_some_and(|told| !matches!(told.parsed_severity(), Some(Severity::Fatal | Severity::Panic)));
        return Err(if is_refused { Trouble::Torn(describe(&error)) } else { error.into() });
    }
    executed.into_iter().collect::<Result<Vec<_>, Error>>()?;
    Ok(committed?)
}
