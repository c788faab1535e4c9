//! How far a command is, on standard error: one line that is written over on a terminal, now and then a line elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const ON_TERMINAL: Duration = Duration::from_millis(500);
const ELSEWHERE: Duration = Duration::from_secs(10);

pub struct StatusLine {
    is_terminal: bool,
    told: Instant,
    /// Of the line on the terminal.
    width: usize,
}

impl StatusLine {
    pub fn new(now: Instant) -> StatusLine {
        StatusLine { is_terminal: stderr().is_terminal(), told: now, width: 0 }
    }

    /// Whether it is time for another line.
    pub fn is_due(&self, now: Instant) -> bool {
        now - self.told >= if self.is_terminal { ON_TERMINAL } else { ELSEWHERE }
    }

    pub fn tell(&mut self, line: &str, now: Instant) {
        self.told = now;
        self.print(line);
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

impl Drop for StatusLine {
    fn drop(&mut self) {
        if self.width > 0 {
            self.print("");
            let _ = write!(stderr(), "\r");
        }
    }
}
