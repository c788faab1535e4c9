//! Reads a pool's replicas from its files alone: for rebuilding the index, and for checks without a running pool.
//!
//! A scan changes nothing. It reports problems beside the intact replicas.

use std::fs::{self, DirEntry, File, ReadDir};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::ReplicaFacts;
use thiserror::Error;
use types::{Epoch, FileId, Timestamp};

use crate::error::OpenError;
use crate::identity::{self, Identity};
use crate::label::{self, Label, LabelError, State};
use crate::layout::{self, DATA, ReplicaPlace};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Replica(FoundReplica),
    Problem(Problem),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundReplica {
    pub facts: ReplicaFacts,
    /// When its bytes were last written.
    pub modified: Timestamp,
    /// The lowest epoch whose tickets are honoured.
    pub epoch: Epoch,
    /// The length that it is known to have had on disk. `None`: its label is of a version that noted none.
    pub length: Option<u64>,
    /// It takes no more writes: written data was lost on its way to the disk and the writer was told so, or it is damaged.
    pub broken: bool,
    /// The disk has other bytes than were written, as a scrub found.
    pub damaged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {kind}", path.display())]
pub struct Problem {
    pub path: PathBuf,
    pub kind: ProblemKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProblemKind {
    /// Of a replica that was looked for.
    #[error("there is none")]
    Gone,
    #[error("does not belong into a pool")]
    Stray,
    #[error("left over from a start that did not finish")]
    Leftover,
    #[error("replica of {0} lies in the wrong directory")]
    Misplaced(FileId),
    /// Made and not yet labelled when the machine stopped; the next write finishes it.
    #[error("replica was never finished, and is empty")]
    Unfinished,
    #[error("replica has data but no label")]
    NoLabel,
    #[error("label cannot be understood")]
    MalformedLabel,
    #[error("label says that it is file {of}")]
    OtherFile { file: FileId, of: FileId },
    #[error("label is of another instance")]
    OtherInstance,
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

impl ProblemKind {
    /// Whether a killed server may leave this behind: an operator need not look after it.
    pub fn is_left_by_a_kill(&self) -> bool {
        matches!(self, ProblemKind::Unfinished | ProblemKind::Leftover)
    }
}

/// Every replica and every problem below `dir`, in no particular order.
pub fn scan(dir: &Path) -> Result<Scan, OpenError> {
    let identity = Identity::read(dir)?.ok_or_else(|| OpenError::NotAPool { dir: dir.to_owned() })?;
    let leftover = dir.join(identity::NEW_FILE_NAME);
    let leftover =
        leftover.exists().then_some(Found::Problem(Problem { path: leftover, kind: ProblemKind::Leftover }));
    Ok(Scan { identity, leftover, directories: vec![(dir.join(DATA), Level::Outer)], reading: None })
}

/// One replica of the pool in `dir`, as its file says, or what is wrong with it.
pub fn look(dir: &Path, file: FileId) -> Result<Result<FoundReplica, ProblemKind>, OpenError> {
    let scan = scan(dir)?;
    Ok(scan.read_replica(&dir.join(ReplicaPlace::of(file).path()), file))
}

/// Takes what there is of a replica for all that there was, where the rest is given up. The pool is not open.
pub fn accept_length(dir: &Path, file: FileId) -> Result<(), OpenError> {
    relabel(dir, file, |known, there| (known > Some(there)).then_some(there))
}

/// Notes in a replica's label that its file had so many bytes, so that what is missing of them is known to be lost. Nobody
/// has the replica open. Without a label nothing is noted.
pub fn expect_length(dir: &Path, file: FileId, length: u64) -> Result<(), OpenError> {
    relabel(dir, file, |known, _| (known < Some(length)).then_some(length))
}

/// `choose`: from the length that the label knows of and the one that is there, another for the label.
fn relabel(
    dir: &Path,
    file: FileId,
    choose: impl FnOnce(Option<u64>, u64) -> Option<u64>,
) -> Result<(), OpenError> {
    let path = dir.join(ReplicaPlace::of(file).path());
    let relabel = || -> std::io::Result<()> {
        let open = File::options().read(true).write(true).custom_flags(no_follow()).open(&path)?;
        let Ok(Some(label)) = label::read(&open) else { return Ok(()) };
        if let Some(length) = choose(label.length, open.metadata()?.len()) {
            label::write(&open, &Label { length: Some(length), ..label })?;
            open.sync_all()?;
        }
        Ok(())
    };
    relabel().map_err(|error| OpenError::io("note the length of", &path, error))
}

pub struct Scan {
    identity: Identity,
    leftover: Option<Found>,
    /// Still to be read; at most the fan-out of two levels.
    directories: Vec<(PathBuf, Level)>,
    reading: Option<(ReadDir, Level)>,
}

/// The kind of a directory's entries.
#[derive(Clone, Copy)]
enum Level {
    Outer,
    Inner,
    Replicas,
}

impl Scan {
    pub fn identity(&self) -> Identity {
        self.identity
    }

    fn examine(&mut self, entry: &DirEntry, level: Level) -> Option<Found> {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_str().unwrap_or("");
        let below = match level {
            Level::Outer => Level::Inner,
            Level::Inner => Level::Replicas,
            Level::Replicas => return self.examine_file(path, name),
        };
        if layout::is_level(name) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            self.directories.push((path, below));
            return None;
        }
        Some(problem(path, ProblemKind::Stray))
    }

    /// `None`: it was removed meanwhile.
    fn examine_file(&self, path: PathBuf, name: &str) -> Option<Found> {
        let Some(file) = label::parse_file(name) else { return Some(problem(path, ProblemKind::Stray)) };
        if !path.ends_with(ReplicaPlace::of(file).path()) {
            return Some(problem(path, ProblemKind::Misplaced(file)));
        }
        match self.read_replica(&path, file) {
            Ok(replica) => Some(Found::Replica(replica)),
            Err(ProblemKind::Gone) => None,
            Err(kind) => Some(problem(path, kind)),
        }
    }

    fn read_replica(&self, path: &Path, file: FileId) -> Result<FoundReplica, ProblemKind> {
        let unreadable = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => ProblemKind::Gone,
            _ => ProblemKind::Unreadable(error.to_string()),
        };
        if !fs::symlink_metadata(path).map_err(unreadable)?.is_file() {
            return Err(ProblemKind::Stray);
        }
        let open = File::options().read(true).custom_flags(no_follow()).open(path).map_err(unreadable)?;
        let metadata = open.metadata().map_err(unreadable)?;
        let of_label = |error| match error {
            LabelError::Unreadable(errno) => unreadable(errno.into()),
            LabelError::Malformed => ProblemKind::MalformedLabel,
        };
        let label = label::read(&open).map_err(of_label)?;
        let label = match label {
            Some(label) => label,
            None if metadata.len() == 0 => return Err(ProblemKind::Unfinished),
            None => return Err(ProblemKind::NoLabel),
        };
        if label.file != file {
            return Err(ProblemKind::OtherFile { file, of: label.file });
        }
        if label.instance != self.identity.instance {
            return Err(ProblemKind::OtherInstance);
        }
        let state = label::state(&open).map_err(of_label)?;
        let facts = ReplicaFacts {
            file,
            birth: label.birth,
            size: metadata.len(),
            space_used: metadata.blocks() * 512,
            modified: None,
        };
        let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        let modified = Timestamp::new(metadata.mtime(), nanoseconds).unwrap_or(Timestamp::EPOCH);
        let (broken, damaged) = (state != State::InOrder, state == State::Damaged);
        Ok(FoundReplica { facts, modified, epoch: label.epoch, length: label.length, broken, damaged })
    }
}

impl Iterator for Scan {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if let Some(leftover) = self.leftover.take() {
            return Some(leftover);
        }
        loop {
            let Some((entries, level)) = &mut self.reading else {
                let (path, level) = self.directories.pop()?;
                match fs::read_dir(&path) {
                    Ok(entries) => self.reading = Some((entries, level)),
                    Err(error) => return Some(problem(path, ProblemKind::Unreadable(error.to_string()))),
                }
                continue;
            };
            let level = *level;
            match entries.next() {
                None => self.reading = None,
                Some(Ok(entry)) => {
                    if let Some(found) = self.examine(&entry, level) {
                        return Some(found);
                    }
                }
                // An entry that cannot be read ends this directory: reading on may fail for ever.
                Some(Err(error)) => {
                    self.reading = None;
                    let kind = ProblemKind::Unreadable(error.to_string());
                    return Some(problem(PathBuf::from(DATA), kind));
                }
            }
        }
    }
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

fn problem(path: PathBuf, kind: ProblemKind) -> Found {
    Found::Problem(Problem { path, kind })
}

#[cfg(test)]
mod tests {
    use types::PoolId;

    use super::*;
    use crate::store::Store;

    const INSTANCE: [u8; 16] = [1; 16];

    fn pool() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        Identity { pool: PoolId(1), instance: INSTANCE }.write(dir.path()).unwrap();
        let store = Store::new(PoolId(1), INSTANCE, File::open(dir.path()).unwrap().into()).unwrap();
        (dir, store)
    }

    fn replica(store: &Store, file: u64, labelled: u64, instance: [u8; 16]) -> std::os::fd::OwnedFd {
        let (open, _) = store.create(FileId(file)).unwrap();
        let (length, birth) = (Some(0), api::Birth(3));
        label::write(&open, &Label { file: FileId(labelled), instance, epoch: Epoch(7), length, birth })
            .unwrap();
        open
    }

    fn kinds(dir: &tempfile::TempDir) -> Vec<ProblemKind> {
        let problems = scan(dir.path()).unwrap().filter_map(|found| match found {
            Found::Problem(problem) => Some(problem.kind),
            Found::Replica(_) => None,
        });
        problems.collect()
    }

    #[test]
    fn replicas_are_found_with_their_facts() {
        let (dir, store) = pool();
        let open = replica(&store, 5, 5, INSTANCE);
        rustix::io::pwrite(&open, b"abc", 0).unwrap();
        label::mark_broken(replica(&store, 900, 900, INSTANCE)).unwrap();
        label::mark_damaged(replica(&store, 901, 901, INSTANCE)).unwrap();
        let mut found: Vec<_> = scan(dir.path())
            .unwrap()
            .map(|found| match found {
                Found::Replica(replica) => {
                    let state = (replica.broken, replica.damaged);
                    (replica.facts.file.0, replica.facts.size, replica.epoch, state)
                }
                Found::Problem(problem) => panic!("{problem}"),
            })
            .collect();
        found.sort_unstable();
        let (epoch, in_order) = (Epoch(7), (false, false));
        let expected =
            [(5, 3, epoch, in_order), (900, 0, epoch, (true, false)), (901, 0, epoch, (true, true))];
        assert_eq!(found, expected);
    }

    #[test]
    fn leftovers_of_a_killed_server_are_no_fault_of_the_pool() {
        let (dir, store) = pool();
        store.create(FileId(1)).unwrap();
        fs::write(dir.path().join(identity::NEW_FILE_NAME), "{").unwrap();
        let found = kinds(&dir);
        assert!(found.len() == 2 && found.iter().all(ProblemKind::is_left_by_a_kill), "{found:?}");
        // Bytes that nobody knows are another matter.
        rustix::fs::ftruncate(store.open(FileId(1)).unwrap().unwrap(), 5).unwrap();
        assert!(kinds(&dir).iter().any(|kind| !kind.is_left_by_a_kill()));
    }

    #[test]
    fn each_kind_of_problem_is_told() {
        let (dir, store) = pool();
        store.create(FileId(1)).unwrap();
        assert_eq!(kinds(&dir), [ProblemKind::Unfinished]);
        rustix::fs::ftruncate(store.open(FileId(1)).unwrap().unwrap(), 5).unwrap();
        assert_eq!(kinds(&dir), [ProblemKind::NoLabel]);
        replica(&store, 1, 2, INSTANCE);
        assert_eq!(kinds(&dir), [ProblemKind::OtherFile { file: FileId(1), of: FileId(2) }]);
        replica(&store, 1, 1, [2; 16]);
        assert_eq!(kinds(&dir), [ProblemKind::OtherInstance]);
        let (right, wrong) = (dir.path().join(ReplicaPlace::of(FileId(1)).path()), FileId(1 << 20));
        fs::rename(&right, right.with_file_name(wrong.to_string())).unwrap();
        assert_eq!(kinds(&dir), [ProblemKind::Misplaced(wrong)]);
        fs::remove_file(right.with_file_name(wrong.to_string())).unwrap();
        std::os::unix::fs::symlink("/nowhere", &right).unwrap();
        assert_eq!(kinds(&dir), [ProblemKind::Stray]);
        fs::remove_file(&right).unwrap();
        fs::write(dir.path().join(DATA).join("notes.txt"), "x").unwrap();
        assert_eq!(kinds(&dir), [ProblemKind::Stray]);
        fs::write(dir.path().join(identity::NEW_FILE_NAME), "{").unwrap();
        assert_eq!(kinds(&dir), [ProblemKind::Leftover, ProblemKind::Stray]);
    }

    #[test]
    fn a_directory_that_is_no_pool_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(scan(dir.path()), Err(OpenError::NotAPool { .. })));
    }
}
