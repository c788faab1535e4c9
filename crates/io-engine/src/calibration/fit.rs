//! From measured costs to the sizes at which the rule changes the mode.
//!
//! A mode is chosen from the smallest size at which it costs less by more than 5 % at this size and all larger ones. It
//! has to win at two neighbouring sizes at least. Costs of a noisy machine are compared by the ratio of two modes, and
//! the ratio at a size is the median of those at this size and its two neighbours: a true crossover stays where it is,
//! and one bad size moves it to the next size if it lies beside it, and otherwise not. The first and the last size have
//! one neighbour and stay as they were measured.

use super::cost::{Access, Costs, SIZES};
use crate::mode::{Crossover, Mode, Thresholds};

/// A mode that wins by less changes nothing.
const WINNING_RATIO_MAX: f64 = 0.95;
const WINS_MIN: usize = 2;
/// As in FAST '24: below, contention and pressure change nothing either. Less where a bypass is cheaper at all times.
const SMALL_BYTES_MAX: u64 = 32 << 10;

type PerSize = [u64; SIZES.len()];

pub fn thresholds(costs: &Costs) -> Thresholds {
    let of = |access| crossover(costs, access);
    Thresholds::calibrated(of(Access::Write), of(Access::ReadSequential), of(Access::ReadRandom))
}

fn crossover(costs: &Costs, access: Access) -> Crossover {
    let Some(buffered) = costs.weighed(access, Mode::Buffered) else {
        return Crossover::buffered(SMALL_BYTES_MAX);
    };
    let uncached = costs.weighed(access, Mode::Uncached);
    let uncached_from = uncached.and_then(|uncached| wins_from(&uncached, &buffered));
    // The mode that direct I/O would take the place of.
    let mut cached = buffered;
    if let (Some(uncached), Some(from)) = (uncached, uncached_from) {
        cached[from..].copy_from_slice(&uncached[from..]);
    }
    let direct = costs.weighed(access, Mode::Direct);
    let direct_from = direct.and_then(|direct| wins_from(&direct, &cached));
    let bytes = |from: Option<usize>| from.map(|index| SIZES[index]);
    let bypass_bytes_min = [uncached_from, direct_from].into_iter().filter_map(bytes).min();
    Crossover {
        small_bytes: bypass_bytes_min.unwrap_or(SMALL_BYTES_MAX).min(SMALL_BYTES_MAX),
        uncached_bytes_min: bytes(uncached_from),
        direct_bytes_min: bytes(direct_from),
    }
}

/// The index of the smallest size from which `mode` costs less than `other` at all sizes.
fn wins_from(mode: &PerSize, other: &PerSize) -> Option<usize> {
    let ratio = |index: usize| mode[index] as f64 / other[index].max(1) as f64;
    let last = SIZES.len() - 1;
    let smoothed = |index: usize| {
        if index == 0 || index == last {
            return ratio(index);
        }
        let mut three = [ratio(index - 1), ratio(index), ratio(index + 1)];
        three.sort_by(f64::total_cmp);
        three[1]
    };
    let wins = (0..SIZES.len()).rev().take_while(|index| smoothed(*index) < WINNING_RATIO_MAX).count();
    (wins >= WINS_MIN).then(|| SIZES.len() - wins)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::cost::Cost;
    use super::*;

    const KIB: u64 = 1 << 10;

    /// Costs per KiB by mode and size; `None` for a mode that is not possible.
    fn crossover_of(per_kib: impl Fn(Mode, u64) -> Option<u64>) -> Crossover {
        let mut costs = Vec::new();
        for access in Access::ALL {
            for mode in Mode::ALL {
                for request_bytes in SIZES {
                    let Some(per_kib) = per_kib(mode, request_bytes) else { continue };
                    let wall_ns = per_kib * request_bytes / KIB;
                    costs.push(Cost { access, mode, request_bytes, wall_ns, cpu_ns: 0 });
                }
            }
        }
        let thresholds = thresholds(&Costs::try_from(costs).unwrap());
        assert_eq!(thresholds.write, thresholds.read_random);
        thresholds.write
    }

    fn crossing(
        uncached_bytes_min: Option<u64>,
        direct_bytes_min: Option<u64>,
        small_bytes: u64,
    ) -> Crossover {
        Crossover { small_bytes, uncached_bytes_min, direct_bytes_min }
    }

    #[test]
    fn buffered_that_is_always_best_is_never_left() {
        let found = crossover_of(|mode, _| Some(if mode == Mode::Buffered { 100 } else { 110 }));
        assert_eq!(found, Crossover::buffered(32 * KIB));
        let alone = crossover_of(|mode, _| (mode == Mode::Buffered).then_some(100));
        assert_eq!(alone, Crossover::buffered(32 * KIB));
    }

    #[test]
    fn direct_is_chosen_from_where_it_wins() {
        let found = crossover_of(|mode, bytes| {
            Some(match mode {
                Mode::Buffered => 100,
                Mode::Uncached => 120,
                Mode::Direct => {
                    if bytes >= 32 * KIB {
                        50
                    } else {
                        300
                    }
                }
            })
        });
        assert_eq!(found, crossing(None, Some(32 * KIB), 32 * KIB));
    }

    #[test]
    fn uncached_stands_between_where_it_is_the_best_of_three() {
        let found = crossover_of(|mode, bytes| {
            Some(match mode {
                Mode::Buffered => 100,
                Mode::Uncached => {
                    if bytes >= 64 * KIB {
                        60
                    } else {
                        150
                    }
                }
                Mode::Direct => {
                    if bytes >= 512 * KIB {
                        30
                    } else {
                        80
                    }
                }
            })
        });
        // Direct beats buffered at 4 KiB, and loses to uncached from 64 KiB to 256 KiB.
        assert_eq!(found, crossing(Some(64 * KIB), Some(512 * KIB), 32 * KIB));
    }

    #[test]
    fn a_mode_that_wins_everywhere_leaves_nothing_small() {
        let found = crossover_of(|mode, _| Some(if mode == Mode::Direct { 50 } else { 100 }));
        assert_eq!(found, crossing(None, Some(4 * KIB), 4 * KIB));
    }

    #[test]
    fn a_win_of_five_percent_or_at_the_last_size_alone_is_none() {
        let close = crossover_of(|mode, _| Some(if mode == Mode::Direct { 95 } else { 100 }));
        assert_eq!(close.direct_bytes_min, None);
        let last =
            crossover_of(|mode, bytes| Some(if mode == Mode::Direct && bytes == 4 << 20 { 10 } else { 100 }));
        assert_eq!(last.direct_bytes_min, None);
        let two =
            crossover_of(|mode, bytes| Some(if mode == Mode::Direct && bytes >= 2 << 20 { 10 } else { 100 }));
        assert_eq!(two.direct_bytes_min, Some(2 << 20));
    }

    #[test]
    fn one_bad_size_moves_a_crossover_by_one_size_at_most() {
        let with_bad = |bad: u64| {
            let found = crossover_of(|mode, bytes| {
                Some(match mode {
                    Mode::Direct if bytes == bad => 400,
                    Mode::Direct if bytes >= 32 * KIB => 50,
                    Mode::Direct => 200,
                    _ => 100,
                })
            });
            found.direct_bytes_min
        };
        for bad in [32 * KIB, 64 * KIB] {
            assert_eq!(with_bad(bad), Some(64 * KIB), "{bad}");
        }
        for bad in &SIZES[5..SIZES.len() - 1] {
            assert_eq!(with_bad(*bad), Some(32 * KIB), "{bad}");
        }
    }

    #[test]
    fn one_good_size_among_bad_ones_is_no_crossover() {
        let lucky = crossover_of(|mode, bytes| {
            Some(if mode == Mode::Uncached && bytes == 64 * KIB { 10 } else { 100 })
        });
        assert_eq!(lucky, Crossover::buffered(32 * KIB));
    }

    #[test]
    fn a_win_that_ends_before_the_largest_size_is_none() {
        let middle = crossover_of(|mode, bytes| {
            Some(if mode == Mode::Direct && (64 * KIB..=512 * KIB).contains(&bytes) { 10 } else { 100 })
        });
        assert_eq!(middle.direct_bytes_min, None);
    }

    proptest! {
        #[test]
        fn a_mode_that_gets_dearer_is_never_chosen_earlier(
            per_kib in prop::array::uniform3(prop::array::uniform11(1_u64..1000)),
            factor in 1_u64..5,
        ) {
            let at = |mode: Mode, bytes: u64| {
                let index = SIZES.iter().position(|size| *size == bytes).unwrap();
                per_kib[mode as usize][index]
            };
            let cheap = crossover_of(|mode, bytes| Some(at(mode, bytes)));
            let dear = crossover_of(|mode, bytes| {
                Some(if mode == Mode::Direct { at(mode, bytes) * factor } else { at(mode, bytes) })
            });
            let from = |crossover: Crossover| crossover.direct_bytes_min.unwrap_or(u64::MAX);
            prop_assert!(from(cheap) <= from(dear));
            prop_assert_eq!(cheap.uncached_bytes_min, dear.uncached_bytes_min);
            for bytes in [cheap.uncached_bytes_min, cheap.direct_bytes_min].into_iter().flatten() {
                prop_assert!(SIZES.contains(&bytes) && cheap.small_bytes <= bytes);
            }
        }
    }
}
