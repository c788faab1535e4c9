//! Where clients are sent while pools change.

use api::{Face, FaceElsewhere};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use files::Received;
use forebay_door_webdav::{Completions, NAME, Redirect};
use http::{StatusCode, header};
use http_server::{RequestBody, Response};
use types::{Checksum, ChecksumKind, FileId, PoolId};

use crate::ground::{POOL, Scene, Scheme};

/// Has nothing of the scene.
const OTHER: PoolId = PoolId(1);

/// A file at the one pool, which has no address.
async fn with_file() -> Scene {
    let scene = Scene::set(Redirect::ToFaces);
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

/// The pool is on another host from here on, at 10.0.0.1:81.
fn move_elsewhere(scene: &Scene, name: Option<&str>, is_encrypted: bool, plain: &[&str]) {
    let plain_networks = plain.iter().map(|network| network.parse().unwrap()).collect();
    let elsewhere = FaceElsewhere { name: name.map(str::to_owned), is_encrypted, plain_networks };
    let face = Face { address: ([10, 0, 0, 1], 81).into(), elsewhere: Some(elsewhere) };
    scene.pools.list().set_face(POOL, NAME, Some(face)).unwrap();
}

fn location(response: &Response) -> Option<&str> {
    response.headers.get(header::LOCATION).map(|value| value.to_str().unwrap())
}

/// Scheme and server to which a client is sent that came by a scheme.
async fn led(scene: &Scene, scheme: Scheme) -> Option<String> {
    let got = scene.front.ask_by(scheme, "GET", "/file", &[], RequestBody::empty()).await;
    location(&got).map(|url| url.split("/file").next().unwrap().to_owned())
}

#[tokio::test]
async fn a_redirect_to_another_host_keeps_the_scheme() {
    let scene = with_file().await;
    let there = |url: &str| Some(url.to_owned());
    // The client's address is 127.0.0.1.
    move_elsewhere(&scene, None, false, &["127.0.0.0/8"]);
    assert_eq!(led(&scene, Scheme::Http).await, there("http://10.0.0.1:81"));
    assert_eq!(led(&scene, Scheme::Https).await, None, "out of TLS");
    move_elsewhere(&scene, None, false, &["192.0.2.0/24"]);
    assert_eq!(led(&scene, Scheme::Http).await, None, "the pool does not serve this client");
    move_elsewhere(&scene, Some("fb2.example.org"), true, &[]);
    assert_eq!(led(&scene, Scheme::Https).await, there("https://fb2.example.org:81"));
    assert_eq!(led(&scene, Scheme::Http).await, None, "into a certificate that the client may not know");
    scene.pools.list().set_face(POOL, NAME, None).unwrap();
    assert_eq!(led(&scene, Scheme::Https).await, None, "its host has no HTTP any more");
}

/// The pool host would have the token.
#[tokio::test]
async fn a_request_with_a_token_in_its_url_is_not_sent_to_another_host() {
    let scene = with_file().await;
    move_elsewhere(&scene, None, false, &["127.0.0.0/8"]);
    let got = scene.front.ask("GET", "/file?authz=secret", &[], RequestBody::empty()).await;
    assert_eq!((got.status, location(&got)), (StatusCode::OK, None));
}

/// The file of the ticket in a redirect, and whether there is one.
fn file_of(response: &Response) -> FileId {
    let ticket = location(response).unwrap().split("forebay-ticket=").nth(1).unwrap();
    let ticket = URL_SAFE_NO_PAD.decode(ticket).unwrap();
    FileId(u64::from_be_bytes(ticket[8..16].try_into().unwrap()))
}

fn change_of(response: &Response) -> u64 {
    let ticket = location(response).unwrap().split("forebay-ticket=").nth(1).unwrap();
    u64::from_be_bytes(URL_SAFE_NO_PAD.decode(ticket).unwrap()[16..24].try_into().unwrap())
}

#[tokio::test]
async fn files_and_uploads_of_other_pools_are_refused() {
    let scene = with_file().await;
    move_elsewhere(&scene, None, false, &["127.0.0.0/8"]);
    let (own, other) = (scene.front.completions().of_pool(POOL), scene.front.completions().of_pool(OTHER));
    let got = scene.front.ask("GET", "/file", &[], RequestBody::empty()).await;
    let (file, change) = (file_of(&got), change_of(&got));
    assert!(own.hold_version(file, change).await.unwrap().is_some());
    assert!(own.hold_version(file, change + 1).await.unwrap().is_none());
    assert!(other.hold_version(file, change).await.unwrap().is_none());
    assert!(own.hold_version(FileId(1 << 40), 1).await.unwrap().is_none(), "there is no such file");

    let put = scene.front.ask("PUT", "/new", &[], RequestBody::of("contents").awaited()).await;
    assert_eq!(put.status, StatusCode::TEMPORARY_REDIRECT);
    let upload = file_of(&put);
    let received = || {
        let sum = Checksum::new(ChecksumKind::Adler32, &[0, 0, 0, 1]).unwrap();
        Received { size: 0, checksums: vec![sum] }
    };
    assert_eq!(other.begin(upload, false).await.unwrap_err().status, StatusCode::GONE);
    assert_eq!(other.complete(upload, received()).await.unwrap_err().status, StatusCode::GONE);
    other.give_up(upload);
    own.begin(upload, false).await.expect("nobody else has ended it");
    other.put_off(upload);
    assert_eq!(own.begin(upload, false).await.unwrap_err().status, StatusCode::GONE, "it is begun");
    assert!(own.hold_version(upload, 1).await.unwrap().is_none(), "it has no name");
    assert!(own.begin(file, false).await.is_err(), "a file that is no upload");
    let head = scene.front.ask("HEAD", "/new", &[], RequestBody::empty()).await;
    assert_eq!(head.status, StatusCode::NOT_FOUND);
}
