//! New entries.

use api::{CreateKind, CreateMode, CreateSpec, SetAttributes, Stretch};
use types::{ByteRange, SymlinkTarget};

use super::*;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Directory,
    Symlink,
    File,
}

async fn make(stage: &Stage, kind: Kind, name: &Name) -> Result<(), FilesError> {
    let (files, by, dir) = (stage.files(), stage.by(), stage.scene.dir);
    let made = match kind {
        Kind::Directory => files.make_directory(by, dir, name, (0o777, 0o022)).await,
        Kind::Symlink => files.make_symlink(by, dir, name, SymlinkTarget::new(b"to").unwrap()).await,
        Kind::File => {
            let (kind, mode) = (CreateKind::Regular, CreateMode::Guarded);
            let set = SetAttributes::default();
            let spec = CreateSpec { kind, mode, permissions: 0o644, umask: None, set, location: None };
            files.make(by, dir, name, spec).await
        }
    };
    made.map(drop)
}

#[tokio::test]
async fn a_dropped_creation_leaves_the_entry_or_nothing() {
    for kind in [Kind::Directory, Kind::Symlink, Kind::File] {
        let stage = Stage::set().await;
        let mut cases = 0;
        at_each_poll(async |polls, when| {
            cases += 1;
            let name = name(&cases.to_string());
            let context = format!("{kind:?}, dropped after {polls} polls, {when:?}");
            let answer = stage.polled(make(&stage, kind, &name), polls, when).await;
            stage.settle().await;
            stage.judge(&context).await;
            let made = stage.at(&name).await;
            if let Some(answer) = answer {
                assert!(answer.is_ok() && made.is_some(), "{context}: {answer:?}");
                return true;
            }
            if made.is_none() {
                make(&stage, kind, &name).await.unwrap();
            }
            false
        })
        .await;
    }
}

/// As a LAYOUTCOMMIT of a client without an open.
#[tokio::test]
async fn a_dropped_commit_of_bytes_at_a_pool_keeps_delegations_off_until_it_is_made() {
    let stage = Stage::set().await;
    let (files, mut cases) = (stage.files(), 0);
    at_each_poll(async |polls, when| {
        cases += 1;
        let context = format!("dropped after {polls} polls, {when:?}");
        let file = stage.put(&cases.to_string()).await;
        let found = files.attributes(file).await.unwrap();
        let replica = stage.scene.pool.pool().writer(file);
        replica.write_at(8, Bytes::from_static(b"more"), Stability::FileSync).await.unwrap();
        let commit = async || {
            let changing = files.before_change(file, Some(B), Change::Replace, LONG).await?;
            files.commit_written(&found, None, Some(changing)).await
        };
        let answer = stage.polled(commit(), polls, when).await;
        let delegated = files.table().delegations().grant(file, A, DelegationKind::Read, Duration::ZERO);
        let then = files.attributes(file).await.unwrap();
        stage.settle().await;
        let now = files.attributes(file).await.unwrap();
        assert!(delegated.is_err() || now == then, "{context}: it goes on while its holder caches {then:?}");
        stage.give_all_back();
        recall_time_passes(&stage);
        stage.judge(&context).await;
        assert!([8, 12].contains(&now.size), "{context}: {now:?}");
        if let Some(answer) = answer {
            assert!(answer.is_ok_and(|committed| committed == now && now.size == 12), "{context}");
            return true;
        }
        assert_eq!(commit().await.unwrap().size, 12, "{context}");
        false
    })
    .await;
}

/// As a WRITE, ALLOCATE, DEALLOCATE or COPY by a special stateid.
#[tokio::test]
async fn a_dropped_write_without_an_open_keeps_delegations_off_until_it_is_made() {
    let range = ByteRange::from_bounds(2, 6).unwrap();
    for which in 0..4 {
        let stage = Stage::set().await;
        let source = stage.put("source").await;
        let (files, who, mut cases) = (stage.files(), &stage.scene.caller.identity, 0);
        at_each_poll(async |polls, when| {
            cases += 1;
            let context = format!("{which}, dropped after {polls} polls, {when:?}");
            let file = stage.put(&cases.to_string()).await;
            let found = files.attributes(file).await.unwrap();
            let write = async || {
                let writing = Change::Access(Share::new(Modes::WRITE, Modes::NONE));
                let changing = files.before_change(file, Some(B), writing, LONG).await?;
                if which == 0 {
                    let data = (2, Bytes::from_static(b"data"));
                    return files
                        .write(who, &found, data, Stability::FileSync, Some(changing))
                        .await
                        .map(drop);
                }
                let changing = Some(Arc::new(changing));
                match which {
                    1 => {
                        let content = files.content(&found, ContentMode::Write).await?.keeping(changing);
                        content.allocate(who, ByteRange::from_bounds(4, 12).unwrap()).await
                    }
                    2 => {
                        let content = files.content(&found, ContentMode::Change).await?.keeping(changing);
                        content.deallocate(range).await
                    }
                    _ => {
                        let target = files.content(&found, ContentMode::Write).await?.keeping(changing);
                        let from = files.attributes(source).await?;
                        let from = files.content(&from, ContentMode::Read).await?;
                        let stretch = Stretch { from: 0, to: 2, length: from.file().size };
                        files.copy(&from, &target, stretch, |_| false).await.map(drop)
                    }
                }
            };
            let answer = stage.polled(write(), polls, when).await;
            let delegated = files.table().delegations().grant(file, A, DelegationKind::Read, Duration::ZERO);
            let state = async || {
                let replica = stage.scene.pool.pool().writer(file);
                let data = replica.read_at(0, 100).await.unwrap().data;
                (data, files.attributes(file).await.unwrap())
            };
            let then = state().await;
            stage.settle().await;
            let now = state().await;
            assert!(delegated.is_err() || now == then, "{context}: it goes on while its holder caches");
            stage.give_all_back();
            recall_time_passes(&stage);
            stage.judge(&context).await;
            answer.is_some_and(|answer| answer.map(|()| assert_ne!(now.1, found)).is_ok())
        })
        .await;
    }
}
