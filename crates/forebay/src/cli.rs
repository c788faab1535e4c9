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
    /// Add, remove and list who may log in by HTTP
    User {
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Certificates for trials
    Cert {
        #[command(subcommand)]
        command: CertCommand,
    },
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
    /// Port of HTTP and WebDAV [default: 8080]
    #[arg(long, value_name = "PORT")]
    pub http_port: Option<u16>,
    /// Serve no HTTP
    #[arg(long, conflicts_with = "http_port")]
    pub no_http: bool,
    /// Port of the first pool; pool N listens N ports above it [default: 20491]
    #[arg(long, value_name = "PORT")]
    pub pool_port: Option<u16>,
    /// Number of pools [default: as many as the data directory has, 1 for a new one]
    #[arg(long, value_name = "N")]
    pub pools: Option<u32>,
    /// Database of the namespace: sqlite, or postgres://user@host/database [default: sqlite, in the data directory]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
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
pub enum UserCommand {
    /// Add a user and print the password
    Add(AddUserArguments),
    /// Give a user a new password and print it
    SetPassword(NamedUserArguments),
    /// Remove a user
    Remove(NamedUserArguments),
    /// List all users
    List {
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
pub struct AddUserArguments {
    #[command(flatten)]
    pub place: Place,
    #[arg(value_name = "NAME")]
    pub name: String,
    /// User id that the files belong to
    #[arg(long, value_name = "UID")]
    pub uid: u32,
    /// Primary group
    #[arg(long, value_name = "GID")]
    pub gid: u32,
    /// Further groups, separated by commas
    #[arg(long, value_name = "GIDS", value_delimiter = ',')]
    pub groups: Vec<u32>,
    /// May see and change the instance: clients, log levels
    #[arg(long)]
    pub admin: bool,
    /// Read the password from the first line of standard input instead of making one
    #[arg(long)]
    pub password_stdin: bool,
}

#[derive(Args)]
pub struct NamedUserArguments {
    #[command(flatten)]
    pub place: Place,
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Read the password from the first line of standard input instead of making one
    #[arg(long)]
    pub password_stdin: bool,
}

#[derive(Subcommand)]
pub enum CertCommand {
    /// Make a certificate that is signed by itself, and its key
    SelfSigned {
        /// Host name or address that clients use; may be given several times
        #[arg(long = "host", value_name = "HOST", required = true)]
        hosts: Vec<String>,
        #[arg(long, value_name = "DAYS", default_value_t = 90)]
        days: u32,
        /// Where certificate.pem and key.pem are written
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
    },
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
