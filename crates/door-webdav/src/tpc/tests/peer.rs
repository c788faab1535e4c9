//! The other server: one file over plain HTTP, with whims.

use std::sync::Arc;

use http_wire::digest::digest_text;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use types::ChecksumKind;

use super::memory::sums;

#[derive(Clone, Debug)]
pub struct Whims {
    pub accept_ranges: bool,
    /// Ranges are promised and the whole file is sent.
    pub ignores_ranges: bool,
    pub etag: bool,
    /// Parts are sent of whatever the file is now.
    pub ignores_if_range: bool,
    /// Neither length nor chunks: the end of the connection is the end of the file.
    pub undelimited: bool,
    /// A header line of a GET that contradicts or replaces its length.
    pub framing: Option<&'static str>,
    /// Kinds it can tell; the first that is asked for is told.
    pub kinds: Vec<ChecksumKind>,
    /// Told instead of the true checksum.
    pub digest: Option<&'static str>,
    /// So many GETs end after so many bytes of their body, as if the server was killed.
    pub cut: Option<(usize, usize)>,
    /// After the first GET the file is this one.
    pub becomes: Option<Vec<u8>>,
    /// The token without which it answers 401.
    pub token: Option<&'static str>,
    /// Status of HEAD, of PUT: instead of doing it.
    pub head_status: Option<u16>,
    pub put_status: Option<u16>,
    /// A PUT is answered so before any of its body is read, as a login page does.
    pub put_unread: Option<u16>,
    /// HEAD tells no length.
    pub is_head_mute: bool,
    /// PUTs end after so many bytes of their body.
    pub put_cut: Option<usize>,
    /// The answer to any request is never given.
    pub silent: bool,
    /// The body of a GET stops, and the connection stays.
    pub stalls_after: Option<usize>,
    /// Everything but what came there is redirected there.
    pub redirect: Option<String>,
}

impl Default for Whims {
    fn default() -> Whims {
        Whims {
            accept_ranges: true,
            ignores_ranges: false,
            etag: true,
            ignores_if_range: false,
            undelimited: false,
            framing: None,
            kinds: ChecksumKind::ALL.to_vec(),
            digest: None,
            cut: None,
            becomes: None,
            token: None,
            head_status: None,
            put_status: None,
            put_unread: None,
            is_head_mute: false,
            put_cut: None,
            silent: false,
            stalls_after: None,
            redirect: None,
        }
    }
}

struct State {
    file: Mutex<Option<Vec<u8>>>,
    whims: Mutex<Whims>,
    asked: Mutex<Vec<String>>,
    /// One word for each request: its method.
    told: mpsc::UnboundedSender<String>,
}

pub struct Peer {
    pub url: String,
    state: Arc<State>,
    methods: mpsc::UnboundedReceiver<String>,
}

impl Peer {
    pub async fn start(file: Option<&[u8]>, whims: Whims) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/f", listener.local_addr().unwrap());
        let (told, methods) = mpsc::unbounded_channel();
        let state = Arc::new(State {
            file: Mutex::new(file.map(<[u8]>::to_vec)),
            whims: Mutex::new(whims),
            asked: Mutex::default(),
            told,
        });
        let serving = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(Arc::clone(&serving), stream));
            }
        });
        Peer { url, state, methods }
    }

    pub fn file(&self) -> Option<Vec<u8>> {
        self.state.file.lock().clone()
    }

    /// Heads in lower case.
    pub fn asked(&self) -> Vec<String> {
        self.state.asked.lock().clone()
    }

    pub fn count(&self, method: &str) -> usize {
        self.asked().iter().filter(|head| head.starts_with(&method.to_ascii_lowercase())).count()
    }

    pub async fn until_asked(&mut self, method: &str) {
        while self.methods.recv().await.expect("the server lives") != method {}
    }
}

async fn answer(state: Arc<State>, mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let method = head.split(' ').next().unwrap_or_default().to_ascii_uppercase();
    state.asked.lock().push(head.clone());
    let whims = state.whims.lock().clone();
    if whims.silent {
        let _ = state.told.send(method);
        return std::future::pending().await;
    }
    if let Some(to) = &whims.redirect {
        return plain(&mut stream, 307, &format!("Location: {to}\r\n")).await;
    }
    if whims.token.is_some_and(|token| !head.contains(&format!("\r\nauthorization: bearer {token}\r\n"))) {
        return plain(&mut stream, 401, "").await;
    }
    match method.as_str() {
        "GET" | "HEAD" => give(&state, &whims, &head, &mut stream, method).await,
        "PUT" => take(&state, &whims, &head, &mut stream).await,
        "DELETE" => {
            state.file.lock().take();
            plain(&mut stream, 204, "").await?;
            let _ = state.told.send(method);
            Ok(())
        }
        _ => plain(&mut stream, 405, "").await,
    }
}

async fn plain(stream: &mut TcpStream, status: u16, headers: &str) -> std::io::Result<()> {
    let text = if status >= 400 { "said so\n" } else { "" };
    let length = if status == 204 { String::new() } else { format!("Content-Length: {}\r\n", text.len()) };
    stream.write_all(format!("HTTP/1.1 {status} X\r\n{length}{headers}\r\n{text}").as_bytes()).await
}

async fn give(
    state: &State,
    whims: &Whims,
    head: &str,
    stream: &mut TcpStream,
    method: String,
) -> std::io::Result<()> {
    let is_head = method == "HEAD";
    let Some(file) = state.file.lock().clone() else { return plain(stream, 404, "").await };
    if let Some(status) = whims.head_status.filter(|_| is_head) {
        return plain(stream, status, "").await;
    }
    let etag = format!("\"{}\"", digest_text(&sums(&[ChecksumKind::Adler32], &file)));
    let is_same = whims.ignores_if_range || header(head, "if-range").is_none_or(|tag| tag == etag);
    let range = header(head, "range").filter(|_| is_same && !whims.ignores_ranges && !is_head).map(|text| {
        let (first, last) = text.trim_start_matches("bytes=").split_once('-').unwrap();
        (first.parse().unwrap(), last.parse().map_or(file.len(), |last: usize| last + 1))
    });
    let (first, end) = range.unwrap_or((0, file.len()));
    let mut text = match range {
        Some(_) => format!("HTTP/1.1 206 P\r\nContent-Range: bytes {first}-{}/{}\r\n", end - 1, file.len()),
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    if if is_head { !whims.is_head_mute } else { !whims.undelimited } {
        text += &format!("Content-Length: {}\r\n", end - first);
    }
    if let Some(framing) = whims.framing.filter(|_| !is_head) {
        text += &format!("{framing}\r\n");
    }
    if whims.accept_ranges {
        text += "Accept-Ranges: bytes\r\n";
    }
    if whims.etag {
        text += &format!("ETag: {etag}\r\n");
    }
    let wanted = header(head, "want-digest").unwrap_or_default();
    let kind = whims.kinds.iter().find(|kind| wanted.contains(kind.name()));
    if let Some(kind) = kind {
        let digest = whims.digest.map_or_else(|| digest_text(&sums(&[*kind], &file)), str::to_owned);
        text += &format!("Digest: {digest}\r\n");
    }
    stream.write_all(format!("{text}\r\n").as_bytes()).await?;
    if !is_head {
        body(state, &file[first..end], stream).await?;
    }
    let _ = state.told.send(method);
    stream.shutdown().await
}

async fn body(state: &State, bytes: &[u8], stream: &mut TcpStream) -> std::io::Result<()> {
    let (cut, stall) = {
        let mut whims = state.whims.lock();
        if let Some(file) = whims.becomes.take() {
            *state.file.lock() = Some(file);
        }
        let cut = whims.cut.as_mut().filter(|(times, _)| *times > 0).map(|(times, after)| {
            *times -= 1;
            *after
        });
        (cut, whims.stalls_after)
    };
    if let Some(after) = stall {
        stream.write_all(&bytes[..after.min(bytes.len())]).await?;
        let _ = state.told.send("STALLED".to_owned());
        return std::future::pending().await;
    }
    stream.write_all(&bytes[..cut.unwrap_or(bytes.len()).min(bytes.len())]).await
}

async fn take(state: &State, whims: &Whims, head: &str, stream: &mut TcpStream) -> std::io::Result<()> {
    if let Some(status) = whims.put_status {
        return plain(stream, status, "").await;
    }
    if let Some(status) = whims.put_unread {
        plain(stream, status, "").await?;
        // All further bytes are read and thrown away, so that the connection does not break before the answer is read.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await?;
        return Ok(());
    }
    stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    let length: usize = header(head, "content-length").unwrap().parse().unwrap();
    let mut file = vec![0; whims.put_cut.unwrap_or(length).min(length)];
    stream.read_exact(&mut file).await?;
    if whims.put_cut.is_some() {
        // Killed in the middle; what it has is not a file yet.
        let _ = state.told.send("CUT".to_owned());
        return Ok(());
    }
    *state.file.lock() = Some(file);
    plain(stream, 201, "").await?;
    let _ = state.told.send("PUT".to_owned());
    Ok(())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
