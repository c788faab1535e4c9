//! One connection: heads, calls, responses, in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use http::{StatusCode, Version};
use http_wire::head::{BodyFraming, HeadError, HeadReader, RequestHead};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Slot;
use super::head::Asked;
use super::incoming::{Incoming, Leftover};
use super::respond::respond;
use super::send_error::SendError;
use crate::budget::{Account, Charge};
use crate::clock::Patience;
use crate::exchange::OpenExchange;
use crate::listener_state::ListenerState;
use crate::message::{Peer, Request, Response, ResponseBody};
use crate::tasks::stopped;
use crate::wire::Wire;
use crate::{RequestBody, Service};

const RECEIVE_BYTES: usize = 4 << 10;
/// A head in a larger buffer is charged to its client until its response is sent: that has a list of ranges as long.
const HEAD_FREE_BYTES: usize = 16 << 10;
const BUSY: &str = "the server has no memory for a request of this size now; try again";
/// The first byte of a TLS record with a handshake, on a port without TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// Flags between a connection and the task that stops it.
#[derive(Default)]
struct Phase {
    /// Between requests: can be dropped.
    is_idle: AtomicBool,
    is_stopping: AtomicBool,
}

struct Connection<'a> {
    shared: &'a Arc<ListenerState>,
    peer: Arc<Peer>,
    phase: &'a Phase,
    /// Of heads and bodies.
    account: Arc<Account>,
}

enum Next {
    Head(Box<RequestHead>, Option<Charge>),
    Refused(StatusCode, String),
    End,
}

/// Returns when the connection is closed; at a stop, after the request that is being answered.
pub(crate) async fn serve(
    wire: Box<Wire>,
    peer: Arc<Peer>,
    shared: Arc<ListenerState>,
    mut stop: watch::Receiver<bool>,
) {
    let phase = Phase::default();
    let account = shared.requests.account(peer.address.ip());
    let mut requests = std::pin::pin!(Connection { shared: &shared, peer, phase: &phase, account }.run(wire));
    tokio::select! {
        biased;
        () = &mut requests => return,
        () = stopped(&mut stop) => phase.is_stopping.store(true, Ordering::Relaxed),
    }
    if !phase.is_idle.load(Ordering::Relaxed) {
        requests.await;
    }
}

impl Connection<'_> {
    async fn run(self, mut wire: Box<Wire>) {
        let (mut heads, mut idle) = (HeadReader::new(self.shared.limits.head), Patience::default());
        let mut is_first = true;
        loop {
            match self.next_head(&mut wire, &mut heads, &mut idle, is_first).await {
                Next::Head(head, charge) => {
                    match self.exchange(wire, *head).await {
                        Some(again) => wire = again,
                        None => return,
                    }
                    drop(charge);
                }
                Next::Refused(status, why) => return self.refuse(wire, status, why).await,
                Next::End => return wire.close(self.shared.limits.write_time).await,
            }
            if self.is_stopping() {
                return wire.close(self.shared.limits.write_time).await;
            }
            is_first = false;
        }
    }

    fn is_stopping(&self) -> bool {
        self.phase.is_stopping.load(Ordering::Relaxed)
    }

    async fn next_head(
        &self,
        wire: &mut Wire,
        heads: &mut HeadReader,
        idle: &mut Patience,
        is_first: bool,
    ) -> Next {
        let limits = &self.shared.limits;
        if wire.received.is_empty() {
            if wire.received.capacity() > HEAD_FREE_BYTES {
                // Of a body in chunks.
                wire.received = BytesMut::with_capacity(RECEIVE_BYTES);
            }
            let patience = if is_first { limits.head_time } else { limits.idle_time };
            self.phase.is_idle.store(true, Ordering::Relaxed);
            let received = idle.within(patience, wire.receive(RECEIVE_BYTES)).await;
            self.phase.is_idle.store(false, Ordering::Relaxed);
            if !matches!(received, Some(Ok(count)) if count > 0) {
                return Next::End;
            }
        }
        let (mut deadline, mut charge) = (None, None);
        loop {
            if !self.charge(wire.received.capacity(), &mut charge) {
                return Next::Refused(StatusCode::SERVICE_UNAVAILABLE, BUSY.to_owned());
            }
            match heads.feed(&mut wire.received) {
                Ok(Some(head)) => {
                    if charge.is_some() {
                        // Else what comes next would keep the memory of a large head.
                        wire.received = BytesMut::from(&wire.received[..]);
                    }
                    return Next::Head(Box::new(head), charge);
                }
                Ok(None) => {}
                Err(error) => return self.refusal(wire, error),
            }
            if is_first && wire.received.first() == Some(&TLS_HANDSHAKE) {
                return Next::End;
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + limits.head_time);
            match timeout_at(deadline, wire.receive(RECEIVE_BYTES)).await {
                Ok(Ok(received)) if received > 0 => {}
                Ok(_) => return Next::End,
                Err(_) => {
                    let why = "the head of the request did not come in time";
                    return Next::Refused(StatusCode::REQUEST_TIMEOUT, why.to_owned());
                }
            }
        }
    }

    /// Whether there may be a head in a buffer of so many bytes.
    fn charge(&self, bytes: usize, charge: &mut Option<Charge>) -> bool {
        bytes <= HEAD_FREE_BYTES || self.account.grow(charge, bytes)
    }

    fn refusal(&self, wire: &Wire, error: HeadError) -> Next {
        if wire.received.first() == Some(&TLS_HANDSHAKE) {
            return Next::End;
        }
        Next::Refused(error.status(), error.to_string())
    }

    /// For what never becomes a request. Framing is lost, so the connection goes too.
    async fn refuse(&self, mut wire: Box<Wire>, status: StatusCode, why: String) {
        tracing::debug!(peer = %self.peer.address, %status, why, "request refused");
        let asked = Asked {
            is_head: false,
            version: Version::HTTP_11,
            keep_alive: false,
            is_encrypted: self.peer.tls.is_some(),
        };
        let response = Response::text(status, why);
        if respond((&mut *wire, None), response, &asked, self.shared, &self.peer.memory).await.is_ok() {
            wire.linger(self.shared.limits.linger_time).await;
        }
    }

    /// Gives the wire back if there may be another request on it.
    async fn exchange(&self, wire: Box<Wire>, head: RequestHead) -> Option<Box<Wire>> {
        let limits = &self.shared.limits;
        let (method_is_head, version) = (head.method == http::Method::HEAD, head.version);
        let length = match head.framing {
            BodyFraming::None => Some(0),
            BodyFraming::Length(length) => Some(length),
            BodyFraming::Chunked => None,
        };
        let account = &self.account;
        let incoming = Incoming::new(wire, head.framing, head.expects_continue, Arc::clone(account));
        let slot = Slot::new(incoming, Arc::clone(&self.shared.intake), Arc::clone(account));
        let mut exchange = OpenExchange::begin(
            self.shared.exchange_log.as_ref(),
            self.peer.address,
            (&head.method, &head.uri, version),
            &head.headers,
        );
        let request = Request {
            method: head.method,
            uri: head.uri,
            version,
            headers: head.headers,
            peer: Arc::clone(&self.peer),
            body: RequestBody::h1(Arc::clone(&slot), length, head.expects_continue)
                .counted(exchange.as_deref().map(OpenExchange::received)),
        };
        let response = self.call(request, &slot).await?;
        let mut incoming = slot.close()?;
        let leftover = incoming.leftover(limits.drained_bytes_max);
        let asked = Asked {
            is_head: method_is_head,
            version,
            keep_alive: head.keep_alive
                && leftover != Leftover::Close
                && !self.is_stopping()
                && (version == Version::HTTP_11 || !matches!(response.body, ResponseBody::Stream(_))),
            is_encrypted: self.peer.tls.is_some(),
        };
        let told = (&mut *incoming.wire, exchange.as_deref_mut());
        let sent = respond(told, response, &asked, self.shared, &self.peer.memory).await;
        if let Some(mut exchange) = exchange {
            exchange.sent(incoming.wire.body_bytes());
        }
        if let Err(error) = sent {
            match error {
                SendError::Gone(error) => {
                    tracing::debug!(peer = %self.peer.address, %error, "client does not take its response");
                }
                error => tracing::warn!(peer = %self.peer.address, %error, "connection reset"),
            }
            incoming.wire.reset_on_drop();
            return None;
        }
        if !asked.keep_alive {
            self.end(incoming, leftover).await;
            return None;
        }
        if leftover == Leftover::Nothing {
            return Some(incoming.wire);
        }
        match timeout(limits.linger_time, incoming.drain(&self.shared.intake)).await {
            Ok(true) => Some(incoming.wire),
            _ => None,
        }
    }

    async fn end(&self, incoming: Box<Incoming>, leftover: Leftover) {
        let wire = incoming.wire;
        if leftover == Leftover::Nothing && wire.received.is_empty() {
            wire.close(self.shared.limits.write_time).await;
        } else {
            wire.linger(self.shared.limits.linger_time).await;
        }
    }

    /// `None`: the client went away, and the call with it.
    async fn call(&self, request: Request, slot: &Slot) -> Option<Response> {
        let service: &dyn Service = &*self.shared.service;
        tokio::select! {
            biased;
            response = service.serve(request) => Some(response),
            () = self.client_gone(slot) => {
                tracing::debug!(peer = %self.peer.address, "client went away before it was answered");
                None
            }
        }
    }

    /// Some clients close their half of the connection when they have asked, and wait for the answer: they get some
    /// time. For longer ones an end is the only sign that nobody waits any more.
    async fn client_gone(&self, slot: &Slot) {
        slot.body_ended().await;
        sleep(self.shared.limits.half_closed_time).await;
        match slot.lease() {
            Some(mut lease) => lease.wire.gone().await,
            None => std::future::pending().await,
        }
    }
}
