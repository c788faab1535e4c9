//! The history so far, and whether a step may be: asked in true time.

use std::collections::BTreeMap;
use std::fmt;

use api::Term;
use types::{Epoch, FileId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A write with a ticket of an earlier epoch was honoured after the head went on past the fence.
    Fence,
    /// A write by a term that was declared settled was honoured.
    Term,
    /// The head took a lease for over that the pool holds.
    Lease,
    /// A copy of a pool's directory was let in beside the original.
    Copy,
    /// A pool is not ready long after the last fault, or the head waits for one.
    Wait,
    /// More fences are kept than files exist.
    Bound,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub check: Check,
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.check, self.what)
    }
}

#[derive(Default)]
pub struct Model {
    /// The epoch below which the head has gone on.
    fenced: BTreeMap<FileId, Epoch>,
    settled: u64,
}

impl Model {
    pub fn went_on(&mut self, file: FileId, epoch: Epoch) {
        let fenced = self.fenced.entry(file).or_default();
        *fenced = (*fenced).max(epoch);
    }

    pub fn is_settled(&mut self, term: Term) {
        self.settled = self.settled.max(term.0);
    }

    pub fn honoured(&self, file: FileId, epoch: Epoch, term: Term) -> Result<(), Failure> {
        if let Some(fenced) = self.fenced.get(&file)
            && epoch < *fenced
        {
            let what = format!("a write of epoch {} to {file}, which is fenced below {}", epoch.0, fenced.0);
            return Err(Failure { check: Check::Fence, what });
        }
        if term.0 < self.settled {
            let what = format!("a write of term {} to {file}, and term {} is settled", term.0, self.settled);
            return Err(Failure { check: Check::Term, what });
        }
        Ok(())
    }
}
