//! `fsck.log` in the data directory: every repair that was ever made, a line of JSON each.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use namespace::RepairLog;
use serde::Serialize;
use types::Clock;

use crate::data_dir::complaint;
use crate::system::SystemClock;

pub const NAME: &str = "fsck.log";

pub struct Log {
    pub path: PathBuf,
    file: BufWriter<File>,
    clock: SystemClock,
}

#[derive(Serialize)]
struct Line<'a> {
    /// Since 1970.
    time_s: i64,
    was: &'a str,
    made: &'a str,
}

impl Log {
    pub fn open(data: &Path) -> Result<Log> {
        let path = data.join(NAME);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(|error| complaint(&path, "open", &error))?;
        // The name is synced too, so that the log is found after a crash.
        durable::sync_directory_of(&path)?;
        Ok(Log { path, file: BufWriter::new(file), clock: SystemClock::new() })
    }
}

impl RepairLog for Log {
    fn note(&mut self, was: &str, made: &str) -> io::Result<()> {
        let line = Line { time_s: self.clock.now().seconds, was, made };
        serde_json::to_writer(&mut self.file, &line)?;
        self.file.write_all(b"\n")
    }

    fn secure(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}
