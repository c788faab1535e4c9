//! The stateids themselves: what each stands for, its seqid, and the ways to find it.
//!
//! ```text
//! other:  0 start of the server (u32)   4 number, counted up and never reused within a start (u64)
//! ```
//!
//! A number may be guessed; that gives nothing, since every use is judged against the client of the session.

use std::collections::{BTreeMap, BTreeSet};

use file_state::{DelegationKind, Share};
use nfs4::{ClientId4, NfsStat4, StateId4};
use types::FileId;

use super::terms::DelegationTerms;

/// The number in a stateid.
pub(super) type StateKey = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Open {
        owner: u64,
        shares: Shares,
    },
    Lock {
        owner: u64,
        open: StateKey,
    },
    Layout,
    /// Once revoked it stands for nothing, and is kept until its client has heard of it (RFC 8881 §10.2.1).
    Delegation {
        kind: DelegationKind,
        is_revoked: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub key: StateKey,
    pub client: ClientId4,
    pub file: FileId,
    pub seqid: u32,
    pub kind: Kind,
}

/// Which of the twelve combinations of access and deny an owner has opened with, for OPEN_DOWNGRADE must name the union
/// of some of them (RFC 8881 §18.18.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares(u16);

impl Shares {
    pub fn with(self, share: Share) -> Shares {
        Shares(self.0 | 1 << (share.access.bits() << 2 | share.deny.bits()))
    }

    fn iter(self) -> impl Iterator<Item = Share> {
        let modes = |bits: u32| file_state::Modes::from_bits(bits & 3).expect("two bits are modes");
        (0..16).filter(move |at| self.0 & 1 << at != 0).map(move |at| Share::new(modes(at >> 2), modes(at)))
    }

    /// Those of them within `share`; `None` if they do not make up all of it.
    pub fn down_to(self, share: Share) -> Option<Shares> {
        let kept = self.iter().filter(|opened| share.contains(*opened));
        let (shares, union) = kept.fold((Shares::default(), Share::default()), |(shares, union), opened| {
            (shares.with(opened), union.union(opened))
        });
        (union == share).then_some(shares)
    }
}

#[derive(Debug)]
pub(super) struct StateTable {
    boot: u32,
    last: StateKey,
    states: BTreeMap<StateKey, State>,
    /// By (open owner, file).
    opens: BTreeMap<(u64, FileId), StateKey>,
    /// By (open, lock owner).
    locks: BTreeMap<(StateKey, u64), StateKey>,
    layouts: BTreeMap<(ClientId4, FileId), StateKey>,
    /// Without those that were revoked.
    delegations: BTreeMap<(ClientId4, FileId), StateKey>,
    /// Of delegations; nobody reads those of a revoked one.
    terms: BTreeMap<StateKey, DelegationTerms>,
    /// Revoked delegations that are still to be freed.
    revoked_counts: BTreeMap<ClientId4, usize>,
    by_client: BTreeSet<(ClientId4, StateKey)>,
    lock_counts: BTreeMap<ClientId4, usize>,
}

impl StateTable {
    pub fn new(boot: u32) -> StateTable {
        StateTable {
            boot,
            last: 0,
            states: BTreeMap::new(),
            opens: BTreeMap::new(),
            locks: BTreeMap::new(),
            layouts: BTreeMap::new(),
            delegations: BTreeMap::new(),
            terms: BTreeMap::new(),
            revoked_counts: BTreeMap::new(),
            by_client: BTreeSet::new(),
            lock_counts: BTreeMap::new(),
        }
    }

    /// The state of a client that a stateid names, whatever file and seqid; DELEG_REVOKED if it was revoked.
    pub fn find(&self, client: ClientId4, stateid: StateId4) -> Result<State, NfsStat4> {
        match self.find_any(client, stateid)? {
            State { kind: Kind::Delegation { is_revoked: true, .. }, .. } => Err(NfsStat4::DelegRevoked),
            state => Ok(state),
        }
    }

    /// As `find`, revoked or not. With sessions a stateid of another start is a bad one: STALE_STATEID is not among the
    /// errors of operations in 4.1 (RFC 8881 §15.2).
    pub fn find_any(&self, client: ClientId4, stateid: StateId4) -> Result<State, NfsStat4> {
        let (boot, number) = stateid.other.split_at(4);
        let key = number.iter().fold(0, |key, byte| key << 8 | u64::from(*byte));
        let is_ours = boot == self.boot.to_be_bytes();
        let state = self.states.get(&key).filter(|state| is_ours && state.client == client);
        state.copied().ok_or(NfsStat4::BadStateId)
    }

    /// As `find`, of that file and with a seqid that is neither old nor from nowhere.
    pub fn judge(&self, client: ClientId4, stateid: StateId4, file: FileId) -> Result<State, NfsStat4> {
        let state = self.find(client, stateid)?;
        if state.file != file {
            return Err(NfsStat4::BadStateId);
        }
        judge_seqid(stateid, state.seqid)?;
        Ok(state)
    }

    pub fn open_of(&self, owner: u64, file: FileId) -> Option<StateKey> {
        self.opens.get(&(owner, file)).copied()
    }

    pub fn lock_of(&self, open: StateKey, owner: u64) -> Option<StateKey> {
        self.locks.get(&(open, owner)).copied()
    }

    /// The owner of a client's open.
    pub fn open_owner(&self, client: ClientId4, open: StateKey) -> Option<u64> {
        match self.states.get(&open)? {
            State { kind: Kind::Open { owner, .. }, client: of, .. } if *of == client => Some(*owner),
            _ => None,
        }
    }

    /// Lock states that hang on an open.
    pub fn locks_of(&self, open: StateKey) -> Vec<State> {
        let keys = self.locks.range((open, 0)..=(open, u64::MAX)).map(|(_, key)| key);
        keys.filter_map(|key| self.states.get(key)).copied().collect()
    }

    pub fn lock_count(&self, client: ClientId4) -> usize {
        self.lock_counts.get(&client).copied().unwrap_or(0)
    }

    pub fn layout_of(&self, client: ClientId4, file: FileId) -> Option<StateKey> {
        self.layouts.get(&(client, file)).copied()
    }

    pub fn delegation_of(&self, client: ClientId4, file: FileId) -> Option<StateKey> {
        self.delegations.get(&(client, file)).copied()
    }

    pub fn terms(&self, delegation: StateKey) -> DelegationTerms {
        self.terms.get(&delegation).copied().unwrap_or_default()
    }

    pub fn set_terms(&mut self, delegation: StateKey, terms: DelegationTerms) {
        self.terms.insert(delegation, terms);
    }

    /// The delegation is of that kind from now on.
    pub fn set_delegation_kind(&mut self, delegation: StateKey, new: DelegationKind) {
        if let Some(State { kind: Kind::Delegation { kind, .. }, .. }) = self.states.get_mut(&delegation) {
            *kind = new;
        }
    }

    pub fn revoked_count(&self, client: ClientId4) -> usize {
        self.revoked_counts.get(&client).copied().unwrap_or(0)
    }

    /// The stateid of a delegation stands for nothing from now on.
    pub fn revoke(&mut self, key: StateKey) {
        let Some(State { kind: Kind::Delegation { is_revoked, .. }, client, file, .. }) =
            self.states.get_mut(&key)
        else {
            return;
        };
        if !std::mem::replace(is_revoked, true) {
            self.delegations.remove(&(*client, *file));
            *self.revoked_counts.entry(*client).or_default() += 1;
        }
    }

    /// A new stateid, with seqid zero until it is bumped.
    pub fn insert(&mut self, client: ClientId4, file: FileId, kind: Kind) -> StateKey {
        self.last += 1;
        let key = self.last;
        match kind {
            Kind::Open { owner, .. } => _ = self.opens.insert((owner, file), key),
            Kind::Lock { owner, open } => {
                self.locks.insert((open, owner), key);
                *self.lock_counts.entry(client).or_default() += 1;
            }
            Kind::Layout => _ = self.layouts.insert((client, file), key),
            Kind::Delegation { .. } => _ = self.delegations.insert((client, file), key),
        }
        self.by_client.insert((client, key));
        self.states.insert(key, State { key, client, file, seqid: 0, kind });
        key
    }

    /// The stateid after one more change of its state.
    pub fn bump(&mut self, key: StateKey) -> StateId4 {
        let state = self.states.get_mut(&key).expect("only keys of states that were just found are bumped");
        // Zero is kept for "the newest" (RFC 8881 §8.2.2).
        state.seqid = state.seqid.checked_add(1).unwrap_or(1);
        self.stateid(key)
    }

    pub fn stateid(&self, key: StateKey) -> StateId4 {
        let seqid = self.states.get(&key).map_or(0, |state| state.seqid);
        let mut other = [0; 12];
        other[..4].copy_from_slice(&self.boot.to_be_bytes());
        other[4..].copy_from_slice(&key.to_be_bytes());
        StateId4 { seqid, other }
    }

    pub fn shares(&self, open: StateKey) -> Shares {
        match self.states.get(&open) {
            Some(State { kind: Kind::Open { shares, .. }, .. }) => *shares,
            _ => Shares::default(),
        }
    }

    pub fn set_shares(&mut self, open: StateKey, new: Shares) {
        if let Some(State { kind: Kind::Open { shares, .. }, .. }) = self.states.get_mut(&open) {
            *shares = new;
        }
    }

    pub fn remove(&mut self, key: StateKey) -> Option<State> {
        let state = self.states.remove(&key)?;
        self.by_client.remove(&(state.client, key));
        self.terms.remove(&key);
        match state.kind {
            Kind::Open { owner, .. } => _ = self.opens.remove(&(owner, state.file)),
            Kind::Lock { owner, open } => {
                self.locks.remove(&(open, owner));
                uncount(&mut self.lock_counts, state.client);
            }
            Kind::Layout => _ = self.layouts.remove(&(state.client, state.file)),
            Kind::Delegation { is_revoked: true, .. } => uncount(&mut self.revoked_counts, state.client),
            Kind::Delegation { .. } => _ = self.delegations.remove(&(state.client, state.file)),
        }
        Some(state)
    }

    pub fn remove_client(&mut self, client: ClientId4) {
        let keys: Vec<_> =
            self.by_client.range((client, 0)..=(client, StateKey::MAX)).map(|(_, key)| *key).collect();
        for key in keys {
            self.remove(key);
        }
    }

    #[cfg(test)]
    pub fn set_seqid(&mut self, key: StateKey, seqid: u32) {
        self.states.get_mut(&key).unwrap().seqid = seqid;
    }

    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
            && self.opens.is_empty()
            && self.locks.is_empty()
            && self.layouts.is_empty()
            && self.delegations.is_empty()
            && self.terms.is_empty()
            && self.revoked_counts.is_empty()
            && self.by_client.is_empty()
            && self.lock_counts.is_empty()
    }
}

/// RFC 8881 §8.2.2: zero stands for the newest.
pub(super) fn judge_seqid(given: StateId4, newest: u32) -> Result<(), NfsStat4> {
    // Half of the circle is older, half is newer.
    match newest.wrapping_sub(given.seqid) as i32 {
        _ if given.seqid == 0 => Ok(()),
        0 => Ok(()),
        1.. => Err(NfsStat4::OldStateId),
        _ => Err(NfsStat4::BadStateId),
    }
}

fn uncount(counts: &mut BTreeMap<ClientId4, usize>, client: ClientId4) {
    let Some(count) = counts.get_mut(&client) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&client);
    }
}
