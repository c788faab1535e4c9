//! Clients of a door, which give back at once or when the test does it for them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use file_state::{Holder, LayoutModes};
use forebay_files::{Door, Files, Granted, Recall, Recaller, Told};
use parking_lot::Mutex;
use types::FileId;

/// A door whose clients give back at once, or never.
pub struct FakeRecaller {
    files: Weak<Files>,
    gives_back: bool,
    pub recalled: Mutex<Vec<Recall>>,
    /// Holders that were asked for their unsent writes, and the answer of each.
    pub asked: Mutex<Vec<Holder>>,
    pub told: Mutex<Option<Told>>,
    /// Holders that can be dislodged, and whether they are gone at once.
    pub lost: Mutex<Vec<Holder>>,
    pub goes_at_once: bool,
}

impl FakeRecaller {
    pub fn attach(files: &Arc<Files>, door: Door, gives_back: bool) -> Arc<FakeRecaller> {
        FakeRecaller::attach_with(files, door, gives_back, &[], false)
    }

    /// These clients were lost.
    pub fn attach_with(
        files: &Arc<Files>,
        door: Door,
        gives_back: bool,
        lost: &[Holder],
        goes_at_once: bool,
    ) -> Arc<FakeRecaller> {
        let recaller = Arc::new(FakeRecaller {
            files: Arc::downgrade(files),
            gives_back,
            recalled: Mutex::default(),
            asked: Mutex::default(),
            told: Mutex::default(),
            lost: Mutex::new(lost.to_vec()),
            goes_at_once,
        });
        files.recall_through(door, recaller.clone());
        recaller
    }

    /// Releases the state of a lost client.
    pub fn release(&self, holder: Holder) {
        let files = self.files.upgrade().unwrap();
        files.table().release_holder(holder);
        files.returned();
    }

    pub fn holders(&self) -> Vec<Holder> {
        self.recalled.lock().iter().map(|recall| recall.holder).collect()
    }

    pub fn files(&self) -> Vec<FileId> {
        self.recalled.lock().iter().map(|recall| recall.file).collect()
    }

    pub async fn until_recalled(&self, count: usize) {
        let recalled = async {
            while self.recalled.lock().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(super::LONG, recalled).await.expect("it is recalled");
    }
}

#[async_trait]
impl Recaller for FakeRecaller {
    async fn ask_writer(&self, _: FileId, writer: Holder, _: Duration) -> Option<Told> {
        // Deadlocks if the table is still held.
        let files = self.files.upgrade().unwrap();
        assert!(files.table().holders().iter().any(|holder| holder == writer));
        self.asked.lock().push(writer);
        // So that an answer takes some time.
        tokio::time::sleep(Duration::from_millis(1)).await;
        *self.told.lock()
    }

    fn recall(&self, recalls: &[Recall]) {
        self.recalled.lock().extend(recalls);
        let files = self.files.upgrade().unwrap();
        for recall in recalls.iter().filter(|_| self.gives_back) {
            // Deadlocks if the table is still held.
            match recall.granted {
                Granted::Layout(_) => {
                    let _ = files.table().layouts().give_back(recall.file, recall.holder, LayoutModes::ALL);
                    files.returned();
                }
                Granted::Delegation(_) => files.return_delegation(recall.file, recall.holder),
            }
        }
    }

    fn dislodge(&self, holders: &[Holder]) -> bool {
        let going: Vec<Holder> = {
            let lost = self.lost.lock();
            holders.iter().filter(|holder| lost.contains(holder)).copied().collect()
        };
        if self.goes_at_once {
            going.iter().for_each(|holder| self.release(*holder));
        }
        !going.is_empty()
    }
}
