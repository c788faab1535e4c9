//! `forebay namespace import` and `adopt`: a tree that is there already becomes a namespace.
//!
//! Both write a whole namespace or none. An import has names alone; an adoption is one whose files lie in a pool that is
//! made beside the tree (`adopt`).

mod adopt;
mod walk;

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::namespace::bulk::NamespaceLocation;
use ::namespace::import::{Format, Import, Made, Options, read};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use types::Clock;

use crate::cli::{OutputArguments, ProgressArguments};
use crate::data_dir::DataDir;
use crate::data_dir::SQLITE;
use crate::keys;
use crate::output::{self, counted};
use crate::progress::{Meter, Shown, Unit};
use crate::system::{SystemClock, SystemRandom};

pub use adopt::adopt;

#[derive(Args)]
pub struct ImportArguments {
    /// File with the listing; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub listing: PathBuf,
    /// Format of the listing
    #[arg(long, value_enum)]
    pub format: ListingFormat,
    /// Target without a namespace: a data directory (created if it is missing), sqlite:DIR or postgres://user@host/database
    #[arg(long, value_name = "PLACE")]
    pub to: String,
    /// Data directory that uses the namespace, with --to postgres://…; created if it is missing
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Path in the new namespace for the top directory of the tree
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub under: String,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListingFormat {
    /// Output of GNU find: find TREE -printf '%y %m %U %G %n %D:%i %s %b %T@ %A@ %C@ %B@ %P\0%l\0'
    Find,
    /// Output of mtree or bsdtar
    Mtree,
    /// Tar archive; contents of files are skipped
    Tar,
}

#[derive(Args)]
pub struct AdoptArguments {
    /// Directory whose files become the namespace
    #[arg(long, value_name = "DIR")]
    pub tree: PathBuf,
    /// Data directory to create, for `forebay up`
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Directory of the pool, on the file system of the tree [default: pools/pool-0 in the data directory]
    #[arg(long, value_name = "DIR")]
    pub pool: Option<PathBuf>,
    /// Database of the namespace: postgres://user@host/database [default: sqlite, in the data directory]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
    /// Path in the new namespace for the top directory of the tree
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub under: String,
    /// Remove the old names at the end, so that no program can bypass the server
    #[arg(long = "move")]
    pub takes_names: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub progress: ProgressArguments,
}

pub fn import(arguments: &ImportArguments) -> Result<ExitCode> {
    let target = Target::open(&arguments.to, arguments.data.as_deref())?;
    let format = match arguments.format {
        ListingFormat::Find => Format::Find,
        ListingFormat::Mtree => Format::Mtree,
        ListingFormat::Tar => Format::Tar,
    };
    let is_input = arguments.listing == Path::new("-");
    let path = if is_input { Path::new("/dev/stdin") } else { &arguments.listing };
    let listing = File::open(path).with_context(|| format!("cannot open the listing {}", path.display()))?;
    let mut import = Import::begin(&target.place, &target.options(&arguments.under, 0))?;
    let meter = Meter::new();
    let shown = Shown::of(&meter, arguments.progress);
    let mut counting = Counting::begin(&listing, &meter)?;
    import.add_all(&mut *read(format, listing), &mut |made| counting.tell(made.names, &meter))?;
    meter.begin("indexing and checking");
    let made = import.finish()?;
    drop(shown);
    target.record()?;
    output::print(arguments.output, &Report::of(&made, &target.place), |report| {
        let mut text = report.text();
        if made.bytes > 0 {
            text += "the files have sizes and no data, because no pool has them\n";
        }
        text
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Counts how much of a listing was read.
enum Counting {
    /// Bytes of a file. The handle shares its offset with the one that is read.
    Bytes(File),
    /// Names, if it is a pipe.
    Names,
}

impl Counting {
    fn begin(listing: &File, meter: &Meter) -> Result<Counting> {
        let about = listing.metadata().context("cannot read the listing")?;
        if !about.is_file() {
            meter.begin_items("reading names", None);
            return Ok(Counting::Names);
        }
        let shared = listing.try_clone().context("cannot read the listing")?;
        meter.resume("reading the listing", Unit::Bytes, about.len(), 0);
        Ok(Counting::Bytes(shared))
    }

    fn tell(&mut self, names: u64, meter: &Meter) {
        match self {
            Counting::Names => meter.set(names),
            // Without an offset it is only not told.
            Counting::Bytes(shared) => _ = shared.stream_position().map(|read| meter.set(read)),
        }
    }
}

/// A namespace that was made.
#[derive(Serialize)]
struct Report {
    /// Without the password of a URL.
    to: String,
    files: u64,
    directories: u64,
    names: u64,
    bytes: u64,
    /// Directories above entries of the listing that are no entries themselves.
    untold: u64,
}

impl Report {
    fn of(made: &Made, place: &NamespaceLocation) -> Report {
        let Made { directories, files, names, bytes, untold } = *made;
        Report { to: place.to_string(), files, directories, names, bytes, untold }
    }

    fn text(&self) -> String {
        let Report { to, files, directories, names, bytes, untold } = self;
        let (files, names) = (counted(*files, "file", "files"), counted(*names, "name", "names"));
        let directories = counted(*directories, "directory", "directories");
        let mut text = format!("{files} and {directories} are in {to}, {names}, {bytes} bytes\n");
        if *untold > 0 {
            text += &format!("{untold} of the directories were not told of and belong to root, mode 0755\n");
        }
        text
    }
}

/// Where the namespace is made, and for whom.
struct Target {
    place: NamespaceLocation,
    data: Option<DataDir>,
}

impl Target {
    fn open(to: &str, data: Option<&Path>) -> Result<Target> {
        match crate::namespace::location::parse(to) {
            Some(place @ NamespaceLocation::Postgres(_)) => {
                let data = data.map(empty_data_dir).transpose()?;
                Ok(Target { place, data })
            }
            Some(_) | None if data.is_some() => {
                bail!("--data needs a PostgreSQL URL as --to; otherwise give the data directory as --to")
            }
            Some(place) => Ok(Target { place, data: None }),
            None => {
                let data = empty_data_dir(Path::new(to))?;
                Ok(Target { place: NamespaceLocation::Sqlite(data.namespace()), data: Some(data) })
            }
        }
    }

    fn options(&self, under: &str, first_file: u64) -> Options {
        Options {
            under: under.as_bytes().to_vec(),
            now: SystemClock::new().now(),
            first_file,
            instance: self.data.as_ref().map(|data| data.instance),
        }
    }

    /// Once the namespace is there.
    fn record(&self) -> Result<()> {
        match (&self.place, &self.data) {
            (NamespaceLocation::Postgres(url), Some(data)) => data.note_database(url),
            _ => Ok(()),
        }
    }

    /// Once its pool is complete.
    fn record_pools(&self) -> Result<()> {
        let Some(data) = &self.data else { return Ok(()) };
        keys::begin(data, &SystemClock::new())?;
        data.record_pools()
    }
}

/// One that has no namespace yet, and no pool: names that get numbers from the first on would lead to its files.
fn empty_data_dir(path: &Path) -> Result<DataDir> {
    let data = DataDir::open(path, None, &SystemRandom)?;
    require_new(&data)?;
    if data.has_pools()? {
        bail!(
            "{} has pools with files, and an import would use the numbers of these files again. Choose another data \
             directory, or rebuild the namespace from the pools (`forebay namespace rebuild`)",
            path.display()
        );
    }
    Ok(data)
}

/// It has its namespace nowhere else.
fn require_new(data: &DataDir) -> Result<()> {
    if let Some(noted) = data.noted_database()? {
        bail!("the namespace of {} is in {noted}; choose another data directory", data.path().display());
    }
    Ok(())
}

/// As `--namespace` of `up` has it.
fn place_of(data: &DataDir, namespace: Option<&str>) -> Result<NamespaceLocation> {
    match namespace {
        None | Some(SQLITE) => Ok(NamespaceLocation::Sqlite(data.namespace())),
        Some(url) => match crate::namespace::location::parse(url) {
            Some(place @ NamespaceLocation::Postgres(_)) => Ok(place),
            _ => bail!("{url} is not a URL of a database; write it as postgres://user@host/database"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_not_imported_beside_pools_that_have_files() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Target::open(dir.path().to_str().unwrap(), None);
        let data = open().unwrap().data.unwrap();
        // As one that was made and not recorded yet.
        let identity = pool::Identity { pool: types::PoolId(0), instance: data.instance };
        std::fs::create_dir_all(data.pool(0)).unwrap();
        drop(pool::Adoption::begin(&data.pool(0), &identity).unwrap());
        drop(data);
        let error = open().err().unwrap().to_string();
        assert!(error.contains("has pools") && error.contains("namespace rebuild"), "{error}");
        // As one whose pools are on a disk that is away.
        std::fs::remove_dir_all(dir.path().join("pools")).unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        data.record_pools().unwrap();
        drop(data);
        assert!(open().is_err());
    }
}
