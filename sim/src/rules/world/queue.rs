//! The events to come, in order of their time and then of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

pub struct Queue<E> {
    /// Nanoseconds, the number of the event, and its slot.
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    slots: Vec<Option<E>>,
    free: Vec<u32>,
    scheduled: u32,
}

impl<E> Queue<E> {
    pub fn new() -> Queue<E> {
        Queue { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), scheduled: 0 }
    }

    pub fn schedule(&mut self, at: Duration, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(event);
        self.heap.push(Reverse((at.as_nanos() as u64, self.scheduled, slot)));
        self.scheduled += 1;
    }

    /// When the next one is.
    pub fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, ..))| Duration::from_nanos(*at))
    }

    pub fn pop(&mut self) -> Option<(Duration, E)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        let event = self.slots[slot as usize].take().expect("each slot in the heap is taken once");
        self.free.push(slot);
        Some((Duration::from_nanos(at), event))
    }
}
