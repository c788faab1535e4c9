//! `[nfs.delegations]`: which files NFS clients may keep to themselves, and for how long when asked back.

use std::time::Duration;

use anyhow::{Result, bail};
use door_nfs::{DelegationMode, DelegationRules, WriteDelegations};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delegations {
    pub mode: Mode,
    pub write: Write,
    pub window_s: u32,
    pub idle_s: u32,
    pub eviction_files: u32,
    pub active_files: u32,
    pub quiet_s: u32,
    pub recall_s: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Off,
    Adaptive,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Write {
    Off,
    Wanted,
    On,
}

impl Default for Delegations {
    fn default() -> Delegations {
        Delegations {
            mode: Mode::Adaptive,
            write: Write::Wanted,
            window_s: 60,
            idle_s: 600,
            eviction_files: 4_096,
            active_files: 4_096,
            quiet_s: 30,
            recall_s: None,
        }
    }
}

impl Delegations {
    pub fn rules(&self) -> DelegationRules {
        let seconds = |s: u32| Duration::from_secs(s.into());
        DelegationRules {
            mode: match self.mode {
                Mode::Off => DelegationMode::Off,
                Mode::Adaptive => DelegationMode::Adaptive,
                Mode::Always => DelegationMode::Always,
            },
            write: match self.write {
                Write::Off => WriteDelegations::Off,
                Write::Wanted => WriteDelegations::Wanted,
                Write::On => WriteDelegations::On,
            },
            window: seconds(self.window_s),
            idle: seconds(self.idle_s),
            eviction_max: self.eviction_files as usize,
            active_max: self.active_files as usize,
            quiet: seconds(self.quiet_s),
            ..DelegationRules::default()
        }
    }

    /// A delegation that is not given back for so long after it was asked for is taken.
    pub fn recall_time(&self, lease_s: u32) -> Duration {
        Duration::from_secs(self.recall_s.unwrap_or(lease_s).into())
    }

    pub fn validate(&self, within: impl Fn(&str, u64, u64, u64) -> Result<()>) -> Result<()> {
        within("nfs.delegations.window_s", self.window_s.into(), 1, 86_400)?;
        within("nfs.delegations.idle_s", self.idle_s.into(), 1, 86_400)?;
        within("nfs.delegations.eviction_files", self.eviction_files.into(), 1, 1_000_000)?;
        within("nfs.delegations.active_files", self.active_files.into(), 1, 1_000_000)?;
        within("nfs.delegations.quiet_s", self.quiet_s.into(), 0, 3_600)?;
        within("nfs.delegations.recall_s", self.recall_s.unwrap_or(1).into(), 1, 3_600)?;
        if self.idle_s < self.window_s {
            bail!(
                "nfs.delegations.idle_s = {} is less than nfs.delegations.window_s = {}: files would be idle at once",
                self.idle_s,
                self.window_s
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parse(text: &str) -> Result<Config> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("forebay.toml");
        std::fs::write(&file, text)?;
        Config::read(&file)
    }

    fn refusal(text: &str) -> String {
        format!("{:#}", parse(text).unwrap_err())
    }

    #[test]
    fn delegation_settings_default_to_the_rules_of_the_door() {
        let config = Config::default();
        assert_eq!(config.nfs.delegations.rules(), DelegationRules::default());
        assert_eq!(config.nfs.delegations.recall_time(config.nfs.lease_s), Duration::from_secs(90));
    }

    #[test]
    fn every_key_of_delegations_arrives_in_the_rule() {
        let text = "[nfs.delegations]\nmode = \"always\"\nwrite = \"on\"\nwindow_s = 1\nidle_s = 2\neviction_files = 3\n\
                    active_files = 4\nquiet_s = 5\nrecall_s = 6\n";
        let delegations = parse(text).unwrap().nfs.delegations;
        let wanted = DelegationRules {
            mode: DelegationMode::Always,
            write: WriteDelegations::On,
            window: Duration::from_secs(1),
            idle: Duration::from_secs(2),
            eviction_max: 3,
            active_max: 4,
            quiet: Duration::from_secs(5),
            ..DelegationRules::default()
        };
        assert_eq!(delegations.rules(), wanted);
        assert_eq!(delegations.recall_time(90), Duration::from_secs(6));
    }

    #[test]
    fn invalid_delegation_settings_are_refused_in_one_line() {
        let section = |line: &str| format!("[nfs.delegations]\n{line}\n");
        for (line, said) in [
            ("mode = \"on\"", ":2: unknown variant `on`, expected one of `off`, `adaptive`, `always`"),
            ("write = \"yes\"", ":2: unknown variant `yes`, expected one of `off`, `wanted`, `on`"),
            ("window = 1", ":2: unknown field `window`"),
            ("window_s = 0", "nfs.delegations.window_s = 0 is outside 1 to 86400"),
            ("idle_s = 100000", "nfs.delegations.idle_s = 100000 is outside 1 to 86400"),
            ("eviction_files = 0", "nfs.delegations.eviction_files = 0 is outside 1 to 1000000"),
            ("active_files = 1000001", "nfs.delegations.active_files = 1000001 is outside 1 to 1000000"),
            ("quiet_s = 3601", "nfs.delegations.quiet_s = 3601 is outside 0 to 3600"),
            ("recall_s = 0", "nfs.delegations.recall_s = 0 is outside 1 to 3600"),
            ("idle_s = 59", "nfs.delegations.idle_s = 59 is less than nfs.delegations.window_s = 60"),
        ] {
            let refused = refusal(&section(line));
            assert!(refused.contains(said) && !refused.contains('\n'), "{line}: {refused}");
        }
    }
}
