//! Changes of names that others change all the time.

use api::ExpectedFile;
use types::{Identity, Name};

use super::*;

#[tokio::test]
async fn a_name_that_moves_at_each_attempt_is_given_up_and_may_be_retried() {
    let (fakes, files) = Fakes::files();
    let (who, name) = (Identity::root(), Name::new(b"file").unwrap());
    let by = By { identity: &who, holder: Some(B), patience: LONG };
    for (expected, attempts) in [(ExpectedFile::Any, 8), (ExpectedFile::Exactly(FILE), 1)] {
        *fakes.removals_tried.lock() = 0;
        let refused = files.remove(by, Entry { dir: FileId::ROOT, name: &name, expected }).await;
        assert!(matches!(&refused, Err(error @ FilesError::Moved) if error.is_retryable()), "{refused:?}");
        assert_eq!(*fakes.removals_tried.lock(), attempts, "{expected:?}");
    }
}
