//! The keys with which a member dials, and how they are replaced.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;
use xdr::Opaque;

use crate::rotation::{CERTIFY, Certified, Certify, KeySet, KeyStore};
use crate::rpc::Connection;
use crate::trust::{Dialling, Fingerprint, MemberKey, TrustError};

/// For an answer of the head, and for the disk.
const TIME: Duration = Duration::from_secs(5);

/// The keys in use, and the next ones as long as the head has not welcomed the member with them.
pub struct KeyRing {
    store: Arc<dyn KeyStore>,
    /// Leaf lock.
    state: Mutex<State>,
}

struct State {
    current: Held,
    next: Option<Held>,
    /// Attempts to connect since there are next keys. They take turns: the head may know only one of them.
    attempts: usize,
}

/// Keys of a generation, ready to dial with.
#[derive(Clone)]
pub struct Held {
    pub dialling: Dialling,
    generation: u32,
    key: Fingerprint,
}

impl Held {
    /// Whether the head has keys of a later generation.
    pub fn are_former(&self, generation: u32) -> bool {
        self.generation < generation
    }

    fn of(keys: &KeySet) -> Result<Held, TrustError> {
        Ok(Held { dialling: keys.dialling()?, generation: keys.generation, key: keys.key.fingerprint() })
    }
}

impl KeyRing {
    pub fn new(
        store: Arc<dyn KeyStore>,
        current: &KeySet,
        next: Option<&KeySet>,
    ) -> Result<KeyRing, TrustError> {
        let next = next.map(Held::of).transpose()?;
        let state = State { current: Held::of(current)?, next, attempts: 0 };
        Ok(KeyRing { store, state: Mutex::new(state) })
    }

    /// Those to dial with now: the next ones first, for each of so many addresses of the head.
    pub fn to_try(&self, addresses: usize) -> Held {
        let mut state = self.state.lock();
        let Some(next) = state.next.clone() else { return state.current.clone() };
        let turn = state.attempts / addresses.max(1);
        state.attempts = state.attempts.wrapping_add(1);
        if turn.is_multiple_of(2) { next } else { state.current.clone() }
    }

    /// The head has welcomed the member with these.
    pub async fn welcomed(&self, with: &Held) {
        {
            let mut state = self.state.lock();
            state.attempts = 0;
            let Some(next) = state.next.take() else { return };
            if next.key != with.key {
                // The head does not know the next ones, for these came later in turn: it gives others.
                return;
            }
            state.current = next;
        }
        let generation = with.generation;
        let store = Arc::clone(&self.store);
        let adopted = tokio::task::spawn_blocking(move || store.adopt_next());
        // The next start finds both, and tries these first.
        match timeout(TIME, adopted).await {
            Ok(Ok(Ok(()))) => tracing::info!(generation, "the keys of this host are rotated"),
            Ok(Ok(Err(error))) => tracing::warn!(error, "cannot forget the former keys of this host"),
            _ => tracing::warn!("cannot forget the former keys of this host: the disk does not answer"),
        }
    }

    /// Makes the next keys, has them certified, and keeps them: the member is to dial with them.
    pub async fn make_next(&self, control: &Connection) -> Result<(), String> {
        let key = MemberKey::make().map_err(|error| error.to_string())?;
        let certify = Certify { public_key: Opaque(key.public_key().into()) };
        let certified = control.call(CERTIFY, &certify, TIME).await.map_err(|error| error.to_string())?;
        let (generation, certificate, authority) = match certified {
            Certified::Certificate { generation, certificate, authority } => {
                (generation, certificate, authority)
            }
            Certified::Refused { reason } => return Err(reason),
        };
        let keys = KeySet { generation, key, certificate, authority };
        let next = Held::of(&keys).map_err(|error| error.to_string())?;
        let store = Arc::clone(&self.store);
        let kept = tokio::task::spawn_blocking(move || store.keep_next(&keys));
        let kept = timeout(TIME, kept).await.map_err(|_| "the disk does not answer".to_owned())?;
        kept.map_err(|error| error.to_string())??;
        let mut state = self.state.lock();
        (state.next, state.attempts) = (Some(next), 0);
        Ok(())
    }
}
