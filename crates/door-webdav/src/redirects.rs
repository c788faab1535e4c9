//! Redirects to the data faces of pools: for how long, and by which address this client reaches a pool.

use std::sync::Arc;

use api::TicketKeys;
use files::Files;
use http::header::HeaderValue;
use http_wire::target;
use types::{Clock, Name};

use crate::call::Call;
use crate::front_config::{NAME, Redirect};
use crate::host::host_for;
use crate::ticket::{PARAMETER, UrlTicket};

pub(crate) struct Redirects {
    pub files: Arc<Files>,
    pub clock: Arc<dyn Clock>,
    pub ticket_keys: TicketKeys,
    pub mode: Redirect,
}

impl Redirects {
    pub fn now_s(&self) -> u64 {
        u64::try_from(self.clock.now().seconds).unwrap_or(0)
    }

    /// A ticket ends with the credential that it was given to.
    pub fn expires_s(&self, call: &Call, validity_s: u64) -> u64 {
        (self.now_s() + validity_s).min(call.caller.expires_s.unwrap_or(u64::MAX))
    }

    /// Where the pool of a ticket serves the path to this client. A client that came without TLS may go on without it:
    /// listeners of head and pools take the same clients.
    pub fn url(&self, call: &Call, path: &[Name], ticket: &UrlTicket) -> Option<HeaderValue> {
        let listener = self.files.pools().address(ticket.pool, NAME)?;
        let host = host_for(&call.headers, listener, call.peer.local);
        let scheme = if call.peer.tls.is_some() { "https" } else { "http" };
        let path = target::encode_path(path, false);
        let mut url = format!("{scheme}://{host}{path}?{PARAMETER}={}", ticket.seal(&self.ticket_keys));
        if let Some(token) = &call.token_in_query {
            // For the way back, if the pool cannot serve it.
            url.push_str("&authz=");
            target::put_query_text(&mut url, token);
        }
        HeaderValue::try_from(url).ok()
    }
}
