//! A small file that people edit: read again when it changes, and kept as it was when the change makes no sense.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use types::Clock;

/// How long a change may go unseen.
const LOOK_INTERVAL_S: u64 = 1;
/// Ten thousands of lines; whatever is larger is not such a file.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// A file that is not there is an empty one: taking it away is a way to say that nobody is known.
pub struct Watched<T> {
    path: Option<PathBuf>,
    parse: fn(&str) -> Result<T, String>,
    clock: Arc<dyn Clock>,
    /// In seconds of the monotonic clock. The thread that advances it looks at the file.
    next_look_s: AtomicU64,
    seen: RwLock<Seen<T>>,
}

struct Seen<T> {
    stamp: Stamp,
    value: Arc<T>,
}

/// Metadata that changes when a file is written or replaced. `None`: the file does not exist.
type Stamp = Option<(u64, u64, i64, i64, u64)>;

impl<T: Send + Sync + 'static> Watched<T> {
    /// Fails when the file is there and cannot be understood, with its path and line in the words. Without a path the
    /// value is that of an empty file, for good.
    pub fn open(
        path: Option<&Path>,
        parse: fn(&str) -> Result<T, String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Watched<T>>, String> {
        let (stamp, bytes) = match path {
            Some(path) => read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            None => (None, Vec::new()),
        };
        let value = text(bytes).and_then(|text| parse(&text)).map_err(|error| located(path, &error))?;
        let next_look_s = AtomicU64::new(clock.monotonic().as_secs() + LOOK_INTERVAL_S);
        Ok(Arc::new(Watched {
            path: path.map(Path::to_path_buf),
            parse,
            clock,
            next_look_s,
            seen: RwLock::new(Seen { stamp, value: Arc::new(value) }),
        }))
    }

    /// The value of the file as it was within the last second. Disk is touched off the async threads.
    pub async fn current(self: &Arc<Self>) -> Arc<T> {
        if self.is_look_due() {
            let this = self.clone();
            // A failure to run the closure means that the runtime stops; what is known serves until then.
            let _ = tokio::task::spawn_blocking(move || this.look()).await;
        }
        self.seen.read().value.clone()
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
        if stamp(path).is_ok_and(|stamp| stamp == self.seen.read().stamp) {
            return;
        }
        let outcome = read(path).map(|(stamp, bytes)| {
            let value = text(bytes).and_then(|text| (self.parse)(&text));
            (stamp, value.map_err(|error| located(Some(path), &error)))
        });
        match outcome {
            Ok((stamp, Ok(value))) => {
                *self.seen.write() = Seen { stamp, value: Arc::new(value) };
                tracing::info!(path = %path.display(), "read again");
            }
            // The stamp is kept, so that one mistake is told once.
            Ok((stamp, Err(error))) => {
                self.seen.write().stamp = stamp;
                tracing::error!(%error, "what the file said before stays in force");
            }
            Err(error) => {
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

fn stamp(path: &Path) -> io::Result<Stamp> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(stamp_of(&found))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn stamp_of(found: &fs::Metadata) -> (u64, u64, i64, i64, u64) {
    (found.dev(), found.ino(), found.ctime(), found.ctime_nsec(), found.len())
}

/// The content as text; if it is no UTF-8, the error begins with the number of the line.
pub fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{line}: is not text in UTF-8; correct or remove the line")
    })
}

fn read(path: &Path) -> io::Result<(Stamp, Vec<u8>)> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, Vec::new())),
        Err(error) => return Err(error),
    };
    // The stamp is taken before the text: a write in between makes for one more reading, not for a missed one.
    let stamp = stamp_of(&file.metadata()?);
    let mut bytes = Vec::new();
    file.by_ref().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok((Some(stamp), bytes))
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
        assert!(stamp(&path).unwrap() == watched.seen.read().stamp, "it is told of once");
    }
}
