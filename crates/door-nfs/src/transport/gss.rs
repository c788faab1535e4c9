//! RPCSEC_GSS on a connection (RFC 2203 §5): the handshake, the check of each call, the protection of each reply.

use std::sync::Arc;

use bytes::Bytes;
use nfs4::NFSPROC4_NULL;
use oncrpc::{
    AuthFlavor, AuthStat, CallHeader, GssCredential, GssInitArgs, GssInitRes, GssProcedure, GssService,
    IntegrityBody, OpaqueAuth, ReplyHeader, SequenceFate, SequenceWindow, privacy_token, unnumbered,
};
use xdr::{Encoder, Opaque, Xdr, from_bytes};

use super::connection::{Connection, reply_record};
use crate::security::{Established, Found, Kerberos};

/// The outcome of checking a call.
pub(super) enum Admission {
    /// The call is genuine: its arguments in the clear, and how to protect the reply.
    Call(Bytes, Protection),
    /// The answer is known.
    Answer(Vec<Bytes>),
    /// It gets no answer (RFC 2203 §5.3.3.1).
    Drop,
}

/// The context that a call came with, and what its reply must carry.
pub(super) struct Protection {
    pub established: Arc<Established>,
    pub service: GssService,
    sequence: u32,
}

/// `signed` is the header as it came, up to the end of the credential.
pub(super) async fn admit(
    kerberos: &Kerberos,
    connection: &Connection,
    header: &CallHeader,
    credential: &GssCredential,
    signed: &Bytes,
    body: Bytes,
) -> Admission {
    match credential.procedure {
        GssProcedure::Init if header.procedure == NFSPROC4_NULL && credential.handle.is_empty() => {
            // Boxed, or every call of any flavor would carry room for the keys of a context that is being made.
            Admission::Answer(Box::pin(initiate(kerberos, connection, header.xid, body)).await)
        }
        // Kerberos needs one token of each side.
        GssProcedure::Init | GssProcedure::ContinueInit => refused(header, AuthStat::RpcsecGssCredProblem),
        GssProcedure::Data => match verified(kerberos, header, credential, signed) {
            Ok(protection) => protection.admit(header.xid, body),
            Err(admission) => admission,
        },
        GssProcedure::Destroy => match verified(kerberos, header, credential, signed) {
            Ok(protection) => {
                kerberos.destroy(&credential.handle);
                let reply = ReplyHeader::success(header.xid).with_verifier(protection.verifier());
                Admission::Answer(reply_record(&reply, Vec::new()))
            }
            Err(admission) => admission,
        },
    }
}

/// RPCSEC_GSS_INIT: the client's token for ours, and a handle (RFC 2203 §5.2.2, §5.2.3).
async fn initiate(kerberos: &Kerberos, connection: &Connection, xid: u32, body: Bytes) -> Vec<Bytes> {
    let Ok(arguments) = from_bytes::<GssInitArgs>(body) else {
        return reply_record(&ReplyHeader::garbage_args(xid), Vec::new());
    };
    let (reply, result) = match kerberos.establish(&arguments.token).await {
        Ok((handle, established, token)) => {
            tracing::debug!(peer = %connection.peer(), client = %established.context.client(), "new context");
            let window = SequenceWindow::LEN;
            let verifier = verifier(&established, window);
            let result =
                GssInitRes { handle: handle.into(), major: 0, minor: 0, window, token: token.into() };
            (ReplyHeader::success(xid).with_verifier(verifier), result)
        }
        Err(error) => {
            if let Some(left_out) = kerberos.note_refusal() {
                tracing::info!(peer = %connection.peer(), %error, left_out, "refused a client's Kerberos ticket");
            }
            let (major, minor) = error.status();
            let nothing = Opaque::new();
            let result = GssInitRes { handle: nothing.clone(), major, minor, window: 0, token: nothing };
            (ReplyHeader::success(xid), result)
        }
    };
    let mut encoder = Encoder::new();
    result.encode(&mut encoder);
    reply_record(&reply, encoder.into_segments())
}

/// The call's context, if the call is signed by it and was not here before.
fn verified(
    kerberos: &Kerberos,
    header: &CallHeader,
    credential: &GssCredential,
    signed: &Bytes,
) -> Result<Protection, Admission> {
    let established = match kerberos.find(&credential.handle) {
        Found::Context(established) => established,
        Found::Expired => return Err(refused(header, AuthStat::RpcsecGssCtxProblem)),
        Found::Unknown => return Err(refused(header, AuthStat::RpcsecGssCredProblem)),
    };
    let verifier = &header.verifier;
    let is_signed = verifier.flavor == AuthFlavor::RPCSEC_GSS
        && established.context.verify_mic(&[signed], &verifier.body).is_ok();
    if !is_signed {
        return Err(refused(header, AuthStat::RpcsecGssCredProblem));
    }
    match established.judge(credential.sequence) {
        SequenceFate::Run => {
            let (service, sequence) = (credential.service, credential.sequence);
            Ok(Protection { established, service, sequence })
        }
        SequenceFate::Drop => Err(Admission::Drop),
        SequenceFate::Exhausted => Err(refused(header, AuthStat::RpcsecGssCtxProblem)),
    }
}

fn refused(header: &CallHeader, stat: AuthStat) -> Admission {
    Admission::Answer(reply_record(&ReplyHeader::auth_error(header.xid, stat), Vec::new()))
}

fn verifier(established: &Established, number: u32) -> OpaqueAuth {
    let mic = established.context.mic(&[&number.to_be_bytes()]);
    OpaqueAuth { flavor: AuthFlavor::RPCSEC_GSS, body: mic.into() }
}

impl Protection {
    /// Takes the protection off the arguments (RFC 2203 §5.3.2).
    fn admit(self, xid: u32, body: Bytes) -> Admission {
        match self.arguments(body) {
            Some(arguments) => Admission::Call(arguments, self),
            None => {
                let reply = ReplyHeader::garbage_args(xid).with_verifier(self.verifier());
                Admission::Answer(reply_record(&reply, Vec::new()))
            }
        }
    }

    fn arguments(&self, body: Bytes) -> Option<Bytes> {
        let context = &self.established.context;
        match self.service {
            GssService::None => Some(body),
            GssService::Integrity => {
                let body = IntegrityBody::decode(body).ok()?;
                context.verify_mic(&[&body.signed], &body.mic).ok()?;
                unnumbered(body.signed, self.sequence)
            }
            GssService::Privacy => {
                let unwrapped = context.unwrap(&privacy_token(body).ok()?).ok()?;
                unnumbered(unwrapped.data.freeze(), self.sequence).filter(|_| unwrapped.is_sealed)
            }
        }
    }

    /// The record of a reply: its verifier signs the call's sequence number, results are protected as the arguments were.
    pub fn reply(&self, kerberos: &Kerberos, header: ReplyHeader, results: Vec<Bytes>) -> Vec<Bytes> {
        let is_success = header.is_success();
        let header = header.with_verifier(self.verifier());
        if !is_success {
            return reply_record(&header, results);
        }
        match self.service {
            GssService::None => reply_record(&header, results),
            GssService::Integrity => reply_record(&header, self.signed(results)),
            GssService::Privacy => reply_record(&header, self.sealed(&results, &kerberos.confounder())),
        }
    }

    fn signed(&self, results: Vec<Bytes>) -> Vec<Bytes> {
        let number = self.sequence.to_be_bytes();
        let mic = self.established.context.mic(&after(&number, &results));
        let mut encoder = Encoder::new();
        encoder.opaque_with(|e| {
            e.put_raw(&number);
            e.put_raw_segments(results);
        });
        encoder.opaque_slice(&mic);
        encoder.into_segments()
    }

    fn sealed(&self, results: &[Bytes], confounder: &[u8; gss::CONFOUNDER_LEN]) -> Vec<Bytes> {
        let number = self.sequence.to_be_bytes();
        let token = self.established.context.seal(&after(&number, results), confounder);
        let mut encoder = Encoder::new();
        encoder.opaque(&token.into());
        encoder.into_segments()
    }

    fn verifier(&self) -> OpaqueAuth {
        verifier(&self.established, self.sequence)
    }
}

fn after<'a>(number: &'a [u8; 4], results: &'a [Bytes]) -> Vec<&'a [u8]> {
    std::iter::once(&number[..]).chain(results.iter().map(|segment| &segment[..])).collect()
}

#[cfg(test)]
mod tests;
