//! `--with-threshold`: the recorded inputs decided again.

use std::str::FromStr;

use anyhow::{Context, Error, Result, anyhow, bail};
use pool::mode::{Crossover, Policy, Thresholds, decide};

use super::ReplicaIo;
use crate::quota::parse_amount;

/// One `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    key: Key,
    value: Value,
}

/// The thresholds that the rule reads. Those of contention are absent: they are applied before, and the rule reads whether
/// the file is contended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Policy,
    Class(Class, Size),
    StableDirect,
    ContendedDirect,
    TightUncached,
    TightDirect,
    UnalignedDirect,
    HotPercent,
    CachedFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Write,
    ReadSequential,
    ReadRandom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Small,
    Uncached,
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Policy(Policy),
    /// Bytes or percent.
    Number(u64),
    /// At no size, never.
    None,
}

const KEYS: [(&str, Key); 17] = [
    ("policy", Key::Policy),
    ("write.small_bytes", Key::Class(Class::Write, Size::Small)),
    ("write.uncached_bytes_min", Key::Class(Class::Write, Size::Uncached)),
    ("write.direct_bytes_min", Key::Class(Class::Write, Size::Direct)),
    ("read_sequential.small_bytes", Key::Class(Class::ReadSequential, Size::Small)),
    ("read_sequential.uncached_bytes_min", Key::Class(Class::ReadSequential, Size::Uncached)),
    ("read_sequential.direct_bytes_min", Key::Class(Class::ReadSequential, Size::Direct)),
    ("read_random.small_bytes", Key::Class(Class::ReadRandom, Size::Small)),
    ("read_random.uncached_bytes_min", Key::Class(Class::ReadRandom, Size::Uncached)),
    ("read_random.direct_bytes_min", Key::Class(Class::ReadRandom, Size::Direct)),
    ("stable_direct_bytes_min", Key::StableDirect),
    ("contended_direct_bytes_min", Key::ContendedDirect),
    ("tight_uncached_bytes_min", Key::TightUncached),
    ("tight_direct_bytes_min", Key::TightDirect),
    ("unaligned_direct_bytes_min", Key::UnalignedDirect),
    ("hot_percent", Key::HotPercent),
    ("cached_file_bytes_max", Key::CachedFile),
];

impl FromStr for Change {
    type Err = Error;

    fn from_str(text: &str) -> Result<Change> {
        let told = || format!("--with-threshold {text}");
        let (name, value) =
            text.split_once('=').ok_or_else(|| anyhow!("write it as KEY=VALUE")).with_context(told)?;
        let Some((_, key)) = KEYS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
            bail!("--with-threshold {text}: there is no threshold {name:?}; there are {}", known.join(", "));
        };
        Ok(Change { key: *key, value: key.value(value).with_context(told)? })
    }
}

impl Key {
    fn value(self, text: &str) -> Result<Value> {
        match self {
            Key::Policy => Ok(Value::Policy(text.parse().map_err(|error: String| anyhow!(error))?)),
            _ if text == "none" && self.may_be_none() => Ok(Value::None),
            Key::HotPercent => match text.parse() {
                Ok(percent @ 0..=100) => Ok(Value::Number(percent)),
                _ => bail!("{text:?} is not a number from 0 to 100"),
            },
            _ => Ok(Value::Number(parse_amount(text)?)),
        }
    }

    fn may_be_none(self) -> bool {
        match self {
            Key::Class(_, Size::Uncached | Size::Direct)
            | Key::StableDirect
            | Key::ContendedDirect
            | Key::TightUncached
            | Key::TightDirect => true,
            Key::Policy
            | Key::Class(_, Size::Small)
            | Key::UnalignedDirect
            | Key::HotPercent
            | Key::CachedFile => false,
        }
    }
}

impl Change {
    fn apply(&self, to: &mut Thresholds) {
        let number = match self.value {
            // A rule of its own has its own numbers, which further changes may replace.
            Value::Policy(policy) => return *to = policy.thresholds(*to),
            Value::Number(number) => Some(number),
            Value::None => None,
        };
        let required = number.unwrap_or(u64::MAX);
        match self.key {
            Key::Policy => {}
            Key::Class(class, size) => {
                let Crossover { small_bytes, uncached_bytes_min, direct_bytes_min } = class.of(to);
                match size {
                    Size::Small => *small_bytes = required,
                    Size::Uncached => *uncached_bytes_min = number,
                    Size::Direct => *direct_bytes_min = number,
                }
            }
            Key::StableDirect => to.stable_direct_bytes_min = number,
            Key::ContendedDirect => to.contended_direct_bytes_min = number,
            Key::TightUncached => to.tight_uncached_bytes_min = number,
            Key::TightDirect => to.tight_direct_bytes_min = number,
            Key::UnalignedDirect => to.unaligned_direct_bytes_min = required,
            Key::HotPercent => to.hot_percent = u8::try_from(required).unwrap_or(u8::MAX),
            Key::CachedFile => to.cached_file_bytes_max = required,
        }
    }
}

impl Class {
    fn of(self, thresholds: &mut Thresholds) -> &mut Crossover {
        match self {
            Class::Write => &mut thresholds.write,
            Class::ReadSequential => &mut thresholds.read_sequential,
            Class::ReadRandom => &mut thresholds.read_random,
        }
    }
}

impl ReplicaIo {
    /// In the order in which the changes were given.
    pub fn replay(&mut self, changes: &[Change]) {
        let mut thresholds = self.thresholds;
        changes.iter().for_each(|change| change.apply(&mut thresholds));
        for decided in &mut self.decisions {
            decided.replayed = Some(decide(&decided.inputs, &thresholds));
        }
        self.with_thresholds = Some(thresholds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(texts: &[&str]) -> Thresholds {
        let mut thresholds = Thresholds::uncalibrated();
        texts.iter().for_each(|text| text.parse::<Change>().unwrap().apply(&mut thresholds));
        thresholds
    }

    #[test]
    fn each_key_changes_the_threshold_of_its_name_and_no_other() {
        let known = serde_json::to_value(Thresholds::uncalibrated()).unwrap();
        for (name, key) in KEYS {
            if key == Key::Policy {
                continue;
            }
            let thresholds = serde_json::to_value(changed(&[&format!("{name}=7")])).unwrap();
            let mut wanted = known.clone();
            *wanted.pointer_mut(&format!("/{}", name.replace('.', "/"))).unwrap() = 7.into();
            assert_eq!(thresholds, wanted, "{name}");
        }
    }

    #[test]
    fn a_policy_brings_its_own_numbers_and_the_next_change_replaces_one() {
        let paper = changed(&["policy=paper", "write.direct_bytes_min=64k"]);
        assert_eq!(paper.policy, Policy::Paper);
        assert_eq!(paper.read_random, Thresholds::paper().read_random);
        assert_eq!(paper.write.direct_bytes_min, Some(64 << 10));
    }

    #[test]
    fn none_takes_away_a_size_where_the_rule_can_do_without() {
        assert_eq!(changed(&["tight_direct_bytes_min=none"]).tight_direct_bytes_min, None);
        assert!("write.small_bytes=none".parse::<Change>().is_err());
    }

    #[test]
    fn a_mistake_is_told_with_what_would_be_right() {
        let told = |text: &str| format!("{:#}", text.parse::<Change>().unwrap_err());
        assert_eq!(told("policy"), "--with-threshold policy: write it as KEY=VALUE");
        assert!(
            told("size=3").contains("there is no threshold \"size\"; there are policy, write.small_bytes")
        );
        assert!(told("policy=fast").contains("use auto, buffered"));
        assert!(told("hot_percent=101").contains("0 to 100"));
        assert!(told("write.direct_bytes_min=big").contains("not an amount"));
    }
}
