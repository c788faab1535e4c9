//! Delegations of files whose name goes while they are opened, and of files whose writers contend.

use std::sync::Arc;

use api::{CreateKind, ExpectedFile, Namespace};
use files::Change;
use forebay_door_nfs::{Export, Squash};
use nfs4::{
    DelegReturn4Args, NfsArgop4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OpenClaim4, OpenDelegation4,
    OpenFlag4, OpenNoneDelegation4,
};
use testkit::memory_pool::MemoryPool;
use testkit::nfs_client::ops;
use types::{FileId, Identity};

use crate::ground::{Ground, LONG, POOL, client, name};

/// More than an OPEN and its PUTFH ask.
const QUESTIONS_MAX: usize = 20;

/// A client with a delegation of a removed file asks the server no more what its name stands for: it reads the old file for
/// as long as it likes.
#[test]
fn a_file_that_is_removed_while_it_is_opened_is_not_delegated_or_the_delegation_is_recalled() {
    let (mut granted, mut refused) = (0, 0);
    for by_handle in [false, true] {
        for questions in 0..QUESTIONS_MAX {
            let ground = Ground::new();
            let file = ground.make(FileId::ROOT, "file", CreateKind::Regular, 0o644);
            let (door, files) = ground.door_and_table(vec![Export::of_everything(Squash::None)]);
            let mut client = client(door, "host");
            let root = client.root().unwrap();
            let handle = client.lookup(&root, "file").unwrap();
            let share = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
            let open = |claim| ops::open_claiming("owner", share, OpenFlag4::NoCreate, claim);
            // As a client of another door does that met no delegation.
            let namespace = Arc::clone(&ground.namespace);
            ground.names.behind(questions, async move {
                let removed = namespace
                    .unlink(&Identity::root(), FileId::ROOT, &name("file"), ExpectedFile::Any)
                    .await
                    .unwrap();
                files.call_back(removed.attributes.file, None, Change::Remove);
            });
            let opened = if by_handle {
                client.open_by(&handle, open(OpenClaim4::Fh))
            } else {
                client.open_by(&root, ops::open("owner", share, OpenFlag4::NoCreate, "file"))
            };
            let is_removed = !ground.names.cancel();
            let Ok(opened) = opened else {
                assert!(is_removed, "after {questions} questions");
                refused += 1;
                continue;
            };
            if let nfs4::OpenDelegation4::Read(delegation) = &opened.opened.delegation
                && is_removed
            {
                let recall = client.callbacks.wait_for_recall(LONG);
                let recall = recall.unwrap_or_else(|| panic!("after {questions} questions, file {file}"));
                assert_eq!(recall.stateid.other, delegation.stateid.other);
                granted += 1;
            }
        }
    }
    assert!(granted > 0 && refused > 0, "{granted} recalled, {refused} refused");
}

/// Its writers wait for each other at the pool: a delegation would be recalled by the next one.
#[test]
fn a_file_whose_writers_contend_is_not_delegated_to_write_and_the_refusal_is_counted() {
    let ground = Ground::new();
    let (file, other) = (
        ground.make(FileId::ROOT, "file", CreateKind::Regular, 0o644),
        ground.make(FileId::ROOT, "other", CreateKind::Regular, 0o644),
    );
    let pool = Arc::new(MemoryPool::new(POOL));
    let (door, _) = ground.door_over(pool.clone(), vec![Export::of_everything(Squash::None)]);
    let mut client = client(door, "host");
    let root = client.root().unwrap();
    let mut open = |name: &str, share| {
        let opened = client.open_by(&root, ops::open("owner", share, OpenFlag4::NoCreate, name)).unwrap();
        let delegation = opened.opened.delegation.clone();
        let stateid = match &delegation {
            OpenDelegation4::Read(granted) => Some(granted.stateid),
            OpenDelegation4::Write(granted) => Some(granted.stateid),
            _ => None,
        };
        if let Some(stateid) = stateid {
            let return_it = NfsArgop4::DelegReturn(DelegReturn4Args { deleg_stateid: stateid });
            client.call(&[ops::put_fh(&opened.handle), return_it]).unwrap();
        }
        client.close(&opened).unwrap();
        delegation
    };
    let to_write = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let to_read = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
    let contention = OpenNoneDelegation4::Contention { server_will_push_deleg: false };
    pool.set_contended(&[other, file]);
    assert_eq!(open("file", to_write), OpenDelegation4::NoneExt(contention));
    assert!(matches!(open("file", to_read), OpenDelegation4::Read(_)), "readers do not contend");
    pool.set_contended(&[other]);
    assert!(matches!(open("file", to_write), OpenDelegation4::Write(_)));
    let counts = ground.doors.lock().unwrap()[0].status().delegations;
    assert_eq!((counts.contended, counts.granted), (1, 2));
}
