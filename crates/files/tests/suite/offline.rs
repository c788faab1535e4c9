//! Pools that cannot be reached: an error that says so, at once.

use std::time::Duration;

use api::{PoolError, Replace, Stability};
use bytes::Bytes;
use forebay_files::{ContentMode, FilesError};

use crate::scene::{POOL, Rules, give_name};
use crate::world::{OTHER, World};

/// Far below every deadline of a pool.
const AT_ONCE: Duration = Duration::from_secs(20);

async fn at_once<T>(operation: impl Future<Output = T>) -> T {
    tokio::time::timeout(AT_ONCE, operation).await.expect("nothing is waited for")
}

fn is_offline<T>(answer: &Result<T, FilesError>) -> bool {
    matches!(answer, Err(error @ FilesError::Pool(PoolError::Offline(POOL))) if error.may_pass())
}

pub async fn a_file_of_a_lost_pool_is_an_error_and_files_of_other_pools_are_served(world: World) {
    let (lost, other) = (world.make("lost", POOL, "bytes").await, world.make("other", OTHER, "bytes").await);
    let empty = world.make_empty("empty", POOL).await;
    world.pools.lose(POOL);
    let who = &world.caller.identity;
    let data = || (0, Bytes::from_static(b"again"));
    for file in [lost, empty] {
        let write = world.files.write(who, &file, data(), Stability::FileSync, None);
        assert!(is_offline(&at_once(write).await));
        let set_length = world.files.set_length(world.by(), &file, 2, false);
        assert!(is_offline(&at_once(set_length).await));
        assert!(is_offline(&at_once(world.files.open_for_writing(&file)).await));
    }
    assert!(is_offline(&at_once(world.read(lost.file)).await));
    assert!(is_offline(&at_once(world.read(empty.file)).await), "its place is there");
    assert_eq!(world.read(other.file).await.unwrap(), b"bytes");
    at_once(world.files.write(who, &other, data(), Stability::FileSync, None)).await.unwrap();
    assert_eq!(world.read(other.file).await.unwrap(), b"again");
    world.judge("nothing was begun").await;
}

pub async fn an_upload_goes_to_a_pool_that_can_be_reached(world: World) {
    world.pools.lose(POOL);
    let upload = at_once(world.begin("file", Replace::Any, "bytes")).await.unwrap();
    assert_eq!(upload.pool(), OTHER);
    let published = give_name(upload, &Rules::default()).await.unwrap();
    assert_eq!(world.read(published.attributes.file).await.unwrap(), b"bytes");
    world.judge("it has its name").await;
}

pub async fn a_copy_from_a_lost_pool_is_an_error(world: World) {
    let source = world.make("source", POOL, "bytes").await;
    world.pools.lose(POOL);
    let opened = at_once(world.files.content(&source, ContentMode::Read)).await.map(drop);
    assert!(is_offline(&opened), "{opened:?}");
    world.judge("nothing was begun").await;
}
