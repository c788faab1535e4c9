//! `auto` with the numbers of an instance that sets nothing: groups of many creates make a directory soft, those of untars
//! do not.

use std::sync::mpsc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;
use crate::config::GROUP_LEN_MAX;

/// More than are looked back on.
const GROUPS: usize = 40;

#[tokio::test]
async fn creates_of_many_clients_make_a_directory_soft_and_untars_do_not() {
    assert!(is_soft_after_groups_of(128).await, "128 clients");
    for untars in [1, 8] {
        assert!(!is_soft_after_groups_of(untars).await, "{untars} clients");
    }
}

/// Whether the directory was soft at the end of `GROUPS`, in each of which every client creates one file there.
async fn is_soft_after_groups_of(clients: usize) -> bool {
    let engine = Engine::sqlite();
    let namespace = open_as_usual(&engine);
    let dir = made(&namespace, TOP, "d", &folder()).await;
    let mut tasks = JoinSet::new();
    let (mut held, is_held) = hold(&namespace, &mut tasks);
    is_held.await.unwrap();
    for group in 0..GROUPS {
        for client in 0..clients {
            let namespace = Arc::clone(&namespace);
            tasks.spawn(async move {
                made(&namespace, dir, &format!("{client}-{group}"), &regular()).await;
            });
        }
        until_waiting(&namespace, clients).await;
        let (held_next, is_held) = hold(&namespace, &mut tasks);
        until_waiting(&namespace, clients + 1).await;
        drop(std::mem::replace(&mut held, held_next));
        is_held.await.unwrap();
    }
    let is_soft = namespace.shared.cache.pending.holds(dir);
    drop(held);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
    is_soft
}

/// The committer's thread makes every group.
fn open_as_usual(engine: &Engine) -> Arc<SqlNamespace> {
    let config = Config {
        database: engine.database.clone(),
        clock: engine.clock.clone(),
        root_owner: (0, 0),
        sync: Sync::Always,
        cache_bytes: 1 << 20,
        queue_len_max: 1024,
        group_len_max: GROUP_LEN_MAX as usize,
    };
    Arc::new(SqlNamespace::open(config).unwrap())
}

/// Behind what waits now, an operation that the committer does not get over until the sender is dropped. The receiver
/// tells that the committer has come to it.
fn hold(namespace: &Arc<SqlNamespace>, tasks: &mut JoinSet<()>) -> (mpsc::Sender<()>, oneshot::Receiver<()>) {
    let ((sender, dropped), (begun, is_begun)) = (mpsc::channel(), oneshot::channel());
    let namespace = Arc::clone(namespace);
    tasks.spawn(async move {
        let held = namespace.shared.submit(move |_| {
            begun.send(()).unwrap();
            assert!(dropped.recv().is_err());
            Ok(())
        });
        held.await.unwrap();
    });
    (sender, is_begun)
}

async fn until_waiting(namespace: &SqlNamespace, operations: usize) {
    while namespace.figures().queued < operations as u64 {
        tokio::task::yield_now().await;
    }
}
