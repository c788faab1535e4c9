//! Reads, writes and syncs of files: each step in the caller's thread, or in a thread of the lane that suits it.

use std::sync::Arc;

use api::{IoHandle, PoolError, ReadData, Stability, Synced, Verifier, WriteThrough};
use bytes::{Bytes, BytesMut};
use types::PoolId;

use super::{Engine, Lane};
use crate::data_path::{BeforeRead, DataPath};
use crate::failure::pool_error;
use crate::file::{Readable, Syncable, Writable};
use crate::read::{Reader, Started, Unfinished};
use crate::readahead::Advising;
use crate::sync::{Asked, Waiter};

impl Engine {
    /// Answers at once if the bytes are in memory. A data thread fetches the rest, or the whole of a file that is not
    /// loaded, which it loads first.
    pub fn read<R: Readable>(&self, file: &R, offset: u64, length: u32) -> IoHandle<ReadData> {
        let pool = self.pool;
        if !file.is_loaded(length) {
            let (file, reader, path) = (file.clone(), Arc::clone(&self.reader), Arc::clone(&self.path));
            return self.submit_read(file, move |file| {
                file.load(length)?;
                let known = file.known();
                match start_read(pool, &reader, &path, file, offset, length)? {
                    (Started::Done(read), ahead) => Ok((judge(file, read, offset, known)?, ahead)),
                    (Started::Rest(rest), _) => finish_read(pool, &path, rest, file, known),
                }
            });
        }
        let known = file.known();
        match start_read(pool, &self.reader, &self.path, file, offset, length) {
            Err(error) => IoHandle::ready(Err(error)),
            Ok((Started::Done(read), ahead)) => {
                self.read_ahead(file, ahead);
                if !file.agrees(&read.data, offset) {
                    return self.submit_read(file.clone(), move |file| {
                        file.judge(file.reread(read, offset)?, offset, known).map(|read| (read, None))
                    });
                }
                IoHandle::ready(file.judge(read, offset, known))
            }
            Ok((Started::Rest(rest), _)) => {
                let path = Arc::clone(&self.path);
                self.submit_read(file.clone(), move |file| finish_read(pool, &path, rest, file, known))
            }
        }
    }

    /// Appends `length` bytes of an open file if the page cache has them all and they agree with their checksums, else nothing.
    /// Never waits for the disk.
    pub fn read_resident<R: Readable>(
        &self,
        file: &R,
        offset: u64,
        length: usize,
        into: &mut BytesMut,
    ) -> bool {
        let (open, io) = (file.opened(), file.io());
        let timer = self.path.time_hot();
        let before = self.path.before_read(open, io, offset, length as u64);
        let start = into.len();
        let is_read =
            matches!(before, BeforeRead::TryCache) && self.reader.append_resident(open, offset, length, into);
        if !is_read {
            return false;
        }
        if !file.agrees(&into[start..], offset) {
            into.truncate(start);
            return false;
        }
        self.read_ahead(file, self.path.note_hot(io, offset, length as u64, timer));
        true
    }

    /// Runs a read in the data lane. Its thread reads ahead once the caller has its answer.
    fn submit_read<R: Readable>(
        &self,
        file: R,
        read: impl FnOnce(&R) -> Result<(ReadData, Option<Advising>), PoolError> + Send + 'static,
    ) -> IoHandle<ReadData> {
        let (answer, handle) = self.answer();
        let job = move || {
            let (read, ahead) = match read(&file) {
                Ok((read, ahead)) => (Ok(read), ahead),
                Err(error) => (Err(error), None),
            };
            match ahead {
                None => {
                    drop(file);
                    answer.give(read);
                }
                Some(ahead) => {
                    answer.give(read);
                    ahead.follow(file.opened());
                }
            }
        };
        match self.enqueue(Lane::Data, Box::new(job)) {
            Ok(()) => handle,
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    /// In a thread, since the kernel may wait. If the lane is full, the advice is dropped.
    fn read_ahead<R: Readable>(&self, file: &R, ahead: Option<Advising>) {
        let Some(ahead) = ahead else { return };
        let file = file.clone();
        let _ = self.enqueue(Lane::Data, Box::new(move || ahead.follow(file.opened())));
    }

    /// An unstable write is answered before it is synced. Any other write is answered as `FileSync` when it is on disk.
    pub fn write<W: Writable>(
        &self,
        file: W,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> IoHandle<Stability> {
        if stability == Stability::Unstable {
            return self.submit(Lane::Data, move || {
                let written = file.write(offset, &data, stability);
                // Before the answer: the bytes may be a slice of much more, and the caller may want the file closed.
                drop((data, file));
                written.map(|()| Stability::Unstable)
            });
        }
        // On Linux fdatasync(2) covers size and extents, and a file has no other attributes to speak of.
        let (answer, handle) = self.answer();
        let tell = move |synced: Result<Verifier, PoolError>| {
            answer.give(synced.map(|_| Stability::FileSync));
        };
        match self.enqueue_through(file, offset, data, |_| {}, tell) {
            Ok(()) => handle,
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    /// Answers when the bytes can be read, and again when they are on disk.
    pub fn write_through<W: Writable>(&self, file: W, offset: u64, data: Bytes) -> WriteThrough {
        let (of_written, written) = self.answer();
        let (of_synced, synced) = self.answer();
        let tell_written = move |result: Result<(), PoolError>| {
            of_written.give(result.map(|()| Stability::Unstable));
        };
        let tell_synced = move |result: Result<Verifier, PoolError>| {
            of_synced.give(result.map(|verifier| Synced { verifier, keeps_length: false }));
        };
        match self.enqueue_through(file, offset, data, tell_written, tell_synced) {
            Ok(()) => WriteThrough { written, synced, may_keep_length: false },
            Err(error) => WriteThrough::refused(error),
        }
    }

    /// Answers when everything that was written to the file before is on disk. Syncs of one file coalesce.
    pub fn sync<S: Syncable>(&self, file: &S) -> IoHandle<Verifier> {
        let verifier = file.verifier();
        let (answer, handle) = self.answer();
        let tell = move |synced: Result<(), PoolError>| {
            answer.give(synced.map(|()| verifier));
        };
        self.enqueue_sync(file, Box::new(tell));
        handle
    }

    /// As [`Engine::sync`], and tells the outcome on a thread of the engine.
    pub fn sync_and_tell<S: Syncable>(&self, file: &S, tell: Waiter) {
        self.enqueue_sync(file, tell);
    }

    /// The same in the caller's thread, which may block, unless another one's sync covers it.
    pub fn sync_here<S: Syncable>(&self, file: S, tell: Waiter) {
        if leads(self.pool, &file, tell) {
            lead(file);
        }
    }

    /// A sync without an answer.
    pub fn settle<S: Syncable>(&self, file: &S) {
        self.enqueue_sync(file, Box::new(|_| {}));
    }

    fn enqueue_sync<S: Syncable>(&self, file: &S, waiter: Waiter) {
        if leads(self.pool, file, waiter) {
            let led = file.clone();
            if let Err(error) = self.enqueue(Lane::Sync, Box::new(move || lead(led))) {
                file.gate().abandon(&error);
            }
        }
    }

    /// In one thread, for every hand-over costs as much as a small write. A sync is what it waits for, so it goes with
    /// those.
    fn enqueue_through<W: Writable>(
        &self,
        file: W,
        offset: u64,
        data: Bytes,
        tell_written: impl FnOnce(Result<(), PoolError>) + Send + 'static,
        tell_synced: impl FnOnce(Result<Verifier, PoolError>) + Send + 'static,
    ) -> Result<(), PoolError> {
        let pool = self.pool;
        let job = move || {
            let written = file.write(offset, &data, Stability::FileSync);
            // Before the answer, as in `write`.
            drop(data);
            tell_written(written.clone());
            if let Err(error) = written {
                drop(file);
                return tell_synced(Err(error));
            }
            let verifier = file.verifier();
            if leads(pool, &file, Box::new(move |synced| tell_synced(synced.map(|()| verifier)))) {
                lead(file);
            }
        };
        self.enqueue(Lane::Sync, Box::new(job))
    }
}

fn start_read<R: Readable>(
    pool: PoolId,
    reader: &Reader,
    path: &DataPath,
    file: &R,
    offset: u64,
    length: u32,
) -> Result<(Started, Option<Advising>), PoolError> {
    let Some(open) = file.open()? else { return Ok((Started::empty(), None)) };
    let timer = path.time_hot();
    let started = match path.before_read(open, file.io(), offset, u64::from(length)) {
        BeforeRead::TryCache => reader.start(open, offset, length),
        BeforeRead::Cold(pages) => reader.start_cold(open, offset, length, pages),
    };
    let started = started.map_err(|errno| pool_error(pool, "read data", errno))?;
    let ahead = match &started {
        Started::Done(read) => path.note_hot(file.io(), offset, read.data.len() as u64, timer),
        Started::Rest(_) => None,
    };
    Ok((started, ahead))
}

fn finish_read<R: Readable>(
    pool: PoolId,
    path: &DataPath,
    rest: Unfinished,
    file: &R,
    known: R::KnownBefore,
) -> Result<(ReadData, Option<Advising>), PoolError> {
    let offset = rest.offset();
    let read = path.read(file.opened(), file.io(), rest);
    let (read, ahead) = read.map_err(|errno| pool_error(pool, "read data", errno))?;
    Ok((judge(file, read, offset, known)?, ahead))
}

/// In a thread.
fn judge<R: Readable>(
    file: &R,
    read: ReadData,
    offset: u64,
    known: R::KnownBefore,
) -> Result<ReadData, PoolError> {
    let read = if file.agrees(&read.data, offset) { read } else { file.reread(read, offset)? };
    file.judge(read, offset, known)
}

/// Whether the caller has to run the sync: nobody else does.
fn leads<S: Syncable>(pool: PoolId, file: &S, waiter: Waiter) -> bool {
    match file.gate().ask(waiter) {
        Asked::Lead => return true,
        Asked::Queued => {}
        Asked::Full(waiter) => waiter(Err(PoolError::Busy(pool))),
    }
    false
}

fn lead<S: Syncable>(file: S) {
    let answers = file.gate().run(|| file.sync());
    drop(file);
    answers.tell();
}

#[cfg(test)]
mod tests;
