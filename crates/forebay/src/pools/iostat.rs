//! `forebay pool iostat`: the operations and bytes of each pool by kind, mode of I/O and reason.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use pool::{DecisionCount, IoReport};
use serde::{Deserialize, Serialize};
use types::PoolId;
use types::display::Size;

use super::number;
use crate::cli::IostatArguments;
use crate::control::{self, Request};
use crate::output;
use crate::table::{Column, Table};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolIo {
    /// `pool-0`.
    pub name: String,
    /// `pools.io`.
    pub policy: String,
    /// The modes that kernel and file system have.
    pub modes: Vec<String>,
    pub decisions: Vec<Decisions>,
}

/// Requests of one kind that one rule gave one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    pub kind: String,
    pub mode: String,
    pub reason: String,
    pub operations: u64,
    pub bytes: u64,
}

#[derive(Serialize)]
struct Statistics {
    pools: Vec<PoolIo>,
}

pub fn run(arguments: &IostatArguments) -> Result<ExitCode> {
    let wanted = arguments.pool.as_deref().map(number).transpose()?;
    let Some(interval_s) = arguments.interval else {
        output::print(arguments.output, &Statistics { pools: ask(arguments, wanted)? }, Statistics::text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut before = ask(arguments, wanted)?;
    let mut left = arguments.count;
    while left != Some(0) {
        std::thread::sleep(Duration::from_secs(interval_s));
        let now = ask(arguments, wanted)?;
        let pools = now.iter().map(|pool| pool.since(&before)).collect();
        output::print(arguments.output, &Statistics { pools }, Statistics::text)?;
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(arguments: &IostatArguments, wanted: Option<u32>) -> Result<Vec<PoolIo>> {
    let data = arguments.place.config()?.data;
    let Some(mut pools) = control::ask::<Vec<PoolIo>>(&data, Request::Iostat)? else {
        bail!("no instance runs on {}: the counts begin anew with each start", data.display());
    };
    if let Some(wanted) = wanted {
        pools.retain(|pool| pool.name == PoolId(wanted).to_string());
        if pools.is_empty() {
            bail!("there is no pool-{wanted} (`forebay pool list` tells which there are)");
        }
    }
    Ok(pools)
}

impl PoolIo {
    pub fn new(id: PoolId, report: IoReport) -> PoolIo {
        let modes = [
            ("buffered", true),
            ("uncached", report.is_uncached_possible),
            ("direct", report.is_direct_possible),
        ];
        PoolIo {
            name: id.to_string(),
            policy: report.policy.to_string(),
            modes: modes
                .iter()
                .filter(|(_, is_there)| *is_there)
                .map(|(mode, _)| (*mode).to_owned())
                .collect(),
            decisions: report.decisions.iter().map(Decisions::from).collect(),
        }
    }

    /// The decisions of the time between two reports of the same pool.
    fn since(&self, earlier: &[PoolIo]) -> PoolIo {
        let before: HashMap<_, _> = earlier
            .iter()
            .filter(|pool| pool.name == self.name)
            .flat_map(|pool| &pool.decisions)
            .map(|counted| (counted.key(), (counted.operations, counted.bytes)))
            .collect();
        let decisions = self.decisions.iter().filter_map(|counted| {
            let (operations, bytes) = before.get(&counted.key()).copied().unwrap_or_default();
            // Of a server that was started anew meanwhile.
            let operations = counted.operations.checked_sub(operations).unwrap_or(counted.operations);
            let bytes = counted.bytes.checked_sub(bytes).unwrap_or(counted.bytes);
            (operations > 0).then(|| Decisions { operations, bytes, ..counted.clone() })
        });
        PoolIo { decisions: decisions.collect(), ..self.clone() }
    }
}

impl Decisions {
    fn key(&self) -> (&str, &str, &str) {
        (&self.kind, &self.mode, &self.reason)
    }
}

impl From<&DecisionCount> for Decisions {
    fn from(count: &DecisionCount) -> Decisions {
        Decisions {
            kind: count.kind.label().to_owned(),
            mode: count.mode.to_owned(),
            reason: count.reason.to_owned(),
            operations: count.operations,
            bytes: count.bytes,
        }
    }
}

impl Statistics {
    fn text(&self) -> String {
        let mut text = String::new();
        for pool in &self.pools {
            let modes = pool.modes.join(", ");
            text += &format!("{}: pools.io = \"{}\", possible: {modes}\n", pool.name, pool.policy);
        }
        let mut table = Table::new([
            Column::Text("pool"),
            Column::Text("kind"),
            Column::Text("mode"),
            Column::Text("reason"),
            Column::Number("operations"),
            Column::Number("bytes"),
            Column::Number("% of bytes"),
        ]);
        for pool in &self.pools {
            for counted in &pool.decisions {
                table.row([
                    pool.name.clone(),
                    counted.kind.clone(),
                    counted.mode.clone(),
                    counted.reason.clone(),
                    counted.operations.to_string(),
                    Size(counted.bytes).to_string(),
                    pool.percent(counted),
                ]);
            }
        }
        text + &table.to_string()
    }
}

impl PoolIo {
    /// Of all bytes that were read, or written.
    fn percent(&self, counted: &Decisions) -> String {
        let same = self.decisions.iter().filter(|other| other.kind == counted.kind);
        let all: u64 = same.map(|other| other.bytes).sum();
        if all == 0 { "-".to_owned() } else { format!("{:.1}", 100.0 * counted.bytes as f64 / all as f64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(kind: &str, mode: &str, operations: u64, bytes: u64) -> Decisions {
        let (kind, mode, reason) = (kind.to_owned(), mode.to_owned(), "small".to_owned());
        Decisions { kind, mode, reason, operations, bytes }
    }

    fn pool(decisions: Vec<Decisions>) -> PoolIo {
        PoolIo {
            name: "pool-0".to_owned(),
            policy: "auto".to_owned(),
            modes: vec!["buffered".to_owned()],
            decisions,
        }
    }

    #[test]
    fn an_interval_shows_what_came_in_it() {
        let before = [pool(vec![counted("read", "buffered", 5, 50), counted("write", "direct", 9, 900)])];
        let now = pool(vec![
            counted("read", "buffered", 7, 80),
            counted("write", "buffered", 1, 2),
            counted("write", "direct", 9, 900),
        ]);
        let shown = now.since(&before);
        assert_eq!(shown.decisions, [counted("read", "buffered", 2, 30), counted("write", "buffered", 1, 2)]);
        let restarted = pool(vec![counted("read", "buffered", 1, 10)]);
        assert_eq!(restarted.since(&before).decisions, restarted.decisions);
    }

    #[test]
    fn the_table_has_a_row_for_each_decision_and_shares_of_each_kind() {
        let pools = vec![pool(vec![
            counted("read", "buffered", 3, 4096),
            counted("write", "buffered", 1, 1024),
            counted("write", "direct", 1, 3 << 10),
        ])];
        let text = Statistics { pools }.text();
        assert!(text.starts_with("pool-0: pools.io = \"auto\", possible: buffered\n"), "{text}");
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["pool-0", "read", "buffered", "small", "3", "4.0", "KiB", "100.0"]);
        assert_eq!(rows[2], ["pool-0", "write", "direct", "small", "1", "3.0", "KiB", "75.0"]);
    }
}
