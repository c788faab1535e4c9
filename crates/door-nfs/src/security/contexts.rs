//! The contexts that clients have established, found by their handles.
//!
//! Bounded: one that is idle for long or whose ticket ended goes when the next comes, and at the bound the one that was
//! idle longest. A client whose context is gone makes another without its user noticing (RFC 2203 §5.3.3.3).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gss::UnixSeconds;
use oncrpc::{SequenceFate, SequenceWindow};
use parking_lot::Mutex;
use types::Identity;

const CONTEXTS_MAX: usize = 16_384;
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// How often those that are idle are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

type Handle = [u8; 16];

/// A context, who it is here, and which of its calls were seen.
pub(crate) struct Established {
    pub context: gss::Context,
    /// Before squashing.
    pub identity: Identity,
    /// The client's principal, for those who compare.
    pub name: [u8; 16],
    /// Leaf lock.
    window: Mutex<SequenceWindow>,
}

/// The result of looking up a handle.
pub(crate) enum Found {
    Context(Arc<Established>),
    /// The context's ticket has expired.
    Expired,
    Unknown,
}

struct Entry {
    established: Arc<Established>,
    used: Duration,
}

#[derive(Default)]
pub(super) struct Contexts {
    by_handle: HashMap<Handle, Entry>,
    swept: Duration,
    established: u64,
    refused: u64,
}

impl Established {
    pub fn new(context: gss::Context, identity: Identity, name: [u8; 16]) -> Established {
        Established { context, identity, name, window: Mutex::default() }
    }

    /// Judges the sequence number of a call that the context has signed.
    pub fn judge(&self, sequence: u32) -> SequenceFate {
        self.window.lock().judge(sequence)
    }
}

/// Contexts since the start, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecurityStatus {
    /// Contexts that clients have now.
    pub contexts: u64,
    pub established: u64,
    pub refused: u64,
}

impl Contexts {
    pub fn insert(&mut self, handle: Handle, established: Arc<Established>, at: Duration, now: UnixSeconds) {
        self.established += 1;
        if self.by_handle.len() >= CONTEXTS_MAX || at.saturating_sub(self.swept) >= SWEEP_PERIOD {
            self.sweep(at, now);
        }
        if self.by_handle.len() >= CONTEXTS_MAX {
            let oldest = self.by_handle.iter().min_by_key(|(_, entry)| entry.used).map(|(handle, _)| *handle);
            oldest.and_then(|oldest| self.by_handle.remove(&oldest));
        }
        self.by_handle.insert(handle, Entry { established, used: at });
    }

    pub fn find(&mut self, handle: &[u8], at: Duration, now: UnixSeconds) -> Found {
        let Ok(handle) = Handle::try_from(handle) else { return Found::Unknown };
        let Some(entry) = self.by_handle.get_mut(&handle) else { return Found::Unknown };
        if entry.established.context.expires() < now {
            self.by_handle.remove(&handle);
            return Found::Expired;
        }
        entry.used = at;
        Found::Context(Arc::clone(&entry.established))
    }

    pub fn remove(&mut self, handle: &[u8]) {
        if let Ok(handle) = Handle::try_from(handle) {
            self.by_handle.remove(&handle);
        }
    }

    pub fn note_refused(&mut self) {
        self.refused += 1;
    }

    pub fn status(&self) -> SecurityStatus {
        SecurityStatus {
            contexts: self.by_handle.len() as u64,
            established: self.established,
            refused: self.refused,
        }
    }

    fn sweep(&mut self, at: Duration, now: UnixSeconds) {
        self.swept = at;
        self.by_handle.retain(|_, entry| {
            at.saturating_sub(entry.used) < IDLE_MAX && entry.established.context.expires() >= now
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::fixture;

    const AT: Duration = Duration::from_secs(5000);

    fn established() -> (Arc<Established>, UnixSeconds) {
        let context = fixture::initiator().context(gss::peer::key(18, 3), false);
        let expires = context.expires();
        (Arc::new(Established::new(context, Identity::nobody(), [0; 16])), expires)
    }

    fn handle(n: usize) -> Handle {
        (n as u128).to_be_bytes()
    }

    fn is_there(found: Found) -> bool {
        matches!(found, Found::Context(_))
    }

    #[test]
    fn contexts_are_bounded_and_the_one_idle_longest_goes() {
        let ((context, _), mut contexts) = (established(), Contexts::default());
        for n in 0..CONTEXTS_MAX {
            contexts.insert(handle(n), Arc::clone(&context), AT, 0);
        }
        let later = AT + Duration::from_secs(1);
        (1..CONTEXTS_MAX).for_each(|n| assert!(is_there(contexts.find(&handle(n), later, 0))));
        contexts.insert(handle(CONTEXTS_MAX), context, later, 0);
        assert_eq!(contexts.status().contexts, CONTEXTS_MAX as u64);
        assert!(!is_there(contexts.find(&handle(0), later, 0)));
        assert!(is_there(contexts.find(&handle(CONTEXTS_MAX), later, 0)));
    }

    #[test]
    fn an_idle_context_goes_when_another_comes() {
        let ((context, _), mut contexts) = (established(), Contexts::default());
        contexts.insert(handle(1), Arc::clone(&context), AT, 0);
        contexts.insert(handle(2), Arc::clone(&context), AT, 0);
        assert!(is_there(contexts.find(&handle(2), AT + IDLE_MAX / 2, 0)));
        contexts.insert(handle(3), context, AT + IDLE_MAX, 0);
        assert!(matches!(contexts.find(&handle(1), AT + IDLE_MAX, 0), Found::Unknown));
        assert!(is_there(contexts.find(&handle(2), AT + IDLE_MAX, 0)));
    }

    #[test]
    fn a_context_ends_with_its_ticket() {
        let ((context, expires), mut contexts) = (established(), Contexts::default());
        contexts.insert(handle(1), context, AT, 0);
        assert!(is_there(contexts.find(&handle(1), AT, expires)));
        assert!(matches!(contexts.find(&handle(1), AT, expires + 1), Found::Expired));
        assert!(matches!(contexts.find(&handle(1), AT, expires + 1), Found::Unknown));
        assert!(matches!(contexts.find(b"short", AT, 0), Found::Unknown));
    }
}
