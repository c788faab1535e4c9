//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "forebay", version, about = "One POSIX namespace over many data servers")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a head and its pools in this process
    Up(UpArguments),
    /// Ask the running process how it is
    Status(StatusArguments),
    /// Compare the namespace with itself and with the pools
    Fsck(FsckArguments),
    /// Explain or check the configuration file
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Args, Default)]
pub struct UpArguments {
    /// Where everything is kept [default: ./forebay-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address to listen on; anything but loopback squashes root [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<IpAddr>,
    /// Port of the head [default: 2049 as root, else 20490]
    #[arg(long, value_name = "PORT")]
    pub nfs_port: Option<u16>,
    /// Port of the first pool; pool N listens N ports above it [default: 20491]
    #[arg(long, value_name = "PORT")]
    pub pool_port: Option<u16>,
    /// Number of pools [default: as many as the data directory has, 1 for a new one]
    #[arg(long, value_name = "N")]
    pub pools: Option<u32>,
    /// Let root of the client hosts be root here, also beyond loopback
    #[arg(long)]
    pub no_root_squash: bool,
    /// Configuration file (TOML); options given here win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args)]
pub struct StatusArguments {
    #[command(flatten)]
    pub place: Place,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct FsckArguments {
    #[command(flatten)]
    pub place: Place,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How the commands that talk to a running process find it.
#[derive(Args)]
pub struct Place {
    /// Data directory of the instance [default: ./forebay-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Configuration file that names the data directory
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Print every key with its default, unit and meaning
    Reference,
    /// Say whether a file is a valid configuration
    Check {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
