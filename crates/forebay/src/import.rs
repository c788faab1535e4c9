//! `forebay namespace import` and `adopt`: a tree that is there already becomes a namespace.
//!
//! Both write a whole namespace or none. An import has names alone; an adoption is one whose files lie in a pool that is
//! made beside the tree (`adopt`).

mod adopt;
mod ticker;
mod walk;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::namespace::bulk::NamespaceLocation;
use ::namespace::import::{Format, Import, Made, Options, read};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use types::Clock;

use crate::data_dir::DataDir;
use crate::data_dir::SQLITE;
use crate::system::{SystemClock, SystemRandom};
use ticker::Ticker;

pub use adopt::adopt;

#[derive(Args)]
pub struct ImportArguments {
    /// File with the listing; - reads standard input
    #[arg(long, value_name = "FILE")]
    pub listing: PathBuf,
    /// How it is written: by mtree or tar, or by find TREE -printf '%y %m %U %G %n %D:%i %s %b %T@ %A@ %C@ %B@ %P\0%l\0'
    #[arg(long, value_enum)]
    pub format: ListingFormat,
    /// A data directory, made if it is missing, sqlite:DIR or postgres://user@host/database; there must be no namespace in it
    #[arg(long, value_name = "PLACE")]
    pub to: String,
    /// Data directory that has its namespace there from then on, where that is PostgreSQL; made if it is missing
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where in the new namespace the top of the tree is to be
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub under: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListingFormat {
    Find,
    Mtree,
    Tar,
}

#[derive(Args)]
pub struct AdoptArguments {
    /// Directory whose files are taken in
    #[arg(long, value_name = "DIR")]
    pub tree: PathBuf,
    /// Data directory to be made, for `forebay up`
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Where its pool is to be, on the file system of the tree [default: pools/pool-0 in the data directory]
    #[arg(long, value_name = "DIR")]
    pub pool: Option<PathBuf>,
    /// Database of the namespace: postgres://user@host/database [default: sqlite, in the data directory]
    #[arg(long, value_name = "URL")]
    pub namespace: Option<String>,
    /// Where in the new namespace the top of the tree is to be
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub under: String,
    /// Take the files' names in the tree away when all is done, so that nothing is changed past the namespace
    #[arg(long = "move")]
    pub takes_names: bool,
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
    let mut ticker = Ticker::new("names");
    import.add_all(&mut *read(format, listing), &mut |made| ticker.tell(made.names, None))?;
    ticker.say("indexing and checking");
    let made = import.finish()?;
    drop(ticker);
    target.record()?;
    tell(&made, &target.place);
    if made.bytes > 0 {
        println!("the files have sizes and no data: they are in no pool");
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(made: &Made, place: &NamespaceLocation) {
    let Made { directories, files, names, bytes, untold } = made;
    println!("{files} files and {directories} directories are in {place}, {names} names, {bytes} bytes");
    if *untold > 0 {
        println!("{untold} of the directories were not told of and belong to root, mode 0755");
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
                bail!("--data is for a namespace in PostgreSQL; give a data directory as --to alone")
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
}

/// One that has no namespace yet, and no pool: names that get numbers from the first on would lead to its files.
fn empty_data_dir(path: &Path) -> Result<DataDir> {
    let data = DataDir::open(path, None, &SystemRandom)?;
    require_new(&data)?;
    if data.has_pools()? {
        bail!(
            "{} has pools, whose files have numbers that an import gives to others: choose another data directory, or \
             make a namespace of what the pools have with `forebay namespace rebuild`",
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
            _ => bail!("{url} is not understood; it looks like postgres://user@host/database"),
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
