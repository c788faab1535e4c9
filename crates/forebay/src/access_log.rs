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
use std::time::Duration;

use anyhow::{Context, Result};
use http_server::{Exchange, ExchangeLog};
use parking_lot::{Condvar, Mutex};
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
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    left_out: u64,
    is_reopened: bool,
    is_closed: bool,
}

/// The thread that writes; joined when dropped, after the last line.
pub struct AccessLogWriter {
    log: Arc<AccessLog>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the file, so that a mistake is told at the start.
    pub fn start(path: &Path, clock: Arc<dyn Clock>) -> Result<AccessLogWriter> {
        let file = open(path).with_context(|| format!("cannot open http.access_log = {}", path.display()))?;
        let log = Arc::new(AccessLog {
            clock,
            path: path.to_owned(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
        });
        let writing = Arc::clone(&log);
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        let thread = thread.spawn(move || writing.write_all(file)).context("cannot start a thread")?;
        Ok(AccessLogWriter { log, thread: Some(thread) })
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
        let mut lines = Vec::new();
        loop {
            let (left_out, is_reopened, is_closed) = self.take(&mut lines);
            if left_out > 0 {
                tracing::warn!(left_out, path = %self.path.display(), "access log cannot keep up: requests are missing in it");
            }
            if let Err(error) = file.write_all(&lines) {
                let count = lines.iter().filter(|byte| **byte == b'\n').count();
                tracing::error!(path = %self.path.display(), %error, lines = count, "cannot write the access log");
            }
            if is_reopened {
                match open(&self.path) {
                    Ok(fresh) => file = fresh,
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

impl AccessLogWriter {
    pub fn log(&self) -> Arc<AccessLog> {
        Arc::clone(&self.log)
    }
}

impl ExchangeLog for AccessLog {
    fn ended(&self, exchange: &Exchange, took: Duration) {
        self.put(line::of(exchange, self.clock.now(), took).as_bytes());
    }
}

impl Drop for AccessLogWriter {
    fn drop(&mut self) {
        self.log.waiting.lock().is_closed = true;
        self.log.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, the panic hook has reported it.
            let _ = thread.join();
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SystemClock;

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
        drop(writer);
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
}
