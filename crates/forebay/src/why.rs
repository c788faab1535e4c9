//! `forebay why io`: the last decisions about modes of I/O for a file, on a running instance.
//!
//! The server answers with the inputs of each decision and the thresholds of the pool. The command decides the same
//! inputs again with other thresholds, by the rule that the pools use.

mod replay;
mod show;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use api::{Locality, Locations, Namespace, NamespaceError, Pool};
use namespace::SqlNamespace;
use pool::mode::{Decision, Inputs, Mode, Thresholds};
use pool::{LocalPool, RecordedDecision};
use serde::{Deserialize, Serialize};
use types::calendar::DateTime;
use types::{Clock, FileId, FileKind, PoolId, Timestamp};

use crate::cli::{WhyCommand, WhyIoArguments};
use crate::control::{self, Request};
use crate::{dir, output};
use replay::Change;

#[derive(Debug, Serialize, Deserialize)]
pub struct FileIo {
    pub path: String,
    /// The number of the file, 16 digits, as its replicas are named.
    pub file: String,
    pub size_bytes: u64,
    pub replicas: Vec<ReplicaIo>,
}

/// The decisions of one pool.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReplicaIo {
    /// `pool-0`.
    pub pool: String,
    /// Whether the pool has the file open, or keeps it for the next use.
    pub open: bool,
    pub pinned: Option<Mode>,
    /// Those of now. A decision was taken with those of its time.
    pub thresholds: Thresholds,
    /// The same with `--with-threshold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_thresholds: Option<Thresholds>,
    /// Oldest first.
    pub decisions: Vec<Decided>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Decided {
    /// RFC 3339, in UTC.
    pub time: String,
    #[serde(flatten)]
    pub decision: Decision,
    /// The mode that ran: another one if the file system refused the one that was chosen.
    pub ran: Mode,
    pub inputs: Inputs,
    /// With `--with-threshold`: the decision with those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Decision>,
}

pub fn run(command: &WhyCommand) -> Result<ExitCode> {
    let WhyCommand::Io(arguments) = command;
    io(arguments)?;
    Ok(ExitCode::SUCCESS)
}

fn io(arguments: &WhyIoArguments) -> Result<()> {
    let changes: Vec<Change> =
        arguments.with_thresholds.iter().map(|text| text.parse()).collect::<Result<_>>()?;
    let data = arguments.place.config()?.data;
    let request = Request::WhyIo(arguments.path.clone());
    let Some(mut found) = control::ask::<FileIo>(&data, request)? else {
        bail!("no instance runs on {}: a server remembers decisions only while it runs", data.display());
    };
    if !changes.is_empty() {
        found.replicas.iter_mut().for_each(|replica| replica.replay(&changes));
    }
    output::print(arguments.output, &found, FileIo::text)
}

pub async fn answer(
    namespace: &SqlNamespace,
    pools: &[Arc<LocalPool>],
    clock: &dyn Clock,
    path: &str,
) -> Result<FileIo> {
    let (file, size_bytes) = find(namespace, path).await?;
    let locality = namespace.locality(file).await.with_context(|| path.to_owned())?;
    let places: Vec<PoolId> = match &locality {
        Locality::Empty => bail!("{path} has no replica: it is empty, and nothing was written to it yet"),
        Locality::Lost => bail!("{path} has no replica: its data is lost (`forebay fsck` lists such files)"),
        Locality::Replicas(replicas) => replicas.iter().map(|replica| replica.pool).collect(),
    };
    let replicas = places.iter().filter_map(|id| pools.iter().find(|pool| pool.id() == *id));
    Ok(FileIo {
        path: path.to_owned(),
        file: file.to_string(),
        size_bytes,
        replicas: replicas.map(|pool| ReplicaIo::of(pool, file, clock)).collect(),
    })
}

async fn find(namespace: &SqlNamespace, path: &str) -> Result<(FileId, u64)> {
    let file = dir::find(namespace, path).await.map_err(|error| match error.downcast_ref() {
        Some(NamespaceError::NotFound | NamespaceError::NotDirectory) => {
            anyhow!("{path} does not exist (paths begin at the root of the namespace)")
        }
        _ => error.context(path.to_owned()),
    })?;
    let attributes = namespace.attributes(file).await.with_context(|| path.to_owned())?;
    match attributes.kind {
        FileKind::Regular => Ok((file, attributes.size)),
        FileKind::Directory => bail!("{path} is a directory: name a file in it"),
        FileKind::Symlink => bail!("{path} is a symbolic link: name the file that it leads to"),
        FileKind::BlockDevice(_) | FileKind::CharacterDevice(_) | FileKind::Fifo | FileKind::Socket => {
            bail!("{path} is not a regular file, and has no data in a pool")
        }
    }
}

impl ReplicaIo {
    fn of(pool: &LocalPool, file: FileId, clock: &dyn Clock) -> ReplicaIo {
        let found = pool.file_io(file);
        let (open, pinned) = (found.is_some(), found.as_ref().and_then(|found| found.pinned));
        let (now, now_instant) = (clock.now(), Instant::now());
        let decided = |recorded: RecordedDecision| {
            let RecordedDecision { inputs, decision, ran, at } = recorded;
            let age = now_instant.saturating_duration_since(at);
            let time = DateTime::of(second_of(now, age)).to_string();
            Decided { time, decision, ran, inputs, replayed: None }
        };
        ReplicaIo {
            pool: pool.id().to_string(),
            open,
            pinned,
            thresholds: pool.thresholds(),
            with_thresholds: None,
            decisions: found.into_iter().flat_map(|found| found.recorded).map(decided).collect(),
        }
    }
}

/// The second since 1970 of an event of that age. It does not depend on the moment of the question.
fn second_of(now: Timestamp, age: Duration) -> i64 {
    let age = i128::try_from(age.as_nanos()).unwrap_or(i128::MAX);
    let seconds = now.total_nanoseconds().saturating_sub(age).div_euclid(1_000_000_000);
    i64::try_from(seconds).unwrap_or(i64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_has_the_same_time_whenever_it_is_asked_for() {
        let event_ms = 99_900;
        for age_ms in [0, 50, 150, 400, 1_050, 60_000] {
            let now = Timestamp::from_unix(Duration::from_millis(event_ms + age_ms));
            assert_eq!(second_of(now, Duration::from_millis(age_ms)), 99, "{age_ms}");
        }
    }
}
