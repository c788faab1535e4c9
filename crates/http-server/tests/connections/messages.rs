//! Requests and their framing, sentence by sentence.

use std::sync::Arc;

use bytes::Bytes;
use forebay_http_server::{Limits, Request, Response, Service};
use http::StatusCode;

use super::support::{Server, header, service, status};

/// Says what it understood.
fn echo() -> Arc<dyn Service> {
    service(|mut request: Request| async move {
        let body = match request.body.collect(1 << 20).await {
            Ok(body) => body,
            Err(error) => return Response::text(StatusCode::BAD_REQUEST, error.to_string()),
        };
        let body = String::from_utf8_lossy(&body);
        Response::text(StatusCode::OK, format!("{} {} [{body}]", request.method, request.uri))
    })
}

async fn whole(bytes: impl AsRef<[u8]>) -> String {
    let server = Server::start(echo()).await;
    let mut client = server.client().await;
    client.send(bytes).await;
    client.rest_text().await
}

/// RFC 9112 §9.3.2: a server answers pipelined requests in the order that they came.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(echo()).await;
    let mut client = server.client().await;
    let mut bytes = String::new();
    for number in 0..50 {
        bytes += &format!("PUT /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n{number:03}");
    }
    client.send(bytes).await;
    for number in 0..50 {
        assert_eq!(client.response().await.1, format!("PUT /{number} [{number:03}]\n"));
    }
}

#[tokio::test]
async fn a_request_that_comes_byte_by_byte_is_the_same_request() {
    let server = Server::start(echo()).await;
    let mut client = server.client().await;
    client.stream.set_nodelay(true).unwrap();
    for byte in b"\r\nPUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" {
        client.send([*byte]).await;
    }
    assert_eq!(client.response().await.1, "PUT /x [abc]\n");
}

/// RFC 9112 §9.3: close, keep-alive, and what HTTP/1.0 does without either.
#[tokio::test]
async fn a_connection_stays_or_goes_as_the_client_says() {
    let closed = whole("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert_eq!(header(&closed, "connection"), Some("close"));
    let old = whole("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!((status(&old), header(&old, "connection")), (200, Some("close")));

    let server = Server::start(echo()).await;
    let mut client = server.client().await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").await;
        assert_eq!(header(&client.response().await.0, "connection"), Some("keep-alive"));
    }
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(header(&client.response().await.0, "connection"), None);
    }
}

/// RFC 9112 §11.2: what a proxy could frame in another way is refused, and nothing behind it is taken for a request.
#[tokio::test]
async fn shapes_of_request_smuggling_are_refused_and_end_the_connection() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for (framing, expected) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0", 400),
        ("Content-Length: 0\r\nContent-Length: 35", 400),
        ("Content-Length: +3", 400),
        ("Content-Length: 3, 3", 400),
        ("Content-Length: 0x3", 400),
        ("Content-Length: 99999999999999999999", 400),
        ("Transfer-Encoding: xchunked", 400),
        ("Transfer-Encoding: chunked, identity", 400),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding : chunked", 400),
        ("Transfer-Encoding:\u{b}chunked", 400),
        ("X: a\r\n Transfer-Encoding: chunked", 400),
        ("X: a\nTransfer-Encoding: chunked", 400),
        ("X: a\rTransfer-Encoding: chunked", 400),
    ] {
        let answer = whole(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{smuggled}")).await;
        assert_eq!(status(&answer), expected, "{framing:?}");
        assert_eq!(header(&answer, "connection"), Some("close"), "{framing:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{framing:?} let something through: {answer}");
    }
    let old =
        whole(format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}")).await;
    assert_eq!((status(&old), old.matches("HTTP/1.1 ").count()), (400, 1));
}

#[tokio::test]
async fn chunks_that_are_wrong_end_the_connection() {
    for body in ["3\nabc\r\n0\r\n\r\n", "-1\r\n", "3\r\nabcd\r\n0\r\n\r\n", "g\r\n", "ffffffffffffffff1\r\n"]
    {
        let answer = whole(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ))
        .await;
        assert_eq!((status(&answer), answer.matches("HTTP/1.1 ").count()), (400, 1), "{body:?}: {answer}");
    }
}

/// RFC 9112 §3.2 and §2.3.
#[tokio::test]
async fn a_head_that_is_wrong_is_told_so() {
    for (head, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\n\r\n", 417),
        ("GET\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ] {
        let answer = whole(head).await;
        assert_eq!(status(&answer), expected, "{head:?}: {answer}");
        assert!(header(&answer, "date").is_some() && answer.ends_with('\n'), "{answer}");
    }
}

#[tokio::test]
async fn a_head_beyond_its_bounds_is_refused_without_being_kept() {
    let line = "GET / HTTP/1.1\r\nHost: a\r\n";
    let huge = format!("{line}X: {}\r\n\r\n", "x".repeat(1 << 20));
    assert_eq!(status(&whole(huge).await), 431);
    let many = format!("{line}{}\r\n", "X: y\r\n".repeat(1000));
    assert_eq!(status(&whole(many).await), 431);
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1 << 20));
    assert_eq!(status(&whole(target).await), 414);
}

#[tokio::test]
async fn a_vector_read_of_ten_thousand_ranges_has_room_in_its_head() {
    let server = Server::start(service(|request: Request| async move {
        let ranges = request.headers["range"].as_bytes().len();
        Response::text(StatusCode::OK, ranges.to_string())
    }))
    .await;
    let ranges: Vec<String> = (0..10_000_u64).map(|n| format!("{}-{}", n * 1000, n * 1000 + 99)).collect();
    let ranges = format!("bytes={}", ranges.join(","));
    let mut client = server.client().await;
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nRange: {ranges}\r\n\r\n")).await;
    assert_eq!(client.response().await.1, format!("{}\n", ranges.len()));
}

/// RFC 9110 §9.3.2.
#[tokio::test]
async fn the_answer_to_head_has_a_length_and_no_body() {
    let server = Server::start(service(|_| async {
        Response::full(StatusCode::OK, "text/plain", Bytes::from_static(b"twelve bytes"))
    }))
    .await;
    let mut client = server.client().await;
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(header(&client.head().await, "content-length"), Some("12"));
    assert_eq!(client.response().await.1, "twelve bytes");
}

#[tokio::test]
async fn tls_on_a_plain_port_is_closed_without_noise() {
    assert_eq!(whole(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await, "");
    assert_eq!(whole(b"\x16\x03\x01\r\n\r\n").await, "");
}

#[tokio::test]
async fn a_handler_that_panics_costs_its_connection_only() {
    let server = Server::with(
        service(|request: Request| async move {
            assert_ne!(request.uri.path(), "/panic", "expected by this test");
            Response::new(StatusCode::OK)
        }),
        Limits::default(),
        None,
    )
    .await;
    let (mut one, mut two) = (server.client().await, server.client().await);
    one.send("GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(one.rest().await, b"");
    two.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(status(&two.head().await), 200);
}
