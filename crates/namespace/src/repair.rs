//! Repairs of a namespace that nobody serves, behind `forebay fsck --repair`.
//!
//! Each kind of problem is mended in one transaction: problems that its rules find are mended until they find none.
//! Removed rows are in a log on disk before the commit. Files and directories that cannot be reached get a name in
//! `/lost+found`. After any change clients drop their caches: the next start raises all change attributes.

mod load;
mod lost_found;
mod mend;
mod replicas;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use api::NamespaceError;
use thiserror::Error;
use types::Clock;

use crate::check::{Kind, Problem, counts, find};
use crate::service::SqlNamespace;
use crate::session::{Purpose, Session};
use crate::store::{StoreError, StoreResult};

pub use load::{FileFacts, Load, UNFINISHED};
pub use replicas::Stray;

/// Log of a repair: each problem, and how it was mended.
pub trait RepairLog {
    fn note(&mut self, was: &str, made: &str) -> io::Result<()>;
    /// Syncs all notes to disk. Called before the repair is committed.
    fn secure(&mut self) -> io::Result<()>;
}

#[derive(Debug, Error)]
pub enum RepairError {
    #[error("{0}")]
    Database(#[from] StoreError),
    #[error("cannot write the log of repairs: {0}")]
    Log(#[from] io::Error),
    #[error("damaged pages cannot be repaired; restore a backup, or build the namespace anew from the pools")]
    Pages,
    #[error("repair of {0} makes no progress; nothing was changed")]
    NoProgress(&'static str),
}

pub struct Repairs {
    session: Box<dyn Session>,
    clock: Arc<dyn Clock>,
}

/// Kinds that follow from other repairs, counted anew after them.
const CONSEQUENCES: [Kind; 4] = [Kind::Homes, Kind::LinkCounts, Kind::Totals, Kind::Usage];

impl SqlNamespace {
    /// Of a namespace that was closed. Blocks.
    pub fn repairs(&self) -> Result<Repairs, NamespaceError> {
        assert!(self.committer.lock().is_none(), "only a closed namespace is repaired");
        let session = self.reads.session(Purpose::Change)?;
        Ok(Repairs { session, clock: Arc::clone(&self.shared.clock) })
    }
}

impl Repairs {
    /// Problems of a kind, as many as are reported at once.
    pub fn find(&mut self, kind: Kind) -> Result<Vec<Problem>, RepairError> {
        Ok(find(&mut *self.session, kind)?)
    }

    /// Mends all problems of a kind; how many there were.
    pub fn mend(&mut self, kind: Kind, log: &mut dyn RepairLog) -> Result<u64, RepairError> {
        if kind == Kind::Database {
            return Err(RepairError::Pages);
        }
        let now = self.clock.now();
        self.transaction(log, |session, log| mend_all(session, kind, now, log))
    }

    /// After repairs: what is counted is counted anew.
    pub fn settle(&mut self, log: &mut dyn RepairLog) -> Result<u64, RepairError> {
        let now = self.clock.now();
        self.transaction(log, |session, log| {
            let mut mended = 0;
            for kind in CONSEQUENCES {
                mended += mend_all(session, kind, now, log)?;
            }
            Ok(mended)
        })
    }

    /// All of `work` with its log, or nothing.
    fn transaction(
        &mut self,
        log: &mut dyn RepairLog,
        work: impl FnOnce(&mut dyn Session, &mut dyn RepairLog) -> Result<u64, RepairError>,
    ) -> Result<u64, RepairError> {
        self.session.transaction(|session| {
            let done = work(session, log)?;
            if done > 0 {
                distrust_caches(session)?;
                log.secure()?;
            }
            Ok(done)
        })
    }
}

fn mend_all(
    session: &mut dyn Session,
    kind: Kind,
    now: types::Timestamp,
    log: &mut dyn RepairLog,
) -> Result<u64, RepairError> {
    if kind == Kind::Usage {
        counts::fold(session)?;
    }
    let (mut mended, mut before) = (0, Vec::new());
    loop {
        let problems = find(session, kind)?;
        if problems.is_empty() {
            return Ok(mended);
        }
        if problems == before {
            return Err(RepairError::NoProgress(kind.title()));
        }
        for problem in &problems {
            let made = mend::mend(session, problem, now)?;
            log.note(&problem.to_string(), &made)?;
        }
        mended += problems.len() as u64;
        before = problems;
    }
}

/// As after an end by which anything may have been lost: the next start shows change attributes above all earlier ones.
fn distrust_caches(session: &mut dyn Session) -> StoreResult<()> {
    set_meta(session, "clean_end", 0)?;
    set_meta(session, "deferred", 1)
}

pub fn set_meta(session: &mut dyn Session, key: &str, value: i64) -> StoreResult<()> {
    session.run(&format!(
        "INSERT INTO meta VALUES ('{key}', {value}) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    ))?;
    Ok(())
}

pub fn meta(session: &mut dyn Session, key: &str) -> StoreResult<Option<i64>> {
    session.number(&format!("SELECT value FROM meta WHERE key = '{key}'"))
}
