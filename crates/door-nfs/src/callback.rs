//! Calls to clients over their back channels (RFC 8881 §20): CB_SEQUENCE and one operation.
//!
//! A call waits for a slot, survives the loss of a connection if the client has another, and backs off while the client
//! says DELAY. It ends with the client's answer or an error within the time it is given. If the client is silent, the
//! caller decides what follows (revocation).

use std::sync::Arc;
use std::time::Duration;

use nfs4::{
    AuthSysParms, Bitmap4, CB_COMPOUND, CallbackSecParms4, CbCompound4Args, CbCompound4Res, CbGetAttr4Args,
    CbLayoutRecall4Args, CbNotifyDeviceId4Args, CbRecall4Args, CbSequence4Args, ClientId4, DeviceId4, Fattr4,
    LayoutIomode4, LayoutRecall4, LayoutRecallFile4, LayoutType4, NFS_CB_VERSION, NOTIFY_DEVICEID4_DELETE,
    NfsCbArgop4, NfsCbResop4, NfsFh4, NfsStat4, Notify4, NotifyDeviceIdDelete4, ReferringCallList4, Res,
    StateId4,
};
use nfs4_state::{CallbackOutcome, CallbackRefusal, CallbackTicket, ConnectionId};
use oncrpc::{AuthSys, Credential};
use thiserror::Error;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use types::FileId;
use xdr::{Decoder, Encoder, Opaque, Xdr, to_bytes};

use crate::session_ops::BackChannels;
use crate::transport::{CallError, Connection};

/// How long one attempt waits for its reply; a client that is there answers a callback in milliseconds.
const REPLY_WAIT: Duration = Duration::from_secs(5);
/// Between attempts while the client says DELAY: from the first, doubling, to the second.
const DELAY_MIN: Duration = Duration::from_millis(20);
const DELAY_MAX: Duration = Duration::from_millis(500);
/// Calls to one client under way or waiting for a slot: as many recalls as it is asked at a time, and others beside them.
const CALLS_PER_CLIENT_MAX: usize = 24;

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

/// A layout of one file to recall.
#[derive(Clone, Debug)]
pub(crate) struct LayoutRecall {
    pub file: FileId,
    pub handle: NfsFh4,
    /// The layout stateid with its seqid raised by one, or Linux answers OLD_STATEID (`pnfs_check_callback_stateid`).
    pub stateid: StateId4,
    pub iomode: LayoutIomode4,
    /// The client is not to write by it before it returns it (`clora_changed`): the pool is closed to clients.
    pub is_closed: bool,
}

/// A call to a client.
struct Call<'a> {
    operation: &'a NfsCbArgop4,
    /// Requests whose replies the client must have before it looks at this (`csa_referring_call_lists`).
    behind: Vec<ReferringCallList4>,
}

/// How one attempt ended.
enum Attempt {
    Answered(NfsCbResop4),
    /// The client asked for a pause, or its connection was lost: worth another attempt.
    Again(CallbackError),
    Failed(CallbackError),
}

impl BackChannels {
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
            changed: recall.is_closed,
            recall: LayoutRecall4::File(LayoutRecallFile4 {
                fh: recall.handle,
                offset: 0,
                length: u64::MAX,
                stateid: recall.stateid,
            }),
        });
        self.call_about(client, recall.file, operation, patience).await.map(|result| result.status())
    }

    /// Recalls all layouts of a client. NFS4_OK: the client will return them; NOMATCHING_LAYOUT: it has none. Linux
    /// also answers NOMATCHING_LAYOUT when it has just forgotten all its layouts, and DELAY while it is about to.
    pub async fn recall_all_layouts(
        &self,
        client: ClientId4,
        is_wanted: &(dyn Fn() -> bool + Sync),
        patience: Duration,
    ) -> Result<NfsStat4, CallbackError> {
        let operation = NfsCbArgop4::LayoutRecall(CbLayoutRecall4Args {
            layout_type: LayoutType4::FLEX_FILES,
            iomode: LayoutIomode4::Any,
            // It is asked for all only where a pool is closed to clients.
            changed: true,
            recall: LayoutRecall4::All,
        });
        let behind = || self.granting_calls(client, None);
        self.call_while(client, operation, (&behind, is_wanted), patience).await.map(|result| result.status())
    }

    /// Recalls a delegation. NFS4_OK: the client will return it; BAD_STATEID or BADHANDLE: it knows of none.
    pub async fn recall_delegation(
        &self,
        client: ClientId4,
        (file, fh, stateid): (FileId, NfsFh4, StateId4),
        patience: Duration,
    ) -> Result<NfsStat4, CallbackError> {
        let operation = NfsCbArgop4::Recall(CbRecall4Args { stateid, truncate: false, fh });
        self.call_about(client, file, operation, patience).await.map(|result| result.status())
    }

    /// Tells that a device is gone, which no layout names any more.
    pub async fn notify_device_deleted(
        &self,
        client: ClientId4,
        deviceid: DeviceId4,
        patience: Duration,
    ) -> Result<NfsStat4, CallbackError> {
        let deleted = NotifyDeviceIdDelete4 { layout_type: LayoutType4::FLEX_FILES, deviceid };
        let mask = Bitmap4::of(&[NOTIFY_DEVICEID4_DELETE]);
        let changes = vec![Notify4 { mask, vals: Opaque(to_bytes(&deleted)) }];
        let operation = NfsCbArgop4::NotifyDeviceId(CbNotifyDeviceId4Args { changes });
        self.call_client(client, operation, patience).await.map(|result| result.status())
    }

    /// Asks the holder of a delegation to write for attributes of the file.
    pub async fn ask_attributes(
        &self,
        client: ClientId4,
        (fh, attr_request): (NfsFh4, Bitmap4),
        patience: Duration,
    ) -> Result<Result<Fattr4, NfsStat4>, CallbackError> {
        let operation = NfsCbArgop4::GetAttr(CbGetAttr4Args { fh, attr_request });
        let answered = self.call_client(client, operation, patience).await?;
        Ok(match answered {
            NfsCbResop4::GetAttr(Res::Ok(body)) => Ok(body.obj_attributes),
            other => Err(other.status()),
        })
    }

    /// Calls a client, for at most `patience`. An answer of DELAY is asked again until then.
    pub async fn call_client(
        &self,
        client: ClientId4,
        operation: NfsCbArgop4,
        patience: Duration,
    ) -> Result<NfsCbResop4, CallbackError> {
        self.call_behind(client, operation, &Vec::new, patience).await
    }

    /// As `call_client`, about a grant of a file: the call names the replies that the client should have seen first.
    async fn call_about(
        &self,
        client: ClientId4,
        file: FileId,
        operation: NfsCbArgop4,
        patience: Duration,
    ) -> Result<NfsCbResop4, CallbackError> {
        self.call_behind(client, operation, &|| self.granting_calls(client, Some(file)), patience).await
    }

    /// As `call_client`, for a call that must not overtake replies to earlier requests: `behind` lists these requests,
    /// anew for each attempt, since replies arrive meanwhile.
    pub async fn call_behind(
        &self,
        client: ClientId4,
        operation: NfsCbArgop4,
        behind: &(dyn Fn() -> Vec<ReferringCallList4> + Sync),
        patience: Duration,
    ) -> Result<NfsCbResop4, CallbackError> {
        self.call_while(client, operation, (behind, &|| true), patience).await
    }

    /// As `call_behind`; it is not asked again when it is not wanted any more.
    async fn call_while(
        &self,
        client: ClientId4,
        operation: NfsCbArgop4,
        (behind, is_wanted): (&(dyn Fn() -> Vec<ReferringCallList4> + Sync), &(dyn Fn() -> bool + Sync)),
        patience: Duration,
    ) -> Result<NfsCbResop4, CallbackError> {
        let _place = CallbackPermit::take(self, client)?;
        let deadline = Instant::now() + patience;
        let mut pause = DELAY_MIN;
        loop {
            let ticket = self.callback_slot(client, deadline).await?;
            let call = Call { operation: &operation, behind: behind() };
            let last = match self.attempt(ticket, &call, deadline).await {
                Attempt::Answered(result) if result.status() != NfsStat4::Delay => return Ok(result),
                Attempt::Answered(result) => Ok(result),
                Attempt::Again(error) => Err(error),
                Attempt::Failed(error) => return Err(error),
            };
            if Instant::now() + pause >= deadline {
                return last;
            }
            tokio::time::sleep(pause).await;
            if !is_wanted() {
                return last;
            }
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
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before looking, or a slot freed in between would be missed.
            freed.as_mut().enable();
            match self.begin(client) {
                Ok(ticket) => return Ok(ticket),
                Err(CallbackRefusal::UnknownClient) => return Err(CallbackError::UnknownClient),
                Err(CallbackRefusal::NoPath) => return Err(CallbackError::NoPath),
                Err(CallbackRefusal::Busy) => {}
            }
            tokio::time::timeout_at(deadline, freed).await.map_err(|_| CallbackError::Busy)?;
        }
    }

    async fn attempt(&self, ticket: CallbackTicket, call: &Call<'_>, deadline: Instant) -> Attempt {
        let mut slot =
            Slot { channels: self, ticket: Some(ticket.clone()), outcome: CallbackOutcome::Refused };
        let Some(connection) = self.open_connection(ticket.connection) else {
            // It closed while it was being bound: the table has not heard of it.
            self.disconnected(ticket.connection);
            return Attempt::Again(CallbackError::NoPath);
        };
        // From here on the client may have executed the call, also if nobody waits for the answer any more.
        slot.outcome = CallbackOutcome::Lost;
        let mut answer = exchange(&connection, &ticket, call, deadline).await;
        if let Ok(CallbackReply::Sequence(NfsStat4::SeqMisordered)) = answer
            && let Some(ticket) = self.misordered(&ticket)
        {
            answer = exchange(&connection, &ticket, call, deadline).await;
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

    fn open_connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connection(id).filter(|connection| !connection.is_closed())
    }
}

/// The right to call a client: one of so many of all, and of so many of its own. One that answers none does not take the calls
/// of others.
struct CallbackPermit<'a> {
    channels: &'a BackChannels,
    client: ClientId4,
    _of_all: SemaphorePermit<'a>,
}

impl<'a> CallbackPermit<'a> {
    fn take(channels: &'a BackChannels, client: ClientId4) -> Result<CallbackPermit<'a>, CallbackError> {
        let of_all = channels.places.try_acquire().map_err(|_| CallbackError::Busy)?;
        let mut called = channels.called.lock();
        let count = called.entry(client).or_default();
        if *count >= CALLS_PER_CLIENT_MAX {
            return Err(CallbackError::Busy);
        }
        *count += 1;
        Ok(CallbackPermit { channels, client, _of_all: of_all })
    }
}

impl Drop for CallbackPermit<'_> {
    fn drop(&mut self) {
        let mut called = self.channels.called.lock();
        let Some(count) = called.get_mut(&self.client) else { return };
        *count -= 1;
        if *count == 0 {
            called.remove(&self.client);
        }
    }
}

/// Gives the callback's slot back when the call is over, also when nobody waits for it any more.
struct Slot<'a> {
    channels: &'a BackChannels,
    ticket: Option<CallbackTicket>,
    outcome: CallbackOutcome,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.channels.end(ticket, self.outcome);
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
    call: &Call<'_>,
    deadline: Instant,
) -> Result<CallbackReply, CallError> {
    let arguments = CbCompound4Args {
        tag: Opaque::new(),
        minorversion: ticket.minor_version,
        callback_ident: 0,
        argarray: vec![sequence(ticket, call), call.operation.clone()],
    };
    let mut encoder = Encoder::new();
    arguments.encode(&mut encoder);
    let wait = deadline.saturating_duration_since(Instant::now()).min(REPLY_WAIT);
    let credential = credential(&ticket.security);
    let reply =
        connection.call(ticket.program, NFS_CB_VERSION, CB_COMPOUND, credential, encoder, wait).await?;
    parse(reply).ok_or(CallError::Refused)
}

/// The fate of a sequence number whose CB_SEQUENCE was refused.
fn after_refusal(status: NfsStat4) -> CallbackOutcome {
    match status {
        // The client has executed that number before: it is used up.
        NfsStat4::SeqFalseRetry | NfsStat4::RetryUncachedRep => CallbackOutcome::Answered,
        NfsStat4::SeqMisordered => CallbackOutcome::Lost,
        _ => CallbackOutcome::Refused,
    }
}

fn sequence(ticket: &CallbackTicket, call: &Call<'_>) -> NfsCbArgop4 {
    NfsCbArgop4::Sequence(CbSequence4Args {
        sessionid: ticket.session,
        sequenceid: ticket.sequence,
        slotid: ticket.slot,
        highest_slotid: ticket.highest_slot,
        cachethis: false,
        referring_call_lists: call.behind.clone(),
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

/// The credential that the client chose for callbacks.
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
