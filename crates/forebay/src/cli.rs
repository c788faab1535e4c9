//! The command line.
//!
//! A test (`cli/tests.rs`) walks over it: every command and argument has a line of help, and every command that prints
//! facts has `--json`.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::import::{AdoptArguments, ImportArguments};

const EXIT_CODES: &str = "\
Exit codes:
  0  The command is done
  1  The command failed, or a check found problems; an error is on standard error
  2  The command line is not valid; nothing was done";

const EXIT_CODES_OF_CHECKS: &str = "\
Exit codes:
  0  The command is done, and its check found no problem
  1  The check found problems, or the command failed; an error is on standard error
  2  The command line is not valid; nothing was done";

#[derive(Parser)]
#[command(
    name = "forebay",
    version,
    about = "Serve one POSIX namespace over many data servers",
    after_help = EXIT_CODES
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a head and its pools
    Up(UpArguments),
    /// Show the state of a running instance
    Status(StatusArguments),
    /// Check the namespace against itself and against the pools, and repair it
    #[command(after_help = EXIT_CODES_OF_CHECKS)]
    Fsck(FsckArguments),
    /// Create directories, and set and show options of directories
    Dir {
        #[command(subcommand)]
        command: DirCommand,
    },
    /// List, drain and enable pools
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Renew the keys of tickets
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
    /// Make certificates for trials
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
    /// Data directory, which has namespace, pools and secret [default: ./forebay-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address of head and pools; beyond loopback root is squashed [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<IpAddr>,
    /// Port of the head [default: 2049 as root, else 20490]
    #[arg(long, value_name = "PORT")]
    pub nfs_port: Option<u16>,
    /// Port of HTTP and WebDAV [default: 8080]
    #[arg(long, value_name = "PORT")]
    pub http_port: Option<u16>,
    /// Do not serve HTTP
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
    /// Do not squash root of client hosts beyond loopback
    #[arg(long)]
    pub no_root_squash: bool,
    /// Configuration file (TOML); options of the command line override it
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
    /// Print progress to standard error every 5 s if that is no terminal; a terminal shows it anyway
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
    /// Database of the namespace: sqlite, or postgres://user@host/database [default: as the configuration says]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
    /// Repair the problems, after a question for each kind of them; the instance must be stopped
    #[arg(long)]
    pub repair: bool,
    /// With --repair: make all repairs that lose no data, without questions
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// With --repair: also empty or cut files whose data no pool has
    #[arg(long, requires = "repair")]
    pub give_up_lost_data: bool,
    /// With --repair: delete replicas that belong to no file, instead of moving them to /lost+found
    #[arg(long, requires = "repair")]
    pub delete_unknown_replicas: bool,
}

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
    /// Create a directory with an owner, a group and a mode
    Create(CreateDirArguments),
    /// Set how soon the attributes of a directory follow its entries
    SetConsistency(SetConsistencyArguments),
    /// Show the options of a directory
    Show(ShowDirArguments),
}

#[derive(Args)]
pub struct CreateDirArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Directory to create, from the root of the namespace
    #[arg(value_name = "PATH")]
    pub path: String,
    /// User that owns the directory: a name that this host knows, or a number
    #[arg(long, value_name = "USER")]
    pub owner: String,
    /// Group of the directory: a name that this host knows, or a number [default: the primary group of the owner]
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Permissions in octal; with 2775 the group writes, and owns all that is created in the directory
    #[arg(long, value_name = "MODE", default_value = "0755", value_parser = octal_mode)]
    pub mode: u32,
    /// Create missing directories above it, too: each with mode 0755, and owner and group of the directory above
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
    /// Consistency of its link count, times and change attribute
    #[arg(value_name = "MODE")]
    pub mode: ConsistencyArgument,
    /// Set it for all directories below as well
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
    /// Attributes are written together with the entries
    Strong,
    /// Attributes are written later; until then readers see the old ones
    Weak,
    /// Attributes are written later; readers see the new ones
    Soft,
    /// Strong, or soft where that is cheaper
    Auto,
    /// Value of namespace.consistency
    Inherit,
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
    /// List all pools and their states
    List {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Drain a pool: it gets no new files and no clients, and its files are read and written through the head
    Drain(PoolArguments),
    /// Enable a drained pool again
    Enable(PoolArguments),
}

#[derive(Args)]
pub struct PoolArguments {
    #[command(flatten)]
    pub place: InstanceArguments,
    /// Name of the pool: pool-0, pool-1, …
    #[arg(value_name = "POOL")]
    pub pool: String,
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Subcommand)]
pub enum KeysCommand {
    /// Replace the keys; tickets of the former keys stay valid for keys.overlap_s, older tickets do not
    Renew {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
}

#[derive(Subcommand)]
pub enum QuotaCommand {
    /// Set or change limits of an account
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
    /// Show usage and limits of an account
    Show {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        whose: WhoseArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// List all accounts that have a quota
    List {
        #[command(flatten)]
        place: InstanceArguments,
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Remove all limits of an account
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
    /// User that owns the files: a number, or a name that this host knows
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Group of the files: a number, or a name that this host knows
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Directory tree: path of its top from the root of the namespace
    #[arg(long, value_name = "PATH")]
    pub tree: Option<String>,
}

// Limits that are not given stay as they are.
#[derive(Args)]
pub struct LimitArguments {
    /// Bytes that may be passed for namespace.quota_grace_days; 10G is 10 times 2³⁰; 0 removes the limit
    #[arg(long, value_name = "SIZE")]
    pub bytes_soft: Option<String>,
    /// Bytes that are never passed; 0 removes the limit
    #[arg(long, value_name = "SIZE")]
    pub bytes_hard: Option<String>,
    /// Files and directories that may be passed for namespace.quota_grace_days; 0 removes the limit
    #[arg(long, value_name = "N")]
    pub files_soft: Option<String>,
    /// Files and directories that are never passed; 0 removes the limit
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
    /// Levels of directories below it that get a line of their own
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub depth: u32,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Subcommand)]
pub enum NamespaceCommand {
    /// Copy the namespace of a stopped instance to another place or engine
    #[command(after_help = EXIT_CODES_OF_CHECKS)]
    Copy(CopyArguments),
    /// Save a namespace to a file, of a running instance as well
    #[command(after_help = EXIT_CODES_OF_CHECKS)]
    Backup(BackupArguments),
    /// Restore a saved namespace
    #[command(after_help = EXIT_CODES_OF_CHECKS)]
    Restore(RestoreArguments),
    /// Migrate the schema to the version of this program, as the next start would
    Migrate(MigrateArguments),
    /// Import a namespace from a listing, without data
    Import(ImportArguments),
    /// Make a namespace and a pool from an existing tree, without copying data
    Adopt(AdoptArguments),
    /// Rebuild a lost namespace from the pools
    Rebuild(RebuildArguments),
    /// Send names and owners of all files to the pools now, for a rebuild
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
    /// Data directory that uses the copy from then on; its former namespace is kept under another name
    #[arg(long, value_name = "DIR")]
    pub switch: Option<PathBuf>,
    /// Remove the rows that an earlier attempt copied, and begin anew
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
    /// File to make; it must not exist
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Args)]
pub struct RestoreArguments {
    /// File that `forebay namespace backup` made
    #[arg(long, value_name = "FILE", required_unless_present = "in_place")]
    pub from: Option<PathBuf>,
    /// Accept the namespace in the target as restored, although later changes are missing from it
    #[arg(long, conflicts_with_all = ["from", "start_over"])]
    pub in_place: bool,
    /// Target: a data directory, sqlite:DIR or postgres://user@host/database; with --from it has no namespace
    #[arg(long, value_name = "PLACE")]
    pub to: String,
    /// Remove the rows that an earlier attempt restored, and begin anew
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
    /// Place: sqlite:DIR, file:FILE (a backup) or postgres://user@host/database [default: that of the data directory]
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
    /// Database of the namespace: sqlite, or postgres://user@host/database [default: as the configuration says]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user, and print the password
    Add(AddUserArguments),
    /// Set a new password for a user, and print it
    SetPassword(SetPasswordArguments),
    /// Remove a user
    Remove {
        #[command(flatten)]
        place: InstanceArguments,
        /// Name of the user
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List all users
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
    /// User id that the user's files belong to
    #[arg(long, value_name = "UID")]
    pub uid: u32,
    /// Group id that the user's files belong to
    #[arg(long, value_name = "GID")]
    pub gid: u32,
    /// Ids of further groups, separated by commas
    #[arg(long, value_name = "GIDS", value_delimiter = ',')]
    pub groups: Vec<u32>,
    /// Make the user an administrator, who may see the clients and set log levels
    #[arg(long)]
    pub admin: bool,
    /// Read the password from the first line of standard input instead of making one
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
    /// Read the password from the first line of standard input instead of making one
    #[arg(long)]
    pub password_stdin: bool,
    #[command(flatten)]
    pub output: OutputArguments,
}

#[derive(Subcommand)]
pub enum CertCommand {
    /// Make a self-signed certificate and its key
    SelfSigned {
        /// Host name or address that clients use; can be given several times
        #[arg(long = "host", value_name = "HOST", required = true)]
        hosts: Vec<String>,
        /// Validity from now on, in days
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
    /// Print every key with its default, type, unit and meaning, as a configuration file
    Reference {
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Check a configuration file
    #[command(after_help = EXIT_CODES_OF_CHECKS)]
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
