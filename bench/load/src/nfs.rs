//! Through NFS: one TCP connection, one session, a slot for each creator.
//!
//! `client` decides and holds no socket, `wire` turns its calls and what comes back into bytes and values. Here is the
//! loop around them: what is ready goes out in one write, what has come is taken in one read. One thread, since the
//! server runs on the same cores.

mod client;
mod creators;
pub mod crowd;
pub mod stream;
mod wire;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use clap::{Args, ValueEnum};
use oncrpc::RecordReader;
use serde::Serialize;

use crate::Load;
use crate::report::{Report, cpu_time, rounded};
use client::Client;
use creators::{Limit, Plan};

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    load: Load,
    /// The server's address.
    #[arg(long, default_value = "127.0.0.1:2049")]
    server: String,
    /// The directory to work in; a new one is made there for each run, and stays.
    #[arg(long, default_value = "/")]
    path: String,
    /// The operation of each creator.
    #[arg(long, value_enum, default_value_t = Op::Create)]
    op: Op,
    /// How OPEN creates: Linux says exclusive for O_CREAT|O_EXCL, unchecked for O_CREAT.
    #[arg(long, value_enum, default_value_t = How::Exclusive)]
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// OPEN and CLOSE.
    Create,
    /// CREATE of a directory.
    Mkdir,
    /// OPEN, CLOSE and REMOVE.
    CreateRemove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// EXCLUSIVE4_1.
    Exclusive,
    Guarded,
    Unchecked,
}

/// Longer than any reply should take, also while a disk stalls.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Before a read, while other replies are on their way.
const YIELDS: u32 = 3;
const READ_BYTES: usize = 256 << 10;
const REPLY_BYTES_MAX: usize = 2 << 20;
const FRAGMENTS_MAX: u32 = 64;

pub fn run(arguments: &Arguments) -> Result<Report> {
    let mut stream = TcpStream::connect(&arguments.server)
        .with_context(|| format!("cannot connect to {}", arguments.server))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut client = Client::new(plan(arguments)?);
    let cpu = cpu_time();
    drive(&mut stream, &mut client)?;
    let cpu_us = (cpu_time() - cpu).as_secs_f64() * 1e6;
    let (slots, measured) = client.into_measured().context("the run ended before it began")?;
    let load = &arguments.load;
    if slots < load.creators {
        eprintln!("the server grants {slots} slots: {slots} creators and not {}", load.creators);
    }
    if measured.retries > 0 {
        eprintln!("{} times the server answered DELAY, and was asked again", measured.retries);
    }
    for (what, count) in &measured.errors {
        eprintln!("{count} times {what}");
    }
    let errors = measured.errors.values().sum();
    let creates = measured.latencies.len().max(1);
    Ok(Report::new("b", load, load.creators.min(slots), measured.elapsed, measured.latencies, errors)
        .with("op", serde_json::to_value(arguments.op)?)
        .with("slots", slots)
        .with("retries", measured.retries)
        .with("open_mean_us", rounded(measured.first_reply.as_secs_f64() * 1e6 / creates as f64))
        .with("generator_cpu_us", rounded(cpu_us / creates as f64)))
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let load = &arguments.load;
    if !load.seconds.is_finite() || load.seconds <= 0.0 {
        bail!("--seconds {} is no length of time", load.seconds);
    }
    Ok(Plan {
        creators: load.creators,
        directories: load.directory,
        limit: match load.count {
            Some(count) => Limit::Count(count),
            None => Limit::Time(Duration::from_secs_f64(load.seconds)),
        },
        op: arguments.op,
        how: arguments.how,
        path: components(&arguments.path),
        nonce: nonce()?,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        waits: false,
        is_counted: false,
    })
}

fn components(path: &str) -> Vec<String> {
    path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Tells this run from any other: the client's name, its boot, and the directory are made of it.
fn nonce() -> Result<u64> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
    Ok(since_1970.as_nanos() as u64)
}

/// Reads bytes that come before `due`, if a time is given; `None`: nothing came by then.
fn read_until(stream: &mut TcpStream, chunk: &mut [u8], due: Option<Instant>) -> Result<Option<usize>> {
    if let Some(due) = due {
        // Zero would mean for ever.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left.min(REPLY_TIMEOUT)))?;
    }
    let read = stream.read(chunk);
    if due.is_some() {
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    }
    match read {
        Ok(0) => bail!("the server has closed the connection"),
        Ok(len) => Ok(Some(len)),
        Err(error)
            if due.is_some() && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).context("cannot read from the server"),
    }
}

fn drive(stream: &mut TcpStream, client: &mut Client) -> Result<()> {
    let began = Instant::now();
    let mut records = RecordReader::new(REPLY_BYTES_MAX, FRAGMENTS_MAX);
    let mut chunk = vec![0; READ_BYTES];
    let mut buffer = BytesMut::new();
    client.start();
    while !client.is_done() {
        client.wake(began.elapsed());
        let calls = client.calls();
        stream.write_all(&calls).context("cannot send to the server")?;
        // The server gets the core first: its replies come in fewer reads then, and each costs more than the rest of this.
        if client.under_way() > 1 {
            (0..YIELDS).for_each(|_| std::thread::yield_now());
        }
        let Some(len) = read_until(stream, &mut chunk, client.next_due().map(|due| began + due))? else {
            continue;
        };
        buffer.extend_from_slice(&chunk[..len]);
        let now = began.elapsed();
        while let Some(record) = records.feed(&mut buffer)? {
            client.reply(record, now)?;
        }
    }
    Ok(())
}
