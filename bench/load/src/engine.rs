//! Level (a): the namespace crate alone, called by as many tasks as there are creators. No network, no file data.
//!
//! The bounds of a durable create are one sync of the log, which a group of creates shares, and CPU. Both are found in
//! the same run: the median of a sync on the same disk before and after, and the process's CPU time per create.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Error, Result, bail};
use api::{Consistency, CreateKind, CreateMode, CreateSpec, Namespace, SetAttributes};
use clap::{Args, ValueEnum};
use namespace::{Config, Database, GROUP_LEN_MAX, Server, SqlNamespace, Sync};
use serde_json::json;
use tokio::task::JoinSet;
use types::{Clock, FileId, Identity, Name, PoolId, Timestamp};

use crate::report::{Latencies, Report, cpu_time, rounded};
use crate::{Directories, Load};

/// Syncs that are timed before and again after the creates, and how long that may take.
const SYNCS: usize = 200;
const SYNCS_TIME_MAX: Duration = Duration::from_secs(2);

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    load: Load,
    /// sqlite:DIRECTORY, made if missing. Each run creates in directories of its own there.
    #[arg(long)]
    namespace: NamespaceLocation,
    /// Failures that an answered create survives: always a power cut; interval a crash of the process only.
    #[arg(long, value_enum, default_value_t = Durability::Always)]
    sync: Durability,
    /// The interval of --sync interval.
    #[arg(long, default_value_t = 1000)]
    sync_interval_ms: u64,
    /// Creates in one transaction at most.
    #[arg(long, default_value_t = GROUP_LEN_MAX, value_parser = clap::value_parser!(u32).range(1..=65536))]
    group_len_max: u32,
    /// How soon directories follow their entries: strong, weak, soft or auto.
    #[arg(long, default_value = "auto", value_parser = consistency)]
    consistency: Consistency,
}

fn consistency(text: &str) -> Result<Consistency, String> {
    Consistency::by_name(text).ok_or_else(|| "expected strong, weak, soft or auto".to_owned())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceLocation {
    Sqlite(PathBuf),
    Postgres(String),
}

impl FromStr for NamespaceLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<NamespaceLocation, String> {
        match text.split_once(':') {
            Some(("sqlite", dir)) if !dir.is_empty() => Ok(NamespaceLocation::Sqlite(dir.into())),
            Some(("postgres" | "postgresql", _)) => Ok(NamespaceLocation::Postgres(text.to_owned())),
            _ => Err("expected sqlite:DIRECTORY or postgres://...".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    Always,
    Interval,
}

/// Opens, creates, and says how that went beside what was possible.
pub fn run(arguments: &Arguments) -> Result<Report> {
    let namespace = open(arguments)?;
    // A server's own disk is not reached from here: where temporary files lie stands for it.
    let elsewhere = std::env::temp_dir();
    let dir = match &arguments.namespace {
        NamespaceLocation::Sqlite(dir) => dir,
        NamespaceLocation::Postgres(_) => &elsewhere,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start tokio")?;
    let before_us = sync_median_us(dir)?;
    let done = runtime.block_on(async {
        let done = create_all(&namespace, &arguments.load).await;
        namespace.close().await;
        done
    })?;
    let after_us = sync_median_us(dir)?;
    if let (0, Some(error)) = (done.latencies.len(), &done.first_error) {
        bail!("nothing was created: {error:#}");
    }
    Ok(report(arguments, done, before_us, after_us))
}

fn open(arguments: &Arguments) -> Result<Arc<SqlNamespace>> {
    let sync = match arguments.sync {
        Durability::Always => Sync::Always,
        Durability::Interval => Sync::Interval(Duration::from_millis(arguments.sync_interval_ms)),
    };
    let namespace = open_at(&arguments.namespace, sync, arguments.group_len_max)?;
    namespace.set_default_consistency(arguments.consistency);
    Ok(namespace)
}

/// As `forebay up` has it, but for what was asked.
pub fn open_at(place: &NamespaceLocation, sync: Sync, group_len_max: u32) -> Result<Arc<SqlNamespace>> {
    let config = Config {
        database: match place {
            NamespaceLocation::Sqlite(dir) => Database::Sqlite(dir.clone()),
            NamespaceLocation::Postgres(url) => {
                Database::Postgres(Server { url: url.clone(), instance: [0; 16], may_be_new: true })
            }
        },
        clock: Arc::new(SystemClock { start: Instant::now() }),
        root_owner: (0, 0),
        sync,
        cache_bytes: 256 << 20,
        queue_len_max: 8192,
        group_len_max: group_len_max as usize,
    };
    Ok(Arc::new(SqlNamespace::open(config)?))
}

#[derive(Default)]
struct Done {
    elapsed: Duration,
    cpu: Duration,
    latencies: Latencies,
    errors: u64,
    first_error: Option<Error>,
}

/// When a creator stops.
#[derive(Clone, Copy)]
enum Until {
    Count(u64),
    Instant(Instant),
}

impl Until {
    fn is_reached(self, tried: u64) -> bool {
        match self {
            Until::Count(count) => tried >= count,
            Until::Instant(end) => Instant::now() >= end,
        }
    }
}

async fn create_all(namespace: &Arc<SqlNamespace>, load: &Load) -> Result<Done> {
    let directories = directories(namespace, load).await.context("make the directories")?;
    let (cpu, began) = (cpu_time(), Instant::now());
    let creators = u64::from(load.creators);
    let mut tasks = JoinSet::new();
    for (creator, dir) in (0..creators).zip(directories) {
        let until = match load.count {
            Some(count) => Until::Count(count / creators + u64::from(creator < count % creators)),
            None => Until::Instant(began + Duration::from_secs_f64(load.seconds)),
        };
        tasks.spawn(create_in(Arc::clone(namespace), dir, creator, until));
    }
    let mut all = Done::default();
    while let Some(done) = tasks.join_next().await {
        let done = done.context("a creator ended early")?;
        all.latencies.append(done.latencies);
        all.errors += done.errors;
        all.first_error = all.first_error.or(done.first_error);
    }
    Ok(Done { elapsed: began.elapsed(), cpu: cpu_time().saturating_sub(cpu), ..all })
}

/// One for each creator, new ones in every run: either the same or his own.
async fn directories(namespace: &SqlNamespace, load: &Load) -> Result<Vec<FileId>> {
    let top = format!("run-{}", now_since_epoch().as_nanos());
    let top = create(namespace, FileId::ROOT, &top, CreateKind::Directory).await?;
    let mut directories = Vec::new();
    for creator in 0..load.creators {
        directories.push(match load.directory {
            Directories::Shared => top,
            Directories::Own => {
                create(namespace, top, &format!("creator-{creator}"), CreateKind::Directory).await?
            }
        });
    }
    Ok(directories)
}

/// One creator: the next create begins when the last is answered.
async fn create_in(namespace: Arc<SqlNamespace>, dir: FileId, creator: u64, until: Until) -> Done {
    let mut done = Done::default();
    let mut tried = 0;
    while !until.is_reached(tried) {
        let (name, began) = (format!("file-{creator}-{tried}"), Instant::now());
        tried += 1;
        match create(&namespace, dir, &name, CreateKind::Regular).await {
            Ok(_) => done.latencies.add(began.elapsed()),
            Err(error) => {
                done.errors += 1;
                done.first_error.get_or_insert(error);
                // A refusal may come without any wait, and the others want to go on.
                tokio::task::yield_now().await;
            }
        }
    }
    done
}

async fn create(namespace: &SqlNamespace, dir: FileId, name: &str, kind: CreateKind) -> Result<FileId> {
    // A file is placed when it is created, as OPEN does it.
    let location = (kind == CreateKind::Regular).then_some(PoolId(1));
    let set = SetAttributes::default();
    let spec = CreateSpec { kind, mode: CreateMode::Guarded, permissions: 0o755, umask: None, set, location };
    let name = Name::new(name.as_bytes())?;
    Ok(namespace.create(&Identity::root(), dir, &name, &spec).await?.attributes.file)
}

/// Beside the figures every level has: CPU, the disk, and how near the rate came to what these allow.
fn report(arguments: &Arguments, done: Done, before_us: f64, after_us: f64) -> Report {
    let mut load = arguments.load.clone();
    if load.mode.is_empty() {
        load.mode = match arguments.sync {
            Durability::Always => "durable",
            Durability::Interval => "interval",
        }
        .to_owned();
    }
    let creates = done.latencies.len().max(1) as f64;
    let cpu_us = done.cpu.as_secs_f64() * 1e6 / creates;
    let group = load.creators.min(arguments.group_len_max);
    let sync_us = (arguments.sync == Durability::Always).then_some((before_us + after_us) / 2.0);
    let bound = bound_rate(cpu_us, group, sync_us);
    let report = Report::new("a", &load, load.creators, done.elapsed, done.latencies, done.errors);
    let share = report.rate / bound;
    report
        .with("cpu_us_per_create", rounded(cpu_us))
        .with("fdatasync_us", json!({"before": rounded(before_us), "after": rounded(after_us)}))
        .with("group_len_max", arguments.group_len_max)
        .with("consistency", arguments.consistency.name())
        .with("bound_rate", rounded(bound))
        .with("bound_share", rounded(share))
}

/// No more than a group of all who wait in the time of a sync, nor than one core can compute.
fn bound_rate(cpu_us: f64, group: u32, sync_us: Option<f64>) -> f64 {
    let by_cpu = 1e6 / cpu_us.max(1e-3);
    sync_us.map_or(by_cpu, |sync_us| by_cpu.min(f64::from(group) * 1e6 / sync_us.max(1e-3)))
}

/// Of an append of 4 KiB and `fdatasync`, as a commit to the log is.
fn sync_median_us(dir: &Path) -> Result<f64> {
    let path = dir.join("sync-probe");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).context("measure the disk")?;
    let measured = time_syncs(&mut file);
    fs::remove_file(&path).context("remove the probe of the disk")?;
    let mut times = measured.context("measure the disk")?;
    times.sort_unstable();
    Ok(times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1e6)
}

fn time_syncs(file: &mut File) -> std::io::Result<Vec<Duration>> {
    let (block, began) = ([0; 4096], Instant::now());
    let mut times = Vec::with_capacity(SYNCS);
    while times.len() < SYNCS && began.elapsed() < SYNCS_TIME_MAX {
        let at = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(at.elapsed());
    }
    Ok(times)
}

struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(now_since_epoch())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

fn now_since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api::Cookie;

    use super::*;

    fn arguments(dir: &Path, load: Load) -> Arguments {
        Arguments {
            load,
            namespace: NamespaceLocation::Sqlite(dir.to_owned()),
            sync: Durability::Interval,
            sync_interval_ms: 100,
            group_len_max: 4,
            consistency: Consistency::Soft,
        }
    }

    fn load(directory: Directories) -> Load {
        Load { creators: 3, directory, seconds: 0.0, count: Some(20), mode: String::new() }
    }

    /// How many entries each directory below the first of the root has, and how many it has itself.
    fn counted(dir: &Path) -> (usize, Vec<usize>) {
        let namespace = open(&arguments(dir, load(Directories::Shared))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let list = |dir| namespace.list(&ROOT, dir, Cookie::START, 100);
            let top = list(FileId::ROOT).await.unwrap().entries[0].attributes.file;
            let entries = list(top).await.unwrap().entries;
            let mut below = Vec::new();
            for entry in &entries {
                if let Ok(page) = list(entry.attributes.file).await {
                    below.push(page.entries.len());
                }
            }
            (entries.len(), below)
        })
    }

    static ROOT: std::sync::LazyLock<Identity> = std::sync::LazyLock::new(Identity::root);

    #[test]
    fn as_many_files_are_made_as_were_asked_for_in_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        let report = run(&arguments(dir.path(), load(Directories::Shared))).unwrap();
        assert_eq!((report.level, report.creates, report.errors), ("a", 20, 0));
        assert_eq!(report.mode, "interval");
        assert_eq!(counted(dir.path()), (20, vec![]));
    }

    #[test]
    fn creators_with_directories_of_their_own_share_the_count() {
        let dir = tempfile::tempdir().unwrap();
        run(&arguments(dir.path(), load(Directories::Own))).unwrap();
        assert_eq!(counted(dir.path()), (3, vec![7, 7, 6]));
    }

    #[test]
    fn a_second_run_in_the_same_namespace_makes_directories_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            assert_eq!(run(&arguments(dir.path(), load(Directories::Shared))).unwrap().errors, 0);
        }
    }

    #[test]
    fn a_place_is_a_directory_of_sqlite_or_a_url_of_postgresql() {
        assert_eq!("sqlite:/srv/x".parse(), Ok(NamespaceLocation::Sqlite("/srv/x".into())));
        let url = "postgres://host/db";
        assert_eq!(url.parse(), Ok(NamespaceLocation::Postgres(url.to_owned())));
        for bad in ["", "sqlite:", "/srv/x"] {
            assert!(bad.parse::<NamespaceLocation>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_bound_is_the_lower_of_disk_and_cpu() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b;
        assert!(near(bound_rate(10.0, 1, Some(200.0)), 5_000.0));
        assert!(near(bound_rate(10.0, 64, Some(200.0)), 100_000.0));
        assert!(near(bound_rate(10.0, 64, None), 100_000.0));
    }
}
