//! Pipes that are filled from files and emptied into sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// A pipe takes so many bytes, if they begin on a page. The kernel lets no unprivileged process have more
/// (`fs.pipe-max-size`).
pub const LOAD_BYTES_MAX: usize = 1 << 20;

/// The pipes of a server.
pub struct Pipes {
    /// Made and not closed, at most. Becomes what the kernel has given once it gives no more.
    pipes_max: AtomicUsize,
    /// Held to take or to give back one.
    kept: Mutex<KeptPipes>,
}

#[derive(Default)]
struct KeptPipes {
    idle: Vec<Pipe>,
    made: usize,
}

struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipes {
    /// Each pipe takes two descriptors and about 10 KiB; they are made when they are needed.
    pub fn new(pipes_max: usize) -> Arc<Pipes> {
        Arc::new(Pipes { pipes_max: AtomicUsize::new(pipes_max), kept: Mutex::default() })
    }

    /// An empty one. `None`: all are in use, or the kernel gives no more.
    pub fn take(self: &Arc<Pipes>) -> Option<Load> {
        let mut kept = self.kept.lock();
        let pipe = match kept.idle.pop() {
            Some(pipe) => pipe,
            None if kept.made >= self.pipes_max.load(Ordering::Relaxed) => return None,
            None => match Pipe::make() {
                Ok(pipe) => {
                    kept.made += 1;
                    pipe
                }
                // The user has as many pages in pipes as it may (`fs.pipe-user-pages-soft`), or no descriptors.
                Err(_) => {
                    self.pipes_max.store(kept.made, Ordering::Relaxed);
                    return None;
                }
            },
        };
        Some(Load { pipe: Some(pipe), bytes: 0, home: Arc::clone(self) })
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.idle.len(), kept.made)
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

    /// Gives what is in it to a socket that does not block. `AGAIN`: the socket is full.
    pub fn send(&mut self, socket: impl AsFd) -> Result<usize, Errno> {
        let Some(pipe) = &self.pipe else { return Err(Errno::BADF) };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let sent = retry_on_intr(|| splice(&pipe.out, None, &socket, None, self.bytes, flags))?;
        self.bytes -= sent;
        Ok(sent)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let Some(pipe) = self.pipe.take() else { return };
        let mut kept = self.home.kept.lock();
        if self.bytes == 0 {
            kept.idle.push(pipe);
        } else {
            kept.made -= 1;
        }
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
    fn bytes_in_a_pipe_outlive_their_file() {
        let (file, content) = file(100_000);
        let mut load = Pipes::new(1).take().unwrap();
        assert_eq!(load.fill(file.as_fd(), 0, 100_000), Ok(100_000));
        file.set_len(0).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(load.send(&ours), Ok(100_000));
        let mut got = vec![0; 100_000];
        theirs.read_exact(&mut got).unwrap();
        assert!(got == content);
    }
}
