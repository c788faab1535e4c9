//! How far a copy and the like are, with a rate and how long it will take.

use std::time::{Duration, Instant};

use ::namespace::bulk::{Phase, Progress};
use types::display::{Seconds, Size};

use crate::status_line::StatusLine;

/// Before it the rate says nothing.
const RATE_AFTER: Duration = Duration::from_secs(1);

pub struct Teller {
    line: StatusLine,
    phase: Option<Phase>,
    begun: Instant,
    begun_at: u64,
}

impl Teller {
    pub fn new() -> Teller {
        let now = Instant::now();
        Teller { line: StatusLine::new(now), phase: None, begun: now, begun_at: 0 }
    }

    pub fn tell(&mut self, progress: Progress) {
        let now = Instant::now();
        let is_new = self.phase != Some(progress.phase);
        if is_new {
            (self.phase, self.begun, self.begun_at) = (Some(progress.phase), now, progress.done);
        }
        if is_new || self.line.is_due(now) {
            let line = line(progress, progress.done - self.begun_at, now - self.begun);
            self.line.tell(&line, now);
        }
    }
}

/// `done`: in `taken`.
fn line(progress: Progress, done: u64, taken: Duration) -> String {
    let Progress { phase, table, total, .. } = progress;
    let what = match phase {
        Phase::Counting => return "counting rows".to_owned(),
        Phase::Indexing => return "making indexes".to_owned(),
        Phase::Checking => return "checking".to_owned(),
        Phase::Copying => format!("copying {table}: {} of {total} rows", progress.done),
        Phase::Verifying => format!("comparing {table}: {} of {total} rows", progress.done),
        Phase::Saving => format!("saving: {} of {}", Size(progress.done), Size(total)),
        Phase::Reading => format!("reading the backup: {} of {}", Size(progress.done), Size(total)),
    };
    let percent = progress.done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
    let mut text = format!("{what}, {percent} %");
    if taken >= RATE_AFTER && done > 0 {
        let rate = done as f64 / taken.as_secs_f64();
        let left = Duration::from_secs_f64(total.saturating_sub(progress.done) as f64 / rate);
        let unit = if matches!(phase, Phase::Saving | Phase::Reading) {
            format!("{}/s", Size(rate as u64))
        } else {
            format!("{}/s", rate as u64)
        };
        text.push_str(&format!(", {unit}, {} left", Seconds(left.as_secs())));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_how_fast_and_how_long_yet() {
        let progress = Progress { phase: Phase::Copying, table: "inodes", done: 3000, total: 10_000 };
        let told = line(progress, 2000, Duration::from_secs(2));
        assert_eq!(told, "copying inodes: 3000 of 10000 rows, 30 %, 1000/s, 7 s left");
        let resumed = line(progress, 0, Duration::from_secs(2));
        assert_eq!(resumed, "copying inodes: 3000 of 10000 rows, 30 %");
        let saving = Progress { phase: Phase::Saving, done: 3 << 20, total: 1 << 30, ..progress };
        let told = line(saving, 2 << 20, Duration::from_secs(2));
        assert_eq!(told, "saving: 3.0 MiB of 1.0 GiB, 0 %, 1.0 MiB/s, 17 min 1 s left");
        let nothing = Progress { done: 0, total: 0, ..progress };
        assert_eq!(line(nothing, 0, Duration::ZERO), "copying inodes: 0 of 0 rows, 100 %");
    }
}
