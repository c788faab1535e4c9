//! Pipes that are filled from files and emptied into sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// A pipe takes so many bytes, if they begin on a page. The kernel lets no unprivileged process have more
/// (`fs.pipe-max-size`).
pub const LOAD_BYTES_MAX: usize = 1 << 20;
/// Pipes that are kept for the next loads, also where fewer were in use lately.
const IDLE_MAX: usize = 16;
/// For this long as many are kept as were in use at once, lest one is made and closed for each load.
const LATELY: Duration = Duration::from_secs(10);
/// After the kernel has given no pipe, it is not asked for so long.
const REFUSED: Duration = Duration::from_secs(10);

/// The pipes of a server.
pub struct Pipes {
    /// Made and not closed, at most.
    pipes_max: usize,
    /// Held to take or to give back one.
    kept: Mutex<KeptPipes>,
}

#[derive(Default)]
struct KeptPipes {
    idle: Vec<Pipe>,
    made: usize,
    /// The kernel has given no more; it is asked again then.
    refused_until: Option<Instant>,
    /// The most that were in use at once lately, and when that was.
    most: Option<(usize, Instant)>,
}

struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipes {
    /// Each pipe takes two descriptors and about 10 KiB; they are made when they are needed.
    pub fn new(pipes_max: usize) -> Arc<Pipes> {
        Arc::new(Pipes { pipes_max, kept: Mutex::default() })
    }

    /// An empty one. `None`: all are in use, or the kernel gives no more.
    pub fn take(self: &Arc<Pipes>) -> Option<Load> {
        let pipe = self.kept.lock().take(self.pipes_max, Instant::now())?;
        Some(Load { pipe: Some(pipe), bytes: 0, home: Arc::clone(self) })
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.idle.len(), kept.made)
    }
}

impl KeptPipes {
    fn take(&mut self, pipes_max: usize, now: Instant) -> Option<Pipe> {
        let in_use = self.made - self.idle.len() + 1;
        if self.most.is_none_or(|(most, at)| in_use >= most || now - at > LATELY) {
            self.most = Some((in_use, now));
        }
        if let Some(pipe) = self.idle.pop() {
            return Some(pipe);
        }
        if self.made >= pipes_max || self.refused_until.is_some_and(|until| now < until) {
            return None;
        }
        match Pipe::make() {
            Ok(pipe) => {
                self.made += 1;
                self.refused_until = None;
                Some(pipe)
            }
            // The user has as many pages in pipes as it may (`fs.pipe-user-pages-soft`), or there are no descriptors.
            Err(error) => {
                tracing::debug!(%error, pipes = self.made, "the kernel gives no more pipes");
                self.refused_until = Some(now + REFUSED);
                None
            }
        }
    }

    fn has_room(&self) -> bool {
        self.idle.len() < self.most.map_or(0, |(most, _)| most).max(IDLE_MAX)
    }
}

impl Pipe {
    fn make() -> Result<Pipe, Errno> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&into, LOAD_BYTES_MAX)?;
        Ok(Pipe { out, into })
    }
}

/// A pipe with bytes on their way. Dropped empty, it is used again; else its pages go, and it with them.
pub struct Load {
    pipe: Option<Pipe>,
    bytes: usize,
    home: Arc<Pipes>,
}

impl Load {
    /// Bytes in it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes up to `length` bytes of the file. Fewer: the file ends there, or the pipe is full. Waits for the disk where
    /// pages are not in memory.
    pub fn fill(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let (mut at, mut taken) = (offset, 0);
        while taken < length {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match retry_on_intr(|| splice(file, Some(&mut at), &pipe.into, None, length - taken, flags)) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(count) => taken += count,
                // The bytes taken before are whole.
                Err(_) if taken > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        self.bytes += taken;
        Ok(taken)
    }

    /// Gives what is in it to a socket that does not block. `AGAIN`: the socket is full. `IO`: a page is no good any more.
    pub fn send(&mut self, socket: impl AsFd) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let sent = retry_on_intr(|| splice(&pipe.out, None, &socket, None, self.bytes, flags))?;
        if sent == 0 && self.bytes > 0 {
            return Err(Errno::IO);
        }
        self.bytes -= sent;
        Ok(sent)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let Some(pipe) = self.pipe.take() else { return };
        if self.bytes == 0 {
            let mut kept = self.home.kept.lock();
            if kept.has_room() {
                return kept.idle.push(pipe);
            }
        }
        // Closed before it is counted as closed, or another one would find no room with the kernel.
        drop(pipe);
        self.home.kept.lock().made -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn file(length: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        (file, content)
    }

    #[test]
    fn bytes_go_from_a_file_to_a_socket_and_the_pipe_is_used_again() {
        let (file, content) = file(3 << 20);
        let pipes = Pipes::new(1);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        for (offset, length) in [(0, 1 << 20), (4096, 1 << 20), (5, 100_000), ((3 << 20) - 10, 1 << 20)] {
            let mut load = pipes.take().unwrap();
            let wanted = length.min(content.len() - offset);
            assert_eq!(load.fill(file.as_fd(), offset as u64, length), Ok(wanted));
            assert!(pipes.take().is_none(), "there is one");
            let mut got = Vec::new();
            while load.bytes() > 0 {
                match load.send(&ours) {
                    Ok(_) | Err(Errno::AGAIN) => {}
                    Err(errno) => panic!("{errno}"),
                }
                let mut part = vec![0; 1 << 20];
                let count = theirs.read(&mut part).unwrap();
                got.extend_from_slice(&part[..count]);
            }
            while got.len() < wanted {
                let mut part = vec![0; 1 << 20];
                let count = theirs.read(&mut part).unwrap();
                got.extend_from_slice(&part[..count]);
            }
            assert!(got == content[offset..offset + wanted], "{offset}");
            drop(load);
            assert_eq!(pipes.counts(), (1, 1));
        }
    }

    #[test]
    fn a_full_pipe_and_the_end_of_the_file_take_less() {
        let (file, content) = file((1 << 20) + 10_000);
        let pipes = Pipes::new(1);
        let mut load = pipes.take().unwrap();
        let taken = load.fill(file.as_fd(), 1, 2 << 20).unwrap();
        assert!(
            taken < LOAD_BYTES_MAX && taken > LOAD_BYTES_MAX - 8192,
            "a first page that is not whole: {taken}"
        );
        drop(load);
        assert_eq!(pipes.counts(), (0, 0), "one with pages is not used again");
        let mut load = pipes.take().unwrap();
        assert_eq!(load.fill(file.as_fd(), content.len() as u64, 5), Ok(0));
        assert_eq!(load.fill(file.as_fd(), u64::MAX, 5), Err(Errno::INVAL));
    }

    #[test]
    fn as_many_bytes_as_were_taken_can_be_sent_whatever_becomes_of_the_file() {
        for cut in [0, 50_000] {
            let (file, content) = file(100_000);
            let mut load = Pipes::new(1).take().unwrap();
            assert_eq!(load.fill(file.as_fd(), 0, 100_000), Ok(100_000));
            file.set_len(cut).unwrap();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            assert_eq!(load.send(&ours), Ok(100_000));
            let mut got = vec![0; 100_000];
            theirs.read_exact(&mut got).unwrap();
            // Behind a cut within a page there may be zeros.
            assert!(got[..cut as usize] == content[..cut as usize]);
        }
    }

    #[test]
    fn idle_pipes_are_bounded_and_no_pipe_is_lost() {
        let pipes = Pipes::new(IDLE_MAX + 4);
        let all: Vec<_> = std::iter::from_fn(|| pipes.take()).collect();
        if all.len() < IDLE_MAX + 4 {
            println!("skipped: the kernel gives this user {} pipes", all.len());
            return;
        }
        drop(all);
        assert_eq!(pipes.counts(), (IDLE_MAX + 4, IDLE_MAX + 4), "as many were in use lately");
        let all: Vec<_> = std::iter::from_fn(|| pipes.take()).collect();
        pipes.kept.lock().most = Some((1, Instant::now()));
        drop(all);
        assert_eq!(pipes.counts(), (IDLE_MAX, IDLE_MAX), "that was long ago");
        assert_eq!(std::iter::from_fn(|| pipes.take()).collect::<Vec<_>>().len(), IDLE_MAX + 4);
    }
}
