//! The slot table against a full history, and as it grows and shrinks under a client that obeys.

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
fn a_grant_may_be_on_its_way_until_the_slot_is_used_again() {
    let mut table = SlotTable::new(2);
    let granting = |table: &SlotTable, file| table.granting(Some(FileId(file))).collect::<Vec<_>>();
    let _ = table.begin(&request(1, 1));
    table.note_grant(1, FileId(5));
    let call = ReferringCall4 { sequenceid: 1, slotid: 1 };
    assert_eq!(granting(&table, 5), [call]);
    assert_eq!(granting(&table, 6), []);
    table.finish(1, 1, None);
    assert_eq!(granting(&table, 5), [call], "it was sent, and perhaps not received");
    let _ = table.begin(&request(0, 1));
    assert_eq!(granting(&table, 5), [call]);
    let _ = table.begin(&request(1, 2));
    assert_eq!(granting(&table, 5), []);
    (0..100).for_each(|file| table.note_grant(1, FileId(file)));
    assert_eq!(table.slots[1].granted.len(), GRANTED_MAX);
}

#[test]
fn sequence_ids_wrap_to_zero() {
    let mut table = SlotTable::new(1);
    table.slots[0] =
        Slot { sequence: u32::MAX, digest: 7, state: SlotState::Done(None), granted: Vec::new(), step: 0 };
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

fn run(table: &mut SlotTable, slot: u32, sequence: u32, highest_slot: u32) {
    let request = SlotRequest { slot, sequence, highest_slot, digest: 7 };
    assert_eq!(table.begin(&request), SlotVerdict::Execute);
    table.finish(slot, sequence, Some(Bytes::from_static(b"reply")));
}

#[test]
fn slots_are_taken_back_once_the_client_has_heard_and_waits_for_nothing_there() {
    let mut table = SlotTable::new(2);
    assert!(table.is_last(1) && !table.is_last(0));
    table.grow(2);
    assert_eq!((table.len(), table.target()), (4, 4));
    run(&mut table, 3, 1, 3);
    table.shrink(2);
    assert_eq!((table.len(), table.target()), (4, 2), "it has not heard");
    run(&mut table, 0, 1, 3);
    run(&mut table, 0, 2, 3);
    run(&mut table, 0, 3, 3);
    assert_eq!(table.len(), 4, "it waits for a reply that tells it of four");
    run(&mut table, 0, 4, 0);
    assert_eq!(table.len(), 4, "that may have come last, and the reply to this tells it again");
    run(&mut table, 0, 5, 0);
    assert_eq!(table.len(), 2);
    assert_eq!(table.begin(&request(3, 2)), SlotVerdict::Refuse(NfsStat4::BadSlot));
}

#[test]
fn a_slot_that_runs_is_not_taken_back_and_a_late_request_may_name_one_that_was() {
    let mut table = SlotTable::new(4);
    assert_eq!(table.begin(&request(3, 1)), SlotVerdict::Execute);
    table.shrink(1);
    run(&mut table, 0, 1, 0);
    run(&mut table, 0, 2, 0);
    assert_eq!(table.len(), 4);
    table.finish(3, 1, None);
    run(&mut table, 0, 3, 0);
    assert_eq!(table.len(), 1);
    // Sent while the other was outstanding.
    run(&mut table, 0, 4, 3);
}

#[test]
fn a_slot_that_is_granted_again_goes_on_or_begins_anew() {
    for (sequence, verdict) in [
        (3, SlotVerdict::Execute),
        (1, SlotVerdict::Execute),
        (2, SlotVerdict::Refuse(NfsStat4::SeqMisordered)),
        (4, SlotVerdict::Refuse(NfsStat4::SeqMisordered)),
    ] {
        let mut table = SlotTable::new(2);
        run(&mut table, 1, 1, 1);
        run(&mut table, 1, 2, 1);
        table.shrink(1);
        run(&mut table, 0, 1, 0);
        run(&mut table, 0, 2, 0);
        assert_eq!(table.len(), 1);
        table.grow(1);
        assert_eq!(table.begin(&request(1, sequence)), verdict, "{sequence}");
    }
}

#[test]
fn used_slots_are_counted_up_to_the_highest_outstanding_one() {
    let mut table = SlotTable::new(8);
    assert_eq!(table.take_used(), 0);
    run(&mut table, 0, 1, 5);
    assert_eq!(table.take_used(), 6);
    run(&mut table, 2, 1, 2);
    assert_eq!(table.take_used(), 3);
}

/// A client as Linux is one (`nfs41_update_target_slotid`): it takes the lowest slot that is free, keeps to the target of the
/// reply that came last, and forgets slots that the server takes no requests on any more, as the newest replies say.
#[derive(Default)]
struct Obedient {
    /// The last number that was answered, by slot; absent: none or forgotten.
    numbers: HashMap<u32, u32>,
    outstanding: Vec<Sent>,
    target: u32,
    /// How often the target has changed.
    generation: u32,
}

/// A request whose reply has not arrived.
struct Sent {
    slot: u32,
    number: u32,
    generation: u32,
    /// How many slots there are and how many the client is to keep to, once it is answered.
    said: Option<(u32, u32)>,
}

impl Obedient {
    fn next(&self) -> Option<SlotRequest> {
        let is_free = |slot: &u32| self.outstanding.iter().all(|sent| sent.slot != *slot);
        let slot = (0..self.target).find(is_free)?;
        let outstanding = self.outstanding.iter().map(|sent| sent.slot).max().unwrap_or(0);
        let sequence = self.numbers.get(&slot).map_or(1, |number| number + 1);
        Some(SlotRequest { slot, sequence, highest_slot: outstanding.max(slot), digest: 7 })
    }

    fn hear(&mut self, sent: &Sent) {
        self.numbers.insert(sent.slot, sent.number);
        let (highest, target) = sent.said.unwrap();
        if target != self.target {
            self.target = target;
            self.generation += 1;
        }
        let is_waited_for = |slot: u32| self.outstanding.iter().any(|sent| sent.slot >= slot);
        if sent.generation == self.generation && !is_waited_for(highest) {
            self.numbers.retain(|slot, _| *slot < highest);
        }
    }
}

#[derive(Clone, Debug)]
enum Move {
    /// A request is sent and judged.
    Send,
    /// The server finishes one that runs.
    Finish(usize),
    /// A reply that was sent arrives, in whatever order.
    Hear(usize),
    /// A reply was lost with its connection: the request is sent again.
    Repeat(usize),
    Grow(u32),
    Shrink(u32),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => Just(Move::Send),
        4 => any::<usize>().prop_map(Move::Finish),
        4 => any::<usize>().prop_map(Move::Hear),
        2 => any::<usize>().prop_map(Move::Repeat),
        1 => (1u32..5).prop_map(Move::Grow),
        1 => (0u32..12).prop_map(Move::Shrink),
    ]
}

proptest! {
    #[test]
    fn a_client_that_keeps_to_what_it_hears_is_never_refused_however_slots_come_and_go(
        moves in proptest::collection::vec(any_move(), 1..300),
    ) {
        let mut table = SlotTable::new(2);
        let mut client = Obedient { target: 2, ..Obedient::default() };
        let mut running: Vec<(u32, u32, (u32, u32))> = Vec::new();
        for step in moves {
            match step {
                Move::Send => {
                    let Some(request) = client.next() else { continue };
                    prop_assert_eq!(table.begin(&request), SlotVerdict::Execute, "{:?}", request);
                    // As SEQUENCE's result says, made when the request begins.
                    let highest = table.len().max(request.highest_slot + 1);
                    running.push((request.slot, request.sequence, (highest, table.target())));
                    let (slot, number, generation) = (request.slot, request.sequence, client.generation);
                    client.outstanding.push(Sent { slot, number, generation, said: None });
                }
                Move::Finish(which) if !running.is_empty() => {
                    let (slot, number, said) = running.remove(which % running.len());
                    table.finish(slot, number, Some(Bytes::from(format!("{slot} {number}"))));
                    let sent = client.outstanding.iter_mut().find(|sent| sent.slot == slot).unwrap();
                    sent.said = Some(said);
                }
                Move::Hear(which) => {
                    let sent = &client.outstanding;
                    let answered: Vec<_> = (0..sent.len()).filter(|at| sent[*at].said.is_some()).collect();
                    if !answered.is_empty() {
                        let heard = client.outstanding.remove(answered[which % answered.len()]);
                        client.hear(&heard);
                    }
                }
                Move::Repeat(which) if !client.outstanding.is_empty() => {
                    let Sent { slot, number: sequence, said, .. } =
                        client.outstanding[which % client.outstanding.len()];
                    let again = SlotRequest { slot, sequence, highest_slot: slot, digest: 7 };
                    let expected = match said {
                        Some(_) => SlotVerdict::Replay(Bytes::from(format!("{slot} {sequence}"))),
                        None => SlotVerdict::Refuse(NfsStat4::Delay),
                    };
                    prop_assert_eq!(table.begin(&again), expected);
                }
                Move::Grow(by) if table.target() < 64 => table.grow(by),
                Move::Shrink(to) => table.shrink(to),
                _ => {}
            }
            prop_assert!(table.target() >= 1 && table.target() <= table.len());
            prop_assert_eq!(table.busy() as usize, running.len());
        }
    }
}
