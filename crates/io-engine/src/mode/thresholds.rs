//! The sizes at which the rule changes the mode, and the policy that names the rule.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All numbers of the rule. They are calibrated per device, so every pool has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    pub policy: Policy,
    pub write: Crossover,
    pub read_sequential: Crossover,
    /// Strided and backward reads too: the kernel's read-ahead follows none of them.
    pub read_random: Crossover,
    /// A write that must be on disk when it is answered is direct from this size. `None`: as any other write.
    pub stable_direct_bytes_min: Option<u64>,
    /// Writes of a contended file are direct from this size. `None`: contention changes nothing.
    pub contended_direct_bytes_min: Option<u64>,
    /// If memory or the headroom for dirty pages is short, requests are uncached from this size. `None`: as at all times.
    pub tight_uncached_bytes_min: Option<u64>,
    /// If memory or the headroom for dirty pages is short, requests are direct from this size. `None`: as at all times.
    pub tight_direct_bytes_min: Option<u64>,
    /// A request whose offset or memory is not aligned is direct from this size at the earliest, because its edges go
    /// through the page cache and its bytes are copied.
    pub unaligned_direct_bytes_min: u64,
    /// A read is hot if the page cache has this part of its range.
    pub hot_percent: u8,
    /// Reuse counts only for files up to this size: a larger one pushes its own pages out before they are used again.
    pub cached_file_bytes_max: u64,
    pub contention: ContentionThresholds,
}

/// The sizes at which one class of requests changes the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossover {
    /// A shorter request is buffered even under contention and memory pressure.
    pub small_bytes: u64,
    /// Uncached costs less than buffered from this size. `None`: at no size.
    pub uncached_bytes_min: Option<u64>,
    /// Direct costs less than both from this size. `None`: at no size.
    pub direct_bytes_min: Option<u64>,
}

/// As FAST '24 has it: a file is contended after so many conflicting requests in a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentionThresholds {
    pub conflicts_min: u32,
    pub window: Duration,
}

/// The rule that chooses the modes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// All facts, with calibrated thresholds.
    #[default]
    Auto,
    Buffered,
    Uncached,
    Direct,
    /// "autoIO" of Qian et al., FAST '24: size, contention, memory and reuse.
    Paper,
    /// As BeeGFS: size only.
    #[serde(rename = "beegfs")]
    BeeGfs,
}

impl Crossover {
    /// No bypass at any size.
    pub const fn buffered(small_bytes: u64) -> Crossover {
        Crossover { small_bytes, uncached_bytes_min: None, direct_bytes_min: None }
    }

    const fn direct_from(small_bytes: u64, direct_bytes_min: u64) -> Crossover {
        Crossover { small_bytes, uncached_bytes_min: None, direct_bytes_min: Some(direct_bytes_min) }
    }
}

impl Default for ContentionThresholds {
    fn default() -> ContentionThresholds {
        ContentionThresholds { conflicts_min: 16, window: Duration::from_secs(4) }
    }
}

impl Thresholds {
    /// For a pool whose device is not measured: buffered, save requests of 2 MiB or more while memory is tight. FAST '24
    /// uses direct I/O from that size always.
    pub fn uncalibrated() -> Thresholds {
        let buffered = Crossover::buffered(32 * KIB);
        Thresholds {
            policy: Policy::Auto,
            write: buffered,
            read_sequential: buffered,
            read_random: buffered,
            stable_direct_bytes_min: None,
            contended_direct_bytes_min: None,
            tight_uncached_bytes_min: None,
            tight_direct_bytes_min: Some(2 * MIB),
            unaligned_direct_bytes_min: 2 * MIB,
            hot_percent: 50,
            cached_file_bytes_max: 1 << 30,
            contention: ContentionThresholds::default(),
        }
    }

    /// For a pool whose device is measured. The sizes for contention, pressure and unaligned requests follow from the
    /// measured ones by choice: they are not measured themselves.
    pub fn calibrated(write: Crossover, read_sequential: Crossover, read_random: Crossover) -> Thresholds {
        let unaligned_direct_bytes_min =
            write.direct_bytes_min.map_or(2 * MIB, |bytes| bytes.saturating_mul(4));
        Thresholds {
            write,
            read_sequential,
            read_random,
            stable_direct_bytes_min: write.direct_bytes_min,
            // Writers that meet on pages write in parts of pages.
            contended_direct_bytes_min: write.direct_bytes_min.map(|_| unaligned_direct_bytes_min),
            // Classes have their own smallest sizes, and these come first.
            tight_uncached_bytes_min: Some(0),
            // Each class has its own size for direct I/O, which holds under pressure too.
            tight_direct_bytes_min: None,
            unaligned_direct_bytes_min,
            ..Thresholds::uncalibrated()
        }
    }

    /// No request below this size gets another mode than buffered, whatever its facts are. `None`: no request does.
    pub fn bypass_bytes_min(&self) -> Option<u64> {
        let classes = [self.write, self.read_sequential, self.read_random];
        let small = classes.iter().map(|class| class.small_bytes).min().unwrap_or_default();
        let by_class = classes.iter().flat_map(|class| [class.uncached_bytes_min, class.direct_bytes_min]);
        let by_facts = [
            self.stable_direct_bytes_min,
            self.contended_direct_bytes_min,
            self.tight_uncached_bytes_min,
            self.tight_direct_bytes_min,
        ];
        match self.policy {
            Policy::Buffered => None,
            Policy::Uncached | Policy::Direct => Some(0),
            Policy::Auto => by_class.chain(by_facts).flatten().min().map(|least| least.max(small)),
            Policy::Paper => Some(small),
            Policy::BeeGfs => by_class.flatten().min(),
        }
    }

    /// FAST '24: direct from 2 MiB, buffered below 32 KiB; between, direct if the file is contended, memory is tight or
    /// the bytes are used once.
    pub fn paper() -> Thresholds {
        let crossover = Crossover::direct_from(32 * KIB, 2 * MIB);
        Thresholds {
            policy: Policy::Paper,
            write: crossover,
            read_sequential: crossover,
            read_random: crossover,
            unaligned_direct_bytes_min: 0,
            ..Thresholds::uncalibrated()
        }
    }

    /// BeeGFS with its default buffer of 512 KiB: buffered below, direct from there.
    pub fn beegfs() -> Thresholds {
        let crossover = Crossover::direct_from(512 * KIB, 512 * KIB);
        Thresholds {
            policy: Policy::BeeGfs,
            write: crossover,
            read_sequential: crossover,
            read_random: crossover,
            unaligned_direct_bytes_min: 0,
            ..Thresholds::uncalibrated()
        }
    }
}

impl Policy {
    pub const ALL: [Policy; 6] =
        [Policy::Auto, Policy::Buffered, Policy::Uncached, Policy::Direct, Policy::Paper, Policy::BeeGfs];

    /// The thresholds under this policy. `calibrated`: those of the pool's device, or `Thresholds::uncalibrated`.
    pub fn thresholds(self, calibrated: Thresholds) -> Thresholds {
        match self {
            Policy::Paper => Thresholds::paper(),
            Policy::BeeGfs => Thresholds::beegfs(),
            Policy::Auto | Policy::Buffered | Policy::Uncached | Policy::Direct => {
                Thresholds { policy: self, ..calibrated }
            }
        }
    }

    /// The name in configuration.
    pub fn label(self) -> &'static str {
        match self {
            Policy::Auto => "auto",
            Policy::Buffered => "buffered",
            Policy::Uncached => "uncached",
            Policy::Direct => "direct",
            Policy::Paper => "paper",
            Policy::BeeGfs => "beegfs",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        Policy::ALL.into_iter().find(|policy| policy.label() == text).ok_or_else(|| {
            format!("{text:?} is no I/O policy: use auto, buffered, uncached, direct, paper or beegfs")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("{:?}", policy.label()));
        }
        assert!("Direct".parse::<Policy>().unwrap_err().contains("use auto, buffered"));
    }

    #[test]
    fn a_forced_policy_keeps_the_calibrated_numbers_and_a_named_rule_has_its_own() {
        let calibrated = Thresholds { hot_percent: 77, ..Thresholds::uncalibrated() };
        assert_eq!(Policy::Direct.thresholds(calibrated).hot_percent, 77);
        assert_eq!(Policy::Auto.thresholds(Thresholds::paper()).policy, Policy::Auto);
        assert_eq!(Policy::Paper.thresholds(calibrated), Thresholds::paper());
        assert_eq!(Policy::BeeGfs.thresholds(calibrated), Thresholds::beegfs());
    }

    #[test]
    fn thresholds_survive_being_recorded() {
        for thresholds in [Thresholds::uncalibrated(), Thresholds::paper(), Thresholds::beegfs()] {
            let text = serde_json::to_string(&thresholds).unwrap();
            assert_eq!(serde_json::from_str::<Thresholds>(&text).unwrap(), thresholds);
        }
    }
}
