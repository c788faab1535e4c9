//! Copies of bytes between two files, within a pool and from one pool to another.

use api::{PoolError, RangeKind, Stretch};
use forebay_files::{Content, ContentMode, FilesError};
use types::{Attributes, ByteRange, PoolId};

use crate::scene::{LONG, POOL};
use crate::world::{OTHER, World, pattern};

const MIB: u64 = 1 << 20;

struct Ends<'a> {
    world: &'a World,
    source: Attributes,
    target: Attributes,
}

impl<'a> Ends<'a> {
    /// A source in the first pool, of four MiB with a hole in the middle, and an empty target.
    async fn of(world: &'a World, text: &str, pool: PoolId) -> Ends<'a> {
        let source = world.make(&format!("source {text}"), POOL, pattern(4 * MIB as usize)).await;
        let content = world.files.content(&source, ContentMode::Change).await.unwrap();
        content.deallocate(ByteRange::from_bounds(MIB, 3 * MIB).unwrap()).await.unwrap();
        let target = world.make_empty(&format!("target {text}"), pool).await;
        Ends { world, source: world.attributes(source.file).await, target }
    }

    async fn open(&self, file: &Attributes, mode: ContentMode) -> Content {
        let file = self.world.attributes(file.file).await;
        self.world.files.content(&file, mode).await.unwrap()
    }

    async fn copy(&self, stretch: Stretch, is_over: impl Fn(u64) -> bool) -> Result<u64, FilesError> {
        let from = self.open(&self.source, ContentMode::Read).await;
        let to = self.open(&self.target, ContentMode::Write).await;
        self.world.files.copy(&from, &to, stretch, is_over).await
    }

    fn source_bytes(&self) -> Vec<u8> {
        let mut bytes = pattern(4 * MIB as usize);
        bytes[MIB as usize..3 * MIB as usize].fill(0);
        bytes
    }
}

/// Nearly as large as that of the source: a file system may have data a little before the bytes that were written.
pub async fn require_hole(copy: &Content) {
    let hole = copy.seek(0, RangeKind::Hole).await.unwrap();
    let data = copy.seek(hole, RangeKind::Data).await.unwrap();
    assert!(
        (MIB..MIB + MIB / 4).contains(&hole) && (2 * MIB + MIB / 2..=3 * MIB).contains(&data),
        "{hole} {data}"
    );
}

fn text(pool: PoolId) -> &'static str {
    if pool == POOL { "in the pool" } else { "between pools" }
}

pub async fn a_copy_has_the_bytes_and_the_holes_of_its_source(world: World) {
    for pool in [POOL, OTHER] {
        let ends = Ends::of(&world, text(pool), pool).await;
        let whole = Stretch { from: 0, to: 0, length: 4 * MIB };
        assert_eq!(ends.copy(whole, |_| false).await.unwrap(), 4 * MIB);
        assert!(world.read(ends.target.file).await.unwrap() == ends.source_bytes(), "{}", text(pool));
        let copy = ends.open(&ends.target, ContentMode::Read).await;
        require_hole(&copy).await;
    }
    world.judge("all copies are made").await;
}

pub async fn a_stretch_is_copied_to_another_place_and_the_rest_stays(world: World) {
    for pool in [POOL, OTHER] {
        let ends = Ends::of(&world, text(pool), pool).await;
        ends.copy(Stretch { from: 0, to: 0, length: 100 }, |_| false).await.unwrap();
        let stretch = Stretch { from: MIB - 7, to: 50, length: 2 * MIB + 14 };
        assert_eq!(ends.copy(stretch, |_| false).await.unwrap(), stretch.length);
        let source = ends.source_bytes();
        let mut expected = source[..50].to_vec();
        expected.extend_from_slice(&source[MIB as usize - 7..3 * MIB as usize + 7]);
        assert!(world.read(ends.target.file).await.unwrap() == expected, "{}", text(pool));
    }
}

pub async fn a_copy_that_takes_long_answers_with_the_bytes_done_and_at_least_one(world: World) {
    for pool in [POOL, OTHER] {
        let ends = Ends::of(&world, text(pool), pool).await;
        let mut rest = Stretch { from: 0, to: 0, length: 4 * MIB };
        while rest.length > 0 {
            let done = ends.copy(rest, |_| true).await.unwrap();
            assert!(done > 0 && done <= rest.length);
            rest = rest.behind(done);
            assert_eq!(
                world.attributes(ends.target.file).await.size,
                rest.to,
                "all that is done can be seen"
            );
        }
        assert!(world.read(ends.target.file).await.unwrap() == ends.source_bytes(), "{}", text(pool));
    }
}

/// Behind the end of its replica the source would be a hole.
pub async fn a_source_that_lost_its_end_is_an_error_and_no_zeros(world: World) {
    for pool in [POOL, OTHER] {
        let ends = Ends::of(&world, text(pool), pool).await;
        let from = ends.open(&ends.source, ContentMode::Read).await;
        let to = ends.open(&ends.target, ContentMode::Write).await;
        world.pool.first.pool.truncate(&[(ends.source.file, MIB)], LONG).await.sole().unwrap();
        let whole = Stretch { from: 0, to: 0, length: 4 * MIB };
        let copied = world.files.copy(&from, &to, whole, |_| false).await;
        assert!(matches!(copied, Err(FilesError::Pool(PoolError::Io { .. }))), "{copied:?}");
        assert_eq!(world.attributes(ends.target.file).await.size, 0);
        let there = Stretch { length: MIB, ..whole };
        assert!(world.files.copy(&from, &to, there, |_| false).await.unwrap() > 0);
    }
}

/// Whether or not the pool can let two files have the same blocks.
pub async fn a_clone_has_the_bytes_of_its_source_or_is_refused(world: World) {
    let ends = Ends::of(&world, "clone", POOL).await;
    let from = ends.open(&ends.source, ContentMode::Read).await;
    let to = ends.open(&ends.target, ContentMode::Write).await;
    let whole = Stretch { from: 0, to: 0, length: 4 * MIB };
    if to.shared_block(&from).is_none() {
        let refused = to.share_from(&from, whole).await;
        assert!(matches!(refused, Err(FilesError::Pool(PoolError::Unsupported(_)))), "{refused:?}");
        return;
    }
    assert!(to.share_from(&from, whole).await.unwrap());
    assert!(world.read(ends.target.file).await.unwrap() == ends.source_bytes());
}
