//! Bodies of requests: who waits for whom, and what becomes of those that nobody reads.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_http_server::{BodyError, Limits, Request, Response, Service};
use http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::support::{Server, header, pattern, service, status};

const AWAITED: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

fn reading() -> Arc<dyn Service> {
    service(|mut request: Request| async move {
        assert_eq!(request.body.is_awaited(), request.headers.contains_key("expect"));
        let body = request.body.collect(64 << 20).await.unwrap();
        assert!(request.body.next().await.unwrap().is_none());
        Response::full(StatusCode::OK, "application/octet-stream", body)
    })
}

fn refusing() -> Arc<dyn Service> {
    service(|_| async { Response::text(StatusCode::FORBIDDEN, "no") })
}

/// RFC 9110 §10.1.1.
#[tokio::test]
async fn the_client_is_told_to_continue_when_the_body_is_wanted() {
    let server = Server::start(reading()).await;
    let mut client = server.client().await;
    for _ in 0..2 {
        client.send(AWAITED).await;
        assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello").await;
        assert_eq!(client.response().await.1, "hello");
    }
}

#[tokio::test]
async fn a_body_that_was_not_wanted_is_not_asked_for() {
    let server = Server::start(refusing()).await;
    let mut client = server.client().await;
    client.send(AWAITED).await;
    let (head, _) = client.response().await;
    assert_eq!((status(&head), header(&head, "connection")), (403, Some("close")));
    assert_eq!(client.rest().await, b"");
}

/// RFC 9110 §10.1.1: 100 may be left out when some of the body is there.
#[tokio::test]
async fn a_client_that_does_not_wait_is_not_told_to_continue() {
    let server = Server::start(reading()).await;
    let mut client = server.client().await;
    client.send(format!("{AWAITED}hello")).await;
    assert_eq!(client.response().await.1, "hello");
}

#[tokio::test]
async fn http_1_0_does_not_know_expectations() {
    let server = Server::start(service(|mut request: Request| async move {
        assert!(!request.body.is_awaited());
        Response::full(StatusCode::OK, "text/plain", request.body.collect(9).await.unwrap())
    }))
    .await;
    let mut client = server.client().await;
    client.send("PUT / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello").await;
    assert_eq!(client.response().await.1, "hello");
}

#[tokio::test]
async fn a_small_body_that_nobody_read_is_skipped() {
    let server = Server::start(refusing()).await;
    let mut client = server.client().await;
    for _ in 0..2 {
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 70\r\n\r\n").await;
        client
            .send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
            .await;
        assert_eq!(status(&client.response().await.0), 403);
    }
}

/// The client is in the middle of sending; a reset would take the answer away from it.
/// While the connection is watched for the client's end, a body that has come is still at its end.
#[tokio::test]
async fn a_body_asked_for_late_has_its_end() {
    let limits = Limits { half_closed_time: Duration::ZERO, ..Limits::default() };
    let server = Server::with(
        service(|mut request: Request| async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let body = request.body.collect(9).await;
            Response::text(StatusCode::OK, format!("{:?}", body.map_err(|error| error.to_string())))
        }),
        limits,
        None,
    )
    .await;
    let mut client = server.client().await;
    client.send("MKCOL /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.response().await.1, "Ok(b\"\")\n");
}

#[tokio::test]
async fn a_large_body_that_nobody_reads_does_not_hide_the_answer() {
    let server = Server::start(refusing()).await;
    for framing in ["Content-Length: 16777216", "Transfer-Encoding: chunked"] {
        let mut client = server.client().await;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n1000000\r\n")).await;
        client.send(vec![b'x'; 16 << 20]).await;
        let (head, _) = client.response().await;
        assert_eq!((status(&head), header(&head, "connection")), (403, Some("close")));
    }
}

#[tokio::test]
async fn a_body_that_ends_early_is_an_error_to_its_handler() {
    for request in [
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhell",
    ] {
        let (told, mut tell) = tokio::sync::mpsc::unbounded_channel();
        let server = Server::start(service(move |mut request: Request| {
            let told = told.clone();
            async move {
                let mut error = request.body.collect(100).await.unwrap_err();
                assert!(matches!(error, BodyError::Gone), "{error}");
                error = request.body.next().await.unwrap_err();
                told.send(error).unwrap();
                Response::new(StatusCode::OK)
            }
        }))
        .await;
        let mut client = server.client().await;
        client.send(request).await;
        tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await.unwrap();
        assert!(matches!(tell.recv().await, Some(BodyError::Gone)));
        assert_eq!(header(&client.head().await, "connection"), Some("close"));
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_is_slow() {
    let limits = Limits { body_time: Duration::from_millis(50), ..Limits::default() };
    let server = Server::with(
        service(|mut request: Request| async move {
            let error = request.body.collect(100).await.unwrap_err();
            Response::text(StatusCode::REQUEST_TIMEOUT, error.to_string())
        }),
        limits,
        None,
    )
    .await;
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let mut client = server.client().await;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")).await;
        let (head, body) = client.response().await;
        assert_eq!((status(&head), &body[..]), (408, "body did not come in time\n"));
    }
}

/// A client that resumes an upload goes on where it broke off.
#[tokio::test]
async fn bytes_of_a_body_that_breaks_off_are_handed_on_before_the_error() {
    let limits = Limits { body_time: Duration::from_millis(50), ..Limits::default() };
    let server = Server::with(
        service(|mut request: Request| async move {
            let mut came = Vec::new();
            let error = loop {
                match request.body.next().await {
                    Ok(part) => came.extend_from_slice(&part.unwrap()),
                    Err(error) => break error,
                }
            };
            Response::text(StatusCode::OK, format!("{} and: {error}", String::from_utf8(came).unwrap()))
        }),
        limits,
        None,
    )
    .await;
    for body in ["Content-Length: 9\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"] {
        let mut client = server.client().await;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{body}")).await;
        assert_eq!(client.response().await.1, "hello and: body did not come in time\n");
        let mut client = server.client().await;
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{body}")).await;
        tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await.unwrap();
        assert!(client.response().await.1.starts_with("hello and: client went away"));
    }
}

#[tokio::test]
async fn a_body_longer_than_wanted_is_told_so_before_it_is_read() {
    let server = Server::start(service(|mut request: Request| async move {
        match request.body.collect(4).await {
            Err(BodyError::TooLong(4)) => Response::new(StatusCode::PAYLOAD_TOO_LARGE),
            other => Response::text(StatusCode::OK, format!("{other:?}")),
        }
    }))
    .await;
    let mut client = server.client().await;
    client.send(AWAITED).await;
    assert_eq!(status(&client.head().await), 413);
    let mut client = server.client().await;
    client
        .send(
            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        )
        .await;
    assert_eq!(status(&client.head().await), 413);
}

/// A read that is given up in the middle has not lost what it had.
#[tokio::test]
async fn a_dropped_read_loses_nothing() {
    let server = Server::start(service(|mut request: Request| async move {
        let mut whole = Vec::new();
        loop {
            match tokio::time::timeout(Duration::from_micros(50), request.body.next()).await {
                Err(_) => {}
                Ok(Ok(Some(part))) => whole.extend_from_slice(&part),
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Response::text(StatusCode::BAD_REQUEST, error.to_string()),
            }
        }
        Response::full(StatusCode::OK, "application/octet-stream", whole)
    }))
    .await;
    let data = pattern(3 << 20);
    for is_chunked in [false, true] {
        let mut client = server.client().await;
        client.send(&upload(&data, is_chunked.then_some(70_000))).await;
        client.head().await;
        assert!(client.exactly(data.len()).await == data);
    }
}

#[tokio::test]
async fn a_body_kept_beyond_its_call_says_that_it_is_gone() {
    let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(service(move |request: Request| {
        keep.send(request.body).ok().unwrap();
        async { Response::new(StatusCode::OK) }
    }))
    .await;
    let mut client = server.client().await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(status(&client.head().await), 200);
    assert!(matches!(kept.recv().await.unwrap().next().await, Err(BodyError::Gone)));
}

fn upload(data: &[u8], chunk_bytes: Option<usize>) -> Vec<u8> {
    let head = "PUT / HTTP/1.1\r\nHost: a\r\n";
    let Some(chunk_bytes) = chunk_bytes else {
        return [format!("{head}Content-Length: {}\r\n\r\n", data.len()).as_bytes(), data].concat();
    };
    let mut bytes = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in data.chunks(chunk_bytes) {
        bytes.extend_from_slice(format!("{:x};ext=1\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
    bytes
}

#[test]
fn uploads_arrive_whole_however_they_are_cut() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = runtime.block_on(Server::start(reading()));
    let data = Bytes::from(pattern(600_000));
    let cases = (0..600_000_usize, prop::option::of(1_000..200_000_usize), 1..150_000_usize);
    let config = ProptestConfig { cases: 40, ..ProptestConfig::default() };
    let checked = TestRunner::new(config).run(&cases, |(len, chunk_bytes, write_bytes)| {
        runtime.block_on(async {
            let mut client = server.client().await;
            client.stream.set_nodelay(true).unwrap();
            for write in upload(&data[..len], chunk_bytes).chunks(write_bytes) {
                client.send(write).await;
            }
            client.head().await;
            prop_assert!(client.exactly(len).await == data[..len]);
            Ok(())
        })
    });
    checked.unwrap();
}

/// The buffer grows ahead of the bytes, and a lack of room for that refuses no body. The first 16 KiB come as a part of
/// their own.
#[tokio::test]
async fn a_body_that_fits_into_its_connections_memory_is_collected_in_whatever_parts_it_comes() {
    const BYTES: usize = 3 << 20;
    let server = Server::start(reading()).await;
    for is_chunked in [false, true] {
        let mut client = server.client().await;
        let (first, rest) = ("x".repeat(16 << 10), "x".repeat(BYTES - (16 << 10)));
        let (length, first, rest) = if is_chunked {
            let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
            ("Transfer-Encoding: chunked".to_owned(), chunk(&first), chunk(&rest) + "0\r\n\r\n")
        } else {
            (format!("Content-Length: {BYTES}"), first, rest)
        };
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n{first}")).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.send(rest).await;
        let (head, body) = client.response().await;
        assert_eq!((status(&head), body.len()), (200, BYTES));
    }
}
