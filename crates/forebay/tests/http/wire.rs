//! A small blocking HTTP/1.1 client that sends the bytes it is given and reads answers to the letter.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketType};

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// As `header`, where there must be one.
    pub fn told(&self, name: &str) -> String {
        self.header(name).unwrap_or_else(|| panic!("no {name} in {self:?}")).to_owned()
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A request under construction. Only headers that were set are sent, and Host.
#[derive(Clone, Debug)]
pub struct Ask {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Ask {
    pub fn new(method: &str, target: &str) -> Ask {
        Ask { method: method.to_owned(), target: target.to_owned(), headers: Vec::new(), body: None }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Ask {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// With its Content-Length.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Ask {
        self.body = Some(body.as_ref().to_vec());
        self
    }

    /// The request's head, with the empty line.
    pub fn head(&self, host: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {host}\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if let Some(body) = &self.body {
            write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        head += "\r\n";
        head.into_bytes()
    }

    /// On a connection of its own.
    pub fn send(&self, server: SocketAddr) -> Answer {
        let mut connection = Connection::open(server);
        connection.ask(self)
    }
}

pub struct Connection {
    stream: TcpStream,
    server: SocketAddr,
    /// Read and not yet used.
    ahead: Vec<u8>,
    /// Of the bodies so far that came in chunks.
    pub longest_chunk: usize,
}

impl Connection {
    pub fn open(server: SocketAddr) -> Connection {
        Connection::try_open(server).expect("connect to the server")
    }

    /// Of a server that may have ended.
    pub fn try_open(server: SocketAddr) -> std::io::Result<Connection> {
        Ok(Connection::over(TcpStream::connect(server)?, server))
    }

    /// From an address of this host.
    pub fn open_from(source: IpAddr, server: SocketAddr) -> Connection {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::new(source, 0)).unwrap();
        net::connect(&socket, &server).expect("connect to the server");
        Connection::over(TcpStream::from(socket), server)
    }

    fn over(stream: TcpStream, server: SocketAddr) -> Connection {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, server, ahead: Vec::new(), longest_chunk: 0 }
    }

    /// Head and body in one go; the final answer.
    pub fn ask(&mut self, ask: &Ask) -> Answer {
        let mut bytes = ask.head(self.server);
        bytes.extend(ask.body.iter().flatten());
        self.write(&bytes);
        self.answer(ask.method == "HEAD")
    }

    /// As `ask`, or `None` where the server goes away.
    pub fn ask_or_end(&mut self, ask: &Ask) -> Option<Answer> {
        self.begin(ask);
        self.write(ask.body.as_deref().unwrap_or_default());
        self.answer_or_end()
    }

    /// The head alone.
    pub fn begin(&mut self, ask: &Ask) {
        let head = ask.head(self.server);
        self.write(&head);
    }

    /// The server may have answered and closed before it has read all of it.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Until something of the answer is there.
    pub fn wait_for_its_begin(&mut self) {
        assert!(self.more(), "the connection ends before an answer");
    }

    /// No more bytes will come.
    pub fn end(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The final answer; interim ones are passed over.
    pub fn answer(&mut self, is_to_head: bool) -> Answer {
        loop {
            let answer = self.next_answer(is_to_head);
            if answer.status >= 200 {
                return answer;
            }
        }
    }

    /// The next answer, which may be an interim one.
    pub fn next_answer(&mut self, is_to_head: bool) -> Answer {
        let head = self.until(b"\r\n\r\n");
        let text = String::from_utf8(head).expect("the head is text");
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).expect("a status line");
        let status = status[..3].parse().expect("a status");
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').expect("a header"))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        if !is_to_head && status >= 200 && status != 204 && status != 304 {
            answer.body = self.body(&answer);
        }
        answer
    }

    fn body(&mut self, answer: &Answer) -> Vec<u8> {
        if answer.header("transfer-encoding") == Some("chunked") {
            let mut body = Vec::new();
            loop {
                let line = String::from_utf8(self.until(b"\r\n")).unwrap();
                let length = usize::from_str_radix(line.trim(), 16).expect("a chunk's length");
                self.longest_chunk = self.longest_chunk.max(length);
                body.extend(self.exactly(length));
                assert_eq!(self.exactly(2), b"\r\n");
                if length == 0 {
                    return body;
                }
            }
        }
        match answer.header("content-length") {
            Some(length) => self.exactly(length.parse().expect("a length")),
            None => {
                self.stream.read_to_end(&mut self.ahead).expect("the body ends");
                std::mem::take(&mut self.ahead)
            }
        }
    }

    fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.ahead.windows(mark.len()).position(|window| window == mark) {
                return self.ahead.drain(..at + mark.len()).collect();
            }
            assert!(self.more(), "the connection ends in {:?}", String::from_utf8_lossy(&self.ahead));
        }
    }

    fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.ahead.len() < length {
            assert!(self.more(), "the connection ends after {} bytes of {length}", self.ahead.len());
        }
        self.ahead.drain(..length).collect()
    }

    fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        let read = loop {
            match self.stream.read(&mut buffer) {
                // A signal, as that of a child that ends, interrupts a read that has a timeout.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A server that was killed resets what it has not read.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break 0,
                read => break read.expect("an answer in time"),
            }
        };
        self.ahead.extend(&buffer[..read]);
        read > 0
    }

    /// As `answer`, or `None` where the server closes without one.
    pub fn answer_or_end(&mut self) -> Option<Answer> {
        let has_more = !self.ahead.is_empty() || self.more();
        has_more.then(|| self.answer(false))
    }
}

/// The standard alphabet with padding, for Basic and for checksums in headers.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { letter.into() } else { '=' });
        }
    }
    text
}
