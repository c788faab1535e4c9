//! Where clients are sent while pools change.

use forebay_door_webdav::{NAME, Redirect};
use http::{StatusCode, header};
use http_server::RequestBody;

use crate::ground::{POOL, Scene};

/// A file at the one pool, which has no address.
async fn with_file() -> Scene {
    let scene = Scene::set(Redirect::Always);
    let put = scene.front.ask("PUT", "/file", &[], RequestBody::of("content")).await;
    assert_eq!(put.status, StatusCode::CREATED);
    scene
}

/// The status of a GET, and the server that it sends the client to.
async fn sent_to(scene: &Scene) -> (u16, Option<String>) {
    let got = scene.front.ask("GET", "/file", &[], RequestBody::empty()).await;
    let location = got.headers.get(header::LOCATION).map(|value| value.to_str().unwrap().to_owned());
    let server = location.map(|url| url.split('/').nth(2).unwrap().to_owned());
    (got.status.as_u16(), server)
}

#[tokio::test]
async fn a_get_is_sent_to_the_address_that_the_pool_has_now() {
    let (scene, there) = (with_file().await, |server: &str| (307, Some(server.to_owned())));
    assert_eq!(sent_to(&scene).await, (200, None), "the pool has no address: the head answers");
    let list = scene.pools.list();
    list.set_address(POOL, NAME, ([10, 0, 0, 1], 81).into()).unwrap();
    assert_eq!(sent_to(&scene).await, there("10.0.0.1:81"));
    list.set_address(POOL, NAME, ([10, 0, 0, 2], 82).into()).unwrap();
    assert_eq!(sent_to(&scene).await, there("10.0.0.2:82"));
    list.set_address(POOL, NAME, ([0, 0, 0, 0], 83).into()).unwrap();
    assert_eq!(sent_to(&scene).await, there("head.example:83"), "as the client reached the head");
}

#[tokio::test]
async fn nobody_is_sent_to_a_pool_that_is_disabled_or_removed() {
    let scene = with_file().await;
    let list = scene.pools.list();
    list.set_address(POOL, NAME, ([10, 0, 0, 1], 81).into()).unwrap();
    list.set_disabled(POOL, true).unwrap();
    assert_eq!(sent_to(&scene).await, (503, None));
    list.set_disabled(POOL, false).unwrap();
    assert_eq!(sent_to(&scene).await, (307, Some("10.0.0.1:81".to_owned())));
    list.remove(POOL).unwrap();
    assert_eq!(sent_to(&scene).await, (503, None));
}
