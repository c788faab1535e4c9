//! Sessions that their users ended before their time. A file keeps them over restarts: one line for each, its mark and its
//! owner in hexadecimal, and the second since 1970 after which the mark is not needed any more.
//!
//! The file is written by one thread at a time, which writes for all that wait. So however many log out at once, they take
//! one of the threads for blocking calls.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use types::{hex, hex::Hex};

/// At the bound, the owner with the most of them loses the one that expires first.
const ENDED_MAX: usize = 65_536;
/// At the bound, the owner loses the one that expires first. A session is begun and ended in two requests, so one owner could
/// fill the file otherwise.
const ENDED_PER_OWNER_MAX: usize = 1_024;
/// For the disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// Identifies a session.
pub type Mark = [u8; 16];
/// Identifies whom a session acts for.
pub type Owner = [u8; 16];

/// A session that is to end before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub mark: Mark,
    pub owner: Owner,
    /// In seconds since 1970, when it would have expired.
    pub end_s: u64,
}

pub struct Ended {
    /// `None`: not over restarts.
    path: Option<PathBuf>,
    ended_max: usize,
    ended_per_owner_max: usize,
    state: Mutex<State>,
    /// The number of the last ending that the writer is done with.
    settled: watch::Sender<u64>,
}

struct State {
    marks: Marks,
    /// Endings so far: the number of the last one.
    count: u64,
    /// Some thread writes, or is about to, and will see what is added until it sets this to false.
    is_writing: bool,
}

/// With the owner, and the second since 1970 at which each expires.
type Marks = HashMap<Mark, (Owner, u64)>;

impl Ended {
    /// The error is for the operator.
    pub fn open(path: Option<PathBuf>) -> Result<Ended, String> {
        Ended::with(path, ENDED_MAX, ENDED_PER_OWNER_MAX)
    }

    fn with(path: Option<PathBuf>, ended_max: usize, ended_per_owner_max: usize) -> Result<Ended, String> {
        let marks = match &path {
            Some(path) => read(path)?,
            None => HashMap::new(),
        };
        let state = Mutex::new(State { marks, count: 0, is_writing: false });
        Ok(Ended { path, ended_max, ended_per_owner_max, state, settled: watch::Sender::new(0) })
    }

    pub fn has(&self, mark: &Mark) -> bool {
        self.state.lock().marks.contains_key(mark)
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().marks.is_empty()
    }

    /// The session has ended when this returns, and will not be valid after a restart either, unless the log says so.
    pub async fn add(self: &Arc<Ended>, ending: Ending, now_s: u64) {
        let number = self.insert(ending, now_s);
        if self.path.is_none() {
            return;
        }
        let mut settled = self.settled.subscribe();
        let is_settled = settled.wait_for(|settled| *settled >= number);
        if timeout(PATIENCE, is_settled).await.is_err() {
            tracing::warn!(
                "a session has ended, which is not on disk yet: the disk of the data directory is slow"
            );
        }
    }

    /// The number of the ending to wait for.
    fn insert(self: &Arc<Ended>, ending: Ending, now_s: u64) -> u64 {
        let mut state = self.state.lock();
        let State { marks, count, is_writing } = &mut *state;
        if ending.end_s <= now_s || marks.contains_key(&ending.mark) {
            return *count;
        }
        marks.retain(|_, (_, end_s)| *end_s > now_s);
        if marks.values().filter(|(owner, _)| *owner == ending.owner).count() >= self.ended_per_owner_max {
            forget_soonest(marks, ending.owner);
        } else if marks.len() >= self.ended_max {
            greediest(marks).into_iter().for_each(|owner| forget_soonest(marks, owner));
        }
        marks.insert(ending.mark, (ending.owner, ending.end_s));
        *count += 1;
        if self.path.is_some() && !std::mem::replace(is_writing, true) {
            // Nobody joins it: it also goes on for those that wait when the request that began it is gone. It ends when all
            // are written.
            let ended = Arc::clone(self);
            drop(tokio::task::spawn_blocking(move || ended.write_all()));
        }
        *count
    }

    fn write_all(&self) {
        let Some(path) = &self.path else { return };
        let mut written = 0;
        loop {
            let (marks, count) = {
                let mut state = self.state.lock();
                if state.count == written {
                    state.is_writing = false;
                    return;
                }
                (state.marks.clone(), state.count)
            };
            if let Err(error) = durable::replace(path, show(&marks).as_bytes()) {
                tracing::warn!(%error, "cannot write down which sessions have ended; they are valid again after a restart");
            }
            written = count;
            self.settled.send_replace(written);
        }
    }
}

fn forget_soonest(marks: &mut Marks, owner: Owner) {
    let own = marks.iter().filter(|(_, (of, _))| *of == owner);
    let soonest = own.min_by_key(|(_, (_, end_s))| *end_s).map(|(mark, _)| *mark);
    soonest.and_then(|mark| marks.remove(&mark));
}

fn greediest(marks: &Marks) -> Option<Owner> {
    let mut counts: HashMap<Owner, usize> = HashMap::new();
    marks.values().for_each(|(owner, _)| *counts.entry(*owner).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(owner, _)| owner)
}

fn read(path: &Path) -> Result<Marks, String> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let bytes = |text: &str| <[u8; 16]>::try_from(hex::decode(text.as_bytes())?).ok();
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (mark, owner, end_s) = (words.next()?, words.next()?, words.next()?);
        Some((bytes(mark)?, (bytes(owner)?, end_s.parse().ok()?))).filter(|_| words.next().is_none())
    };
    let marks: Option<_> = text.lines().map(parse).collect();
    marks.ok_or_else(|| {
        format!(
            "{} is damaged: remove it; sessions that were logged out are then valid until they expire",
            path.display()
        )
    })
}

fn show(marks: &Marks) -> String {
    let mut text = String::new();
    for (mark, (owner, end_s)) in marks {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {} {end_s}", Hex(mark), Hex(owner));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(mark: u8, owner: u8, end_s: u64) -> Ending {
        Ending { mark: [mark; 16], owner: [owner; 16], end_s }
    }

    fn opened(path: &Path) -> Arc<Ended> {
        Arc::new(Ended::open(Some(path.to_owned())).unwrap())
    }

    #[tokio::test]
    async fn an_ended_session_stays_ended_over_a_restart_until_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ended-sessions");
        let ended = opened(&path);
        assert!(ended.is_empty());
        ended.add(ending(1, 0, 10), 0).await;
        ended.add(ending(2, 0xff, 20), 0).await;
        let again = opened(&path);
        assert!(again.has(&[1; 16]) && again.has(&[2; 16]) && !again.has(&[3; 16]));
        again.add(ending(3, 0, 30), 15).await;
        assert!(!again.has(&[1; 16]), "it has expired");
        for bad in ["nonsense\n", "01 02\n", "01 02 3 4\n", "01 x 3\n"] {
            fs::write(&path, bad).unwrap();
            let error = Ended::open(Some(path.clone())).err().unwrap();
            assert!(error.contains("is damaged"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_user_who_ends_many_sessions_revives_none_of_others() {
        let ended = Arc::new(Ended::with(None, 8, 8).unwrap());
        ended.add(ending(1, 1, 100), 0).await;
        for mark in 10..100 {
            ended.add(ending(mark, 2, 1_000 + u64::from(mark)), 0).await;
        }
        assert!(ended.has(&[1; 16]));
        assert!(
            !ended.has(&[92; 16]) && (93..100).all(|mark| ended.has(&[mark; 16])),
            "the first to expire go"
        );
        // Once more, and one that has expired anyhow: nothing has to go for them.
        ended.add(ending(99, 2, 1_099), 0).await;
        ended.add(ending(3, 3, 5), 5).await;
        assert!(ended.has(&[93; 16]) && !ended.has(&[3; 16]));
    }

    #[tokio::test]
    async fn ended_sessions_of_one_user_have_a_bound_of_their_own() {
        let ended = Arc::new(Ended::with(None, 100, 3).unwrap());
        for mark in 10..20 {
            ended.add(ending(mark, 2, 1_000 + u64::from(mark)), 0).await;
        }
        ended.add(ending(1, 1, 100), 0).await;
        assert!(!ended.has(&[16; 16]) && [1, 17, 18, 19].iter().all(|mark| ended.has(&[*mark; 16])));
    }
}
