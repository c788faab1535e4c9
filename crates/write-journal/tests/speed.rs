//! A measurement: stable writes of 4 KiB a second and their CPU, by the number of writers.
//!
//! The bound of the journal is the disk's own sequential sync: one thread that writes 4 KiB and syncs in a loop. Beside it
//! stand new small files, each with a sync of its own, which the journal is to replace.
//! `cargo test --release -p forebay-write-journal --test speed -- --ignored --nocapture`, with `TMPDIR` on the disk.

#![allow(clippy::unwrap_used)]

mod journals;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use forebay_write_journal::{Config, Journal, JournalError, Record, Turn};
use journals::start;
use rustix::time::{ClockId, clock_gettime};
use types::FileId;

const PAYLOAD_BYTES: usize = 4096;
const RUN_TIME: Duration = Duration::from_secs(2);

/// `lead`: runs a turn, or has it run.
fn write(journal: &Arc<Journal>, file: u64, lead: &dyn Fn(Turn)) {
    let bytes = [5; PAYLOAD_BYTES];
    let record = Record::Write { file: FileId(file), birth: 1, epoch: 0, offset: 0, bytes: &bytes };
    let (tell, told) = mpsc::channel();
    let teller = tell.clone();
    match journal.append(&record, Box::new(move |outcome| drop(teller.send(outcome)))) {
        Ok(appended) => appended.turn.into_iter().for_each(lead),
        Err(refused) => {
            assert!(matches!(refused.reason, JournalError::Full), "{}", refused.reason);
            for unsettled in journal.oldest_unsettled(usize::MAX) {
                journal.settled(unsettled.file, unsettled.newest);
            }
            journal.barrier(Box::new(move |outcome| drop(tell.send(outcome)))).into_iter().for_each(lead);
        }
    }
    told.recv().unwrap().unwrap();
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Runs `write` in a loop on each of `writers` threads and prints a line.
fn measure(name: &str, writers: u64, write: impl Fn(u64, u64) + Sync) {
    let (start, cpu_before, count) = (Instant::now(), cpu(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (write, count) = (&write, &count);
            scope.spawn(move || {
                for index in 0.. {
                    if start.elapsed() >= RUN_TIME {
                        break;
                    }
                    write(writer, index);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (count, elapsed) = (count.into_inner(), start.elapsed());
    let rate = count as f64 / elapsed.as_secs_f64();
    let cpu_us = (cpu() - cpu_before).as_secs_f64() * 1e6 / count as f64;
    println!("{name:<28} {writers:>3} writers  {rate:>8.0} /s  {cpu_us:>6.1} us CPU each");
}

#[test]
#[ignore = "a measurement"]
fn appends_of_many_writers() {
    let dir = tempfile::tempdir().unwrap();
    let raw = File::create(dir.path().join("raw")).unwrap();
    raw.write_all_at(&vec![0; 64 << 20], 0).unwrap();
    raw.sync_all().unwrap();
    measure("bound: write and sync", 1, |_, index| {
        raw.write_all_at(&[7; PAYLOAD_BYTES], index % 16384 * PAYLOAD_BYTES as u64).unwrap();
        raw.sync_data().unwrap();
    });
    for writers in [1, 4, 16, 64] {
        let files = tempfile::tempdir_in(dir.path()).unwrap();
        measure("a new file and its sync", writers, |writer, index| {
            let file = File::create(files.path().join(format!("{writer}-{index}"))).unwrap();
            file.write_all_at(&[7; PAYLOAD_BYTES], 0).unwrap();
            file.sync_data().unwrap();
        });
    }
    let journal = start(&dir.path().join("journal"), Config::default());
    for writers in [1, 4, 16, 64] {
        measure("journal, a writer leads", writers, |writer, _| write(&journal, writer, &Turn::lead));
    }
    let (turns, to_lead) = mpsc::channel::<Turn>();
    let thread = std::thread::spawn(move || to_lead.into_iter().for_each(Turn::lead));
    for writers in [1, 4, 16, 64] {
        let lead = |turn| turns.send(turn).unwrap();
        measure("journal, a thread leads", writers, |writer, _| write(&journal, writer, &lead));
    }
    drop(turns);
    thread.join().unwrap();
}
