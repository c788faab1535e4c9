//! The loop that is measured: every free slot gets the next block, then a reply is awaited.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nfs4::{
    Commit4Args, NfsArgop4, NfsFh4, NfsResop4, Read4Args, Res, StableHow4, StateId4, Verifier4, Write4Args,
    Write4ResOk,
};
use xdr::Opaque;

use super::super::client::put_fh;
use super::super::wire::Reply;
use super::replies::{Part, Replies};
use super::session::Session;
use super::target::Target;
use crate::blocks::{Extent, Limit, Positions};
use crate::contents;
use crate::spread::Operation;
use crate::throughput::{Measured, RECEIVE_BYTES};

/// Well within any lease.
const RENEWAL_PERIOD: Duration = Duration::from_secs(5);

/// Bytes that are not on disk may be lost.
const VERIFIER_HAS_CHANGED: &str = "the write verifier has changed";

/// The work of one stream.
#[derive(Clone, Debug)]
pub struct Work {
    pub positions: Positions,
    pub limit: Limit,
    pub operation: Operation,
    pub stable: StableHow4,
    /// Whether COMMIT ends each pass.
    pub commits: bool,
    pub verifies: bool,
    /// Bytes of the longest request.
    pub request_bytes_max: u32,
}

pub struct Transfer<'a> {
    target: &'a mut Target,
    work: Work,
    file: NfsFh4,
    stateid: StateId4,
    /// Bytes of every WRITE that nobody verifies.
    data: Bytes,
    issued_bytes: u64,
    free: Vec<usize>,
    ledger: Ledger,
    renewal: Instant,
}

impl<'a> Transfer<'a> {
    pub fn new(target: &'a mut Target, work: Work) -> Transfer<'a> {
        let (file, stateid) = target.place();
        let slots = target.slots();
        let mut data = vec![0; work.request_bytes_max as usize];
        contents::fill(0, &mut data);
        Transfer {
            ledger: Ledger {
                requests: vec![None; slots],
                stable: work.stable,
                verifies: work.verifies,
                measured: Measured::default(),
                present: None,
                verifier: None,
            },
            target,
            work,
            file,
            stateid,
            data: data.into(),
            issued_bytes: 0,
            free: (0..slots).rev().collect(),
            renewal: Instant::now() + RENEWAL_PERIOD,
        }
    }

    /// Until the limit is reached and everything is answered.
    pub fn run(mut self, began: Instant) -> Result<Measured> {
        let (mut buffer, mut replies) = (vec![0; RECEIVE_BYTES], Replies::default());
        loop {
            self.fill_slots(began)?;
            if self.free.len() == self.ledger.requests.len() {
                if self.ledger.verifier.is_some() && self.work.commits {
                    self.commit()?;
                    continue;
                }
                self.ledger.measured.elapsed = began.elapsed();
                return Ok(self.ledger.measured);
            }
            let len = self.target.session().receive(&mut buffer)?;
            let (ledger, free) = (&mut self.ledger, &mut self.free);
            replies.feed(&buffer[..len], |part| ledger.take(part).map(|slot| free.extend(slot)))?;
        }
    }

    fn fill_slots(&mut self, began: Instant) -> Result<()> {
        while !self.free.is_empty() {
            let now = Instant::now();
            if now >= self.renewal {
                self.renewal = now + RENEWAL_PERIOD;
                self.target.renew()?;
            }
            let Some(extent) = self.next(now - began) else { return Ok(()) };
            let Some(slot) = self.free.pop() else { return Ok(()) };
            self.ledger.requests[slot] = Some(Request { extent, sent: now });
            self.issued_bytes += u64::from(extent.len);
            if self.work.operation == Operation::Write {
                self.target.note_written(extent);
            }
            let operation = self.operation(extent);
            let operations = vec![put_fh(&self.file), operation];
            self.target.session().send(slot, operations)?;
        }
        Ok(())
    }

    /// `None` at the limit, and at the end of a pass that COMMIT must end first.
    fn next(&mut self, elapsed: Duration) -> Option<Extent> {
        let is_over = match self.work.limit {
            Limit::Bytes(bytes) => self.issued_bytes >= bytes,
            Limit::Time(time) => elapsed >= time,
        };
        if is_over {
            return None;
        }
        let extent = self.work.positions.next_in_pass();
        if extent.is_some() {
            return extent;
        }
        let is_uncommitted = self.free.len() < self.ledger.requests.len() || self.ledger.verifier.is_some();
        if self.work.commits && is_uncommitted {
            return None;
        }
        self.work.positions.rewind();
        self.work.positions.next_in_pass()
    }

    fn operation(&self, Extent { offset, len }: Extent) -> NfsArgop4 {
        let stateid = self.stateid;
        match self.work.operation {
            Operation::Read => NfsArgop4::Read(Read4Args { stateid, offset, count: len }),
            Operation::Write => {
                let data = if self.work.verifies {
                    let mut data = vec![0; len as usize];
                    contents::fill(offset, &mut data);
                    data.into()
                } else {
                    self.data.slice(..len as usize)
                };
                let (stable, data) = (self.work.stable, Opaque(data));
                NfsArgop4::Write(Write4Args { stateid, offset, stable, data })
            }
        }
    }

    /// Of the whole file; the server has it on disk only if its verifier is still that of the WRITEs.
    fn commit(&mut self) -> Result<()> {
        let began = Instant::now();
        let commit = NfsArgop4::Commit(Commit4Args { offset: 0, count: 0 });
        let reply = self.target.session().call(vec![put_fh(&self.file), commit])?;
        let Some(NfsResop4::Commit(Res::Ok(committed))) = reply.results.last() else {
            bail!("the reply lacks COMMIT");
        };
        let measured = &mut self.ledger.measured;
        measured.commits.add(began.elapsed());
        if self.ledger.verifier.take() != Some(committed.writeverf) {
            measured.count_error(VERIFIER_HAS_CHANGED.to_owned());
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    extent: Extent,
    sent: Instant,
}

/// The requests under way, and the results of those that were answered.
struct Ledger {
    /// By slot.
    requests: Vec<Option<Request>>,
    /// As WRITE asks.
    stable: StableHow4,
    verifies: bool,
    measured: Measured,
    /// The reply that is arriving.
    present: Option<Present>,
    /// Of WRITEs that no COMMIT has followed yet.
    verifier: Option<Verifier4>,
}

#[derive(Debug)]
struct Present {
    slot: usize,
    request: Request,
    /// The first thing that is wrong with it.
    error: Option<String>,
}

impl Ledger {
    /// Answers the slot that is free again, if this part ends a reply.
    fn take(&mut self, part: Part) -> Result<Option<usize>> {
        match part {
            Part::Head { reply, data_len } => {
                self.present = Some(self.begin(&reply, data_len)?);
                Ok(None)
            }
            Part::Data { at, bytes } => {
                if let (true, Some(present)) = (self.verifies, &mut self.present)
                    && !contents::are_at(present.request.extent.offset + u64::from(at), bytes)
                {
                    let error = "READ returns other bytes than --verify writes";
                    present.error.get_or_insert_with(|| error.to_owned());
                }
                Ok(None)
            }
            Part::End => {
                let Present { slot, request, error } =
                    self.present.take().context("a reply without a head")?;
                match error {
                    Some(error) => self.measured.count_error(error),
                    None => {
                        self.measured.bytes += u64::from(request.extent.len);
                        self.measured.latencies.add(request.sent.elapsed());
                    }
                }
                Ok(Some(slot))
            }
        }
    }

    fn begin(&mut self, reply: &Reply, data_len: u32) -> Result<Present> {
        let slot = Session::slot_of(reply.xid);
        let request = self.requests.get_mut(slot).and_then(Option::take);
        let request = request.context("a reply for a slot that has no request")?;
        if let Some(NfsResop4::Sequence(Res::Err(status))) = reply.results.first() {
            bail!("SEQUENCE answers {status}");
        }
        let error = match reply.results.last() {
            _ if reply.failure().is_some() => reply.failure(),
            Some(NfsResop4::Read(Res::Ok(_))) => (data_len != request.extent.len)
                .then(|| "READ returns fewer bytes than were asked for".to_owned()),
            Some(NfsResop4::Write(Res::Ok(written))) => self.fault_of(written, request.extent.len),
            _ => bail!("a reply lacks READ or WRITE"),
        };
        Ok(Present { slot, request, error })
    }

    fn fault_of(&mut self, written: &Write4ResOk, len: u32) -> Option<String> {
        let earlier = self.verifier.replace(written.writeverf);
        let fault = if earlier.is_some_and(|earlier| earlier != written.writeverf) {
            VERIFIER_HAS_CHANGED
        } else if written.count != len {
            "WRITE takes fewer bytes than were sent"
        } else if written.committed < self.stable {
            "WRITE is less stable than was asked for"
        } else {
            return None;
        };
        Some(fault.to_owned())
    }
}
