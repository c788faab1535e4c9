//! A process killed with `kill -9` while deltas of directories wait to be folded: link counts, times and change attributes are
//! those that its acknowledged operations made.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use api::{Consistency, CreateKind, Directories, ExpectedFile, Namespace, NamespaceError};
use forebay_namespace::{Config, Database, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::namespace_suite::{at, name, root, spec};
use types::{Attributes, FileId};

const CHILD_DIR: &str = "FOREBAY_KILLED_DIRECTORIES";
const ROUNDS: i64 = 4;
const MODES: [Consistency; 4] = Consistency::ALL;

fn open(dir: &Path, clock: Arc<ManualClock>) -> SqlNamespace {
    SqlNamespace::open(Config {
        database: Database::Sqlite(dir.to_owned()),
        clock,
        root_owner: (0, 0),
        sync: Sync::Always,
        cache_bytes: 4 << 10,
        queue_len_max: 64,
        group_len_max: 16,
    })
    .unwrap()
}

async fn directory(namespace: &SqlNamespace, mode: Consistency) -> Attributes {
    match namespace.lookup(&root(), FileId::ROOT, &name(mode.name())).await {
        Err(NamespaceError::NotFound) => {}
        found => return found.unwrap().entry,
    }
    let folder = spec(CreateKind::Directory, 0o755);
    let made = namespace.create(&root(), FileId::ROOT, &name(mode.name()), &folder).await.unwrap();
    namespace.set_consistency(made.attributes.file, Some(mode)).await.unwrap();
    made.attributes
}

/// Not a test by itself: the process that is killed. Says what each operation left of its directory, and when.
#[test]
fn child_makes_directories_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let begin: i64 = std::env::var("FOREBAY_KILLED_ROUND").unwrap().parse().unwrap();
    let clock = Arc::new(ManualClock::new(begin));
    let namespace = Arc::new(open(Path::new(&dir), clock.clone()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let (mut dirs, mut tasks) = (Vec::new(), Vec::new());
        for mode in MODES {
            dirs.push(directory(&namespace, mode).await.file);
        }
        for task in 0..8 {
            let (namespace, clock) = (Arc::clone(&namespace), Arc::clone(&clock));
            let (mode, dir) = (MODES[task % MODES.len()], dirs[task % MODES.len()]);
            tasks.push(tokio::spawn(async move {
                let folder = spec(CreateKind::Directory, 0o755);
                for number in 0.. {
                    let time = clock.seconds();
                    let text = name(&format!("{begin}-{task}-{number}"));
                    let made = namespace.create(&root(), dir, &text, &folder).await.unwrap();
                    println!("did {} {} {time}", mode.name(), made.parent.after);
                    if number % 3 == 0 {
                        let gone = namespace.unlink(&root(), dir, &text, ExpectedFile::Any).await.unwrap();
                        println!("did {} {} {time}", mode.name(), gone.parent.after);
                    }
                    clock.advance(1);
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// The last acknowledged change attribute and time of each directory.
type Told = [(u64, i64); MODES.len()];

fn note(line: &str, told: &mut Told) -> bool {
    let Some(rest) = line.split("did ").nth(1) else { return false };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [mode, change, time] = words[..] else { return false };
    let mode = MODES.iter().position(|known| known.name() == mode).unwrap();
    told[mode].0 = told[mode].0.max(change.parse().unwrap());
    told[mode].1 = told[mode].1.max(time.parse().unwrap());
    true
}

#[test]
fn directory_attributes_never_go_backwards_over_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut told = Told::default();
    for round in 1..=ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_makes_directories_until_it_is_killed", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .env("FOREBAY_KILLED_ROUND", (round * 1_000_000).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut count = 0;
        while count < 400 {
            let line = lines.next().expect("the child goes on until it is killed").unwrap();
            count += i64::from(note(&line, &mut told));
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
}

fn verify(dir: &Path, told: &Told) {
    let namespace = open(dir, Arc::new(ManualClock::new(1)));
    // Link counts among the rest.
    assert_eq!(namespace.check().unwrap(), []);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for (mode, (change, time)) in MODES.into_iter().zip(told) {
            let shown = directory(&namespace, mode).await;
            let name = mode.name();
            assert!(shown.change >= *change, "change of {name}: {:#x} after {change:#x}", shown.change);
            assert!(shown.mtime >= at(*time) && shown.ctime >= at(*time), "times of {name}");
        }
        namespace.close().await;
    });
}
