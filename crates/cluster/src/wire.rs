//! The messages of the pool seam between a head and a pool.
//!
//! Two versions of the program work together, so the numbers of procedures, arms and enums stay as they are, and a field is
//! only added at the end of the arguments or results of a procedure: what follows the known fields is passed over. A value
//! that cannot be (an empty range, a name with a slash) is a message that cannot be understood, as every other one that is
//! garbled. Every list and text has a bound.

mod described;
mod status;
#[cfg(test)]
mod tests;
mod values;

use std::time::Duration;

use api::{BATCH_LEN_MAX, PoolError};
use parking_lot::Mutex;
use types::PoolId;
use xdr::{Opaque, Xdr};

use crate::rpc::IO_BYTES_MAX;

pub(crate) use described::Described;
pub use status::{Greeting, Status};
pub(crate) use values::{Facts, Range, Source, Stability, Stretch, Ticket, Time};

/// Procedures of the pool seam. The program keeps the numbers from 10 to 39 for them.
pub mod procedure {
    pub const OPEN: u32 = 10;
    pub const READ: u32 = 11;
    pub const WRITE: u32 = 12;
    pub const SYNC: u32 = 13;
    pub const ALLOCATE: u32 = 14;
    pub const DEALLOCATE: u32 = 15;
    pub const EXTEND: u32 = 16;
    pub const SEEK: u32 = 17;
    pub const COPY: u32 = 18;
    pub const SHARE: u32 = 19;
    pub const ADVISE: u32 = 20;
    pub const MAKE: u32 = 21;
    pub const TRUNCATE: u32 = 22;
    pub const REMOVE: u32 = 23;
    pub const SYNC_REMOVALS: u32 = 24;
    pub const FENCE: u32 = 25;
    pub const FACTS: u32 = 26;
    pub const REPLICAS: u32 = 27;
    pub const DESCRIBE: u32 = 28;

    /// In the order of their numbers.
    pub const NAMES: [&str; 19] = [
        "OPEN",
        "READ",
        "WRITE",
        "SYNC",
        "ALLOCATE",
        "DEALLOCATE",
        "EXTEND",
        "SEEK",
        "COPY",
        "SHARE",
        "ADVISE",
        "MAKE",
        "TRUNCATE",
        "REMOVE",
        "SYNC_REMOVALS",
        "FENCE",
        "FACTS",
        "REPLICAS",
        "DESCRIBE",
    ];
}

/// Replicas in one answer to REPLICAS. The caller asks again for more.
pub(crate) const LISTED_MAX: usize = 16_384;
const OPERATION_BYTES_MAX: usize = 64;
const REASON_BYTES_MAX: usize = 1024;

/// On a replica, which the ticket opens if it is not open.
#[derive(Debug, Xdr)]
pub(crate) struct On<T> {
    pub ticket: Ticket,
    pub what: T,
}

#[derive(Debug, Xdr)]
pub(crate) struct Opened {
    pub verifier: [u8; 8],
    pub has_ranges: bool,
}

#[derive(Debug, Xdr)]
pub(crate) struct Read {
    pub offset: u64,
    pub length: u32,
}

#[derive(Debug, Xdr)]
pub(crate) struct Bytes {
    #[xdr(max = IO_BYTES_MAX)]
    pub data: Opaque,
    pub end_of_file: bool,
}

#[derive(Debug, Xdr)]
pub(crate) struct Write {
    pub offset: u64,
    pub stability: Stability,
    #[xdr(max = IO_BYTES_MAX)]
    pub data: Opaque,
}

#[derive(Debug, Xdr)]
pub(crate) struct Seek {
    pub offset: u64,
    pub is_data: bool,
}

#[derive(Debug, Xdr)]
pub(crate) struct Copy {
    pub source: Source,
    pub stretch: Stretch,
}

#[derive(Debug, Xdr)]
pub(crate) struct Advise {
    pub range: Range,
    pub is_needed: bool,
}

/// About files, each as a number and what is to become of it.
#[derive(Debug, Xdr)]
pub(crate) struct Batch<T> {
    #[xdr(max = BATCH_LEN_MAX)]
    pub files: Vec<T>,
    pub within_ms: u64,
}

impl<T> Batch<T> {
    pub fn of<F: std::marker::Copy>(files: &[F], within: Duration, of_one: impl Fn(F) -> T) -> Batch<T> {
        // At most some hundred million years.
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        Batch { files: files.iter().map(|file| of_one(*file)).collect(), within_ms }
    }

    pub fn within(&self) -> Duration {
        Duration::from_millis(self.within_ms)
    }
}

/// For each file of a batch, in its order.
#[derive(Debug, Xdr)]
pub(crate) struct Replies<T> {
    #[xdr(max = BATCH_LEN_MAX)]
    pub answers: Vec<Reply<T>>,
}

#[derive(Debug, Xdr)]
pub(crate) struct List {
    pub after: u64,
    pub limit: u32,
}

#[derive(Debug, Xdr)]
pub(crate) struct Listed {
    #[xdr(max = LISTED_MAX)]
    pub replicas: Vec<Facts>,
}

#[derive(Debug, Xdr)]
pub(crate) struct Describe {
    pub after: u64,
    pub through: u64,
    #[xdr(max = BATCH_LEN_MAX)]
    pub files: Vec<Described>,
}

#[derive(Debug, Xdr)]
#[xdr(union)]
pub(crate) enum Reply<T> {
    #[xdr(0)]
    Ok(T),
    #[xdr(1)]
    No(Failure),
}

impl<T> Reply<T> {
    pub fn of(answer: Result<T, PoolError>) -> Reply<T> {
        answer.map_or_else(|error| Reply::No(Failure::of(error)), Reply::Ok)
    }

    pub fn into_result(self, pool: PoolId) -> Result<T, PoolError> {
        match self {
            Reply::Ok(value) => Ok(value),
            Reply::No(failure) => Err(failure.into_error(pool)),
        }
    }
}

/// An error of the pool. It has the same fields whatever its kind, so that one of a later version can be told to people.
#[derive(Debug, Xdr)]
pub(crate) struct Failure {
    kind: u32,
    #[xdr(max = OPERATION_BYTES_MAX)]
    operation: String,
    #[xdr(max = REASON_BYTES_MAX)]
    reason: String,
}

impl Failure {
    fn of(error: PoolError) -> Failure {
        let kind = match &error {
            PoolError::NoReplica(_) => 1,
            PoolError::Fenced => 2,
            PoolError::ReadOnlyTicket => 3,
            PoolError::NoSpace(_) => 4,
            PoolError::TooLarge => 5,
            PoolError::Unsupported(_) => 6,
            PoolError::Offline(_) => 7,
            PoolError::Unknown(_) => 8,
            PoolError::Busy(_) => 9,
            PoolError::Io { .. } => 10,
        };
        let (operation, reason) = match error {
            PoolError::Io { operation, reason, .. } => (operation.to_owned(), reason),
            _ => (String::new(), String::new()),
        };
        let (operation, reason) =
            (shortened(operation, OPERATION_BYTES_MAX), shortened(reason, REASON_BYTES_MAX));
        Failure { kind, operation, reason }
    }

    fn into_error(self, pool: PoolId) -> PoolError {
        match self.kind {
            1 => PoolError::NoReplica(pool),
            2 => PoolError::Fenced,
            3 => PoolError::ReadOnlyTicket,
            4 => PoolError::NoSpace(pool),
            5 => PoolError::TooLarge,
            6 => PoolError::Unsupported(pool),
            7 => PoolError::Offline(pool),
            8 => PoolError::Unknown(pool),
            9 => PoolError::Busy(pool),
            10 => PoolError::Io { pool, operation: known(&self.operation), reason: self.reason },
            kind => {
                let reason = format!("error {kind} of a later version: {}", self.reason);
                PoolError::Io { pool, operation: known(&self.operation), reason }
            }
        }
    }
}

/// The operation's name for as long as the process lives. A pool's code has some dozens.
fn known(operation: &str) -> &'static str {
    const KNOWN_MAX: usize = 256;
    static KNOWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut all = KNOWN.lock();
    if let Some(known) = all.iter().find(|known| **known == operation) {
        return known;
    }
    if all.len() >= KNOWN_MAX || operation.is_empty() {
        return "do what it was asked";
    }
    let operation: &'static str = operation.to_owned().leak();
    all.push(operation);
    operation
}

/// The beginning of a text that is too long.
pub(crate) fn shortened(mut text: String, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}
