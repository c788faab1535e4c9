//! Which authenticators were seen within the clock skew (RFC 4120 §3.2.3).
//!
//! The cache is bounded: at the bound the oldest authenticator goes. An attacker that replays one that went early gains
//! nothing: it learns neither the acceptor's new subkey nor, without one, the client's, and its recorded calls name
//! another handle.

use std::collections::{HashSet, VecDeque};

use aws_lc_rs::digest;

use crate::UnixSeconds;

type Fingerprint = [u8; 32];

#[derive(Debug)]
pub struct ReplayCache {
    entries_max: usize,
    keep_s: i64,
    seen: HashSet<Fingerprint>,
    /// In the order of arrival, with the time from which an authenticator is too old to be taken.
    queue: VecDeque<(UnixSeconds, Fingerprint)>,
}

impl ReplayCache {
    pub fn new(entries_max: usize, keep_s: i64) -> Self {
        ReplayCache { entries_max, keep_s, seen: HashSet::new(), queue: VecDeque::new() }
    }

    /// Notes an authenticator by its ciphertext; `false` if it was here before.
    pub fn is_first(&mut self, ciphertext: &[u8], now: UnixSeconds) -> bool {
        while let Some((until, oldest)) = self.queue.front() {
            if *until >= now && self.queue.len() < self.entries_max {
                break;
            }
            self.seen.remove(oldest);
            self.queue.pop_front();
        }
        let mut fingerprint = Fingerprint::default();
        fingerprint.copy_from_slice(digest::digest(&digest::SHA256, ciphertext).as_ref());
        if !self.seen.insert(fingerprint) {
            return false;
        }
        self.queue.push_back((now.saturating_add(self.keep_s), fingerprint));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authenticator_is_first_once_while_it_could_be_taken() {
        let mut cache = ReplayCache::new(10, 600);
        assert!(cache.is_first(b"a", 1000));
        assert!(!cache.is_first(b"a", 1000));
        assert!(cache.is_first(b"b", 1600));
        assert!(!cache.is_first(b"a", 1600));
        assert!(cache.is_first(b"a", 1601), "too old by now to come this far");
        assert_eq!(cache.queue.len(), 2);
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut cache = ReplayCache::new(10, 600);
        for n in 0..1000u32 {
            assert!(cache.is_first(&n.to_be_bytes(), 0));
        }
        assert_eq!((cache.queue.len(), cache.seen.len()), (10, 10));
        assert!(!cache.is_first(&999u32.to_be_bytes(), 0));
    }
}
