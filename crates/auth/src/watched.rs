//! A small file that people edit: read again when it changes, and kept as it was when the change makes no sense.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use durable::WatchedFiles;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use types::Clock;

/// How long a change may go unseen.
const LOOK_INTERVAL_S: u64 = 1;
/// Between two looks that callers ask for.
const ASKED_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Ten thousands of lines; whatever is larger is not such a file.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// A file that is not there is an empty one: taking it away is a way to say that nobody is known.
pub struct Watched<T> {
    path: Option<PathBuf>,
    parse: fn(&str) -> Result<T, String>,
    clock: Arc<dyn Clock>,
    /// In seconds of the monotonic clock. The thread that advances it looks at the file.
    next_look_s: AtomicU64,
    /// When the last look began that a caller asked for. Held during such a look, so that those who ask meanwhile share
    /// the next one. Guards nothing else.
    asked_look: tokio::sync::Mutex<Option<Instant>>,
    /// Held while the file is read again.
    file: Mutex<WatchedFiles>,
    /// Guards the pointer alone.
    value: RwLock<Arc<T>>,
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Fails when the file is there and cannot be understood, with its path and line in the words. Without a path the
    /// value is that of an empty file, for good.
    pub fn open(
        path: Option<&Path>,
        parse: fn(&str) -> Result<T, String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Watched<T>>, String> {
        let file = WatchedFiles::new(path.map(Path::to_path_buf));
        let bytes = match path {
            Some(path) => read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            None => Vec::new(),
        };
        let value = text(bytes).and_then(|text| parse(&text)).map_err(|error| located(path, &error))?;
        let next_look_s = AtomicU64::new(clock.monotonic().as_secs() + LOOK_INTERVAL_S);
        Ok(Arc::new(Watched {
            path: path.map(Path::to_path_buf),
            parse,
            clock,
            next_look_s,
            asked_look: tokio::sync::Mutex::default(),
            file: Mutex::new(file),
            value: RwLock::new(Arc::new(value)),
        }))
    }

    /// The value of the file as it was within the last second. Disk is touched off the async threads.
    pub async fn current(self: &Arc<Self>) -> Arc<T> {
        if self.is_look_due() {
            self.look_aside().await;
        }
        self.value.read().clone()
    }

    /// The value of the file as it is now. Looks are [`ASKED_LOOK_INTERVAL`] apart, however many callers ask: a caller may
    /// wait for that long.
    pub async fn fresh(self: &Arc<Self>) -> Arc<T> {
        if self.path.is_some() {
            let since = Instant::now();
            let mut asked = self.asked_look.lock().await;
            if asked.is_none_or(|begun| begun < since) {
                if let Some(begun) = *asked {
                    tokio::time::sleep_until(begun + ASKED_LOOK_INTERVAL).await;
                }
                *asked = Some(Instant::now());
                self.look_aside().await;
            }
        }
        self.value.read().clone()
    }

    async fn look_aside(self: &Arc<Self>) {
        let this = self.clone();
        // A failure to run the closure means that the runtime stops; what is known serves until then.
        let _ = tokio::task::spawn_blocking(move || this.look()).await;
    }

    fn is_look_due(&self) -> bool {
        let now: Duration = self.clock.monotonic();
        let due = self.next_look_s.load(Ordering::Relaxed);
        self.path.is_some()
            && now.as_secs() >= due
            && self
                .next_look_s
                .compare_exchange(due, now.as_secs() + LOOK_INTERVAL_S, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    fn look(&self) {
        let Some(path) = &self.path else { return };
        let mut file = self.file.lock();
        if !file.have_changed() {
            return;
        }
        let outcome = read(path).map(|bytes| {
            let value = text(bytes).and_then(|text| (self.parse)(&text));
            value.map_err(|error| located(Some(path), &error))
        });
        match outcome {
            Ok(Ok(value)) => {
                *self.value.write() = Arc::new(value);
                tracing::info!(path = %path.display(), "read again");
            }
            // The file is not looked at again until it changes, so that one mistake is told once.
            Ok(Err(error)) => tracing::error!(%error, "what the file said before stays in force"),
            Err(error) => {
                file.forget();
                tracing::error!(path = %path.display(), %error, "cannot read; what it said before stays in force");
            }
        }
    }
}

fn located(path: Option<&Path>, error: &str) -> String {
    match path {
        Some(path) => format!("{}:{error}", path.display()),
        None => error.to_owned(),
    }
}

/// The content as text; if it is no UTF-8, the error begins with the number of the line.
pub fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{line}: is not text in UTF-8; correct or remove the line")
    })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.by_ref().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::clock::ManualClock;

    fn number(text: &str) -> Result<u32, String> {
        if text.is_empty() { Ok(0) } else { text.trim().parse().map_err(|_| "1: not a number".to_owned()) }
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again_and_a_broken_one_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let clock = Arc::new(ManualClock::new(1_000));
        let watched = Watched::open(Some(&path), number, clock.clone()).unwrap();
        assert_eq!(*watched.current().await, 0, "no file is an empty file");

        fs::write(&path, "1").unwrap();
        assert_eq!(*watched.current().await, 0, "not looked at within a second");
        clock.advance(2);
        assert_eq!(*watched.current().await, 1);

        fs::write(&path, "one").unwrap();
        clock.advance(2);
        assert_eq!(*watched.current().await, 1);

        fs::remove_file(&path).unwrap();
        clock.advance(2);
        assert_eq!(*watched.current().await, 0);
    }

    #[tokio::test]
    async fn looks_that_callers_ask_for_see_each_change_and_keep_their_distance() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let watched = Watched::open(Some(&path), number, Arc::new(ManualClock::new(1_000))).unwrap();
        let since = Instant::now();
        // Of different lengths: times of changes may be as coarse as the kernel's tick.
        for (before, content) in [(0, 1), (1, 22), (22, 333)] {
            fs::write(&path, content.to_string()).unwrap();
            assert_eq!(*watched.current().await, before, "the clock stands still");
            assert_eq!(*watched.fresh().await, content);
        }
        assert!(since.elapsed() >= 2 * ASKED_LOOK_INTERVAL, "{:?}", since.elapsed());
    }

    #[tokio::test]
    async fn callers_that_ask_during_a_look_share_the_next_one() {
        use std::task::Poll;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let watched = Watched::open(Some(&path), number, Arc::new(ManualClock::new(1_000))).unwrap();
        let since = Instant::now();
        let mut asking: Vec<_> = (0..50).map(|_| Box::pin(watched.fresh())).collect();
        // The first begins to look at once.
        std::future::poll_fn(|context| {
            assert!(asking.iter_mut().all(|one| one.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;
        for one in asking {
            one.await;
        }
        let begun = watched.asked_look.lock().await.expect("there was a look");
        // One look each would have begun the last of them after 49 intervals.
        assert!(begun - since < 10 * ASKED_LOOK_INTERVAL, "{:?}", begun - since);
    }

    #[test]
    fn a_broken_file_at_the_start_is_told_with_its_path_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let error = Watched::open(Some(&path), number, Arc::new(ManualClock::new(0))).err().unwrap();
        assert_eq!(error, format!("{}:1: not a number", path.display()));
    }

    /// It was "stream did not contain valid UTF-8", once a second while the server ran.
    #[tokio::test]
    async fn a_file_that_is_no_text_is_refused_with_its_line_and_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"1\n2\n\xff\n").unwrap();
        let clock = Arc::new(ManualClock::new(1_000));
        let error = Watched::open(Some(&path), number, clock.clone()).err().unwrap();
        let told = format!("{}:3: is not text in UTF-8; correct or remove the line", path.display());
        assert_eq!(error, told);
        fs::write(&path, "1").unwrap();
        let watched = Watched::open(Some(&path), number, clock.clone()).unwrap();
        fs::write(&path, b"\xff").unwrap();
        clock.advance(2);
        assert_eq!(*watched.current().await, 1);
        assert!(!watched.file.lock().have_changed(), "it is told of once");
    }
}
