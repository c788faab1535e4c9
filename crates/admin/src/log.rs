//! The log's filter: levels that change while the instance runs, and warnings that do not flood.
//!
//! An event is written if its level is within that of its crate's door (else the global one), or of the door or client
//! whose request it belongs to: the fields `door` and `client` of the event or of a span around it say which. Levels of
//! clients, and of doors for what other crates do on their behalf, only ever add lines.
//!
//! With no such level set an event that is not written costs one relaxed load (the interest that `tracing` keeps per
//! callsite), and one that is written needs no look at its fields.
//!
//! Warnings and errors are counted per callsite: ten in ten seconds, then one line that says how many were left out.

mod filter;
mod levels;
mod limiter;
mod lines;
mod subject;

use std::sync::Arc;

use parking_lot::RwLock;
use tracing::Level;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use types::Clock;

pub use filter::LogFilter;
pub use levels::CLIENTS_MAX;
pub use lines::{Form, Lines};

use crate::instance::LogLevels;
use filter::Switches;
use levels::Plan;
use limiter::{Limiter, PER_WINDOW, WINDOW};

/// Lines about lines; never limited.
const OWN_TARGET: &str = "forebay::log";

/// Reads and changes the levels of the running log.
#[derive(Clone)]
pub struct LogControl {
    shared: Arc<LogState>,
}

struct LogState {
    clock: Arc<dyn Clock>,
    /// The level in the configuration; in force unless an administrator has set another. Leaf lock.
    configured: RwLock<Level>,
    switches: Switches,
    /// As somebody has set them. Written with the switches. Leaf lock.
    levels: RwLock<LogLevels>,
    limiter: Limiter,
}

/// Makes this the log of the process, on standard error.
pub fn start(configured: Level, lines: Lines, clock: Arc<dyn Clock>) -> LogControl {
    let control = LogControl::new(configured, clock);
    let lines = lines.layer(std::io::stderr);
    // Another one may be there in tests; then it stays.
    let _ = tracing_subscriber::registry().with(control.filter()).with(lines).try_init();
    control
}

impl LogControl {
    pub fn new(configured: Level, clock: Arc<dyn Clock>) -> LogControl {
        let shared = LogState {
            clock,
            configured: RwLock::new(configured),
            switches: Switches::default(),
            levels: RwLock::default(),
            limiter: Limiter::default(),
        };
        shared.switches.turn(Plan::of_global(configured));
        LogControl { shared: Arc::new(shared) }
    }

    /// The layer to put right above the registry.
    pub fn filter(&self) -> LogFilter {
        LogFilter { shared: Arc::clone(&self.shared) }
    }

    /// With the global level that is in force, whether it was set or is that of the configuration.
    pub fn levels(&self) -> LogLevels {
        let mut levels = self.shared.levels.read().clone();
        levels.level.get_or_insert_with(|| levels::name(self.configured()).to_owned());
        levels
    }

    /// Takes the place of all levels set before; no global level means the configuration's. The error is for the user.
    pub fn set(&self, levels: &LogLevels) -> Result<(), String> {
        let plan = Plan::new(levels, self.configured())?;
        {
            let mut kept = self.shared.levels.write();
            self.shared.switches.turn(plan);
            *kept = levels.clone();
        }
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    }

    /// As the configuration says now. Levels that an administrator has set stay.
    pub fn set_configured(&self, level: Level) {
        *self.shared.configured.write() = level;
        let levels = self.shared.levels.read().clone();
        // They were good when they were set.
        let _ = self.set(&levels);
    }

    fn configured(&self) -> Level {
        *self.shared.configured.read()
    }

    /// Says what was left out; to be called every second or so.
    pub fn tick(&self) {
        for left_out in self.shared.limiter.ended(self.shared.clock.monotonic()) {
            let (count, seconds) = (left_out.count, WINDOW.as_secs());
            let (file, line) =
                (left_out.metadata.file().unwrap_or("?"), left_out.metadata.line().unwrap_or(0));
            let of = left_out.metadata.target();
            if *left_out.metadata.level() == Level::ERROR {
                tracing::error!(target: OWN_TARGET, left_out = count, of, "the error of {file}:{line} came more than {PER_WINDOW} times in {seconds} s");
            } else {
                tracing::warn!(target: OWN_TARGET, left_out = count, of, "the warning of {file}:{line} came more than {PER_WINDOW} times in {seconds} s");
            }
        }
    }
}

#[cfg(test)]
mod tests;
