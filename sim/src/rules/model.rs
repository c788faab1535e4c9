//! The history so far, and whether a step may be: asked in true time.

use std::fmt;

use api::Term;
use types::{Epoch, FileId};

use super::plan::FILES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A ticket of an earlier epoch is good for a write after the head went on past the fence.
    Fence,
    /// A ticket of a term that was declared settled is good for a write.
    Term,
    /// The head took a lease for over that the pool holds.
    Lease,
    /// A copy of a pool's directory was let in beside the original.
    Copy,
    /// A request of a session that is over counted, or one of the session of now did not.
    Session,
    /// Tickets that should be good were refused.
    Refusal,
    /// Something takes longer than it may.
    Wait,
    /// More fences are kept than files exist.
    Bound,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub check: Check,
    /// `None`: it is about the head, or about several.
    pub pool: Option<usize>,
    pub what: String,
}

impl Failure {
    pub fn of(check: Check, pool: usize, what: impl fmt::Display) -> Failure {
        Failure { check, pool: Some(pool), what: format!("pool {pool} {what}") }
    }
}

/// A right to write, as a client has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub file: FileId,
    pub epoch: Epoch,
    pub term: Term,
}

#[derive(Default)]
pub struct Model {
    /// By file: the epoch below which the head has gone on, and the term in which it did.
    fenced: [Option<(Epoch, Term)>; FILES],
    settled: u64,
}

/// The file's place in what is kept by file.
pub fn place(file: FileId) -> usize {
    file.0 as usize
}

impl Model {
    pub fn went_on(&mut self, file: FileId, epoch: Epoch, term: Term) {
        let fenced = &mut self.fenced[place(file)];
        if fenced.is_none_or(|(before, _)| before < epoch) {
            *fenced = Some((epoch, term));
        }
    }

    pub fn is_settled(&mut self, term: Term) {
        self.settled = self.settled.max(term.0);
    }

    /// `does` tells what the pool does with the ticket.
    pub fn judge(&self, pool: usize, does: &str, ticket: Ticket) -> Result<(), Failure> {
        let Ticket { file, epoch, term } = ticket;
        if let Some((fenced, _)) = self.fenced[place(file)]
            && epoch < fenced
        {
            let what =
                format!("{does} a write of epoch {} to {file}, which is fenced below {}", epoch.0, fenced.0);
            return Err(Failure::of(Check::Fence, pool, what));
        }
        if term.0 < self.settled {
            let what = format!("{does} a write of term {}, and term {} is settled", term.0, self.settled);
            return Err(Failure::of(Check::Term, pool, what));
        }
        Ok(())
    }

    /// Of the void tickets to a file those that a pool would refuse last. A client may have kept them.
    pub fn last_void(&self, file: FileId) -> impl Iterator<Item = Ticket> {
        let fenced = self.fenced[place(file)];
        let fenced = fenced.map(|(epoch, term)| Ticket { file, epoch: Epoch(epoch.0 - 1), term });
        let former = self.settled.checked_sub(1).filter(|term| *term > 0);
        let former = former.map(|term| Ticket { file, epoch: Epoch(u32::MAX), term: Term(term) });
        fenced.into_iter().chain(former)
    }
}
