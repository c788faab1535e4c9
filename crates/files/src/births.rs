//! Files that are being made without a name. Until such a file is held in the conflict table, nothing tells it from one
//! that was left behind. A caller that removes files left behind therefore waits for those that are being made.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Files;

#[derive(Default)]
pub(crate) struct Births {
    /// Leaf lock. As many as requests can be in flight.
    numbers: Mutex<Numbers>,
    ended: Notify,
}

#[derive(Default)]
struct Numbers {
    next: u64,
    under_way: BTreeSet<u64>,
}

/// One file is being made, or was and is held by now, when this is dropped.
pub(crate) struct Birth<'a> {
    births: &'a Births,
    number: u64,
}

impl Births {
    pub fn begin(&self) -> Birth<'_> {
        let mut numbers = self.numbers.lock();
        let number = numbers.next;
        numbers.next += 1;
        numbers.under_way.insert(number);
        Birth { births: self, number }
    }

    /// Waits for those that had begun when it was called.
    async fn settled(&self) {
        let before = self.numbers.lock().next;
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before looking, or an end in between would be missed.
            ended.as_mut().enable();
            if self.numbers.lock().under_way.range(..before).next().is_none() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Birth<'_> {
    fn drop(&mut self) {
        self.births.numbers.lock().under_way.remove(&self.number);
        self.births.ended.notify_waiters();
    }
}

impl Files {
    /// For a caller that has listed files without a name and is about to remove those not in use: once this is true,
    /// none of them is just being made. False: some still are after `patience`, and nothing may be removed yet.
    pub async fn births_settled(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.births.settled()).await.is_ok()
    }
}
