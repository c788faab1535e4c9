//! Files that are being made.

use api::NamespaceError;

use super::*;

fn reading() -> Share {
    Share::new(Modes::READ, Modes::NONE)
}

#[tokio::test]
async fn a_file_that_is_being_made_is_waited_for_until_it_is_held() {
    let (_fakes, files) = Fakes::files();
    assert!(files.births_settled(Duration::ZERO).await);
    let (made, is_made) = tokio::sync::oneshot::channel();
    let making = files.make_unnamed(FOREIGN, reading(), async { Ok(is_made.await.unwrap()) });
    tokio::pin!(making);
    tokio::select! {
        biased;
        _ = &mut making => panic!("it is not made yet"),
        () = async {} => {}
    }
    assert!(!files.births_settled(SHORT).await, "it may be any of those without a name");
    let settled = files.births_settled(LONG);
    tokio::pin!(settled);
    made.send(attributes(FILE, 0)).unwrap();
    let (open, _) = making.await.unwrap();
    assert!(settled.await && files.is_in_use(open.file()));
    drop(open);
    assert!(!files.is_in_use(FILE));
}

#[tokio::test]
async fn removing_unnamed_files_does_not_wait_for_files_begun_later() {
    let (_fakes, files) = Fakes::files();
    let first = files.births.begin();
    let settled = files.births_settled(LONG);
    tokio::pin!(settled);
    tokio::select! {
        biased;
        _ = &mut settled => panic!("one is under way"),
        () = async {} => {}
    }
    let second = files.births.begin();
    drop(first);
    assert!(settled.await);
    assert!(!files.births_settled(SHORT).await);
    drop(second);
    assert!(files.births_settled(Duration::ZERO).await);
}

#[tokio::test]
async fn a_file_that_could_not_be_made_or_is_given_up_is_not_waited_for() {
    let (_fakes, files) = Fakes::files();
    let failed = files.make_unnamed(FOREIGN, reading(), async { Err(NamespaceError::Busy) }).await;
    assert!(failed.is_err_and(|error| error.is_retryable()));
    {
        let given_up = files.make_unnamed(FOREIGN, reading(), std::future::pending());
        tokio::pin!(given_up);
        tokio::select! {
            biased;
            _ = &mut given_up => panic!("it is never made"),
            () = async {} => {}
        }
    }
    assert!(files.births_settled(Duration::ZERO).await);
}
