//! An open replica of a pool in memory.

use std::sync::{Arc, Mutex};

use api::{
    Advice, IoHandle, OpenReplica, PoolError, Presence, RangeKind, ReadData, ReplicaRanges, Source,
    Stability, Stretch, Ticket, TicketMode, Verifier,
};
use bytes::Bytes;
use types::{ByteRange, Epoch};

use super::{MemoryPool, Replica, ReplicaCell, State, lock};

/// Of data that one call copies.
const PIECE_BYTES_MAX: u64 = 1 << 20;

pub(super) struct MemoryReplica {
    pool: MemoryPool,
    ticket: Ticket,
    /// The replica once it was found, and the start that it was found in: a crash may have taken it. After the lock of the
    /// pool's state.
    found: Mutex<Option<(u32, ReplicaCell)>>,
}

impl MemoryReplica {
    pub fn new(pool: MemoryPool, ticket: Ticket) -> MemoryReplica {
        MemoryReplica { pool, ticket, found: Mutex::default() }
    }

    /// The checks of an open. For a ticket to write, the first use reports a replica that is missing.
    pub fn check_opened(&self) -> Result<(), PoolError> {
        let state = self.pool.state();
        self.pool.0.check_not_removed(&state, self.ticket.file)?;
        let replica = self.find(&state)?;
        match self.ticket.mode {
            TicketMode::Read => self.check_present(replica.as_ref()),
            TicketMode::ReadWrite => Ok(()),
        }
    }

    /// The replica, if it exists and the ticket is good for it. A removed one goes on for those that have used it.
    fn find(&self, state: &State) -> Result<Option<ReplicaCell>, PoolError> {
        if self.ticket.epoch < state.fences.get(&self.ticket.file).copied().unwrap_or(Epoch(0)) {
            return Err(PoolError::Fenced);
        }
        let mut found = lock(&self.found);
        let is_current = found.as_ref().is_some_and(|(start, _)| *start == state.start);
        if !is_current {
            *found = state.replicas.get(&self.ticket.file).map(|replica| (state.start, Arc::clone(replica)));
        }
        let Some((_, replica)) = &*found else {
            self.pool.0.check_not_removed(state, self.ticket.file)?;
            return Ok(None);
        };
        self.pool.0.check_birth(&lock(replica), self.ticket.birth)?;
        Ok(Some(Arc::clone(replica)))
    }

    fn check_present(&self, replica: Option<&ReplicaCell>) -> Result<(), PoolError> {
        match self.ticket.presence {
            _ if replica.is_some() => Ok(()),
            Presence::Unmade | Presence::Filling => Ok(()),
            Presence::Made => Err(PoolError::NoReplica(self.pool.0.id)),
            Presence::Written => Err(self.pool.0.lost("it has data, and its replica is gone")),
        }
    }

    fn check_write(&self) -> Result<(), PoolError> {
        match self.ticket.mode {
            TicketMode::Read => Err(PoolError::ReadOnlyTicket),
            TicketMode::ReadWrite => Ok(()),
        }
    }

    fn read(&self, offset: u64, length: u32) -> Result<ReadData, PoolError> {
        let mut state = self.pool.state();
        let replica = self.find(&state)?;
        state.counts.reads += 1;
        self.check_present(replica.as_ref())?;
        let Some(replica) = replica else { return Ok(ReadData { data: Bytes::new(), end_of_file: true }) };
        let content = &lock(&replica).content;
        let data = content.read(offset, length.into());
        state.counts.read_bytes += data.len() as u64;
        let end_of_file = offset.saturating_add(length.into()) >= content.size();
        Ok(ReadData { data, end_of_file })
    }

    fn write(&self, offset: u64, data: Bytes, stability: Stability) -> Result<Stability, PoolError> {
        self.check_write()?;
        let mut state = self.pool.state();
        self.find(&state)?;
        if data.is_empty() {
            return Ok(stability);
        }
        let end = offset.checked_add(data.len() as u64).ok_or(PoolError::TooLarge)?;
        let (is_synced, length) = (stability != Stability::Unstable, data.len() as u64);
        state.counts.writes += 1;
        state.counts.syncs += u64::from(is_synced);
        self.change(&mut state, (offset, end), |replica| {
            replica.content.write(offset, data);
            if is_synced {
                replica.sync();
            }
        })?;
        state.counts.written_bytes += length;
        Ok(stability)
    }

    /// Changes the replica, made if need be, where `[from, to)` may take space.
    fn change(
        &self,
        state: &mut State,
        (from, to): (u64, u64),
        change: impl FnOnce(&mut Replica),
    ) -> Result<(), PoolError> {
        let found = self.find(state)?;
        self.check_present(found.as_ref())?;
        if to > self.pool.0.limits.replica_bytes_max {
            return Err(PoolError::TooLarge);
        }
        let added = found.as_ref().map_or(to - from, |replica| lock(replica).content.uncovered(from, to));
        if added > self.pool.0.free_bytes(state) {
            return Err(PoolError::NoSpace(self.pool.0.id));
        }
        let replica = match found {
            Some(replica) => replica,
            None => {
                let made = Arc::clone(state.make(self.ticket.file, self.ticket.birth));
                *lock(&self.found) = Some((state.start, Arc::clone(&made)));
                made
            }
        };
        let mut replica = lock(&replica);
        replica.learn_birth(self.ticket.birth);
        replica.modified = self.pool.now();
        change(&mut replica);
        Ok(())
    }

    fn sync_all(&self) -> Result<Verifier, PoolError> {
        let mut state = self.pool.state();
        let replica = self.find(&state)?;
        self.check_present(replica.as_ref())?;
        state.counts.syncs += 1;
        if let Some(replica) = replica {
            lock(&replica).sync();
        }
        Ok(self.pool.0.verifier(&state))
    }

    fn copy(&self, source: Source, Stretch { from, to, length }: Stretch) -> Result<u64, PoolError> {
        self.check_write()?;
        let mut state = self.pool.state();
        self.find(&state)?;
        let source = self.source(&state, source)?;
        let end = to.checked_add(length).filter(|end| *end <= self.pool.0.limits.replica_bytes_max);
        let end = end.ok_or(PoolError::TooLarge)?;
        if length == 0 {
            return Ok(0);
        }
        state.counts.writes += 1;
        let up_to = |at: Option<u64>| at.map_or(length, |at| (at - from).min(length));
        let hole = up_to(lock(&source).content.seek(from, RangeKind::Data));
        if hole > 0 {
            let end = end - (length - hole);
            self.change(&mut state, (end, end), |replica| {
                replica.content.free(to, end);
                let size = end.max(replica.content.size());
                replica.content.set_size(size);
            })?;
            return Ok(hole);
        }
        let copied = up_to(lock(&source).content.seek(from, RangeKind::Hole)).min(PIECE_BYTES_MAX);
        let data = lock(&source).content.read(from, copied);
        self.change(&mut state, (to, to + copied), |replica| replica.content.write(to, data))?;
        Ok(copied)
    }

    fn source(&self, state: &State, source: Source) -> Result<ReplicaCell, PoolError> {
        let id = self.pool.0.id;
        let found = match source {
            Source::Local(pool, file) if pool == id => state.replicas.get(&file).cloned(),
            Source::Ticket(ticket) if ticket.pool == id => {
                MemoryReplica::new(self.pool.clone(), ticket).find(state)?
            }
            Source::Local(..) | Source::Ticket(_) => return Err(PoolError::Unsupported(id)),
        };
        found.ok_or(PoolError::NoReplica(id))
    }

    fn change_range(&self, bounds: (u64, u64), change: impl FnOnce(&mut Replica)) -> Result<(), PoolError> {
        self.check_write()?;
        let mut state = self.pool.state();
        state.counts.writes += 1;
        self.change(&mut state, bounds, change)
    }
}

impl OpenReplica for MemoryReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        IoHandle::ready(self.read(offset, length))
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        IoHandle::ready(self.write(offset, data, stability))
    }

    fn sync(&self) -> IoHandle<Verifier> {
        IoHandle::ready(self.sync_all())
    }

    fn verifier(&self) -> Verifier {
        self.pool.verifier()
    }

    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        self.pool.0.has_ranges.then_some(self as &dyn ReplicaRanges)
    }
}

/// Blocks are not shared.
impl ReplicaRanges for MemoryReplica {
    fn allocate(&self, range: ByteRange) -> IoHandle<()> {
        let (from, to) = (range.offset(), range.end());
        IoHandle::ready(self.change_range((from, to), |replica| replica.content.reserve(from, to)))
    }

    fn deallocate(&self, range: ByteRange) -> IoHandle<()> {
        let free = || {
            self.check_write()?;
            let state = self.pool.state();
            let found = self.find(&state)?;
            self.check_present(found.as_ref())?;
            if let Some(replica) = found {
                let mut replica = lock(&replica);
                replica.content.free(range.offset(), range.end());
                replica.modified = self.pool.now();
            }
            Ok(())
        };
        IoHandle::ready(free())
    }

    fn extend(&self, length: u64) -> IoHandle<()> {
        if length == 0 {
            return IoHandle::ready(self.check_write());
        }
        IoHandle::ready(self.change_range((length, length), |replica| {
            let length = length.max(replica.content.size());
            replica.content.set_size(length);
        }))
    }

    fn seek(&self, offset: u64, kind: RangeKind) -> IoHandle<Option<u64>> {
        let found = self.find(&self.pool.state());
        IoHandle::ready(found.map(|replica| match replica {
            Some(replica) => lock(&replica).content.seek(offset, kind),
            None => (kind == RangeKind::Hole).then_some(offset),
        }))
    }

    fn copy_from(&self, source: Source, stretch: Stretch) -> IoHandle<u64> {
        IoHandle::ready(self.copy(source, stretch))
    }

    fn share_from(&self, _source: Source, _stretch: Stretch) -> IoHandle<bool> {
        let checked = self.check_write().and_then(|()| self.find(&self.pool.state()));
        IoHandle::ready(checked.and(Err(PoolError::Unsupported(self.pool.0.id))))
    }

    fn advise(&self, _range: ByteRange, _advice: Advice) -> IoHandle<()> {
        IoHandle::ready(self.find(&self.pool.state()).map(drop))
    }
}
