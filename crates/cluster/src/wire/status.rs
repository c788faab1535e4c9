//! The state of a pool, as it tells it when it comes and then each second.

use api::PoolStatus;
use types::{FileId, PoolId};
use xdr::Xdr;

use super::shortened;

const TEXT_BYTES_MAX: usize = 1024;
const CONTENDED_MAX: usize = 1024;

/// A pool as it is when a session begins.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// As [`api::Pool::clone_granularity`].
    pub clone_granularity: Option<u32>,
    pub status: PoolStatus,
}

impl Greeting {
    pub fn of(pool: &dyn api::Pool) -> Greeting {
        Greeting { clone_granularity: pool.clone_granularity(), status: pool.status() }
    }
}

/// A [`PoolStatus`] on the wire. The pool is not told: the other side knows it.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct Status {
    #[xdr(max = 1)]
    offline: Vec<Text>,
    #[xdr(max = 1)]
    read_only: Vec<Text>,
    total_bytes: u64,
    free_bytes: u64,
    total_files: u64,
    free_files: u64,
    replicas: u64,
    read_bytes: u64,
    written_bytes: u64,
    reads: u64,
    writes: u64,
    syncs: u64,
    #[xdr(max = CONTENDED_MAX)]
    contended: Vec<u64>,
    made_through: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
struct Text {
    #[xdr(max = TEXT_BYTES_MAX)]
    text: String,
}

impl Status {
    pub fn of(status: &PoolStatus) -> Status {
        Status {
            offline: text(&status.offline),
            read_only: text(&status.read_only),
            total_bytes: status.total_bytes,
            free_bytes: status.free_bytes,
            total_files: status.total_files,
            free_files: status.free_files,
            replicas: status.replicas,
            read_bytes: status.read_bytes,
            written_bytes: status.written_bytes,
            reads: status.reads,
            writes: status.writes,
            syncs: status.syncs,
            contended: status.contended.iter().take(CONTENDED_MAX).map(|file| file.0).collect(),
            made_through: status.made_through.map(|file| file.0),
        }
    }

    pub fn into_status(self, id: PoolId) -> PoolStatus {
        let last = |mut texts: Vec<Text>| texts.pop().map(|text| text.text);
        PoolStatus {
            id,
            offline: last(self.offline),
            is_away: false,
            read_only: last(self.read_only),
            total_bytes: self.total_bytes,
            free_bytes: self.free_bytes,
            total_files: self.total_files,
            free_files: self.free_files,
            replicas: self.replicas,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            reads: self.reads,
            writes: self.writes,
            syncs: self.syncs,
            contended: self.contended.into_iter().map(FileId).collect(),
            made_through: self.made_through.map(FileId),
        }
    }
}

fn text(text: &Option<String>) -> Vec<Text> {
    let short = |text: &String| Text { text: shortened(text.clone(), TEXT_BYTES_MAX) };
    text.iter().map(short).collect()
}
