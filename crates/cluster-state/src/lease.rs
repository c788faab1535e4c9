//! The lease of a pool: until when it may honour tickets to write without hearing from the head.
//!
//! The pool counts from the moment at which it sent the request that was granted, the head from the moment at which the
//! request came in and a little longer, so that the pool stops first; their clocks need equal rates and not equal times. When
//! the lease of a silent pool is over, the pool takes no writes, and the head need not wait for it: fences that it missed are
//! delivered before it gets a lease again.
//!
//! Rules only: the caller tells the time.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{self, AtomicU64};
use std::time::Duration;

use thiserror::Error;
use types::{Epoch, FileId};

/// Fences that one pool may miss.
const MISSED_MAX: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRules {
    pub lease: Duration,
    /// A pool that is silent for so long gets no new files, and its clients are called back.
    pub suspect: Duration,
}

impl LeaseRules {
    /// The lease as the head counts it: clocks may differ in rate by a twentieth.
    fn at_head(self) -> Duration {
        self.lease + self.lease / 20
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It answers.
    Ready,
    /// It is silent, and may still honour tickets.
    Suspect,
    /// It honours no tickets to write.
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the pool has missed {MISSED_MAX} fences")]
pub struct Full;

/// A process of a pool host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// It rises with each start on the pool's directory.
    pub starts: u64,
    /// Drawn at the start: a copy of the directory may come to the same number.
    pub draw: u64,
}

/// A pool that dials.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub process: Process,
    pub has_lease: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("a later process of this pool has connected before")]
    Earlier,
    #[error("a copy of the directory of this pool is in use: stop one of the two, and never start it again")]
    Copy,
}

/// A pool's lease as the head sees it.
#[derive(Debug)]
pub struct HeadLease {
    rules: LeaseRules,
    /// The pool honours tickets to write at most until then.
    until: Duration,
    heard: Option<Duration>,
    process: Option<Process>,
    is_connected: bool,
    /// Fences that the pool has not confirmed.
    missed: BTreeMap<FileId, Missed>,
}

/// Unconfirmed fences of one file.
#[derive(Clone, Copy, Debug)]
struct Missed {
    /// Later fences of the file put off the wait for nobody: each is waited for by itself.
    first: Epoch,
    /// Delivered for all of them.
    last: Epoch,
    since: Duration,
}

impl HeadLease {
    /// Of a pool that may have a lease of an earlier start, which was no longer than `longest`.
    pub fn new(rules: LeaseRules, longest: Duration, now: Duration) -> HeadLease {
        let earlier = LeaseRules { lease: longest.max(rules.lease), ..rules };
        HeadLease {
            rules,
            until: now + earlier.at_head(),
            heard: None,
            process: None,
            is_connected: false,
            missed: BTreeMap::new(),
        }
    }

    pub fn standing(&self, now: Duration) -> Standing {
        match (self.is_over(now), self.is_heard(now)) {
            (true, _) => Standing::Out,
            (false, true) => Standing::Ready,
            (false, false) => Standing::Suspect,
        }
    }

    /// It is connected and not silent.
    pub fn is_heard(&self, now: Duration) -> bool {
        let is_recent = |heard| now.saturating_sub(heard) < self.rules.suspect;
        self.is_connected && self.heard.is_some_and(is_recent)
    }

    /// When the pool was heard of last.
    pub fn heard(&self) -> Option<Duration> {
        self.heard
    }

    /// The pool asks, in the session of now.
    pub fn hear(&mut self, now: Duration) {
        self.heard = Some(now);
        self.is_connected = true;
    }

    /// The pool honours no ticket to write until it gets another lease.
    pub fn is_over(&self, now: Duration) -> bool {
        now >= self.until
    }

    pub fn until(&self) -> Duration {
        self.until
    }

    /// The pool has connected, and says whether it has a lease, which an earlier start of the head has given it.
    pub fn connect(&mut self, arrival: Arrival, now: Duration) -> Result<(), Refusal> {
        match self.process.map(|known| (known, known.starts.cmp(&arrival.process.starts))) {
            Some((_, Ordering::Greater)) => return Err(Refusal::Earlier),
            Some((known, Ordering::Equal)) if known != arrival.process => return Err(Refusal::Copy),
            // Another process holds the lock of the pool's directory now: the one before has ended, and its lease with it.
            Some((_, Ordering::Less)) => self.end(now),
            None if !arrival.has_lease => self.end(now),
            Some((_, Ordering::Equal)) | None => {}
        }
        self.process = Some(arrival.process);
        self.heard = Some(now);
        self.is_connected = true;
        Ok(())
    }

    /// The pool has said that it stops.
    pub fn end(&mut self, now: Duration) {
        self.until = self.until.min(now);
    }

    pub fn disconnect(&mut self) {
        self.is_connected = false;
    }

    /// The pool asks for its lease at `now`. `None`: it gets none before it has confirmed what it missed.
    pub fn renew(&mut self, now: Duration) -> Option<Duration> {
        self.hear(now);
        let is_late = |since: Duration| now.saturating_sub(since) > self.rules.lease / 2;
        let is_slow = self.missed.values().any(|missed| is_late(missed.since));
        // Fences under way keep a lease that is held from nobody: they are waited for. One that is over is not given before them.
        if is_slow || (self.is_over(now) && !self.missed.is_empty()) {
            return None;
        }
        self.until = self.until.max(now + self.rules.at_head());
        Some(self.rules.lease)
    }

    /// Before the pool is told: from here on it is delivered before the pool gets a lease again.
    pub fn fence(&mut self, files: &[(FileId, Epoch)], now: Duration) -> Result<(), Full> {
        let is_new = |(file, _): &&(FileId, Epoch)| !self.missed.contains_key(file);
        if self.missed.len() + files.iter().filter(is_new).count() > MISSED_MAX {
            return Err(Full);
        }
        for (file, epoch) in files {
            let new = Missed { first: *epoch, last: *epoch, since: now };
            let missed = self.missed.entry(*file).or_insert(new);
            (missed.first, missed.last) = (missed.first.min(*epoch), missed.last.max(*epoch));
        }
        Ok(())
    }

    /// Fences that are to be delivered, of files behind `after` if there is one.
    pub fn missed(&self, after: Option<FileId>, limit: usize) -> Vec<(FileId, Epoch)> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.missed.range((after, Bound::Unbounded));
        behind.take(limit).map(|(file, missed)| (*file, missed.last)).collect()
    }

    /// Files of which a fence is yet to be delivered.
    pub fn missed_count(&self) -> usize {
        self.missed.len()
    }

    /// The pool has confirmed neither this fence nor a later one of the file.
    pub fn misses(&self, file: FileId, epoch: Epoch) -> bool {
        self.missed.get(&file).is_some_and(|missed| (missed.first..=missed.last).contains(&epoch))
    }

    /// The pool has these on disk.
    pub fn confirm(&mut self, files: &[(FileId, Epoch)]) {
        for (file, epoch) in files {
            let Some(missed) = self.missed.get_mut(file) else { continue };
            if missed.last <= *epoch {
                self.missed.remove(file);
            } else if missed.first <= *epoch {
                missed.first = epoch.next();
            }
        }
    }
}

/// A pool's lease as the pool sees it. A process begins without one.
#[derive(Debug, Default)]
pub struct HeldLease(AtomicU64);

impl HeldLease {
    pub fn holds(&self, now: Duration) -> bool {
        microseconds(now) < self.0.load(atomic::Ordering::Acquire)
    }

    /// Zero: there is none.
    pub fn left(&self, now: Duration) -> Duration {
        Duration::from_micros(self.0.load(atomic::Ordering::Acquire)).saturating_sub(now)
    }

    /// A request that was sent at `asked` was granted. The last grant counts: the head may give shorter leases than before.
    pub fn grant(&self, asked: Duration, lease: Duration) {
        self.0.store(microseconds(asked + lease), atomic::Ordering::Release);
    }

    /// The pool honours no ticket to write from now on.
    pub fn end(&self) {
        self.0.store(0, atomic::Ordering::Release);
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: LeaseRules = LeaseRules { lease: Duration::from_secs(10), suspect: Duration::from_secs(3) };
    const FILE: FileId = FileId(7);

    fn arrival(starts: u64, has_lease: bool) -> Arrival {
        Arrival { process: Process { starts, draw: starts }, has_lease }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_pool_is_suspect_and_then_out() {
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        assert_eq!(lease.standing(s(0)), Standing::Suspect, "an earlier start may have given a lease");
        assert_eq!(lease.standing(s(11)), Standing::Out);
        assert_eq!(lease.connect(arrival(1, false), s(20)), Ok(()));
        assert_eq!(lease.renew(s(20)), Some(s(10)));
        assert_eq!(lease.standing(s(22)), Standing::Ready);
        assert_eq!(lease.standing(s(23)), Standing::Suspect);
        assert_eq!(lease.standing(s(30)), Standing::Suspect);
        assert_eq!(lease.standing(s(31)), Standing::Out);
        assert_eq!(lease.renew(s(40)), Some(s(10)));
        lease.disconnect();
        assert_eq!(lease.standing(s(40)), Standing::Suspect, "it is not connected");
    }

    #[test]
    fn a_pool_that_missed_fences_gets_no_lease_before_it_confirms_them() {
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        assert_eq!(lease.connect(arrival(1, false), s(0)), Ok(()));
        lease.fence(&[(FILE, Epoch(4)), (FILE, Epoch(5)), (FILE, Epoch(3))], s(1)).unwrap();
        assert_eq!(lease.renew(s(2)), None, "the lease of the process before is over");
        assert_eq!(lease.missed(None, 9), [(FILE, Epoch(5))]);
        lease.confirm(&[(FILE, Epoch(4))]);
        assert_eq!(lease.renew(s(2)), None);
        lease.confirm(&[(FILE, Epoch(5))]);
        assert_eq!(lease.renew(s(2)), Some(s(10)));
    }

    #[test]
    fn a_pool_that_does_not_confirm_a_fence_loses_its_lease() {
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        assert_eq!(lease.connect(arrival(1, false), s(0)), Ok(()));
        assert_eq!(lease.renew(s(0)), Some(s(10)));
        lease.fence(&[(FILE, Epoch(5))], s(1)).unwrap();
        assert_eq!(lease.renew(s(6)), Some(s(10)), "it may be on its way");
        lease.fence(&[(FileId(8), Epoch(1))], s(6)).unwrap();
        lease.confirm(&[(FileId(8), Epoch(1))]);
        assert_eq!(lease.renew(s(7)), None);
        assert!(!lease.is_over(s(16)) && lease.is_over(s(17)));
    }

    #[test]
    fn a_new_process_ends_the_lease_of_the_one_before() {
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        assert_eq!(lease.connect(arrival(1, false), s(0)), Ok(()));
        lease.renew(s(0));
        assert_eq!(lease.connect(arrival(1, false), s(1)), Ok(()));
        assert!(!lease.is_over(s(1)), "the same process came back");
        assert_eq!(lease.connect(arrival(2, false), s(1)), Ok(()));
        assert!(lease.is_over(s(1)));
    }

    #[test]
    fn a_fence_beyond_the_bound_is_refused_as_a_whole() {
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        let fences = |files: std::ops::Range<usize>| -> Vec<_> {
            files.map(|file| (FileId(file as u64), Epoch(1))).collect()
        };
        assert_eq!(lease.fence(&fences(0..MISSED_MAX), s(0)), Ok(()));
        assert_eq!(lease.fence(&fences(MISSED_MAX - 1..MISSED_MAX + 1), s(0)), Err(Full));
        assert_eq!(lease.missed_count(), MISSED_MAX);
        assert_eq!(lease.fence(&[(FileId(3), Epoch(2))], s(0)), Ok(()), "one that is missed already");
        assert!(lease.misses(FileId(3), Epoch(2)));
    }

    #[test]
    fn a_head_that_starts_anew_respects_a_lease_of_the_start_before() {
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        assert_eq!(lease.connect(arrival(7, true), s(1)), Ok(()));
        assert!(!lease.is_over(s(1)) && !lease.is_over(s(10)) && lease.is_over(s(11)));
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        assert_eq!(lease.connect(arrival(7, false), s(1)), Ok(()));
        assert!(lease.is_over(s(1)), "it says that it has none");
    }

    #[test]
    fn a_lease_of_a_start_that_gave_longer_ones_is_waited_for() {
        let lease = HeadLease::new(RULES, s(30), s(0));
        assert!(!lease.is_over(s(31)) && lease.is_over(s(32)));
        let held = HeldLease::default();
        held.grant(s(0), s(30));
        held.grant(s(1), s(10));
        assert!(!held.holds(s(12)));
    }

    #[test]
    fn a_hello_of_a_process_that_has_ended_changes_nothing() {
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        assert_eq!(lease.connect(arrival(2, false), s(0)), Ok(()));
        assert_eq!(lease.renew(s(0)), Some(s(10)));
        assert_eq!(lease.connect(arrival(1, false), s(1)), Err(Refusal::Earlier));
        assert!(!lease.is_over(s(1)));
    }

    /// Both would write, each on its own disk.
    #[test]
    fn a_copy_of_a_pool_is_refused() {
        let mut lease = HeadLease::new(RULES, RULES.lease, s(0));
        assert_eq!(lease.connect(arrival(2, false), s(0)), Ok(()));
        let copy = Arrival { process: Process { starts: 2, draw: 77 }, has_lease: false };
        assert_eq!(lease.connect(copy, s(1)), Err(Refusal::Copy));
        assert_eq!(lease.connect(arrival(2, true), s(1)), Ok(()));
    }

    proptest! {
        /// Messages may be lost or late: when the head says that the lease is over, the pool says so too.
        #[test]
        fn the_pool_stops_before_the_head_goes_on(
            steps in prop::collection::vec((0..4_000u64, 0..15_000u64, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let (mut head, held) = (HeadLease::new(RULES, RULES.lease, s(0)), HeldLease::default());
            let ms = Duration::from_millis;
            let mut asked = ms(0);
            for (pause, travel, is_lost, is_fenced) in steps {
                asked += ms(pause);
                let arrived = asked + ms(travel);
                head.connect(arrival(1, held.holds(asked)), arrived).unwrap();
                if is_fenced {
                    head.fence(&[(FILE, Epoch(9))], arrived).unwrap();
                }
                let granted = head.renew(arrived);
                head.confirm(&[(FILE, Epoch(9))]);
                if let (Some(lease), false) = (granted, is_lost) {
                    held.grant(asked, lease);
                }
                for later in (0..30_000).step_by(500).map(ms) {
                    let now = arrived + later;
                    prop_assert!(!(head.is_over(now) && held.holds(now)));
                }
                asked = arrived;
            }
        }
    }
}
