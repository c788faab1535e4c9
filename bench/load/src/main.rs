//! `forebay-load`: creates, reads or writes as fast as they go, and how long each took, as one line of JSON.
//!
//! `nfs`, `crowd`, `stream` and `files` speak NFSv4.1 to a server, `engine` opens a pool, `namespace` calls the crate of that
//! name, `sendfile` is the bound of `stream`. The drivers that start servers, take medians and draw are `bench/create`, `bench/engine` and their
//! modules.

mod alone;
mod blocks;
mod contents;
mod engine;
mod nfs;
mod report;
mod sendfile;
mod spread;
mod table;
mod throughput;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

#[derive(Parser)]
#[command(
    name = "forebay-load",
    about = "Creates, reads or writes as fast as they go; prints one line of JSON."
)]
struct Cli {
    #[command(subcommand)]
    level: Level,
}

#[derive(Subcommand)]
enum Level {
    /// Through NFS: one TCP connection, one session, a slot for each creator.
    Nfs(nfs::Arguments),
    /// Many clients at once through NFS: a connection, a session and slots for each; what they made is counted afterwards.
    Crowd(nfs::crowd::Arguments),
    /// READ or WRITE through NFS: a connection, a session and a file for each stream.
    Stream(nfs::stream::Arguments),
    /// Many files through NFS, one after the other on each stream: written, read or removed.
    Files(nfs::stream::files::Arguments),
    /// The bound of READ: a bare sendfile loop over loopback TCP.
    Sendfile(sendfile::Arguments),
    /// The pool's I/O engine alone, in this process: reads or writes of replicas, and the sync of these.
    Engine(alone::Arguments),
    /// The namespace crate alone, without any network.
    Namespace(engine::Arguments),
    /// How long each operation takes in a large namespace that was imported.
    Table(table::Arguments),
}

/// Arguments of every level that creates.
#[derive(Args, Clone, Debug)]
pub struct Load {
    /// How many create at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    creators: u32,
    /// Whether all create in one directory or each in its own.
    #[arg(long, value_enum, default_value_t = Directories::Shared)]
    directory: Directories,
    /// How long to create.
    #[arg(long, default_value_t = 3.0, conflicts_with = "count")]
    seconds: f64,
    /// How many to create, in place of a time.
    #[arg(long)]
    count: Option<u64>,
    /// The name of the server's durability in the output; it sets nothing.
    #[arg(long, default_value = "")]
    mode: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Directories {
    Shared,
    Own,
}

fn main() -> Result<()> {
    let report = match Cli::parse().level {
        Level::Nfs(arguments) => serde_json::to_value(nfs::run(&arguments)?)?,
        Level::Crowd(arguments) => serde_json::to_value(nfs::crowd::run(&arguments)?)?,
        Level::Stream(arguments) => serde_json::to_value(nfs::stream::run(&arguments)?)?,
        Level::Files(arguments) => serde_json::to_value(nfs::stream::files::run(&arguments)?)?,
        Level::Sendfile(arguments) => serde_json::to_value(sendfile::run(&arguments)?)?,
        Level::Engine(arguments) => serde_json::to_value(alone::run(&arguments)?)?,
        Level::Namespace(arguments) => serde_json::to_value(engine::run(&arguments)?)?,
        Level::Table(arguments) => table::run(&arguments)?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
