//! Clients that are slow, are too many, or go away; and how a server stops.

use std::sync::Arc;
use std::time::Duration;

use forebay_http_server::{BodyError, Limits, Request, Response, ResponseBody, Service};
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use http::StatusCode;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::support::{PATIENCE, Server, header, service, status};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn ok() -> Arc<dyn Service> {
    service(|_| async { Response::text(StatusCode::OK, "ok") })
}

/// Tells when it is dropped.
struct Guard(mpsc::UnboundedSender<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

const SHORT: Duration = Duration::from_millis(60);

/// Heads must come soon, everything else has time.
fn hasty() -> Limits {
    Limits { head_time: SHORT, ..Limits::default() }
}

fn watchful() -> Limits {
    Limits { half_closed_time: Duration::from_millis(1), ..Limits::default() }
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_is_timed_out_although_bytes_come() {
    let server = Server::with(ok(), hasty(), None).await;
    let mut client = server.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n").await;
    let dripping = async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if client.stream.write_all(b"x: y\r\n").await.is_err() {
                break;
            }
            if client.stream.try_read(&mut [0; 16]).is_ok_and(|read| read > 0) {
                break;
            }
        }
    };
    timeout(PATIENCE, dripping).await.unwrap();
}

#[tokio::test]
async fn idle_connections_and_silent_ones_are_closed() {
    let server = Server::with(ok(), hasty(), None).await;
    let mut silent = server.client().await;
    assert_eq!(silent.rest().await, b"");
    let mut half = server.client().await;
    half.send("GET / HT").await;
    assert_eq!(status(&half.rest_text().await), 408);

    let server = Server::with(ok(), Limits { idle_time: SHORT, ..Limits::default() }, None).await;
    let mut idle = server.client().await;
    idle.send(GET).await;
    idle.response().await;
    assert_eq!(idle.rest().await, b"");
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    // Of four an address may have two: as many as are left.
    let limits = Limits { connections_max: 4, ..Limits::default() };
    let server = Server::with(ok(), limits, None).await;
    let (mut one, mut two) = (server.client().await, server.client().await);
    for client in [&mut one, &mut two] {
        client.send(GET).await;
        assert_eq!(status(&client.response().await.0), 200);
    }
    let mut three = server.client().await;
    assert_eq!(status(&three.head().await), 503);
    drop(one);
    // The place is free when the server has seen the end.
    let admitted = async {
        loop {
            let mut client = server.client().await;
            if client.stream.write_all(GET.as_bytes()).await.is_ok() && status(&client.head().await) == 200 {
                break;
            }
        }
    };
    timeout(PATIENCE, admitted).await.unwrap();
}

#[tokio::test]
async fn one_address_does_not_get_all_connections() {
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let server = Server::with(ok(), limits, None).await;
    let mut one = server.client().await;
    one.send(GET).await;
    one.response().await;
    assert_eq!(status(&server.client().await.head().await), 503);
}

/// Collects what it is sent; documents that it makes are in memory while their client reads them.
fn collecting() -> Arc<dyn Service> {
    service(|mut request: Request| async move {
        match request.body.collect(256 << 10).await {
            Ok(body) => Response::text(StatusCode::OK, body.len().to_string()),
            Err(BodyError::Busy) => Response::text(StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Err(error) => Response::text(StatusCode::BAD_REQUEST, error.to_string()),
        }
    })
}

#[tokio::test]
async fn bodies_that_are_collected_are_charged_and_beyond_the_memory_they_get_503() {
    // Half of it is for requests, and one address has half of that: two of these bodies.
    let limits = Limits { memory_bytes_max: 2 << 20, ..Limits::default() };
    let server = Server::with(collecting(), limits, None).await;
    let whole = |bytes: usize| {
        format!("LOCK / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n{}", " ".repeat(bytes))
    };
    let mut halves: FuturesUnordered<_> = (0..8)
        .map(|_| async {
            let text = whole(200 << 10);
            let mut client = server.client().await;
            client.send(&text[..text.len() - 1]).await;
            // Those that there is memory for wait for the last byte.
            let answered = timeout(PATIENCE, client.stream.readable()).await;
            answered.unwrap().unwrap();
            status(&client.head().await)
        })
        .collect();
    for _ in 0..4 {
        assert_eq!(halves.next().await.unwrap(), 503);
    }
    let mut small = server.client().await;
    small.send(whole(16 << 10)).await;
    assert_eq!(small.response().await.1, "16384\n", "who has nothing gets on");
    drop(halves);
    let taken = async {
        loop {
            let mut client = server.client().await;
            client.send(whole(200 << 10)).await;
            if status(&client.head().await) == 200 {
                return;
            }
        }
    };
    timeout(PATIENCE, taken).await.expect("the memory is not free again");
}

#[tokio::test]
async fn a_body_that_is_collected_has_one_deadline_however_it_drips() {
    let limits = Limits { body_time: Duration::from_millis(300), ..Limits::default() };
    let server = Server::with(collecting(), limits, None).await;
    let mut client = server.client().await;
    client.send("LOCK / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let dripping = async {
        while client.stream.write_all(b"1\r\nx\r\n").await.is_ok() {
            if client.stream.try_read(&mut [0; 16]).is_ok_and(|read| read > 0) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, dripping).await.expect("it may drip on");
}

#[tokio::test]
async fn an_answer_that_is_not_read_is_charged_and_beyond_the_memory_it_is_503() {
    let document = service(|_| async { Response::full(StatusCode::OK, "text/plain", vec![b'x'; 200 << 10]) });
    let limits = Limits { memory_bytes_max: 1 << 20, ..Limits::default() };
    let server = Server::with(document, limits, None).await;
    // In all more than the system takes.
    let mut unread = server.client().await;
    rustix::net::sockopt::set_socket_recv_buffer_size(&unread.stream, 4 << 10).unwrap();
    unread.send(GET.repeat(60)).await;
    let refused = async {
        loop {
            let mut other = server.client().await;
            other.send(GET).await;
            let (head, _) = other.response().await;
            if status(&head) == 503 {
                return header(&head, "retry-after").map(str::to_owned);
            }
        }
    };
    assert_eq!(timeout(PATIENCE, refused).await.unwrap().as_deref(), Some("1"));
    drop(unread);
    let served = async {
        loop {
            let mut other = server.client().await;
            other.send(GET).await;
            if status(&other.response().await.0) == 200 {
                return;
            }
        }
    };
    timeout(PATIENCE, served).await.expect("the memory is not free again");
}

#[tokio::test]
async fn an_answer_waits_for_the_memory_that_another_holds() {
    let (holding, mut held) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let waiting = Arc::clone(&go);
    let service = service(move |request: Request| {
        let (holding, go) = (holding.clone(), Arc::clone(&waiting));
        async move {
            let Some(_memory) = request.peer.memory.take(None, 200 << 10).await else {
                return Response::text(StatusCode::SERVICE_UNAVAILABLE, "busy");
            };
            holding.send(()).unwrap();
            if request.uri.path() == "/hold" {
                go.notified().await;
            }
            Response::text(StatusCode::OK, "ok")
        }
    });
    let server = Server::with(service, Limits { memory_bytes_max: 1 << 20, ..Limits::default() }, None).await;
    let (mut one, mut two) = (server.client().await, server.client().await);
    one.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n").await;
    timeout(PATIENCE, held.recv()).await.unwrap().unwrap();
    two.send(GET).await;
    go.notify_one();
    assert_eq!(status(&one.response().await.0), 200);
    assert_eq!(status(&two.response().await.0), 200);
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_request_along() {
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let (started, mut starts) = mpsc::unbounded_channel();
    let service = service(move |mut request: Request| {
        let (guard, started) = (Guard(dropped.clone()), started.clone());
        async move {
            let _guard = guard;
            request.body.collect(100).await.unwrap();
            started.send(()).unwrap();
            std::future::pending().await
        }
    });
    let server = Server::with(service, watchful(), None).await;
    for request in [
        GET,
        "COPY / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "COPY / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        // A request pipelined behind the first does not hide the end of the connection.
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = server.client().await;
        client.send(request).await;
        timeout(PATIENCE, starts.recv()).await.unwrap().unwrap();
        drop(client);
        timeout(PATIENCE, drops.recv()).await.expect("the handler still runs").unwrap();
    }
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_stream_along() {
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let service = service(move |_| {
        let guard = Guard(dropped.clone());
        let items = stream::unfold((guard, true), |(guard, is_first)| async move {
            if !is_first {
                std::future::pending::<()>().await;
            }
            Some((Ok("Perf Marker\n".into()), (guard, false)))
        });
        async { Response::new(StatusCode::ACCEPTED).with_body(ResponseBody::Stream(Box::pin(items))) }
    });
    let server = Server::with(service, watchful(), None).await;
    let mut client = server.client().await;
    client.send(GET).await;
    client.head().await;
    client.exactly(12).await;
    drop(client);
    timeout(PATIENCE, drops.recv()).await.expect("the stream still runs").unwrap();
}

/// As `nc -N` does.
#[tokio::test]
async fn a_client_that_closed_its_half_is_still_answered() {
    let server = Server::start(service(|_| async {
        tokio::task::yield_now().await;
        Response::text(StatusCode::OK, "ok")
    }))
    .await;
    let mut client = server.client().await;
    client.send(GET).await;
    client.stream.shutdown().await.unwrap();
    assert!(client.rest_text().await.ends_with("ok\n"));
}

#[tokio::test]
async fn a_stop_lets_requests_finish_and_idle_connections_go() {
    let (go, started) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let service = {
        let (go, started) = (Arc::clone(&go), Arc::clone(&started));
        service(move |request: Request| {
            let (go, started) = (Arc::clone(&go), Arc::clone(&started));
            async move {
                if request.uri.path() == "/wait" {
                    started.notify_one();
                    go.notified().await;
                }
                Response::text(StatusCode::OK, "ok")
            }
        })
    };
    let server = Server::start(service).await;
    let (mut idle, mut busy) = (server.client().await, server.client().await);
    idle.send(GET).await;
    idle.response().await;
    busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await;
    started.notified().await;
    server.stop.send(true).unwrap();
    assert_eq!(idle.rest().await, b"");
    go.notify_one();
    let answer = busy.rest_text().await;
    assert!(answer.contains("Connection: close") && answer.ends_with("ok\n"), "{answer}");
    timeout(PATIENCE, server.running).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let limits = Limits { stop_time: Duration::from_millis(20), ..Limits::default() };
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let (started, mut starts) = mpsc::unbounded_channel();
    let service = service(move |_| {
        let guard = Guard(dropped.clone());
        started.send(()).unwrap();
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    });
    let server = Server::with(service, limits, None).await;
    let mut client = server.client().await;
    client.send(GET).await;
    starts.recv().await.unwrap();
    server.stop.send(true).unwrap();
    timeout(PATIENCE, server.running).await.unwrap().unwrap();
    drops.recv().await.unwrap();
}
