//! How often each callsite may warn.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::Metadata;
use tracing::callsite::Identifier;

pub(super) const WINDOW: Duration = Duration::from_secs(10);
pub(super) const PER_WINDOW: u32 = 10;

/// Grows with the callsites of the program, not with what clients do.
#[derive(Default)]
pub(super) struct Limiter {
    /// Leaf lock; held for a look-up.
    callsites: Mutex<HashMap<Identifier, Window>>,
}

struct Window {
    metadata: &'static Metadata<'static>,
    start: Duration,
    written: u32,
    left_out: u64,
    /// Of windows that ended, not told yet.
    owed: u64,
}

pub(super) struct LeftOut {
    pub metadata: &'static Metadata<'static>,
    pub count: u64,
}

impl Limiter {
    /// Whether one more of these is written.
    pub fn admit(&self, metadata: &'static Metadata<'static>, now: Duration) -> bool {
        let mut callsites = self.callsites.lock();
        let window = callsites.entry(metadata.callsite()).or_insert(Window {
            metadata,
            start: now,
            written: 0,
            left_out: 0,
            owed: 0,
        });
        if now.saturating_sub(window.start) >= WINDOW {
            window.end(now);
        }
        if window.written < PER_WINDOW {
            window.written += 1;
            true
        } else {
            window.left_out += 1;
            false
        }
    }

    /// Lines left out in windows that are over, each reported once.
    pub fn ended(&self, now: Duration) -> Vec<LeftOut> {
        let mut callsites = self.callsites.lock();
        let mut told = Vec::new();
        for window in callsites.values_mut() {
            if now.saturating_sub(window.start) >= WINDOW {
                window.end(now);
            }
            if window.owed > 0 {
                told.push(LeftOut { metadata: window.metadata, count: window.owed });
                window.owed = 0;
            }
        }
        told
    }
}

impl Window {
    fn end(&mut self, now: Duration) {
        self.owed += self.left_out;
        self.left_out = 0;
        self.written = 0;
        self.start = now;
    }
}
