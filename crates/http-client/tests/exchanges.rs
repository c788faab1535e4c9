//! Requests, redirects, refusals and timeouts of the client, against servers on loopback that do as a test says.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::future::Future;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_http_client::{AbsoluteUrl, Client, ClientConfig, ClientError, Upload};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Heads as they came, in order.
type Seen = Arc<Mutex<Vec<String>>>;

/// Answers each connection by the function, after one head was read from it.
async fn serve<F, A>(answer: A) -> (String, Seen)
where
    A: Fn(String, TcpStream) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = read_head(&mut stream).await;
            noted.lock().unwrap().push(head.clone());
            tokio::spawn(answer(head, stream));
        }
    });
    (url, seen)
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

async fn says(mut stream: TcpStream, text: impl AsRef<[u8]>) {
    let _ = stream.write_all(text.as_ref()).await;
    let _ = stream.shutdown().await;
}

/// Patient, so that a busy machine does not fail a test.
fn config() -> ClientConfig {
    ClientConfig { redirects_max: 3, ..ClientConfig::default().reaching_loopback() }
}

fn client() -> Client {
    Client::new(config()).unwrap()
}

/// For tests in which a wait has to end.
fn hasty() -> Client {
    Client::new(ClientConfig {
        idle_timeout: Duration::from_millis(300),
        answer_timeout: Duration::from_secs(2),
        continue_timeout: Duration::from_millis(100),
        ..config()
    })
    .unwrap()
}

fn url(text: &str) -> AbsoluteUrl {
    AbsoluteUrl::parse(text).unwrap()
}

fn with_token() -> HeaderMap {
    let mut secret = HeaderValue::from_static("hidden");
    secret.set_sensitive(true);
    HeaderMap::from_iter([
        (HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer t")),
        (HeaderName::from_static("x-secret"), secret),
        (HeaderName::from_static("x-open"), HeaderValue::from_static("seen")),
    ])
}

fn upload(parts: &[&'static str], length: Option<u64>) -> Upload {
    let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect();
    Upload { length, stream: Box::pin(futures_util::stream::iter(parts)) }
}

#[tokio::test]
async fn a_get_says_who_and_where_and_gives_the_body() {
    let (base, seen) =
        serve(|_, stream| says(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")).await;
    let mut answer = client().get(&url(&format!("{base}/a%20b?q=1")), with_token()).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.length, answer.is_delimited), (200, Some(5), true));
    assert_eq!(format!("http://{}", answer.peer), base);
    assert_eq!(answer.next().await.unwrap().unwrap(), "hello");
    assert!(answer.next().await.unwrap().is_none());
    let head = seen.lock().unwrap()[0].clone();
    assert!(head.starts_with("get /a%20b?q=1 http/1.1\r\n"), "{head}");
    assert!(
        head.contains(&format!("\r\nhost: {}\r\n", &base[7..])) && head.contains("\r\nuser-agent: forebay/")
    );
    assert!(head.contains("\r\nauthorization: bearer t\r\n"));
}

#[tokio::test]
async fn names_of_headers_are_spelled_as_servers_that_mind_the_case_know_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 512];
        let length = stream.read(&mut head).await.unwrap();
        says(stream, "HTTP/1.1 204 No Content\r\n\r\n").await;
        String::from_utf8(head[..length].to_vec()).unwrap()
    });
    let mut headers = HeaderMap::new();
    headers.insert("want-digest", HeaderValue::from_static("adler32"));
    headers.insert("if-range", HeaderValue::from_static("\"v\""));
    client().get(&url(&base), headers).await.unwrap();
    let head = server.await.unwrap();
    assert!(head.contains("\r\nWant-Digest: adler32\r\n") && head.contains("\r\nIf-Range: "), "{head}");
}

#[tokio::test]
async fn a_body_that_ends_early_is_an_error_and_never_an_end() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let (base, _) = serve(move |_, stream| says(stream, text)).await;
        let mut answer = client().get(&url(&base), HeaderMap::new()).await.unwrap();
        let mut outcome = answer.next().await;
        while matches!(outcome, Ok(Some(_))) {
            outcome = answer.next().await;
        }
        let error = outcome.unwrap_err();
        assert!(matches!(error, ClientError::Broken { .. }) && error.is_retryable(), "{error}");
    }
    let (base, _) = serve(|_, stream| says(stream, "HTTP/1.1 200 OK\r\n\r\nhello")).await;
    let answer = client().get(&url(&base), HeaderMap::new()).await.unwrap();
    assert!(!answer.is_delimited, "nobody can tell this end from a broken connection");
}

#[tokio::test]
async fn an_answer_is_framed_by_a_length_or_by_chunks_and_never_by_both_or_another_coding() {
    for framing in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: identity\r\nContent-Length: 5",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        for body in ["5\r\nhello\r\n0\r\n\r\n", "hello"] {
            let text = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}");
            let (base, _) = serve(move |_, stream| says(stream, text.clone())).await;
            let error = client().get(&url(&base), HeaderMap::new()).await.err().expect(framing);
            assert!(matches!(error, ClientError::Protocol { .. }), "{framing}: {error}");
        }
    }
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let (base, _) = serve(move |_, stream| says(stream, text)).await;
    assert_eq!(client().fetch_small(&base, 5).await.unwrap(), "hello");
}

#[tokio::test]
async fn secrets_are_not_sent_on_to_another_origin() {
    let (other, seen_there) = serve(|_, stream| says(stream, "HTTP/1.1 204 No Content\r\n\r\n")).await;
    let (base, seen) = serve(move |head, stream| {
        let to =
            if head.starts_with("get /first") { "/second".to_owned() } else { format!("{other}/x?authz=c") };
        says(stream, format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"))
    })
    .await;
    let answer = client().get(&url(&format!("{base}/first")), with_token()).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.url.path_and_query().as_str()), (204, "/x?authz=c"));
    // The same origin gets them again.
    assert!(seen.lock().unwrap()[1].contains("authorization: bearer t"));
    let there = seen_there.lock().unwrap()[0].clone();
    assert!(!there.contains("authorization") && !there.contains("hidden"), "{there}");
    assert!(there.contains("x-open: seen"));
}

#[tokio::test]
async fn redirects_are_bounded_and_keep_the_method() {
    let (base, seen) =
        serve(|_, stream| says(stream, "HTTP/1.1 307 T\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"))
            .await;
    let error = client().get(&url(&base), HeaderMap::new()).await.err().unwrap();
    assert!(matches!(error, ClientError::Redirect { .. }), "{error}");
    assert_eq!(seen.lock().unwrap().len(), 4);
    for (status, to) in [(302, "/x"), (307, "ftp://h/x"), (307, "")] {
        let location = if to.is_empty() { String::new() } else { format!("Location: {to}\r\n") };
        let text = format!("HTTP/1.1 {status} T\r\n{location}Content-Length: 0\r\n\r\n");
        let (base, seen) = serve(move |_, stream| says(stream, text.clone())).await;
        assert!(client().delete(&url(&base), HeaderMap::new()).await.is_err(), "{status} {to}");
        assert_eq!(seen.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_put_follows_the_redirect_before_it_sends_a_byte() {
    let (other, seen_there) = serve(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        let mut body = [0; 10];
        stream.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"helloworld");
        says(stream, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await;
    let (told, mut came) = tokio::sync::mpsc::channel(1);
    let (base, _) = serve(move |_, mut stream| {
        let text = format!("HTTP/1.1 307 T\r\nLocation: {other}/there\r\nContent-Length: 0\r\n\r\n");
        let told = told.clone();
        async move {
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            told.send(rest).await.unwrap();
        }
    })
    .await;
    let body = upload(&["hello", "world"], Some(10));
    let answer = client().put(&url(&base), with_token(), body).await.unwrap();
    assert_eq!(answer.status.as_u16(), 201);
    let there = seen_there.lock().unwrap()[0].clone();
    assert!(there.contains("expect: 100-continue") && there.contains("content-length: 10"), "{there}");
    assert!(!there.contains("bearer"));
    assert!(came.recv().await.unwrap().is_empty(), "the body was not for the first server");
}

#[tokio::test]
async fn a_put_goes_on_without_the_word_when_none_comes() {
    let (base, seen) = serve(|_, mut stream| async move {
        let mut body = Vec::new();
        while !body.ends_with(b"0\r\n\r\n") {
            body.push(stream.read_u8().await.unwrap());
        }
        assert_eq!(body, b"5\r\nhello\r\n0\r\n\r\n");
        says(stream, "HTTP/1.1 204 No Content\r\n\r\n").await;
    })
    .await;
    let answer = hasty().put(&url(&base), HeaderMap::new(), upload(&["hello"], None)).await.unwrap();
    assert_eq!(answer.status.as_u16(), 204);
    assert!(seen.lock().unwrap()[0].contains("transfer-encoding: chunked"));
}

#[tokio::test]
async fn a_refusal_costs_no_bytes_and_a_refused_expectation_is_dropped() {
    let (base, _) =
        serve(|_, stream| says(stream, "HTTP/1.1 507 Full\r\nContent-Length: 4\r\n\r\nfull")).await;
    let mut answer = client().put(&url(&base), HeaderMap::new(), upload(&["x"], Some(1))).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.explanation(100).await.as_str()), (507, "full"));

    let (base, seen) = serve(|head, mut stream| async move {
        if head.contains("expect:") {
            return says(stream, "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n").await;
        }
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        says(stream, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await;
    let answer = client().put(&url(&base), HeaderMap::new(), upload(&["x"], Some(1))).await.unwrap();
    assert_eq!((answer.status.as_u16(), seen.lock().unwrap().len()), (201, 2));
}

#[tokio::test]
async fn an_upload_that_is_not_as_long_as_said_is_our_own_fault() {
    for (parts, length) in [(&["hello"][..], 6), (&["hello", "world"][..], 7)] {
        let (base, _) = serve(|_, mut stream| async move {
            let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        })
        .await;
        let outcome = client().put(&url(&base), HeaderMap::new(), upload(parts, Some(length))).await;
        let error = outcome.err().unwrap();
        assert!(matches!(error, ClientError::Source(_)), "{error}");
    }
}

#[tokio::test]
async fn an_empty_upload_says_that_it_is_empty() {
    let (base, seen) =
        serve(|_, stream| says(stream, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")).await;
    let answer = client().put(&url(&base), HeaderMap::new(), upload(&[], Some(0))).await.unwrap();
    assert_eq!(answer.status.as_u16(), 201);
    let head = seen.lock().unwrap()[0].clone();
    assert!(head.contains("content-length: 0\r\n") && !head.contains("expect"), "{head}");
}

#[tokio::test]
async fn silence_ends_in_bounded_time_at_every_stage() {
    let begin = Instant::now();
    let silent = |text: &'static str| {
        serve(move |_, mut stream| async move {
            let _ = stream.write_all(text.as_bytes()).await;
            std::future::pending::<()>().await;
        })
    };
    let (base, _) = silent("").await;
    let error = hasty().get(&url(&base), HeaderMap::new()).await.err().unwrap();
    assert!(matches!(error, ClientError::Timeout { .. }) && error.is_retryable(), "{error}");

    let (base, _) = silent("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello").await;
    let mut answer = hasty().get(&url(&base), HeaderMap::new()).await.unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), "hello");
    assert!(matches!(answer.next().await, Err(ClientError::Timeout { .. })));

    // Takes the body and never says what became of it.
    let (base, _) = silent("HTTP/1.1 100 Continue\r\n\r\n").await;
    let outcome = hasty().put(&url(&base), HeaderMap::new(), upload(&["hello"], Some(5))).await;
    assert!(matches!(outcome.err().unwrap(), ClientError::Timeout { .. }));

    // Does not take the body: more than sockets buffer.
    let (base, _) = silent("HTTP/1.1 100 Continue\r\n\r\n").await;
    let mebibyte = Bytes::from(vec![7; 1 << 20]);
    let endless = futures_util::stream::repeat_with(move || Ok(mebibyte.clone()));
    let body = Upload { length: None, stream: Box::pin(endless) };
    let error = hasty().put(&url(&base), HeaderMap::new(), body).await.err().unwrap();
    assert!(matches!(error, ClientError::Timeout { what: "takes no more bytes", .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn heads_without_end_and_documents_without_end_are_cut_off() {
    let (base, _) = serve(|_, mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        let line = format!("X: {}\r\n", "y".repeat(1000));
        while stream.write_all(line.as_bytes()).await.is_ok() {}
    })
    .await;
    let error = client().get(&url(&base), HeaderMap::new()).await.err().unwrap();
    assert!(matches!(error, ClientError::Protocol { .. } | ClientError::Broken { .. }), "{error}");

    let (base, _) = serve(|_, mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        while stream.write_all(b"5\r\nhello\r\n").await.is_ok() {}
    })
    .await;
    let error = client().fetch_small(&base, 1000).await.unwrap_err();
    assert!(matches!(error, ClientError::TooLong { bytes_max: 1000, .. }), "{error}");

    let (base, _) = serve(|_, stream| says(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")).await;
    assert_eq!(client().fetch_small(&base, 2).await.unwrap(), "{}");
    let (base, _) = serve(|_, stream| says(stream, "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n{}")).await;
    assert!(matches!(client().fetch_small(&base, 2).await, Err(ClientError::Status { .. })));
}

/// Of its interfaces, if it has any but loopback.
fn own_address() -> Option<IpAddr> {
    // Nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip())
        .filter(|address| !address.is_loopback() && !address.is_unspecified())
}

#[tokio::test]
async fn an_address_of_an_interface_of_this_host_is_not_reached() {
    let Some(address) = own_address() else {
        eprintln!("not tested: this host has loopback only");
        return;
    };
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let strict = Client::new(ClientConfig { allow_plain: true, ..ClientConfig::default() }).unwrap();
    for host in [address.to_string(), format!("[::ffff:{address}]")] {
        let outcome = strict.get(&url(&format!("http://{host}:{port}/")), HeaderMap::new()).await;
        assert!(matches!(outcome, Err(ClientError::AddressForbidden { .. })), "{host}");
    }
    let nobody_came = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(nobody_came.is_err());
}

#[tokio::test]
async fn a_forbidden_address_is_not_reached_by_any_way() {
    let (base, seen) = serve(|_, stream| says(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let strict = Client::new(ClientConfig { allow_plain: true, ..ClientConfig::default() }).unwrap();
    for text in
        [base.clone(), base.replace("127.0.0.1", "localhost"), base.replace("127.0.0.1", "2130706433")]
    {
        let error = strict.get(&url(&text), HeaderMap::new()).await.err().unwrap();
        assert!(
            matches!(error, ClientError::AddressForbidden { .. } | ClientError::Resolve { .. }),
            "{text} {error}"
        );
    }
    assert!(seen.lock().unwrap().is_empty());
    let metadata = url("http://169.254.169.254/latest/meta-data/");
    assert!(matches!(
        client().get(&metadata, HeaderMap::new()).await,
        Err(ClientError::AddressForbidden { .. })
    ));
    // Nor by a redirect.
    let (base, _) = serve(|_, stream| {
        says(stream, "HTTP/1.1 302 F\r\nLocation: http://169.254.169.254/x\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    let outcome = client().get(&url(&base), HeaderMap::new()).await;
    assert!(matches!(outcome, Err(ClientError::AddressForbidden { .. })));

    let encrypted_only = Client::new(ClientConfig::default()).unwrap();
    let outcome = encrypted_only.get(&url("http://192.0.2.1/"), HeaderMap::new()).await;
    assert!(matches!(outcome, Err(ClientError::PlainForbidden(_))));
}

#[tokio::test]
async fn nobody_listening_is_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client().get(&url(&base), HeaderMap::new()).await.err().unwrap();
    assert!(matches!(error, ClientError::Connect { .. }) && error.is_retryable(), "{error}");
}
