//! Bodies of responses: lengths, chunks, promises.

use bytes::Bytes;
use forebay_http_server::{Piece, Request, Response, ResponseBody};
use futures_util::stream;
use http::StatusCode;

use super::support::{Server, header, service, status};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn streamed(items: Vec<std::io::Result<Bytes>>) -> Response {
    Response::new(StatusCode::OK).with_body(ResponseBody::Stream(Box::pin(stream::iter(items))))
}

#[tokio::test]
async fn a_stream_is_chunked_and_the_connection_stays() {
    let server = Server::start(service(|_| async {
        streamed(vec![Ok("abc".into()), Ok(Bytes::new()), Ok(vec![b'x'; 0x1234].into())])
    }))
    .await;
    let mut client = server.client().await;
    for _ in 0..2 {
        client.send(GET).await;
        let head = client.head().await;
        assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
        assert_eq!(header(&head, "content-length"), None);
        let expected = format!("3\r\nabc\r\n1234\r\n{}\r\n0\r\n\r\n", "x".repeat(0x1234));
        assert_eq!(String::from_utf8(client.exactly(expected.len()).await).unwrap(), expected);
    }
}

/// RFC 9112 §6.3: HTTP/1.0 knows no chunks; the end of the connection is the end of the body.
#[tokio::test]
async fn a_stream_to_http_1_0_ends_with_the_connection() {
    let server =
        Server::start(service(|_| async { streamed(vec![Ok("abc".into()), Ok("def".into())]) })).await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
    let head = client.head().await;
    assert_eq!((header(&head, "transfer-encoding"), header(&head, "connection")), (None, Some("close")));
    assert_eq!(client.rest().await, b"abcdef");
}

#[tokio::test]
async fn a_stream_that_fails_resets_the_connection() {
    let server = Server::start(service(|_| async {
        streamed(vec![Ok("abc".into()), Err(std::io::Error::other("lost"))])
    }))
    .await;
    let mut client = server.client().await;
    client.send(GET).await;
    assert!(client.is_reset().await);
}

#[tokio::test]
async fn pieces_that_break_their_promise_reset_the_connection() {
    for (length, is_kept) in [(5, false), (6, true), (7, false)] {
        let server = Server::start(service(move |_| async move {
            let pieces = [Piece::Bytes("abc".into()), Piece::Bytes("def".into())];
            let body = ResponseBody::Pieces { length, pieces: Box::new(pieces.into_iter()) };
            Response::new(StatusCode::OK).with_body(body)
        }))
        .await;
        let mut client = server.client().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert_eq!(!client.is_reset().await, is_kept, "{length}");
    }
}

/// RFC 9110 §8.6.
#[tokio::test]
async fn some_statuses_have_no_body_and_no_length() {
    let server = Server::start(service(|request: Request| async move {
        let status: u16 = request.uri.path()[1..].parse().unwrap();
        Response::text(StatusCode::from_u16(status).unwrap(), "never seen")
    }))
    .await;
    let mut client = server.client().await;
    for number in [204, 304] {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let head = client.head().await;
        assert_eq!((status(&head), header(&head, "content-length")), (number, None));
    }
    client.send("GET /207 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.response().await.0.starts_with("HTTP/1.1 207 Multi-Status\r\n"));
}
