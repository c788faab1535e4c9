//! `forebay namespace rebuild`: a new namespace in the place of one that is lost, from what the pools have.
//!
//! Replicas have the numbers of their files. The names of files are in the pools as of the last description (`naming`).
//! Everything is read from the pools' directories. Nothing in them is changed but for write journals, which are applied.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ::namespace::{Database, FileFacts, Load, SqlNamespace, Stray};
use anyhow::{Context, Result, bail};
use api::Description;
use pool::{Found, Identity, KeptDescriptions};
use serde::Serialize;
use types::{Epoch, FileId, PoolId};

use crate::cli::RebuildArguments;
use crate::config::Config;
use crate::data_dir::SQLITE;
use crate::data_dir::{DataDir, complaint};
use crate::fsck::{Log, stray};
use crate::output::{self, counted};
use crate::progress::{Meter, Shown};
use crate::system::{SystemClock, SystemRandom};

const PAGE: usize = 4096;
/// Files in one transaction.
const BATCH: usize = 20_000;

pub fn run(arguments: &RebuildArguments) -> Result<ExitCode> {
    let mut config = arguments.place.config()?;
    if let Some(url) = &arguments.namespace {
        config.namespace.database.clone_from(url);
    }
    let data = DataDir::open_existing(&config.data, &SystemRandom)?;
    let target = Target::choose(&data, &config)?;
    let meter = Meter::new();
    let shown = Shown::of(&meter, arguments.progress);
    let found = Inventory::read(&data, &config, &meter)?;
    if let Database::Postgres(server) = &target.database {
        // Before it is opened, which is a start and would take up what was restored.
        let files = namespace::bulk::discard_unfinished(&server.url)?;
        if files > 1 {
            bail!("{} has a namespace of {files} files already; nothing was changed", target.name);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let told = {
        let clock = Arc::new(SystemClock::new());
        // A new database lacks every mark that was noted, and would be refused for that.
        let namespace = crate::services::open_database(&config, target.database.clone(), clock, Vec::new())?;
        runtime.block_on(namespace.close());
        build(&namespace, found, &data, &meter)
            .context("the namespace was not rebuilt; the next attempt removes the incomplete one")?
    };
    target.put_in_place(&data, &config)?;
    drop(shown);
    output::print(arguments.output, &Told { to: target.name, ..told }, Told::text)?;
    Ok(ExitCode::SUCCESS)
}

/// Where it is to be.
struct Target {
    database: Database,
    name: String,
    is_sqlite: bool,
}

impl Target {
    fn choose(data: &DataDir, config: &Config) -> Result<Target> {
        let asked = &config.namespace.database;
        if asked == SQLITE {
            if let Some(noted) = data.noted_database()? {
                bail!(
                    "the namespace of {} is in {noted}: give its URL with --namespace",
                    data.path().display()
                );
            }
            let there = data.namespace();
            if there.exists() {
                bail!(
                    "{} has a namespace; if it can no longer be opened, move it away (mv {} {}.lost) and run the command again",
                    there.display(),
                    there.display(),
                    there.display()
                );
            }
            let new = unfinished(data);
            // An earlier attempt left this; nothing of it was in use.
            match std::fs::remove_dir_all(&new) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(complaint(&new, "remove", &error));
                }
                _ => {}
            }
            let name = there.display().to_string();
            return Ok(Target { database: Database::Sqlite(new), name, is_sqlite: true });
        }
        let database = match data.database(asked)? {
            Database::Postgres(server) => {
                Database::Postgres(namespace::Server { may_be_new: true, ..server })
            }
            sqlite => sqlite,
        };
        Ok(Target { database, name: namespace::database_name(asked)?, is_sqlite: false })
    }

    /// Durably, and whole.
    fn put_in_place(&self, data: &DataDir, config: &Config) -> Result<()> {
        if !self.is_sqlite {
            return data.record_database(&config.namespace.database);
        }
        let (new, there) = (unfinished(data), data.namespace());
        durable::rename(&new, &there).map_err(|error| complaint(&there, "create", &error))
    }
}

fn unfinished(data: &DataDir) -> std::path::PathBuf {
    data.path().join("namespace.rebuilding")
}

/// Replicas, fences and descriptions in the pools, by file.
struct Inventory {
    /// In the order of their files.
    replicas: Vec<Stray>,
    fences: HashMap<FileId, Epoch>,
    kept: Vec<KeptDescriptions>,
    remarks: Vec<String>,
}

impl Inventory {
    fn read(data: &DataDir, config: &Config, meter: &Meter) -> Result<Inventory> {
        let random: Arc<dyn types::Random> = Arc::new(SystemRandom);
        let mut found =
            Inventory { replicas: Vec::new(), fences: HashMap::new(), kept: Vec::new(), remarks: Vec::new() };
        for number in 0..data.pools {
            let dir = data.pool(number);
            let identity = Identity { pool: PoolId(number), instance: data.instance };
            pool::apply_journal(&config.pools.journal, &dir, &identity, &random)?;
            meter.begin_items(format!("reading replicas of {}", PoolId(number)), None);
            found.read_pool(&dir, number, data.instance, meter)?;
        }
        found.replicas.sort_unstable_by_key(|replica| (replica.file, replica.pool));
        Ok(found)
    }

    fn read_pool(&mut self, dir: &Path, number: u32, instance: [u8; 16], meter: &Meter) -> Result<()> {
        let scan = pool::scan(dir)?;
        let identity = scan.identity();
        if identity.instance != instance || identity.pool != PoolId(number) {
            bail!("{} is not pool {number} of this instance", dir.display());
        }
        for entry in scan {
            meter.add(1);
            match entry {
                Found::Replica(replica) => self.replicas.push(stray(identity.pool, &replica)),
                Found::Problem(problem) => self.remarks.push(problem.to_string()),
            }
        }
        for (file, epoch) in pool::fences(dir) {
            let known = self.fences.entry(file).or_default();
            *known = epoch.max(*known);
        }
        match KeptDescriptions::open(dir) {
            Ok(Some(kept)) => self.kept.push(kept),
            Err(error) => {
                self.remarks.push(format!("what {} was told of its files is lost: {error}", identity.pool))
            }
            Ok(None) => {
                self.remarks.push(format!("{} was never told what its files are called", identity.pool))
            }
        }
        Ok(())
    }
}

/// Descriptions of all pools, each file once and in order; of several the newest.
struct Described<'a> {
    pools: Vec<(&'a KeptDescriptions, std::vec::IntoIter<Description>, FileId)>,
    heads: Vec<Option<Description>>,
    /// Of all pools.
    taken: u64,
    /// Of what could not be read.
    remarks: Vec<String>,
}

impl<'a> Described<'a> {
    fn new(kept: &'a [KeptDescriptions]) -> Described<'a> {
        let mut described = Described {
            pools: kept.iter().map(|kept| (kept, Vec::new().into_iter(), FileId(0))).collect(),
            heads: vec![None; kept.len()],
            taken: 0,
            remarks: Vec::new(),
        };
        for at in 0..kept.len() {
            described.advance(at);
        }
        described
    }

    /// If the descriptions of a pool are damaged, they end there.
    fn advance(&mut self, at: usize) {
        let (kept, page, after) = &mut self.pools[at];
        let next = match page.next() {
            Some(next) => Some(next),
            None => {
                match kept.page(*after, PAGE) {
                    Ok(next) => *page = next.into_iter(),
                    Err(error) => self.remarks.push(format!("descriptions after {after} are lost: {error}")),
                }
                page.next()
            }
        };
        if let Some(next) = &next {
            *after = next.file;
        }
        self.heads[at] = next;
    }

    fn peek(&self) -> Option<FileId> {
        self.heads.iter().flatten().map(|head| head.file).min()
    }

    fn take(&mut self, file: FileId) -> Option<Description> {
        let mut newest: Option<Description> = None;
        for at in 0..self.heads.len() {
            if self.heads[at].as_ref().is_none_or(|head| head.file != file) {
                continue;
            }
            let head = self.heads[at].take();
            self.taken += 1;
            if head.as_ref().map(|head| head.change) >= newest.as_ref().map(|newest| newest.change) {
                newest = head;
            }
            self.advance(at);
        }
        newest
    }
}

#[derive(Default, Serialize)]
struct Told {
    /// Without the password of a URL.
    to: String,
    /// And directories.
    files: u64,
    nameless: u64,
    without_data: u64,
    remarks: Vec<String>,
    log: String,
}

impl Told {
    fn text(&self) -> String {
        let mut out = String::new();
        for remark in self.remarks.iter().take(20) {
            out += &format!("remark: {remark}\n");
        }
        if self.remarks.len() > 20 {
            out += &format!("remark: and {} more\n", self.remarks.len() - 20);
        }
        let files = counted(self.files, "file or directory is", "files and directories are");
        out += &format!("{files} in {}\n", self.to);
        if self.nameless > 0 {
            out += &format!("{} of them nobody had described: they are in /lost+found\n", self.nameless);
        }
        if self.without_data > 0 {
            out += &format!("{} have lost their data: `forebay fsck` tells which\n", self.without_data);
        }
        out + &format!(
            "what did not fit together is in {}; properties, extended attributes and checksums are lost\n",
            self.log
        )
    }
}

fn build(namespace: &SqlNamespace, found: Inventory, data: &DataDir, meter: &Meter) -> Result<Told> {
    let mut log = Log::open(data.path())?;
    let mut told = Told { remarks: found.remarks, log: log.path.display().to_string(), ..Told::default() };
    let mut repairs = namespace.repairs()?;
    repairs.begin_load()?;
    let mut load = Load::default();
    let mut described = Described::new(&found.kept);
    let descriptions = found.kept.iter().filter_map(|kept| kept.count().ok()).sum::<u64>();
    let total = descriptions + found.replicas.len() as u64;
    meter.begin_items("loading descriptions and replicas", Some(total));
    let mut replicas = found.replicas.into_iter().peekable();
    let mut loaded = 0;
    loop {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            let next = [described.peek(), replicas.peek().map(|replica| replica.file)];
            let Some(file) = next.into_iter().flatten().min() else { break };
            let mut known = FileFacts {
                described: described.take(file),
                epoch: found.fences.get(&file).copied().unwrap_or_default(),
                ..FileFacts::default()
            };
            while let Some(replica) = replicas.next_if(|replica| replica.file == file) {
                known.replicas.push(replica);
                loaded += 1;
            }
            told.note(&known);
            batch.push(known);
        }
        if batch.is_empty() {
            break;
        }
        repairs.load(&mut load, &batch)?;
        meter.set(loaded + described.taken);
    }
    meter.begin("counting and checking");
    told.remarks.append(&mut described.remarks);
    repairs.finish_load(&load, &mut log)?;
    Ok(told)
}

impl Told {
    fn note(&mut self, known: &FileFacts) {
        self.files += 1;
        match &known.described {
            None => self.nameless += 1,
            Some(described) => {
                let is_lost = described.kind.is_regular() && described.size > 0 && known.replicas.is_empty();
                self.without_data += u64::from(is_lost);
            }
        }
    }
}
