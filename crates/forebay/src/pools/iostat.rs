//! `forebay pool iostat`: the operations and bytes of each pool by kind, mode of I/O and reason, its write journal,
//! delayed allocation, residency, times, CPU, threads and read-ahead.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use pool::{DecisionCount, IoReport, Latency, QueueLoad, ReadAheadCounts};
use serde::{Deserialize, Serialize};
use types::PoolId;
use types::display::Size;

use super::costs::{KindCpu, Residency, seconds_per_gb};
use super::gathered::Gathered;
use super::number;
use super::times::{Times, nanoseconds};
use super::write_journal::WriteJournal;
use crate::cli::IostatArguments;
use crate::control::{self, Request};
use crate::output::{self, counted};
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
    pub latencies: Vec<KindTimes>,
    pub cpu: Vec<KindCpu>,
    pub residency: Residency,
    /// Files whose writers contend for the same pages now.
    pub contended_files: usize,
    pub lanes: Vec<Lane>,
    pub read_ahead: ReadAheadBytes,
    /// `None`: the pool has none.
    pub journal: Option<WriteJournal>,
    /// `None`: the pool has no delayed allocation.
    pub gathered: Option<Gathered>,
}

/// The times of requests of one kind in one mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindTimes {
    pub kind: String,
    pub mode: String,
    #[serde(flatten)]
    pub times: Times,
}

/// Threads of a pool, and the jobs that wait for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// `data` or `sync`.
    pub lane: String,
    pub threads_max: usize,
    pub busy: usize,
    pub waiting: usize,
    /// Since the start.
    pub waiting_max: usize,
    /// How long jobs waited for a thread.
    pub waits: Times,
    /// CPU time of the threads, syncs and other work included.
    pub cpu_ns: u64,
}

/// Bytes that the pool had the kernel fetch before they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAheadBytes {
    pub advised_bytes: u64,
    /// Read afterwards.
    pub used_bytes: u64,
    /// Not read in time.
    pub wasted_bytes: u64,
    /// Not fetched after all.
    pub dropped_bytes: u64,
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
    let data = arguments.place.config_of_any()?.data;
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
            latencies: report.latencies.iter().map(KindTimes::from).collect(),
            cpu: report.cpu.iter().map(KindCpu::from).collect(),
            residency: report.residency.into(),
            contended_files: report.contended_files,
            lanes: report.lanes.iter().map(|(lane, load)| Lane::new(lane, load)).collect(),
            read_ahead: report.read_ahead.into(),
            journal: report.journal.map(WriteJournal::from),
            gathered: report.gather.map(Gathered::from),
        }
    }

    /// The counts of the time between two reports of the same pool.
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
        let same = || earlier.iter().filter(|pool| pool.name == self.name);
        let latencies = self.latencies.iter().map(|now| {
            let before = same().flat_map(|pool| &pool.latencies);
            let mut before = before.filter(|before| (&before.kind, &before.mode) == (&now.kind, &now.mode));
            KindTimes { times: now.times.since(before.next().map(|before| &before.times)), ..now.clone() }
        });
        let lanes = self.lanes.iter().map(|now| {
            let mut before = same().flat_map(|pool| &pool.lanes).filter(|before| before.lane == now.lane);
            before.next().map_or_else(|| now.clone(), |before| now.since(before))
        });
        let cpu = same().next().map_or(&[][..], |pool| &pool.cpu);
        let residency = same().next().map(|pool| pool.residency);
        let ahead = same().next().map(|pool| pool.read_ahead);
        let journal = same().next().and_then(|pool| pool.journal);
        let gathered = same().next().and_then(|pool| pool.gathered);
        PoolIo {
            decisions: decisions.collect(),
            latencies: latencies.filter(|latency| latency.times.count > 0).collect(),
            cpu: self.cpu.iter().map(|now| now.since(cpu)).collect(),
            residency: self.residency.since(residency.unwrap_or_default()),
            lanes: lanes.collect(),
            read_ahead: self.read_ahead.since(ahead.unwrap_or_default()),
            journal: self.journal.map(|now| now.since(journal.unwrap_or_default())),
            gathered: self.gathered.map(|now| now.since(gathered.unwrap_or_default())),
            ..self.clone()
        }
    }
}

impl ReadAheadBytes {
    fn since(self, earlier: ReadAheadBytes) -> ReadAheadBytes {
        // Of a server that was started anew meanwhile.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        ReadAheadBytes {
            advised_bytes: since(self.advised_bytes, earlier.advised_bytes),
            used_bytes: since(self.used_bytes, earlier.used_bytes),
            wasted_bytes: since(self.wasted_bytes, earlier.wasted_bytes),
            dropped_bytes: since(self.dropped_bytes, earlier.dropped_bytes),
        }
    }
}

impl From<ReadAheadCounts> for ReadAheadBytes {
    fn from(counts: ReadAheadCounts) -> ReadAheadBytes {
        let ReadAheadCounts { issued_bytes, used_bytes, wasted_bytes, dropped_bytes } = counts;
        ReadAheadBytes { advised_bytes: issued_bytes, used_bytes, wasted_bytes, dropped_bytes }
    }
}

impl Decisions {
    fn key(&self) -> (&str, &str, &str) {
        (&self.kind, &self.mode, &self.reason)
    }
}

impl From<&Latency> for KindTimes {
    fn from(latency: &Latency) -> KindTimes {
        KindTimes {
            kind: latency.kind.label().to_owned(),
            mode: latency.mode.label().to_owned(),
            times: Times::new(&latency.times),
        }
    }
}

impl Lane {
    fn since(&self, earlier: &Lane) -> Lane {
        // Of a server that was started anew meanwhile.
        let cpu_ns = self.cpu_ns.checked_sub(earlier.cpu_ns).unwrap_or(self.cpu_ns);
        Lane { waits: self.waits.since(Some(&earlier.waits)), cpu_ns, ..self.clone() }
    }

    fn new(lane: &str, load: &QueueLoad) -> Lane {
        let QueueLoad { threads_max, busy, waiting, waiting_max, ref waits, cpu } = *load;
        Lane {
            lane: lane.to_owned(),
            threads_max,
            busy,
            waiting,
            waiting_max,
            waits: Times::new(waits),
            cpu_ns: nanoseconds(cpu),
        }
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
            text += &match &pool.journal {
                Some(journal) => format!("{}: write journal: {}\n", pool.name, journal.line()),
                None => format!("{}: no write journal\n", pool.name),
            };
            if let Some(gathered) = &pool.gathered {
                text += &format!("{}: delayed allocation: {}\n", pool.name, gathered.line());
            }
            text += &format!("{}: {}\n", pool.name, pool.residency.line());
            text += &format!("{}: {}\n", pool.name, pool.cpu_line());
            if pool.contended_files > 0 {
                let files = counted(pool.contended_files as u64, "file is", "files are");
                text += &format!("{}: {files} contended\n", pool.name);
            }
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
        format!("{text}{table}\n{}\n{}\n{}", self.latencies(), self.lanes(), self.read_ahead())
    }

    fn latencies(&self) -> Table<9> {
        let mut table = Table::new([
            Column::Text("pool"),
            Column::Text("kind"),
            Column::Text("mode"),
            Column::Number("timed"),
            Column::Number("p50"),
            Column::Number("p90"),
            Column::Number("p99"),
            Column::Number("longest"),
            Column::Number("CPU s/GB"),
        ]);
        for pool in &self.pools {
            for KindTimes { kind, mode, times } in &pool.latencies {
                let [p50, p90, p99, longest] = times.cells();
                let cpu = pool.cpu.iter().find(|cpu| cpu.is_like(kind, mode));
                let cpu = cpu.map_or_else(|| "-".to_owned(), KindCpu::cell);
                let (kind, mode, count) = (kind.clone(), mode.clone(), times.count.to_string());
                table.row([pool.name.clone(), kind, mode, count, p50, p90, p99, longest, cpu]);
            }
        }
        table
    }

    fn lanes(&self) -> Table<9> {
        let mut table = Table::new([
            Column::Text("pool"),
            Column::Text("threads"),
            Column::Number("busy"),
            Column::Number("waiting"),
            Column::Number("most"),
            Column::Number("wait p50"),
            Column::Number("p90"),
            Column::Number("p99"),
            Column::Number("longest"),
        ]);
        for pool in &self.pools {
            for lane in &pool.lanes {
                let [p50, p90, p99, longest] = lane.waits.cells();
                let (threads, busy) = (lane.lane.clone(), format!("{}/{}", lane.busy, lane.threads_max));
                let (waiting, most) = (lane.waiting.to_string(), lane.waiting_max.to_string());
                table.row([pool.name.clone(), threads, busy, waiting, most, p50, p90, p99, longest]);
            }
        }
        table
    }

    fn read_ahead(&self) -> Table<5> {
        let mut table = Table::new([
            Column::Text("pool"),
            Column::Number("read ahead"),
            Column::Number("used"),
            Column::Number("wasted"),
            Column::Number("dropped"),
        ]);
        for pool in &self.pools {
            let ReadAheadBytes { advised_bytes, used_bytes, wasted_bytes, dropped_bytes } = pool.read_ahead;
            let sizes = [advised_bytes, used_bytes, wasted_bytes, dropped_bytes];
            let [advised, used, wasted, dropped] = sizes.map(|bytes| Size(bytes).to_string());
            table.row([pool.name.clone(), advised, used, wasted, dropped]);
        }
        table
    }
}

impl PoolIo {
    /// The threads have all work of the pool but reads that the page cache serves at once.
    fn cpu_line(&self) -> String {
        let ns = self.lanes.iter().map(|lane| lane.cpu_ns).fold(0, u64::saturating_add);
        let in_threads = |counted: &&Decisions| {
            !matches!((&*counted.kind, &*counted.reason), ("read", "hot-read" | "sent"))
        };
        let bytes = self.decisions.iter().filter(in_threads).map(|counted| counted.bytes).sum();
        let each = seconds_per_gb(ns, bytes);
        format!("CPU of its threads: {:.3} s, {each} s/GB without hot reads", ns as f64 / 1e9)
    }

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
            latencies: Vec::new(),
            cpu: Vec::new(),
            residency: Residency::default(),
            contended_files: 0,
            lanes: Vec::new(),
            read_ahead: ReadAheadBytes::default(),
            journal: None,
            gathered: None,
        }
    }

    fn timed(buckets: &[(Duration, u64)]) -> Times {
        let max = buckets.last().unwrap().0;
        Times::new(&pool::IoTimes { buckets: buckets.to_vec(), sum: max, max })
    }

    #[test]
    fn times_and_lanes_have_tables_of_their_own() {
        let ms = Duration::from_millis;
        let mut now = pool(vec![counted("read", "buffered", 3, 4096)]);
        let (kind, mode) = ("read".to_owned(), "buffered".to_owned());
        now.latencies.push(KindTimes { kind, mode, times: timed(&[(ms(1), 2), (ms(20), 1)]) });
        let lane = "data".to_owned();
        let waits = timed(&[(ms(2), 5)]);
        now.lanes.push(Lane {
            lane,
            threads_max: 4,
            busy: 1,
            waiting: 2,
            waiting_max: 9,
            waits,
            cpu_ns: 3_000_000,
        });
        now.cpu.push(KindCpu { kind: "read".to_owned(), mode: "buffered".to_owned(), bytes: 4, cpu_ns: 2 });
        now.residency.resident_bytes = 4096;
        now.contended_files = 1;
        let text = Statistics { pools: vec![now.clone()] }.text();
        assert!(text.contains("pool-0: 4.0 KiB (100.0 %) of 4.0 KiB were in memory when"), "{text}");
        assert!(text.contains("pool-0: CPU of its threads: 0.003 s, 732.422 s/GB without"), "{text}");
        assert!(text.contains("pool-0: 1 file is contended\n"), "{text}");
        let blocks: Vec<&str> = text.split("\n\n").collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        let row = |at: usize| words(blocks[at].lines().nth(1).unwrap());
        assert_eq!(row(1), "pool-0 read buffered 3 1.0 ms 20 ms 20 ms 20 ms 0.500", "{text}");
        assert_eq!(row(2), "pool-0 data 1/4 2 9 2.0 ms 2.0 ms 2.0 ms 2.0 ms", "{text}");
        let idle = now.since(std::slice::from_ref(&now));
        assert!(idle.latencies.is_empty() && idle.lanes[0].waits.count == 0, "{idle:?}");
        assert_eq!((idle.lanes[0].cpu_ns, idle.cpu[0].bytes, idle.residency), (0, 0, Residency::default()));
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
    fn read_ahead_is_shown_for_each_pool_and_for_an_interval() {
        let ahead = |advised_bytes, used_bytes| ReadAheadBytes {
            advised_bytes,
            used_bytes,
            wasted_bytes: 1024,
            dropped_bytes: 0,
        };
        let pool = |read_ahead| PoolIo { read_ahead, ..pool(Vec::new()) };
        let before = [pool(ahead(10 << 10, 5 << 10))];
        let shown = pool(ahead(30 << 10, 20 << 10)).since(&before);
        assert_eq!(shown.read_ahead, ReadAheadBytes { wasted_bytes: 0, ..ahead(20 << 10, 15 << 10) });
        assert_eq!(
            pool(ahead(1, 1)).since(&before).read_ahead,
            ReadAheadBytes { wasted_bytes: 0, ..ahead(1, 1) }
        );
        let text = Statistics { pools: vec![shown] }.text();
        let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(row, ["pool-0", "20.0", "KiB", "15.0", "KiB", "0", "B", "0", "B"], "{text}");
    }

    #[test]
    fn each_pool_has_a_line_about_its_write_journal_also_for_an_interval() {
        let journal =
            |records| WriteJournal { records, syncs: 2, room_bytes: 1 << 20, ..WriteJournal::default() };
        let with = |journal| PoolIo { journal, ..pool(Vec::new()) };
        let shown = with(Some(journal(7))).since(&[with(Some(journal(4)))]);
        let second = |pool: PoolIo| {
            let text = Statistics { pools: vec![pool] }.text();
            text.lines().nth(1).unwrap().to_owned()
        };
        let line = second(shown);
        assert!(line.starts_with("pool-0: write journal: 3 records in 0 syncs, "), "{line}");
        assert_eq!(second(with(None).since(&[with(None)])), "pool-0: no write journal");
    }

    #[test]
    fn a_pool_that_gathers_has_a_line_about_it_also_for_an_interval() {
        let with = |writes| PoolIo {
            gathered: Some(Gathered { writes, bytes: 4096, ..Gathered::default() }),
            ..pool(Vec::new())
        };
        let text = Statistics { pools: vec![with(7).since(&[with(4)]), pool(Vec::new())] }.text();
        let lines: Vec<_> = text.lines().filter(|line| line.contains("delayed allocation")).collect();
        let [line] = &lines[..] else { panic!("{text}") };
        assert!(line.starts_with("pool-0: delayed allocation: 3 writes (0 B) in 0 extents, "), "{line}");
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
            text.lines().skip(5).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["pool-0", "read", "buffered", "small", "3", "4.0", "KiB", "100.0"]);
        assert_eq!(rows[2], ["pool-0", "write", "direct", "small", "1", "3.0", "KiB", "75.0"]);
    }
}
