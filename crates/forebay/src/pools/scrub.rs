//! `forebay pool scrub`: compares the replicas of a pool with their block sums, on a running instance.

mod schedule;
mod status;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use api::Paths;
use parking_lot::Mutex;
use pool::{
    BadReplica, Cancel, CompleteScrub, LocalPool, ScrubFinding, ScrubFindingKind, ScrubRequest, ScrubTotals,
    ScrubWatch,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use types::display::{Seconds, Size};
use types::{ChecksumKind, FileId, PoolId};

use super::number;
use crate::cli::ScrubArguments;
use crate::control::{self, Request};
use crate::fsck::escaped;
use crate::output::{self, counted};
use crate::progress::{Meter, Unit};
use crate::questions::ScrubQuestion;

pub use self::schedule::run as start_by_itself;
pub use self::status::ScrubStatus;

/// Unless the command says otherwise.
pub const RATE_MIB_S: u64 = 100;
/// For the path of a finding.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
pub struct PoolScrub {
    /// `pool-0`.
    pub name: String,
    /// Seconds since 1970.
    pub begun_s: u64,
    pub ended_s: u64,
    /// Kinds of digests of whole files that were made and compared.
    #[serde(default)]
    pub digests: Vec<String>,
    #[serde(flatten)]
    pub totals: ScrubTotals,
    /// Replicas with bad blocks that are there now, also those of earlier scrubs.
    pub problems: Vec<BadFile>,
    /// Replicas that differed from block sums of before a crash.
    pub remarks: Vec<BadFile>,
}

/// A file with bad blocks, by its place.
#[derive(Debug, Serialize, Deserialize)]
pub struct BadFile {
    /// In hexadecimal.
    pub file: String,
    pub path: Option<String>,
    /// `damaged`, `unreadable`, `doubted`.
    pub state: String,
    pub blocks: u64,
    /// Of the first bad blocks, in bytes.
    pub offsets: Vec<u64>,
}

pub fn run(arguments: &ScrubArguments) -> Result<ExitCode> {
    if arguments.status {
        return status::run(arguments);
    }
    let question = ScrubQuestion {
        pool: number(&arguments.pool)?,
        rate_mib_s: arguments.rate,
        start_over: arguments.start_over,
    };
    let data = arguments.place.config_of_any()?.data;
    let answer = control::ask_showing::<PoolScrub>(&data, Request::Scrub(question), arguments.progress)?;
    let Some(scrub) = answer else {
        bail!("no instance runs on {}: only a running pool can be scrubbed", data.display());
    };
    output::print(arguments.output, &scrub, PoolScrub::text)?;
    Ok(if scrub.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Ends soon after it is dropped.
pub async fn answer(
    pool: &Arc<LocalPool>,
    id: PoolId,
    namespace: Arc<dyn Paths>,
    question: ScrubQuestion,
    meter: &Arc<Meter>,
) -> Result<PoolScrub> {
    let cancel = Cancel::default();
    let _stop = CancelOnDrop(cancel.clone());
    let request = ScrubRequest {
        bytes_per_s: question.rate_mib_s.saturating_mul(1 << 20),
        start_over: question.start_over,
    };
    let teller = Arc::new(Teller {
        id,
        namespace: Arc::clone(&namespace),
        meter: Arc::clone(meter),
        runtime: Handle::current(),
        doubted: Mutex::default(),
    });
    let (scrubbed, watch) = (Arc::clone(pool), Arc::clone(&teller));
    let complete = tokio::task::spawn_blocking(move || scrubbed.scrub(request, &cancel, &*watch)).await?;
    let complete = complete.map_err(|stopped| anyhow!("cannot scrub {id}: {stopped}"))?;
    let report = pool.scrub_report();
    let bad = report.bad.iter().map(finding_of).collect::<Vec<_>>();
    let digests = names_of(&report.digests);
    let doubted = std::mem::take(&mut *teller.doubted.lock());
    let problems = with_paths(&*namespace, bad).await;
    let remarks = with_paths(&*namespace, doubted).await;
    let CompleteScrub { begun_s, ended_s, totals } = complete;
    Ok(PoolScrub { name: id.to_string(), begun_s, ended_s, digests, totals, problems, remarks })
}

fn names_of(kinds: &[ChecksumKind]) -> Vec<String> {
    kinds.iter().map(|kind| kind.name().to_owned()).collect()
}

async fn with_paths(namespace: &dyn Paths, findings: Vec<ScrubFinding>) -> Vec<BadFile> {
    let mut files = Vec::with_capacity(findings.len());
    for finding in findings {
        let path = path_of(namespace, finding.file).await;
        files.push(BadFile::new(finding, path));
    }
    files
}

/// `None`: it has no name, or the namespace does not answer.
async fn path_of(namespace: &dyn Paths, file: FileId) -> Option<String> {
    let paths = tokio::time::timeout(PATIENCE, namespace.paths(&[file])).await.ok()?.ok()?;
    paths.into_iter().next().flatten().map(|path| escaped(&path))
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Counts for the command, and logs what is found when it is found.
struct Teller {
    id: PoolId,
    namespace: Arc<dyn Paths>,
    meter: Arc<Meter>,
    runtime: Handle,
    /// The scrub bounds them. Leaf lock.
    doubted: Mutex<Vec<ScrubFinding>>,
}

impl ScrubWatch for Teller {
    fn begin(&self, done_bytes: u64, total_bytes: u64) {
        self.meter.resume(format!("scrubbing {}", self.id), Unit::Bytes, total_bytes, done_bytes);
    }

    fn advance(&self, done_bytes: u64) {
        self.meter.set(done_bytes);
    }

    fn found(&self, finding: &ScrubFinding) {
        let path = self.runtime.block_on(path_of(&*self.namespace, finding.file));
        let path = path.as_deref().unwrap_or("(no name)");
        let ScrubFinding { file, kind, blocks, offsets } = finding;
        let (pool, offset) = (self.id, offsets.first().copied().unwrap_or_default());
        match kind {
            ScrubFindingKind::Damaged if *blocks == 0 => tracing::error!(
                %pool, %file, path,
                "replica differs from its digests or its block sums: it cannot be read until the file is removed or replaced"
            ),
            ScrubFindingKind::Damaged => tracing::error!(
                %pool, %file, path, offset, blocks,
                "replica differs from its block sums: it cannot be read until the file is removed or replaced"
            ),
            ScrubFindingKind::Unreadable => {
                tracing::error!(%pool, %file, path, offset, blocks, "disk cannot read blocks of a replica");
            }
            ScrubFindingKind::Doubted => {
                tracing::info!(
                    %pool, %file, path, offset, blocks,
                    "replica differs from block sums of before a crash: a late write, or damage"
                );
                self.doubted.lock().push(finding.clone());
            }
        }
    }
}

impl BadFile {
    fn new(finding: ScrubFinding, path: Option<String>) -> BadFile {
        let state = match finding.kind {
            ScrubFindingKind::Damaged => "damaged",
            ScrubFindingKind::Unreadable => "unreadable",
            ScrubFindingKind::Doubted => "doubted",
        };
        let (file, blocks, offsets) = (finding.file.to_string(), finding.blocks, finding.offsets);
        BadFile { file, path, state: state.to_owned(), blocks, offsets }
    }

    fn line(&self, pool: &str) -> String {
        let BadFile { file, path, state, blocks, offsets } = self;
        let said = match state.as_str() {
            "damaged" if *blocks == 0 => {
                "differs from its digests or its block sums and cannot be read until the file is removed or replaced"
            }
            "damaged" => {
                "differs from its block sums and cannot be read until the file is removed or replaced"
            }
            "unreadable" => "has blocks that the disk cannot read",
            _ => "differs from sums of before a crash, by a late write or by damage; it has new sums",
        };
        let mut line = format!("file {file} on {pool} {said}");
        if *blocks > 0 {
            let blocks = counted(*blocks, "block", "blocks");
            let at: Vec<String> = offsets.iter().take(8).map(u64::to_string).collect();
            line += &format!(" ({blocks}, at offset {})", at.join(", "));
        }
        if let Some(path) = path {
            line += &format!(": {path}");
        }
        line
    }
}

impl PoolScrub {
    fn text(&self) -> String {
        let ScrubTotals {
            replicas,
            read_bytes,
            verified,
            summed,
            left_out,
            digests_verified,
            digests_made,
            ..
        } = self.totals;
        let mut text = format!(
            "{}: {} scrubbed, {} read in {}\n",
            self.name,
            counted(replicas, "replica", "replicas"),
            Size(read_bytes),
            Seconds(self.ended_s.saturating_sub(self.begun_s))
        );
        text += &format!("agree with their block sums: {verified}\n");
        text += &format!("have block sums now, had none: {summed}\n");
        text += &format!("have none, written lately or not in order: {left_out}\n");
        if !self.digests.is_empty() {
            let kinds = self.digests.join(", ");
            text += &format!("agree with their digests ({kinds}): {digests_verified}\n");
            text += &format!("have digests now, had none or fewer: {digests_made}\n");
        }
        for problem in &self.problems {
            text += &format!("problem: {}\n", problem.line(&self.name));
        }
        for remark in &self.remarks {
            text += &format!("remark: {}\n", remark.line(&self.name));
        }
        text
    }
}

fn finding_of(bad: &BadReplica) -> ScrubFinding {
    let kind = if bad.is_damaged { ScrubFindingKind::Damaged } else { ScrubFindingKind::Unreadable };
    ScrubFinding { file: bad.file(), kind, blocks: bad.blocks, offsets: bad.offsets.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_file_pool_blocks_and_path() {
        let bad = BadFile {
            file: "0000000000000403".to_owned(),
            path: Some("/projects/run7".to_owned()),
            state: "damaged".to_owned(),
            blocks: 2,
            offsets: vec![65_536, 131_072],
        };
        let scrub = PoolScrub {
            name: "pool-1".to_owned(),
            begun_s: 5,
            ended_s: 66,
            digests: vec!["adler32".to_owned(), "md5".to_owned()],
            totals: ScrubTotals { replicas: 1, read_bytes: 3 << 20, ..ScrubTotals::default() },
            problems: vec![bad],
            remarks: Vec::new(),
        };
        let text = scrub.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "pool-1: 1 replica scrubbed, 3.0 MiB read in 1 min 1 s");
        let expected = "problem: file 0000000000000403 on pool-1 differs from its block sums and cannot be read until the \
                        file is removed or replaced (2 blocks, at offset 65536, 131072): /projects/run7";
        assert_eq!(lines[4], "agree with their digests (adler32, md5): 0");
        assert_eq!(lines[6], expected);
    }
}
