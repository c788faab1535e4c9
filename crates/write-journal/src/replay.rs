//! The records that a start finds, in order, without those that are settled, superseded by a removal, or fenced.
//!
//! All segments are synced before they are read: a process that was killed may have left bytes in the page cache that a
//! power failure would take back after they were applied. Reading changes nothing, so a replay may be killed and repeated.
//! The walk stops at the first record that is not valid; a note behind it does not count.

use std::collections::HashMap;
use std::sync::Arc;

use types::{FileId, Random};

use crate::chain::InUse;
use crate::config::Config;
use crate::error::OpenError;
use crate::journal::Journal;
use crate::record::{self, Decoded, Kind, Record, Subject};
use crate::segment::{Behind, Header, Records};
use crate::storage::{SECTOR_BYTES, Storage};

/// No journal comes near it; one that says so is damaged.
const SEQUENCE_MAX: u64 = 1 << 62;

/// To be iterated to its end, then finished.
pub struct Replay {
    storage: Arc<dyn Storage>,
    instance: [u8; 16],
    places: std::vec::IntoIter<RecordPlace>,
    summary: Summary,
    next_sequence: u64,
    /// Segments whose headers must stay as they are until the new journal has begun, with their salts.
    salts: HashMap<u32, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records that the replay brings.
    pub records: u64,
    pub settled: u64,
    /// Of files that were removed.
    pub removed: u64,
    /// Writes that came behind a fence with an older epoch.
    pub fenced: u64,
    pub dropped: Option<Dropped>,
    /// Segments with a header that no crash leaves. Their records, if any were needed, are lost.
    pub damaged_headers: u64,
}

/// The end of the journal could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub from_sequence: u64,
    /// Valid records found behind that in its segment.
    pub records: u64,
    /// Some of it had been on disk, so stable data is lost. Else a crash tore a batch that no caller was told of.
    pub is_damage: bool,
}

/// A record to apply, with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub sequence: u64,
    subject: Subject,
    payload: Vec<u8>,
}

impl Entry {
    pub fn record(&self) -> Record<'_> {
        self.subject.record(&self.payload).expect("a replay brings no notes")
    }
}

/// Small, for a journal of the shortest records has many.
#[derive(Clone, Copy)]
struct RecordPlace {
    file: FileId,
    sequence: u64,
    segment: u32,
    offset: u32,
    encoded_bytes: u32,
}

impl Replay {
    /// Reads the journal of this instance. Blocks.
    pub fn open(storage: Arc<dyn Storage>, instance: [u8; 16]) -> Result<Replay, OpenError> {
        let (headers, damaged_headers) = headers(&*storage, &instance)?;
        let mut walk = Walk::default();
        walk.summary.damaged_headers = damaged_headers;
        walk.run(&*storage, &headers)?;
        let places = walk.places_to_replay();
        let told = headers.iter().map(|header| header.first_sequence.max(header.durable)).max();
        Ok(Replay {
            next_sequence: walk.expected.max(told.map_or(0, |told| told.saturating_add(1))).max(1),
            salts: walk.salts,
            storage,
            instance,
            places: places.into_iter(),
            summary: walk.summary,
        })
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Makes the old records void and opens the journal for new ones. Every file that an entry touched is on disk.
    /// Killed at any point, this leaves the old records or none. Blocks.
    pub fn finish(self, config: Config, random: Arc<dyn Random>) -> Result<Arc<Journal>, OpenError> {
        assert!(self.places.len() == 0, "every entry is applied before the journal begins anew");
        config.check()?;
        if self.next_sequence > SEQUENCE_MAX {
            return Err(OpenError::UsedUp { numbers: "sequence numbers" });
        }
        let Replay { storage, instance, salts, next_sequence, .. } = self;
        let present = storage.segments().map_err(OpenError::io("list"))?;
        let mut fitting = Vec::new();
        for segment in &present {
            let found_bytes = storage.segment_bytes(*segment).map_err(OpenError::io("inspect"))?;
            if found_bytes == config.segment_bytes {
                fitting.push(*segment);
            }
        }
        let mut unused = (1..=u32::MAX).filter(|number| !present.contains(number));
        let mut make = || -> Result<u32, OpenError> {
            let number = unused.next().ok_or(OpenError::UsedUp { numbers: "segment numbers" })?;
            storage.make(number, config.segment_bytes).map_err(OpenError::io("make a segment of"))?;
            Ok(number)
        };
        let spare = fitting.iter().copied().find(|segment| !salts.contains_key(segment));
        let number = spare.map_or_else(&mut make, Ok)?;
        let first = InUse { number, first_sequence: next_sequence, salt: random.u64() };
        let header = Header::of_empty_journal(instance, &first).encode();
        storage
            .write_at(number, 0, &header)
            .and_then(|()| storage.sync(number))
            .map_err(OpenError::io("begin"))?;
        // From here on no old record is replayed, so old segments may go in any order.
        let mut free: Vec<u32> = fitting.into_iter().filter(|segment| *segment != number).collect();
        free.truncate(config.segments as usize - 1);
        for segment in present.iter().copied().filter(|segment| *segment != number && !free.contains(segment))
        {
            storage.remove(segment).map_err(OpenError::io("shrink"))?;
        }
        while free.len() + 1 < config.segments as usize {
            free.push(make()?);
        }
        Ok(Journal::start(storage, (instance, config), random, first, free))
    }

    fn read(&self, place: &RecordPlace) -> Result<Entry, OpenError> {
        let mut bytes = vec![0; place.encoded_bytes as usize];
        self.storage
            .read_at(place.segment, place.offset.into(), &mut bytes)
            .map_err(OpenError::io("read"))?;
        let salt = self.salts.get(&place.segment).copied();
        let found = salt.and_then(|salt| record::decode(&bytes, salt));
        let found = found.filter(|found| found.stamp.sequence == place.sequence);
        let changed = || std::io::Error::other("a record changed since it was verified");
        let found = found.ok_or_else(changed).map_err(OpenError::io("read"))?;
        Ok(Entry { sequence: place.sequence, subject: found.subject, payload: found.payload.to_vec() })
    }
}

impl Iterator for Replay {
    type Item = Result<Entry, OpenError>;

    fn next(&mut self) -> Option<Result<Entry, OpenError>> {
        let place = self.places.next()?;
        Some(self.read(&place))
    }
}

/// Valid headers, oldest first, and the number of damaged ones.
fn headers(storage: &dyn Storage, instance: &[u8; 16]) -> Result<(Vec<Header>, u64), OpenError> {
    let (mut headers, mut damaged) = (Vec::new(), 0);
    for segment in storage.segments().map_err(OpenError::io("list"))? {
        let segment_bytes = storage.segment_bytes(segment).map_err(OpenError::io("inspect"))?;
        if segment_bytes < SECTOR_BYTES as u64 {
            damaged += 1;
            continue;
        }
        storage.sync(segment).map_err(OpenError::io("sync"))?;
        let mut sector = [0; SECTOR_BYTES];
        storage.read_at(segment, 0, &mut sector).map_err(OpenError::io("read"))?;
        match Header::decode(&sector, segment, instance)? {
            Some(header) => headers.push(header),
            None => damaged += u64::from(sector.iter().any(|byte| *byte != 0)),
        }
    }
    headers.sort_unstable_by_key(|header| header.first_sequence);
    Ok((headers, damaged))
}

#[derive(Default)]
struct Walk {
    expected: u64,
    replay_from: u64,
    places: Vec<RecordPlace>,
    noted: HashMap<FileId, u64>,
    removed: HashMap<FileId, u64>,
    fences: HashMap<FileId, u64>,
    salts: HashMap<u32, u64>,
    summary: Summary,
}

impl Walk {
    fn run(&mut self, storage: &dyn Storage, headers: &[Header]) -> Result<(), OpenError> {
        self.replay_from = headers.iter().map(|header| header.replay_from).max().unwrap_or(0);
        let start = headers.iter().rposition(|header| header.first_sequence <= self.replay_from);
        let chain = &headers[start.unwrap_or(0)..];
        self.salts = chain.iter().map(|header| (header.number, header.salt)).collect();
        self.expected = chain.first().map_or(0, |first| first.first_sequence.min(self.replay_from));
        for (index, header) in chain.iter().enumerate() {
            let told = chain[index..].iter().map(|header| header.durable).max().unwrap_or(0);
            if header.first_sequence != self.expected {
                self.drop_rest(0, told);
                break;
            }
            let behind = self.walk_segment(storage, header)?;
            if behind.records > 0 {
                self.drop_rest(behind.records, behind.durable.max(told));
                break;
            }
        }
        Ok(())
    }

    fn walk_segment(&mut self, storage: &dyn Storage, header: &Header) -> Result<Behind, OpenError> {
        let segment_bytes = storage.segment_bytes(header.number).map_err(OpenError::io("inspect"))?;
        // No longer one is ever made (`Config`); of one that is, records behind this are not found.
        let segment_bytes = segment_bytes.min(u64::from(u32::MAX));
        let mut bytes = vec![0; segment_bytes as usize];
        storage.read_at(header.number, 0, &mut bytes).map_err(OpenError::io("read"))?;
        let mut records = Records::new(&bytes, header);
        for (offset, found) in records.by_ref() {
            self.learn(header, offset, &found);
        }
        self.expected = records.expected();
        Ok(records.behind())
    }

    fn learn(&mut self, header: &Header, offset: u32, found: &Decoded<'_>) {
        let Decoded { stamp, subject, encoded_bytes, .. } = *found;
        self.replay_from = self.replay_from.max(stamp.replay_from);
        let file = subject.file;
        match subject.kind {
            Kind::Note => {
                let noted = self.noted.entry(file).or_default();
                *noted = (*noted).max(subject.argument);
                return;
            }
            Kind::Remove => {
                self.removed.insert(file, stamp.sequence);
                self.fences.remove(&file);
            }
            Kind::Fence => {
                let fence = self.fences.entry(file).or_default();
                *fence = (*fence).max(subject.epoch);
            }
            Kind::Write if self.fences.get(&file).is_some_and(|fence| subject.epoch < *fence) => {
                self.summary.fenced += 1;
                return;
            }
            Kind::Create | Kind::Write | Kind::Truncate => {}
        }
        self.places.push(RecordPlace {
            file,
            sequence: stamp.sequence,
            segment: header.number,
            offset,
            encoded_bytes: encoded_bytes as u32,
        });
    }

    fn drop_rest(&mut self, records: u64, durable: u64) {
        let is_damage = durable >= self.expected;
        self.summary.dropped = Some(Dropped { from_sequence: self.expected, records, is_damage });
    }

    /// Known only at the end of the walk: notes and removals are behind the records that they concern.
    fn places_to_replay(&mut self) -> Vec<RecordPlace> {
        let Walk { replay_from, noted, removed, places, summary, .. } = self;
        places.retain(|place| {
            let file = place.file;
            if place.sequence < *replay_from
                || noted.get(&file).is_some_and(|through| place.sequence <= *through)
            {
                summary.settled += 1;
                return false;
            }
            if removed.get(&file).is_some_and(|sequence| place.sequence < *sequence) {
                summary.removed += 1;
                return false;
            }
            summary.records += 1;
            true
        });
        std::mem::take(places)
    }
}
