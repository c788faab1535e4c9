//! Memory for answers that a handler makes: listings, documents of XML and JSON.
//!
//! A handler takes some before it begins and holds it as long as it makes the answer; so a client that does not read what
//! it asked for, or asks for it many times at once, cannot make the server grow.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::{Account, Charge};

/// A connection's part of it.
#[derive(Clone)]
pub struct Memory(Option<Counted>);

#[derive(Clone)]
struct Counted {
    account: Arc<Account>,
    patience: Duration,
}

/// Counts until it is dropped.
pub struct Held(#[allow(dead_code, reason = "it is held for its drop")] Option<Charge>);

impl Memory {
    /// Without a bound, for requests that no client has sent.
    pub fn unbounded() -> Memory {
        Memory(None)
    }

    pub(crate) fn of(account: Arc<Account>, patience: Duration) -> Memory {
        Memory(Some(Counted { account, patience }))
    }

    /// Waits for so much memory. `None`: others do not give it back in time, and the client is to come again. `payer` is
    /// [`crate::Response::payer`].
    pub async fn take(&self, payer: Option<u64>, bytes: usize) -> Option<Held> {
        let Some(Counted { account, patience }) = &self.0 else { return Some(Held(None)) };
        account.take_whole_within(payer, bytes, *patience).await.map(|charge| Held(Some(charge)))
    }

    /// For an answer that is there: without waiting, since it is in memory meanwhile.
    pub(crate) fn take_now(&self, payer: Option<u64>, bytes: usize) -> Option<Option<Charge>> {
        let Some(Counted { account, .. }) = &self.0 else { return Some(None) };
        account.take_whole(payer, bytes).map(Some)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}
