//! The slot table of a session: exactly-once semantics (RFC 8881 §2.10.6).
//!
//! Invariants: a request runs at most once per (slot, sequence id); a slot runs one request at a time; the reply of a
//! request that asked for it is repeated for as long as the slot is not used anew. A retransmission that arrives while
//! the first copy runs is told to wait (NFS4ERR_DELAY on SEQUENCE, RFC 8881 §2.10.6.2): it neither runs nor hangs.

use bytes::Bytes;
use nfs4::NfsStat4;

/// What a slot says to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotVerdict {
    Execute,
    /// The reply of the first copy.
    Replay(Bytes),
    /// The first copy was done and its reply not kept: the operation after SEQUENCE gets RETRY_UNCACHED_REP.
    Uncached,
    Refuse(NfsStat4),
}

/// What a request brings to its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRequest {
    pub slot: u32,
    pub sequence: u32,
    pub highest_slot: u32,
    pub digest: u64,
}

#[derive(Debug)]
pub(crate) struct SlotTable {
    slots: Vec<Slot>,
    busy: u32,
}

#[derive(Debug, Default)]
struct Slot {
    /// Sequence id of the request that runs or ran last; 0 before the first (RFC 8881 §2.10.6.1: they start at 1).
    sequence: u32,
    digest: u64,
    state: SlotState,
}

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Unused,
    Running,
    /// Done; the reply where it was kept.
    Done(Option<Bytes>),
}

impl SlotTable {
    pub(crate) fn new(slots: u32) -> SlotTable {
        assert!(slots > 0, "a session has a slot");
        SlotTable { slots: (0..slots).map(|_| Slot::default()).collect(), busy: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("a table is made for a count of 32 bits")
    }

    /// Slots with a request running.
    pub(crate) fn busy(&self) -> u32 {
        self.busy
    }

    /// Judges a request by RFC 8881 §18.46.3. After `Execute` the slot runs until [`finish`](Self::finish).
    pub(crate) fn begin(&mut self, request: &SlotRequest) -> SlotVerdict {
        let slots = self.len();
        if request.slot >= slots {
            return SlotVerdict::Refuse(NfsStat4::BadSlot);
        }
        if request.highest_slot >= slots {
            return SlotVerdict::Refuse(NfsStat4::BadHighSlot);
        }
        let slot = &mut self.slots[request.slot as usize];
        if request.sequence == slot.sequence {
            return slot.repeat(request.digest);
        }
        if request.sequence != slot.sequence.wrapping_add(1) || matches!(slot.state, SlotState::Running) {
            return SlotVerdict::Refuse(NfsStat4::SeqMisordered);
        }
        *slot = Slot { sequence: request.sequence, digest: request.digest, state: SlotState::Running };
        self.busy += 1;
        SlotVerdict::Execute
    }

    /// Ends the request that `begin` let run, keeping `reply` for retransmissions.
    pub(crate) fn finish(&mut self, slot: u32, sequence: u32, reply: Option<Bytes>) {
        let slot = &mut self.slots[slot as usize];
        assert!(
            matches!(slot.state, SlotState::Running) && slot.sequence == sequence,
            "only the request that runs on a slot finishes it"
        );
        slot.state = SlotState::Done(reply);
        self.busy -= 1;
    }
}

impl Slot {
    fn repeat(&self, digest: u64) -> SlotVerdict {
        match &self.state {
            SlotState::Unused => SlotVerdict::Refuse(NfsStat4::SeqMisordered),
            // RFC 8881 §2.10.6.1.3.1: another request under the same number is an error of the client.
            _ if digest != self.digest => SlotVerdict::Refuse(NfsStat4::SeqFalseRetry),
            SlotState::Running => SlotVerdict::Refuse(NfsStat4::Delay),
            SlotState::Done(Some(reply)) => SlotVerdict::Replay(reply.clone()),
            SlotState::Done(None) => SlotVerdict::Uncached,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn request(slot: u32, sequence: u32) -> SlotRequest {
        SlotRequest { slot, sequence, highest_slot: slot, digest: 7 }
    }

    #[test]
    fn sequence_ids_start_at_one() {
        let mut table = SlotTable::new(2);
        assert_eq!(table.begin(&request(0, 0)), SlotVerdict::Refuse(NfsStat4::SeqMisordered));
        assert_eq!(table.begin(&request(0, 2)), SlotVerdict::Refuse(NfsStat4::SeqMisordered));
        assert_eq!(table.begin(&request(0, 1)), SlotVerdict::Execute);
        assert_eq!(table.begin(&request(1, 1)), SlotVerdict::Execute);
        assert_eq!(table.busy(), 2);
    }

    #[test]
    fn a_retransmission_while_running_is_told_to_wait() {
        let mut table = SlotTable::new(1);
        assert_eq!(table.begin(&request(0, 1)), SlotVerdict::Execute);
        assert_eq!(table.begin(&request(0, 1)), SlotVerdict::Refuse(NfsStat4::Delay));
        assert_eq!(table.begin(&request(0, 2)), SlotVerdict::Refuse(NfsStat4::SeqMisordered));
        table.finish(0, 1, Some(Bytes::from_static(b"reply")));
        assert_eq!(table.begin(&request(0, 1)), SlotVerdict::Replay(Bytes::from_static(b"reply")));
    }

    #[test]
    fn a_retransmission_of_an_uncached_reply_is_told_so() {
        let mut table = SlotTable::new(1);
        assert_eq!(table.begin(&request(0, 1)), SlotVerdict::Execute);
        table.finish(0, 1, None);
        assert_eq!(table.begin(&request(0, 1)), SlotVerdict::Uncached);
        assert_eq!(table.begin(&request(0, 2)), SlotVerdict::Execute);
    }

    #[test]
    fn another_request_under_the_same_number_is_a_false_retry() {
        let mut table = SlotTable::new(1);
        let false_retry = SlotRequest { digest: 8, ..request(0, 1) };
        assert_eq!(table.begin(&request(0, 1)), SlotVerdict::Execute);
        assert_eq!(table.begin(&false_retry), SlotVerdict::Refuse(NfsStat4::SeqFalseRetry));
        table.finish(0, 1, Some(Bytes::from_static(b"reply")));
        assert_eq!(table.begin(&false_retry), SlotVerdict::Refuse(NfsStat4::SeqFalseRetry));
    }

    #[test]
    fn slots_beyond_the_table_are_refused() {
        let mut table = SlotTable::new(4);
        assert_eq!(table.begin(&request(4, 1)), SlotVerdict::Refuse(NfsStat4::BadSlot));
        let high = SlotRequest { highest_slot: 4, ..request(0, 1) };
        assert_eq!(table.begin(&high), SlotVerdict::Refuse(NfsStat4::BadHighSlot));
    }

    #[test]
    fn sequence_ids_wrap_to_zero() {
        let mut table = SlotTable::new(1);
        table.slots[0] = Slot { sequence: u32::MAX, digest: 7, state: SlotState::Done(None) };
        assert_eq!(table.begin(&request(0, 0)), SlotVerdict::Execute);
        table.finish(0, 0, None);
        assert_eq!(table.begin(&request(0, 1)), SlotVerdict::Execute);
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Send on `slot` with the sequence id `ahead` of the last one executed there.
        Send {
            slot: u32,
            ahead: i8,
            digest: u64,
        },
        Finish {
            slot: u32,
            cached: bool,
        },
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u32..4, -2i8..4, 0u64..2).prop_map(|(slot, ahead, digest)| Step::Send { slot, ahead, digest }),
            (0u32..3, any::<bool>()).prop_map(|(slot, cached)| Step::Finish { slot, cached }),
        ]
    }

    /// The reference: the whole history of what ran, by slot and sequence id.
    #[derive(Default)]
    struct Model {
        last: HashMap<u32, u32>,
        running: HashMap<u32, u32>,
        history: HashMap<(u32, u32), (u64, Option<Bytes>)>,
    }

    impl Model {
        fn expect(&self, slot: u32, sequence: u32, digest: u64) -> SlotVerdict {
            if slot >= 3 {
                return SlotVerdict::Refuse(NfsStat4::BadSlot);
            }
            let last = self.last.get(&slot).copied().unwrap_or(0);
            if sequence == last.wrapping_add(1) && !self.running.contains_key(&slot) {
                return SlotVerdict::Execute;
            }
            match self.history.get(&(slot, sequence)) {
                Some((known, reply)) if sequence == last => match reply {
                    _ if *known != digest => SlotVerdict::Refuse(NfsStat4::SeqFalseRetry),
                    _ if self.running.contains_key(&slot) => SlotVerdict::Refuse(NfsStat4::Delay),
                    Some(reply) => SlotVerdict::Replay(reply.clone()),
                    None => SlotVerdict::Uncached,
                },
                _ => SlotVerdict::Refuse(NfsStat4::SeqMisordered),
            }
        }
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_full_history_and_runs_nothing_twice(
            steps in proptest::collection::vec(any_step(), 1..200),
        ) {
            let (mut table, mut model) = (SlotTable::new(3), Model::default());
            for step in steps {
                match step {
                    Step::Send { slot, ahead, digest } => {
                        let last = model.last.get(&slot).copied().unwrap_or(0);
                        let sequence = last.wrapping_add_signed(i32::from(ahead));
                        let expected = model.expect(slot, sequence, digest);
                        let verdict = table.begin(&SlotRequest { slot, sequence, highest_slot: 2, digest });
                        prop_assert_eq!(&verdict, &expected);
                        if verdict == SlotVerdict::Execute {
                            let before = model.history.insert((slot, sequence), (digest, None));
                            prop_assert!(before.is_none(), "ran twice");
                            model.last.insert(slot, sequence);
                            model.running.insert(slot, sequence);
                        }
                    }
                    Step::Finish { slot, cached } => {
                        let Some(sequence) = model.running.remove(&slot) else { continue };
                        let reply = cached.then(|| Bytes::from(format!("{slot} {sequence}")));
                        table.finish(slot, sequence, reply.clone());
                        model.history.get_mut(&(slot, sequence)).unwrap().1 = reply;
                    }
                }
                prop_assert_eq!(table.busy() as usize, model.running.len());
            }
        }
    }
}
