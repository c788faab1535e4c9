//! The physical bound of READ: a bare `sendfile` loop over loopback TCP, without any protocol.
//!
//! Each file has a connection of its own. The other end reads into one buffer and throws the bytes away, as `stream`
//! does, so that both pay the same for what arrives.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde::Serialize;

use crate::blocks::{Blocks, Extent, Limit, Pattern, Positions};
use crate::report::{cpu_time, rounded, thread_cpu_time};
use crate::throughput::{Measured, RECEIVE_BYTES, Throughput};

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The file to send; repeated, each by a connection of its own.
    #[arg(long, required = true)]
    file: Vec<PathBuf>,
    #[command(flatten)]
    blocks: Blocks,
}

#[derive(Debug, Serialize)]
pub struct Report {
    block: u32,
    pattern: Pattern,
    #[serde(flatten)]
    throughput: Throughput,
    /// CPU of the sending halves: what a server that did nothing else would use.
    sender_cpu_s: f64,
}

pub fn run(arguments: &Arguments) -> Result<Report> {
    let mut senders = Vec::new();
    for (number, path) in arguments.file.iter().enumerate() {
        senders.push(Sender::open(path, &arguments.blocks, number as u64)?);
    }
    let (cpu, began) = (cpu_time(), Instant::now());
    let running: Vec<_> =
        senders.into_iter().map(|sender| thread::spawn(move || sender.run(began))).collect();
    let (mut measured, mut sender_cpu) = (Vec::new(), Duration::ZERO);
    for thread in running {
        let (each, cpu) = thread.join().map_err(|_| anyhow!("a sender has panicked"))??;
        measured.push(each);
        sender_cpu += cpu;
    }
    let cpu = cpu_time() - cpu;
    let (throughput, _) = Throughput::of(measured, cpu);
    let (block, pattern) = (arguments.blocks.block(), arguments.blocks.pattern());
    Ok(Report { block, pattern, throughput, sender_cpu_s: rounded(sender_cpu.as_secs_f64()) })
}

struct Sender {
    file: File,
    positions: Positions,
    limit: Limit,
}

impl Sender {
    fn open(path: &Path, blocks: &Blocks, seed: u64) -> Result<Sender> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let end = file.metadata()?.len();
        let positions = blocks.positions(end, seed).with_context(|| path.display().to_string())?;
        let limit = blocks.limit(&positions)?;
        Ok(Sender { file, positions, limit })
    }

    /// Sends until the limit is reached and all has arrived; answers the CPU of sending as well.
    fn run(self, began: Instant) -> Result<(Measured, Duration)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let receiver = thread::spawn(move || drain(TcpStream::connect(address)?));
        let (socket, _) = listener.accept()?;
        let sent = self.send_all(socket, began);
        let cpu = thread_cpu_time();
        let received = receiver.join().map_err(|_| anyhow!("a receiver has panicked"))??;
        let mut measured = sent?;
        if received != measured.bytes {
            bail!("{} bytes were sent and {received} arrived", measured.bytes);
        }
        measured.elapsed = began.elapsed();
        Ok((measured, cpu))
    }

    /// Closes the socket in the end, which ends the receiver.
    fn send_all(mut self, socket: TcpStream, began: Instant) -> Result<Measured> {
        socket.set_nodelay(true)?;
        let mut measured = Measured::default();
        loop {
            let at = Instant::now();
            let is_over = match self.limit {
                Limit::Bytes(bytes) => measured.bytes >= bytes,
                Limit::Time(time) => at.duration_since(began) >= time,
            };
            if is_over {
                return Ok(measured);
            }
            let Some(extent) = self.positions.next_in_pass() else {
                self.positions.rewind();
                continue;
            };
            self.send(&socket, extent)?;
            measured.bytes += u64::from(extent.len);
            measured.latencies.add(at.elapsed());
        }
    }

    fn send(&self, socket: &TcpStream, extent: Extent) -> Result<()> {
        let mut offset = extent.offset;
        let end = extent.offset + u64::from(extent.len);
        while offset < end {
            let left = (end - offset) as usize;
            if rustix::fs::sendfile(socket, &self.file, Some(&mut offset), left)? == 0 {
                bail!("the file ends at {offset}");
            }
        }
        Ok(())
    }
}

/// Bytes until the other end closes.
fn drain(mut socket: TcpStream) -> Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; RECEIVE_BYTES], 0);
    loop {
        match socket.read(&mut buffer)? {
            0 => return Ok(bytes),
            len => bytes += len as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn run_with(files: &[&Path], more: &[&str]) -> Result<serde_json::Value> {
        let mut argv = vec!["sendfile".into()];
        for file in files {
            argv.extend(["--file".into(), file.as_os_str().to_owned()]);
        }
        argv.extend(more.iter().map(Into::into));
        Ok(serde_json::to_value(run(&Cli::try_parse_from(argv)?.arguments)?)?)
    }

    #[test]
    fn every_file_arrives_whole_by_a_connection_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (long, short) = (dir.path().join("long"), dir.path().join("short"));
        std::fs::write(&long, vec![1; 3_000_000]).unwrap();
        std::fs::write(&short, vec![2; 10]).unwrap();
        let report = run_with(&[&long, &short], &[]).unwrap();
        assert_eq!((&report["bytes"], &report["streams"]), (&3_000_010.into(), &2.into()));
        assert_eq!(report["operations"], 4, "three blocks of 1 MiB and one of 10 bytes");
    }

    #[test]
    fn passes_repeat_until_as_many_bytes_are_sent_as_were_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, vec![1; 1000]).unwrap();
        let report =
            run_with(&[&file], &["--bytes", "2500", "--block", "100", "--pattern", "random"]).unwrap();
        assert_eq!((&report["bytes"], &report["operations"]), (&2500.into(), &25.into()));
    }

    #[test]
    fn an_empty_file_cannot_be_sent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("empty");
        std::fs::write(&file, b"").unwrap();
        let error = run_with(&[&file], &[]).unwrap_err();
        assert!(format!("{error:#}").contains("not before the end of the file at 0"), "{error:#}");
    }
}
