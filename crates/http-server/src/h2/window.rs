//! How much a client may send on all streams of a connection before handlers read it.

use std::sync::Arc;

use crate::budget::{Account, Charge};

/// Bytes that a client may send in any case (RFC 9113 §6.9.2).
const BYTES_MIN: usize = 65_535;

/// A client that was told of a window may use it at any time, so it only grows, and is charged as long as the connection
/// lasts.
pub(super) struct Window {
    account: Arc<Account>,
    /// For what is beyond [`BYTES_MIN`].
    charge: Option<Charge>,
}

impl Window {
    pub fn new(account: Arc<Account>) -> Window {
        Window { account, charge: None }
    }

    /// Room for so much beyond [`BYTES_MIN`], or for some of it; the whole window then. `None`: it stays as it is.
    pub fn grow(&mut self, bytes: usize) -> Option<u32> {
        let charged = self.charge.as_ref().map_or(0, Charge::bytes);
        let lacking = bytes.checked_sub(charged).filter(|lacking| *lacking > 0)?;
        let more = self.account.take_now(None, lacking)?;
        let window = BYTES_MIN + charged + more.bytes();
        match &mut self.charge {
            Some(charge) => charge.merge(more),
            None => self.charge = Some(more),
        }
        u32::try_from(window).ok()
    }
}
