//! Calls to clients over their back channels (RFC 8881 §20): CB_SEQUENCE and one operation.
//!
//! A call waits for a slot, survives the loss of a connection if the client has another, and backs off while the client
//! says DELAY. It ends with the client's answer or an error within the time it is given; what follows from silence
//! (revocation) is the caller's matter.

use std::sync::Arc;
use std::time::Duration;

use nfs4::{
    AuthSysParms, CB_COMPOUND, CallbackSecParms4, CbCompound4Args, CbCompound4Res, CbLayoutRecall4Args,
    CbRecall4Args, CbSequence4Args, ClientId4, LayoutIomode4, LayoutRecall4, LayoutRecallFile4, LayoutType4,
    NFS_CB_VERSION, NfsCbArgop4, NfsCbResop4, NfsFh4, NfsStat4, Res, StateId4,
};
use nfs4_state::{CallbackOutcome, CallbackRefusal, CallbackTicket, ConnectionId};
use oncrpc::{AuthSys, Credential};
use thiserror::Error;
use tokio::time::Instant;
use xdr::{Decoder, Encoder, Opaque, Xdr};

use crate::session_ops::Sessions;
use crate::transport::{CallError, Connection};

/// How long one attempt waits for its reply; a client that is there answers a callback in milliseconds.
const REPLY_WAIT: Duration = Duration::from_secs(5);
/// Between attempts while the client says DELAY: from the first, doubling, to the second.
const DELAY_MIN: Duration = Duration::from_millis(20);
const DELAY_MAX: Duration = Duration::from_millis(500);

/// Why a callback has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum CallbackError {
    #[error("client is not known")]
    UnknownClient,
    #[error("client has no back channel")]
    NoPath,
    #[error("too many callbacks are under way")]
    Busy,
    #[error("client did not answer in time")]
    TimedOut,
    #[error("client refused the callback's sequence: {0}")]
    Refused(NfsStat4),
}

/// A layout of one file that is to come back.
#[derive(Clone, Debug)]
pub(crate) struct LayoutRecall {
    pub handle: NfsFh4,
    /// The layout stateid with its seqid raised by one, or Linux answers OLD_STATEID (`pnfs_check_callback_stateid`).
    pub stateid: StateId4,
    pub iomode: LayoutIomode4,
}

/// How one attempt ended.
enum Attempt {
    Answered(NfsCbResop4),
    /// The client asked for a pause, or its connection was lost: worth another attempt.
    Again(CallbackError),
    Failed(CallbackError),
}

impl Sessions {
    /// Recalls a whole file's layout. NFS4_OK: the client will return it; NOMATCHING_LAYOUT: it has none.
    pub async fn recall_layout(
        &self,
        client: ClientId4,
        recall: LayoutRecall,
        patience: Duration,
    ) -> Result<NfsStat4, CallbackError> {
        let operation = NfsCbArgop4::LayoutRecall(CbLayoutRecall4Args {
            layout_type: LayoutType4::FLEX_FILES,
            iomode: recall.iomode,
            changed: false,
            recall: LayoutRecall4::File(LayoutRecallFile4 {
                fh: recall.handle,
                offset: 0,
                length: u64::MAX,
                stateid: recall.stateid,
            }),
        });
        self.call_client(client, operation, patience).await.map(|result| result.status())
    }

    /// Recalls a delegation. NFS4_OK: the client will return it; BAD_STATEID or BADHANDLE: it knows of none.
    pub async fn recall_delegation(
        &self,
        client: ClientId4,
        (fh, stateid): (NfsFh4, StateId4),
        patience: Duration,
    ) -> Result<NfsStat4, CallbackError> {
        let operation = NfsCbArgop4::Recall(CbRecall4Args { stateid, truncate: false, fh });
        self.call_client(client, operation, patience).await.map(|result| result.status())
    }

    /// Calls a client, for at most `patience`. An answer of DELAY is asked again until then.
    pub async fn call_client(
        &self,
        client: ClientId4,
        operation: NfsCbArgop4,
        patience: Duration,
    ) -> Result<NfsCbResop4, CallbackError> {
        let _place = self.callback_places.try_acquire().map_err(|_| CallbackError::Busy)?;
        let deadline = Instant::now() + patience;
        let mut pause = DELAY_MIN;
        loop {
            let ticket = self.callback_slot(client, deadline).await?;
            let last = match self.attempt(ticket, &operation, deadline).await {
                Attempt::Answered(result) if result.status() != NfsStat4::Delay => return Ok(result),
                Attempt::Answered(result) => Ok(result),
                Attempt::Again(error) => Err(error),
                Attempt::Failed(error) => return Err(error),
            };
            if Instant::now() + pause >= deadline {
                return last;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    /// Waits for a slot on a back channel of the client.
    async fn callback_slot(
        &self,
        client: ClientId4,
        deadline: Instant,
    ) -> Result<CallbackTicket, CallbackError> {
        loop {
            let freed = self.callback_freed.notified();
            tokio::pin!(freed);
            // Registered before looking, or a slot freed in between would be missed.
            freed.as_mut().enable();
            match self.callback_begin(client) {
                Ok(ticket) => return Ok(ticket),
                Err(CallbackRefusal::UnknownClient) => return Err(CallbackError::UnknownClient),
                Err(CallbackRefusal::NoPath) => return Err(CallbackError::NoPath),
                Err(CallbackRefusal::Busy) => {}
            }
            tokio::time::timeout_at(deadline, freed).await.map_err(|_| CallbackError::Busy)?;
        }
    }

    async fn attempt(&self, ticket: CallbackTicket, operation: &NfsCbArgop4, deadline: Instant) -> Attempt {
        let mut slot =
            Slot { sessions: self, ticket: Some(ticket.clone()), outcome: CallbackOutcome::Refused };
        let Some(connection) = self.connection(ticket.connection) else {
            // It closed while it was being bound: the table has not heard of it.
            self.disconnected(ticket.connection);
            return Attempt::Again(CallbackError::NoPath);
        };
        // From here on the client may have executed the call, also if nobody waits for the answer any more.
        slot.outcome = CallbackOutcome::Lost;
        let mut answer = exchange(&connection, &ticket, operation, deadline).await;
        if let Ok(CallbackReply::Sequence(NfsStat4::SeqMisordered)) = answer
            && let Some(ticket) = self.callback_misordered(&ticket)
        {
            answer = exchange(&connection, &ticket, operation, deadline).await;
        }
        match answer {
            Ok(CallbackReply::Operation(result)) => {
                slot.outcome = CallbackOutcome::Answered;
                Attempt::Answered(result)
            }
            Ok(CallbackReply::Sequence(status)) => {
                slot.outcome = after_refusal(status);
                let error = CallbackError::Refused(status);
                if status == NfsStat4::Delay { Attempt::Again(error) } else { Attempt::Failed(error) }
            }
            Err(CallError::Busy) => {
                slot.outcome = CallbackOutcome::Refused;
                Attempt::Again(CallbackError::Busy)
            }
            Err(CallError::Closed) => {
                self.disconnected(ticket.connection);
                Attempt::Again(CallbackError::NoPath)
            }
            Err(CallError::TimedOut) => Attempt::Again(CallbackError::TimedOut),
            Err(CallError::Refused) => Attempt::Failed(CallbackError::NoPath),
        }
    }

    fn connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.back_connection(id).filter(|connection| !connection.is_closed())
    }
}

/// Gives the callback's slot back when the call is over, also when nobody waits for it any more.
struct Slot<'a> {
    sessions: &'a Sessions,
    ticket: Option<CallbackTicket>,
    outcome: CallbackOutcome,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.sessions.callback_end(ticket, self.outcome);
        }
    }
}

enum CallbackReply {
    /// CB_SEQUENCE passed; the result of the operation.
    Operation(NfsCbResop4),
    /// CB_SEQUENCE was refused.
    Sequence(NfsStat4),
}

async fn exchange(
    connection: &Arc<Connection>,
    ticket: &CallbackTicket,
    operation: &NfsCbArgop4,
    deadline: Instant,
) -> Result<CallbackReply, CallError> {
    let arguments = CbCompound4Args {
        tag: Opaque::new(),
        minorversion: ticket.minor_version,
        callback_ident: 0,
        argarray: vec![sequence(ticket), operation.clone()],
    };
    let mut encoder = Encoder::new();
    arguments.encode(&mut encoder);
    let wait = deadline.saturating_duration_since(Instant::now()).min(REPLY_WAIT);
    let credential = credential(&ticket.security);
    let reply =
        connection.call(ticket.program, NFS_CB_VERSION, CB_COMPOUND, credential, encoder, wait).await?;
    parse(reply).ok_or(CallError::Refused)
}

/// What a refused CB_SEQUENCE says about its number.
fn after_refusal(status: NfsStat4) -> CallbackOutcome {
    match status {
        // The client has executed that number before: it is used up.
        NfsStat4::SeqFalseRetry | NfsStat4::RetryUncachedRep => CallbackOutcome::Answered,
        NfsStat4::SeqMisordered => CallbackOutcome::Lost,
        _ => CallbackOutcome::Refused,
    }
}

fn sequence(ticket: &CallbackTicket) -> NfsCbArgop4 {
    NfsCbArgop4::Sequence(CbSequence4Args {
        sessionid: ticket.session,
        sequenceid: ticket.sequence,
        slotid: ticket.slot,
        highest_slotid: ticket.highest_slot,
        cachethis: false,
        referring_call_lists: Vec::new(),
    })
}

fn parse(mut reply: Decoder) -> Option<CallbackReply> {
    let reply = CbCompound4Res::decode(&mut reply).ok()?;
    let mut results = reply.resarray.into_iter();
    match results.next() {
        Some(NfsCbResop4::Sequence(Res::Ok(_))) => results.next().map(CallbackReply::Operation),
        Some(NfsCbResop4::Sequence(Res::Err(status))) => Some(CallbackReply::Sequence(status)),
        // An error before any operation: the minor version, say.
        None if reply.status != NfsStat4::Ok => Some(CallbackReply::Sequence(reply.status)),
        _ => None,
    }
}

/// What the client said that callbacks shall carry.
fn credential(security: &CallbackSecParms4) -> Credential {
    match security {
        CallbackSecParms4::Sys(AuthSysParms { stamp, machinename, uid, gid, gids }) => {
            Credential::Sys(AuthSys {
                stamp: *stamp,
                machine_name: machinename.clone(),
                uid: *uid,
                gid: *gid,
                gids: gids.clone(),
            })
        }
        // GSS is never chosen (`channel::callback_security`).
        CallbackSecParms4::None | CallbackSecParms4::Gss(_) => Credential::None,
    }
}

#[cfg(test)]
mod tests;
