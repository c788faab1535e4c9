//! Delegations of files whose name goes while they are opened.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use api::{CreateKind, Namespace};
use async_trait::async_trait;
use files::{Change, Files};
use namespace::SqlNamespace;
use nfs4::{OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OpenClaim4, OpenFlag4};
use testkit::nfs_client::ops;
use testkit::watched_namespace::{Question, Watch};
use types::{FileId, Identity};

use crate::ground::{Ground, LONG, client, name};

/// More than an OPEN and its PUTFH ask.
const QUESTIONS_MAX: usize = 20;
const NEVER: usize = usize::MAX;

/// Removes the file, as a client of another door does that met no delegation, when the chosen question is answered.
struct Remover {
    namespace: Arc<SqlNamespace>,
    files: OnceLock<Arc<Files>>,
    before: AtomicUsize,
}

#[async_trait]
impl Watch for Remover {
    async fn answered(&self, _question: Question) {
        let counted = self.before.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| {
            Some(if before == NEVER { NEVER } else { before.wrapping_sub(1) })
        });
        if counted == Ok(0) {
            let removed =
                self.namespace.unlink(&Identity::root(), FileId::ROOT, &name("file")).await.unwrap();
            self.files.get().unwrap().call_back(removed.attributes.file, None, Change::Remove);
        }
    }
}

/// A client with a delegation of a removed file asks the server no more what its name stands for: it reads the old file for
/// as long as it likes.
#[test]
fn a_file_that_is_removed_while_it_is_opened_is_not_delegated_or_the_delegation_is_recalled() {
    let (mut granted, mut refused) = (0, 0);
    for by_handle in [false, true] {
        for questions in 0..QUESTIONS_MAX {
            let ground = Ground::new();
            let file = ground.make(FileId::ROOT, "file", CreateKind::Regular, 0o644);
            let remover = Arc::new(Remover {
                namespace: Arc::clone(&ground.namespace),
                files: OnceLock::new(),
                before: AtomicUsize::new(NEVER),
            });
            let (door, files) = ground.watched_door(remover.clone());
            assert!(remover.files.set(files).is_ok());
            let mut client = client(door, "host");
            let root = client.root().unwrap();
            let handle = client.lookup(&root, "file").unwrap();
            let share = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
            let open = |claim| ops::open_claiming("owner", share, OpenFlag4::NoCreate, claim);
            remover.before.store(questions, Ordering::SeqCst);
            let opened = if by_handle {
                client.open_by(&handle, open(OpenClaim4::Fh))
            } else {
                client.open_by(&root, ops::open("owner", share, OpenFlag4::NoCreate, "file"))
            };
            let is_removed = remover.before.swap(NEVER, Ordering::SeqCst) > QUESTIONS_MAX;
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
