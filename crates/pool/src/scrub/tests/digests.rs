//! Digests of whole replicas.

use std::os::fd::AsFd;

use types::Checksum;

use super::super::sums::{NewSums, Sums, sum};
use super::*;

fn pool_with(dir: &tempfile::TempDir, digests: &[ChecksumKind]) -> Arc<LocalPool> {
    LocalPool::open(Config { digests: digests.to_vec(), ..config(dir.path()) }).unwrap()
}

fn counts(totals: ScrubTotals) -> (u64, u64) {
    (totals.digests_verified, totals.digests_made)
}

fn stored(dir: &tempfile::TempDir, file: u64) -> Vec<Checksum> {
    let root = File::open(dir.path()).unwrap();
    let mut sums = Sums::open(root.as_fd(), FileId(file)).unwrap();
    while sums.next_segment().unwrap().is_some() {}
    sums.digests
}

fn computed(dir: &tempfile::TempDir, file: u64, kinds: &[ChecksumKind]) -> Vec<Checksum> {
    let mut sums = api::Sums::new(kinds.iter().copied());
    sums.update(&fs::read(path(dir, file)).unwrap());
    sums.finish()
}

/// As if the changes of the replica had left the CRC-32C of their blocks as they were.
fn accept_blocks(dir: &tempfile::TempDir, file: u64) {
    let root = File::open(dir.path()).unwrap();
    let digests = stored(dir, file);
    let sums = Sums::open(root.as_fd(), FileId(file)).unwrap();
    let mut new = NewSums::create(root.as_fd(), sums.stamp).unwrap();
    for (block, bytes) in (0..).zip(fs::read(path(dir, file)).unwrap().chunks(BLOCK_BYTES as usize)) {
        new.push(block, sum(bytes)).unwrap();
    }
    new.finish(sums.generation, &digests).unwrap();
}

#[tokio::test]
async fn a_change_that_no_block_sum_shows_is_found_by_a_digest() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool_with(&dir, &[ChecksumKind::Sha256]);
    for file in [1, 2] {
        write_blocks(&dir, &running, file, 20).await;
    }
    assert_eq!(counts(scrub_well(&running)), (0, 2));
    assert_eq!(counts(scrub_well(&running)), (2, 0));
    flip(&dir, 1, 18 * BLOCK_BYTES);
    accept_blocks(&dir, 1);
    let watch = Watch::default();
    let totals = scrub(&running, &watch);
    assert_eq!((totals.damaged_replicas, totals.bad_blocks, totals.verified), (1, 0, 1));
    assert_eq!(counts(totals), (1, 0));
    assert_eq!(watch.kinds(), [(1, DAMAGED, vec![])]);
    assert!(is_io_error(open(&running, 1, TicketMode::Read).await));
    assert_eq!(running.scrub_report().bad[0].file(), FileId(1));
}

#[tokio::test]
async fn a_digest_of_a_kind_that_is_not_configured_is_kept_and_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool_with(&dir, &[ChecksumKind::Sha256]);
    write_blocks(&dir, &running, 1, 2).await;
    scrub_well(&running);
    let before = stored(&dir, 1);
    running.close();
    drop(running);
    flip(&dir, 1, 3);
    accept_blocks(&dir, 1);
    let running = pool_with(&dir, &[]);
    let totals = scrub_well(&running);
    assert_eq!((totals.verified, counts(totals)), (1, (0, 0)));
    assert_eq!(stored(&dir, 1), before);
}

#[tokio::test]
async fn digests_of_more_kinds_are_made_of_replicas_that_have_sums() {
    use ChecksumKind::{Adler32, Md5, Sha256};
    let dir = tempfile::tempdir().unwrap();
    type Step<'a> = (&'a [ChecksumKind], (u64, u64), &'a [ChecksumKind]);
    let steps: [Step<'_>; 4] = [
        (&[], (0, 0), &[]),
        (&[Adler32, Sha256], (0, 1), &[Adler32, Sha256]),
        (&[Md5], (0, 1), &[Adler32, Md5, Sha256]),
        (&[Md5, Sha256], (1, 0), &[Adler32, Md5, Sha256]),
    ];
    let running = pool_with(&dir, &[]);
    write_blocks(&dir, &running, 1, 2).await;
    // With a hole.
    write(&running, 1, 5 * BLOCK_BYTES, vec![4; 10]).await;
    rest(&dir, 1);
    running.close();
    drop(running);
    for (kinds, expected, all) in steps {
        let running = pool_with(&dir, kinds);
        assert_eq!(counts(scrub_well(&running)), expected, "{kinds:?}");
        let mut stored = stored(&dir, 1);
        stored.sort_by_key(Checksum::kind);
        assert_eq!(stored, computed(&dir, 1, all));
        running.close();
    }
}

#[tokio::test]
async fn after_a_crash_of_the_system_a_digest_that_differs_proves_nothing_and_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool_with(&dir, &[ChecksumKind::Md5]);
    write_blocks(&dir, &running, 1, 2).await;
    scrub_well(&running);
    drop(running);
    flip(&dir, 1, 3);
    accept_blocks(&dir, 1);
    let record = dir.path().join(record::FILE_NAME);
    let mount = mount_of(File::open(dir.path()).unwrap().as_fd());
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace(mount.as_deref().unwrap(), "another boot")).unwrap();
    let running = pool_with(&dir, &[ChecksumKind::Md5]);
    let watch = Watch::default();
    let totals = scrub(&running, &watch);
    assert_eq!((totals.doubted_replicas, totals.damaged_replicas), (1, 0));
    assert_eq!(watch.kinds(), [(1, ScrubFindingKind::Doubted, vec![])]);
    assert_eq!(stored(&dir, 1), computed(&dir, 1, &[ChecksumKind::Md5]));
    assert_eq!(counts(scrub_well(&running)), (1, 0));
}

#[tokio::test]
async fn a_replica_with_a_long_hole_has_block_sums_and_no_digest() {
    let dir = tempfile::tempdir().unwrap();
    let running = pool_with(&dir, &ChecksumKind::ALL);
    write(&running, 1, 1 << 40, vec![1]).await;
    rest(&dir, 1);
    let totals = scrub_well(&running);
    assert_eq!((totals.summed, counts(totals)), (1, (0, 0)));
    assert_eq!(scrub_well(&running).verified, 1);
}
