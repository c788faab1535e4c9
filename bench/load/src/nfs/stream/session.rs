//! A session on a connection of its own. `call` waits for its reply; `send` and `receive` leave that to the transfer.

use std::io::{IoSlice, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use nfs4::{
    ClientId4, DestroyClientId4Args, DestroySession4Args, NfsArgop4, NfsResop4, NfsStat4,
    ReclaimComplete4Args, Res, Sequence4Args, SessionId4,
};
use oncrpc::RecordReader;

use super::super::client::{SLOT_BITS, create_session, exchange_id};
use super::super::wire::{Calls, Reply};
use super::super::{FRAGMENTS_MAX, READ_BYTES, REPLY_BYTES_MAX, REPLY_TIMEOUT, read_until};

/// How long a call is repeated that the server cannot answer yet: longer than a grace period.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const RETRY_PERIOD: Duration = Duration::from_millis(50);

/// Identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name and its boot.
    pub nonce: u64,
    pub minor_version: u32,
    /// Of EXCHANGE_ID.
    pub flags: u32,
    pub uid: u32,
    pub gid: u32,
}

pub struct Session {
    stream: TcpStream,
    calls: Calls,
    xids: u32,
    clientid: ClientId4,
    id: SessionId4,
    /// The sequence id of the next request, for each slot granted.
    slots: Vec<u32>,
}

impl Session {
    /// EXCHANGE_ID, CREATE_SESSION and RECLAIM_COMPLETE.
    pub fn open(server: &str, identity: &Identity, slots: u32) -> Result<Session> {
        let stream = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let Identity { nonce, minor_version, flags, uid, gid } = *identity;
        let mut session = Session {
            stream,
            calls: Calls::new(minor_version, uid, gid),
            xids: 0,
            clientid: ClientId4::default(),
            id: SessionId4::default(),
            slots: Vec::new(),
        };
        let reply = session.call_alone(exchange_id(nonce, flags))?;
        let Some(NfsResop4::ExchangeId(Res::Ok(exchanged))) = reply.results.first() else {
            bail!("the reply lacks EXCHANGE_ID");
        };
        session.clientid = exchanged.clientid;
        let reply = session.call_alone(create_session(exchanged, slots))?;
        let Some(NfsResop4::CreateSession(Res::Ok(created))) = reply.results.first() else {
            bail!("the reply lacks CREATE_SESSION");
        };
        session.id = created.sessionid;
        session.slots = vec![1; created.fore_chan_attrs.maxrequests.clamp(1, slots) as usize];
        session.call(vec![NfsArgop4::ReclaimComplete(ReclaimComplete4Args { one_fs: false })])?;
        Ok(session)
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// SEQUENCE and `operations` on the first slot; no other request may be under way. Repeats what the server cannot
    /// do yet.
    pub fn call(&mut self, operations: Vec<NfsArgop4>) -> Result<Reply> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            self.send(0, operations.clone())?;
            let reply = self.reply()?;
            let is_temporary = matches!(
                reply.status,
                NfsStat4::Delay | NfsStat4::Grace | NfsStat4::LayoutTryLater | NfsStat4::RecallConflict
            );
            match reply.failure() {
                None => return Ok(reply),
                Some(_) if is_temporary && Instant::now() < deadline => thread::sleep(RETRY_PERIOD),
                Some(failure) => bail!("{failure}"),
            }
        }
    }

    /// SEQUENCE and `operations` on a slot that is free.
    pub fn send(&mut self, slot: usize, operations: Vec<NfsArgop4>) -> Result<()> {
        let sequence = NfsArgop4::Sequence(Sequence4Args {
            sessionid: self.id,
            sequenceid: self.slots[slot],
            slotid: slot as u32,
            highest_slotid: self.slots.len() as u32 - 1,
            cachethis: false,
        });
        self.slots[slot] = self.slots[slot].wrapping_add(1);
        let mut all = Vec::with_capacity(operations.len() + 1);
        all.push(sequence);
        all.extend(operations);
        self.send_all(slot, &all)
    }

    /// Bytes of replies; waits for some.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        read_until(&mut self.stream, buffer, None)?.context("no reply in time")
    }

    /// The slot of a reply.
    pub fn slot_of(xid: u32) -> usize {
        (xid & ((1 << SLOT_BITS) - 1)) as usize
    }

    /// Ends session and client.
    pub fn close(mut self) -> Result<()> {
        self.call_alone(NfsArgop4::DestroySession(DestroySession4Args { sessionid: self.id }))?;
        let clientid = self.clientid;
        self.call_alone(NfsArgop4::DestroyClientId(DestroyClientId4Args { clientid })).map(drop)
    }

    /// Without a session.
    fn call_alone(&mut self, operation: NfsArgop4) -> Result<Reply> {
        self.send_all(0, &[operation])?;
        let reply = self.reply()?;
        match reply.failure() {
            None => Ok(reply),
            Some(failure) => bail!("{failure}"),
        }
    }

    fn send_all(&mut self, slot: usize, operations: &[NfsArgop4]) -> Result<()> {
        self.xids = self.xids.wrapping_add(1);
        self.calls.add(self.xids << SLOT_BITS | slot as u32, operations);
        write_segments(&mut self.stream, &self.calls.take_segments()).context("cannot send to the server")
    }

    /// The only reply that is awaited.
    fn reply(&mut self) -> Result<Reply> {
        let mut records = RecordReader::new(REPLY_BYTES_MAX, FRAGMENTS_MAX);
        let (mut chunk, mut buffer) = (vec![0; READ_BYTES], BytesMut::new());
        loop {
            let len = self.receive(&mut chunk)?;
            buffer.extend_from_slice(&chunk[..len]);
            if let Some(record) = records.feed(&mut buffer)? {
                return Reply::decode(record);
            }
        }
    }
}

/// All of them, in as few calls as the socket lets it.
fn write_segments(stream: &mut TcpStream, segments: &[Bytes]) -> Result<()> {
    let mut slices: Vec<IoSlice> = segments.iter().map(|segment| IoSlice::new(segment)).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        match stream.write_vectored(left)? {
            0 => bail!("the server takes no more"),
            len => IoSlice::advance_slices(&mut left, len),
        }
    }
    Ok(())
}
