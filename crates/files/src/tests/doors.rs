//! Registration of doors.

use super::*;

#[tokio::test]
async fn a_door_has_the_name_under_which_it_was_registered() {
    let (_fakes, files) = Fakes::files();
    let third = files.register("third").unwrap();
    assert!(third != DOOR && third != OTHER_DOOR);
    assert_eq!([DOOR, OTHER_DOOR, third].map(|door| files.door_name(door)), ["one", "other", "third"]);
    assert_eq!(files.door_name(Door::numbered(3)), "", "nobody has it");
}

#[tokio::test]
async fn a_name_is_registered_once() {
    let (_fakes, files) = Fakes::files();
    assert_eq!(files.register("other"), Err(RegisterError::Repeated("other")));
    assert_eq!(files.register("third"), Ok(Door::numbered(2)), "the refused one took no number");
}

#[tokio::test]
async fn doors_are_bounded() {
    let (_fakes, files) = Fakes::files();
    let name = |number: usize| &*Box::leak(format!("door {number}").into_boxed_str());
    for number in 2..32 {
        assert_eq!(files.register(name(number)), Ok(Door::numbered(number as u8)));
    }
    assert_eq!(files.register("one more"), Err(RegisterError::TooMany("one more")));
    assert_eq!(files.door_name(Door::numbered(31)), "door 31");
}

#[tokio::test]
async fn a_recall_of_a_door_without_a_recaller_is_left_to_its_deadline() {
    let (_fakes, files) = Fakes::files();
    let clients = fakes::FakeRecaller::attach(&files, DOOR, true);
    granted(&files, FOREIGN, LayoutMode::Read);
    let replaced = files.before_change(FILE, None, Change::Replace, SHORT).await.map(drop);
    assert!(matches!(replaced, Err(FilesError::Recalled)), "{replaced:?}");
    assert_eq!(clients.holders(), [], "the holder is another door's");
}

#[tokio::test]
#[should_panic(expected = "a door is made by its registration")]
async fn a_door_of_other_files_gets_no_recaller() {
    let (_fakes, files) = Fakes::files();
    fakes::FakeRecaller::attach(&files, Door::numbered(2), true);
}
