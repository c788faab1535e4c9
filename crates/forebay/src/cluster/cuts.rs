//! `cuts.jsonl` in the data directory of a cluster: truncations of files on other hosts, noted before the pool is asked until the
//! namespace has the length on disk. `files` finishes those that were left.
//!
//! The file has a line of the same length for each note, most of them blank, and is written over in place. So a note needs no
//! room on a full disk. Lines are made blank once a second, behind a sync of the namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use api::{ANSWER_TIME, Cut, CutNotes, CutNumber, Locations, PoolError};
use async_trait::async_trait;
use files::Files;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use types::{FileId, PoolId};

use crate::data_dir::{DataDir, complaint};

const NAME: &str = "cuts.jsonl";
const VERSION: u32 = 1;
/// Within a sector, which a power cut leaves old or new.
const LINE_BYTES: usize = 128;
/// Cuts under way and left.
const NOTES_MAX: usize = 1024;
const PERIOD: Duration = Duration::from_secs(1);
/// A pool does after that time nothing of a call that it has not answered.
const CALL_TIME: Duration = ANSWER_TIME.saturating_mul(2);

pub struct Cuts {
    file: Arc<File>,
    /// Their lengths are compared by the start. Other pools have higher numbers.
    own_pools: u32,
    locations: Arc<dyn Locations>,
    /// Leaf lock.
    notes: Mutex<Notes>,
    /// Held while lines are made blank, so that those who find no room wait for it.
    clearing: tokio::sync::Mutex<()>,
}

struct Notes {
    /// By their places.
    all: Vec<Note>,
    /// How often each place was taken: the number of a note that gave way is that of no other.
    taken: Vec<u64>,
    free: Vec<usize>,
    left: BTreeMap<FileId, BTreeSet<usize>>,
}

#[derive(Clone, Copy)]
enum Note {
    /// Blank, or about to be.
    Free,
    UnderWay(Cut),
    /// The time at which this start left it. `None`: an earlier start did.
    Left(Cut, Option<Instant>),
    Ended,
}

#[derive(Serialize, Deserialize)]
struct Line {
    version: u32,
    file: u64,
    pool: u32,
    size: u64,
}

impl Cuts {
    /// Those that an earlier start left are kept. Blocks.
    pub fn open(data: &DataDir, locations: Arc<dyn Locations>) -> Result<Arc<Cuts>> {
        let path = data.path().join(NAME);
        let failed = |what| move |error| complaint(&data.path().join(NAME), what, &error);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("read")(error)),
        };
        if text.len() != NOTES_MAX * LINE_BYTES {
            if !text.is_empty() {
                bail!("{} is damaged (remove it: at most truncations of a moment are lost)", path.display());
            }
            durable::replace(&path, &blank().repeat(NOTES_MAX)).map_err(failed("write"))?;
        }
        let mut notes = Notes::default();
        for (place, line) in text.chunks(LINE_BYTES).enumerate() {
            if let Some(cut) = read(&path, line)? {
                notes.all[place] = Note::Left(cut, None);
                notes.left.entry(cut.file).or_default().insert(place);
            }
        }
        let all = &notes.all;
        notes.free.retain(|place| matches!(all[*place], Note::Free));
        let file = OpenOptions::new().write(true).open(&path).map_err(failed("open"))?;
        let (file, notes, clearing) = (Arc::new(file), Mutex::new(notes), Default::default());
        Ok(Arc::new(Cuts { file, own_pools: data.pools, locations, notes, clearing }))
    }

    /// Finishes what was left, once the pools are there, and makes ended notes blank.
    pub async fn run(self: Arc<Self>, files: Arc<Files>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            self.finish_left(&files).await;
            self.clear_ended().await;
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// One pass. A pool that does not answer is not asked twice.
    pub async fn finish_left(&self, files: &Files) {
        let mut silent = BTreeSet::new();
        let left: Vec<FileId> = self.notes.lock().left.keys().copied().collect();
        for file in left {
            let Some((_, cut)) = self.left(file) else { continue };
            if silent.contains(&cut.pool) {
                continue;
            }
            if let Err(error) = files.finish_cuts(file).await {
                tracing::debug!(%file, pool = %cut.pool, %error, "cannot finish a truncation yet");
                silent.insert(cut.pool);
            }
        }
    }

    /// Makes the lines of ended notes blank: the namespace has their lengths on disk then.
    async fn clear_ended(&self) {
        let _clearing = self.clearing.lock().await;
        let ended: Vec<usize> = {
            let notes = self.notes.lock();
            let ended = notes.all.iter().enumerate().filter(|(_, note)| matches!(note, Note::Ended));
            ended.map(|(place, _)| place).collect()
        };
        if ended.is_empty() || self.locations.settle().await.is_err() {
            return;
        }
        let (file, places) = (Arc::clone(&self.file), ended.clone());
        let cleared = tokio::task::spawn_blocking(move || {
            places.iter().try_for_each(|place| file.write_all_at(&blank(), offset(*place)))
        });
        if matches!(cleared.await, Ok(Ok(()))) {
            let mut notes = self.notes.lock();
            for place in ended {
                notes.all[place] = Note::Free;
                notes.free.push(place);
            }
        }
    }

    /// The place and the number of a new note.
    async fn room_for(&self, cut: Cut) -> Option<(usize, CutNumber)> {
        let is_full = self.notes.lock().free.is_empty();
        if is_full {
            self.clear_ended().await;
        }
        self.notes.lock().take(cut)
    }
}

impl Default for Notes {
    fn default() -> Notes {
        let (all, taken) = (vec![Note::Free; NOTES_MAX], vec![0; NOTES_MAX]);
        Notes { all, taken, free: (0..NOTES_MAX).rev().collect(), left: BTreeMap::new() }
    }
}

impl Notes {
    fn take(&mut self, cut: Cut) -> Option<(usize, CutNumber)> {
        let place = self.free.pop().or_else(|| self.oldest_left())?;
        self.all[place] = Note::UnderWay(cut);
        self.taken[place] += 1;
        Some((place, self.number_of(place)))
    }

    fn number_of(&self, place: usize) -> CutNumber {
        CutNumber(self.taken[place] * NOTES_MAX as u64 + place as u64)
    }

    /// `None`: it has given way to another.
    fn place_of(&self, number: CutNumber) -> Option<usize> {
        let place = (number.0 % NOTES_MAX as u64) as usize;
        (self.number_of(place) == number).then_some(place)
    }

    fn end(&mut self, place: usize) {
        self.forget_left(place);
        self.all[place] = Note::Ended;
    }

    /// Gives up a cut of which nobody has learned what became of it for longest.
    fn oldest_left(&mut self) -> Option<usize> {
        let left = self.all.iter().enumerate().filter_map(|(place, note)| match note {
            Note::Left(_, since) => Some((*since, place)),
            Note::Free | Note::UnderWay(_) | Note::Ended => None,
        });
        let (_, place) = left.min()?;
        self.forget_left(place);
        Some(place)
    }

    fn forget_left(&mut self, place: usize) {
        if let Note::Left(cut, _) = self.all[place]
            && let Some(places) = self.left.get_mut(&cut.file)
        {
            places.remove(&place);
            if places.is_empty() {
                self.left.remove(&cut.file);
            }
        }
    }
}

#[async_trait]
impl CutNotes for Cuts {
    async fn begin(&self, cut: Cut) -> Result<Option<CutNumber>, PoolError> {
        if cut.pool.0 < self.own_pools {
            return Ok(None);
        }
        let Some((place, number)) = self.room_for(cut).await else { return Err(PoolError::Busy(cut.pool)) };
        let (file, line) = (Arc::clone(&self.file), line(cut));
        let written = tokio::task::spawn_blocking(move || {
            file.write_all_at(&line, offset(place)).and_then(|()| file.sync_data())
        });
        match written.await {
            Ok(Ok(())) => Ok(Some(number)),
            failed => {
                self.end(number);
                let reason = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "the head stops".to_owned(),
                };
                Err(PoolError::Io { pool: cut.pool, operation: "note a truncation at the head", reason })
            }
        }
    }

    fn end(&self, number: CutNumber) {
        let mut notes = self.notes.lock();
        if let Some(place) = notes.place_of(number) {
            notes.end(place);
        }
    }

    fn leave(&self, number: CutNumber) {
        let mut notes = self.notes.lock();
        if let Some(place) = notes.place_of(number)
            && let Note::UnderWay(cut) = notes.all[place]
        {
            notes.all[place] = Note::Left(cut, Some(Instant::now()));
            notes.left.entry(cut.file).or_default().insert(place);
        }
    }

    fn find_uncut(&self, number: CutNumber) {
        let mut notes = self.notes.lock();
        if let Some(place) = notes.place_of(number)
            && let Note::Left(_, since) = notes.all[place]
            && since.is_none_or(|since| since.elapsed() > CALL_TIME)
        {
            notes.end(place);
        }
    }

    fn left(&self, file: FileId) -> Option<(CutNumber, Cut)> {
        let notes = self.notes.lock();
        let place = *notes.left.get(&file)?.first()?;
        match notes.all[place] {
            Note::Left(cut, _) => Some((notes.number_of(place), cut)),
            Note::Free | Note::UnderWay(_) | Note::Ended => None,
        }
    }
}

fn offset(place: usize) -> u64 {
    (place * LINE_BYTES) as u64
}

fn blank() -> Vec<u8> {
    format!("{:<width$}\n", "", width = LINE_BYTES - 1).into_bytes()
}

fn line(cut: Cut) -> Vec<u8> {
    let line = Line { version: VERSION, file: cut.file.0, pool: cut.pool.0, size: cut.size };
    let text = serde_json::to_string(&line).expect("numbers can be written");
    format!("{text:<width$}\n", width = LINE_BYTES - 1).into_bytes()
}

fn read(path: &Path, line: &[u8]) -> Result<Option<Cut>> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    match serde_json::from_slice(line) {
        Ok(Line { version: VERSION, file, pool, size }) => {
            Ok(Some(Cut { file: FileId(file), pool: PoolId(pool), size }))
        }
        Ok(Line { version, .. }) if version > VERSION => {
            bail!("{} was written by a newer forebay: use that version", path.display())
        }
        // The disk was full of something else, or somebody has edited it.
        _ => bail!("{} is damaged (remove it: at most truncations of a moment are lost)", path.display()),
    }
}

#[cfg(test)]
mod tests;
