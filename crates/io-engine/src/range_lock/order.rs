//! The order of range locks, without threads: who is granted, and who becomes so when another leaves.
//!
//! Every entry counts the earlier entries that it conflicts with, granted or not. Whether two entries conflict never
//! changes, so an entry that leaves lowers the count of the later ones that it conflicts with, and a count of zero is a
//! grant.

use types::ByteRange;

use super::LockKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

pub struct Order<W> {
    /// In order of arrival, so by ticket.
    entries: Vec<Entry<W>>,
    next_ticket: u64,
    waiting: usize,
}

struct Entry<W> {
    ticket: u64,
    range: ByteRange,
    kind: LockKind,
    /// Earlier entries in the way; granted if zero.
    blockers: usize,
    /// Given back at the grant.
    waiter: Option<W>,
}

impl<W> Entry<W> {
    fn conflicts(&self, range: ByteRange, kind: LockKind) -> bool {
        (self.kind == LockKind::Exclusive || kind == LockKind::Exclusive) && self.range.overlaps(range)
    }
}

impl<W> Order<W> {
    pub fn new() -> Order<W> {
        Order { entries: Vec::new(), next_ticket: 0, waiting: 0 }
    }

    /// Entries that are not granted.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn has_conflict(&self, range: ByteRange, kind: LockKind) -> bool {
        self.entries.iter().any(|earlier| earlier.conflicts(range, kind))
    }

    /// `leave` gives `waiter` back when the entry is granted later than now.
    pub fn enter(&mut self, range: ByteRange, kind: LockKind, waiter: Option<W>) -> Ticket {
        let blockers = self.entries.iter().filter(|earlier| earlier.conflicts(range, kind)).count();
        self.waiting += usize::from(blockers > 0);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.entries.push(Entry { ticket, range, kind, blockers, waiter });
        Ticket(ticket)
    }

    pub fn is_granted(&self, ticket: Ticket) -> bool {
        self.entries[self.position(ticket)].blockers == 0
    }

    /// Takes an entry away, granted or not. Returns the waiters of the entries that are granted by that.
    pub fn leave(&mut self, ticket: Ticket) -> Vec<W> {
        let position = self.position(ticket);
        let gone = self.entries.remove(position);
        self.waiting -= usize::from(gone.blockers > 0);
        let mut granted = Vec::new();
        if self.waiting == 0 {
            return granted;
        }
        for later in &mut self.entries[position..] {
            if later.conflicts(gone.range, gone.kind) {
                later.blockers -= 1;
                if later.blockers == 0 {
                    self.waiting -= 1;
                    granted.extend(later.waiter.take());
                }
            }
        }
        granted
    }

    fn position(&self, ticket: Ticket) -> usize {
        self.entries
            .binary_search_by_key(&ticket.0, |entry| entry.ticket)
            .expect("a ticket leaves once, and only its owner has it")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enter { offset: u64, length: u64, is_exclusive: bool },
        Leave(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_u64..40, 1_u64..20, any::<bool>()).prop_map(|(offset, length, is_exclusive)| Step::Enter {
                offset,
                length,
                is_exclusive
            }),
            any::<usize>().prop_map(Step::Leave),
        ]
    }

    /// An entry is granted if it conflicts with no earlier entry, byte by byte.
    struct Model {
        present: Vec<(u32, Ticket, Vec<bool>, bool)>,
    }

    impl Model {
        fn granted(&self) -> Vec<u32> {
            let is_free = |at: usize| {
                let (_, _, bytes, exclusive) = &self.present[at];
                self.present[..at].iter().all(|(_, _, others, other_exclusive)| {
                    !(*exclusive || *other_exclusive) || !bytes.iter().zip(others).any(|(a, b)| *a && *b)
                })
            };
            (0..self.present.len()).filter(|at| is_free(*at)).map(|at| self.present[at].0).collect()
        }
    }

    proptest! {
        #[test]
        fn grants_are_those_of_the_model(steps in proptest::collection::vec(step(), 1..80)) {
            let mut order = Order::new();
            let mut model = Model { present: Vec::new() };
            let mut told = Vec::new();
            for (name, step) in (0_u32..).zip(steps) {
                match step {
                    Step::Enter { offset, length, is_exclusive } => {
                        let range = ByteRange::new(offset, length).unwrap();
                        let kind = if is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
                        let is_free = !order.has_conflict(range, kind);
                        let ticket = order.enter(range, kind, Some(name));
                        prop_assert_eq!(order.is_granted(ticket), is_free);
                        if is_free { told.push(name) }
                        let bytes = (0..64).map(|at| range.offset() <= at && at < range.end()).collect();
                        model.present.push((name, ticket, bytes, is_exclusive));
                    }
                    Step::Leave(_) if model.present.is_empty() => {}
                    Step::Leave(which) => {
                        let (name, ticket, ..) = model.present.remove(which % model.present.len());
                        told.retain(|known| *known != name);
                        told.extend(order.leave(ticket));
                    }
                }
                told.sort_unstable();
                prop_assert_eq!(&told, &model.granted());
                for (name, ticket, ..) in &model.present {
                    prop_assert_eq!(order.is_granted(*ticket), told.contains(name));
                }
                prop_assert_eq!(order.waiting(), model.present.len() - told.len());
            }
        }
    }
}
