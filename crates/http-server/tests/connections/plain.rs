//! Plain connections where only some clients may have them.

use std::sync::Arc;

use forebay_http_server::{Limits, PlainClients, Request, Response, Service, Transport};
use http::StatusCode;
use rustls::version::TLS13;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use types::Network;

use super::support::{Server, service, status};
use super::tls::{Files, connect};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Says how a request came.
fn telling() -> Arc<dyn Service> {
    service(|request: Request| async move {
        Response::text(StatusCode::OK, if request.peer.tls.is_some() { "by TLS" } else { "in the clear" })
    })
}

fn of(network: &str) -> PlainClients {
    let network: Network = network.parse().unwrap();
    PlainClients::Of([network].into())
}

async fn plain_answer(server: &Server) -> (u16, String) {
    let mut client = server.client().await;
    client.send(GET).await;
    let answer = client.rest_text().await;
    (status(&answer), answer)
}

#[tokio::test]
async fn without_a_certificate_clients_of_other_networks_get_no_request_served() {
    for (network, expected, says) in
        [("127.0.0.0/8", 200, "in the clear"), ("10.0.0.0/8", 403, "http.plain_networks")]
    {
        let transport = Transport { tls: None, plain: of(network) };
        let server = Server::over(transport, telling(), Limits::default()).await;
        let (code, answer) = plain_answer(&server).await;
        assert_eq!(code, expected, "{network}: {answer}");
        assert!(answer.contains(says), "{network}: {answer}");
    }
}

#[tokio::test]
async fn with_a_certificate_clients_of_the_networks_choose_and_others_use_tls() {
    let files = Files::new();
    for (network, expected, says) in [("127.0.0.0/8", 200, "in the clear"), ("10.0.0.0/8", 400, "https://")] {
        let transport = Transport { plain: of(network), ..Transport::tls(files.load()) };
        let server = Server::over(transport, telling(), Limits::default()).await;
        let (code, answer) = plain_answer(&server).await;
        assert_eq!(code, expected, "{network}: {answer}");
        assert!(answer.contains(says), "{network}: {answer}");

        let mut stream = connect(&server, &TLS13, None, &[b"http/1.1"]).await.unwrap();
        stream.write_all(GET).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("by TLS\n"), "{network}: {answer}");
    }
}
