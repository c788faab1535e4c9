//! How far it is, on standard error: one line that is written over on a terminal, now and then a line elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use ::namespace::bulk::{Phase, Progress};

const ON_TERMINAL: Duration = Duration::from_millis(500);
const ELSEWHERE: Duration = Duration::from_secs(10);
/// Before it the rate says nothing.
const RATE_AFTER: Duration = Duration::from_secs(1);

pub struct Teller {
    is_terminal: bool,
    phase: Option<Phase>,
    begun: Instant,
    begun_at: u64,
    told: Instant,
    /// Of the line on the terminal.
    width: usize,
}

impl Teller {
    pub fn new() -> Teller {
        let now = Instant::now();
        Teller {
            is_terminal: stderr().is_terminal(),
            phase: None,
            begun: now,
            begun_at: 0,
            told: now,
            width: 0,
        }
    }

    pub fn tell(&mut self, progress: Progress) {
        let now = Instant::now();
        let is_new = self.phase != Some(progress.phase);
        if is_new {
            (self.phase, self.begun, self.begun_at) = (Some(progress.phase), now, progress.done);
        }
        let interval = if self.is_terminal { ON_TERMINAL } else { ELSEWHERE };
        if is_new || now - self.told >= interval {
            self.told = now;
            let line = line(progress, progress.done - self.begun_at, now - self.begun);
            self.print(&line);
        }
    }

    fn print(&mut self, line: &str) {
        // Nobody may be reading; the work goes on.
        let _ = if self.is_terminal {
            let width = std::mem::replace(&mut self.width, line.chars().count());
            write!(stderr(), "\r{line:width$}")
        } else {
            writeln!(stderr(), "{line}")
        };
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if self.width > 0 {
            self.print("");
            let _ = write!(stderr(), "\r");
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
        Phase::Saving => format!("saving: {} of {} MiB", progress.done >> 20, total >> 20),
    };
    let percent = progress.done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
    let mut text = format!("{what}, {percent} %");
    if taken >= RATE_AFTER && done > 0 {
        let rate = done as f64 / taken.as_secs_f64();
        let left = Duration::from_secs_f64(total.saturating_sub(progress.done) as f64 / rate);
        let unit = if phase == Phase::Saving {
            format!("{} MiB/s", rate as u64 >> 20)
        } else {
            format!("{}/s", rate as u64)
        };
        text.push_str(&format!(", {unit}, {} left", duration(left)));
    }
    text
}

fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
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
        let nothing = Progress { done: 0, total: 0, ..progress };
        assert_eq!(line(nothing, 0, Duration::ZERO), "copying inodes: 0 of 0 rows, 100 %");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 5 s");
    }
}
