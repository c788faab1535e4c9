//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::import::{AdoptArguments, ImportArguments};

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
    /// Set and show the consistency of directories
    Dir {
        #[command(subcommand)]
        command: DirCommand,
    },
    /// Which pools get files and clients
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// The keys that clients' tickets to pools are sealed with
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// How much users, groups and directory trees may have
    Quota {
        #[command(subcommand)]
        command: QuotaCommand,
    },
    /// Count files and bytes below a directory, without walking it
    Du(DuArguments),
    /// Move, save, restore and migrate the database of names
    Namespace {
        #[command(subcommand)]
        command: NamespaceCommand,
    },
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
    /// Write man pages and shell completions
    Generate {
        #[command(subcommand)]
        command: GenerateCommand,
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
    pub place: InstanceArguments,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct FsckArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Database of the namespace: sqlite, or postgres://user@host/database [default: as the configuration says]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Mend what is wrong, asking for each kind of problem; the instance must be stopped
    #[arg(long)]
    pub repair: bool,
    /// With --repair: do not ask; what gives up data is left
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// With --repair: also give up data that no pool has any more
    #[arg(long, requires = "repair")]
    pub give_up_lost_data: bool,
    /// With --repair: delete replicas of no file instead of putting them into /lost+found
    #[arg(long, requires = "repair")]
    pub delete_unknown_replicas: bool,
}

/// How the commands that talk to a running process find it.
#[derive(Args)]
pub struct InstanceArguments {
    /// Data directory of the instance [default: ./forebay-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Configuration file that names the data directory
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum DirCommand {
    /// Say how soon a directory's own attributes follow its entries
    SetConsistency(SetConsistencyArguments),
    /// Tell what is set for a directory
    Show(ShowDirArguments),
}

#[derive(Args)]
pub struct SetConsistencyArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Directory, from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    #[arg(value_name = "MODE")]
    pub mode: ConsistencyArgument,
    /// Also of all directories below it
    #[arg(long)]
    pub recursive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsistencyArgument {
    /// Written together with the entries
    Strong,
    /// Written later; readers see old attributes for a moment
    Weak,
    /// Written later; readers see the new ones
    Soft,
    /// Strong, or soft where that is cheaper
    Auto,
    /// As namespace.consistency says
    Inherit,
}

#[derive(Args)]
pub struct ShowDirArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Directory, from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum PoolCommand {
    /// All pools and whether they get files and clients
    List {
        #[command(flatten)]
        place: InstanceArguments,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a pool no new files and send no client there; its files are read and written through the head
    Drain(PoolArguments),
    /// Take a drained pool into use again
    Enable(PoolArguments),
}

#[derive(Args)]
pub struct PoolArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// pool-0, pool-1, …
    #[arg(value_name = "POOL")]
    pub pool: String,
}

#[derive(Subcommand)]
pub enum KeysCommand {
    /// Seal with new keys from now on; tickets of the keys before are accepted for keys.overlap_s more, and older ones not
    Renew {
        #[command(flatten)]
        place: InstanceArguments,
    },
}

#[derive(Subcommand)]
pub enum QuotaCommand {
    /// Give an account limits, or other ones
    Set {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        whose: WhoseArguments,
        #[command(flatten)]
        limits: LimitArguments,
    },
    /// Show the usage and limits of an account
    Show {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        whose: WhoseArguments,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// All accounts with a quota
    List {
        #[command(flatten)]
        place: InstanceArguments,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take all limits of an account away
    Remove {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        whose: WhoseArguments,
    },
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct WhoseArguments {
    /// Number, or name that this host knows, of who owns the files
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Likewise, of the files' group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Directory, from the root of the namespace: everything below it
    #[arg(long, value_name = "PATH")]
    pub tree: Option<String>,
}

/// Limits that are not given stay; 0 takes one away.
#[derive(Args)]
pub struct LimitArguments {
    /// May be passed for namespace.quota_grace_days; 10G is ten times 2³⁰
    #[arg(long, value_name = "SIZE")]
    pub bytes_soft: Option<String>,
    #[arg(long, value_name = "SIZE")]
    pub bytes_hard: Option<String>,
    /// Files and directories together
    #[arg(long, value_name = "N")]
    pub files_soft: Option<String>,
    #[arg(long, value_name = "N")]
    pub files_hard: Option<String>,
}

#[derive(Args)]
pub struct DuArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Directory, from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Also of directories so many levels below it
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub depth: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum NamespaceCommand {
    /// Copy a namespace that no head has open to another place or engine
    Copy(CopyArguments),
    /// Save a namespace into one file, also while a head runs
    Backup(BackupArguments),
    /// Put a saved namespace into a place where there is none
    Restore(RestoreArguments),
    /// Bring the schema up to this program's version, as the next start would
    Migrate(MigrateArguments),
    /// Make a namespace out of a listing, without data
    Import(ImportArguments),
    /// Make a namespace and a pool out of an existing tree, without copying data
    Adopt(AdoptArguments),
    /// Build a lost namespace anew from what the pools have
    Rebuild(RebuildArguments),
    /// Tell the pools now what their files are called, for a rebuild
    Describe {
        #[command(flatten)]
        place: InstanceArguments,
    },
}

#[derive(Args)]
pub struct CopyArguments {
    /// A data directory, sqlite:DIR or postgres://user@host/database
    #[arg(long, value_name = "PLACE")]
    pub from: String,
    /// Likewise; there must be no namespace in it
    #[arg(long, value_name = "PLACE")]
    pub to: String,
    /// Data directory that has its namespace in the copy from then on; what it had is kept beside it
    #[arg(long, value_name = "DIR")]
    pub switch: Option<PathBuf>,
    /// Remove what an earlier attempt has copied
    #[arg(long)]
    pub start_over: bool,
}

#[derive(Args)]
pub struct BackupArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// sqlite:DIR or postgres://user@host/database [default: that of the data directory]
    #[arg(long, value_name = "PLACE")]
    pub from: Option<String>,
    /// File to be made
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

#[derive(Args)]
pub struct RestoreArguments {
    /// File that `forebay namespace backup` made
    #[arg(long, value_name = "FILE", required_unless_present = "in_place")]
    pub from: Option<PathBuf>,
    /// Take the namespace that is there as if it had been saved and restored, though it lacks what came later
    #[arg(long, conflicts_with_all = ["from", "start_over"])]
    pub in_place: bool,
    /// A data directory, sqlite:DIR or postgres://user@host/database; with --from there must be no namespace in it
    #[arg(long, value_name = "PLACE")]
    pub to: String,
    /// Remove what an earlier attempt has restored
    #[arg(long)]
    pub start_over: bool,
}

#[derive(Args)]
pub struct MigrateArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// sqlite:DIR, file:FILE (a backup) or postgres://user@host/database [default: that of the data directory]
    #[arg(long, value_name = "PLACE")]
    pub at: Option<String>,
    /// Say what would be done and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args)]
pub struct RebuildArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Database of the namespace: sqlite, or postgres://user@host/database [default: as the configuration says]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
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
        place: InstanceArguments,
    },
}

#[derive(Args)]
pub struct AddUserArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
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
    pub place: InstanceArguments,
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

#[derive(Subcommand)]
pub enum GenerateCommand {
    /// Write a man page for each command
    Man {
        /// Directory for the pages; it is made if it is missing
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the completions of a shell
    Completions {
        /// Shell that reads them
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}
