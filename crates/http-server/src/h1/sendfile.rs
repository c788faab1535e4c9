//! Files onto TCP without a copy in user space: through a pipe (`splice`), or by `sendfile(2)` where all pipes are in use.
//!
//! Both wait for the disk although the socket does not block, so they are called on a worker of the runtime only while
//! the file's pages are in memory; else a thread does it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use api::LocalRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{fstat, sendfile};
use rustix::io::Errno;
use splice::{LOAD_BYTES_MAX, Load, Resident};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use super::send_error::SendError;
use crate::assembly::Stretch;
use crate::listener_state::ListenerState;

/// One call on a worker. Others wait for it, some tens of microseconds.
const CALL_BYTES_MAX: u64 = 1 << 20;
/// After so many bytes a thread is asked whether it still has to be one.
const TURN_BYTES_MAX: u64 = 8 << 20;
/// A thread waits for so long, and so often in a turn, for a client that does not keep up.
const TURN_WAITS_MAX: u32 = 4;
const TURN_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

pub(crate) enum Sent {
    All,
    /// The file is shorter than the stretch.
    EndOfFile,
    /// There is no file here, or it cannot be sent.
    Unsendable,
}

struct Turn {
    bytes: u64,
    end: Option<Errno>,
}

pub(crate) async fn send(
    stream: &TcpStream,
    stretch: &mut Stretch,
    shared: &ListenerState,
) -> Result<Sent, SendError> {
    let mut resident = Resident::default();
    while stretch.length > 0 {
        consume_budget().await;
        timeout(shared.limits.write_time, stream.writable()).await.map_err(io::Error::from)??;
        let Some(range) = stretch.local_range() else { return Ok(Sent::Unsendable) };
        let count = stretch.length.min(CALL_BYTES_MAX);
        let is_resident = resident.covers(range.file(), range.offset(), count);
        let turn = match (shared.pipes.take(), is_resident) {
            (Some(load), _) => send_through(load, stream, (&range, count, is_resident), shared).await?,
            (None, true) => send_here(stream, range.file(), range.offset(), count)?,
            (None, false) => send_in_thread(stream, Arc::clone(&range), stretch.length, shared).await?,
        };
        if turn.bytes > 0 {
            stretch.advance(turn.bytes);
            range.sent(turn.bytes);
        }
        match turn.end {
            None | Some(Errno::AGAIN | Errno::INTR) => {}
            // `of_call` says so where a call sent nothing: that is the end of the file.
            Some(Errno::NODATA) => return Ok(Sent::EndOfFile),
            Some(Errno::INVAL | Errno::NOSYS | Errno::OVERFLOW) => return Ok(Sent::Unsendable),
            Some(error @ (Errno::PIPE | Errno::CONNRESET | Errno::TIMEDOUT)) => {
                return Err(SendError::Gone(error.into()));
            }
            Some(error) => return Err(SendError::File(error.into())),
        }
    }
    Ok(Sent::All)
}

/// Sends as much as one pipe takes.
async fn send_through(
    load: Load,
    stream: &TcpStream,
    (range, count, is_resident): (&Arc<dyn LocalRange>, u64, bool),
    shared: &ListenerState,
) -> Result<Turn, SendError> {
    let (mut load, filled) = filled(load, range, (count, is_resident), shared).await?;
    let length = match of_call(filled) {
        Ok(length) => length,
        Err(errno) => return Ok(Turn { bytes: 0, end: Some(errno) }),
    };
    let mut turn = Turn { bytes: 0, end: None };
    while turn.end.is_none() && load.bytes() > 0 {
        consume_budget().await;
        if !matches!(timeout(shared.limits.write_time, stream.writable()).await, Ok(Ok(()))) {
            turn.end = Some(Errno::TIMEDOUT);
        } else if !reaches(range, length) {
            // Pages that are in the pipe are zero behind a cut.
            turn.end = Some(Errno::NODATA);
        } else {
            let sent = writing(stream, || load.send(stream).map(|sent| sent as u64))?;
            turn = Turn { bytes: turn.bytes + sent.bytes, end: sent.end };
        }
    }
    if turn.end.is_none() && !reaches(range, length) {
        turn.end = Some(Errno::NODATA);
    }
    Ok(turn)
}

/// The pipe with the first `count` bytes of the range, or those up to the end of its file, and how many these are.
async fn filled(
    mut load: Load,
    range: &Arc<dyn LocalRange>,
    (count, is_resident): (u64, bool),
    shared: &ListenerState,
) -> Result<(Load, Result<usize, Errno>), SendError> {
    let count = count.min(LOAD_BYTES_MAX as u64) as usize;
    let fill = move |range: &dyn LocalRange| {
        let filled = load.fill(range.file(), range.offset(), count);
        (load, filled)
    };
    if is_resident {
        return Ok(fill(&**range));
    }
    let permit = Arc::clone(&shared.file_senders).acquire_owned().await.map_err(io::Error::other)?;
    let range = Arc::clone(range);
    let in_thread = move || {
        let _permit = permit;
        fill(&*range)
    };
    Ok(tokio::task::spawn_blocking(in_thread).await.map_err(io::Error::other)?)
}

/// Whether the file is still as long as what was taken of it.
fn reaches(range: &Arc<dyn LocalRange>, length: u64) -> bool {
    fstat(range.file()).is_ok_and(|stat| stat.st_size.cast_unsigned() >= range.offset() + length)
}

fn of_call(called: rustix::io::Result<usize>) -> Result<u64, Errno> {
    match called {
        Ok(0) => Err(Errno::NODATA),
        Ok(sent) => Ok(sent as u64),
        Err(errno) => Err(errno),
    }
}

fn send_here(stream: &TcpStream, file: BorrowedFd<'_>, mut offset: u64, count: u64) -> io::Result<Turn> {
    writing(stream, || of_call(sendfile(stream, file, Some(&mut offset), count as usize)))
}

/// One call that writes to a socket, if it has room.
fn writing(stream: &TcpStream, mut call: impl FnMut() -> Result<u64, Errno>) -> io::Result<Turn> {
    let mut errno = None;
    let sent = stream.try_io(Interest::WRITABLE, || {
        call().map_err(|found| {
            errno = Some(found);
            io::Error::from(found)
        })
    });
    match sent {
        Ok(bytes) => Ok(Turn { bytes, end: None }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Turn { bytes: 0, end: None }),
        Err(error) => errno.map(|end| Turn { bytes: 0, end: Some(end) }).ok_or(error),
    }
}

async fn send_in_thread(
    stream: &TcpStream,
    range: Arc<dyn LocalRange>,
    length: u64,
    shared: &ListenerState,
) -> Result<Turn, SendError> {
    let _permit = shared.file_senders.acquire().await.map_err(io::Error::other)?;
    let socket = stream.as_fd().try_clone_to_owned()?;
    let length = length.min(TURN_BYTES_MAX);
    // Not waited for when the connection is dropped; it ends by itself after one wait.
    let turn = tokio::task::spawn_blocking(move || send_blocking(&socket, &*range, length))
        .await
        .map_err(io::Error::other)?;
    if turn.end == Some(Errno::AGAIN) {
        // The runtime did not see the socket fill up, and has to before it can wait. It is asked anew, lest it misses
        // that there is room again; the asking makes the kernel tell of it.
        let _ = stream.try_io(Interest::WRITABLE, || {
            if has_room(stream, Timespec::default()) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
    }
    Ok(turn)
}

fn send_blocking(socket: &OwnedFd, range: &dyn LocalRange, length: u64) -> Turn {
    let (file, mut offset) = (range.file(), range.offset());
    let (start, end, mut waits) = (offset, offset + length, 0);
    while offset < end {
        let count = (end - offset).min(CALL_BYTES_MAX) as usize;
        match of_call(sendfile(socket, file, Some(&mut offset), count)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if waits < TURN_WAITS_MAX && has_room(socket, TURN_WAIT) => waits += 1,
            Err(errno) => return Turn { bytes: offset - start, end: Some(errno) },
        }
    }
    Turn { bytes: offset - start, end: None }
}

fn has_room(socket: impl AsFd, wait: Timespec) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
    matches!(poll(&mut asked, Some(&wait)), Ok(found) if found > 0)
}
