//! Redirects to the data faces of pools: for how long, and by which address this client reaches a pool.

use std::sync::Arc;

use api::{Face, FaceElsewhere, TicketKeys};
use files::Files;
use http::header::HeaderValue;
use http_wire::target;
use types::{Clock, Name, PoolId};

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

    /// Whether a request may be answered with a redirect at all. A credential that is bound to addresses is judged here.
    pub fn may_lead_away(&self, call: &Call) -> bool {
        self.mode == Redirect::ToFaces && !call.caller.is_bound_to_addresses()
    }

    /// Scheme and `host:port` at which this client reaches the data face of a pool. `None`: it is to be served here.
    pub fn origin(&self, call: &Call, pool: PoolId) -> Option<String> {
        let Face { address, elsewhere } = self.files.pools().face(pool, NAME)?;
        let Some(elsewhere) = elsewhere else {
            // A client that came without TLS may go on without it: listeners of head and pools take the same clients.
            let host = host_for(&call.headers, address, call.peer.local);
            return Some(format!("{}://{host}", scheme(call)));
        };
        // The token would be the pool host's, which could use it at the head.
        if call.token_in_query.is_some() || !takes(&elsewhere, call) {
            return None;
        }
        let host = match elsewhere.name {
            Some(name) => format!("{name}:{}", address.port()),
            None => host_for(&call.headers, address, call.peer.local),
        };
        Some(format!("{}://{host}", scheme(call)))
    }

    /// Where the pool of a ticket serves the path, at the origin that this client can use.
    pub fn url(&self, call: &Call, origin: &str, path: &[Name], ticket: &UrlTicket) -> Option<HeaderValue> {
        let path = target::encode_path(path, false);
        let mut url = format!("{origin}{path}?{PARAMETER}={}", ticket.seal(&self.ticket_keys));
        if let Some(token) = &call.token_in_query {
            // For the way back, if the pool cannot serve it.
            url.push_str("&authz=");
            target::put_query_text(&mut url, token);
        }
        HeaderValue::try_from(url).ok()
    }
}

/// A redirect keeps the scheme: a client is not led out of TLS, nor into a certificate that it may not know.
fn scheme(call: &Call) -> &'static str {
    if call.peer.tls.is_some() { "https" } else { "http" }
}

/// Whether the face takes this client by the scheme with which it came here.
fn takes(face: &FaceElsewhere, call: &Call) -> bool {
    let client = call.peer.address.ip();
    match call.peer.tls {
        Some(_) => face.is_encrypted,
        None => face.plain_networks.iter().any(|network| network.contains(client)),
    }
}
