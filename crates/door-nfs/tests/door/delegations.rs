//! Delegations of files whose name goes while they are opened.

use std::sync::Arc;

use api::{CreateKind, ExpectedFile, Namespace};
use files::Change;
use forebay_door_nfs::{Export, Squash};
use nfs4::{OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OpenClaim4, OpenFlag4};
use testkit::nfs_client::ops;
use types::{FileId, Identity};

use crate::ground::{Ground, LONG, client, name};

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
