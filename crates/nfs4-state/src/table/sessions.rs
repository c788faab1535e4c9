//! The sessions, and how many slots they have (RFC 8881 §2.10.6.1): more for those that use all of theirs, fewer for those
//! that do not, and all within what the reply cache may take.
//!
//! Invariant: what is reserved of the reply cache is the sum over the sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use nfs4::{BackchannelCtl4Args, ClientId4, NfsStat4, SessionId4};
use types::FileId;

use crate::session::Session;
use crate::{ConnectionId, SessionLimits, channel};

/// A busy session is offered so many more at a time: a quarter of what it has.
const GROWTH_DIVISOR: u32 = 4;
/// Where memory is short an idle session is asked to keep to so many.
const SLOTS_MIN: u32 = 4;

/// A client that is to be told that it has more slots than it should (CB_RECALL_SLOT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRecall {
    pub client: ClientId4,
    /// `rsa_target_highest_slotid`.
    pub target_highest: u32,
}

/// Slots of all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotFacts {
    pub granted: u64,
    pub busy: u64,
    /// The most bytes that their replies may take.
    pub reply_cache_bytes: u64,
}

#[derive(Debug, Default)]
pub struct Sessions {
    by_id: BTreeMap<SessionId4, Session>,
    /// Bytes of the reply cache promised to sessions.
    reply_cache_reserved: u64,
    /// Clients that are to be asked for slots.
    slot_recalls: Vec<SlotRecall>,
}

impl Sessions {
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The client that a session belongs to.
    pub fn client_of(&self, session: SessionId4) -> Option<ClientId4> {
        self.get(session).map(|session| session.client)
    }

    /// Whether a session has this connection in either of its channels.
    pub fn is_used(&self, connection: ConnectionId) -> bool {
        self.by_id.values().any(|session| session.is_associated(connection))
    }

    /// The transport has closed a connection.
    pub fn connection_closed(&mut self, connection: ConnectionId) {
        self.by_id.values_mut().for_each(|session| session.dissociate(connection));
    }

    pub fn backchannel_ctl(&mut self, id: SessionId4, args: &BackchannelCtl4Args) -> Result<(), NfsStat4> {
        let security = channel::callback_security(&args.sec_parms)?;
        let session = self.get_mut(id).ok_or(NfsStat4::BadSession)?;
        session.back.program = args.cb_program;
        session.back.security = security;
        Ok(())
    }

    /// The request that runs on a slot is about to grant something of the file that may be recalled.
    pub fn note_grant(&mut self, session: SessionId4, slot: u32, file: FileId) {
        if let Some(session) = self.get_mut(session) {
            session.slots.note_grant(slot, file);
        }
    }

    pub fn slot_facts(&self) -> SlotFacts {
        let tables = || self.by_id.values().map(|session| &session.slots);
        SlotFacts {
            granted: tables().map(|slots| u64::from(slots.len())).sum(),
            busy: tables().map(|slots| u64::from(slots.busy())).sum(),
            reply_cache_bytes: self.reply_cache_reserved,
        }
    }

    /// The clients to call since this was last asked.
    pub fn take_slot_recalls(&mut self) -> Vec<SlotRecall> {
        std::mem::take(&mut self.slot_recalls)
    }

    pub(super) fn get(&self, id: SessionId4) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: SessionId4) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    /// Those of a client, by the list that it keeps.
    pub(super) fn of<'a>(&'a self, ids: &'a [SessionId4]) -> impl Iterator<Item = &'a Session> {
        ids.iter().filter_map(|id| self.get(*id))
    }

    pub(super) fn reply_cache_reserved(&self) -> u64 {
        self.reply_cache_reserved
    }

    /// Slots of a session have gone, and so many bytes of the reply cache with them.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.reply_cache_reserved -= bytes;
    }

    pub(super) fn insert(&mut self, id: SessionId4, session: Session) {
        self.reply_cache_reserved += session.reply_cache_bytes();
        self.by_id.insert(id, session);
    }

    /// Takes a session out of its map; the client's own list is the caller's.
    pub(super) fn remove(&mut self, id: SessionId4) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        self.reply_cache_reserved -= session.reply_cache_bytes();
        Some(session)
    }

    /// A session uses all that it was offered. It may have what is left of its own bound, and of the half of the reply
    /// cache: the other half is for new sessions.
    pub(super) fn offer_slots(&mut self, id: SessionId4, limits: &SessionLimits) {
        let room = (limits.reply_cache_bytes_max / 2).saturating_sub(self.reply_cache_reserved);
        let session = self.by_id.get_mut(&id).expect("the caller has looked");
        let (target, reserved) = (session.slots.target(), session.reply_cache_bytes());
        let wanted = (target / GROWTH_DIVISOR).max(1).min(limits.slots_max.saturating_sub(target));
        // Slots that were asked back and have not come yet are reserved already.
        let there = session.slots.len() - target;
        let affordable = u32::try_from(room / session.slot_bytes().max(1)).unwrap_or(u32::MAX);
        session.slots.grow(wanted.min(there.saturating_add(affordable)));
        self.reply_cache_reserved += session.reply_cache_bytes() - reserved;
    }

    /// Asks sessions for slots that they have not used for a lease. `is_only` says whether a client has one session.
    pub(super) fn review_slots(
        &mut self,
        now: Duration,
        lease: Duration,
        limits: &SessionLimits,
        is_only: impl Fn(ClientId4) -> bool,
    ) {
        let is_tight = self.reply_cache_reserved > limits.reply_cache_bytes_max / 4 * 3;
        for session in self.by_id.values_mut() {
            if now.saturating_sub(session.reviewed) < lease {
                continue;
            }
            session.reviewed = now;
            let used = session.slots.take_used();
            let first = session.fore.maxrequests;
            let floor = if is_tight { first.min(SLOTS_MIN) } else { first };
            session.slots.shrink(used.saturating_add(used / GROWTH_DIVISOR).max(floor));
            // Its next replies tell it; where memory is short, it is not waited for the next request of one that sleeps.
            if is_tight && is_only(session.client) && session.slots.len() > session.slots.target() {
                let target_highest = session.slots.target() - 1;
                self.slot_recalls.push(SlotRecall { client: session.client, target_highest });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nfs4::{ChannelAttrs4, Sequence4Args, Sequence4ResOk};

    use super::super::fixture::{CHANNEL, Fixture, LEASE, facts, sequence_args};
    use super::super::sequence::{SequenceVerdict, SlotTicket};
    use super::*;
    use crate::SessionLimits;

    const SLOT: u64 = CHANNEL.maxresponsesize_cached as u64;

    fn start(server: &mut Fixture, args: Sequence4Args) -> SlotTicket {
        match server.begin(&args, &facts()) {
            SequenceVerdict::Execute(ticket) => ticket,
            other => panic!("unexpected {other:?}"),
        }
    }

    /// A request on each of the first `count` slots at once, as number `sequence` of each.
    fn burst(server: &mut Fixture, session: SessionId4, count: u32, sequence: u32) -> Sequence4ResOk {
        let tickets: Vec<_> =
            (0..count).map(|slot| start(server, sequence_args(session, slot, sequence))).collect();
        let last = tickets.last().expect("there is one").result;
        tickets.into_iter().for_each(|ticket| server.table.finish(server.now, ticket, None));
        last
    }

    #[test]
    fn a_session_that_uses_all_slots_is_offered_more_up_to_its_bound() {
        let mut server = Fixture::with_limits(SessionLimits { slots_max: 22, ..Default::default() });
        let (_, session) = server.mount("a");
        assert_eq!(burst(&mut server, session, 15, 1).target_highest_slotid, 15, "one is left");
        let told = start(&mut server, sequence_args(session, 15, 1));
        assert_eq!((told.result.highest_slotid, told.result.target_highest_slotid), (19, 19));
        server.table.finish(server.now, told, None);
        let told = start(&mut server, sequence_args(session, 19, 1));
        assert_eq!(told.result.target_highest_slotid, 21, "the bound");
        server.table.finish(server.now, told, None);
        assert_eq!(server.sequence(session, 21, 1).unwrap().target_highest_slotid, 21);
        let facts = SlotFacts { granted: 22, busy: 0, reply_cache_bytes: 22 * SLOT };
        assert_eq!(server.table.sessions().slot_facts(), facts);
    }

    #[test]
    fn a_client_that_uses_one_slot_is_offered_one_more_and_no_others() {
        let mut server = Fixture::new();
        server.fore = ChannelAttrs4 { maxrequests: 1, ..CHANNEL };
        let (_, session) = server.mount("a");
        for sequence in 1..50 {
            assert_eq!(server.sequence(session, 0, sequence).unwrap().target_highest_slotid, 1);
        }
    }

    #[test]
    fn sessions_grow_within_the_half_of_the_reply_cache() {
        let limits = SessionLimits { reply_cache_bytes_max: 2 * 18 * SLOT, ..Default::default() };
        let mut server = Fixture::with_limits(limits);
        let (_, session) = server.mount("a");
        assert_eq!(burst(&mut server, session, 16, 1).target_highest_slotid, 17, "not the quarter of 16");
        assert_eq!(server.sequence(session, 17, 1).unwrap().target_highest_slotid, 17);
        server.peer.address = ([127, 0, 0, 2], 700).into();
        let other = server.mount("b").1;
        assert_eq!(server.sequence(other, 0, 1).unwrap().highest_slotid, 15, "new ones have their room");
    }

    #[test]
    fn an_idle_session_gives_back_what_it_grew_by_and_its_memory_with_it() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        burst(&mut server, session, 16, 1);
        assert_eq!(server.table.sessions().slot_facts().granted, 20);
        server.now += LEASE;
        assert_eq!(server.expire(), []);
        server.sequence(session, 0, 2).unwrap();
        server.now += LEASE;
        assert_eq!(server.expire(), []);
        let told = server.sequence(session, 0, 3).unwrap();
        assert_eq!((told.highest_slotid, told.target_highest_slotid), (19, 15), "it is asked");
        let told = server.sequence(session, 0, 4).unwrap();
        assert_eq!((told.highest_slotid, told.target_highest_slotid), (15, 15), "it has heard");
        let facts = SlotFacts { granted: 16, busy: 0, reply_cache_bytes: 16 * SLOT };
        assert_eq!(server.table.sessions().slot_facts(), facts);
        assert_eq!(server.table.sessions_mut().take_slot_recalls(), [], "there is no hurry");
        server.destroy_session(session).unwrap();
        assert_eq!(server.table.sessions().slot_facts(), SlotFacts::default());
    }

    #[test]
    fn a_session_keeps_what_it_uses() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        burst(&mut server, session, 16, 1);
        for round in 1..5 {
            server.now += LEASE;
            assert_eq!(server.expire(), []);
            server.sequence(session, 18, round).unwrap();
            server.sequence(session, 0, round + 1).unwrap();
        }
        assert_eq!(server.table.sessions().slot_facts().granted, 20);
    }

    #[test]
    fn where_memory_is_short_idle_clients_are_called_and_keep_a_few() {
        let limits = SessionLimits { reply_cache_bytes_max: 20 * SLOT, ..Default::default() };
        let mut server = Fixture::with_limits(limits);
        let (client, session) = server.mount("a");
        server.sequence(session, 0, 1).unwrap();
        server.now += LEASE;
        assert_eq!(server.expire(), []);
        assert_eq!(
            server.table.sessions_mut().take_slot_recalls(),
            [SlotRecall { client, target_highest: 3 }]
        );
        assert_eq!(server.table.sessions_mut().take_slot_recalls(), []);
        for sequence in 2..4 {
            assert_eq!(server.sequence(session, 0, sequence).unwrap().target_highest_slotid, 3);
        }
        assert_eq!(server.table.sessions().slot_facts().granted, 4);
        // There is room for another again.
        server.peer.address = ([127, 0, 0, 2], 700).into();
        let other = server.mount("b").1;
        assert_eq!(server.sequence(other, 0, 1).unwrap().highest_slotid, 15);
    }
}
