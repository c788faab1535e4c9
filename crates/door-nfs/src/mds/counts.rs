//! Counts of grants and of the outcomes of recalls since the start, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use nfs4::NfsStat4;
use nfs4_state::stateid::Granted;

use crate::callback::CallbackError;

/// Of layouts, of delegations, and of questions for all layouts of a client.
#[derive(Default)]
pub(crate) struct Counts {
    layouts: Counters,
    delegations: Counters,
    all_layouts: Counters,
}

#[derive(Default)]
struct Counters {
    granted: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
    unanswered: AtomicU64,
    revoked: AtomicU64,
    contended: AtomicU64,
}

/// Of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantCounts {
    pub granted: u64,
    /// Recalls that were sent; one that was not heard is sent again.
    pub sent: u64,
    pub answered: u64,
    /// The client could not be reached, or did not answer in time.
    pub unanswered: u64,
    /// Revoked since it was not returned in time.
    pub revoked: u64,
    /// Not granted since writers of the file contended for it. Of delegations to write.
    pub contended: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Granted,
    Sent,
    Answered,
    Unanswered,
    Revoked,
    Contended,
}

impl Step {
    /// The step for the outcome of a recall. `None`: it was not sent after all, and so is not unanswered.
    pub fn of_answer(answered: Result<NfsStat4, CallbackError>) -> Option<Step> {
        match answered {
            Ok(_) => Some(Step::Answered),
            Err(CallbackError::Busy) => None,
            Err(_) => Some(Step::Unanswered),
        }
    }
}

impl Counts {
    pub(super) fn count(&self, granted: Granted, step: Step) {
        let counters = match granted {
            Granted::Layout(_) => &self.layouts,
            Granted::Delegation(_) => &self.delegations,
        };
        counters.count(step);
    }

    /// Of a question for all layouts of a client: each is a recall, of which nothing is granted or revoked.
    pub(super) fn count_all_layouts(&self, step: Step) {
        self.all_layouts.count(step);
    }

    pub fn layouts(&self) -> GrantCounts {
        self.layouts.snapshot()
    }

    pub fn delegations(&self) -> GrantCounts {
        self.delegations.snapshot()
    }

    pub fn all_layouts(&self) -> GrantCounts {
        self.all_layouts.snapshot()
    }
}

impl Counters {
    fn count(&self, step: Step) {
        let counter = match step {
            Step::Granted => &self.granted,
            Step::Sent => &self.sent,
            Step::Answered => &self.answered,
            Step::Unanswered => &self.unanswered,
            Step::Revoked => &self.revoked,
            Step::Contended => &self.contended,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn snapshot(&self) -> GrantCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GrantCounts {
            granted: read(&self.granted),
            sent: read(&self.sent),
            answered: read(&self.answered),
            unanswered: read(&self.unanswered),
            revoked: read(&self.revoked),
            contended: read(&self.contended),
        }
    }
}
