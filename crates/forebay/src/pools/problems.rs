//! Problems of a pool, with advice to the operator: for `/health`, and for `forebay status` of a pool host.

use admin::instance::Problem;
use api::{Pool, PoolStatus};
use pool::{BadReplica, JournalReport, LocalPool};
use types::PoolId;
use types::display::Size;

use crate::output::counted;

/// Below this share of a pool's space an operator is to do something.
const FREE_SHARE_MIN: f64 = 0.05;
/// Files with bad blocks that a problem names.
const BAD_SHOWN: usize = 3;

pub fn of_status(status: &PoolStatus) -> Option<Problem> {
    let (kind, what, advice) = if let Some(why) = &status.offline {
        let advice = if status.is_away {
            "check its host, `forebay pool up` there, and the network to it; it returns by itself, and its files wait meanwhile"
        } else {
            "check its disk; files whose only replica is there cannot be read"
        };
        ("pool-offline", format!("{} takes no I/O: {why}", status.id), advice)
    } else if let Some(why) = &status.read_only {
        let advice = "check its disk; its files can be read, and the server checks the pool each second";
        ("pool-read-only", format!("{} takes no new files: {why}", status.id), advice)
    } else if (status.free_bytes as f64) < status.total_bytes as f64 * FREE_SHARE_MIN {
        let (free, total) = (Size(status.free_bytes), Size(status.total_bytes));
        let advice = "remove files or add a pool; writes fail when the pool is full";
        ("disk-nearly-full", format!("{} has {free} free of {total}", status.id), advice)
    } else {
        return None;
    };
    Some(Problem { kind, what, advice: advice.to_owned() })
}

/// Of a pool of this process: what scrubs and its write journal have found.
pub fn of_disk(pool: &LocalPool) -> Vec<Problem> {
    let bad = bad_blocks(pool.id(), &pool.scrub_report().bad);
    let journal = pool.journal().and_then(|journal| journal_failed(pool.id(), &journal));
    bad.into_iter().chain(journal).collect()
}

/// Without paths: some users who may read problems may not read paths.
fn bad_blocks(pool: PoolId, bad: &[BadReplica]) -> Option<Problem> {
    if bad.is_empty() {
        return None;
    }
    let shown = bad.iter().take(BAD_SHOWN).map(|bad| match bad.offsets.first() {
        Some(offset) => format!("{} at offset {offset}", bad.file()),
        None => bad.file().to_string(),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = if bad.len() > BAD_SHOWN { ", …" } else { "" };
    let files = counted(bad.len() as u64, "file", "files");
    Some(Problem {
        kind: "bad-blocks",
        what: format!("{pool} has bad blocks in {files}: {shown}{more}"),
        advice: "check its disk; restore or remove the files, which the log and `forebay pool scrub` name"
            .to_owned(),
    })
}

fn journal_failed(pool: PoolId, journal: &JournalReport) -> Option<Problem> {
    journal.has_failed.then(|| Problem {
        kind: "journal-failed",
        what: format!("the write journal of {pool} failed: small stable writes are synced with their files"),
        advice: "check the disk of the journal, then restart the server".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_journal_is_a_problem_once_it_failed_until_a_restart() {
        let journal = |has_failed| JournalReport { has_failed, ..JournalReport::default() };
        assert!(journal_failed(PoolId(3), &journal(false)).is_none());
        let problem = journal_failed(PoolId(3), &journal(true)).unwrap();
        assert_eq!(problem.kind, "journal-failed");
        assert!(problem.what.contains("pool-3") && problem.advice.contains("restart"), "{problem:?}");
    }

    /// The advice was to check a disk that nobody could see.
    #[test]
    fn of_a_pool_whose_host_is_silent_the_host_is_to_be_checked() {
        let status = |is_away| PoolStatus {
            offline: Some("no answer for 40 s".to_owned()),
            is_away,
            ..PoolStatus::untold(PoolId(3))
        };
        let (away, failed) = (of_status(&status(true)).unwrap(), of_status(&status(false)).unwrap());
        assert!(away.advice.contains("host") && !away.advice.contains("disk"), "{away:?}");
        assert!(failed.advice.contains("disk"), "{failed:?}");
        assert_eq!((away.kind, failed.kind), ("pool-offline", "pool-offline"));
        assert!(of_status(&PoolStatus::untold(PoolId(3))).is_none());
    }
}
