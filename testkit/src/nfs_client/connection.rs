//! One TCP connection: sends records, hands replies to whoever waits for their xid, answers callbacks.
//!
//! A thread reads; it ends with the connection. Every wait has a deadline.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use nfs4::NfsArgop4;
use oncrpc::{Credential, MessageType, RecordReader, message_type};

use super::ClientError;
use super::callback::Callbacks;
use super::message::{Reply, compound_record, framed};

/// Replies may be as large as a READ of the largest size and what is around it.
const RECORD_BYTES_MAX: usize = 16 << 20;
const FRAGMENTS_MAX: u32 = 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a reply may take: long enough for a busy machine, short enough to tell a hang.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Connection {
    writer: Arc<Mutex<TcpStream>>,
    inbox: Arc<Inbox>,
    next_xid: Mutex<u32>,
    local: SocketAddr,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct InboxState {
    replies: HashMap<u32, Bytes>,
    /// Why no more will come.
    ended: Option<String>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    pub fn open(server: SocketAddr, callbacks: Arc<Callbacks>) -> Result<Connection, ClientError> {
        let stream = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        let local = stream.local_addr()?;
        let inbox = Arc::new(Inbox::default());
        let reader = stream.try_clone()?;
        let writer = Arc::new(Mutex::new(stream));
        let (shared, answerer) = (Arc::clone(&inbox), Arc::clone(&writer));
        std::thread::spawn(move || {
            let why = read_all(reader, &answerer, &shared, &callbacks);
            shared.lock().ended = Some(why);
            shared.changed.notify_all();
        });
        Ok(Connection { writer, inbox, next_xid: Mutex::new(1), local })
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    pub fn xid(&self) -> u32 {
        let mut next = self.next_xid.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        *next
    }

    /// Sends bytes as they are, record mark included or not.
    pub fn send_raw(&self, bytes: &[u8]) -> Result<(), ClientError> {
        Ok(write(&self.writer, bytes)?)
    }

    /// Sends a COMPOUND and says under which xid its reply will come.
    pub fn send(
        &self,
        credential: &Credential,
        minorversion: u32,
        ops: &[NfsArgop4],
    ) -> Result<u32, ClientError> {
        let xid = self.xid();
        self.send_raw(&compound_record(xid, credential, minorversion, ops))?;
        Ok(xid)
    }

    /// The reply message to `xid`, header included.
    pub fn wait_raw(&self, xid: u32, timeout: Duration) -> Result<Bytes, ClientError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.inbox.lock();
        loop {
            if let Some(reply) = state.replies.remove(&xid) {
                return Ok(reply);
            }
            if let Some(why) = &state.ended {
                return Err(ClientError::Closed(why.clone()));
            }
            let left = deadline.checked_duration_since(Instant::now()).ok_or(ClientError::Timeout)?;
            state = self.inbox.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub fn wait(&self, xid: u32) -> Result<Reply, ClientError> {
        Reply::decode(self.wait_raw(xid, REPLY_TIMEOUT)?)
    }

    /// Sends and waits; no session is involved.
    pub fn call(
        &self,
        credential: &Credential,
        minorversion: u32,
        ops: &[NfsArgop4],
    ) -> Result<Reply, ClientError> {
        let xid = self.send(credential, minorversion, ops)?;
        self.wait(xid)
    }

    /// Whether the server ends the connection within `timeout`.
    pub fn is_closed_within(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.inbox.lock();
        while state.ended.is_none() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            state = self.inbox.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The reader holds a descriptor of its own; this ends its wait.
        let _ = self.writer.lock().unwrap_or_else(PoisonError::into_inner).shutdown(Shutdown::Both);
    }
}

/// One record at a time: calls and answers to callbacks share the stream.
fn write(writer: &Mutex<TcpStream>, bytes: &[u8]) -> std::io::Result<()> {
    writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
}

/// Reads until the stream ends, and says why it did.
fn read_all(
    mut stream: TcpStream,
    answerer: &Mutex<TcpStream>,
    inbox: &Inbox,
    callbacks: &Callbacks,
) -> String {
    let mut records = RecordReader::new(RECORD_BYTES_MAX, FRAGMENTS_MAX);
    let mut buffer = BytesMut::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match records.feed(&mut buffer) {
            Ok(Some(record)) => match message_type(&record) {
                Ok((xid, MessageType::Reply)) => {
                    inbox.lock().replies.insert(xid, record);
                    inbox.changed.notify_all();
                }
                Ok((_, MessageType::Call)) => {
                    if let Some(reply) = callbacks.reply(record)
                        && let Err(error) = write(answerer, &framed(&reply))
                    {
                        return error.to_string();
                    }
                }
                Err(error) => return error.to_string(),
            },
            Ok(None) => match stream.read(&mut chunk) {
                Ok(0) => return "the server ended the connection".to_owned(),
                Ok(len) => buffer.extend_from_slice(&chunk[..len]),
                Err(error) => return error.to_string(),
            },
            Err(error) => return error.to_string(),
        }
    }
}
