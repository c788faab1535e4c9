//! The journal on real file systems: many writers at once, and a process that is killed while it appends.

#![allow(clippy::unwrap_used)]

mod journals;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};

use forebay_write_journal::{Config, Journal, JournalError, Record};
use journals::{open, start};
use tempfile::TempDir;
use types::FileId;

const PAYLOAD_BYTES: usize = 1000;

fn config() -> Config {
    Config {
        segments: 5,
        segment_bytes: 256 << 10,
        payload_bytes_max: 64 << 10,
        files_max: 1000,
        ..Config::default()
    }
}

/// Appends and leads if asked to. Returns when the record is on disk.
fn write(journal: &Arc<Journal>, file: u64, value: u8) -> Result<u64, JournalError> {
    let bytes = [value; PAYLOAD_BYTES];
    let record = Record::Write { file: FileId(file), birth: 1, epoch: 0, offset: 0, bytes: &bytes };
    let (tell, told) = mpsc::channel();
    let waiter = Box::new(move |outcome| drop(tell.send(outcome)));
    let appended = journal.append(&record, waiter).map_err(|refused| refused.reason)?;
    if let Some(turn) = appended.turn {
        turn.lead();
    }
    told.recv().unwrap()?;
    Ok(appended.sequence)
}

/// On the disk of the system, and in memory where there is such a file system.
fn places() -> Vec<TempDir> {
    let memory = Path::new("/dev/shm");
    let mut places = vec![tempfile::tempdir().unwrap()];
    places.extend(memory.is_dir().then(|| tempfile::tempdir_in(memory).ok()).flatten());
    places
}

#[test]
fn records_of_many_writers_are_replayed_in_order_and_once() {
    for place in places() {
        let path = place.path().join("journal");
        let journal = start(&path, config());
        std::thread::scope(|scope| {
            for file in 0..8 {
                let journal = &journal;
                scope.spawn(move || (0..40).all(|value| write(journal, file, value).is_ok()));
            }
        });
        drop(journal);
        let mut found = BTreeMap::<u64, Vec<u8>>::new();
        for (index, entry) in open(&path).enumerate() {
            let entry = entry.unwrap();
            assert_eq!(entry.sequence, index as u64 + 1);
            let Record::Write { file, bytes, .. } = entry.record() else { panic!("only writes") };
            assert_eq!(bytes.len(), PAYLOAD_BYTES);
            found.entry(file.0).or_default().push(bytes[0]);
        }
        assert_eq!(found.len(), 8);
        assert!(found.values().all(|values| values.iter().copied().eq(0..40)));
    }
}

/// A line of the child: a record was told to be on disk, or is about to be settled.
enum Report {
    Acknowledged { sequence: u64, file: u64, value: u8 },
    Settles { file: u64, through: u64 },
}

impl Report {
    fn parse(line: &str) -> Option<Report> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse().ok();
        match kind {
            "acknowledged" => Some(Report::Acknowledged {
                sequence: number()?,
                file: number()?,
                value: number()?.try_into().ok()?,
            }),
            "settles" => Some(Report::Settles { file: number()?, through: number()? }),
            _ => None,
        }
    }
}

const PATH_VARIABLE: &str = "JOURNAL_OF_THE_APPENDER";

#[test]
#[ignore = "the child of the test below"]
fn appender() {
    let journal = start(&PathBuf::from(std::env::var_os(PATH_VARIABLE).unwrap()), config());
    let report = |line: String| std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    std::thread::scope(|scope| {
        for file in 1..=4u64 {
            let journal = &journal;
            scope.spawn(move || {
                for value in (0..=250).cycle() {
                    match write(journal, file, value) {
                        Ok(sequence) => report(format!("acknowledged {sequence} {file} {value}\n")),
                        Err(JournalError::Full) => {
                            if let Some(through) = journal.newest(FileId(file)) {
                                report(format!("settles {file} {through}\n"));
                                journal.settled(FileId(file), through);
                            }
                            if let Some(turn) = journal.barrier(Box::new(|_| {})) {
                                turn.lead();
                            }
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}

fn reports_until_killed(path: &Path, count: usize) -> Vec<Report> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "appender", "--ignored", "--nocapture"])
        .env(PATH_VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut reports: Vec<Report> = lines
        .by_ref()
        .map(|line| line.unwrap())
        .filter_map(|line| Report::parse(&line))
        .take(count)
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    // Lines that were in the pipe. Each was one write of less than PIPE_BUF, so none is cut.
    let rest = lines.map(|line| line.unwrap()).filter_map(|line| Report::parse(&line));
    reports.extend(rest);
    reports
}

#[test]
fn a_killed_process_leaves_every_record_that_it_acknowledged() {
    for place in places() {
        let path = place.path().join("journal");
        for count in [1, 50, 700, 1900, 3000] {
            let reports = reports_until_killed(&path, count);
            assert!(reports.len() >= count, "the child appended");
            let replay = open(&path);
            assert!(replay.summary().dropped.is_none_or(|dropped| !dropped.is_damage));
            let entries = replay.map(|entry| entry.unwrap()).map(|entry| (entry.sequence, entry));
            let entries: BTreeMap<u64, _> = entries.collect();
            let mut settled = BTreeMap::new();
            for report in &reports {
                if let Report::Settles { file, through } = report {
                    settled.insert(*file, *through);
                }
            }
            for report in &reports {
                let Report::Acknowledged { sequence, file, value } = report else { continue };
                if settled.get(file).is_some_and(|through| sequence <= through) {
                    continue;
                }
                let entry = entries.get(sequence).unwrap_or_else(|| panic!("record {sequence} is lost"));
                let Record::Write { file: found, bytes, .. } = entry.record() else { panic!("only writes") };
                assert_eq!((found.0, bytes), (*file, &[*value; PAYLOAD_BYTES][..]));
            }
        }
    }
}
