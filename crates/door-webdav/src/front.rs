//! The door at the head: gives each request to the part that serves its method.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Method, StatusCode};
use http_server::{Request, RequestBody, Response, Service};
use http_wire::target;
use tracing::Instrument;

use crate::admission::Admission;
use crate::call::{Call, payer};
use crate::changes::Changes;
use crate::completions::LocalCompletions;
use crate::front_config::NAME;
use crate::get::Reads;
use crate::lock::Locking;
use crate::macaroons::Macaroons;
use crate::options::options;
use crate::propfind::PropertyListing;
use crate::put::Puts;
use crate::refusal::Refusal;
use crate::relocate::copies::Copies;
use crate::third_party::ThirdPartyCopies;
use crate::well_known::WellKnown;

/// Put together in `assembly.rs`. No part knows it.
pub struct Front {
    pub(crate) admission: Admission,
    pub(crate) reads: Reads,
    pub(crate) puts: Puts,
    pub(crate) listing: PropertyListing,
    pub(crate) changes: Changes,
    pub(crate) locking: Locking,
    pub(crate) copies: Copies,
    pub(crate) third_party: ThirdPartyCopies,
    pub(crate) macaroons: Macaroons,
    pub(crate) well_known: WellKnown,
    pub(crate) completions: LocalCompletions,
}

impl Front {
    /// Ends locks and uploads that nobody came back for; to be called every second or so.
    pub fn tick(&self) {
        self.locking.locks.end_expired();
        self.puts.give_up_idle();
    }

    /// Ends the third-party copies that run; for a stop.
    pub async fn stop_copies(&self, patience: Duration) {
        self.third_party.stop(patience).await;
    }

    /// `/.well-known/NAME`, for a router. `None`: there is no such document.
    pub async fn well_known(&self, method: &Method, name: &str) -> Option<Response> {
        self.well_known.document(method, name).await
    }

    /// For the data faces of pools in this process.
    pub fn completions(&self) -> LocalCompletions {
        self.completions.clone()
    }

    async fn handle(&self, call: &Arc<Call>, body: RequestBody) -> Result<Response, Refusal> {
        // Of a COPY from elsewhere the header would be of its own head.
        if matches!(call.method.as_str(), "PUT" | "POST" | "PROPFIND" | "PROPPATCH" | "LOCK") {
            call.refuse_encoded_body()?;
        }
        // Large futures of single methods are boxed: the others do not carry their room.
        match call.method.as_str() {
            "OPTIONS" => Ok(options()),
            "GET" | "HEAD" => self.reads.get(call).await,
            "PUT" => Box::pin(self.puts.put(call, body)).await,
            "POST" => self.macaroons.post(call, body).await,
            "PROPFIND" => Box::pin(self.listing.find(call, body)).await,
            "PROPPATCH" => self.changes.patch_properties(call, body).await,
            "MKCOL" => self.changes.make_collection(call, body).await,
            "DELETE" => self.changes.delete(call).await,
            "MOVE" => self.changes.relocate(call).await,
            "COPY" => match Box::pin(self.third_party.copy(call)).await? {
                Some(response) => Ok(response),
                None => Box::pin(self.copies.copy(call)).await,
            },
            "LOCK" => Box::pin(self.locking.lock(call, body)).await,
            "UNLOCK" => self.locking.unlock(call).await,
            _ => Err(Refusal::new(
                StatusCode::NOT_IMPLEMENTED,
                format!("{} is not a method here", call.method),
            )),
        }
    }
}

/// `Arc<Front>` as a service.
pub struct FrontService(pub Arc<Front>);

#[async_trait]
impl Service for FrontService {
    async fn serve(&self, request: Request) -> Response {
        // The server as a whole (RFC 9110 §9.3.7); any other method is refused for it before it comes here.
        if request.uri.path() == "*" {
            return options();
        }
        let (call, body) = match self.0.admission.admit(request).await {
            Ok((call, body)) => (Arc::new(call), body),
            Err(refusal) => return refusal.into_response(),
        };
        let span =
            tracing::debug_span!("request", door = NAME, client = %call.peer.address, method = %call.method);
        let (mut response, reason) = match self.0.handle(&call, body).instrument(span).await {
            Ok(response) => (response, None),
            Err(refusal) => {
                let refusal = call.reconsider(refusal);
                let reason = refusal.message.clone();
                (refusal.into_response(), Some(reason))
            }
        };
        response.payer = payer(&call.caller);
        response.user = call.caller.known_name();
        tracing::debug!(
            client = %call.peer.address,
            caller = %call.caller.name,
            method = %call.method,
            path = target::encode_path(&call.path, false),
            status = response.status.as_u16(),
            reason,
            "request"
        );
        response
    }
}
