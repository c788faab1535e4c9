//! Progress of a command that may take long: counters that the work raises ([`Meter`]), and their display ([`Shown`]).
//!
//! Both are apart, for the work may run in another process, which sends its [`Progress`] over the control socket. Progress
//! goes to standard error only. A terminal shows one line that is written over. Elsewhere nothing is shown, unless
//! `--progress` asks for a line every few seconds.

mod shown;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use types::display::{Seconds, Size};

pub use shown::Shown;

/// Before it a rate says nothing.
const RATE_AFTER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nothing is counted.
    Time,
    /// Files, rows and the like; the name of the step says which.
    Items,
    Bytes,
}

/// A step of the work, and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// `comparing files`.
    pub step: Cow<'static, str>,
    pub unit: Unit,
    pub done: u64,
    /// `None`: it is not known.
    pub total: Option<u64>,
    pub taken_s: u64,
    /// `None`: nothing is counted, or too short.
    pub per_s: Option<f64>,
}

impl Progress {
    /// One line for people: amount, share, rate, remaining time.
    pub fn line(&self) -> String {
        let Progress { step, unit, done, total, taken_s, per_s } = self;
        let amount = |count: u64| match unit {
            Unit::Bytes => Size(count).to_string(),
            Unit::Time | Unit::Items => count.to_string(),
        };
        let mut text = match (unit, total) {
            (Unit::Time, _) if *taken_s == 0 => return step.to_string(),
            (Unit::Time, _) => return format!("{step}, {}", Seconds(*taken_s)),
            (_, None) => format!("{step}: {}", amount(*done)),
            (_, Some(total)) => {
                let percent = done.saturating_mul(100).checked_div(*total).unwrap_or(100).min(100);
                format!("{step}: {} of {}, {percent} %", amount(*done), amount(*total))
            }
        };
        let Some(per_s) = per_s.filter(|per_s| *per_s > 0.0) else { return text };
        text += &match unit {
            Unit::Bytes => format!(", {}/s", Size(per_s as u64)),
            Unit::Time | Unit::Items if per_s < 10.0 => format!(", {per_s:.1}/s"),
            Unit::Time | Unit::Items => format!(", {per_s:.0}/s"),
        };
        if let Some(total) = total {
            let left_s = total.saturating_sub(*done) as f64 / per_s;
            text += &format!(", {} left", Seconds(left_s.ceil() as u64));
        }
        text
    }
}

/// Counters of the step that runs now. The work raises them, anybody may read them.
#[derive(Default)]
pub struct Meter {
    /// Leaf lock.
    step: Mutex<Option<Step>>,
    done: AtomicU64,
    /// Nobody waits for the work any more.
    is_stopped: AtomicBool,
}

struct Step {
    name: Cow<'static, str>,
    unit: Unit,
    total: Option<u64>,
    begun: Instant,
    /// Of `done`, the part of an earlier attempt.
    done_before: u64,
}

impl Meter {
    pub fn new() -> Arc<Meter> {
        Arc::default()
    }

    /// A step in which nothing is counted.
    pub fn begin(&self, name: impl Into<Cow<'static, str>>) {
        self.start(name.into(), Unit::Time, None, 0);
    }

    pub fn begin_items(&self, name: impl Into<Cow<'static, str>>, total: Option<u64>) {
        self.start(name.into(), Unit::Items, total, 0);
    }

    /// A step of which an earlier attempt did a part.
    pub fn resume(&self, name: impl Into<Cow<'static, str>>, unit: Unit, total: u64, done_before: u64) {
        self.start(name.into(), unit, Some(total), done_before);
    }

    pub fn add(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }

    pub fn set(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Asks threads and tasks of the work to end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// `None`: no step was begun.
    pub fn progress(&self) -> Option<Progress> {
        self.at(Instant::now())
    }

    fn start(&self, name: Cow<'static, str>, unit: Unit, total: Option<u64>, done_before: u64) {
        let mut step = self.step.lock();
        *step = Some(Step { name, unit, total, begun: Instant::now(), done_before });
        self.set(done_before);
    }

    fn at(&self, now: Instant) -> Option<Progress> {
        let step = self.step.lock();
        let Step { name, unit, total, begun, done_before } = step.as_ref()?;
        let (done, taken) = (self.done.load(Ordering::Relaxed), now.saturating_duration_since(*begun));
        let per_s = (*unit != Unit::Time && taken >= RATE_AFTER)
            .then(|| done.saturating_sub(*done_before) as f64 / taken.as_secs_f64());
        let (step, unit, total) = (name.clone(), *unit, *total);
        Some(Progress { step, unit, done, total, taken_s: taken.as_secs(), per_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(unit: Unit, total: Option<u64>, per_s: Option<f64>) -> Progress {
        Progress { step: "copying inodes".into(), unit, done: 3 << 20, total, taken_s: 61, per_s }
    }

    #[test]
    fn a_line_has_amount_share_rate_and_remaining_time() {
        for (unit, total, per_s, line) in [
            (
                Unit::Bytes,
                Some(12 << 20),
                Some(1.0 * 1024.0 * 1024.0),
                ": 3.0 MiB of 12.0 MiB, 25 %, 1.0 MiB/s, 9 s left",
            ),
            (Unit::Items, Some(3 << 20), Some(5.31), ": 3145728 of 3145728, 100 %, 5.3/s, 0 s left"),
            (Unit::Items, None, Some(1234.6), ": 3145728, 1235/s"),
            (Unit::Items, Some(0), None, ": 3145728 of 0, 100 %"),
            (Unit::Time, None, None, ", 1 min 1 s"),
        ] {
            assert_eq!(progress(unit, total, per_s).line(), format!("copying inodes{line}"));
        }
    }

    #[test]
    fn the_rate_does_not_count_an_earlier_attempt() {
        let meter = Meter::default();
        assert_eq!(meter.progress(), None);
        meter.resume("copying inodes", Unit::Items, 100, 60);
        meter.set(80);
        let now = Instant::now();
        assert_eq!(meter.at(now).and_then(|progress| progress.per_s), None, "it is too short yet");
        let later = meter.at(now + Duration::from_secs(1000)).unwrap();
        assert_eq!((later.done, later.total), (80, Some(100)));
        assert!((0.019..0.021).contains(&later.per_s.unwrap()), "{later:?}");
    }

    #[test]
    fn a_new_step_begins_at_zero() {
        let meter = Meter::default();
        meter.begin_items("reading pool-0", Some(5));
        meter.add(4);
        meter.begin("checking");
        let progress = meter.progress().unwrap();
        assert_eq!((progress.line(), progress.done), ("checking".to_owned(), 0));
    }
}
