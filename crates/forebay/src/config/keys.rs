//! `[keys]`: when the keys of pool tickets are renewed.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyRules {
    pub renew_after_s: u64,
    pub overlap_s: u64,
}

impl Default for KeyRules {
    /// Not by themselves: as long as head and pools are one process, whoever gets a pool's key has the secret as well.
    fn default() -> KeyRules {
        KeyRules { renew_after_s: 0, overlap_s: 86_400 }
    }
}

impl KeyRules {
    /// `None`: only when an administrator says so.
    pub fn renew_after(&self) -> Option<Duration> {
        (self.renew_after_s > 0).then(|| Duration::from_secs(self.renew_after_s))
    }

    /// How long pools accept the keys that were replaced.
    pub fn overlap(&self) -> Duration {
        Duration::from_secs(self.overlap_s)
    }

    pub fn validate(&self, within: impl Fn(&str, u64, u64, u64) -> Result<()>) -> Result<()> {
        within("keys.renew_after_s", self.renew_after_s, 0, 315_360_000)?;
        within("keys.overlap_s", self.overlap_s, 1, 2_592_000)?;
        if (1..self.overlap_s).contains(&self.renew_after_s) {
            bail!(
                "keys.renew_after_s = {} is less than keys.overlap_s = {}: keys would be dropped before the overlap is over",
                self.renew_after_s,
                self.overlap_s
            );
        }
        Ok(())
    }
}
