//! The pools that a manager knows now, and where their doors listen.
//!
//! Pools come, go, are disabled and change their addresses while clients are served. The list is replaced as a whole with each
//! change: a question sees one state of it and holds no lock while it asks pools. Doors keep no address and no pool.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use thiserror::Error;
use types::{Network, PoolId};

use crate::{Pool, PoolStatus};

/// In the order in which the pools were added.
#[derive(Default)]
pub struct PoolList(RwLock<Arc<State>>);

/// How clients reach the data face of a door at a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face {
    /// An unspecified address (0.0.0.0) stands for the one that the client used to reach the head.
    pub address: SocketAddr,
    /// `None`: the face is in this process, and takes the same clients as the head.
    pub elsewhere: Option<FaceElsewhere>,
}

/// The face of a pool on another host, as that host has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceElsewhere {
    /// In place of the address, as its certificate names it.
    pub name: Option<String>,
    /// It takes encrypted connections.
    pub is_encrypted: bool,
    /// Clients of these may come without encryption.
    pub plain_networks: Vec<Network>,
}

impl Face {
    pub fn here(address: SocketAddr) -> Face {
        Face { address, elsewhere: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PoolListError {
    #[error("{0} is listed already: remove it first")]
    Repeated(PoolId),
    #[error("{0} is not listed")]
    Unlisted(PoolId),
}

#[derive(Clone, Default)]
struct State {
    entries: Vec<Entry>,
    /// Clients may still have layouts there, which are to come back.
    removed: BTreeSet<PoolId>,
}

#[derive(Clone)]
struct Entry {
    pool: Arc<dyn Pool>,
    /// By the names of doors.
    faces: BTreeMap<String, Face>,
    is_disabled: bool,
}

impl PoolList {
    pub fn of(pools: impl IntoIterator<Item = Arc<dyn Pool>>) -> Result<PoolList, PoolListError> {
        let list = PoolList::default();
        pools.into_iter().try_for_each(|pool| list.add(pool))?;
        Ok(list)
    }

    /// Without an address, so that no client is sent there yet.
    pub fn add(&self, pool: Arc<dyn Pool>) -> Result<(), PoolListError> {
        self.change(|state| {
            let id = pool.id();
            if state.entries.iter().any(|entry| entry.pool.id() == id) {
                return Err(PoolListError::Repeated(id));
            }
            state.removed.remove(&id);
            state.entries.push(Entry { pool, faces: BTreeMap::new(), is_disabled: false });
            Ok(())
        })
    }

    /// Files there cannot be reached any more. Calls that have the pool already end as they may.
    pub fn remove(&self, pool: PoolId) -> Result<(), PoolListError> {
        self.change(|state| {
            state.entry(pool)?;
            state.entries.retain(|entry| entry.pool.id() != pool);
            state.removed.insert(pool);
            Ok(())
        })
    }

    /// A disabled pool stays in the list, and nobody goes there: neither clients nor the head.
    pub fn set_disabled(&self, pool: PoolId, is_disabled: bool) -> Result<(), PoolListError> {
        self.change(|state| {
            state.entry(pool)?.is_disabled = is_disabled;
            Ok(())
        })
    }

    /// Where the data face of a door listens. An unspecified address (0.0.0.0) stands for the one that the client used to
    /// reach the head.
    pub fn set_address(&self, pool: PoolId, door: &str, address: SocketAddr) -> Result<(), PoolListError> {
        self.set_face(pool, door, Some(Face::here(address)))
    }

    /// As `set_address`, with all that is known of the face. `None`: the pool has none for this door any more.
    pub fn set_face(&self, pool: PoolId, door: &str, face: Option<Face>) -> Result<(), PoolListError> {
        self.change(|state| {
            let faces = &mut state.entry(pool)?.faces;
            match face {
                Some(face) => _ = faces.insert(door.to_owned(), face),
                None => _ = faces.remove(door),
            }
            Ok(())
        })
    }

    pub fn address(&self, pool: PoolId, door: &str) -> Option<SocketAddr> {
        self.face(pool, door).map(|face| face.address)
    }

    pub fn face(&self, pool: PoolId, door: &str) -> Option<Face> {
        let state = self.now();
        let entry = state.entries.iter().find(|entry| entry.pool.id() == pool)?;
        entry.faces.get(door).cloned()
    }

    /// `None`: it is not listed, or disabled.
    pub fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>> {
        let state = self.now();
        let entry = state.entries.iter().find(|entry| entry.pool.id() == id && !entry.is_disabled)?;
        Some(Arc::clone(&entry.pool))
    }

    /// Of all that are listed, disabled or not.
    pub fn ids(&self) -> BTreeSet<PoolId> {
        self.now().entries.iter().map(|entry| entry.pool.id()).collect()
    }

    /// Those that may be asked: all that are not disabled.
    pub fn enabled(&self) -> Vec<Arc<dyn Pool>> {
        let state = self.now();
        let enabled = state.entries.iter().filter(|entry| !entry.is_disabled);
        enabled.map(|entry| Arc::clone(&entry.pool)).collect()
    }

    /// Of all that are listed. A disabled pool is offline for that reason.
    pub fn statuses(&self) -> Vec<PoolStatus> {
        let of_entry = |entry: &Entry| {
            let status = entry.pool.status();
            match entry.is_disabled {
                true => PoolStatus { offline: Some("it is disabled".to_owned()), ..status },
                false => status,
            }
        };
        self.now().entries.iter().map(of_entry).collect()
    }

    /// Pools to which no client may be sent by this list: disabled or removed.
    pub fn closed(&self) -> BTreeSet<PoolId> {
        let state = self.now();
        let disabled = state.entries.iter().filter(|entry| entry.is_disabled).map(|entry| entry.pool.id());
        disabled.chain(state.removed.iter().copied()).collect()
    }

    fn now(&self) -> Arc<State> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A change that fails leaves the list as it was.
    fn change(
        &self,
        make: impl FnOnce(&mut State) -> Result<(), PoolListError>,
    ) -> Result<(), PoolListError> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = State::clone(&current);
        make(&mut next)?;
        *current = Arc::new(next);
        Ok(())
    }
}

impl State {
    fn entry(&mut self, pool: PoolId) -> Result<&mut Entry, PoolListError> {
        let found = self.entries.iter_mut().find(|entry| entry.pool.id() == pool);
        found.ok_or(PoolListError::Unlisted(pool))
    }
}
