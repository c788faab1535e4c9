//! The pools' operation table: the data server of flex-files layouts (RFC 8435), tightly coupled.
//!
//! The file handle is the ticket; it is verified by PUTFH and says everything, also with which flavors it may be used. The
//! stateid of READ and WRITE is the one that the layout carried and adds nothing to it, so any is taken. No operation here
//! asks the head.

use std::net::IpAddr;
use std::sync::Arc;

use api::{OpenReplica, OpenedTicket, Pool, PoolKey, TicketError, TicketMode};
use async_trait::async_trait;
use nfs4::{
    Commit4Args, Commit4ResOk, NfsArgop4, NfsResop4, NfsStat4, PutFh4Args, Read4Args, Read4ResOk, Verifier4,
    Write4Args, Write4ResOk,
};
use xdr::Opaque;

use crate::context::{Compound, Handle};
use crate::exports::{ServedHosts, View};
use crate::limits::IO_BYTES_MAX;
use crate::operation_table::OperationTable;
use crate::security::meets;
use crate::stability::{stability, stable_how};
use crate::status;

/// Operation number, status, eof, length and padding around the bytes of a READ.
const READ_OVERHEAD_BYTES: usize = 24;

pub(crate) struct DataServer {
    pub pool: Arc<dyn Pool>,
    pub key: PoolKey,
    pub view: Arc<View>,
    /// Those that the head exports something to.
    pub hosts: Arc<ServedHosts>,
}

#[async_trait]
impl OperationTable for DataServer {
    fn admit(&self, _: IpAddr) -> Option<Arc<View>> {
        Some(Arc::clone(&self.view))
    }

    fn is_served(&self, peer: IpAddr) -> bool {
        self.hosts.contain(peer)
    }

    async fn execute(&self, compound: &mut Compound, operation: NfsArgop4) -> NfsResop4 {
        let number = operation.opnum();
        match operation {
            NfsArgop4::PutFh(args) => NfsResop4::PutFh(self.put_file_handle(compound, &args)),
            NfsArgop4::Read(args) => NfsResop4::Read(self.read(compound, &args).await.into()),
            NfsArgop4::Write(args) => NfsResop4::Write(self.write(compound, args).await.into()),
            NfsArgop4::Commit(args) => NfsResop4::Commit(self.commit(compound, &args).await.into()),
            _ => NfsResop4::error(number, NfsStat4::NotSupp),
        }
    }
}

impl DataServer {
    fn put_file_handle(&self, compound: &mut Compound, args: &PutFh4Args) -> NfsStat4 {
        let opened = match self.key.open(args.object.as_bytes()) {
            Ok(opened) => opened,
            Err(error) => return status_of_ticket(error),
        };
        let conditions = opened.conditions;
        // RFC 8881 §2.6.3.1.1.7: as at the head, by the flavors of the export that the layout was given in.
        if compound.is_judged_here() && !meets(compound.caller.flavor, conditions.demand) {
            return NfsStat4::WrongSec;
        }
        // Honoured only by a pool that has a lease of the head, and none has one yet.
        if conditions.is_mirrored || conditions.is_write_only {
            return NfsStat4::Stale;
        }
        // A client may come here from another address than to the head.
        compound.caller.connection.vouch_for();
        compound.current.handle = Some(Handle::Replica(opened));
        NfsStat4::Ok
    }

    async fn open(&self, compound: &Compound) -> Result<Arc<dyn OpenReplica>, NfsStat4> {
        self.pool.open(&compound.ticket()?.ticket).await.map_err(status::of_data_server)
    }

    async fn read(&self, compound: &Compound, args: &Read4Args) -> Result<Read4ResOk, NfsStat4> {
        let room = compound.reply_room.saturating_sub(READ_OVERHEAD_BYTES);
        let length = args.count.min(IO_BYTES_MAX).min(u32::try_from(room).unwrap_or(u32::MAX));
        let replica = self.open(compound).await?;
        let read = replica.read_at(args.offset, length).await.map_err(status::of_data_server)?;
        Ok(Read4ResOk { eof: read.end_of_file, data: Opaque(read.data) })
    }

    async fn write(&self, compound: &Compound, args: Write4Args) -> Result<Write4ResOk, NfsStat4> {
        let count = u32::try_from(args.data.len()).map_err(|_| NfsStat4::Inval)?;
        let end = args.offset.checked_add(count.into());
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(NfsStat4::FBig);
        }
        let OpenedTicket { ticket, term, .. } = compound.ticket()?;
        if ticket.mode != TicketMode::ReadWrite {
            return Err(NfsStat4::Stale);
        }
        let pass = self.key.floor().begin_write(term).map_err(status_of_ticket)?;
        let replica = self.open(compound).await?;
        compound.caller.has_written(&args.data.0, args.offset);
        let wanted = stability(args.stable);
        if count == 0 {
            return Ok(Write4ResOk { count, committed: args.stable, writeverf: verifier(&*replica) });
        }
        let data = match pass {
            Some(pass) => pass.go_with(args.data.0),
            None => args.data.0,
        };
        let done = replica.write_at(args.offset, data, wanted).await.map_err(status::of_data_server)?;
        Ok(Write4ResOk { count, committed: stable_how(done), writeverf: verifier(&*replica) })
    }

    async fn commit(&self, compound: &Compound, args: &Commit4Args) -> Result<Commit4ResOk, NfsStat4> {
        if args.offset.checked_add(args.count.into()).is_none() {
            return Err(NfsStat4::Inval);
        }
        let replica = self.open(compound).await?;
        let synced = replica.sync().await.map_err(status::of_data_server)?;
        Ok(Commit4ResOk { writeverf: Verifier4(synced.0) })
    }
}

fn status_of_ticket(error: TicketError) -> NfsStat4 {
    match error {
        // As of a fenced ticket: the client drops the layout and asks for another.
        TicketError::OtherPool | TicketError::UnknownGeneration | TicketError::FormerTerm => NfsStat4::Stale,
        TicketError::Malformed | TicketError::Forged => NfsStat4::BadHandle,
    }
}

fn verifier(replica: &dyn OpenReplica) -> Verifier4 {
    Verifier4(replica.verifier().0)
}
