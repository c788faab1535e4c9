//! COPY to and from other servers, and the addresses of our own pools.

use std::sync::Arc;

use http::header::HeaderValue;
use http_server::Response;
use http_wire::target;

use crate::call::Call;
use crate::data::host_for;
use crate::front::Front;
use crate::locks::Path;
use crate::refusal::Refusal;
use crate::ticket::{PARAMETER, UrlTicket};

impl Front {
    /// `None`: it is a COPY inside this instance.
    pub(crate) async fn copy_elsewhere(self: &Arc<Self>, _call: &Call) -> Result<Option<Response>, Refusal> {
        Ok(None)
    }

    /// Where the pool of a ticket serves the path to this client.
    pub(crate) fn pool_url(&self, call: &Call, path: &Path, ticket: &UrlTicket) -> Option<HeaderValue> {
        let (_, listener) = self.config.data_faces.iter().find(|(pool, _)| *pool == ticket.pool)?;
        let host = host_for(&call.headers, *listener, call.peer.local);
        let scheme = if self.config.is_tls { "https" } else { "http" };
        let path = target::encode_path(path, false);
        let url = format!("{scheme}://{host}{path}?{PARAMETER}={}", ticket.seal(&self.services.key));
        HeaderValue::try_from(url).ok()
    }
}
