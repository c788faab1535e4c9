//! How long single operations take in a namespace of a given size: the paper's table 1, of the namespace crate alone.
//!
//! The tree is the one that `bench/scale/listing` makes; its names are known here. One caller asks, one question after
//! the other. *Cold* is the first time after the namespace was opened, so out of the database, whose pages the operating
//! system may have; *warm* is the same once more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{Cookie, CreateKind, CreateMode, CreateSpec, ExpectedFile, Locations, Namespace, SetAttributes};
use clap::Args;
use namespace::{SqlNamespace, Sync};
use serde_json::{Map, Value, json};
use types::{FileId, Identity, Name};

use crate::engine::{Durability, NamespaceLocation, open_at};
use crate::report::{rank, rounded};

/// As `bench/scale/listing` has them.
const FILES_PER_DIRECTORY: u64 = 500;
const DIRECTORIES_PER_GROUP: u64 = 1000;
const LISTED_DIRECTORIES: u64 = 100;
const LISTED: usize = 286;

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// sqlite:DIRECTORY or postgres://..., with the tree in it.
    #[arg(long)]
    namespace: NamespaceLocation,
    /// Files of the tree, 500 in a directory.
    #[arg(long)]
    files: u64,
    /// Files of the one large directory.
    #[arg(long)]
    wide: u64,
    /// How often each question is asked.
    #[arg(long, default_value_t = 20_000)]
    questions: u64,
    /// How often each change is made; they are few a second where each waits for the disk.
    #[arg(long, default_value_t = 2_000)]
    changes: u64,
    #[arg(long, value_enum, default_value_t = Durability::Always)]
    sync: Durability,
}

pub fn run(arguments: &Arguments) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start tokio")?;
    let mut rows = Map::new();
    for place in [Where::Tree, Where::Wide] {
        let sample = Sample { place, arguments };
        for (row, times) in runtime.block_on(sample.measure())? {
            rows.insert(format!("{} {row}", place.name()), times.summary());
        }
    }
    Ok(json!({"files": arguments.files, "wide": arguments.wide, "rows": rows}))
}

/// Nanoseconds of each: what is warm takes less than one microsecond.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    fn add(&mut self, took: Duration) {
        self.0.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    fn summary(mut self) -> Value {
        self.0.sort_unstable();
        let us = |share| rounded(rank(&self.0, share) as f64 / 1e3);
        let mean = self.0.iter().sum::<u64>() as f64 / self.0.len().max(1) as f64;
        json!({
            "count": self.0.len(), "mean_us": rounded(mean / 1e3), "p50_us": us(0.5), "p99_us": us(0.99), "max_us": us(1.0),
        })
    }
}

type Rows = Vec<(&'static str, Times)>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Tree,
    Wide,
}

impl Where {
    fn name(self) -> &'static str {
        match self {
            Where::Tree => "tree",
            Where::Wide => "wide",
        }
    }
}

struct Sample<'a> {
    place: Where,
    arguments: &'a Arguments,
}

impl Sample<'_> {
    fn open(&self) -> Result<Arc<SqlNamespace>> {
        let sync = match self.arguments.sync {
            Durability::Always => Sync::Always,
            Durability::Interval => Sync::Interval(Duration::from_secs(1)),
        };
        open_at(&self.arguments.namespace, sync, 512)
    }

    async fn measure(&self) -> Result<Rows> {
        let mut rows = Rows::new();
        let namespace = self.open()?;
        let asked = self.asked(&namespace).await?;
        let mut files = Vec::new();
        for row in ["lookup cold", "lookup warm"] {
            files.clear();
            let mut times = Times::default();
            for (dir, name) in &asked {
                let began = Instant::now();
                let found = namespace.lookup(&ROOT, *dir, name).await;
                times.add(began.elapsed());
                files.push(found.with_context(|| format!("look up {name}"))?.entry.file);
            }
            rows.push((row, times));
        }
        namespace.close().await;
        // With it goes the lock.
        drop(namespace);

        let namespace = self.open()?;
        for row in ["getattr cold", "getattr warm"] {
            let mut times = Times::default();
            for file in &files {
                let began = Instant::now();
                namespace.attributes(*file).await?;
                times.add(began.elapsed());
            }
            rows.push((row, times));
        }
        rows.extend(self.lists(&namespace).await?);
        rows.push(("update", self.updates(&namespace, &files).await?));
        let (create, delete) = self.creates(&namespace, &asked).await?;
        rows.extend([("create", create), ("delete", delete)]);
        namespace.close().await;
        Ok(rows)
    }

    /// Directory and name of files all over the tree, whose directories were met before.
    async fn asked(&self, namespace: &SqlNamespace) -> Result<Vec<(FileId, Name)>> {
        let mut asked = Vec::new();
        for number in 0..self.arguments.questions {
            asked.push(match self.place {
                Where::Tree => {
                    let file = scattered(number, self.arguments.files);
                    let directory = file / FILES_PER_DIRECTORY;
                    let group = format!("{:04}", directory / DIRECTORIES_PER_GROUP);
                    let inner = format!("{:03}", directory % DIRECTORIES_PER_GROUP);
                    (walk(namespace, &["t", &group, &inner]).await?, name(&format!("f{file:09}"))?)
                }
                Where::Wide => {
                    let file = scattered(number, self.arguments.wide);
                    (walk(namespace, &["wide"]).await?, name(&format!("f{file:09}"))?)
                }
            });
        }
        Ok(asked)
    }

    /// Of directories of 286 entries, or as many out of the middle of the large one.
    async fn lists(&self, namespace: &SqlNamespace) -> Result<Rows> {
        let mut first = Times::default();
        let mut again = Times::default();
        for times in [&mut first, &mut again] {
            let mut after = Cookie::START;
            for number in 0..LISTED_DIRECTORIES {
                let dir = match self.place {
                    Where::Tree => walk(namespace, &["286", &format!("{number:03}")]).await?,
                    Where::Wide => walk(namespace, &["wide"]).await?,
                };
                let began = Instant::now();
                let page = namespace.list(&ROOT, dir, after, LISTED).await?;
                times.add(began.elapsed());
                ensure!(page.entries.len() == LISTED, "a directory of {LISTED} has {}", page.entries.len());
                if let (Where::Wide, Some(last)) = (self.place, page.entries.last()) {
                    after = last.cookie;
                }
            }
        }
        Ok(vec![("list 286 first", first), ("list 286 again", again)])
    }

    async fn updates(&self, namespace: &SqlNamespace, files: &[FileId]) -> Result<Times> {
        let mut times = Times::default();
        for (file, mode) in
            files.iter().zip([0o600, 0o640].into_iter().cycle()).take(self.arguments.changes as usize)
        {
            let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            let began = Instant::now();
            namespace.set_attributes(&ROOT, *file, &set).await?;
            times.add(began.elapsed());
        }
        Ok(times)
    }

    /// And what was created is removed again.
    async fn creates(&self, namespace: &SqlNamespace, asked: &[(FileId, Name)]) -> Result<(Times, Times)> {
        let spec = CreateSpec {
            kind: CreateKind::Regular,
            mode: CreateMode::Guarded,
            permissions: 0o644,
            umask: None,
            set: SetAttributes::default(),
            location: None,
        };
        let (mut creates, mut deletes, mut made) = (Times::default(), Times::default(), Vec::new());
        let places = asked.iter().take(self.arguments.changes as usize);
        for (number, (dir, _)) in places.clone().enumerate() {
            let name = name(&format!("new-{number}"))?;
            let began = Instant::now();
            let created = namespace.create(&ROOT, *dir, &name, &spec).await?;
            creates.add(began.elapsed());
            made.push((name, created.attributes.file));
        }
        for ((dir, _), (name, _)) in places.zip(&made) {
            let began = Instant::now();
            namespace.unlink(&ROOT, *dir, name, ExpectedFile::Any).await?;
            deletes.add(began.elapsed());
        }
        let files: Vec<FileId> = made.iter().map(|(_, file)| *file).collect();
        namespace.forget(&files).await?;
        Ok((creates, deletes))
    }
}

static ROOT: std::sync::LazyLock<Identity> = std::sync::LazyLock::new(Identity::root);

fn name(text: &str) -> Result<Name> {
    Ok(Name::new(text.as_bytes())?)
}

async fn walk(namespace: &SqlNamespace, path: &[&str]) -> Result<FileId> {
    let mut at = FileId::ROOT;
    for part in path {
        let found = namespace.lookup(&ROOT, at, &name(part)?).await;
        at = found
            .with_context(|| format!("there is no {}: was it made by bench/scale?", path.join("/")))?
            .entry
            .file;
    }
    Ok(at)
}

/// The numbers below `count` in an order without a pattern, the same in every run; each once if there are not more.
fn scattered(number: u64, count: u64) -> u64 {
    // A step that has no divisor in common with any count that is not its multiple.
    const STEP: u64 = 2_654_435_761;
    (u128::from(number) * u128::from(STEP) % u128::from(count.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_is_met_once() {
        let met: BTreeSet<u64> = (0..10_000).map(|number| scattered(number, 10_000)).collect();
        assert_eq!(met.len(), 10_000);
    }

    #[test]
    fn times_are_told_in_microseconds_with_three_places() {
        let mut times = Times::default();
        (1..=200).for_each(|us| times.add(Duration::from_nanos(us * 1500)));
        let expected =
            json!({"count": 200, "mean_us": 150.75, "p50_us": 150.0, "p99_us": 297.0, "max_us": 300.0});
        assert_eq!(times.summary(), expected);
    }
}
