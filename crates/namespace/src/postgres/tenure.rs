//! How long this head is known to be the one that writes, and so how long what it has in memory is the truth.
//!
//! A head that was stopped for a while (SIGSTOP, a machine that sleeps) does not know that another one took over, whose
//! changes its memory lacks. So an answer of the session that holds the lock is worth `TENURE` from when it was asked for,
//! by a clock that goes on while the machine sleeps. A head that takes over from one that may live waits longer than that
//! before it changes anything.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

const TENURE: Duration = Duration::from_secs(10);
/// A head that takes over waits for so long. Clocks of two machines do not go alike.
pub const SUCCESSION: Duration = Duration::from_secs(11);
/// The database is asked when it has not answered for so long.
const OLD: Duration = Duration::from_secs(2);

/// Since the machine was started, also while it slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Moment {
        Moment(Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default())
    }

    #[cfg(test)]
    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0 + time)
    }
}

#[derive(Default)]
pub struct Tenure {
    /// When the last question was asked that the session with the lock has answered, in nanoseconds; 0: never, or it is
    /// over.
    asked_ns: AtomicU64,
    renewed: watch::Sender<()>,
}

impl Tenure {
    pub fn renew(&self, asked: Moment) {
        self.asked_ns.fetch_max(nanoseconds(asked.0), Ordering::AcqRel);
        self.renewed.send_replace(());
    }

    /// Another head writes. Nothing renews it after this.
    pub fn end(&self) {
        self.asked_ns.store(0, Ordering::Release);
        self.renewed.send_replace(());
    }

    pub fn is_certain(&self, now: Moment) -> bool {
        self.silence(now).is_some_and(|silence| silence < TENURE)
    }

    pub fn is_old(&self, now: Moment) -> bool {
        self.silence(now).is_none_or(|silence| silence > OLD)
    }

    /// How long nothing was heard; `None`: nothing ever was.
    pub fn silence(&self, now: Moment) -> Option<Duration> {
        let asked = self.asked_ns.load(Ordering::Acquire);
        (asked > 0).then(|| now.0.saturating_sub(Duration::from_nanos(asked)))
    }

    pub fn renewals(&self) -> watch::Receiver<()> {
        self.renewed.subscribe()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_certain_of_what_it_knows_as_long_as_no_other_takes_over() {
        let (tenure, start) = (Tenure::default(), Moment(Duration::from_secs(100)));
        let later = |time: Duration| Moment(start.0 + time);
        assert!(!tenure.is_certain(start));
        tenure.renew(start);
        assert!(tenure.is_certain(later(TENURE - Duration::from_millis(1))));
        assert!(!tenure.is_certain(later(TENURE)), "another may have taken over");
        const { assert!(TENURE.as_nanos() < SUCCESSION.as_nanos()) };
        tenure.renew(later(TENURE));
        tenure.renew(start);
        assert!(tenure.is_certain(later(TENURE)), "an answer that comes late takes nothing back");
        tenure.end();
        assert!(!tenure.is_certain(start));
    }
}
