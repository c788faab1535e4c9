//! Limits the log lines about refused tickets: a peer that sends rubbish must not fill the log.

use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(10);
const PER_WINDOW: u32 = 10;

#[derive(Default)]
pub(super) struct Refusals {
    began: Duration,
    told: u32,
    left_out: u64,
}

impl Refusals {
    /// Counts a refusal. `Some`: it is to be logged, with the number of those not logged before.
    pub fn note(&mut self, at: Duration) -> Option<u64> {
        if at.saturating_sub(self.began) >= WINDOW {
            (self.began, self.told) = (at, 0);
        }
        if self.told >= PER_WINDOW {
            self.left_out += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_in_ten_seconds_are_told_and_the_next_line_says_how_many_were_not() {
        let mut refusals = Refusals::default();
        let at = Duration::from_secs(1000);
        (0..10).for_each(|_| assert_eq!(refusals.note(at), Some(0)));
        (0..70).for_each(|_| assert_eq!(refusals.note(at + Duration::from_secs(9)), None));
        assert_eq!(refusals.note(at + WINDOW), Some(70));
        assert_eq!(refusals.note(at + WINDOW), Some(0));
    }
}
