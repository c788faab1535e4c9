//! The orders of an open, a removal and the freeing of the data.

use super::*;

const OTHER: FileId = FileId(8);

/// An open that stops between its steps.
struct Opening {
    fakes: Arc<Fakes>,
    files: Arc<Files>,
    seen: RemovalsSeen,
    found: types::Attributes,
}

impl Opening {
    /// The file is looked up.
    async fn begin() -> Opening {
        let (fakes, files) = Fakes::files();
        let seen = files.removals();
        let found = files.attributes(FILE).await.unwrap();
        Opening { fakes, files, seen, found }
    }

    fn unlink(&self) {
        self.fakes.files.lock().get_mut(&FILE).unwrap().nlink = 0;
    }

    /// As the reaper does, which has found no name: whether it may.
    fn free(&self) -> bool {
        self.files.begin_freeing([FILE]).contains(&FILE)
    }

    fn admit(&self) {
        let owner = Owner { holder: A, number: 1 };
        self.files.table().open(FILE, owner, Share::new(Modes::READ, Modes::NONE)).unwrap();
    }

    async fn judge(&self) -> Result<(), FilesError> {
        self.files.judge_still_named(&self.found, self.seen).await
    }

    async fn is_stale(&self) -> bool {
        let judged = self.judge().await;
        matches!(judged, Err(FilesError::Namespace(api::NamespaceError::Stale(FILE))))
    }
}

#[tokio::test]
async fn an_open_without_a_removal_meanwhile_asks_nothing_more() {
    let opening = Opening::begin().await;
    opening.admit();
    opening.fakes.files.lock().clear();
    opening.judge().await.unwrap();
}

#[tokio::test]
async fn a_removal_between_look_up_and_admission_makes_the_open_stale() {
    for change in [Change::Remove, Change::Replace] {
        let opening = Opening::begin().await;
        opening.unlink();
        opening.files.call_back(FILE, None, change);
        opening.admit();
        assert!(opening.is_stale().await, "{change:?}");
    }
}

#[tokio::test]
async fn a_file_that_the_reaper_frees_between_look_up_and_admission_is_stale() {
    let opening = Opening::begin().await;
    // Its door has not said so yet.
    opening.unlink();
    assert!(opening.free());
    opening.admit();
    assert!(opening.is_stale().await);
    opening.fakes.files.lock().clear();
    assert!(opening.is_stale().await, "also when its row is gone");
}

#[tokio::test]
async fn a_file_that_is_open_before_the_reaper_looks_keeps_its_data() {
    let opening = Opening::begin().await;
    opening.unlink();
    opening.admit();
    assert!(!opening.free());
    opening.judge().await.expect("the open came before the removal, which is not answered yet");
}

#[tokio::test]
async fn a_file_that_the_reaper_frees_before_the_look_up_is_not_opened() {
    let opening = Opening::begin().await;
    opening.unlink();
    assert!(opening.free());
    let opened = opening.files.open(FILE, B, Share::new(Modes::READ, Modes::NONE)).await;
    assert!(matches!(opened, Err(FilesError::Namespace(api::NamespaceError::Stale(FILE)))));
}

#[tokio::test]
async fn the_removal_of_another_name_does_no_harm_to_an_open() {
    let opening = Opening::begin().await;
    opening.files.call_back(OTHER, None, Change::Remove);
    opening.files.begin_freeing([OTHER]);
    opening.files.call_back(FILE, None, Change::Remove);
    opening.admit();
    opening.judge().await.expect("it has a name left");
}

#[tokio::test]
async fn only_files_that_nobody_uses_are_freed() {
    let opening = Opening::begin().await;
    opening.admit();
    assert_eq!(opening.files.begin_freeing([FILE, OTHER]), [OTHER].into());
    assert_ne!(opening.files.removals(), opening.seen);
    let seen = opening.files.removals();
    assert!(opening.files.begin_freeing([FILE]).is_empty());
    assert_eq!(opening.files.removals(), seen, "nothing is freed");
}
