//! How far a transfer is, and the text that says so.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::counts::Counters;

/// Shared between a transfer and the stream that reports on it.
pub(super) struct Progress {
    stripes: Vec<Stripe>,
    /// How many of the stripes are in use; never none.
    in_use: AtomicUsize,
    /// All bytes are there and checksums are awaited.
    is_verifying: AtomicBool,
    /// Of all copies of this direction.
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Stripe {
    bytes: AtomicU64,
    /// Held only to copy the address in or out.
    peer: Mutex<Option<SocketAddr>>,
}

impl Progress {
    pub fn new(stripes_max: usize, counters: Arc<Counters>) -> Progress {
        Progress {
            stripes: (0..stripes_max.max(1)).map(|_| Stripe::default()).collect(),
            in_use: AtomicUsize::new(1),
            is_verifying: AtomicBool::new(false),
            counters,
        }
    }

    pub fn use_stripes(&self, stripes: usize) {
        self.in_use.store(stripes.clamp(1, self.stripes.len()), Ordering::Relaxed);
    }

    pub fn set(&self, stripe: usize, bytes: u64) {
        if let Some(stripe) = self.stripes.get(stripe) {
            let before = stripe.bytes.swap(bytes, Ordering::Relaxed);
            self.counters.moved(bytes.saturating_sub(before));
        }
    }

    pub fn add(&self, stripe: usize, bytes: u64) {
        if let Some(stripe) = self.stripes.get(stripe) {
            stripe.bytes.fetch_add(bytes, Ordering::Relaxed);
            self.counters.moved(bytes);
        }
    }

    pub fn connected(&self, stripe: usize, peer: SocketAddr) {
        if let Some(stripe) = self.stripes.get(stripe) {
            *stripe.peer.lock() = Some(peer);
        }
    }

    pub fn verify(&self) {
        self.is_verifying.store(true, Ordering::Relaxed);
    }

    pub fn is_verifying(&self) -> bool {
        self.is_verifying.load(Ordering::Relaxed)
    }

    pub fn total(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.bytes.load(Ordering::Relaxed)).sum()
    }

    /// One block per stripe, as FTS and davix read it.
    pub fn markers(&self, now_s: u64) -> String {
        let mut text = String::new();
        let in_use = self.in_use.load(Ordering::Relaxed);
        for (index, stripe) in self.stripes.iter().take(in_use).enumerate() {
            let bytes = stripe.bytes.load(Ordering::Relaxed);
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "Perf Marker\n    Timestamp: {now_s}\n    Stripe Index: {index}\n    \
                 Stripe Bytes Transferred: {bytes}\n    Total Stripe Count: {in_use}\n"
            );
            if let Some(peer) = *stripe.peer.lock() {
                let _ = writeln!(text, "    RemoteConnections: tcp:{}", shown(peer));
            }
            text.push_str("End\n");
        }
        text
    }
}

/// A mapped address counts as IPv4 in statistics of IPv6 transfers.
fn shown(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

pub(super) const SUCCESS: &str = "success: Created\n";

/// `davix` splits at newlines and keeps 1,024 bytes of a line.
const REASON_CHARS_MAX: usize = 400;

pub(super) fn failure_line(reason: &str) -> String {
    format!("failure: {}\n", one_line(reason))
}

pub(super) fn aborted_line(reason: &str) -> String {
    format!("aborted: {}\n", one_line(reason))
}

/// Much of a reason may come from another server.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_has_the_lines_that_fts_and_davix_read() {
        let progress = Progress::new(4, Arc::default());
        progress.add(0, 49_397_760);
        progress.connected(0, "[2001:db8::1]:443".parse().unwrap());
        assert_eq!(
            progress.markers(1_360_578_938),
            "Perf Marker\n    Timestamp: 1360578938\n    Stripe Index: 0\n    \
             Stripe Bytes Transferred: 49397760\n    Total Stripe Count: 1\n    \
             RemoteConnections: tcp:[2001:db8::1]:443\nEnd\n"
        );
    }

    #[test]
    fn there_is_one_marker_for_each_stripe_and_no_peer_before_it_is_known() {
        let progress = Progress::new(2, Arc::default());
        progress.use_stripes(9);
        progress.connected(1, "[::ffff:192.0.2.1]:1094".parse().unwrap());
        let text = progress.markers(0);
        assert_eq!(text.matches("Perf Marker\n").count(), 2);
        assert_eq!(text.matches("Total Stripe Count: 2\n").count(), 2);
        assert_eq!(text.matches("RemoteConnections:").count(), 1);
        assert!(text.contains("Stripe Index: 1\n") && text.contains("tcp:192.0.2.1:1094\n"));
    }

    #[test]
    fn a_reason_is_one_bounded_line() {
        assert_eq!(failure_line("a\r\nsuccess: Created\n\tb"), "failure: a success: Created b\n");
        assert!(failure_line(&"x ".repeat(5000)).len() < 1024);
        assert!(failure_line(&"ü".repeat(5000)).len() < 1024);
    }
}
