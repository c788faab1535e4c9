//! The slot table of a session: exactly-once semantics (RFC 8881 §2.10.6), and how many slots there are (§2.10.6.1).
//!
//! Invariants: a request runs at most once per (slot, sequence id); a slot runs one request at a time; the reply of a
//! request that asked for it is repeated for as long as the slot is not used anew. A retransmission that arrives while
//! the first copy runs is told to wait (NFS4ERR_DELAY on SEQUENCE, RFC 8881 §2.10.6.2): it neither runs nor hangs.
//!
//! A client that uses all of its slots may be offered more; one that does not is asked to keep to fewer. It keeps to what the
//! reply says that it heard last, and replies overtake each other. So slots are taken back in two steps: when no reply that
//! says more can be outstanding any more, and then when a request shows that the client has heard a reply from after that.

use bytes::Bytes;
use nfs4::{NfsStat4, ReferringCall4};
use types::FileId;

/// Files that one request is known to have granted something of; Linux opens one.
const GRANTED_MAX: usize = 16;

/// The verdict of a slot on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotVerdict {
    Execute,
    /// The reply of the first copy.
    Replay(Bytes),
    /// The first copy was done and its reply not kept: the operation after SEQUENCE gets RETRY_UNCACHED_REP.
    Uncached,
    Refuse(NfsStat4),
}

/// The facts of a request that its slot judges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRequest {
    pub slot: u32,
    pub sequence: u32,
    pub highest_slot: u32,
    pub digest: u64,
}

#[derive(Debug)]
pub(crate) struct SlotTable {
    /// With those that were taken back: the client may have kept their numbers.
    slots: Vec<Slot>,
    /// The first so many take requests.
    granted: u32,
    /// So many the client is asked to keep to; at most `granted`.
    target: u32,
    /// Counts the steps on the way to fewer slots.
    step: u32,
    /// No reply that told a higher target is on its way.
    is_settled: bool,
    /// The highest that was outstanding since somebody looked, and one.
    used: u32,
    busy: u32,
}

#[derive(Debug, Default)]
struct Slot {
    /// Sequence id of the request that runs or ran last; 0 before the first (RFC 8881 §2.10.6.1: they start at 1).
    sequence: u32,
    digest: u64,
    state: SlotState,
    /// Files of which the request grants something that may be recalled.
    granted: Vec<FileId>,
    /// `SlotTable::step` as it was when the last reply told the target.
    step: u32,
}

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Unused,
    Running,
    /// Done; the reply where it was kept.
    Done(Option<Bytes>),
    /// It was given back, and may be granted again: a client that has forgotten it begins with 1, another goes on.
    TakenBack,
}

impl SlotTable {
    pub(crate) fn new(slots: u32) -> SlotTable {
        assert!(slots > 0, "a session has a slot");
        let table = (0..slots).map(|_| Slot::default()).collect();
        SlotTable { slots: table, granted: slots, target: slots, step: 0, is_settled: true, used: 0, busy: 0 }
    }

    /// Slots that take requests.
    pub(crate) fn len(&self) -> u32 {
        self.granted
    }

    /// Slots that the client is asked to keep to.
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// Slots with a request running.
    pub(crate) fn busy(&self) -> u32 {
        self.busy
    }

    /// Judges a request by RFC 8881 §18.46.3. After `Execute` the slot runs until [`finish`](Self::finish).
    pub(crate) fn begin(&mut self, request: &SlotRequest) -> SlotVerdict {
        if request.slot >= self.granted {
            return SlotVerdict::Refuse(NfsStat4::BadSlot);
        }
        // A request that was sent before slots were taken back may come late, and name one of them.
        if request.highest_slot as usize >= self.slots.len() {
            return SlotVerdict::Refuse(NfsStat4::BadHighSlot);
        }
        let step = self.step;
        let slot = &mut self.slots[request.slot as usize];
        let is_next = request.sequence == slot.sequence.wrapping_add(1);
        let starts_anew = matches!(slot.state, SlotState::TakenBack) && request.sequence == 1;
        if !starts_anew {
            if request.sequence == slot.sequence {
                return slot.repeat(request.digest);
            }
            if !is_next || matches!(slot.state, SlotState::Running) {
                return SlotVerdict::Refuse(NfsStat4::SeqMisordered);
            }
        }
        // A client that reuses a slot has the reply of the request before.
        let has_heard = matches!(slot.state, SlotState::Done(_)) && slot.step == step;
        let (sequence, digest) = (request.sequence, request.digest);
        *slot = Slot { sequence, digest, state: SlotState::Running, granted: Vec::new(), step };
        self.busy += 1;
        let outstanding = request.slot.max(request.highest_slot).saturating_add(1);
        self.used = self.used.max(outstanding);
        if self.granted > self.target {
            self.take_back(request.slot, outstanding, has_heard);
        }
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

    /// The request that runs on the slot is about to grant something of the file. That of very many files is not kept.
    pub(crate) fn note_grant(&mut self, slot: u32, file: FileId) {
        let Some(slot) = self.slots.get_mut(slot as usize) else { return };
        if slot.granted.len() < GRANTED_MAX && !slot.granted.contains(&file) {
            slot.granted.push(file);
        }
    }

    /// Requests that have granted something of the file (of any, if none is named) and whose replies may still be on their
    /// way: their slots were not used since.
    pub(crate) fn granting(&self, file: Option<FileId>) -> impl Iterator<Item = ReferringCall4> {
        let has_granted = move |granted: &[FileId]| match file {
            Some(file) => granted.contains(&file),
            None => !granted.is_empty(),
        };
        let granting = self.slots.iter().zip(0..).filter(move |(slot, _)| has_granted(&slot.granted));
        granting.map(|(slot, number)| ReferringCall4 { sequenceid: slot.sequence, slotid: number })
    }

    /// Whether a request on this slot says that the client has work for all slots that it was offered: clients take the
    /// lowest that is free.
    pub(crate) fn is_last(&self, slot: u32) -> bool {
        slot.checked_add(1) == Some(self.target)
    }

    /// Offers so many more.
    pub(crate) fn grow(&mut self, by: u32) {
        self.target = self.target.saturating_add(by);
        self.granted = self.granted.max(self.target);
        let known = self.slots.len().max(self.granted as usize);
        self.slots.resize_with(known, Slot::default);
    }

    /// Asks the client to keep to so many, at least one.
    pub(crate) fn shrink(&mut self, to: u32) {
        let to = to.max(1);
        if to < self.target {
            self.target = to;
            self.step = self.step.wrapping_add(1);
            self.is_settled = false;
        }
    }

    /// How many slots the client has used since this was last asked.
    pub(crate) fn take_used(&mut self) -> u32 {
        std::mem::take(&mut self.used)
    }

    /// A request came on a slot; the client waits for replies on the first `outstanding` slots only.
    fn take_back(&mut self, request: u32, outstanding: u32, has_heard: bool) {
        if !self.is_settled {
            let has_told = |slot: &Slot| slot.step == self.step || matches!(slot.state, SlotState::Unused);
            if self.slots[..outstanding as usize].iter().all(has_told) {
                self.is_settled = true;
                self.step = self.step.wrapping_add(1);
                // The reply to this request is made after this.
                self.slots[request as usize].step = self.step;
            }
            return;
        }
        if !has_heard {
            return;
        }
        let is_running = |slot: &Slot| matches!(slot.state, SlotState::Running);
        let running = self.slots.iter().rposition(is_running).map_or(0, |at| at as u32 + 1);
        let kept = self.target.max(outstanding).max(running);
        if kept >= self.granted {
            return;
        }
        for slot in &mut self.slots[kept as usize..self.granted as usize] {
            // One that was never used begins with 1 in any case.
            if matches!(slot.state, SlotState::Done(_)) {
                slot.state = SlotState::TakenBack;
                // Its reply was heard.
                slot.granted = Vec::new();
            }
        }
        self.granted = kept;
    }
}

impl Slot {
    fn repeat(&self, digest: u64) -> SlotVerdict {
        match &self.state {
            SlotState::Unused | SlotState::TakenBack => SlotVerdict::Refuse(NfsStat4::SeqMisordered),
            // RFC 8881 §2.10.6.1.3.1: another request under the same number is an error of the client.
            _ if digest != self.digest => SlotVerdict::Refuse(NfsStat4::SeqFalseRetry),
            SlotState::Running => SlotVerdict::Refuse(NfsStat4::Delay),
            SlotState::Done(Some(reply)) => SlotVerdict::Replay(reply.clone()),
            SlotState::Done(None) => SlotVerdict::Uncached,
        }
    }
}

#[cfg(test)]
mod tests;
