//! Serves a directory by the simplest service there can be, to measure connections beside other servers.
//!
//! `files <address:port> <directory> [<certificate> <key>]`

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_http_server::tls::ClientCertificates;
use forebay_http_server::{
    Limits, Piece, Request, RequestBody, Response, ResponseBody, Service, Tls, TlsFiles, Transport, serve,
};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use testkit::fixed_replica::FixedReplica;
use tokio::sync::watch;

/// A file that is served.
struct OpenFile {
    replica: Arc<FixedReplica>,
    length: u64,
}

struct Directory {
    root: PathBuf,
    open: Mutex<HashMap<String, Arc<OpenFile>>>,
}

impl Directory {
    fn open(&self, path: &str) -> std::io::Result<Arc<OpenFile>> {
        if let Some(open) = self.open.lock().get(path) {
            return Ok(Arc::clone(open));
        }
        let file = File::open(self.root.join(path))?;
        let length = file.metadata()?.len();
        let open = Arc::new(OpenFile { replica: Arc::new(FixedReplica::of_file(file)), length });
        self.open.lock().insert(path.to_owned(), Arc::clone(&open));
        Ok(open)
    }

    async fn put(&self, path: &str, body: &mut RequestBody) -> Option<()> {
        self.open.lock().remove(path);
        let file = Arc::new(File::create(self.root.join(path)).ok()?);
        let (mut offset, mut writing) = (0, None::<tokio::task::JoinHandle<std::io::Result<()>>>);
        while let Some(bytes) = body.next().await.ok()? {
            if let Some(writing) = writing.take() {
                writing.await.ok()?.ok()?;
            }
            let (file, at) = (Arc::clone(&file), offset);
            offset += bytes.len() as u64;
            writing = Some(tokio::task::spawn_blocking(move || file.write_all_at(&bytes, at)));
        }
        match writing {
            Some(writing) => writing.await.ok()?.ok(),
            None => Some(()),
        }
    }
}

#[async_trait]
impl Service for Directory {
    async fn serve(&self, mut request: Request) -> Response {
        let path = request.uri.path().trim_start_matches('/').to_owned();
        if request.method == Method::PUT {
            return match self.put(&path, &mut request.body).await {
                Some(()) => Response::new(StatusCode::CREATED),
                None => Response::text(StatusCode::INTERNAL_SERVER_ERROR, "not written"),
            };
        }
        match self.open(&path) {
            Err(_) => Response::text(StatusCode::NOT_FOUND, "no such file"),
            Ok(file) => {
                let length = file.length;
                let piece = Piece::Replica { replica: file.replica.clone(), offset: 0, length };
                let pieces = Box::new(std::iter::once(piece));
                Response::new(StatusCode::OK).with_body(ResponseBody::Pieces { length, pieces })
            }
        }
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, root, tls @ ..] = &arguments[..] else {
        return Err(std::io::Error::other("usage: files <address:port> <directory> [<certificate> <key>]"));
    };
    let transport = match tls {
        [certificate, key] => {
            let files = TlsFiles { certificate: certificate.into(), key: key.into() };
            Transport::tls(Tls::load(files, ClientCertificates::Asked).map_err(std::io::Error::other)?)
        }
        _ => Transport::plain(),
    };
    let listener = tokio::net::TcpListener::bind(address).await?;
    let service = Arc::new(Directory { root: root.into(), open: Mutex::default() });
    let (_keep, stop) = watch::channel(false);
    serve(listener, transport, service, Limits::default(), stop).await;
    Ok(())
}
