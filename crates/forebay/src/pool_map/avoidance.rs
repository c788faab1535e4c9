//! Which pools a client is sent round, by what it told of them (RFC 8435 §9.1, RFC 7862 §15.6).
//!
//! Linux asks for the layout again as soon as it has told of an error, and tries again. So it gets the layout again, for
//! most errors are over by then, but not for ever: a client that fails a few times in a row, or that has waited long for
//! a pool that does not answer, does its I/O at another replica or through the head for a while. Not to reach a pool
//! concerns all of its files; an error that it answered concerns the one file.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{ClientReport, Outcome};
use types::{FileId, PoolId};

/// As long as Linux avoids a data server that it could not reach (`PNFS_DEVICE_RETRY_TIMEOUT`).
const AVOID: Duration = Duration::from_secs(120);
/// A failure to reach the pool that took longer is not worth another one: Linux waits 60 s for a silent pool.
const QUICK: Duration = Duration::from_secs(5);
/// Attempts that failed one after the other.
const IN_A_ROW_MAX: u32 = 3;
/// Attempts that failed at all, before a pause of `AVOID`: where others of the same file succeed in between.
const IN_ALL_MAX: u32 = 16;
/// Beyond it the one that was told of the longest ago is forgotten.
const TROUBLES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Avoidance {
    troubles: BTreeMap<PoolRoute, Trouble>,
}

/// A client's way to a pool, or to one file there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PoolRoute {
    client: u64,
    file: Option<FileId>,
    pool: PoolId,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    /// When the attempt began that failed last.
    attempt: Duration,
    told: Duration,
    /// When the last counted failure was reported. An attempt that began before that is part of the same failure: if a
    /// pool fails, all of its files fail at once.
    counted: Duration,
    in_a_row: u32,
    in_all: u32,
    avoided_until: Duration,
}

impl Avoidance {
    pub(super) fn take(&mut self, report: &ClientReport, now: Duration) {
        let ClientReport { client, sent, .. } = *report;
        let file = Some(report.file);
        match report.outcome {
            Outcome::Fine => self.succeeded(client, file, sent),
            Outcome::Unreachable(pool) => {
                let is_slow = now.saturating_sub(sent) >= QUICK;
                self.failed(PoolRoute { client, file: None, pool }, sent, now, is_slow);
            }
            Outcome::Refused(pool) => self.failed(PoolRoute { client, file, pool }, sent, now, false),
        }
    }

    /// `file`: the one to be reached; a new one has none.
    pub(super) fn is_avoided(&self, client: u64, pool: PoolId, file: Option<FileId>, now: Duration) -> bool {
        let is_avoided = |file| {
            let place = PoolRoute { client, file, pool };
            self.troubles.get(&place).is_some_and(|trouble| now < trouble.avoided_until)
        };
        is_avoided(None) || (file.is_some() && is_avoided(file))
    }

    /// If a client returns a layout without an error, it may never have used it. So the return ends only the row, and
    /// only if the layout was granted after the last counted failure.
    fn succeeded(&mut self, client: u64, file: Option<FileId>, attempt: Duration) {
        let at = |pool| PoolRoute { client, file, pool: PoolId(pool) };
        for (_, trouble) in self.troubles.range_mut(at(0)..=at(u32::MAX)) {
            if trouble.attempt != attempt && attempt >= trouble.counted {
                trouble.in_a_row = 0;
            }
        }
    }

    fn failed(&mut self, place: PoolRoute, attempt: Duration, now: Duration, is_slow: bool) {
        let known = self.troubles.get(&place).copied().filter(|trouble| now < trouble.told + AVOID);
        let mut trouble = match known {
            // LAYOUTERROR and LAYOUTRETURN tell of the same, and so do many reads under one layout.
            Some(trouble) if trouble.attempt == attempt || attempt < trouble.counted => trouble,
            known => {
                let before = known.unwrap_or_default();
                let (in_a_row, in_all) = (before.in_a_row + 1, before.in_all + 1);
                Trouble { attempt, counted: now, in_a_row, in_all, ..before }
            }
        };
        trouble.told = now;
        if is_slow || trouble.in_a_row >= IN_A_ROW_MAX || trouble.in_all >= IN_ALL_MAX {
            trouble.avoided_until = now + AVOID;
        }
        self.make_room(place);
        self.troubles.insert(place, trouble);
    }

    fn make_room(&mut self, place: PoolRoute) {
        if self.troubles.len() < TROUBLES_MAX || self.troubles.contains_key(&place) {
            return;
        }
        if let Some(oldest) = self.troubles.iter().min_by_key(|(_, trouble)| trouble.told).map(|(at, _)| *at)
        {
            self.troubles.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId(1);
    const REFUSED: Outcome = Outcome::Refused(POOL);
    const UNREACHABLE: Outcome = Outcome::Unreachable(POOL);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// One client that tells what became of its layouts, each a millisecond after it got it.
    #[derive(Default)]
    struct Scene {
        avoidance: Avoidance,
        now: Duration,
    }

    impl Scene {
        fn tell(&mut self, file: u64, outcome: Outcome) {
            self.tell_after(ms(1), file, outcome);
        }

        fn tell_after(&mut self, waited: Duration, file: u64, outcome: Outcome) {
            let sent = self.now;
            self.now += waited;
            self.repeat(sent, file, outcome);
        }

        fn repeat(&mut self, sent: Duration, file: u64, outcome: Outcome) {
            let report = ClientReport { client: 7, file: FileId(file), outcome, sent };
            self.avoidance.take(&report, self.now);
        }

        fn avoids(&self, file: u64) -> bool {
            self.avoidance.is_avoided(7, POOL, Some(FileId(file)), self.now)
        }
    }

    #[test]
    fn an_error_that_a_pool_answers_is_tried_again_and_then_concerns_the_one_file() {
        let mut scene = Scene::default();
        for _ in 1..IN_A_ROW_MAX {
            scene.tell(1, REFUSED);
            assert!(!scene.avoids(1));
        }
        scene.tell(1, REFUSED);
        assert!(scene.avoids(1) && !scene.avoids(2));
        assert!(!scene.avoidance.is_avoided(8, POOL, Some(FileId(1)), scene.now), "another client");
        assert!(!scene.avoidance.is_avoided(7, PoolId(2), Some(FileId(1)), scene.now), "another pool");
        scene.now += AVOID;
        assert!(!scene.avoids(1), "it gets a chance again");
        scene.tell(1, REFUSED);
        assert!(!scene.avoids(1), "and is judged anew");
    }

    #[test]
    fn a_pool_that_refuses_connections_is_tried_again_and_then_avoided_for_all_files() {
        let mut scene = Scene::default();
        for file in 1..=u64::from(IN_A_ROW_MAX) {
            assert!(!scene.avoids(9));
            scene.tell(file, UNREACHABLE);
            scene.tell(file + 100, Outcome::Fine);
        }
        assert!(scene.avoids(9) && scene.avoidance.is_avoided(7, POOL, None, scene.now));
    }

    #[test]
    fn a_pool_that_was_waited_for_in_vain_is_avoided_at_once() {
        let mut scene = Scene::default();
        scene.tell_after(QUICK, 1, UNREACHABLE);
        assert!(scene.avoids(1) && scene.avoids(2));
    }

    #[test]
    fn many_files_of_a_pool_that_fail_at_once_are_one_failure() {
        let mut scene = Scene::default();
        let fail_at_once = |scene: &mut Scene| {
            let began = scene.now;
            scene.now += ms(10);
            for file in 0..20 {
                scene.now += ms(1);
                scene.repeat(began + ms(file % 10), file, UNREACHABLE);
            }
        };
        for _ in 1..IN_A_ROW_MAX {
            fail_at_once(&mut scene);
            assert!(!scene.avoids(30), "the pool was started anew");
        }
        fail_at_once(&mut scene);
        assert!(scene.avoids(30), "it does not come back");
    }

    #[test]
    fn failures_that_overlap_without_an_end_are_not_one() {
        let mut scene = Scene::default();
        // Of each the next began before it was told.
        for file in 0..20 {
            scene.now += ms(10);
            scene.repeat(scene.now.saturating_sub(ms(15)), file, UNREACHABLE);
        }
        assert!(scene.avoids(30));
    }

    #[test]
    fn layouts_of_attempts_that_failed_together_do_not_end_the_row_when_returned() {
        let mut scene = Scene::default();
        for _ in 0..IN_A_ROW_MAX {
            let began = scene.now;
            scene.now += ms(10);
            for outcome in [REFUSED, Outcome::Fine] {
                scene.repeat(began, 1, outcome);
                scene.repeat(began + ms(1), 1, outcome);
            }
        }
        assert!(scene.avoids(1));
    }

    #[test]
    fn one_attempt_reported_twice_counts_once() {
        let mut scene = Scene::default();
        for _ in 0..10 {
            scene.repeat(ms(5), 1, REFUSED);
            // The layout comes back after its errors were told.
            scene.repeat(ms(5), 1, Outcome::Fine);
        }
        assert!(!scene.avoids(1));
        scene.repeat(ms(6), 1, REFUSED);
        scene.repeat(ms(7), 1, REFUSED);
        assert!(scene.avoids(1), "a return that follows the errors of its own attempt does not end the row");
    }

    #[test]
    fn errors_between_successes_are_borne_but_not_for_ever() {
        let mut scene = Scene::default();
        for _ in 1..IN_ALL_MAX {
            scene.tell(1, REFUSED);
            scene.tell(1, Outcome::Fine);
            assert!(!scene.avoids(1));
        }
        scene.tell(1, REFUSED);
        assert!(scene.avoids(1));
    }

    #[test]
    fn reports_of_ever_new_files_do_not_grow_the_table() {
        let mut scene = Scene::default();
        for file in 0..TROUBLES_MAX as u64 + 10 {
            scene.tell(file, REFUSED);
        }
        assert_eq!(scene.avoidance.troubles.len(), TROUBLES_MAX);
        assert!(
            scene.avoidance.troubles.keys().all(|place| place.file >= Some(FileId(10))),
            "the oldest went"
        );
    }
}
