//! A session as the client keeps it: slots and their sequence ids (RFC 8881 §2.10.6), without I/O.

use nfs4::{ChannelAttrs4, CreateSession4ResOk, NfsArgop4, NfsResop4, Res, Sequence4Args, SessionId4};

/// One session.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: SessionId4,
    pub fore: ChannelAttrs4,
    pub back: ChannelAttrs4,
    pub flags: u32,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Of the next new request; they start at 1.
    next: u32,
    is_busy: bool,
}

impl Session {
    pub fn new(granted: &CreateSession4ResOk) -> Session {
        let slots = granted.fore_chan_attrs.maxrequests as usize;
        Session {
            id: granted.sessionid,
            fore: granted.fore_chan_attrs,
            back: granted.back_chan_attrs,
            flags: granted.flags,
            slots: vec![Slot { next: 1, is_busy: false }; slots],
        }
    }

    /// SEQUENCE of a new request on the lowest slot that is free; `None` if all are busy.
    pub fn begin(&mut self, cachethis: bool) -> Option<Sequence4Args> {
        let slotid = self.slots.iter().position(|slot| !slot.is_busy)?;
        self.slots[slotid].is_busy = true;
        Some(self.sequence(slotid as u32, cachethis))
    }

    /// Arguments of the next new request on a slot; the slot is not reserved.
    pub fn sequence(&self, slotid: u32, cachethis: bool) -> Sequence4Args {
        let highest = self.slots.iter().rposition(|slot| slot.is_busy).unwrap_or(0) as u32;
        Sequence4Args {
            sessionid: self.id,
            sequenceid: self.slots[slotid as usize].next,
            slotid,
            highest_slotid: highest.max(slotid),
            cachethis,
        }
    }

    /// A reply to `sent` came: the slot is free again, and moves on if the server took the request.
    pub fn finish(&mut self, sent: &Sequence4Args, results: &[NfsResop4]) {
        let slot = &mut self.slots[sent.slotid as usize];
        slot.is_busy = false;
        if matches!(results.first(), Some(NfsResop4::Sequence(Res::Ok(_)))) {
            slot.next = sent.sequenceid.wrapping_add(1);
        }
    }

    /// As after a request whose reply nobody waits for: the slot has been used.
    pub fn abandon(&mut self, sent: &Sequence4Args) {
        self.slots[sent.slotid as usize] = Slot { next: sent.sequenceid.wrapping_add(1), is_busy: false };
    }

    /// `ops` behind the SEQUENCE.
    pub fn compound(sequence: Sequence4Args, ops: &[NfsArgop4]) -> Vec<NfsArgop4> {
        let mut all = vec![NfsArgop4::Sequence(sequence)];
        all.extend_from_slice(ops);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs4::{NfsStat4, Sequence4ResOk};

    fn session() -> Session {
        let fore = ChannelAttrs4 { maxrequests: 2, ..ChannelAttrs4::default() };
        Session::new(&CreateSession4ResOk {
            sessionid: SessionId4([1; 16]),
            sequence: 1,
            flags: 0,
            fore_chan_attrs: fore,
            back_chan_attrs: fore,
        })
    }

    fn taken(sent: &Sequence4Args) -> [NfsResop4; 1] {
        [NfsResop4::Sequence(Res::Ok(Sequence4ResOk {
            sessionid: sent.sessionid,
            sequenceid: sent.sequenceid,
            slotid: sent.slotid,
            highest_slotid: 1,
            target_highest_slotid: 1,
            status_flags: 0,
        }))]
    }

    #[test]
    fn requests_under_way_have_slots_of_their_own() {
        let mut session = session();
        let (first, second) = (session.begin(true).unwrap(), session.begin(true).unwrap());
        assert_eq!((first.slotid, second.slotid, second.highest_slotid), (0, 1, 1));
        assert_eq!(session.begin(true), None);
        session.finish(&first, &taken(&first));
        let third = session.begin(true).unwrap();
        assert_eq!((third.slotid, third.sequenceid), (0, 2));
    }

    #[test]
    fn a_refused_sequence_keeps_its_number() {
        let mut session = session();
        let first = session.begin(true).unwrap();
        session.finish(&first, &[NfsResop4::Sequence(Res::Err(NfsStat4::Delay))]);
        assert_eq!(session.begin(true).unwrap().sequenceid, 1);
    }
}
