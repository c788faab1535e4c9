//! How far it is, on standard error: one line that is written over on a terminal, now and then a line elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const ON_TERMINAL: Duration = Duration::from_millis(500);
const ELSEWHERE: Duration = Duration::from_secs(10);

pub struct Ticker {
    what: &'static str,
    is_terminal: bool,
    begun: Instant,
    told: Instant,
    /// Of the line on the terminal.
    width: usize,
}

impl Ticker {
    pub fn new(what: &'static str) -> Ticker {
        let now = Instant::now();
        Ticker { what, is_terminal: stderr().is_terminal(), begun: now, told: now, width: 0 }
    }

    pub fn tell(&mut self, done: u64, total: Option<u64>) {
        let now = Instant::now();
        if now - self.told >= if self.is_terminal { ON_TERMINAL } else { ELSEWHERE } {
            self.told = now;
            let line = line(self.what, done, total, now - self.begun);
            self.print(&line);
        }
    }

    /// At once: what comes now may take its time.
    pub fn say(&mut self, text: &str) {
        self.print(text);
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

impl Drop for Ticker {
    fn drop(&mut self) {
        if self.width > 0 {
            self.print("");
            let _ = write!(stderr(), "\r");
        }
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
