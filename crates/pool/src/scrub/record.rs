//! `scrub.json`: the position of a scrub, the last complete one, the damaged replicas, and the generation of the sums.
//!
//! The stamp of sums has the time of the last write of their replica. That time may be lost: after a write, a file system
//! brings the bytes to the disk before it, and the power may be cut in between. So sums belong to a generation. It ends when a
//! pool that was not closed in order is opened again after its file system was mounted anew. Sums of another generation are
//! good if they agree with the replica, and otherwise prove nothing.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use types::FileId;

use super::examine::{Finding, FindingKind};

pub const FILE_NAME: &str = "scrub.json";
const VERSION: u32 = 1;
/// Damaged replicas that are remembered.
const DAMAGED_MAX: usize = 1000;
/// `STATX_MNT_ID_UNIQUE`, Linux 6.8: a number that no other mount gets. rustix has no name for it.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Counts of one scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubTotals {
    pub replicas: u64,
    pub read_bytes: u64,
    /// Replicas that agreed with their sums.
    pub verified: u64,
    /// Replicas that got new sums.
    pub summed: u64,
    /// Replicas without sums: written lately, broken, or without space for them.
    pub left_out: u64,
    pub damaged_replicas: u64,
    pub unreadable_replicas: u64,
    /// Replicas that differed from sums of before a crash.
    pub doubted_replicas: u64,
    pub bad_blocks: u64,
    /// Replicas that agreed with their digests.
    #[serde(default)]
    pub digests_verified: u64,
    /// Replicas that got digests that they had not.
    #[serde(default)]
    pub digests_made: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteScrub {
    /// Seconds since 1970.
    pub begun_s: u64,
    pub ended_s: u64,
    pub totals: ScrubTotals,
}

/// A scrub that runs, or was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub begun_s: u64,
    /// The last file that was examined.
    pub after: u64,
    pub totals: ScrubTotals,
}

/// A replica with bad blocks, until it is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadReplica {
    pub file: u64,
    /// Readers get an error. `false`: for the blocks that the disk cannot read only.
    pub is_damaged: bool,
    pub blocks: u64,
    pub offsets: Vec<u64>,
    pub found_s: u64,
}

impl BadReplica {
    pub fn file(&self) -> FileId {
        FileId(self.file)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    pub generation: u64,
    /// The mount that the sums were made on.
    mount: String,
    pub position: Option<Position>,
    pub last: Option<CompleteScrub>,
    /// The first time that somebody asked whether a scrub is due.
    #[serde(default)]
    pub watched_s: Option<u64>,
    /// The last time that a scrub ended with an error. One by itself would go on to mark replicas.
    #[serde(default)]
    pub failed_s: Option<u64>,
    pub bad: Vec<BadReplica>,
}

impl Record {
    /// As the file says, or a new one. `mount` is `None` if the mount is not known: it may be another one each time.
    /// `is_clean`: the pool was closed in order.
    pub fn open(dir: &Path, mount: Option<&str>, is_clean: bool) -> Record {
        let path = dir.join(FILE_NAME);
        let name = mount.unwrap_or_default();
        let fresh = || Record {
            version: VERSION,
            generation: now_s(),
            mount: name.to_owned(),
            position: None,
            last: None,
            watched_s: None,
            failed_s: None,
            bad: Vec::new(),
        };
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return fresh(),
            text => text,
        };
        let found = text.ok().and_then(|text| serde_json::from_slice::<Record>(&text).ok());
        let Some(mut record) = found.filter(|record| record.version == VERSION) else {
            tracing::info!(path = %path.display(), "record of scrubs cannot be read and begins anew");
            return fresh();
        };
        if mount.is_none_or(|mount| record.mount != mount) {
            if !is_clean {
                // Never the same one again, whatever the clock says.
                record.generation = now_s().max(record.generation + 1);
            }
            name.clone_into(&mut record.mount);
            if let Err(error) = record.store(dir) {
                tracing::debug!(path = %path.display(), %error, "record of scrubs cannot be written");
            }
        }
        record
    }

    /// Durable when it returns.
    pub fn store(&self, dir: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self).map_err(io::Error::other)?;
        text.push(b'\n');
        durable::replace(&dir.join(FILE_NAME), &text)
    }

    /// A scrub by itself is due from then on, in seconds since 1970. `None`: nobody has asked before.
    pub fn due_s(&self, every: Duration) -> Option<u64> {
        let ended_s = self.last.map(|last| last.ended_s);
        let last_s = [ended_s, self.failed_s, self.watched_s].into_iter().flatten().max()?;
        Some(last_s.saturating_add(every.as_secs()))
    }

    /// Times that a wrong clock has written down, later than now, count as now.
    pub fn limit_to(&mut self, now_s: u64) {
        let last = self.last.as_mut().map(|last| &mut last.ended_s);
        for time in [last, self.failed_s.as_mut(), self.watched_s.as_mut()].into_iter().flatten() {
            *time = now_s.min(*time);
        }
    }

    /// Some sums may exist.
    pub fn has_begun(&self) -> bool {
        self.position.is_some() || self.last.is_some()
    }

    pub fn note_bad(&mut self, finding: &Finding) {
        let is_damaged = match finding.kind {
            FindingKind::Damaged => true,
            FindingKind::Unreadable => false,
            FindingKind::Doubted => return,
        };
        let before = self.forget_bad(finding.file);
        if self.bad.len() >= DAMAGED_MAX {
            return;
        }
        let (file, blocks, offsets) = (finding.file.0, finding.blocks, finding.offsets.clone());
        let found = BadReplica { file, is_damaged, blocks, offsets, found_s: now_s() };
        // Without its sums, the blocks are those that were found before.
        let kept = before.filter(|before| before.is_damaged && found.is_damaged && found.blocks == 0);
        self.bad.push(kept.unwrap_or(found));
    }

    pub fn forget_bad(&mut self, file: FileId) -> Option<BadReplica> {
        let at = self.bad.iter().position(|bad| bad.file() == file)?;
        Some(self.bad.remove(at))
    }
}

pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Another one after each boot, each time that the file system is mounted, and in each mount namespace. `None`: not known.
pub fn mount_of(root: BorrowedFd<'_>) -> Option<String> {
    mount_in_boot(root, Path::new("/proc/sys/kernel/random/boot_id"))
}

fn mount_in_boot(root: BorrowedFd<'_>, boot: &Path) -> Option<String> {
    let boot = fs::read_to_string(boot).ok()?;
    let boot = Some(boot.trim()).filter(|boot| !boot.is_empty())?;
    let found = statx(root, "", AtFlags::EMPTY_PATH, MNT_ID_UNIQUE).ok()?;
    // An older kernel has numbers that the next mount gets again.
    let is_unique = found.stx_mask & MNT_ID_UNIQUE.bits() != 0;
    is_unique.then(|| format!("{boot} {}", found.stx_mnt_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(dir: &tempfile::TempDir, mount: &str, is_clean: bool) -> Record {
        Record::open(dir.path(), Some(mount), is_clean)
    }

    #[test]
    fn the_generation_ends_with_a_crash_of_the_system_and_not_with_one_of_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let first = record(&dir, "boot 1", true);
        first.store(dir.path()).unwrap();
        assert_eq!(record(&dir, "boot 1", false), first, "the server was killed");
        assert_eq!(record(&dir, "boot 2", true).generation, first.generation, "all was closed in order");
        let crashed = record(&dir, "boot 3", false);
        assert!(crashed.generation > first.generation);
        assert_eq!(record(&dir, "boot 3", false), crashed, "it is written down");
    }

    /// The unit hid the boot id. After a power cut the mount had the number of the one before, and writes were taken for damage.
    #[test]
    fn a_mount_that_is_not_known_is_never_the_same_one() {
        let dir = tempfile::tempdir().unwrap();
        let open = |is_clean| Record::open(dir.path(), None, is_clean);
        let first = open(true);
        first.store(dir.path()).unwrap();
        assert_eq!(open(true).generation, first.generation, "all was closed in order");
        let second = open(false);
        assert!(second.generation > first.generation);
        assert!(open(false).generation > second.generation);
    }

    #[test]
    fn a_record_that_is_damaged_or_newer_begins_a_generation() {
        let dir = tempfile::tempdir().unwrap();
        let old = Record { generation: 5, ..record(&dir, "boot", true) };
        old.store(dir.path()).unwrap();
        assert_eq!(record(&dir, "boot", true).generation, 5);
        let newer = Record { version: 2, ..old };
        newer.store(dir.path()).unwrap();
        assert_ne!(record(&dir, "boot", true).generation, 5);
        fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert_ne!(record(&dir, "boot", true).generation, 5);
    }

    #[test]
    fn bad_replicas_are_kept_once_each_with_their_blocks_and_within_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = record(&dir, "boot", true);
        let finding = |file, kind, blocks: u64| Finding {
            file: FileId(file),
            kind,
            blocks,
            offsets: (0..blocks).collect(),
        };
        record.note_bad(&finding(1, FindingKind::Doubted, 1));
        assert_eq!(record.bad, []);
        record.note_bad(&finding(1, FindingKind::Damaged, 2));
        record.note_bad(&finding(1, FindingKind::Damaged, 0));
        assert_eq!((record.bad.len(), record.bad[0].blocks, record.bad[0].offsets.len()), (1, 2, 2));
        for file in 0..2 * DAMAGED_MAX as u64 {
            record.note_bad(&finding(file, FindingKind::Unreadable, 1));
        }
        assert_eq!(record.bad.len(), DAMAGED_MAX);
        assert!(record.forget_bad(FileId(1)).is_some_and(|bad| !bad.is_damaged));
        assert!(record.forget_bad(FileId(1)).is_none());
    }

    #[test]
    fn a_scrub_is_due_after_the_last_end_of_one_or_the_first_look() {
        let dir = tempfile::tempdir().unwrap();
        let (mut record, every) = (record(&dir, "boot", true), Duration::from_secs(100));
        assert_eq!(record.due_s(every), None);
        record.watched_s = Some(5);
        assert_eq!(record.due_s(every), Some(105));
        record.last = Some(CompleteScrub { begun_s: 1, ended_s: 7, totals: ScrubTotals::default() });
        assert_eq!(record.due_s(every), Some(107));
        record.failed_s = Some(9);
        assert_eq!(record.due_s(every), Some(109));
        assert_eq!(record.due_s(Duration::MAX), Some(u64::MAX));
    }

    /// They switched scrubs by themselves off for years.
    #[test]
    fn times_of_a_wrong_clock_count_as_now() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = record(&dir, "boot", true);
        record.last = Some(CompleteScrub { begun_s: 1, ended_s: 1000, totals: ScrubTotals::default() });
        (record.watched_s, record.failed_s) = (Some(7), Some(2000));
        record.limit_to(500);
        assert_eq!(
            (record.last.unwrap().ended_s, record.watched_s, record.failed_s),
            (500, Some(7), Some(500))
        );
        assert_eq!(record.due_s(Duration::from_secs(100)), Some(600));
    }

    #[test]
    fn a_record_of_an_older_version_of_the_program_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let old = r#"{"version":1,"generation":5,"mount":"boot","position":null,"last":null,"bad":[]}"#;
        fs::write(dir.path().join(FILE_NAME), old).unwrap();
        assert_eq!(record(&dir, "boot", true).generation, 5);
    }

    #[test]
    fn a_mount_is_known_by_the_boot_and_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::File::open(dir.path()).unwrap();
        let mount = |boot: &Path| mount_in_boot(std::os::fd::AsFd::as_fd(&root), boot);
        let boot = dir.path().join("boot_id");
        assert_eq!(mount(&boot), None);
        fs::write(&boot, "\n").unwrap();
        assert_eq!(mount(&boot), None);
        fs::write(&boot, "a boot\n").unwrap();
        let Some(found) = mount(&boot) else {
            println!("skipped: the kernel has no numbers of mounts that are not used again");
            return;
        };
        assert!(found.starts_with("a boot ") && Some(found) == mount(&boot));
    }
}
