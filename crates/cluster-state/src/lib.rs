//! Rules of heads and pools on different hosts: when a pool may honour tickets to write, and when the head may go on without it.
//!
//! The head keeps a [`PoolAtHead`] for each pool: its session, its [`HeadLease`] with the fences that it missed, and the terms
//! that it holds. A pool host keeps a [`HeldLease`] and a floor of terms. Floor 2: callers tell the time and carry the
//! messages, in `cluster` over connections and in the simulator over a network that loses them.

mod at_head;
mod lease;
mod new_files;
mod terms;

pub use at_head::{PoolAtHead, Renewal, SessionId};
pub use lease::{Arrival, Full, HeadLease, HeldLease, LeaseRules, Process, Refusal, Standing};
pub use new_files::NewFiles;
pub use terms::{HeldTerms, Terms};
