//! Files in memory, and what became of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use types::{Checksum, ChecksumKind};

use crate::tpc::{CopySource, CopyTarget, LocalError};
use files::Sums;

/// How a target ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Published { bytes: Vec<u8>, checksums: Vec<Checksum> },
    LeftNothing,
}

pub struct Target {
    bytes: Mutex<Vec<u8>>,
    kinds: Vec<ChecksumKind>,
    space_bytes: u64,
    is_published: AtomicBool,
    read_back: Arc<AtomicU64>,
    end: mpsc::UnboundedSender<End>,
}

/// The test's end of a target.
pub struct Watch {
    end: mpsc::UnboundedReceiver<End>,
    pub read_back: Arc<AtomicU64>,
}

impl Watch {
    pub async fn end(&mut self) -> End {
        self.end.recv().await.expect("a target tells its end")
    }
}

pub fn target() -> (Box<Target>, Watch) {
    let (end, told) = mpsc::unbounded_channel();
    let read_back = Arc::new(AtomicU64::new(0));
    let target = Target {
        bytes: Mutex::default(),
        kinds: vec![ChecksumKind::Adler32, ChecksumKind::Md5],
        space_bytes: u64::MAX,
        is_published: AtomicBool::new(false),
        read_back: Arc::clone(&read_back),
        end,
    };
    (Box::new(target), Watch { end: told, read_back })
}

impl Target {
    pub fn with_space(mut self: Box<Self>, space_bytes: u64) -> Box<Target> {
        self.space_bytes = space_bytes;
        self
    }
}

#[async_trait]
impl CopyTarget for Target {
    fn kinds(&self) -> Vec<ChecksumKind> {
        self.kinds.clone()
    }

    async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), LocalError> {
        let end = offset + data.len() as u64;
        if end > self.space_bytes {
            return Err(LocalError("no space left".to_owned()));
        }
        let mut bytes = self.bytes.lock();
        if (bytes.len() as u64) < end {
            bytes.resize(end as usize, 0);
        }
        bytes[offset as usize..end as usize].copy_from_slice(&data);
        Ok(())
    }

    async fn read_at(&self, offset: u64, length: u32) -> Result<Bytes, LocalError> {
        let bytes = self.bytes.lock();
        let end = (offset as usize + length as usize).min(bytes.len());
        let data = Bytes::copy_from_slice(&bytes[offset as usize..end]);
        self.read_back.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(data)
    }

    async fn publish(self: Box<Self>, size: u64, checksums: Vec<Checksum>) -> Result<(), LocalError> {
        self.is_published.store(true, Ordering::Relaxed);
        let mut bytes = self.bytes.lock().clone();
        bytes.truncate(size as usize);
        let _ = self.end.send(End::Published { bytes, checksums });
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_published.load(Ordering::Relaxed) {
            let _ = self.end.send(End::LeftNothing);
        }
    }
}

pub struct Source {
    pub bytes: Vec<u8>,
    pub checksums: Vec<Checksum>,
    pub is_changed: bool,
}

pub fn source(bytes: &[u8]) -> Source {
    Source { bytes: bytes.to_vec(), checksums: sums(&[ChecksumKind::Adler32], bytes), is_changed: false }
}

#[async_trait]
impl CopySource for Source {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn checksums(&self) -> Vec<Checksum> {
        self.checksums.clone()
    }

    async fn read_at(&self, offset: u64, length: u32) -> Result<Bytes, LocalError> {
        let end = (offset as usize + length as usize).min(self.bytes.len());
        Ok(Bytes::copy_from_slice(&self.bytes[offset as usize..end]))
    }

    async fn is_unchanged(&self) -> Result<bool, LocalError> {
        Ok(!self.is_changed)
    }
}

pub fn sums(kinds: &[ChecksumKind], bytes: &[u8]) -> Vec<Checksum> {
    let mut sums = Sums::new(kinds.iter().copied());
    sums.update(bytes);
    sums.finish()
}
