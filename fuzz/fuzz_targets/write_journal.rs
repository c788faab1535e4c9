//! Segments of the write journal as a damaged disk may give them back. The first byte of the input says whether the rest
//! is a segment, or steps that make a journal and then changes of its bytes, with or without checksums that fit again.

#![no_main]

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use forebay_fuzz::bounded;
use libfuzzer_sys::fuzz_target;
use types::{FileId, Random};
use write_journal::{Config, Entry, Journal, Record, Replay, SECTOR_BYTES, Storage, Turn};

const INSTANCE: [u8; 16] = [3; 16];
const SEGMENT_BYTES: usize = 8192;
const RECORDS_FROM: usize = 4096;
/// Head without payload, and where its payload's length and the bytes that its checksum covers stand.
const HEAD_BYTES: usize = 80;
const LENGTH_AT: usize = 72;
const COVERED_FROM: usize = 8;

#[derive(Default)]
struct Memory(Mutex<BTreeMap<u32, Vec<u8>>>);

impl Memory {
    fn with<T>(&self, segment: u32, then: impl FnOnce(&mut Vec<u8>) -> Option<T>) -> io::Result<T> {
        let mut segments = self.0.lock().expect("no thread panics here");
        segments.get_mut(&segment).and_then(then).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Storage for Memory {
    fn segments(&self) -> io::Result<Vec<u32>> {
        Ok(self.0.lock().expect("no thread panics here").keys().copied().collect())
    }

    fn make(&self, segment: u32, segment_bytes: u64) -> io::Result<()> {
        let zeros = vec![0; segment_bytes as usize];
        self.0.lock().expect("no thread panics here").insert(segment, zeros);
        Ok(())
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        self.0.lock().expect("no thread panics here").remove(&segment);
        Ok(())
    }

    fn segment_bytes(&self, segment: u32) -> io::Result<u64> {
        self.with(segment, |bytes| Some(bytes.len() as u64))
    }

    fn read_at(&self, segment: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let offset = offset as usize;
        self.with(segment, |bytes| {
            into.copy_from_slice(bytes.get(offset..offset + into.len())?);
            Some(())
        })
    }

    fn write_at(&self, segment: u32, offset: u64, from: &[u8]) -> io::Result<()> {
        let offset = offset as usize;
        self.with(segment, |bytes| {
            bytes.get_mut(offset..offset + from.len())?.copy_from_slice(from);
            Some(())
        })
    }

    fn sync(&self, _segment: u32) -> io::Result<()> {
        Ok(())
    }
}

struct Same;

impl Random for Same {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(5);
    }
}

fn config() -> Config {
    Config {
        segments: 4,
        segment_bytes: SEGMENT_BYTES as u64,
        payload_bytes_max: 600,
        files_max: 8,
        ..Config::default()
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((family, rest)) = input.split_first() else { return };
    let storage = Arc::new(Memory::default());
    if family % 3 == 0 {
        let mut segment = rest.to_vec();
        segment.resize(rest.len().max(SECTOR_BYTES), 0);
        storage.0.lock().expect("no thread panics here").insert(1, segment);
        replay(&storage);
        return;
    }
    let (steps, changes) = rest.split_at(rest.len() / 2);
    let journal = replay(&storage).and_then(|(_, journal)| journal).expect("an empty disk has no error");
    let appended = append(&journal, steps);
    change(&storage, changes, family % 3 == 2);
    let Some((found, journal)) = replay(&storage) else { return };
    if family % 3 == 1 {
        // A note that is damaged may bring back a record that was settled, but none that was never appended.
        for entry in &found {
            assert_eq!(appended.get(&entry.sequence), Some(&format!("{:?}", entry.record())));
        }
    }
    if let Some(journal) = journal {
        append(&journal, steps);
    }
});

fn entries(storage: &Arc<Memory>) -> Option<(Vec<Entry>, Replay)> {
    let disk = Arc::clone(storage) as Arc<dyn Storage>;
    let mut replay = bounded(4 * SEGMENT_BYTES, || Replay::open(disk, INSTANCE)).ok()?;
    let found = replay.by_ref().collect::<Result<Vec<_>, _>>().ok()?;
    Some((found, replay))
}

fn replay(storage: &Arc<Memory>) -> Option<(Vec<Entry>, Option<Arc<Journal>>)> {
    let (found, replay) = entries(storage)?;
    assert_eq!(replay.summary().records, found.len() as u64);
    Some((found, replay.finish(config(), Arc::new(Same)).ok()))
}

/// Each step is three bytes of the input. The records are returned by their sequence.
fn append(journal: &Arc<Journal>, steps: &[u8]) -> BTreeMap<u64, String> {
    let mut made = BTreeMap::new();
    for step in steps.chunks_exact(3) {
        let (file, number) = (FileId(u64::from(step[1] % 4)), u64::from(step[2]));
        let bytes = vec![step[2]; usize::from(step[1]) * 2];
        let record = match step[0] % 7 {
            0 => Record::Create { file, birth: number, epoch: 0 },
            1 => Record::Truncate { file, size: number },
            2 => Record::Remove { file },
            3 => Record::Fence { file, epoch: number },
            4 => {
                journal.settled(file, number);
                journal.barrier(Box::new(|_| {})).into_iter().for_each(Turn::lead);
                continue;
            }
            _ => Record::Write { file, birth: 0, epoch: number, offset: number, bytes: &bytes },
        };
        if let Ok(appended) = journal.append(&record, Box::new(|_| {})) {
            made.insert(appended.sequence, format!("{record:?}"));
            appended.turn.into_iter().for_each(Turn::lead);
        }
    }
    made
}

/// Each change is four bytes of the input: a segment, a place, a value.
fn change(storage: &Memory, changes: &[u8], checksums_fit: bool) {
    let mut segments = storage.0.lock().expect("no thread panics here");
    for change in changes.chunks_exact(4) {
        let Some(segment) = segments.get_mut(&(1 + u32::from(change[0] % 4))) else { continue };
        let at = (usize::from(change[1]) << 8 | usize::from(change[2])) % SEGMENT_BYTES;
        segment[at] ^= change[3];
    }
    if checksums_fit {
        segments.values_mut().for_each(|segment| fit_checksums(segment));
    }
}

fn fit_checksums(segment: &mut [u8]) {
    put_sum(&mut segment[8..SECTOR_BYTES], 4);
    let mut at = RECORDS_FROM;
    while let Some(head) = segment.get(at..at + HEAD_BYTES) {
        let length = head[LENGTH_AT..LENGTH_AT + 4].try_into().expect("four bytes were taken");
        let payload_bytes = (u32::from_le_bytes(length) as usize).next_multiple_of(8);
        let Some(record) = segment.get_mut(at + 4..at + HEAD_BYTES + payload_bytes) else { return };
        put_sum(record, COVERED_FROM - 4);
        at += HEAD_BYTES + payload_bytes;
    }
}

/// The checksum is at the front and covers everything from `covered_from`.
fn put_sum(bytes: &mut [u8], covered_from: usize) {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[covered_from..]) as u32;
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}
