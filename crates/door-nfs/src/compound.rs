//! The compound engine, of head and pools alike: decodes operations one by one, runs them in order until one fails,
//! and encodes the results. The operation table (`mds`, `ds`) runs the operations, and `session_ops` those of sessions.
//!
//! A COMPOUND of a session begins with SEQUENCE, whose slot decides whether it runs at all: a retransmission of a
//! finished request gets the kept reply, one of a running request is told to wait (RFC 8881 §2.10.6.2).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use api::XATTR_BYTES_MAX;
use bytes::Bytes;
use nfs4::attr::number;
use nfs4::{
    Compound4Res, CompoundArgs, NfsArgop4, NfsResop4, NfsStat4, OpProperties, Res, Sequence4Args, op,
};
use nfs4_state::ConnectionId;
use tracing::Instrument;
use types::Acl;
use xdr::{Decoder, Encoder, Mark, Xdr};

use crate::context::Compound;
use crate::exports::View;
use crate::limits::IO_BYTES_MAX;
use crate::operation_table::OperationTable;
use crate::operations::Operations;
use crate::security::{Kerberos, Security};
use crate::session_ops::{SequenceFacts, SequenceOutcome, Sessions};
use crate::transport::{CallPlace, Caller, Connection, GarbageArguments, Program};

/// Without a session no reply size was negotiated; replies of operations that may run there are small.
const SESSIONLESS_REPLY_BYTES_MAX: usize = 64 << 10;

/// Of one server: its sessions, and the operations beyond them.
pub(crate) struct Engine {
    pub sessions: Arc<Sessions>,
    pub operations: Operations,
    pub security: Arc<Security>,
    pub table: Arc<dyn OperationTable>,
}

impl Program for Engine {
    fn admit(&self, peer: IpAddr) -> Option<Arc<View>> {
        self.table.admit(peer)
    }

    fn is_served(&self, peer: IpAddr) -> bool {
        self.table.is_served(peer)
    }

    fn exports_version(&self) -> u64 {
        self.table.exports_version()
    }

    fn kerberos(&self) -> Option<&Kerberos> {
        self.security.kerberos()
    }

    fn is_used(&self, connection: ConnectionId) -> bool {
        self.sessions.is_used(connection)
    }

    fn disconnected(&self, connection: ConnectionId) {
        self.sessions.callbacks.disconnected(connection);
    }

    async fn call(
        &self,
        caller: Caller,
        body: Bytes,
        place: &mut CallPlace,
    ) -> Result<Vec<Bytes>, GarbageArguments> {
        self.run(caller, body, Some(place)).await
    }
}

impl Engine {
    /// As [`Program::call`]; without a place the reply is not counted.
    pub async fn run(
        &self,
        caller: Caller,
        body: Bytes,
        place_in_flight: Option<&mut CallPlace>,
    ) -> Result<Vec<Bytes>, GarbageArguments> {
        let body_bytes = body.len();
        let mut decoder = Decoder::new(body);
        let header = CompoundArgs::decode_header(&mut decoder).map_err(|_| GarbageArguments)?;
        if !(1..=2).contains(&header.minorversion) {
            return Ok(refusal(&header, NfsStat4::MinorVersMismatch));
        }
        if std::str::from_utf8(&header.tag).is_err() {
            return Ok(refusal(&header, NfsStat4::Inval));
        }
        let mut compound = Compound::begin(caller, header.minorversion, SESSIONLESS_REPLY_BYTES_MAX);
        let (reply, left) = (Reply::begin(&header), header.op_count);
        let run = Run { engine: self, body_bytes, reply, decoder, left, header, place_in_flight };
        let span =
            tracing::debug_span!("compound", door = "nfs", client = %compound.caller.connection.peer());
        Ok(run.all(&mut compound).instrument(span).await)
    }
}

/// A reply without operations.
fn refusal(header: &CompoundArgs, status: NfsStat4) -> Vec<Bytes> {
    let mut encoder = Encoder::new();
    Compound4Res { status, tag: header.tag.clone(), resarray: Vec::new() }.encode(&mut encoder);
    encoder.into_segments()
}

struct Run<'a> {
    engine: &'a Engine,
    header: CompoundArgs,
    /// Of the whole request.
    body_bytes: usize,
    reply: Reply,
    decoder: Decoder,
    left: u32,
    /// The place that the reply will count against; `None`: it is not counted.
    place_in_flight: Option<&'a mut CallPlace>,
}

impl Run<'_> {
    async fn all(mut self, compound: &mut Compound) -> Vec<Bytes> {
        let Some(first) = self.next(compound.minorversion) else { return self.reply.finish() };
        match first {
            Ok(NfsArgop4::Sequence(arguments)) => self.in_session(compound, &arguments).await,
            Ok(operation) if may_stand_alone(operation.opnum()) => {
                if self.header.op_count > 1 {
                    self.reply.push(&NfsResop4::error(operation.opnum(), NfsStat4::NotOnlyOp));
                } else {
                    let result = Box::pin(self.session_operation(compound, operation)).await;
                    self.reply.push(&result);
                }
                self.reply.finish()
            }
            Ok(operation) => {
                let status =
                    if is_illegal(&operation) { NfsStat4::OpIllegal } else { NfsStat4::OpNotInSession };
                self.reply.push(&NfsResop4::error(operation.opnum(), status));
                self.reply.finish()
            }
            Err(result) => {
                self.reply.push(&result);
                self.reply.finish()
            }
        }
    }

    async fn in_session(mut self, compound: &mut Compound, arguments: &Sequence4Args) -> Vec<Bytes> {
        let Engine { sessions, operations, .. } = self.engine;
        operations.count(op::SEQUENCE);
        let facts =
            SequenceFacts { body_bytes: self.body_bytes, header: &self.header, behind: &self.decoder };
        let (result, slot, reply_bytes_max) = match sessions.begin(compound, arguments, facts) {
            SequenceOutcome::Execute { result, slot, reply_bytes_max } => (result, slot, reply_bytes_max),
            SequenceOutcome::Replay(reply) => return reply,
            SequenceOutcome::Refuse(status) => {
                self.reply.push(&NfsResop4::error(op::SEQUENCE, status));
                return self.reply.finish();
            }
        };
        self.reply.push(&NfsResop4::Sequence(Res::Ok(result)));
        let room = Room { bytes: reply_bytes_max, too_big: slot.too_big() };
        while let Some(next) = self.next(compound.minorversion) {
            let result = match next {
                Ok(operation) => self.step(compound, operation, room).await,
                Err(malformed) => malformed,
            };
            if self.reply.push_within(&result, room) != NfsStat4::Ok {
                break;
            }
        }
        let reply = self.reply.finish();
        sessions.finish(slot, &reply);
        reply
    }

    /// One operation behind SEQUENCE.
    async fn step(&mut self, compound: &mut Compound, operation: NfsArgop4, room: Room) -> NfsResop4 {
        let number = operation.opnum();
        self.engine.operations.count(number);
        let Some(properties) = OpProperties::of(number) else {
            return NfsResop4::error(number, NfsStat4::OpIllegal);
        };
        if let Some(status) = refuse_early(properties, compound) {
            return NfsResop4::error(number, status);
        }
        compound.next = self.upcoming();
        compound.reply_room = room.bytes.saturating_sub(self.reply.len());
        // An operation that changes something must not run if its answer cannot be sent (RFC 8881 §2.10.6.4). Such
        // answers are small, so a check for a little room is enough.
        if compound.reply_room < REPLY_ROOM_MIN {
            return NfsResop4::error(number, room.too_big);
        }
        match number {
            op::EXCHANGE_ID
            | op::CREATE_SESSION
            | op::DESTROY_SESSION
            | op::BIND_CONN_TO_SESSION
            | op::BACKCHANNEL_CTL
            | op::DESTROY_CLIENTID
            | op::RECLAIM_COMPLETE
            | op::SET_SSV => Box::pin(self.session_operation(compound, operation)).await,
            _ => {
                if !self.has_room_for(&operation, room, &compound.caller.connection).await {
                    return NfsResop4::error(number, NfsStat4::Delay);
                }
                let start = Instant::now();
                let result = self.engine.table.execute(compound, operation).await;
                self.engine.operations.took(number, start.elapsed(), &|| compound.subject());
                result
            }
        }
    }

    /// Waits for room in memory if the reply may become long with this operation. It is waited for all of the reply then.
    async fn has_room_for(&mut self, operation: &NfsArgop4, room: Room, connection: &Connection) -> bool {
        let Some(place) = &mut self.place_in_flight else { return true };
        let mut bytes = (self.reply.len() + reply_bytes_wanted(operation)).min(room.bytes);
        if !place.must_wait(bytes) {
            return true;
        }
        let mut ahead = self.decoder.clone();
        for _ in 0..self.left {
            let Ok(operation) = self.header.next_op(&mut ahead) else { break };
            bytes += reply_bytes_wanted(&operation);
        }
        place.wait(bytes.min(room.bytes), connection.closed()).await
    }

    /// The number of the next operation, if there is one that has a number.
    fn upcoming(&self) -> Option<u32> {
        (self.left > 0).then(|| self.decoder.clone().u32().ok()).flatten()
    }

    /// Rare, and its future is larger than all else that a call keeps: the caller boxes it.
    async fn session_operation(&self, compound: &mut Compound, operation: NfsArgop4) -> NfsResop4 {
        let number = operation.opnum();
        let Engine { sessions, operations, table, .. } = self.engine;
        if compound.session.is_none() {
            operations.count(number);
        }
        let is_last = self.left == 0;
        let holds_state = |client| table.holds_state(client);
        let result = sessions.execute(compound, operation, is_last, &holds_state).await;
        if sessions.leases.has_departed() {
            table.release_departed().await;
        }
        result.unwrap_or_else(|| NfsResop4::error(number, NfsStat4::NotSupp))
    }

    /// The next operation, or the result it has earned by being malformed.
    fn next(&mut self, minorversion: u32) -> Option<Result<NfsArgop4, NfsResop4>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        Some(match self.header.next_op(&mut self.decoder) {
            // An operation that the minor version does not define is illegal, however well it decodes.
            Ok(operation) if !is_defined(operation.opnum(), minorversion) => {
                Err(NfsResop4::Illegal(NfsStat4::OpIllegal))
            }
            Ok(operation) => Ok(operation),
            Err(malformed) if !is_defined(malformed.opnum, minorversion) => {
                Err(NfsResop4::Illegal(NfsStat4::OpIllegal))
            }
            Err(malformed) => Err(NfsResop4::error(malformed.opnum, NfsStat4::BadXdr)),
        })
    }
}

/// The most that an operation is answered with.
fn reply_bytes_wanted(operation: &NfsArgop4) -> usize {
    match operation {
        NfsArgop4::Read(args) => args.count.min(IO_BYTES_MAX) as usize,
        NfsArgop4::ReadPlus(args) => args.count.min(IO_BYTES_MAX) as usize,
        NfsArgop4::ReadDir(args) => args.maxcount as usize,
        NfsArgop4::ListXattrs(args) => args.maxcount as usize,
        NfsArgop4::GetXattr(_) => XATTR_BYTES_MAX,
        NfsArgop4::GetAttr(args) if args.attr_request.contains(number::ACL) => ACL_REPLY_BYTES_MAX,
        NfsArgop4::ReadLink | NfsArgop4::GetAttr(_) => 4 << 10,
        _ => 1 << 10,
    }
}

/// Of entries for numbers or short names.
const ACL_REPLY_BYTES_MAX: usize = Acl::ACES_MAX * 40;

/// The largest answer of an operation that changes something, but READ, READDIR and the like: OPEN with attributes.
const REPLY_ROOM_MIN: usize = 256;

fn is_defined(number: u32, minorversion: u32) -> bool {
    OpProperties::of(number).is_some_and(|properties| properties.is_defined_in(minorversion))
}

fn is_illegal(operation: &NfsArgop4) -> bool {
    matches!(operation, NfsArgop4::Illegal(_))
}

/// RFC 8881 §2.10.6.1.1: operations that may come without SEQUENCE, alone in their COMPOUND.
fn may_stand_alone(number: u32) -> bool {
    matches!(
        number,
        op::EXCHANGE_ID
            | op::CREATE_SESSION
            | op::DESTROY_SESSION
            | op::BIND_CONN_TO_SESSION
            | op::DESTROY_CLIENTID
    )
}

fn refuse_early(properties: &OpProperties, compound: &Compound) -> Option<NfsStat4> {
    if properties.is_obsolete() {
        return Some(NfsStat4::NotSupp);
    }
    if properties.number == op::SEQUENCE {
        return Some(NfsStat4::SequencePos);
    }
    if properties.needs_current_fh && compound.current.handle.is_none() {
        return Some(NfsStat4::NoFileHandle);
    }
    if properties.needs_saved_fh && compound.saved.handle.is_none() {
        return Some(NfsStat4::NoFileHandle);
    }
    None
}

/// The size that the session allows for a reply, and the status of an operation that would exceed it: REP_TOO_BIG, or
/// REP_TOO_BIG_TO_CACHE if the reply is to be cached.
#[derive(Clone, Copy)]
struct Room {
    bytes: usize,
    too_big: NfsStat4,
}

/// A `COMPOUND4res` under construction: status and count are known last.
struct Reply {
    encoder: Encoder,
    status_mark: Mark,
    count_mark: Mark,
    status: NfsStat4,
    count: u32,
}

impl Reply {
    fn begin(header: &CompoundArgs) -> Reply {
        let mut encoder = Encoder::new();
        let status_mark = encoder.reserve_u32();
        header.tag.encode(&mut encoder);
        let count_mark = encoder.reserve_u32();
        Reply { encoder, status_mark, count_mark, status: NfsStat4::Ok, count: 0 }
    }

    fn len(&self) -> usize {
        self.encoder.len()
    }

    fn push(&mut self, result: &NfsResop4) {
        self.status = result.status();
        self.count += 1;
        result.encode(&mut self.encoder);
    }

    /// Encodes a result, or REP_TOO_BIG in its place if the reply would outgrow what the session allows.
    fn push_within(&mut self, result: &NfsResop4, room: Room) -> NfsStat4 {
        let mut encoder = Encoder::new();
        result.encode(&mut encoder);
        if self.encoder.len() + encoder.len() > room.bytes {
            self.push(&NfsResop4::error(result.opnum(), room.too_big));
        } else {
            self.status = result.status();
            self.count += 1;
            self.encoder.append(encoder);
        }
        self.status
    }

    fn finish(mut self) -> Vec<Bytes> {
        self.encoder.patch_u32(self.status_mark, self.status as u32);
        self.encoder.patch_u32(self.count_mark, self.count);
        self.encoder.into_segments()
    }
}
