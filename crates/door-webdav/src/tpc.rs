//! Third-party copy (HTTP-TPC): we move a file between here and another server because a client asks for it.
//!
//! The client's COPY is answered at once by a stream of performance markers, and by one last line that says how it
//! ended. A pull becomes visible only when it is complete and size and checksum agree; whatever ends earlier (also
//! the client going away) leaves nothing here, and at the other server as little as it lets us clean up.
//!
//! `request`, `marker` and `checksum` decide and do no I/O. Files and permissions are not known here: the handler of COPY
//! has judged the request and gives a [`CopyTarget`] or a [`CopySource`].

mod checksum;
mod counts;
mod failure;
mod marker;
mod pull;
mod push;
mod remote;
mod request;
mod running;

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error;
use types::{Checksum, ChecksumKind};

pub use counts::{CopyCounts, CopyFigures};
pub use request::{CopyRefusal, CopyRequest, Direction, is_third_party};
pub use running::{RunningCopies, ThirdPartyConfig};

/// Where a pull puts its bytes. Nothing of it is visible before `publish`, and dropping it earlier leaves nothing.
#[async_trait]
pub trait CopyTarget: Send + Sync {
    /// Kinds that are to be kept with the file, as far as they can be had while the bytes pass.
    fn kinds(&self) -> Vec<ChecksumKind>;

    /// Parts come in any order and several at a time, and a part may come again after a broken connection.
    async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), LocalError>;

    /// Of what was written, for checksums that cannot be put together from parts. Fewer bytes only at the end.
    async fn read_at(&self, offset: u64, length: u32) -> Result<Bytes, LocalError>;

    /// Makes bytes `0..size` durable and then visible. Bytes behind `size`, from an attempt that was given up, are to
    /// be cut off.
    async fn publish(self: Box<Self>, size: u64, checksums: Vec<Checksum>) -> Result<(), LocalError>;
}

/// The source of a push.
#[async_trait]
pub trait CopySource: Send + Sync {
    fn size(&self) -> u64;

    /// Known checksums of the data as it was when the copy began.
    fn checksums(&self) -> Vec<Checksum>;

    async fn read_at(&self, offset: u64, length: u32) -> Result<Bytes, LocalError>;

    /// Whether the data is still that of the beginning; asked at the end.
    async fn is_unchanged(&self) -> Result<bool, LocalError>;
}

/// Why our own side could not go on: one line for people.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub struct LocalError(pub String);
