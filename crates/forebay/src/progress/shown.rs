//! The display of progress on standard error.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Meter, Progress};
use crate::cli::ProgressArguments;

const ON_TERMINAL: Duration = Duration::from_millis(500);
const ELSEWHERE: Duration = Duration::from_secs(5);
/// A longer line would wrap, and could not be written over.
const LINE_LEN_MAX: usize = 79;

/// Progress is shown until this is dropped. Errors and questions are printed afterwards, so that they do not mix.
pub struct Shown {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    /// Shows the work of this process.
    pub fn of(meter: &Arc<Meter>, arguments: ProgressArguments) -> Shown {
        let meter = Arc::clone(meter);
        Shown::begin(arguments, move || meter.progress())
    }

    /// Asks `progress` now and then. A step that hangs is shown too, for a thread of its own asks.
    pub fn begin(
        arguments: ProgressArguments,
        progress: impl Fn() -> Option<Progress> + Send + 'static,
    ) -> Shown {
        let Some(mut screen) = Screen::choose(arguments, stderr().is_terminal()) else {
            return Shown { stop: None, thread: None };
        };
        let (stop, stopped) = mpsc::channel::<()>();
        let show = move || {
            while stopped.recv_timeout(screen.period()) == Err(RecvTimeoutError::Timeout) {
                if let Some(progress) = progress() {
                    screen.draw(&progress);
                }
            }
            screen.finish(progress().as_ref());
        };
        // Without a thread for it the command runs, and shows nothing.
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(show).ok();
        Shown { stop: Some(stop), thread }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, the command is done.
            let _ = thread.join();
        }
    }
}

enum Screen {
    /// The length of the line that stands there.
    Terminal {
        len: usize,
    },
    Lines,
}

impl Screen {
    /// `None`: nothing is shown.
    fn choose(arguments: ProgressArguments, is_terminal: bool) -> Option<Screen> {
        match (is_terminal, arguments.progress) {
            (true, _) => Some(Screen::Terminal { len: 0 }),
            (false, true) => Some(Screen::Lines),
            (false, false) => None,
        }
    }

    fn period(&self) -> Duration {
        match self {
            Screen::Terminal { .. } => ON_TERMINAL,
            Screen::Lines => ELSEWHERE,
        }
    }

    fn draw(&mut self, progress: &Progress) {
        let mut line = progress.line();
        // If nobody reads standard error any more, the work goes on.
        let _ = match self {
            Screen::Terminal { len } => {
                line = line.chars().take(LINE_LEN_MAX).collect();
                let before = std::mem::replace(len, line.chars().count());
                write!(stderr(), "\r{line:before$}")
            }
            Screen::Lines => writeln!(stderr(), "{line}"),
        };
    }

    /// A terminal gets its line back. Elsewhere the last line stays in the log.
    fn finish(&mut self, last: Option<&Progress>) {
        match self {
            Screen::Terminal { len: 0 } => {}
            Screen::Terminal { len } => _ = write!(stderr(), "\r{:1$}\r", "", *len),
            Screen::Lines => {
                if let Some(last) = last {
                    self.draw(last);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_shown_on_a_terminal_or_on_demand() {
        let shown = |is_terminal, progress| Screen::choose(ProgressArguments { progress }, is_terminal);
        assert!(matches!(shown(true, false), Some(Screen::Terminal { len: 0 })));
        assert!(matches!(shown(true, true), Some(Screen::Terminal { len: 0 })));
        assert!(matches!(shown(false, true), Some(Screen::Lines)));
        assert!(shown(false, false).is_none());
    }
}
