//! `forebay pool scrub --status`: the last scrub of a pool, and the next one.

use std::process::ExitCode;

use anyhow::{Result, bail};
use pool::{CompleteScrub, ScrubReport};
use serde::{Deserialize, Serialize};
use types::display::Size;
use types::{DateTime, PoolId};

use crate::cli::ScrubArguments;
use crate::control::{self, Request};
use crate::output::{self, counted};
use crate::pools::number;

use super::names_of;

#[derive(Debug, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// `pool-0`.
    pub name: String,
    pub running: bool,
    pub last: Option<CompleteScrub>,
    /// Replicas that an interrupted scrub has examined.
    pub interrupted_after: Option<u64>,
    /// A scrub starts by itself from then on, in seconds since 1970.
    pub due_s: Option<u64>,
    pub bad_replicas: u64,
    /// Of reads and copies that were compared with block sums since the start.
    pub verified_bytes: u64,
    /// Kinds of digests of whole files that scrubs make and compare.
    #[serde(default)]
    pub digests: Vec<String>,
}

pub fn run(arguments: &ScrubArguments) -> Result<ExitCode> {
    let id = number(&arguments.pool)?;
    let data = arguments.place.config_of_any()?.data;
    let Some(status) = control::ask::<ScrubStatus>(&data, Request::ScrubStatus(id))? else {
        bail!("no instance runs on {}: only a running pool can be scrubbed", data.display());
    };
    output::print(arguments.output, &status, ScrubStatus::text)?;
    Ok(if status.bad_replicas == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl ScrubStatus {
    pub fn new(id: PoolId, report: ScrubReport) -> ScrubStatus {
        ScrubStatus {
            name: id.to_string(),
            running: report.is_running,
            last: report.last,
            interrupted_after: report.interrupted,
            due_s: report.due_s,
            bad_replicas: report.bad.len() as u64,
            verified_bytes: report.verified_bytes,
            digests: names_of(&report.digests),
        }
    }

    fn text(&self) -> String {
        let at = |seconds: u64| DateTime::of(i64::try_from(seconds).unwrap_or(i64::MAX));
        let running = if self.running { "a scrub runs" } else { "no scrub runs" };
        let last = self.last.map_or_else(
            || "none".to_owned(),
            |CompleteScrub { begun_s, ended_s, totals }| {
                let replicas = counted(totals.replicas, "replica", "replicas");
                format!("{} to {}, {replicas}, {}", at(begun_s), at(ended_s), Size(totals.read_bytes))
            },
        );
        let mut text = format!("{}: {running}\nlast complete scrub: {last}\n", self.name);
        if let Some(replicas) = self.interrupted_after {
            let replicas = counted(replicas, "replica", "replicas");
            text += &format!("interrupted scrub: the next one continues behind {replicas}\n");
        }
        let due = self.due_s.map_or_else(|| "never".to_owned(), |due_s| at(due_s).to_string());
        text += &format!("next scrub by itself: {due}\n");
        text += &format!("replicas with bad blocks: {}\n", self.bad_replicas);
        let digests = if self.digests.is_empty() { "none".to_owned() } else { self.digests.join(", ") };
        text += &format!("digests of whole files: {digests}\n");
        text += &format!("compared in reads and copies: {}\n", Size(self.verified_bytes));
        text
    }
}

#[cfg(test)]
mod tests {
    use pool::ScrubTotals;
    use types::ChecksumKind;

    use super::*;

    #[test]
    fn the_last_scrub_and_the_next_one_are_told() {
        let totals = ScrubTotals { replicas: 12, read_bytes: 3 << 20, ..ScrubTotals::default() };
        let report = ScrubReport {
            last: Some(CompleteScrub { begun_s: 60, ended_s: 120, totals }),
            interrupted: Some(1),
            due_s: Some(86_400),
            digests: vec![ChecksumKind::Md5, ChecksumKind::Sha256],
            ..ScrubReport::default()
        };
        let expected = "pool-1: no scrub runs\n\
                        last complete scrub: 1970-01-01T00:01:00Z to 1970-01-01T00:02:00Z, 12 replicas, 3.0 MiB\n\
                        interrupted scrub: the next one continues behind 1 replica\n\
                        next scrub by itself: 1970-01-02T00:00:00Z\n\
                        replicas with bad blocks: 0\n\
                        digests of whole files: md5, sha-256\n\
                        compared in reads and copies: 0 B\n";
        assert_eq!(ScrubStatus::new(PoolId(1), report).text(), expected);
        let text = ScrubStatus::new(PoolId(1), ScrubReport::default()).text();
        assert!(text.contains("last complete scrub: none\nnext scrub by itself: never\n"), "{text}");
    }
}
