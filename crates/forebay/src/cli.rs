//! The command line.
//!
//! A test (`cli/tests.rs`) walks over it: every command and argument has a line of help, and every command that prints
//! facts has `--json`.

mod cluster;
mod drain;
mod notes;
#[cfg(test)]
mod tests;
mod why;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::import::{AdoptArguments, ImportArguments};
pub use cluster::ClusterCommand;
pub use drain::DrainArguments;
pub use why::{WhyCommand, WhyIoArguments};

#[derive(Parser)]
#[command(
    name = "forebay",
    version,
    about = "Serve one POSIX namespace over many data servers",
    after_help = notes::EXIT_CODES
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a head and its pools
    #[command(after_help = notes::UP)]
    Up(UpArguments),
    /// Show the state of a running instance
    #[command(after_help = notes::STATUS)]
    Status(StatusArguments),
    /// Check the namespace against itself and against the pools, and repair it
    #[command(after_help = notes::FSCK)]
    Fsck(FsckArguments),
    /// Create directories, and set and show their consistency and mode of I/O
    Dir {
        #[command(subcommand)]
        command: DirCommand,
    },
    /// List, drain, enable and remove pools, and run one on a host of its own
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Explain decisions of a running instance
    Why {
        #[command(subcommand)]
        command: WhyCommand,
    },
    /// Make tokens for hosts that are to join as pools, and list those that have joined
    Cluster {
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Renew the keys of pool tickets
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Set, show and remove quotas of users, groups and directory trees
    Quota {
        #[command(subcommand)]
        command: QuotaCommand,
    },
    /// Show the files and bytes below a directory, without walking it
    #[command(after_help = notes::DU)]
    Du(DuArguments),
    /// Copy, save, restore, migrate, import and rebuild the namespace
    Namespace {
        #[command(subcommand)]
        command: NamespaceCommand,
    },
    /// Add, change, remove and list users of HTTP
    User {
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Create certificates for trials
    Cert {
        #[command(subcommand)]
        command: CertCommand,
    },
    /// Explain the configuration, or check a file
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
    /// Data directory: namespace, pools and keys; created if it is missing [default: ./forebay-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address to listen on; if it is not loopback, root of the clients is mapped to nobody (see --no-root-squash) [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<IpAddr>,
    /// NFS port of the head [default: 2049 as root, else 20490]
    #[arg(long, value_name = "PORT")]
    pub nfs_port: Option<u16>,
    /// Port of HTTP and WebDAV [default: 8080]
    #[arg(long, value_name = "PORT")]
    pub http_port: Option<u16>,
    /// Do not serve HTTP
    #[arg(long, conflicts_with = "http_port")]
    pub no_http: bool,
    /// NFS port of pool 0; pool N listens on the port that is N higher [default: 20491]
    #[arg(long, value_name = "PORT")]
    pub pool_port: Option<u16>,
    /// Number of pools; a larger number than before creates pools, a smaller one is refused [default: that of the data directory; 1 for a new one]
    #[arg(long, value_name = "N")]
    pub pools: Option<u32>,
    /// Database of the namespace: sqlite, or postgres://user@host/database [default: sqlite, in the data directory]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
    /// Do not map root of the clients to nobody
    #[arg(long)]
    pub no_root_squash: bool,
    /// Let pools of other hosts join; needed once, for the data directory stays a cluster
    #[arg(long)]
    pub cluster: bool,
    /// Configuration file (TOML); options override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Clone, Copy, Debug, Default)]
pub struct OutputArguments {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ProgressArguments {
    /// Print progress to standard error every 5 s if it is not a terminal; a terminal always shows progress
    #[arg(long)]
    pub progress: bool,
}

#[derive(Args)]
pub struct StatusArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Args)]
pub struct FsckArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Database of the namespace: sqlite, or postgres://user@host/database [default: namespace.database]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
    /// Write all problems and remarks to FILE with the paths of their files, one a line; with --json a line is an object
    #[arg(long, value_name = "FILE")]
    pub list: Option<PathBuf>,
    /// Repair problems, and ask before each kind of repair; the instance must be stopped
    #[arg(long)]
    pub repair: bool,
    /// With --repair: do not ask, and make all repairs that lose no data
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// With --repair: also truncate files to the data that is left, to length 0 if none is; this loses data for good
    #[arg(long, requires = "repair")]
    pub give_up_lost_data: bool,
    /// With --repair: delete replicas of no file instead of moving them to /lost+found; this cannot be undone
    #[arg(long, requires = "repair")]
    pub delete_unknown_replicas: bool,
}

#[derive(Args)]
pub struct InstanceArguments {
    /// Data directory of the instance; overrides the key data and FOREBAY_DATA [default: ./forebay-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Configuration file; its key data is the data directory
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum DirCommand {
    /// Create a directory with an owner, a group and permissions
    #[command(after_help = notes::DIR_CREATE)]
    Create(CreateDirArguments),
    /// Set how soon the attributes of a directory follow its entries
    #[command(after_help = notes::DIR_SET_CONSISTENCY)]
    SetConsistency(SetConsistencyArguments),
    /// Set how pools read and write the files that are created in a directory
    #[command(after_help = notes::DIR_SET_IO)]
    SetIo(SetIoArguments),
    /// Show the consistency and the mode of I/O of a directory
    #[command(after_help = notes::DIR_SHOW)]
    Show(ShowDirArguments),
}

#[derive(Args)]
pub struct CreateDirArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Path of the directory from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    /// User that owns the directory: a name that this host knows, or a number
    #[arg(long, value_name = "USER")]
    pub owner: String,
    /// Group of the directory: a name that this host knows, or a number [default: the primary group of the owner]
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Permissions in octal; 2775 lets the group write, and new entries inherit the group
    #[arg(long, value_name = "MODE", default_value = "0755", value_parser = octal_mode)]
    pub mode: u32,
    /// Create missing parent directories too, with mode 0755 and the owner and group of the directory above
    #[arg(long)]
    pub parents: bool,
    #[command(flatten)]
    pub output: OutputArguments,
}

fn octal_mode(text: &str) -> Result<u32, String> {
    let is_octal = text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o7777);
    mode.ok_or_else(|| "not an octal number up to 7777, as 2775 is".to_owned())
}

#[derive(Args)]
pub struct SetConsistencyArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Path of the directory from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Consistency of link count, times and change attribute
    #[arg(value_name = "MODE")]
    pub mode: ConsistencyArgument,
    /// Set it for all directories below, too
    #[arg(long)]
    pub recursive: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsistencyArgument {
    /// Write attributes together with the entries
    Strong,
    /// Write attributes about half a second later; until then readers see the old ones
    Weak,
    /// Write attributes about half a second later; readers see the new ones
    Soft,
    /// Strong; soft while most commits change at least 64 entries of the directory
    Auto,
    /// Use the value of namespace.consistency
    Inherit,
}

#[derive(Args)]
pub struct SetIoArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Path of the directory from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Mode of I/O
    #[arg(value_name = "MODE")]
    pub mode: IoArgument,
    /// Set it for all directories and files below, too
    #[arg(long)]
    pub recursive: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoArgument {
    /// Use the page cache
    Buffered,
    /// Use the page cache, and drop the pages after each request
    Uncached,
    /// Bypass the page cache
    Direct,
    /// Let the pool choose for each request, as pools.io says
    Auto,
}

#[derive(Args)]
pub struct ShowDirArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Path of the directory from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Subcommand)]
pub enum PoolCommand {
    /// Run a pool on this host for a head on another
    #[command(after_help = notes::POOL_UP)]
    Up(PoolUpArguments),
    /// List all pools and their states
    #[command(after_help = notes::POOL_LIST)]
    List {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Drain a pool: send it no new files and no clients, and move its files to other pools
    #[command(after_help = notes::POOL_DRAIN)]
    Drain(DrainArguments),
    /// Enable a drained pool again; files that were moved stay where they are
    #[command(after_help = notes::POOL_ENABLE)]
    Enable(PoolArguments),
    /// Measure buffered, uncached and direct I/O on a pool's disk, and choose by the result from now on
    #[command(after_help = notes::POOL_CALIBRATE)]
    Calibrate(PoolArguments),
    /// Count reads and writes of a running instance by mode of I/O (buffered, uncached, direct) and reason
    #[command(after_help = notes::POOL_IOSTAT)]
    Iostat(IostatArguments),
    /// Read all replicas of a pool from its disk, and compare them with their block sums
    #[command(after_help = notes::POOL_SCRUB)]
    Scrub(ScrubArguments),
    /// List the files that have a replica on a pool
    #[command(after_help = notes::POOL_FILES)]
    Files(PoolArguments),
    /// Take a pool of another host off the list: it must have no files
    #[command(after_help = notes::POOL_REMOVE)]
    Remove(PoolArguments),
}

#[derive(Args, Default)]
pub struct PoolUpArguments {
    /// Data directory of the pool, with its key; created if it is missing [default: ./forebay-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Join the cluster that made this token, or with - the token on standard input; needed at the first start, and when the head has another address
    #[arg(long, value_name = "TOKEN")]
    pub join: Option<String>,
    /// Join by the token in FILE, if FILE exists, and remove FILE once the host has joined; others must not be able to read it
    #[arg(long, value_name = "FILE", conflicts_with = "join")]
    pub join_file: Option<PathBuf>,
    /// Address to listen on for clients [default: the key listen if it is not loopback, else 0.0.0.0]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<IpAddr>,
    /// NFS port of the pool [default: 20491]
    #[arg(long, value_name = "PORT")]
    pub pool_port: Option<u16>,
    /// HTTP port of the pool host: data for clients that the head sends here, /health and /metrics [default: 8081]
    #[arg(long, value_name = "PORT", conflicts_with = "no_http")]
    pub http_port: Option<u16>,
    /// Do not serve HTTP; HTTP clients get the files of this pool through the head
    #[arg(long)]
    pub no_http: bool,
    /// Address at which clients reach the pool, with a port if it is another [default: --listen, else the address from which the head sees this host]
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,
    /// Configuration file (TOML); options override it. Of its keys, those of data, listen, nfs, http, pools and log apply
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args)]
pub struct ScrubArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Pool: pool-0, pool-1, …
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// Read at most so many MiB a second, and a quarter of it while the pool has other requests
    #[arg(long, value_name = "MIB", default_value_t = crate::pools::scrub::RATE_MIB_S, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate: u64,
    /// Begin with the first replica; do not continue an interrupted scrub
    #[arg(long)]
    pub start_over: bool,
    /// Show the last complete scrub and when the next one starts by itself; start none
    #[arg(long, conflicts_with_all = ["rate", "start_over"])]
    pub status: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Args)]
pub struct IostatArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Only this pool: pool-0, pool-1, …
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    /// Show the counts of an interval of so many seconds, again and again, not those since the start
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub interval: Option<u64>,
    /// End after so many intervals
    #[arg(long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Show the files that have the most bytes of those that pools have open, since each was opened
    #[arg(long, conflicts_with = "interval")]
    pub by_file: bool,
    /// With --by-file: show so many files [default: 20]
    #[arg(long, value_name = "N", requires = "by_file", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub top: Option<u16>,
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Args)]
pub struct PoolArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Pool: pool-0, pool-1, …
    #[arg(value_name = "POOL")]
    pub pool: String,
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Subcommand)]
pub enum KeysCommand {
    /// Renew the keys; pools accept tickets of the previous keys for keys.overlap_s
    #[command(after_help = notes::KEYS_RENEW)]
    Renew {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Subcommand)]
pub enum QuotaCommand {
    /// Set limits of a user, a group or a directory tree; limits that are not named stay
    #[command(after_help = notes::QUOTA_SET)]
    Set {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        whose: WhoseArguments,
        #[command(flatten)]
        limits: LimitArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Show usage and limits of a user, a group or a directory tree
    #[command(after_help = notes::QUOTA_SHOW)]
    Show {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        whose: WhoseArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List all users, groups and directory trees that have a quota
    #[command(after_help = notes::QUOTA_LIST)]
    List {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Remove all limits of a user, a group or a directory tree
    #[command(after_help = notes::QUOTA_REMOVE)]
    Remove {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        whose: WhoseArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct WhoseArguments {
    /// User that owns the files: a name that this host knows, or a number
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Group of the files: a name that this host knows, or a number
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Directory tree: path of its top directory from the root of the namespace
    #[arg(long, value_name = "PATH")]
    pub tree: Option<String>,
}

// Limits that are not given stay as they are.
#[derive(Args)]
pub struct LimitArguments {
    /// Soft limit of bytes; it may be exceeded for namespace.quota_grace_days; 0 removes it
    #[arg(long, value_name = "SIZE")]
    pub bytes_soft: Option<String>,
    /// Hard limit of bytes, which is never exceeded; 0 removes it
    #[arg(long, value_name = "SIZE")]
    pub bytes_hard: Option<String>,
    /// Soft limit of files and directories; it may be exceeded for namespace.quota_grace_days; 0 removes it
    #[arg(long, value_name = "N")]
    pub files_soft: Option<String>,
    /// Hard limit of files and directories, which is never exceeded; 0 removes it
    #[arg(long, value_name = "N")]
    pub files_hard: Option<String>,
}

#[derive(Args)]
pub struct DuArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Path of the directory from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Levels of subdirectories that get a line each
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub depth: u32,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Subcommand)]
pub enum NamespaceCommand {
    /// Copy the namespace to another data directory or database
    #[command(after_help = notes::NAMESPACE_COPY)]
    Copy(CopyArguments),
    /// Save the namespace to a file
    #[command(after_help = notes::NAMESPACE_BACKUP)]
    Backup(BackupArguments),
    /// Restore the namespace from a backup, or accept an older database
    #[command(after_help = notes::NAMESPACE_RESTORE)]
    Restore(RestoreArguments),
    /// Migrate the database to the schema of this version now, not at the next start
    #[command(after_help = notes::NAMESPACE_MIGRATE)]
    Migrate(MigrateArguments),
    /// Create a namespace from a listing, without data
    #[command(after_help = notes::NAMESPACE_IMPORT)]
    Import(ImportArguments),
    /// Create a namespace and a pool from an existing directory tree, without copying data
    #[command(after_help = notes::NAMESPACE_ADOPT)]
    Adopt(AdoptArguments),
    /// Rebuild a lost namespace from the pools
    #[command(after_help = notes::NAMESPACE_REBUILD)]
    Rebuild(RebuildArguments),
    /// Copy names and owners of all files to the pools now, for `namespace rebuild`
    #[command(after_help = notes::NAMESPACE_DESCRIBE)]
    Describe {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
        #[command(flatten)]
        progress: ProgressArguments,
    },
}

#[derive(Args)]
pub struct CopyArguments {
    /// Source: a data directory, sqlite:DIR or postgres://user@host/database
    #[arg(long, value_name = "PLACE")]
    pub from: String,
    /// Target without a namespace: a data directory, sqlite:DIR or postgres://user@host/database
    #[arg(long, value_name = "PLACE")]
    pub to: String,
    /// Make this data directory use the copy; keep its former namespace under another name
    #[arg(long, value_name = "DIR")]
    pub switch: Option<PathBuf>,
    /// Remove the rows that an earlier attempt copied, and start again
    #[arg(long)]
    pub start_over: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Args)]
pub struct BackupArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Source: sqlite:DIR or postgres://user@host/database [default: that of the data directory]
    #[arg(long, value_name = "PLACE")]
    pub from: Option<String>,
    /// File to create; it must not exist
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Args)]
#[command(group = ArgGroup::new("source").required(true))]
pub struct RestoreArguments {
    /// File that `forebay namespace backup` created
    #[arg(long, value_name = "FILE", group = "source")]
    pub from: Option<PathBuf>,
    /// Accept the database in --to although it is older than the pools; the changes that it lacks are lost
    #[arg(long, group = "source", conflicts_with = "start_over")]
    pub in_place: bool,
    /// Target: a data directory, sqlite:DIR or postgres://user@host/database; with --from it must have no namespace
    #[arg(long, value_name = "PLACE")]
    pub to: String,
    /// Remove the rows that an earlier attempt restored, and start again
    #[arg(long)]
    pub start_over: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Args)]
pub struct MigrateArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Database or backup to migrate: sqlite:DIR, file:FILE or postgres://user@host/database [default: that of the data directory]
    #[arg(long, value_name = "PLACE")]
    pub at: Option<String>,
    /// List the steps and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Args)]
pub struct RebuildArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Database of the namespace: sqlite, or postgres://user@host/database [default: namespace.database]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user, and print the password if the command generates it
    #[command(after_help = notes::USER_ADD)]
    Add(AddUserArguments),
    /// Set a new password for a user, and print it if the command generates it
    #[command(after_help = notes::USER_SET_PASSWORD)]
    SetPassword(SetPasswordArguments),
    /// Remove a user
    #[command(after_help = notes::USER_REMOVE)]
    Remove {
        #[command(flatten)]
        place: InstanceArguments,
        /// Name of the user
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List all users
    #[command(after_help = notes::USER_LIST)]
    List {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Args)]
pub struct AddUserArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Name of the user
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Numeric user id (uid) of the user
    #[arg(long, value_name = "UID")]
    pub uid: u32,
    /// Numeric group id (gid) of the user
    #[arg(long, value_name = "GID")]
    pub gid: u32,
    /// Numeric ids of further groups, separated by commas
    #[arg(long, value_name = "GIDS", value_delimiter = ',')]
    pub groups: Vec<u32>,
    /// Make the user an administrator, who may also see clients and open files and set log levels
    #[arg(long)]
    pub admin: bool,
    /// Read the password from the first line of standard input instead of generating one
    #[arg(long)]
    pub password_stdin: bool,
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Args)]
pub struct SetPasswordArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Name of the user
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Read the password from the first line of standard input instead of generating one
    #[arg(long)]
    pub password_stdin: bool,
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Subcommand)]
pub enum CertCommand {
    /// Create a self-signed certificate and its key
    #[command(after_help = notes::CERT_SELF_SIGNED)]
    SelfSigned {
        /// Host name or address that clients use; repeat the option for each
        #[arg(long = "host", value_name = "HOST", required = true)]
        hosts: Vec<String>,
        /// Validity in days from now
        #[arg(long, value_name = "DAYS", default_value_t = 90)]
        days: u32,
        /// Directory for certificate.pem and key.pem; neither may exist
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Print every key with default, type, unit and meaning, as a configuration file
    #[command(after_help = notes::CONFIG_REFERENCE)]
    Reference {
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Check a configuration file
    #[command(after_help = notes::CONFIG_CHECK)]
    Check {
        /// Configuration file (TOML)
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Subcommand)]
pub enum GenerateCommand {
    /// Write a man page for each command
    Man {
        /// Directory for the pages; created if it is missing
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the completions of a shell
    Completions {
        /// Shell
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}
