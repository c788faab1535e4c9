//! How the database keeps the locality of files: the inode says whether there are replicas, and if not, whether something is
//! missing; a row of `locations` says where each replica is.
//!
//! Both are written in one group. A file whose inode promises replicas and that has no row is taken for lost; rows of one
//! that is noted as empty are not read. The check finds both.

use std::sync::Arc;

use api::{Locality, ReplicaRef, ReplicaState};
use types::{PoolId, Timestamp};

/// A field of the extras of a regular file; 0 of anything else.
///
/// It may change without a new `change`: a reader with an older copy sees the locality of a moment ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The number 0, so that a bit that is not set never makes a file one of zeros.
    #[default]
    Replicas,
    Empty,
    /// A length and no replica: readers get an error.
    Lost,
}

impl Placement {
    pub const SHIFT: u32 = 8;
    pub const MASK: u32 = 7;

    /// A number that is not known is that of data that cannot be reached.
    pub fn from_number(number: u32) -> Placement {
        match number {
            0 => Placement::Replicas,
            1 => Placement::Empty,
            _ => Placement::Lost,
        }
    }

    pub fn number(self) -> u32 {
        match self {
            Placement::Replicas => 0,
            Placement::Empty => 1,
            Placement::Lost => 2,
        }
    }

    /// Of a file of this length without a replica.
    pub fn without_replicas(size: u64) -> Placement {
        if size == 0 { Placement::Empty } else { Placement::Lost }
    }

    /// Of a file whose rows are these. A file that has replicas by its inode and none by its rows is not empty.
    pub fn locality(self, replicas: Arc<[ReplicaRef]>) -> Locality {
        match self {
            Placement::Empty => Locality::Empty,
            Placement::Replicas if !replicas.is_empty() => Locality::Replicas(replicas),
            Placement::Replicas | Placement::Lost => Locality::Lost,
        }
    }
}

/// As all databases keep it.
pub fn state_number(state: ReplicaState) -> i16 {
    match state {
        ReplicaState::Good => 1,
        ReplicaState::Filling => 2,
        ReplicaState::Stale => 3,
        ReplicaState::Broken => 4,
        ReplicaState::Missing => 5,
    }
}

/// A replica as its row says. One in a state that is not known is not read: it counts as broken until the check mends it.
pub fn decode_replica(pool: PoolId, state: i64, since: i64) -> ReplicaRef {
    let known = ReplicaState::ALL.into_iter().find(|known| i64::from(state_number(*known)) == state);
    ReplicaRef { pool, state: known.unwrap_or(ReplicaState::Broken), since: Timestamp::from_seconds(since) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_not_known_is_neither_empty_nor_good() {
        for number in 2..=Placement::MASK {
            assert_eq!(Placement::from_number(number), Placement::Lost);
        }
        for state in [-1, 0, 6, 99] {
            assert_eq!(decode_replica(PoolId(1), state, 0).state, ReplicaState::Broken);
        }
    }

    #[test]
    fn states_and_placements_come_back_from_their_numbers() {
        for state in ReplicaState::ALL {
            assert_eq!(decode_replica(PoolId(1), i64::from(state_number(state)), 0).state, state);
        }
        for placement in [Placement::Replicas, Placement::Empty, Placement::Lost] {
            assert_eq!(Placement::from_number(placement.number()), placement);
        }
    }

    #[test]
    fn a_file_that_lost_its_rows_is_not_empty() {
        assert_eq!(Placement::Replicas.locality(Arc::new([])), Locality::Lost);
        assert_eq!(Placement::Empty.locality(Arc::new([])), Locality::Empty);
    }
}
