//! A disk with a page cache: a power cut keeps, loses, reorders and tears the writes that were not synced.
//!
//! Each sector of a file takes one of the states that it had since the last sync, by chance and apart from the others. Sizes
//! and names change in order, up to a point chosen by chance. A process that is killed loses nothing of the cache.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use forebay_write_journal::{SECTOR_BYTES, Storage};
use parking_lot::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Segment(u32),
    Replica(u64),
    Label(u64),
}

/// Numbers by chance that a seed repeats (splitmix64).
pub struct Dice(u64);

impl Dice {
    pub fn seeded(seed: u64) -> Dice {
        Dice(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn up_to(&mut self, most: usize) -> usize {
        (self.word() % (most as u64 + 1)) as usize
    }
}

#[derive(Default)]
pub struct Disk(Mutex<Cache>);

#[derive(Default)]
struct Cache {
    names: BTreeMap<Name, usize>,
    durable_names: BTreeMap<Name, usize>,
    name_changes: Vec<(Name, Option<usize>)>,
    inodes: Vec<Inode>,
    steps_left: Option<u64>,
    is_down: bool,
    segment_syncs_that_fail: u32,
    do_segment_syncs_lie: bool,
    at_a_segment_sync: Option<Box<dyn FnOnce() + Send>>,
}

#[derive(Default)]
struct Inode {
    durable: Vec<u8>,
    cached: Vec<u8>,
    changes: Vec<Change>,
}

enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
            Change::Resize(size) => content.resize(*size, 0),
        }
    }
}

impl Inode {
    /// The content after the first `count` changes; of the resizes only those before `resizes_before`.
    fn after(&self, count: usize, resizes_before: usize) -> Vec<u8> {
        let mut content = self.durable.clone();
        for (index, change) in self.changes[..count].iter().enumerate() {
            if index < resizes_before || matches!(change, Change::Write { .. }) {
                change.apply(&mut content);
            }
        }
        content
    }

    fn lose_power(&mut self, dice: &mut Dice) {
        if self.changes.is_empty() {
            self.cached.clone_from(&self.durable);
            return;
        }
        let sized = dice.up_to(self.changes.len());
        let mut kept = self.after(sized, sized);
        // A cut that the size shows has taken the old blocks away.
        let is_resize = |change: &Change| matches!(change, Change::Resize(_));
        let at_least = self.changes[..sized].iter().rposition(is_resize).map_or(0, |index| index + 1);
        let states: Vec<Vec<u8>> =
            (at_least..=self.changes.len()).map(|count| self.after(count, sized)).collect();
        for (sector, into) in kept.chunks_mut(SECTOR_BYTES).enumerate() {
            let state = &states[dice.up_to(states.len() - 1)];
            for (index, byte) in into.iter_mut().enumerate() {
                *byte = state.get(sector * SECTOR_BYTES + index).copied().unwrap_or(0);
            }
        }
        self.durable = kept;
        self.cached.clone_from(&self.durable);
        self.changes.clear();
    }
}

fn down() -> io::Error {
    io::Error::other("the machine is down")
}

impl Cache {
    /// `false`: this step still reaches the cache, and then the machine goes down.
    fn step(&mut self) -> io::Result<bool> {
        if self.is_down {
            return Err(down());
        }
        match &mut self.steps_left {
            Some(0) => self.is_down = true,
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(!self.is_down)
    }

    fn inode(&mut self, name: Name) -> io::Result<&mut Inode> {
        let index = *self.names.get(&name).ok_or(ErrorKind::NotFound)?;
        Ok(&mut self.inodes[index])
    }

    fn change(&mut self, name: Name, change: Change) -> io::Result<()> {
        let goes_on = self.step()?;
        let inode = self.inode(name)?;
        change.apply(&mut inode.cached);
        inode.changes.push(change);
        if goes_on { Ok(()) } else { Err(down()) }
    }

    fn rename(&mut self, name: Name, to: Option<usize>) -> io::Result<()> {
        let goes_on = self.step()?;
        match to {
            Some(index) => self.names.insert(name, index),
            None => self.names.remove(&name),
        };
        self.name_changes.push((name, to));
        if goes_on { Ok(()) } else { Err(down()) }
    }

    fn sync_names(&mut self) -> io::Result<()> {
        if !self.step()? {
            return Err(down());
        }
        self.durable_names.clone_from(&self.names);
        self.name_changes.clear();
        Ok(())
    }
}

impl Disk {
    pub fn go_down_after(&self, steps: u64) {
        self.0.lock().steps_left = Some(steps);
    }

    pub fn fail_a_segment_sync(&self) {
        self.0.lock().segment_syncs_that_fail += 1;
    }

    /// Runs `then` in the next sync of a segment, before it.
    pub fn at_a_segment_sync(&self, then: impl FnOnce() + Send + 'static) {
        self.0.lock().at_a_segment_sync = Some(Box::new(then));
    }

    /// From now on a sync of a segment does nothing and succeeds.
    pub fn let_segment_syncs_lie(&self) {
        self.0.lock().do_segment_syncs_lie = true;
    }

    pub fn is_down(&self) -> bool {
        self.0.lock().is_down
    }

    /// The machine runs again after a power cut.
    pub fn lose_power(&self, dice: &mut Dice) {
        let mut cache = self.0.lock();
        let kept = dice.up_to(cache.name_changes.len());
        let changes = std::mem::take(&mut cache.name_changes);
        for (name, to) in changes.into_iter().take(kept) {
            match to {
                Some(index) => cache.durable_names.insert(name, index),
                None => cache.durable_names.remove(&name),
            };
        }
        cache.names = cache.durable_names.clone();
        for inode in &mut cache.inodes {
            inode.lose_power(dice);
        }
        cache.up();
    }

    /// The process runs again after it was killed.
    pub fn restart(&self) {
        self.0.lock().up();
    }

    pub fn create(&self, name: Name) -> io::Result<()> {
        let mut cache = self.0.lock();
        cache.inodes.push(Inode::default());
        let index = cache.inodes.len() - 1;
        cache.rename(name, Some(index))
    }

    pub fn unlink(&self, name: Name) -> io::Result<()> {
        self.0.lock().rename(name, None)
    }

    pub fn sync_names(&self) -> io::Result<()> {
        self.0.lock().sync_names()
    }

    pub fn write(&self, name: Name, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().change(name, Change::Write { offset, bytes: bytes.to_vec() })
    }

    pub fn resize(&self, name: Name, size: usize) -> io::Result<()> {
        self.0.lock().change(name, Change::Resize(size))
    }

    pub fn content(&self, name: Name) -> Option<Vec<u8>> {
        self.0.lock().inode(name).ok().map(|inode| inode.cached.clone())
    }

    pub fn sync_content(&self, name: Name) -> io::Result<()> {
        let mut cache = self.0.lock();
        if !cache.step()? {
            return Err(down());
        }
        let inode = cache.inode(name)?;
        inode.durable.clone_from(&inode.cached);
        inode.changes.clear();
        Ok(())
    }
}

impl Cache {
    fn up(&mut self) {
        (self.is_down, self.steps_left, self.segment_syncs_that_fail) = (false, None, 0);
    }
}

/// The segments on the disk.
pub struct Segments(pub Arc<Disk>);

impl Storage for Segments {
    fn segments(&self) -> io::Result<Vec<u32>> {
        let cache = self.0.0.lock();
        let number = |name: &Name| if let Name::Segment(number) = name { Some(*number) } else { None };
        Ok(cache.names.keys().filter_map(number).collect())
    }

    fn make(&self, segment: u32, segment_bytes: u64) -> io::Result<()> {
        let mut cache = self.0.0.lock();
        if !cache.step()? {
            return Err(down());
        }
        let zeros = vec![0; segment_bytes as usize];
        cache.inodes.push(Inode { durable: zeros.clone(), cached: zeros, changes: Vec::new() });
        let index = cache.inodes.len() - 1;
        cache.names.insert(Name::Segment(segment), index);
        cache.durable_names.insert(Name::Segment(segment), index);
        Ok(())
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        let mut cache = self.0.0.lock();
        if !cache.step()? {
            return Err(down());
        }
        cache.names.remove(&Name::Segment(segment));
        cache.durable_names.remove(&Name::Segment(segment));
        Ok(())
    }

    fn segment_bytes(&self, segment: u32) -> io::Result<u64> {
        Ok(self.0.0.lock().inode(Name::Segment(segment))?.cached.len() as u64)
    }

    fn read_at(&self, segment: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut cache = self.0.0.lock();
        if cache.is_down {
            return Err(down());
        }
        let offset = offset as usize;
        let content = &cache.inode(Name::Segment(segment))?.cached;
        let found = content.get(offset..offset + into.len()).ok_or(ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(Name::Segment(segment), offset as usize, bytes)
    }

    fn sync(&self, segment: u32) -> io::Result<()> {
        let then = self.0.0.lock().at_a_segment_sync.take();
        if let Some(then) = then {
            then();
        }
        {
            let mut cache = self.0.0.lock();
            if cache.do_segment_syncs_lie {
                return Ok(());
            }
            if cache.segment_syncs_that_fail > 0 {
                cache.segment_syncs_that_fail -= 1;
                return Err(io::Error::other("the disk failed"));
            }
        }
        self.0.sync_content(Name::Segment(segment))
    }
}
