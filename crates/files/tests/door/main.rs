//! The file layer by a door of a few lines: what clients see through its socket.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../scene/mod.rs"]
mod files_scene;
mod line_door;
mod scene;

use api::RangeKind;
use forebay_files::{ContentMode, Modes, Share};
use types::ByteRange;

use crate::files_scene::{FOREIGN, LONG, SHORT};
use crate::scene::DoorScene;

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn a_file_that_is_put_is_read_back() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    let bytes: Vec<u8> = (0..3 * MIB + 7).map(|at| (at % 251) as u8).collect();
    assert_eq!(client.put("/dir/file", &bytes).await, "OK");
    assert!(client.get("/dir/file").await.unwrap() == bytes);
    assert_eq!(client.put("/dir/empty", b"").await, "OK");
    assert_eq!(scene.connect().await.get("/dir/empty").await.unwrap(), b"");
}

#[tokio::test]
async fn each_error_has_its_word_and_the_connection_goes_on() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    assert_eq!(client.get("/dir/none").await.unwrap_err(), "NOT-FOUND");
    assert_eq!(client.put("/none/file", b"bytes").await, "NOT-FOUND");
    assert_eq!(client.put("/file", b"bytes").await, "FORBIDDEN", "the root belongs to another user");
    assert_eq!(client.get("/dir").await.unwrap_err(), "NOT-A-FILE");
    assert_eq!(client.ask("DELETE /").await, "FORBIDDEN");
    assert_eq!(client.put("/dir/file", b"bytes").await, "OK");
    assert_eq!(client.ask("DELETE /dir/file").await, "OK");
    assert_eq!(client.ask("PUT /dir/file many").await, "MALFORMED");
    assert_eq!(client.line().await, "", "the connection ends");
}

#[tokio::test]
async fn readers_see_the_file_before_a_put_or_after_it() {
    let scene = DoorScene::set(LONG).await;
    let mut writer = scene.connect().await;
    let version = |number: u8| vec![number; 100_000];
    assert_eq!(writer.put("/dir/file", &version(0)).await, "OK");
    let mut reader = scene.connect().await;
    let reading = async {
        let mut seen = Vec::new();
        while seen.last() != Some(&20) {
            let bytes = reader.get("/dir/file").await.unwrap();
            assert!(bytes.len() == 100_000 && bytes.iter().all(|byte| *byte == bytes[0]));
            seen.push(bytes[0]);
        }
        seen
    };
    let writing = async {
        for number in 1..=20 {
            assert_eq!(writer.put("/dir/file", &version(number)).await, "OK");
        }
    };
    let (seen, ()) = tokio::join!(reading, writing);
    assert!(seen.is_sorted(), "{seen:?}");
}

#[tokio::test]
async fn a_removed_file_is_gone_and_its_data_is_freed() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    assert_eq!(client.put("/dir/file", b"bytes").await, "OK");
    assert_eq!(client.ask("DELETE /dir/file").await, "OK");
    assert_eq!(client.get("/dir/file").await.unwrap_err(), "NOT-FOUND");
    assert_eq!(client.ask("DELETE /dir/file").await, "NOT-FOUND");
    assert_eq!(scene.count_reaped().await, (1, 1));
}

#[tokio::test]
async fn a_copy_keeps_the_holes_of_its_source() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    let mut bytes = vec![7; 4 * MIB as usize];
    assert_eq!(client.put("/dir/file", &bytes).await, "OK");
    let source = scene.found("file").await.unwrap();
    let hole = ByteRange::from_bounds(MIB, 3 * MIB).unwrap();
    scene.files.content(&source, ContentMode::Change).await.unwrap().deallocate(hole).await.unwrap();
    bytes[MIB as usize..3 * MIB as usize].fill(0);
    assert_eq!(client.ask("COPY /dir/file /dir/copy").await, "OK");
    assert!(client.get("/dir/copy").await.unwrap() == bytes);
    let copy = scene.found("copy").await.unwrap();
    let content = scene.files.content(&copy, ContentMode::Read).await.unwrap();
    assert_eq!(content.seek(0, RangeKind::Hole).await.unwrap(), MIB);
    assert_eq!(content.seek(MIB, RangeKind::Data).await.unwrap(), 3 * MIB);
}

#[tokio::test]
async fn an_open_of_another_door_that_denies_reading_or_writing_is_told() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    assert_eq!(client.put("/dir/file", b"first").await, "OK");
    let denies_writing = scene.open("file", Share::new(Modes::READ, Modes::WRITE)).await;
    assert_eq!(client.put("/dir/file", b"second").await, "LOCKED");
    assert_eq!(client.ask("DELETE /dir/file").await, "LOCKED");
    assert_eq!(client.get("/dir/file").await.unwrap(), b"first");
    drop(denies_writing);
    let denies_reading = scene.open("file", Share::new(Modes::READ, Modes::READ)).await;
    assert_eq!(client.get("/dir/file").await.unwrap_err(), "LOCKED");
    assert_eq!(client.ask("COPY /dir/file /dir/copy").await, "LOCKED");
    drop(denies_reading);
    assert_eq!(client.put("/dir/file", b"second").await, "OK");
    assert_eq!(client.get("/dir/file").await.unwrap(), b"second");
}

#[tokio::test]
async fn a_delegation_of_another_door_is_recalled_and_waited_for() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    assert_eq!(client.put("/dir/file", b"first").await, "OK");
    let file = scene.delegate("file").await;
    let returning = async {
        scene.other.until_recalled(1).await;
        assert_eq!(scene.found("file").await.unwrap().file, file, "it is not replaced yet");
        scene.files.return_delegation(file, FOREIGN);
    };
    let (answer, ()) = tokio::join!(client.put("/dir/file", b"second"), returning);
    assert_eq!((&*answer, scene.other.files()), ("OK", vec![file]));
    assert_eq!(client.get("/dir/file").await.unwrap(), b"second");
}

#[tokio::test]
async fn a_removal_whose_recall_is_not_answered_in_time_may_be_asked_for_later() {
    let scene = DoorScene::set(SHORT).await;
    let mut client = scene.connect().await;
    assert_eq!(client.put("/dir/file", b"bytes").await, "OK");
    let file = scene.delegate("file").await;
    assert_eq!(client.ask("DELETE /dir/file").await, "TRY-LATER");
    assert_eq!(client.get("/dir/file").await.unwrap(), b"bytes");
    scene.files.return_delegation(file, FOREIGN);
    assert_eq!(client.ask("DELETE /dir/file").await, "OK");
    assert_eq!(scene.other.files(), [file]);
}

#[tokio::test]
async fn a_client_that_watches_a_file_is_told_before_the_file_is_replaced() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    assert_eq!(client.put("/dir/file", b"first").await, "OK");
    let mut watcher = scene.connect().await;
    assert_eq!(watcher.ask("WATCH /dir/file").await, "OK");
    assert_eq!(client.put("/dir/file", b"second").await, "OK");
    assert_eq!(watcher.line().await, "CHANGED");
    assert_eq!(watcher.get("/dir/file").await.unwrap(), b"second");
}

#[tokio::test]
async fn a_client_that_ends_its_watch_or_leaves_gives_the_file_back() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    assert_eq!(client.put("/dir/file", b"first").await, "OK");
    let file = scene.found("file").await.unwrap().file;
    let mut watcher = scene.connect().await;
    assert_eq!(watcher.ask("WATCH /dir/file").await, "OK");
    assert!(scene.files.is_in_use(file));
    assert_eq!(watcher.ask("").await, "CHANGED");
    until(|| !scene.files.is_in_use(file)).await;
    assert_eq!(watcher.ask("WATCH /dir/file").await, "OK");
    drop(watcher);
    until(|| !scene.files.is_in_use(file)).await;
}

#[tokio::test]
async fn a_connection_that_is_dropped_in_the_middle_of_a_put_leaves_nothing() {
    let scene = DoorScene::set(LONG).await;
    let mut client = scene.connect().await;
    client.send("PUT /dir/file 1000\nsome").await;
    let unnamed = async {
        while scene.count_reaped().await != (1, 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, unnamed).await.expect("it is held while its bytes come in");
    drop(client);
    let freed = async {
        while scene.count_reaped().await != (1, 1) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, freed).await.expect("nobody holds it");
    assert!(scene.found("file").await.is_none());
    assert_eq!(scene.count_reaped().await, (0, 0));
}

async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.unwrap();
}
