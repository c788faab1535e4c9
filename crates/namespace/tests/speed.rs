//! Measurements, not tests: `cargo test --release --test speed -- --ignored --nocapture`.
//!
//! The bound of a durable create is one sync of the log; of creates in groups, the CPU of the committer; of a warm
//! read, a hash lookup. CPU is that of the whole process, callers included.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{
    Cookie, CreateKind, ExpectedFile, Namespace, Properties, Property, PropertyChange, Publish, Replace,
    SetAttributes, Stability, Unnamed, Uploads,
};
use forebay_namespace::{Config, Database, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::namespace_suite::{name, root, spec, written};
use types::{Checksum, ChecksumKind, FileId, PoolId};

fn open(dir: &std::path::Path, sync: Sync) -> Arc<SqlNamespace> {
    let config = Config {
        database: Database::Sqlite(dir.to_owned()),
        clock: Arc::new(ManualClock::new(1_000_000)),
        root_owner: (0, 0),
        sync,
        cache_bytes: 256 << 20,
        queue_len_max: 4096,
        group_len_max: 64,
    };
    Arc::new(SqlNamespace::open(config).unwrap())
}

/// Of this process, user and system, in clock ticks of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

struct Lap {
    what: String,
    count: u32,
    began: Instant,
    cpu: Duration,
}

impl Lap {
    fn begin(what: impl Into<String>, count: u32) -> Lap {
        Lap { what: what.into(), count, began: Instant::now(), cpu: cpu() }
    }

    fn end(self) {
        let (wall, used) = (self.began.elapsed(), cpu() - self.cpu);
        println!(
            "{:<44} {:>9.0}/s {:>8.2} us wall {:>8.2} us CPU each",
            self.what,
            f64::from(self.count) / wall.as_secs_f64(),
            wall.as_secs_f64() * 1e6 / f64::from(self.count),
            used.as_secs_f64() * 1e6 / f64::from(self.count),
        );
    }
}

async fn concurrently<F, Fut>(tasks: u32, each: u32, work: F)
where
    F: Fn(u32) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let handles: Vec<_> = (0..tasks)
        .map(|task| {
            let jobs: Vec<Fut> = (0..each).map(|number| work(task * each + number)).collect();
            tokio::spawn(async move {
                for job in jobs {
                    job.await;
                }
            })
        })
        .collect();
    for handle in handles {
        handle.await.unwrap();
    }
}

async fn measure(sync: Sync) {
    println!("sync = {sync:?}");
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(dir.path(), sync);
    let regular = || spec(CreateKind::Regular, 0o644);

    let lap = Lap::begin("create, one at a time", 1000);
    for number in 0..1000 {
        namespace.create(&root(), FileId::ROOT, &name(&format!("single{number}")), &regular()).await.unwrap();
    }
    lap.end();

    for tasks in [8, 64, 256] {
        let each = 40_000 / tasks;
        let lap = Lap::begin(format!("create, {tasks} at a time, one directory"), tasks * each);
        concurrently(tasks, each, |number| {
            let namespace = Arc::clone(&namespace);
            async move {
                let text = name(&format!("file-{tasks}-{number}"));
                namespace.create(&root(), FileId::ROOT, &text, &regular()).await.unwrap();
            }
        })
        .await;
        lap.end();
    }

    uploads(&namespace).await;

    let lap = Lap::begin("set mode, 64 at a time", 64 * 500);
    concurrently(64, 500, |number| {
        let namespace = Arc::clone(&namespace);
        async move {
            let file = namespace
                .lookup(&root(), FileId::ROOT, &name(&format!("file-64-{number}")))
                .await
                .unwrap()
                .entry
                .file;
            let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
            namespace.set_attributes(&root(), file, &set).await.unwrap();
        }
    })
    .await;
    lap.end();

    reads(&namespace).await;

    let lap = Lap::begin("unlink, 64 at a time", 64 * 500);
    concurrently(64, 500, |number| {
        let namespace = Arc::clone(&namespace);
        async move {
            namespace
                .unlink(&root(), FileId::ROOT, &name(&format!("file-64-{number}")), ExpectedFile::Any)
                .await
                .unwrap();
        }
    })
    .await;
    lap.end();
    namespace.close().await;
    drop(namespace);
    let namespace = open(dir.path(), sync);
    let lap = Lap::begin("lookup, cold", 20_000);
    for number in 0..20_000 {
        namespace.lookup(&root(), FileId::ROOT, &name(&format!("file-256-{number}"))).await.unwrap();
    }
    lap.end();
}

async fn publish(namespace: &SqlNamespace, dir: FileId, text: &str) -> FileId {
    let new = Unnamed { permissions: 0o644, location: PoolId(1) };
    let file = namespace.create_unnamed(&root(), dir, &new).await.unwrap().file;
    let checksums = vec![Checksum::new(ChecksumKind::Adler32, &[1, 2, 3, 4]).unwrap()];
    let how = Publish { size: 1, space_used: 1, mtime: None, checksums, replace: Replace::Any };
    namespace.publish(&root(), file, dir, &name(text), &how).await.unwrap();
    file
}

/// A PUT as the namespace sees it: an unnamed file and its publication, two groups one after the other.
async fn uploads(namespace: &Arc<SqlNamespace>) {
    let directory = spec(CreateKind::Directory, 0o755);
    let made = namespace.create(&root(), FileId::ROOT, &name("published"), &directory).await.unwrap();
    let dir = made.attributes.file;
    let lap = Lap::begin("unnamed and published, one at a time", 1000);
    for number in 0..1000 {
        publish(namespace, dir, &format!("published{number}")).await;
    }
    lap.end();
    for (tasks, what) in [(8, "new"), (64, "new"), (64, "replacing"), (256, "new")] {
        let each = 40_000 / tasks;
        let lap = Lap::begin(format!("unnamed and published, {tasks} at a time, {what}"), tasks * each);
        concurrently(tasks, each, |number| {
            let namespace = Arc::clone(namespace);
            async move {
                publish(&namespace, dir, &format!("published-{tasks}-{number}")).await;
            }
        })
        .await;
        lap.end();
    }
    let file = publish(namespace, dir, "attached").await;
    let lap = Lap::begin("checksums of a file that has some", 30_000);
    for _ in 0..30_000 {
        assert_eq!(namespace.checksums(file).await.unwrap().len(), 1);
    }
    lap.end();
    let lap = Lap::begin("properties of a file without any", 300_000);
    for _ in 0..300_000 {
        assert!(namespace.properties(file).await.unwrap().is_empty());
    }
    lap.end();
    let lap = Lap::begin("set one property, 64 at a time", 64 * 200);
    concurrently(64, 200, |number| {
        let namespace = Arc::clone(namespace);
        async move {
            let text = name(&format!("published-64-{number}"));
            let file = namespace.lookup(&root(), dir, &text).await.unwrap().entry.file;
            let property = Property { name: "{DAV:}colour".to_owned(), value: "red".into() };
            namespace.set_properties(&root(), file, &[PropertyChange::Set(property)]).await.unwrap();
        }
    })
    .await;
    lap.end();
}

async fn reads(namespace: &SqlNamespace) {
    let names: Vec<_> = (0..30_000).map(|number| name(&format!("file-64-{number}"))).collect();
    let lap = Lap::begin("lookup, warm", 300_000);
    for _ in 0..10 {
        for name in &names {
            namespace.lookup(&root(), FileId::ROOT, name).await.unwrap();
        }
    }
    lap.end();
    let missing = name("missing");
    let _ = namespace.lookup(&root(), FileId::ROOT, &missing).await;
    let lap = Lap::begin("lookup, warm, of what is not there", 300_000);
    for _ in 0..300_000 {
        let _ = namespace.lookup(&root(), FileId::ROOT, &missing).await;
    }
    lap.end();
    let lap = Lap::begin("listed entries with attributes", 121_000);
    let mut after = Cookie::START;
    loop {
        let page = namespace.list(&root(), FileId::ROOT, after, 1000).await.unwrap();
        if page.is_last {
            break;
        }
        after = page.entries.last().unwrap().cookie;
    }
    lap.end();
    let file = namespace.lookup(&root(), FileId::ROOT, &name("single1")).await.unwrap().entry.file;
    let lap = Lap::begin("record_write, unstable", 300_000);
    for size in 0..300_000 {
        namespace.record_write(file, &written(size, Stability::Unstable)).await.unwrap();
    }
    lap.end();
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        measure(Sync::Always).await;
        measure(Sync::Interval(Duration::from_millis(100))).await;
    });
}
