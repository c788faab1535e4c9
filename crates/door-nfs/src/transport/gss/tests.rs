//! A client with a ticket, over a socket: the answers for each service, and those to calls that are not genuine.

use nfs4::{Compound4Args, Compound4Res, NfsArgop4};
use oncrpc::{AcceptedStatus, Credential, RejectedReply, ReplyBody, signed_header};
use xdr::Decoder;

use super::*;
use crate::security::fixture::{initiator, security};
use crate::session_ops::fixture::{Client, Server};
use crate::transport::TransportLimits;

const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];

async fn server() -> Server {
    Server::secured(security(), TransportLimits::default(), &[]).await
}

/// The other end of a context, on a connection.
struct Peer {
    client: Client,
    context: ::gss::Context,
    handle: Opaque,
    sequence: u32,
}

/// Sends INIT with a token and returns the reply's verifier and result.
async fn handshake(client: &mut Client, token: &[u8]) -> (OpaqueAuth, GssInitRes) {
    let credential = GssCredential {
        procedure: GssProcedure::Init,
        sequence: 0,
        service: GssService::None,
        handle: Opaque::new(),
    };
    let init = |header: &mut CallHeader| {
        header.procedure = NFSPROC4_NULL;
        header.credential = Credential::RpcsecGss(credential);
    };
    client.send_call(init, |e| e.opaque_slice(token)).await;
    let (header, mut results) = client.reply().await;
    let ReplyBody::Accepted(accepted) = header.body else { panic!("{header:?}") };
    (accepted.verifier, GssInitRes::decode(&mut results).unwrap())
}

impl Peer {
    async fn connect(server: &Server) -> Peer {
        let (mut client, initiator) = (server.connect().await, initiator());
        let (verifier, result) = handshake(&mut client, &initiator.token()).await;
        assert_eq!((result.major, result.minor), (0, 0));
        let context = initiator.finish(&result.token);
        assert_eq!(context.verify_mic(&[&result.window.to_be_bytes()], &verifier.body), Ok(()));
        Peer { client, context, handle: result.handle, sequence: 0 }
    }

    /// Sends a call with the number of the last one plus `step`.
    async fn send(&mut self, procedure: GssProcedure, service: GssService, step: u32, arguments: &[u8]) {
        self.sequence += step;
        let (sequence, handle) = (self.sequence, self.handle.clone());
        let number = sequence.to_be_bytes();
        let signed = |header: &mut CallHeader| {
            if procedure == GssProcedure::Destroy {
                header.procedure = NFSPROC4_NULL;
            }
            header.credential = Credential::RpcsecGss(GssCredential { procedure, sequence, service, handle });
            let mut e = Encoder::new();
            header.encode(&mut e);
            let signed = signed_header(&e.into_bytes()).unwrap();
            let body = self.context.mic(&[&signed]).into();
            header.verifier = OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body };
        };
        let context = &self.context;
        let protected = |e: &mut Encoder| match service {
            GssService::None => e.put_raw(arguments),
            GssService::Integrity => {
                e.opaque_slice(&[&number, arguments].concat());
                e.opaque_slice(&context.mic(&[&number, arguments]));
            }
            GssService::Privacy => e.opaque_slice(&context.seal(&[&number, arguments], &[1; 16])),
        };
        self.client.send_call(signed, protected).await;
    }

    /// The next reply's results, taken out of their protection.
    async fn results(&mut self, service: GssService) -> Bytes {
        let (header, results) = self.client.reply().await;
        let ReplyBody::Accepted(accepted) = header.body else { panic!("{header:?}") };
        assert_eq!(accepted.status, AcceptedStatus::Success);
        let number = self.sequence.to_be_bytes();
        assert_eq!(self.context.verify_mic(&[&number], &accepted.verifier.body), Ok(()));
        let body = results.rest();
        match service {
            GssService::None => body,
            GssService::Integrity => {
                let body = IntegrityBody::decode(body).unwrap();
                assert_eq!(self.context.verify_mic(&[&body.signed], &body.mic), Ok(()));
                unnumbered(body.signed, self.sequence).unwrap()
            }
            GssService::Privacy => {
                let opened = self.context.unwrap(&privacy_token(body).unwrap()).unwrap();
                assert!(opened.is_sealed);
                unnumbered(opened.data.freeze(), self.sequence).unwrap()
            }
        }
    }

    async fn refusal(&mut self) -> ReplyBody {
        self.client.reply().await.0.body
    }
}

/// A COMPOUND that any server answers: its tag comes back.
fn compound(tag: &'static str) -> Bytes {
    let mut e = Encoder::new();
    let argarray = vec![NfsArgop4::PutRootFh];
    Compound4Args { tag: Opaque::from(tag), minorversion: 1, argarray }.encode(&mut e);
    e.into_bytes()
}

fn tag(results: Bytes) -> Opaque {
    Compound4Res::decode(&mut Decoder::new(results)).unwrap().tag
}

fn denied(stat: AuthStat) -> ReplyBody {
    ReplyBody::Denied(RejectedReply::AuthError(stat))
}

#[tokio::test]
async fn a_client_with_a_ticket_is_answered_with_the_protection_that_it_asked_for() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    for service in SERVICES {
        peer.send(GssProcedure::Data, service, 1, &compound("hello")).await;
        assert_eq!(tag(peer.results(service).await), Opaque::from("hello"), "{service:?}");
    }
    let status = server.engine.security.status();
    assert_eq!((status.contexts, status.established, status.refused), (1, 1, 0));
}

#[tokio::test]
async fn sealed_data_is_not_readable_on_the_wire() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.send(GssProcedure::Data, GssService::Privacy, 1, &compound("a secret tag")).await;
    let (_, results) = peer.client.reply().await;
    let wire = results.rest();
    assert!(wire.len() > 12 && !wire.windows(12).any(|window| window == b"a secret tag"));
}

#[tokio::test]
async fn a_call_that_is_not_signed_by_its_context_is_refused() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let mut other = Peer::connect(&server).await;
    std::mem::swap(&mut peer.context, &mut other.context);
    peer.send(GssProcedure::Data, GssService::None, 1, &compound("x")).await;
    assert_eq!(peer.refusal().await, denied(AuthStat::RpcsecGssCredProblem));
    other.handle = Opaque::from("no handle of ours");
    other.send(GssProcedure::Data, GssService::None, 1, &compound("x")).await;
    assert_eq!(other.refusal().await, denied(AuthStat::RpcsecGssCredProblem));
}

#[tokio::test]
async fn arguments_that_were_changed_are_garbage() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let mut other = Peer::connect(&server).await;
    for service in [GssService::Integrity, GssService::Privacy] {
        // Protected by another context, under a header that is signed well.
        let number = (peer.sequence + 1).to_be_bytes();
        let plain = [&number[..], &compound("x")].concat();
        let mut e = Encoder::new();
        match service {
            GssService::Integrity => {
                e.opaque_slice(&plain);
                e.opaque_slice(&other.context.mic(&[&plain]));
            }
            _ => e.opaque_slice(&other.context.seal(&[&plain], &[1; 16])),
        }
        peer.send_as(service, &e.into_bytes()).await;
        let ReplyBody::Accepted(accepted) = peer.refusal().await else { panic!("accepted") };
        assert_eq!(accepted.status, AcceptedStatus::GarbageArgs);
        assert_eq!(accepted.verifier.flavor, AuthFlavor::RPCSEC_GSS);
    }
    // Signed, but for privacy it had to be sealed.
    let number = (peer.sequence + 1).to_be_bytes();
    let mut e = Encoder::new();
    e.opaque_slice(&peer.context.wrap_plain(&[&number, &compound("x")]));
    peer.send_as(GssService::Privacy, &e.into_bytes()).await;
    let ReplyBody::Accepted(accepted) = peer.refusal().await else { panic!("accepted") };
    assert_eq!(accepted.status, AcceptedStatus::GarbageArgs);
    other.send(GssProcedure::Data, GssService::Integrity, 1, &compound("good")).await;
    assert_eq!(tag(other.results(GssService::Integrity).await), Opaque::from("good"));
}

impl Peer {
    /// The next call, with a body as it is.
    async fn send_as(&mut self, service: GssService, body: &[u8]) {
        let named = self.sequence + 1;
        self.sequence = named;
        let handle = self.handle.clone();
        let signed = |header: &mut CallHeader| {
            let procedure = GssProcedure::Data;
            header.credential =
                Credential::RpcsecGss(GssCredential { procedure, sequence: named, service, handle });
            let mut e = Encoder::new();
            header.encode(&mut e);
            let signed = signed_header(&e.into_bytes()).unwrap();
            let body = self.context.mic(&[&signed]).into();
            header.verifier = OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body };
        };
        self.client.send_call(signed, |e| e.put_raw(body)).await;
    }
}

#[tokio::test]
async fn a_call_that_was_here_before_is_dropped_and_numbers_may_come_out_of_order() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    let none = GssService::None;
    peer.send(GssProcedure::Data, none, 5, &compound("fifth")).await;
    assert_eq!(tag(peer.results(none).await), Opaque::from("fifth"));
    peer.send(GssProcedure::Data, none, 0, &compound("again")).await;
    peer.sequence = 3;
    peer.send(GssProcedure::Data, none, 0, &compound("third")).await;
    assert_eq!(tag(peer.results(none).await), Opaque::from("third"), "the one before got no answer");
    peer.sequence = 0x8000_0000;
    peer.send(GssProcedure::Data, none, 0, &compound("x")).await;
    assert_eq!(peer.refusal().await, denied(AuthStat::RpcsecGssCtxProblem));
}

#[tokio::test]
async fn a_context_that_was_destroyed_is_gone() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.send(GssProcedure::Destroy, GssService::None, 1, &[]).await;
    assert!(peer.results(GssService::None).await.is_empty());
    peer.send(GssProcedure::Data, GssService::None, 1, &compound("x")).await;
    assert_eq!(peer.refusal().await, denied(AuthStat::RpcsecGssCredProblem));
    assert_eq!(server.engine.security.status().contexts, 0);
}

#[tokio::test]
async fn a_ticket_that_is_not_good_is_answered_with_the_reason() {
    let server = server().await;
    let mut client = server.connect().await;
    let mut late = initiator();
    late.end -= 40_000;
    let (verifier, result) = handshake(&mut client, &late.token()).await;
    assert!(verifier.is_none() && result.handle.is_empty() && result.token.is_empty());
    assert_eq!((result.major, result.minor), (11 << 16, (-1_765_328_352i32) as u32));
    let (_, result) = handshake(&mut client, b"noise").await;
    assert_eq!(result.major, 9 << 16);
    assert_eq!(server.engine.security.status().refused, 2);
}

#[tokio::test]
async fn a_second_token_is_asked_of_nobody() {
    let server = server().await;
    let mut peer = Peer::connect(&server).await;
    peer.send(GssProcedure::ContinueInit, GssService::None, 1, &[]).await;
    assert_eq!(peer.refusal().await, denied(AuthStat::RpcsecGssCredProblem));
}
