//! Copies between memory and a server on loopback that misbehaves as told.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod memory;
mod peer;
mod pulls;
mod pushes;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_client::{Client, ClientConfig};
use http_server::{Response, ResponseBody};

use super::{CopyCounts, CopyFigures, CopyRequest, Direction, RunningCopies, ThirdPartyConfig};
use memory::{End, source, target};
use peer::{Peer, Whims};

/// Not a multiple of anything, larger than what is written at once.
fn data() -> Vec<u8> {
    (0u32..1_200_001).map(|i| (i.wrapping_mul(2_654_435_761) >> 17) as u8).collect()
}

fn config() -> ThirdPartyConfig {
    ThirdPartyConfig {
        part_bytes_min: 1000,
        marker_interval: Duration::from_millis(20),
        retry_pause: Duration::from_millis(1),
        ..ThirdPartyConfig::default()
    }
}

fn transfers(config: ThirdPartyConfig) -> RunningCopies {
    counted(config, Arc::default())
}

fn counted(config: ThirdPartyConfig, counts: Arc<CopyCounts>) -> RunningCopies {
    let client = ClientConfig {
        system_roots: false,
        idle_timeout: Duration::from_secs(3),
        answer_timeout: Duration::from_secs(5),
        ..ClientConfig::default().reaching_loopback()
    };
    RunningCopies::new(Client::new(client).unwrap(), config, counts)
}

fn request(list: &[(&str, &str)]) -> CopyRequest {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    CopyRequest::parse(&headers).unwrap()
}

/// All that the client is told.
async fn told(response: Response) -> String {
    assert_eq!(response.status.as_u16(), 202);
    assert_eq!(response.headers["content-type"], "text/perf-marker-stream");
    let ResponseBody::Stream(mut lines) = response.body else { panic!("markers are a stream") };
    let mut text = String::new();
    while let Some(part) = lines.next().await {
        text += std::str::from_utf8(&part.unwrap()).unwrap();
    }
    text
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap()
}

async fn pull(peer: &Peer, more: &[(&str, &str)]) -> (String, End, u64) {
    pull_with(config(), peer, more).await
}

async fn pull_with(config: ThirdPartyConfig, peer: &Peer, more: &[(&str, &str)]) -> (String, End, u64) {
    let request = request(&[&[("source", peer.url.as_str())], more].concat());
    let (target, mut watch) = target();
    let text = told(transfers(config).admit().ok().unwrap().pull(request, target)).await;
    let end = watch.end().await;
    (text, end, watch.read_back.load(std::sync::atomic::Ordering::Relaxed))
}

async fn push(peer: &Peer, source: memory::Source, more: &[(&str, &str)]) -> String {
    let request = request(&[&[("destination", peer.url.as_str())], more].concat());
    told(transfers(config()).admit().ok().unwrap().push(request, Arc::new(source))).await
}

#[tokio::test]
async fn beyond_the_bound_a_copy_is_told_to_come_later() {
    let transfers = transfers(ThirdPartyConfig { transfers_max: 1, ..config() });
    let slot = transfers.admit().ok().unwrap();
    let refusal = transfers.admit().err().unwrap().into_response();
    assert_eq!(refusal.status.as_u16(), 429);
    assert!(refusal.headers.contains_key("retry-after"));
    assert_eq!(transfers.count(), 1);
    drop(slot);
    assert!(transfers.admit().is_ok());
}

#[tokio::test]
async fn stopping_ends_transfers_and_lets_them_clean_up() {
    let transfers = transfers(config());
    let mut from = Peer::start(Some(&data()), Whims { stalls_after: Some(10), ..Whims::default() }).await;
    let (target, mut watch) = target();
    let pull = transfers.admit().ok().unwrap().pull(request(&[("source", &from.url)]), target);
    let mut to = Peer::start(None, Whims { put_cut: Some(1_000_000), ..Whims::default() }).await;
    let destination = request(&[("destination", &to.url)]);
    let push = transfers.admit().ok().unwrap().push(destination, Arc::new(source(&data())));
    from.until_asked("STALLED").await;
    to.until_asked("CUT").await;
    transfers.stop(Duration::from_secs(20)).await;
    assert_eq!(watch.end().await, End::LeftNothing);
    assert_eq!(to.count("DELETE"), 1);
    assert_eq!(last_line(&told(pull).await), "aborted: server is stopping");
    drop(push);
    assert_eq!(transfers.count(), 0);
    assert_eq!(transfers.admit().err().unwrap().status.as_u16(), 503);
}

#[tokio::test]
async fn copies_are_counted_by_direction_and_end_with_their_bytes() {
    let counts = Arc::<CopyCounts>::default();
    let transfers = counted(config(), Arc::clone(&counts));
    let pull =
        |peer: &Peer| transfers.admit().ok().unwrap().pull(request(&[("source", &peer.url)]), target().0);
    let (whole, missing) =
        (Peer::start(Some(&data()), Whims::default()).await, Peer::start(None, Whims::default()).await);
    assert_eq!(last_line(&told(pull(&whole)).await), "success: Created");
    assert!(last_line(&told(pull(&missing)).await).starts_with("failure: "));
    let mut stalled = Peer::start(Some(&data()), Whims { stalls_after: Some(10), ..Whims::default() }).await;
    let abandoned = pull(&stalled);
    stalled.until_asked("STALLED").await;
    assert_eq!(counts.figures(Direction::Pull).running, 1);
    drop(abandoned);
    while counts.figures(Direction::Pull).running > 0 {
        tokio::task::yield_now().await;
    }
    let CopyFigures { started, done, failed, aborted, bytes, .. } = counts.figures(Direction::Pull);
    assert_eq!((started, done, failed, aborted), (3, 1, 1, 1));
    // Perhaps with those that came before the third was abandoned.
    let size = data().len() as u64;
    assert!((size..=size + 10).contains(&bytes), "{bytes}");
    let to = Peer::start(None, Whims::default()).await;
    let destination = request(&[("destination", &to.url)]);
    told(transfers.admit().ok().unwrap().push(destination, Arc::new(source(&data())))).await;
    let pushed = CopyFigures { started: 1, done: 1, bytes: size, ..CopyFigures::default() };
    assert_eq!(counts.figures(Direction::Push), pushed);
}
