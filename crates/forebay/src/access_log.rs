//! The log of HTTP requests, one line each, in a file that `logrotate` may move away.
//!
//! A request hands its line over and never waits: lines lie in a buffer of bounded size, and a thread writes them. If
//! the disk does not keep up, lines are left out and counted, and the server's log tells how many.

mod line;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http_server::{Exchange, ExchangeLog};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use types::Clock;

/// Lines that wait for the disk; beyond it they are left out.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// How often lines that were left out are told of.
const TELL_PERIOD: Duration = Duration::from_secs(1);
/// Not for everybody: it has names of files and addresses of users.
const MODE: u32 = 0o640;

pub struct AccessLog {
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// Held for a copy of a line, and to take all lines.
    waiting: Mutex<Waiting>,
    changed: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    left_out: u64,
    is_reopened: bool,
    is_closed: bool,
    has_ended: bool,
}

/// The thread that writes. It ends after the last line when this is dropped; nobody waits for it but
/// [`AccessLogWriter::finish`], since its disk may hang.
pub struct AccessLogWriter(Arc<AccessLog>);

impl AccessLog {
    /// Opens the file, so that a mistake is told at the start.
    pub fn start(path: &Path, clock: Arc<dyn Clock>) -> Result<AccessLogWriter> {
        let file = open(path).with_context(|| format!("cannot open http.access_log = {}", path.display()))?;
        let log = Arc::new(AccessLog {
            clock,
            path: path.to_owned(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
            ended: Condvar::new(),
        });
        let writer = AccessLogWriter(log);
        let writing = writer.log();
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        thread.spawn(move || writing.write_all(file)).context("cannot start a thread")?;
        Ok(writer)
    }

    /// Opens the file by its name again, after the lines that wait: for `logrotate`.
    pub fn reopen(&self) {
        self.waiting.lock().is_reopened = true;
        self.changed.notify_one();
    }

    fn put(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.lines.len() + line.len() > BUFFER_BYTES_MAX {
            waiting.left_out += 1;
            return;
        }
        waiting.lines.extend_from_slice(line);
        drop(waiting);
        self.changed.notify_one();
    }

    fn write_all(&self, mut file: File) {
        let _end = End(self);
        let (mut lines, mut is_cut) = (Vec::new(), false);
        loop {
            let (left_out, is_reopened, is_closed) = self.take(&mut lines);
            if left_out > 0 {
                tracing::warn!(left_out, path = %self.path.display(), "access log cannot keep up: requests are missing in it");
            }
            if let Err(error) = write_whole(&mut file, &lines, &mut is_cut) {
                let count = lines.iter().filter(|byte| **byte == b'\n').count();
                tracing::error!(path = %self.path.display(), %error, lines = count, "cannot write the access log");
            }
            if is_reopened {
                match open(&self.path) {
                    Ok(fresh) => (file, is_cut) = (fresh, false),
                    Err(error) => {
                        tracing::error!(path = %self.path.display(), %error, "cannot reopen the access log; the previous file is used");
                    }
                }
            }
            if is_closed && lines.is_empty() {
                return;
            }
        }
    }

    /// Waits for something to do. `lines` gives its memory back for the next ones.
    fn take(&self, lines: &mut Vec<u8>) -> (u64, bool, bool) {
        lines.clear();
        let mut waiting = self.waiting.lock();
        while waiting.lines.is_empty() && !waiting.is_reopened && !waiting.is_closed && waiting.left_out == 0
        {
            self.changed.wait_for(&mut waiting, TELL_PERIOD);
        }
        std::mem::swap(lines, &mut waiting.lines);
        let left_out = std::mem::take(&mut waiting.left_out);
        (left_out, std::mem::take(&mut waiting.is_reopened), waiting.is_closed)
    }
}

/// Tells that the thread has ended, also by a panic, which the panic hook has reported.
struct End<'a>(&'a AccessLog);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().has_ended = true;
        self.0.ended.notify_all();
    }
}

impl AccessLogWriter {
    pub fn log(&self) -> Arc<AccessLog> {
        Arc::clone(&self.0)
    }

    /// Waits until the last line is written, for at most `patience`. Returns whether it is.
    pub fn finish(self, patience: Duration) -> bool {
        let log = self.log();
        drop(self);
        let deadline = Instant::now() + patience;
        let mut waiting = log.waiting.lock();
        while !waiting.has_ended {
            if log.ended.wait_until(&mut waiting, deadline).timed_out() {
                break;
            }
        }
        waiting.has_ended
    }
}

impl ExchangeLog for AccessLog {
    fn ended(&self, exchange: &Exchange, took: Duration) {
        self.put(line::of(exchange, self.clock.now(), took).as_bytes());
    }
}

impl Drop for AccessLogWriter {
    fn drop(&mut self) {
        self.0.waiting.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

/// Writes the lines. If the write before failed in the middle of a line, that line ends first: a client chooses what
/// stands in a line, and the next one must not become a part of it.
fn write_whole(file: &mut impl Write, lines: &[u8], is_cut: &mut bool) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    if std::mem::replace(is_cut, true) {
        file.write_all(b"\n")?;
    }
    file.write_all(lines)?;
    *is_cut = false;
    Ok(())
}

/// Opening a FIFO that nobody reads fails and does not wait: it would hold up the start.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(flags).open(path)?;
    // The thread that writes may wait.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SystemClock;

    const LONG: Duration = Duration::from_secs(60);

    fn fifo(dir: &Path) -> PathBuf {
        let path = dir.join("access.log");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    #[test]
    fn lines_before_a_reopening_are_in_the_old_file_and_later_ones_in_the_new() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
        let writer = AccessLog::start(&path, Arc::new(SystemClock::new())).unwrap();
        let log = writer.log();
        log.put(b"first\n");
        std::fs::rename(&path, &moved).unwrap();
        log.put(b"second\n");
        log.reopen();
        let is_there = || path.exists();
        while !is_there() {
            std::thread::yield_now();
        }
        log.put(b"third\n");
        assert!(writer.finish(LONG));
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "first\nsecond\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "third\n");
    }

    #[test]
    fn a_full_buffer_counts_lines_and_makes_nobody_wait() {
        let log = AccessLog {
            clock: Arc::new(SystemClock::new()),
            path: PathBuf::new(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
            ended: Condvar::new(),
        };
        let line = vec![b'x'; BUFFER_BYTES_MAX / 4];
        (0..6).for_each(|_| log.put(&line));
        let mut lines = Vec::new();
        assert_eq!(log.take(&mut lines), (2, false, false));
        assert_eq!(lines.len(), BUFFER_BYTES_MAX);
        log.put(b"y");
        assert_eq!(log.take(&mut lines), (0, false, false));
        assert_eq!(lines, b"y");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_told_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none/access.log");
        let error = AccessLog::start(&path, Arc::new(SystemClock::new())).err().unwrap();
        let error = format!("{error:#}");
        assert!(error.starts_with("cannot open http.access_log = ") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_log_whose_disk_hangs_does_not_hold_up_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        // It is open for reading, and nobody reads: writing hangs when the pipe is full.
        let _reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let writer = AccessLog::start(&path, Arc::new(SystemClock::new())).unwrap();
        writer.log().put(&vec![b'x'; BUFFER_BYTES_MAX]);
        let (sender, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(writer.finish(Duration::from_millis(100))));
        assert!(!ended.recv_timeout(LONG).expect("it does not wait for the disk"), "not all is written");
    }

    #[test]
    fn a_fifo_that_nobody_reads_is_refused_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let (sender, started) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let error = AccessLog::start(&path, Arc::new(SystemClock::new())).err();
            sender.send(error.map(|error| format!("{error:#}")))
        });
        let error = started.recv_timeout(LONG).expect("it does not wait for a reader").expect("an error");
        assert!(error.starts_with("cannot open http.access_log = "), "{error}");
    }

    /// Takes so many bytes, then is full once.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                self.room = usize::MAX;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.bytes.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_after_one_that_was_cut_begins_anew() {
        let (mut disk, mut is_cut) = (Disk { bytes: Vec::new(), room: 9 }, false);
        write_whole(&mut disk, b"first\nsecond\n", &mut is_cut).unwrap_err();
        write_whole(&mut disk, b"third\n", &mut is_cut).unwrap();
        write_whole(&mut disk, b"fourth\n", &mut is_cut).unwrap();
        assert_eq!(disk.bytes, b"first\nsec\nthird\nfourth\n");
    }
}
