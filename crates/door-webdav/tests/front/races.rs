//! A PUT that gives the name of a request to another file while the request is under way.

use forebay_door_webdav::Redirect;
use http_server::{RequestBody, ResponseBody};

use crate::ground::Scene;

const COLOUR: &str = r#"<?xml version="1.0"?><propertyupdate xmlns="DAV:"><set><prop><colour xmlns="urn:x">red</colour></prop></set></propertyupdate>"#;

/// A scene in which a PUT of `/file`, which is there, is done behind so many questions of the next request.
async fn put_behind(questions: usize) -> Scene {
    let scene = Scene::set(Redirect::Never);
    assert_eq!(scene.front.ask("PUT", "/file", &[], RequestBody::of("old")).await.status, 201);
    let front = scene.front.clone();
    scene.names.behind(questions, async move {
        assert!(front.ask("PUT", "/file", &[], RequestBody::of("new")).await.status.is_success());
    });
    scene
}

async fn properties(scene: &Scene) -> String {
    let found = scene.front.ask("PROPFIND", "/file", &[], RequestBody::empty()).await;
    let ResponseBody::Full(text) = found.body else { panic!("the properties of one file are sent whole") };
    String::from_utf8(text.to_vec()).unwrap()
}

#[tokio::test]
async fn a_proppatch_is_in_the_file_that_has_the_name_whenever_a_put_comes_between() {
    for questions in 0.. {
        let scene = put_behind(questions).await;
        let patched = scene.front.ask("PROPPATCH", "/file", &[], RequestBody::of(COLOUR)).await;
        if scene.names.cancel() {
            assert!(questions > 3, "no PUT came between after {questions} questions");
            return;
        }
        assert_eq!(patched.status, 207, "PUT behind {questions} questions");
        let properties = properties(&scene).await;
        assert!(properties.contains(">red<"), "PUT behind {questions} questions: {properties}");
    }
}

#[tokio::test]
async fn a_delete_removes_what_has_the_name_whenever_a_put_comes_between() {
    for questions in 0.. {
        let scene = put_behind(questions).await;
        let deleted = scene.front.ask("DELETE", "/file", &[], RequestBody::empty()).await;
        if scene.names.cancel() {
            assert!(questions > 3, "no PUT came between after {questions} questions");
            return;
        }
        assert_eq!(deleted.status, 204, "PUT behind {questions} questions");
    }
}
