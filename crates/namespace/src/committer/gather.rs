//! How long to wait for more before the next group.
//!
//! A caller that was just answered tends to send its next operation at once. If a group starts without these callers,
//! callers in a closed loop take turns in two halves, each of which pays for a commit. So after a commit the committer
//! waits until as many operations are queued as were answered or arrived meanwhile: at most for a part of the time that
//! a commit waits for the disk, never for one caller alone, and not at all for a while after a wait that did not pay.

use std::time::Duration;

/// No wait is longer than this part of what a commit waits.
const SHARE: u32 = 2;
/// Nor than this: a database that was away for minutes makes no caller wait for others.
const WAIT_MAX: Duration = Duration::from_millis(5);
/// Where commits wait less, no wait is short enough: to sleep and to be woken costs as much. The committer then only
/// yields its core to callers that are about to ask, as long as some do.
const COMMIT_MIN: Duration = Duration::from_micros(100);
/// Groups without a wait after one that did not pay: so many, and twice as many each time, up to the other.
const PAUSE_MIN: u32 = 2;
const PAUSE_MAX: u32 = 256;
/// The newest commit counts for one part in so many.
const MEAN_OF: u32 = 8;

#[derive(Debug)]
pub struct Gather {
    /// How long a commit waits lately; its computing is not saved by larger groups.
    commit: Duration,
    expected: usize,
    /// Groups that are to pass without a wait.
    pause: u32,
    next_pause: u32,
}

/// Until so many are there, for so long at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub len: usize,
    pub time_max: Duration,
    /// That are there already.
    waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Sleep(Wait),
    /// Until so many are there, or an offer brought nobody, or for so long.
    Offer {
        len: usize,
        time_max: Duration,
    },
}

impl Gather {
    pub fn new() -> Gather {
        Gather { commit: Duration::ZERO, expected: 0, pause: 0, next_pause: PAUSE_MIN }
    }

    pub fn committed(&mut self, waited: Duration) {
        self.commit =
            if self.commit.is_zero() { waited } else { (self.commit * (MEAN_OF - 1) + waited) / MEAN_OF };
    }

    /// So many are answered now or came meanwhile.
    pub fn expect(&mut self, callers: usize) {
        self.expected = callers;
    }

    /// `waiting` are there.
    pub fn wait(&mut self, waiting: usize, group_len_max: usize) -> Option<Patience> {
        // Expected once: a caller that comes after idle time waits for nobody.
        let len = std::mem::take(&mut self.expected).min(group_len_max);
        if len <= 1 || waiting >= len {
            return None;
        }
        if self.commit < COMMIT_MIN {
            return Some(Patience::Offer { len, time_max: COMMIT_MIN });
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        Some(Patience::Sleep(Wait { len, time_max: (self.commit / SHARE).min(WAIT_MAX), waiting }))
    }

    /// So many were there in the end, after so long.
    pub fn waited(&mut self, wait: Wait, len: usize, time: Duration) {
        // Callers that came are spared a commit; the others lost the time.
        let of = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (came, were) = (of(len.saturating_sub(wait.waiting)), of(wait.waiting));
        if came > 0 && self.commit.saturating_mul(came) >= time.saturating_mul(were) {
            self.next_pause = PAUSE_MIN;
        } else {
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// After commits that wait 4 ms.
    fn gather() -> Gather {
        let mut gather = Gather::new();
        gather.committed(4 * MS);
        gather
    }

    fn slept(patience: Option<Patience>) -> Wait {
        match patience {
            Some(Patience::Sleep(wait)) => wait,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_caller_is_never_waited_for() {
        let mut gather = gather();
        gather.expect(1);
        assert_eq!(gather.wait(0, 512), None);
    }

    #[test]
    fn two_halves_that_take_turns_become_one() {
        let mut gather = gather();
        // 16 are answered while 16 wait.
        gather.expect(32);
        let wait = slept(gather.wait(16, 512));
        assert_eq!((wait.len, wait.time_max), (32, 2 * MS));
        gather.waited(wait, 32, MS);
        gather.expect(32);
        assert!(gather.wait(0, 512).is_some(), "it paid");
    }

    #[test]
    fn nobody_waits_when_all_are_there_or_a_group_is_full() {
        let mut gather = gather();
        gather.expect(32);
        assert_eq!(gather.wait(32, 512), None);
        gather.expect(32);
        assert_eq!(gather.wait(16, 16), None);
    }

    #[test]
    fn a_caller_after_idle_time_waits_for_nobody() {
        let mut gather = gather();
        gather.expect(32);
        let wait = slept(gather.wait(0, 512));
        gather.waited(wait, 0, 2 * MS);
        // Nothing was committed since, so nobody is expected.
        assert_eq!(gather.wait(1, 512), None);
    }

    #[test]
    fn where_a_commit_waits_for_nothing_the_core_is_offered_and_nobody_sleeps() {
        let mut gather = Gather::new();
        gather.committed(COMMIT_MIN / 2);
        gather.expect(32);
        assert_eq!(gather.wait(16, 512), Some(Patience::Offer { len: 32, time_max: COMMIT_MIN }));
        // Nobody was answered since.
        assert_eq!(gather.wait(16, 512), None);
        gather.expect(1);
        assert_eq!(gather.wait(0, 512), None);
    }

    #[test]
    fn waits_that_do_not_pay_become_rare_and_one_that_pays_makes_them_common_again() {
        let mut gather = gather();
        let mut waits = Vec::new();
        for group in 0..600 {
            gather.expect(9);
            if let Some(Patience::Sleep(wait)) = gather.wait(8, 512) {
                waits.push(group);
                gather.waited(wait, 8, 2 * MS);
            }
        }
        assert_eq!(waits, [0, 3, 8, 17, 34, 67, 132, 261, 518]);
        gather.pause = 0;
        gather.expect(9);
        let wait = slept(gather.wait(4, 512));
        gather.waited(wait, 9, MS);
        assert_eq!((gather.pause, gather.next_pause), (0, PAUSE_MIN));
    }

    #[test]
    fn a_slow_commit_is_forgotten_within_some_groups() {
        let mut gather = Gather::new();
        gather.committed(1000 * MS);
        (0..100).for_each(|_| gather.committed(MS));
        assert!(gather.commit < 2 * MS);
    }
}
