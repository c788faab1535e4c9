//! Many clients at once: a TCP connection, a session and slots for each, all on one thread.
//!
//! They begin to create together, once the last of them has its session. Afterwards each counts the names in its
//! directory: what was acknowledged and is not there is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use clap::Args;
use oncrpc::RecordReader;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::Client;
use super::creators::{Limit, Measured, Plan};
use super::{FRAGMENTS_MAX, How, Op, READ_BYTES, REPLY_BYTES_MAX, REPLY_TIMEOUT, components, nonce};
use crate::Directories;
use crate::report::{Latencies, Summary, cpu_time, rounded};

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// How many clients.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Slots, and so creators, of each.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// How long to create.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The server's address.
    #[arg(long, default_value = "127.0.0.1:2049")]
    server: String,
    /// The directory to work in; a new one is made there for each client, and stays.
    #[arg(long, default_value = "/")]
    path: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    clients: u32,
    /// Slots granted to all clients together.
    slots: u32,
    /// From the first connection until all had their sessions and directories.
    setup_seconds: f64,
    /// From the first create to the end of the last.
    seconds: f64,
    creates: u64,
    rate: f64,
    #[serde(flatten)]
    latencies: Summary,
    /// Creates that failed, by what failed.
    errors: BTreeMap<String, u64>,
    /// Calls that were made once more because the answer was DELAY.
    retries: u64,
    /// Creates that were acknowledged and have no name afterwards.
    lost: u64,
    generator_cpu_us: f64,
}

/// Measurements of one client.
struct Found {
    slots: u32,
    measured: Measured,
}

pub fn run(arguments: &Arguments) -> Result<Report> {
    if !arguments.seconds.is_finite() || arguments.seconds <= 0.0 {
        bail!("--seconds {} is no length of time", arguments.seconds);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(all(arguments))
}

async fn all(arguments: &Arguments) -> Result<Report> {
    let (began, cpu) = (Instant::now(), cpu_time());
    let everybody = Arc::new(Barrier::new(arguments.clients as usize + 1));
    let first = nonce()?;
    let mut clients = JoinSet::new();
    for number in 0..arguments.clients {
        let plan = plan(arguments, first.wrapping_add(u64::from(number)));
        let (server, everybody) = (arguments.server.clone(), Arc::clone(&everybody));
        clients.spawn(async move { one(&server, Client::new(plan), began, &everybody).await });
    }
    tokio::select! {
        _ = everybody.wait() => {}
        // A client that fails does not come to the barrier.
        Some(ended) = clients.join_next() => { ended??; bail!("a client ended before it began") }
    }
    let setup_seconds = rounded(began.elapsed().as_secs_f64());
    let mut found = Vec::new();
    while let Some(ended) = clients.join_next().await {
        found.push(ended??);
    }
    let cpu = cpu_time() - cpu;
    Ok(summarise(arguments.clients, setup_seconds, cpu, found))
}

fn summarise(clients: u32, setup_seconds: f64, cpu: Duration, found: Vec<Found>) -> Report {
    let mut latencies = Latencies::default();
    let (mut slots, mut lost, mut retries, mut elapsed) = (0, 0, 0, Duration::ZERO);
    let mut errors = BTreeMap::new();
    for Found { slots: granted, measured } in found {
        slots += granted;
        lost += (measured.latencies.len() as u64).saturating_sub(measured.names.unwrap_or(0));
        retries += measured.retries;
        elapsed = elapsed.max(measured.elapsed);
        measured.errors.into_iter().for_each(|(what, count)| *errors.entry(what).or_default() += count);
        latencies.append(measured.latencies);
    }
    let creates = latencies.len() as u64;
    Report {
        clients,
        slots,
        setup_seconds,
        seconds: rounded(elapsed.as_secs_f64()),
        creates,
        rate: rounded(creates as f64 / elapsed.as_secs_f64().max(1e-9)),
        latencies: latencies.summary(),
        errors,
        retries,
        lost,
        generator_cpu_us: rounded(cpu.as_secs_f64() * 1e6 / creates.max(1) as f64),
    }
}

fn plan(arguments: &Arguments, nonce: u64) -> Plan {
    Plan {
        creators: arguments.slots,
        directories: Directories::Shared,
        limit: Limit::Time(Duration::from_secs_f64(arguments.seconds)),
        op: Op::Create,
        how: How::Exclusive,
        path: components(&arguments.path),
        nonce,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        waits: true,
        is_counted: true,
    }
}

async fn one(server: &str, mut client: Client, began: Instant, everybody: &Barrier) -> Result<Found> {
    let mut stream =
        TcpStream::connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
    stream.set_nodelay(true)?;
    let mut records = RecordReader::new(REPLY_BYTES_MAX, FRAGMENTS_MAX);
    let mut buffer = BytesMut::new();
    client.start();
    while !client.is_done() {
        if client.is_ready() {
            everybody.wait().await;
            client.begin(began.elapsed());
        }
        client.wake(began.elapsed());
        stream.write_all(&client.calls()).await.context("cannot send to the server")?;
        buffer.reserve(READ_BYTES / 16);
        let due = client.next_due().map(|due| due.saturating_sub(began.elapsed()));
        match timeout(due.unwrap_or(REPLY_TIMEOUT), stream.read_buf(&mut buffer)).await {
            Ok(read) => {
                if read.context("cannot read from the server")? == 0 {
                    bail!("the server has closed the connection");
                }
            }
            // A delayed call is due again.
            Err(_) if due.is_some() => continue,
            Err(_) => bail!("no reply for a minute"),
        }
        let now = began.elapsed();
        while let Some(record) = records.feed(&mut buffer)? {
            client.reply(record, now)?;
        }
    }
    let (slots, measured) = client.into_measured().context("the run ended before it began")?;
    Ok(Found { slots, measured })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(creates: u64, names: u64, errors: &[(&str, u64)]) -> Found {
        let mut measured = Measured { names: Some(names), ..Measured::default() };
        (0..creates).for_each(|us| measured.latencies.add(Duration::from_micros(us)));
        measured.errors = errors.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect();
        measured.elapsed = Duration::from_secs(creates);
        measured.retries = 5;
        Found { slots: 64, measured }
    }

    #[test]
    fn surplus_names_of_one_client_do_not_hide_lost_names_of_another() {
        let found = vec![
            found(10, 12, &[("OPEN answers NFS4ERR_NOSPC", 2)]),
            found(20, 17, &[("OPEN answers NFS4ERR_NOSPC", 1)]),
        ];
        let report = summarise(2, 0.5, Duration::ZERO, found);
        assert_eq!((report.creates, report.lost, report.slots), (30, 3, 128));
        assert_eq!((report.errors.get("OPEN answers NFS4ERR_NOSPC"), report.retries), (Some(&3), 10));
        assert_eq!((report.seconds, report.rate), (20.0, 1.5));
    }
}
