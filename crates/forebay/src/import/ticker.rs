//! How many there are so far, of something that is counted one by one.

use std::time::{Duration, Instant};

use crate::status_line::StatusLine;

pub struct Ticker {
    what: &'static str,
    begun: Instant,
    line: StatusLine,
}

impl Ticker {
    pub fn new(what: &'static str) -> Ticker {
        let now = Instant::now();
        Ticker { what, begun: now, line: StatusLine::new(now) }
    }

    pub fn tell(&mut self, done: u64, total: Option<u64>) {
        let now = Instant::now();
        if self.line.is_due(now) {
            let line = line(self.what, done, total, now - self.begun);
            self.line.tell(&line, now);
        }
    }

    /// Prints `text` at once: the next step may take long.
    pub fn say(&mut self, text: &str) {
        self.line.tell(text, Instant::now());
    }
}

fn line(what: &str, done: u64, total: Option<u64>, taken: Duration) -> String {
    let rate = done as f64 / taken.as_secs_f64().max(1e-3);
    match total {
        Some(total) => {
            let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
            format!("{done} of {total} {what}, {percent} %, {rate:.0}/s")
        }
        None => format!("{done} {what}, {rate:.0}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_and_how_fast() {
        assert_eq!(line("files", 50, Some(200), Duration::from_secs(10)), "50 of 200 files, 25 %, 5/s");
        assert_eq!(line("names", 3000, None, Duration::from_secs(2)), "3000 names, 1500/s");
    }
}
