//! The head's dispatch without a socket, for fuzzing: a COMPOUND in, its reply out, and the state left behind.
//!
//! Calls to clients come out of a stream; its reader may answer them.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nfs4_state::Principal;
use oncrpc::MessageType;
use tokio::net::{TcpListener, TcpStream};
use types::Identity;

use crate::HeadDoor;
use crate::exports::Claimed;
use crate::security::Flavor;
use crate::transport::{Caller, Connection, Program};

/// How long a call to a client may take to be written.
const PATIENCE: Duration = Duration::from_secs(1);

pub struct Direct {
    door: Arc<HeadDoor>,
    connection: Arc<Connection>,
}

/// State of clients at the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Confirmed or not.
    pub clients: usize,
    pub sessions: usize,
    /// No client has an open, a lock, a layout, a delegation or a stateid, or waits for one.
    pub is_stateless: bool,
    /// Clients whose opens are remembered for delegations, and I/O counters that clients have reported.
    pub remembered: usize,
    /// Copies that run or whose end no client has heard of.
    pub copies: usize,
}

impl Direct {
    /// With the stream that calls to clients come out of.
    pub async fn new(door: Arc<HeadDoor>) -> io::Result<(Direct, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let clients_end = TcpStream::connect(listener.local_addr()?).await?;
        let (stream, peer) = listener.accept().await?;
        let local = stream.local_addr()?;
        let (_, writer) = stream.into_split();
        let connection = Connection::new(peer, local, writer, PATIENCE);
        Ok((Direct { door, connection }, clients_end))
    }

    /// The reply to `COMPOUND4args` of a user by AUTH_SYS; `None`: they are garbage.
    pub async fn call(&self, uid: u32, arguments: Bytes) -> Option<Bytes> {
        let view = self.door.engine.admit(self.connection.peer().ip())?;
        let caller = Caller {
            connection: Arc::clone(&self.connection),
            view,
            claimed: Claimed::User(Identity::new(uid, uid, &[])),
            principal: Principal::sys(uid),
            flavor: Some(Flavor::Sys),
            record_address: arguments.as_ptr().addr(),
        };
        let segments = self.door.engine.run(caller, arguments, None).await.ok()?;
        Some(segments.concat().into())
    }

    /// A client's answer to a call.
    pub fn answer(&self, record: Bytes) {
        if let Ok((xid, MessageType::Reply)) = oncrpc::message_type(&record) {
            self.connection.deliver(xid, record);
        }
    }

    /// Runs the housekeeping once.
    pub async fn keep_house(&self) {
        self.door.mds.keep_house().await;
    }

    /// Ends what is under way; the head goes when this is dropped.
    pub async fn close(self) {
        self.connection.close();
        self.door.mds.clients.shut_down_calls().await;
    }

    pub fn footprint(&self) -> Footprint {
        let mds = &self.door.mds;
        let (clients, sessions) = self.door.engine.sessions.known();
        let is_stateless = mds.clients.states.lock().is_empty() && mds.clients.fs.files.table().is_empty();
        let remembered = mds.grants.adaptive.lock().counts().clients + mds.layouts.reports.counters();
        let (running, unheard) = mds.copies.offloads.counts();
        Footprint { clients, sessions, is_stateless, remembered, copies: running + unheard }
    }
}
