//! The back channel of a session: its connections and the slots of callbacks (RFC 8881 §2.10.3.1, §2.10.6).
//!
//! Here the server is the requester. Invariant: a sequence id that the client has executed is never used for another
//! call. When a call ends without a reply it is unknown whether the client executed it; the next call on that slot
//! takes the id after it, and if the client answers SEQ_MISORDERED it had not, and the lost id is the right one. A slot
//! that loses twice in a row is retired; without slots the channel is at fault and the client makes a new session.

use nfs4::{CallbackSecParms4, ChannelAttrs4};

use crate::ConnectionId;

#[derive(Debug)]
pub(crate) struct BackChannel {
    pub(crate) program: u32,
    pub(crate) security: CallbackSecParms4,
    pub(crate) attrs: ChannelAttrs4,
    slots: Vec<CallbackSlot>,
    /// In the order they were bound; the newest is used first, since a client that binds anew has lost the older.
    connections: Vec<ConnectionId>,
    connections_max: usize,
    /// The client wanted one: a missing path is then worth a status flag.
    wanted: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct CallbackSlot {
    /// Sequence id of the call under way or done last.
    sequence: u32,
    busy: bool,
    /// Whether the client has executed `sequence` is unknown.
    uncertain: bool,
    /// More than one id is in doubt.
    retired: bool,
}

/// How a callback ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackOutcome {
    /// The client answered CB_SEQUENCE with NFS4_OK, whatever the operation got.
    Answered,
    /// CB_SEQUENCE itself was refused: its sequence id was not used (RFC 8881 §20.9.3).
    Refused,
    /// No reply came: the connection broke or the deadline passed.
    Lost,
}

impl BackChannel {
    pub(crate) fn new(
        program: u32,
        security: CallbackSecParms4,
        attrs: ChannelAttrs4,
        slots_max: u32,
        connections_max: usize,
    ) -> BackChannel {
        let slots = attrs.maxrequests.min(slots_max);
        BackChannel {
            program,
            security,
            attrs,
            slots: (0..slots).map(|_| CallbackSlot::default()).collect(),
            connections: Vec::new(),
            connections_max,
            wanted: false,
        }
    }

    pub(crate) fn bind(&mut self, connection: ConnectionId) {
        self.wanted = true;
        self.unbind(connection);
        if self.connections.len() >= self.connections_max {
            self.connections.remove(0);
        }
        self.connections.push(connection);
    }

    pub(crate) fn unbind(&mut self, connection: ConnectionId) {
        self.connections.retain(|bound| *bound != connection);
    }

    pub(crate) fn is_bound(&self, connection: ConnectionId) -> bool {
        self.connections.contains(&connection)
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.connections.is_empty()
    }

    /// The client wants callbacks on this session and has no connection for them.
    pub(crate) fn is_down(&self) -> bool {
        self.wanted && self.connections.is_empty()
    }

    /// No slot is left that could be used: SEQ4_STATUS_BACKCHANNEL_FAULT.
    pub(crate) fn is_at_fault(&self) -> bool {
        self.wanted && self.slots.iter().all(|slot| slot.retired)
    }

    /// The connection to call on, the newest first.
    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        self.connections.last().copied()
    }

    /// Takes a free slot: its number and the sequence id to use. Certain slots come first.
    pub(crate) fn begin(&mut self) -> Option<(u32, u32)> {
        let index = (0..self.slots.len())
            .filter(|index| !self.slots[*index].busy && !self.slots[*index].retired)
            .min_by_key(|index| self.slots[*index].uncertain)?;
        let slot = &mut self.slots[index];
        slot.busy = true;
        slot.sequence = slot.sequence.wrapping_add(1);
        Some((slot_number(index), slot.sequence))
    }

    /// The highest slot with a call under way, for `csa_highest_slotid`.
    pub(crate) fn highest_busy(&self) -> u32 {
        self.slots.iter().rposition(|slot| slot.busy).map_or(0, slot_number)
    }

    /// The client said SEQ_MISORDERED: if the call before was lost, the client had not executed it, and its id is the
    /// one to repeat the new call with.
    pub(crate) fn misordered(&mut self, slot: u32) -> Option<u32> {
        let slot = &mut self.slots[slot as usize];
        if !slot.uncertain {
            return None;
        }
        slot.uncertain = false;
        slot.sequence = slot.sequence.wrapping_sub(1);
        Some(slot.sequence)
    }

    pub(crate) fn end(&mut self, slot: u32, outcome: CallbackOutcome) {
        let slot = &mut self.slots[slot as usize];
        assert!(slot.busy, "a callback ends once");
        slot.busy = false;
        match outcome {
            CallbackOutcome::Answered => slot.uncertain = false,
            CallbackOutcome::Refused => slot.sequence = slot.sequence.wrapping_sub(1),
            CallbackOutcome::Lost if slot.uncertain => slot.retired = true,
            CallbackOutcome::Lost => slot.uncertain = true,
        }
    }
}

fn slot_number(index: usize) -> u32 {
    u32::try_from(index).expect("the slots were counted in 32 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn channel(slots: u32) -> BackChannel {
        let attrs = ChannelAttrs4 { maxrequests: slots, ..ChannelAttrs4::default() };
        BackChannel::new(0x4000_0000, CallbackSecParms4::None, attrs, 16, 2)
    }

    #[test]
    fn calls_take_free_slots_and_count_each_by_one() {
        let mut channel = channel(2);
        assert_eq!(channel.begin(), Some((0, 1)));
        assert_eq!(channel.begin(), Some((1, 1)));
        assert_eq!(channel.begin(), None, "all slots are busy");
        assert_eq!(channel.highest_busy(), 1);
        channel.end(0, CallbackOutcome::Answered);
        assert_eq!(channel.begin(), Some((0, 2)));
    }

    #[test]
    fn a_refused_call_has_not_used_its_number() {
        let mut channel = channel(1);
        assert_eq!(channel.begin(), Some((0, 1)));
        channel.end(0, CallbackOutcome::Refused);
        assert_eq!(channel.begin(), Some((0, 1)));
    }

    #[test]
    fn the_newest_connection_is_used_and_the_oldest_forgotten() {
        let mut channel = channel(1);
        assert!(!channel.is_down(), "nobody asked for one");
        for id in [1, 2, 3] {
            channel.bind(ConnectionId(id));
        }
        assert!(!channel.is_bound(ConnectionId(1)));
        assert_eq!(channel.connection(), Some(ConnectionId(3)));
        channel.unbind(ConnectionId(3));
        assert_eq!(channel.connection(), Some(ConnectionId(2)));
        channel.unbind(ConnectionId(2));
        assert!(channel.is_down() && !channel.is_up());
    }

    /// A client's view of one slot: it executes the next number, and only once.
    #[derive(Default)]
    struct Client {
        sequence: u32,
    }

    impl Client {
        fn executes(&mut self, sequence: u32) -> bool {
            let next = sequence == self.sequence + 1;
            self.sequence += u32::from(next);
            next
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Fate {
        Answered,
        CallLost,
        ReplyLost,
    }

    proptest! {
        #[test]
        fn a_call_that_arrives_on_a_slot_in_use_is_executed_once_despite_lost_messages(
            fates in proptest::collection::vec(
                prop_oneof![3 => Just(Fate::Answered), 1 => Just(Fate::CallLost), 1 => Just(Fate::ReplyLost)], 1..60),
        ) {
            let (mut channel, mut client) = (channel(1), Client::default());
            for fate in fates {
                let Some((slot, sequence)) = channel.begin() else {
                    prop_assert!(channel.slots[0].retired);
                    break;
                };
                prop_assert!(sequence > client.sequence, "a number that was executed came back");
                match fate {
                    Fate::CallLost => channel.end(slot, CallbackOutcome::Lost),
                    Fate::ReplyLost => {
                        client.executes(sequence);
                        channel.end(slot, CallbackOutcome::Lost);
                    }
                    Fate::Answered => {
                        prop_assert!(
                            client.executes(sequence)
                                || channel.misordered(slot).is_some_and(|sequence| client.executes(sequence))
                        );
                        channel.end(slot, CallbackOutcome::Answered);
                    }
                }
            }
        }
    }

    #[test]
    fn a_channel_without_slots_left_is_at_fault() {
        let mut channel = channel(1);
        channel.bind(ConnectionId(1));
        for _ in 0..2 {
            assert!(!channel.is_at_fault());
            let (slot, _) = channel.begin().unwrap();
            channel.end(slot, CallbackOutcome::Lost);
        }
        assert!(channel.is_at_fault());
        assert_eq!(channel.begin(), None);
    }
}
