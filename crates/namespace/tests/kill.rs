//! A process killed with `kill -9` while it creates: what it acknowledged is there, and no id is given twice.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use api::{CreateKind, Namespace, Stability};
use forebay_namespace::{Config, SqliteNamespace, Sync};
use testkit::namespace_suite::{HandClock, name, root, spec, written};
use types::FileId;

const CHILD_DIR: &str = "FOREBAY_KILL_TEST_DIR";
const ROUNDS: usize = 6;

fn open(dir: &Path) -> SqliteNamespace {
    SqliteNamespace::open(Config {
        dir: dir.to_owned(),
        clock: Arc::new(HandClock::new(1_000_000)),
        root_owner: (0, 0),
        sync: Sync::Always,
        cache_entries: 1000,
        queue_len_max: 64,
        group_len_max: 16,
    })
    .unwrap()
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
                    let regular = spec(CreateKind::Regular, 0o644);
                    let made = namespace.create(&root(), FileId::ROOT, &name(&text), &regular).await.unwrap();
                    let file = made.attributes.file;
                    let shown =
                        namespace.commit(file, &written(number + 1, Stability::Unstable)).await.unwrap();
                    println!("made {text} {} {}", file.0, shown.change);
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut ids = HashSet::new();
    let mut told: Vec<(String, u64, u64)> = Vec::new();
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
        // What it said before it died counts, too; the last line may be torn.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        for line in rest.iter().take(rest.len().saturating_sub(1)) {
            note(line, &mut told);
        }
        child.wait().unwrap();
        verify(dir.path(), &told);
    }
    for (text, id, _) in &told {
        assert!(ids.insert(*id), "the id of {text} was given twice");
    }
}

fn note(line: &str, told: &mut Vec<(String, u64, u64)>) -> bool {
    let Some(rest) = line.split("made ").nth(1) else { return false };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [text, id, change] = words[..] else { return false };
    told.push((text.to_owned(), id.parse().unwrap(), change.parse().unwrap()));
    true
}

fn verify(dir: &Path, told: &[(String, u64, u64)]) {
    let namespace = open(dir);
    assert_eq!(namespace.check().unwrap(), []);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for (text, id, change) in told {
            let found = namespace.lookup(&root(), FileId::ROOT, &name(text)).await.unwrap();
            assert_eq!(found.file.0, *id, "{text}");
            assert!(
                found.change >= *change,
                "change of {text} went backwards: {change:#x} to {:#x}",
                found.change
            );
        }
        namespace.close().await;
    });
}
