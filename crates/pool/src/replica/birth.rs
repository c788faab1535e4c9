//! The birth of a replica: it belongs to the file that was made then, and to no other with the same id.
//!
//! The birth stands in the label. A replica with an older label takes the birth from the first ticket that may change
//! the replica; the next write of the label records it.

use std::sync::atomic::Ordering;

use api::{Birth, PoolError};

use super::{Claim, Replica};
use crate::parts::PoolParts;

impl Replica {
    pub fn birth(&self) -> Birth {
        Birth(self.birth.load(Ordering::Acquire))
    }

    /// An error if the ticket is fenced, or of another file of this id.
    pub fn check_claim(&self, shared: &PoolParts, claim: Claim) -> Result<(), PoolError> {
        self.check_epoch(claim.epoch)?;
        self.check_birth(shared, claim.birth)
    }

    pub(super) fn check_birth(&self, shared: &PoolParts, birth: Birth) -> Result<(), PoolError> {
        if self.birth().agrees_with(birth) {
            return Ok(());
        }
        Err(self.lost(shared, "its replica is that of another file, which was made at another time"))
    }

    /// From the label, or from a ticket that may change the replica.
    pub(super) fn learn_birth(&self, birth: Birth) {
        let unknown = Birth::UNKNOWN.0;
        let _ = self.birth.compare_exchange(unknown, birth.0, Ordering::AcqRel, Ordering::Acquire);
    }
}
