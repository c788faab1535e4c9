//! The rule as one would write it down: lists in the order of last use, searched from end to end.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
struct FileUse {
    file: FileId,
    last: Duration,
    active: bool,
}

#[derive(Debug)]
struct Model {
    rules: DelegationRules,
    files_max: usize,
    /// The longest silent client first; of each its files, the least recently used first.
    clients: Vec<(ClientId4, Vec<FileUse>)>,
    quiet: Vec<(FileId, Duration)>,
}

impl Model {
    fn accessed(&mut self, client: ClientId4, file: FileId, now: Duration) -> bool {
        let offered = match self.rules.mode {
            DelegationMode::Off => false,
            DelegationMode::Always => true,
            DelegationMode::Adaptive => self.track(client, file, now),
        };
        self.quiet.retain(|(_, recalled)| now - *recalled < self.rules.quiet);
        offered && !self.is_quiet(file, now)
    }

    fn is_quiet(&self, file: FileId, now: Duration) -> bool {
        self.quiet.iter().any(|(quiet, recalled)| *quiet == file && now - *recalled < self.rules.quiet)
    }

    fn recalled(&mut self, file: FileId, now: Duration) {
        if self.rules.mode != DelegationMode::Off {
            self.quiet.retain(|(quiet, recalled)| *quiet != file && now - *recalled < self.rules.quiet);
            if !self.rules.quiet.is_zero() {
                self.quiet.push((file, now));
            }
            let surplus = self.quiet.len().saturating_sub(self.rules.quiet_files_max);
            self.quiet.drain(..surplus);
        }
    }

    fn forget_client(&mut self, client: ClientId4) {
        self.clients.retain(|(known, _)| *known != client);
    }

    fn track(&mut self, client: ClientId4, file: FileId, now: Duration) -> bool {
        let at = self.clients.iter().position(|(known, _)| *known == client);
        let mut files = at.map(|at| self.clients.remove(at).1).unwrap_or_default();
        for known in &mut files {
            known.active &= now - known.last <= self.rules.idle;
        }
        let before = files.iter().position(|known| known.file == file).map(|at| files.remove(at));
        let active = before.is_some_and(|known| known.active || now - known.last <= self.rules.window);
        files.push(FileUse { file, last: now, active });
        while files.iter().filter(|known| known.active).count() > self.rules.active_max {
            files.iter_mut().find(|known| known.active).unwrap().active = false;
        }
        while files.iter().filter(|known| !known.active).count() > self.rules.eviction_max {
            files.remove(files.iter().position(|known| !known.active).unwrap());
        }
        let active = files.iter().any(|known| known.file == file && known.active);
        self.clients.push((client, files));
        self.clients.retain(|(_, files)| !files.is_empty());
        while self.clients.iter().map(|(_, files)| files.len()).sum::<usize>() > self.files_max {
            let files = &mut self.clients[0].1;
            files.remove(files.iter().position(|known| !known.active).unwrap_or(0));
            self.clients.retain(|(_, files)| !files.is_empty());
        }
        active
    }

    fn counts(&self) -> AdaptiveCounts {
        let files = || self.clients.iter().flat_map(|(_, files)| files);
        AdaptiveCounts {
            clients: self.clients.len(),
            in_eviction: files().filter(|known| !known.active).count(),
            in_active: files().filter(|known| known.active).count(),
            quiet_files: self.quiet.len(),
        }
    }
}

/// SplitMix64: steps by the million, where a strategy for each would cost more than the rule.
struct Steps(u64);

impl Steps {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % bound
    }
}

fn any_rules() -> impl Strategy<Value = DelegationRules> {
    let mode = prop_oneof![
        1 => Just(DelegationMode::Off),
        6 => Just(DelegationMode::Adaptive),
        1 => Just(DelegationMode::Always),
    ];
    let times = (0..40_u64, 0..80_u64, 0..40_u64);
    (mode, times, 0..8_usize, 0..6_usize, 0..5_usize).prop_map(
        |(mode, (window, idle, quiet), eviction_max, active_max, quiet_files_max)| DelegationRules {
            mode,
            write: WriteDelegations::On,
            window: s(window),
            idle: s(idle),
            eviction_max,
            active_max,
            quiet: s(quiet),
            quiet_files_max,
        },
    )
}

const CASES: u32 = 64;
const STEPS_PER_CASE: u32 = 16_384;
const _: () = assert!(CASES * STEPS_PER_CASE >= 1_000_000);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Every answer and every count is the model's, and no bound is passed.
    #[test]
    fn a_million_random_steps_are_answered_as_by_plain_lists(
        rules in any_rules(),
        files_max in 0..30_usize,
        seed in any::<u64>(),
    ) {
        let mut adaptive = Adaptive::bounded(rules.clone(), files_max);
        let mut model = Model { rules: rules.clone(), files_max, clients: Vec::new(), quiet: Vec::new() };
        let (mut steps, mut now) = (Steps(seed), s(0));
        for step in 0..STEPS_PER_CASE {
            now += s(steps.below(4) * steps.below(4) * steps.below(4) / 3);
            let (client, file) = (ClientId4(steps.below(4)), FileId(steps.below(12)));
            match steps.below(32) {
                0 => {
                    adaptive.recalled(file, now);
                    model.recalled(file, now);
                }
                1 if steps.below(8) == 0 => {
                    adaptive.forget_client(client);
                    model.forget_client(client);
                }
                _ => {
                    let (is, should) = (adaptive.accessed(client, file, now), model.accessed(client, file, now));
                    prop_assert_eq!(is, should, "{} in step {} at {:?}", file, step, now);
                }
            }
            prop_assert_eq!(adaptive.is_quiet(file, now), model.is_quiet(file, now));
            let counts = adaptive.counts();
            prop_assert_eq!(counts, model.counts(), "in step {} at {:?}", step, now);
            prop_assert!(counts.in_eviction <= counts.clients * rules.eviction_max);
            prop_assert!(counts.in_active <= counts.clients * rules.active_max);
            prop_assert!(counts.quiet_files <= rules.quiet_files_max && adaptive.files <= files_max);
            prop_assert_eq!(adaptive.files, counts.in_eviction + counts.in_active);
        }
    }
}
