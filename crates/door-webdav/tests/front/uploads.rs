//! The cost of a PUT in questions to the namespace, and its path.

use forebay_door_webdav::Redirect;
use http::StatusCode;
use http_server::{RequestBody, ResponseBody};

use crate::ground::Scene;

/// The status of a PUT, and the namespace's questions that it cost.
async fn put(scene: &Scene, path: &str) -> (StatusCode, Vec<&'static str>) {
    scene.names.take_asked();
    let status = scene.front.ask("PUT", path, &[], RequestBody::of("content")).await.status;
    (status, scene.names.take_asked())
}

#[tokio::test]
async fn a_put_walks_its_path_once() {
    let scene = Scene::set(Redirect::Never);
    let made = scene.front.ask("MKCOL", "/dir", &[], RequestBody::empty()).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let walk = vec!["attributes", "lookup", "lookup"];
    assert_eq!(put(&scene, "/dir/file").await, (StatusCode::CREATED, walk.clone()), "a new file");
    assert_eq!(put(&scene, "/dir/file").await, (StatusCode::NO_CONTENT, walk), "a file that is replaced");
}

/// The namespace refuses nothing here: the file would appear in the directory that was moved.
#[tokio::test]
async fn an_upload_whose_directory_was_moved_and_made_anew_is_refused() {
    let scene = Scene::set(Redirect::Never);
    let ask = async |method: &str, path: &str, headers: &[(&'static str, &str)], body| {
        scene.front.ask(method, path, headers, body).await.status
    };
    let part = [("content-range", "bytes 0-2/6")];
    let last = [("content-range", "bytes 3-5/6")];
    let to = [("destination", "/moved")];
    assert_eq!(ask("MKCOL", "/dir", &[], RequestBody::empty()).await, StatusCode::CREATED);
    assert_eq!(ask("PUT", "/dir/file", &part, RequestBody::of("con")).await, StatusCode::ACCEPTED);
    assert_eq!(ask("MOVE", "/dir", &to, RequestBody::empty()).await, StatusCode::CREATED);
    assert_eq!(ask("MKCOL", "/dir", &[], RequestBody::empty()).await, StatusCode::CREATED);
    assert_eq!(ask("PUT", "/dir/file", &last, RequestBody::of("ten")).await, StatusCode::CONFLICT);
    for path in ["/dir/file", "/moved/file"] {
        assert_eq!(ask("GET", path, &[], RequestBody::empty()).await, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn a_put_without_its_directory_is_told_which_one_to_make() {
    let scene = Scene::set(Redirect::Never);
    let refused = scene.front.ask("PUT", "/dir/missing/file", &[], RequestBody::of("content")).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let ResponseBody::Full(told) = refused.body else { panic!("a refusal is one line") };
    let told = String::from_utf8(told.to_vec()).unwrap();
    assert!(
        told.starts_with("/dir/missing is or leads to no directory: make one there by MKCOL first"),
        "{told}"
    );
}
