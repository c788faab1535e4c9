//! The loop that is measured: every free slot begins the next request, and writes end with a sync.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::{OpenReplica, PoolError, Stability, Verifier};
use bytes::Bytes;
use futures_util::future::join_all;
use rustix::param::page_size;

use crate::blocks::{Extent, Limit, Positions};
use crate::contents;
use crate::spread::Operation;
use crate::throughput::Measured;

/// The work of one stream.
#[derive(Clone, Debug)]
pub struct Work {
    pub positions: Positions,
    pub limit: Limit,
    pub operation: Operation,
    pub stable: Stability,
    pub verifies: bool,
    pub slots: u32,
}

pub struct Transfer<'a> {
    replica: &'a dyn OpenReplica,
    /// From before the first write: a sync that answers with another one has lost bytes.
    verifier: Verifier,
    work: Work,
    /// Bytes of every write that nobody verifies.
    data: Bytes,
    /// Borrowed between two waits only.
    progress: RefCell<Progress>,
}

struct Progress {
    positions: Positions,
    issued_bytes: u64,
    measured: Measured,
}

impl<'a> Transfer<'a> {
    pub fn new(replica: &'a dyn OpenReplica, work: Work) -> Transfer<'a> {
        Transfer {
            replica,
            verifier: replica.verifier(),
            data: page_aligned(0, work.positions.request_bytes_max()),
            progress: RefCell::new(Progress {
                positions: work.positions.clone(),
                issued_bytes: 0,
                measured: Measured::default(),
            }),
            work,
        }
    }

    /// Until the limit is reached, everything is answered, and all writes are on disk.
    pub async fn run(self, began: Instant) -> Result<Measured> {
        join_all((0..self.work.slots).map(|_| self.use_slot(began))).await;
        let is_to_sync = self.work.operation == Operation::Write && self.work.stable == Stability::Unstable;
        let synced = match is_to_sync {
            true => Some((Instant::now(), self.replica.sync().await)),
            false => None,
        };
        let mut measured = self.progress.into_inner().measured;
        match synced {
            Some((_, Ok(verifier))) if verifier != self.verifier => {
                measured.count_error("the write verifier has changed".to_owned());
            }
            Some((sent, Ok(_))) => measured.commits.add(sent.elapsed()),
            Some((_, Err(error))) => measured.count_error(error.to_string()),
            None => {}
        }
        measured.elapsed = began.elapsed();
        Ok(measured)
    }

    async fn use_slot(&self, began: Instant) {
        while let Some(extent) = self.next(began.elapsed()) {
            let sent = Instant::now();
            let done = match self.work.operation {
                Operation::Read => self.read(extent).await,
                Operation::Write => self.write(extent).await,
            };
            let measured = &mut self.progress.borrow_mut().measured;
            match done {
                Ok(()) => {
                    measured.bytes += u64::from(extent.len);
                    measured.latencies.add(sent.elapsed());
                }
                Err(error) => measured.count_error(error),
            }
        }
    }

    /// `None` at the limit, and after a failure.
    fn next(&self, elapsed: Duration) -> Option<Extent> {
        let mut progress = self.progress.borrow_mut();
        let is_over = match self.work.limit {
            Limit::Bytes(bytes) => progress.issued_bytes >= bytes,
            Limit::Time(time) => elapsed >= time,
        };
        if is_over || !progress.measured.errors.is_empty() {
            return None;
        }
        let extent = progress.positions.next_in_pass().or_else(|| {
            progress.positions.rewind();
            progress.positions.next_in_pass()
        })?;
        progress.issued_bytes += u64::from(extent.len);
        Some(extent)
    }

    async fn read(&self, Extent { offset, len }: Extent) -> Result<(), String> {
        let read = self.replica.read_at(offset, len).await.map_err(text)?;
        if read.data.len() != len as usize {
            return Err("a read returns fewer bytes than were asked for".to_owned());
        }
        if self.work.verifies && !contents::are_at(offset, &read.data) {
            return Err("a read returns other bytes than --verify writes".to_owned());
        }
        Ok(())
    }

    async fn write(&self, Extent { offset, len }: Extent) -> Result<(), String> {
        let data =
            if self.work.verifies { page_aligned(offset, len) } else { self.data.slice(..len as usize) };
        let stable = self.replica.write_at(offset, data, self.work.stable).await.map_err(text)?;
        if stable < self.work.stable {
            return Err("a write is less stable than was asked for".to_owned());
        }
        Ok(())
    }
}

fn text(error: PoolError) -> String {
    error.to_string()
}

/// The bytes of a file at `offset`, in memory that direct I/O takes without a copy.
fn page_aligned(offset: u64, len: u32) -> Bytes {
    let (page, len) = (page_size(), len as usize);
    let mut memory = vec![0; len + page];
    let start = memory.as_ptr().align_offset(page);
    contents::fill(offset, &mut memory[start..start + len]);
    Bytes::from(memory).slice(start..start + len)
}
