//! A process killed with `kill -9` while it creates and publishes: what it acknowledged is there, whole, what it did
//! not publish is an orphan, and no id is given twice.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use api::{CreateKind, Locations, Namespace, Properties, Publish, Replace, Stability, Unnamed, Uploads};
use forebay_namespace::{Config, Database, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::namespace_suite::{name, root, spec, written};
use types::{Checksum, ChecksumKind, FileId, PoolId};

const CHILD_DIR: &str = "FOREBAY_KILL_TEST_DIR";
const ROUNDS: usize = 6;

fn open(dir: &Path) -> SqlNamespace {
    SqlNamespace::open(Config {
        database: Database::Sqlite(dir.to_owned()),
        clock: Arc::new(ManualClock::new(1_000_000)),
        root_owner: (0, 0),
        sync: Sync::Always,
        cache_bytes: 1 << 20,
        queue_len_max: 64,
        group_len_max: 16,
    })
    .unwrap()
}

/// Of a file published with this size.
fn sum(size: u64) -> Checksum {
    Checksum::new(ChecksumKind::Adler32, &(size as u32).to_be_bytes()).unwrap()
}

async fn unnamed(namespace: &SqlNamespace) -> FileId {
    let new = Unnamed { permissions: 0o644, location: PoolId(1) };
    namespace.create_unnamed(&root(), FileId::ROOT, &new).await.unwrap().file
}

/// Publishes one file under a name of its own, one over what its task published before, and leaves one as it is.
async fn publish(namespace: &SqlNamespace, text: &str, hot: &str, number: u64) {
    for (text, replace) in [(text, Replace::Never), (hot, Replace::Any)] {
        let file = unnamed(namespace).await;
        let checksums = vec![sum(number)];
        let how = Publish { size: number, space_used: 0, mtime: None, checksums, replace };
        let shown =
            namespace.publish(&root(), file, FileId::ROOT, &name(text), &how).await.unwrap().attributes;
        println!("made {text} {} {}", file.0, shown.change);
    }
    println!("unnamed {}", unnamed(namespace).await.0);
}

async fn create(namespace: &SqlNamespace, text: &str, number: u64) {
    let regular = spec(CreateKind::Regular, 0o644);
    let made = namespace.create(&root(), FileId::ROOT, &name(text), &regular).await.unwrap();
    let file = made.attributes.file;
    let shown = namespace.record_write(file, &written(number + 1, Stability::Unstable)).await.unwrap();
    println!("made {text} {} {}", file.0, shown.change);
}

/// Not a test by itself: the process that is killed. Says each name when it is acknowledged, with its id and change.
#[test]
fn child_creates_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let namespace = Arc::new(open(Path::new(&dir)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let round = std::env::var("FOREBAY_KILL_TEST_ROUND").unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for task in 0..8 {
            let (namespace, round) = (Arc::clone(&namespace), round.clone());
            tasks.push(tokio::spawn(async move {
                for number in 0.. {
                    let text = format!("r{round}t{task}n{number}");
                    if task % 2 == 0 {
                        create(&namespace, &text, number).await;
                    } else {
                        publish(&namespace, &format!("p{text}"), &format!("hot{task}"), number).await;
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn acknowledged_changes_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut ids = HashSet::new();
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_creates_until_it_is_killed", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .env("FOREBAY_KILL_TEST_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut count = 0;
        while count < 100 + 150 * round {
            let line = lines.next().expect("the child creates until it is killed").unwrap();
            count += usize::from(note(&line, &mut told));
        }
        child.kill().unwrap();
        // Lines that it printed before the kill count, too; the last one may be torn.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        for line in rest.iter().take(rest.len().saturating_sub(1)) {
            note(line, &mut told);
        }
        child.wait().unwrap();
        verify(dir.path(), &told);
    }
    for (text, id, _) in &told.made {
        assert!(ids.insert(*id), "the id of {text} was given twice");
    }
}

#[derive(Default)]
struct Told {
    /// Name, id, change.
    made: Vec<(String, u64, u64)>,
    unnamed: Vec<u64>,
}

fn note(line: &str, told: &mut Told) -> bool {
    if let Some(id) = line.split("unnamed ").nth(1) {
        told.unnamed.push(id.trim().parse().unwrap());
        return true;
    }
    let Some(rest) = line.split("made ").nth(1) else { return false };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [text, id, change] = words[..] else { return false };
    told.made.push((text.to_owned(), id.parse().unwrap(), change.parse().unwrap()));
    true
}

fn verify(dir: &Path, told: &Told) {
    let namespace = open(dir);
    assert_eq!(namespace.check().unwrap(), []);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        // Of a name that was published repeatedly, the last acknowledged file; a later one may be there.
        let last: HashMap<&str, (u64, u64)> =
            told.made.iter().map(|(text, id, change)| (text.as_str(), (*id, *change))).collect();
        for (text, (id, change)) in last {
            let found = namespace.lookup(&root(), FileId::ROOT, &name(text)).await.unwrap().entry;
            let is_hot = text.starts_with("hot");
            assert!(found.file.0 == id || is_hot && found.file.0 > id, "{text}");
            let now = found.change;
            assert!(now >= change, "change of {text} went backwards: {change:#x} to {now:#x}");
            if text.starts_with('p') || is_hot {
                assert_eq!(namespace.checksums(found.file).await.unwrap(), [sum(found.size)], "{text}");
            }
        }
        let orphans = orphans(&namespace).await;
        for id in &told.unnamed {
            assert!(orphans.contains(&FileId(*id)), "{id} is there and has no name");
        }
        namespace.close().await;
    });
}

async fn orphans(namespace: &SqlNamespace) -> HashSet<FileId> {
    let mut all = HashSet::new();
    let mut after = FileId(0);
    loop {
        let page = namespace.orphans(after, 1000).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = last.attributes.file;
        for orphan in page {
            let pools: Vec<PoolId> = orphan.locality.pools().collect();
            assert_eq!(pools, [PoolId(1)], "or its bytes would never be freed");
            all.insert(orphan.attributes.file);
        }
    }
}
