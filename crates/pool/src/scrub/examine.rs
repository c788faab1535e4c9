//! The check of one replica: its blocks against their sums, or new sums where there are none.
//!
//! Invariants: sums are made only of a replica that nobody has changed for some seconds, between two looks at it of which
//! each has waited for the writes that ran. A replica is damaged only if its stamp is that of the sums and its bytes differ
//! once more while nobody can write. So a writer makes no false alarm.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::Birth;
use bytes::Bytes;
use rustix::fs::{Stat, fstat};
use rustix::io::Errno;
use types::{Checksum, ChecksumKind, FileId};

use super::blocks::{BlockReader, CHUNK_BLOCKS, OpenFile, next_data};
use super::digest::{DigestCounts, Digesting, merged};
use super::sums::{BLOCK_BYTES, NewSums, Stamp, Sums, Unusable, sum};
use crate::disk_error::is_of_the_disk;
use crate::label::{self, LabelError, State};
use crate::parts::PoolParts;
use crate::replicas::Replicas;

/// Time without a write before sums are made: longer than the ticks of the clock that stamps files.
const REST: Duration = Duration::from_secs(10);
/// Bad blocks of a replica that are read again and told one by one.
const TOLD_MAX: usize = 64;
/// Tries to get the replica that is to be marked, while all that may be open are in use.
const TAKE_TRIES: u32 = 100;
const TAKE_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// The disk has other bytes than were written. The replica cannot be read any more.
    Damaged,
    /// The disk gives an error for them. Readers of other blocks are served.
    Unreadable,
    /// It differs from sums of before a crash, which may have taken the time of a later write. There are new sums.
    Doubted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: FileId,
    pub kind: FindingKind,
    pub blocks: u64,
    /// Of the first of them.
    pub offsets: Vec<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Gone,
    Verified,
    Summed,
    /// It was written meanwhile or lately, or cannot have sums now.
    LeftOut,
    Bad(Finding),
}

/// Ends the check of a replica.
#[derive(Debug)]
pub enum Halt {
    /// And the scrub.
    Stopped,
    Gone,
    Written,
    Unusable,
    Unreadable(u64),
    Failed(Errno),
}

impl From<Errno> for Halt {
    fn from(errno: Errno) -> Halt {
        Halt::Failed(errno)
    }
}

impl From<std::io::Error> for Halt {
    fn from(error: std::io::Error) -> Halt {
        Halt::Failed(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<Unusable> for Halt {
    fn from(_: Unusable) -> Halt {
        Halt::Unusable
    }
}

#[derive(Default)]
struct Blocks {
    count: u64,
    /// With the sums that they should have. The first of them.
    kept: Vec<(u64, u32)>,
}

impl Blocks {
    fn add(&mut self, block: u64, expected: u32) {
        self.count += 1;
        if self.kept.len() < TOLD_MAX {
            self.kept.push((block, expected));
        }
    }

    fn finding(&self, file: FileId, kind: FindingKind) -> Outcome {
        let offsets = self.kept.iter().map(|(block, _)| block * BLOCK_BYTES).collect();
        Outcome::Bad(Finding { file, kind, blocks: self.count, offsets })
    }
}

#[derive(Default)]
struct Mismatches {
    differing: Blocks,
    unreadable: Blocks,
}

pub struct Examiner<'a> {
    pub shared: &'a PoolParts,
    pub replicas: &'a Replicas,
    pub reader: BlockReader,
    /// Sums of another one may lack a write.
    pub generation: u64,
    /// Digests that are made and compared.
    pub kinds: &'a [ChecksumKind],
    /// Of the replica that is read.
    pub digesting: Digesting,
    pub digests: DigestCounts,
    /// Told of the bytes that were read; waits for the rate.
    pub step: Box<dyn FnMut(u64) -> Result<(), Halt> + 'a>,
}

/// Takes a block by its number; `None`: the disk gives an error for it.
type TakeBlock<'a> = dyn FnMut(u64, Option<&[u8]>) -> Result<(), Halt> + 'a;

/// A replica whose label fits.
struct Opened {
    file: FileId,
    birth: Birth,
    state: State,
    open: OpenFile,
}

impl Examiner<'_> {
    /// `Halt::Stopped`, or an outcome.
    pub fn examine(&mut self, file: FileId) -> Result<Outcome, Halt> {
        let unreadable = |blocks: u64, offsets| {
            Ok(Outcome::Bad(Finding { file, kind: FindingKind::Unreadable, blocks, offsets }))
        };
        match self.check(file) {
            Err(Halt::Stopped) => Err(Halt::Stopped),
            Err(Halt::Gone) => Ok(Outcome::Gone),
            Err(Halt::Written | Halt::Unusable) => Ok(Outcome::LeftOut),
            Err(Halt::Unreadable(block)) => unreadable(1, vec![block * BLOCK_BYTES]),
            Err(Halt::Failed(errno)) if is_of_the_disk(errno) => unreadable(0, Vec::new()),
            Err(Halt::Failed(errno)) => {
                tracing::debug!(pool = %self.shared.id(), %file, %errno, "replica cannot be scrubbed now");
                Ok(Outcome::LeftOut)
            }
            Ok(outcome) => Ok(outcome),
        }
    }

    fn check(&mut self, file: FileId) -> Result<Outcome, Halt> {
        let opened = self.open(file)?;
        if opened.state == State::Broken {
            // The page cache and the disk may differ, as its writer was told.
            return Ok(Outcome::LeftOut);
        }
        let stamp = stamp_of(&opened, &fstat(&opened.open.file)?);
        let sums = Sums::open(self.shared.store.root(), file).filter(|sums| sums.stamp.is_of(&stamp));
        if let Some(mut sums) = sums {
            match self.verify(&opened, &mut sums) {
                Ok(found) => return self.judge(&opened, &sums, &found),
                Err(Halt::Unusable) => {}
                Err(halt) => return Err(halt),
            }
        }
        if opened.state == State::Damaged {
            return Ok(Blocks::default().finding(file, FindingKind::Damaged));
        }
        self.make(&opened)
    }

    fn open(&self, file: FileId) -> Result<Opened, Halt> {
        let found = self.shared.store.open_to_look(file)?.ok_or(Halt::Gone)?;
        let label = match label::read(&found) {
            Ok(Some(label)) if label.file == file && label.instance == self.shared.store.instance => label,
            // A check of the pool tells of these.
            Ok(_) | Err(label::LabelError::Malformed) => return Err(Halt::Unusable),
            Err(label::LabelError::Unreadable(errno)) => return Err(Halt::Failed(errno)),
        };
        let state = label::state(&found).map_err(|_| Halt::Unusable)?;
        Ok(Opened { file, birth: label.birth, state, open: self.reader.open(found)? })
    }

    /// Of a moment at which nobody writes.
    fn quiet_stamp(&self, opened: &Opened) -> Result<Stamp, Halt> {
        self.replicas.wait_for_writers(opened.file);
        let stat = fstat(&opened.open.file)?;
        if stat.st_nlink == 0 { Err(Halt::Gone) } else { Ok(stamp_of(opened, &stat)) }
    }

    fn make(&mut self, opened: &Opened) -> Result<Outcome, Halt> {
        let now = SystemTime::now();
        let stamp = self.quiet_stamp(opened)?;
        if !is_at_rest(&stamp, now) {
            return Err(Halt::Written);
        }
        let blocks = stamp.length.div_ceil(BLOCK_BYTES);
        if blocks == 0 {
            return Ok(Outcome::Verified);
        }
        self.admit_sums(opened)?;
        let mut new = NewSums::create(self.shared.store.root(), stamp)?;
        self.digesting = Digesting::new(self.kinds);
        let mut from = 0;
        while let Some((first, end)) = next_data(&opened.open, from, blocks)? {
            for first in (first..end).step_by(CHUNK_BLOCKS as usize) {
                let count = CHUNK_BLOCKS.min(end - first);
                let mut push = |block, bytes: &[u8]| new.push(block, sum(bytes)).map_err(Halt::from);
                self.read(opened, &stamp, first, count, &mut |block, read| match read {
                    Some(bytes) => push(block, bytes),
                    None => Err(Halt::Unreadable(block)),
                })?;
            }
            from = end;
        }
        if self.quiet_stamp(opened)? != stamp {
            return Err(Halt::Written);
        }
        let digests = std::mem::take(&mut self.digesting).finish(stamp.length);
        new.finish(self.generation, &digests)?;
        self.digests.made += u64::from(!digests.is_empty());
        self.offer(opened.file);
        Ok(Outcome::Summed)
    }

    fn admit_sums(&self, opened: &Opened) -> Result<(), Halt> {
        let (space, root) = (&self.shared.space, self.shared.store.root());
        let needed = (fstat(&opened.open.file)?.st_blocks.cast_unsigned() * 512 / BLOCK_BYTES + 1024) * 4;
        let is_admitted = space.admit_file(root) && space.admit_bytes(root, needed);
        if is_admitted { Ok(()) } else { Err(Halt::Failed(Errno::NOSPC)) }
    }

    /// Reads are compared with the new sums.
    fn offer(&self, file: FileId) {
        if let Some(replica) = self.replicas.find(file) {
            replica.forget_sums();
        }
    }

    fn verify(&mut self, opened: &Opened, sums: &mut Sums) -> Result<Mismatches, Halt> {
        let (stamp, mut found, mut next) = (sums.stamp, Mismatches::default(), 0);
        self.digesting = Digesting::new(self.kinds);
        while let Some(segment) = sums.next_segment()? {
            self.verify_zeros(opened, &stamp, (next, segment.first), &mut found)?;
            let expected = |block: u64| segment.sums[(block - segment.first) as usize];
            self.compare(opened, &stamp, (segment.first, segment.end()), &expected, &mut found)?;
            next = segment.end();
        }
        self.verify_zeros(opened, &stamp, (next, stamp.length.div_ceil(BLOCK_BYTES)), &mut found)?;
        Ok(found)
    }

    /// Blocks without sums were in holes. A copy of the pool may have zeros there.
    fn verify_zeros(
        &mut self,
        opened: &Opened,
        stamp: &Stamp,
        (mut from, end): (u64, u64),
        found: &mut Mismatches,
    ) -> Result<(), Halt> {
        let zeros = sum(&[0; BLOCK_BYTES as usize]);
        let expected = |block| match length_of(stamp, block, 1) {
            BLOCK_BYTES => zeros,
            length => sum(&vec![0; length as usize]),
        };
        while from < end
            && let Some((first, run_end)) = next_data(&opened.open, from, end)?
        {
            self.compare(opened, stamp, (first, run_end), &expected, found)?;
            from = run_end;
        }
        Ok(())
    }

    fn compare(
        &mut self,
        opened: &Opened,
        stamp: &Stamp,
        (first, end): (u64, u64),
        expected: &dyn Fn(u64) -> u32,
        found: &mut Mismatches,
    ) -> Result<(), Halt> {
        for first in (first..end).step_by(CHUNK_BLOCKS as usize) {
            let count = CHUNK_BLOCKS.min(end - first);
            self.read(opened, stamp, first, count, &mut |block, read| {
                match read {
                    None => found.unreadable.add(block, expected(block)),
                    Some(bytes) if sum(bytes) != expected(block) => {
                        found.differing.add(block, expected(block));
                    }
                    Some(_) => {}
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Hands on each of some blocks.
    fn read(
        &mut self,
        opened: &Opened,
        stamp: &Stamp,
        first: u64,
        count: u64,
        take: &mut TakeBlock<'_>,
    ) -> Result<(), Halt> {
        match self.read_blocks(opened, first, count) {
            Ok(bytes) if bytes.len() as u64 != length_of(stamp, first, count) => return Err(Halt::Written),
            Ok(bytes) => {
                for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_BYTES as usize)) {
                    self.digesting.push(block, bytes);
                    take(block, Some(bytes))?;
                }
            }
            Err(errno) if is_of_the_disk(errno) => {
                for block in first..first + count {
                    match self.read_blocks(opened, block, 1) {
                        Ok(bytes) if bytes.len() as u64 != length_of(stamp, block, 1) => {
                            return Err(Halt::Written);
                        }
                        Ok(bytes) => {
                            self.digesting.push(block, &bytes);
                            take(block, Some(&bytes))?;
                        }
                        Err(errno) if is_of_the_disk(errno) => {
                            self.digesting.give_up();
                            take(block, None)?;
                        }
                        Err(errno) => return Err(errno.into()),
                    }
                }
            }
            Err(errno) => return Err(errno.into()),
        }
        (self.step)(length_of(stamp, first, count))
    }

    fn read_blocks(&self, opened: &Opened, first: u64, count: u64) -> Result<Bytes, Errno> {
        self.shared.store.faults.of_blocks(first, count)?;
        self.reader.read(&opened.open, first, count)
    }

    fn judge(&mut self, opened: &Opened, sums: &Sums, found: &Mismatches) -> Result<Outcome, Halt> {
        let Mismatches { differing, unreadable } = found;
        let is_doubted = sums.generation != self.generation;
        // Its readers get an error in any case.
        if opened.state == State::Damaged {
            return Ok(differing.finding(opened.file, FindingKind::Damaged));
        }
        if differing.count == 0 && unreadable.count == 0 {
            let digests = std::mem::take(&mut self.digesting).finish(sums.stamp.length);
            if let Some((stored, found)) = api::mismatch(&sums.digests, &digests) {
                tracing::debug!(pool = %self.shared.id(), file = %opened.file, %stored, %found, "digests differ");
                return self.judge_digests(opened, sums, is_doubted);
            }
            if is_doubted {
                match sums.confirm(self.shared.store.root(), self.generation) {
                    Ok(()) => self.offer(opened.file),
                    Err(error) => {
                        let pool = self.shared.id();
                        tracing::debug!(%pool, file = %opened.file, %error, "block sums stay in doubt");
                    }
                }
            }
            self.keep_digests(opened, sums, &digests)?;
            return Ok(Outcome::Verified);
        }
        if differing.count == 0 {
            return Ok(unreadable.finding(opened.file, FindingKind::Unreadable));
        }
        if is_doubted {
            if !self.quiet_stamp(opened)?.is_of(&sums.stamp) {
                return Err(Halt::Written);
            }
            return Ok(match self.make(opened)? {
                Outcome::Summed => differing.finding(opened.file, FindingKind::Doubted),
                other => other,
            });
        }
        match self.condemn(opened, sums, differing)? {
            Some(confirmed) => Ok(confirmed.finding(opened.file, FindingKind::Damaged)),
            None => Err(Halt::Written),
        }
    }

    /// The digests that were stored agree with `found`, which may have more kinds.
    fn keep_digests(&mut self, opened: &Opened, sums: &Sums, found: &[Checksum]) -> Result<(), Halt> {
        let all = merged(&sums.digests, found);
        let added = all.len() - sums.digests.len();
        self.digests.verified += u64::from(found.len() > added);
        // Bytes of a write would not belong to the stamp.
        if added == 0 || !self.quiet_stamp(opened)?.is_of(&sums.stamp) {
            return Ok(());
        }
        let root = self.shared.store.root();
        let kept = self.admit_sums(opened).is_ok().then(|| sums.set_digests(root, &all));
        match kept {
            Some(Ok(())) => self.digests.made += 1,
            // The next scrub makes them.
            Some(Err(error)) => {
                let pool = self.shared.id();
                tracing::debug!(%pool, file = %opened.file, %error, "digests cannot be stored");
            }
            None => {}
        }
        Ok(())
    }

    /// All blocks agree with their sums and a digest differs: CRC-32C does not see each change. The replica is read once
    /// more. It is damaged if nobody has written it before or meanwhile.
    fn judge_digests(&mut self, opened: &Opened, sums: &Sums, is_doubted: bool) -> Result<Outcome, Halt> {
        if !self.quiet_stamp(opened)?.is_of(&sums.stamp) {
            return Err(Halt::Written);
        }
        let none = Blocks::default();
        if is_doubted {
            return Ok(match self.make(opened)? {
                Outcome::Summed => none.finding(opened.file, FindingKind::Doubted),
                other => other,
            });
        }
        let found = self.digest(opened, &sums.stamp)?;
        let is_damaged = api::mismatch(&sums.digests, &found).is_some()
            && self.mark(opened, |file| is_still_of(opened, sums, file))?;
        if is_damaged { Ok(none.finding(opened.file, FindingKind::Damaged)) } else { Err(Halt::Written) }
    }

    fn digest(&mut self, opened: &Opened, stamp: &Stamp) -> Result<Vec<Checksum>, Halt> {
        self.digesting = Digesting::new(self.kinds);
        let blocks = stamp.length.div_ceil(BLOCK_BYTES);
        let mut from = 0;
        while let Some((first, end)) = next_data(&opened.open, from, blocks)? {
            for first in (first..end).step_by(CHUNK_BLOCKS as usize) {
                self.read(opened, stamp, first, CHUNK_BLOCKS.min(end - first), &mut |_, _| Ok(()))?;
            }
            from = end;
        }
        Ok(std::mem::take(&mut self.digesting).finish(stamp.length))
    }

    /// Reads the blocks once more while nobody can write. `None`: it was a writer, or the disk gave other bytes this time.
    fn condemn(&self, opened: &Opened, sums: &Sums, differing: &Blocks) -> Result<Option<Blocks>, Halt> {
        let (mut confirmed, mut is_hidden) = (Blocks::default(), false);
        let is_damaged = |file: BorrowedFd<'_>| {
            if !is_still_of(opened, sums, file) {
                return false;
            }
            for (block, expected) in &differing.kept {
                // A block that cannot be read, or through memory only, proves nothing.
                let whole = length_of(&sums.stamp, *block, 1);
                let read = self.reader.read_disk(&opened.open, *block);
                match read.map(|read| read.filter(|_| !self.shared.store.faults.hides_disk())) {
                    Ok(Some(bytes)) if bytes.len() as u64 == whole && sum(&bytes) != *expected => {
                        confirmed.add(*block, *expected);
                    }
                    Ok(None) => is_hidden = true,
                    _ => {}
                }
            }
            confirmed.count > 0
        };
        let condemned = self.mark(opened, is_damaged)?;
        if !condemned && is_hidden {
            let (pool, file) = (self.shared.id(), opened.file);
            tracing::error!(%pool, %file, "replica differs from its block sums, but its disk cannot be read past the page cache");
        }
        confirmed.count += differing.count - differing.kept.len() as u64;
        Ok(condemned.then_some(confirmed))
    }

    /// Marks the replica as damaged if `is_damaged` says so while nobody can write. Whether it did.
    fn mark(&self, opened: &Opened, is_damaged: impl FnOnce(BorrowedFd<'_>) -> bool) -> Result<bool, Halt> {
        let replica = (0..TAKE_TRIES).find_map(|_| {
            let taken = self.replicas.take(opened.file).ok();
            if taken.is_none() {
                std::thread::sleep(TAKE_PAUSE);
            }
            taken
        });
        let replica = replica.ok_or(Halt::Failed(Errno::BUSY))?;
        replica.condemn(self.shared, is_damaged).map_err(|error| {
            tracing::error!(pool = %self.shared.id(), file = %opened.file, %error, "damaged replica cannot be marked");
            Halt::Unusable
        })
    }
}

/// The file is the one that was read, and the sums are of its state.
fn is_still_of(opened: &Opened, sums: &Sums, file: BorrowedFd<'_>) -> bool {
    let (Ok(there), Ok(here)) = (fstat(file), fstat(&opened.open.file)) else { return false };
    let is_same = (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino);
    is_same && sums.stamp.is_of(&stamp_of(opened, &here))
}

fn stamp_of(opened: &Opened, stat: &Stat) -> Stamp {
    Stamp::of(opened.file, opened.birth, stat)
}

fn is_at_rest(stamp: &Stamp, now: SystemTime) -> bool {
    let until = now.checked_sub(REST).and_then(|until| until.duration_since(UNIX_EPOCH).ok());
    let until = until.map_or(0, |until| until.as_secs().cast_signed());
    stamp.modified_s < until
}

/// The bytes that some blocks have.
fn length_of(stamp: &Stamp, first: u64, count: u64) -> u64 {
    let (from, to) = (first * BLOCK_BYTES, (first + count) * BLOCK_BYTES);
    to.min(stamp.length).saturating_sub(from)
}

/// The state that the label of a replica states; `None`: there is no replica.
pub fn state_of(shared: &PoolParts, file: FileId) -> Result<Option<State>, Errno> {
    let Some(found) = shared.store.open_to_look(file)? else { return Ok(None) };
    match label::state(found.as_fd()) {
        Ok(state) => Ok(Some(state)),
        Err(LabelError::Unreadable(errno)) => Err(errno),
        Err(LabelError::Malformed) => Ok(None),
    }
}
