//! Locality: where the data of a file is. It is noted, never concluded: a file without a replica is not one of zeros.
//!
//! Readers match on it exhaustively, so that a new kind of place (an origin, an archive) is an addition that each of them
//! has to answer.

use std::sync::Arc;

use types::{PoolId, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locality {
    /// No byte was ever written, and the length is 0.
    Empty,
    /// In the order of their pools, each pool once, at least one.
    Replicas(Arc<[ReplicaRef]>),
    /// The file has a length and no replica: its data was lost, or it was imported without. Reading it is an error until the
    /// file is replaced as a whole or made empty.
    Lost,
}

/// A replica as the namespace notes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaRef {
    pub pool: PoolId,
    pub state: ReplicaState,
    /// When it came into this state, in whole seconds. 1970: before states were noted.
    pub since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaState {
    /// It has every byte that was acknowledged.
    Good,
    /// It is being made of a good one and lacks some bytes.
    Filling,
    /// It has bytes of an earlier version of the file.
    Stale,
    /// Its pool has lost bytes of it.
    Broken,
    /// Its pool does not have it any more.
    Missing,
}

impl ReplicaState {
    pub const ALL: [ReplicaState; 5] = [
        ReplicaState::Good,
        ReplicaState::Filling,
        ReplicaState::Stale,
        ReplicaState::Broken,
        ReplicaState::Missing,
    ];

    /// As people are told.
    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::Good => "good",
            ReplicaState::Filling => "filling",
            ReplicaState::Stale => "stale",
            ReplicaState::Broken => "broken",
            ReplicaState::Missing => "missing",
        }
    }
}

impl Locality {
    pub fn replicas(&self) -> &[ReplicaRef] {
        match self {
            Locality::Replicas(replicas) => replicas,
            Locality::Empty | Locality::Lost => &[],
        }
    }

    /// Pools that have a replica in whatever state: those to fence, to clear, to drain.
    pub fn pools(&self) -> impl Iterator<Item = PoolId> + '_ {
        self.replicas().iter().map(|replica| replica.pool)
    }

    /// Of the replica at a pool. `None`: there is none.
    pub fn state_at(&self, pool: PoolId) -> Option<ReplicaState> {
        self.replicas().iter().find(|replica| replica.pool == pool).map(|replica| replica.state)
    }

    /// Pools whose replica may be read and written.
    pub fn good_pools(&self) -> impl Iterator<Item = PoolId> + '_ {
        let good = self.replicas().iter().filter(|replica| replica.state == ReplicaState::Good);
        good.map(|replica| replica.pool)
    }
}

impl ReplicaRef {
    pub fn good(pool: PoolId, now: Timestamp) -> ReplicaRef {
        ReplicaRef::new(pool, ReplicaState::Good, now)
    }

    pub fn new(pool: PoolId, state: ReplicaState, now: Timestamp) -> ReplicaRef {
        ReplicaRef { pool, state, since: Timestamp::from_seconds(now.seconds) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_good_replicas_are_read_and_all_of_them_are_fenced() {
        let since = Timestamp::EPOCH;
        let replicas = ReplicaState::ALL.iter().zip(1..).map(|(state, pool)| ReplicaRef {
            pool: PoolId(pool),
            state: *state,
            since,
        });
        let locality = Locality::Replicas(replicas.collect());
        assert_eq!(locality.good_pools().collect::<Vec<_>>(), [PoolId(1)]);
        assert_eq!(locality.pools().count(), ReplicaState::ALL.len());
    }

    #[test]
    fn the_state_of_a_replica_is_noted_to_the_second() {
        let now = Timestamp::new(7, 999).unwrap();
        assert_eq!(ReplicaRef::good(PoolId(1), now).since, Timestamp::new(7, 0).unwrap());
    }
}
