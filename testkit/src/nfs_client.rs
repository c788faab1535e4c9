//! A small blocking NFSv4.1/4.2 client for tests: it says what it is told to, also what no real client would.
//!
//! `message`, `session` and `callback` decide and hold no socket; `connection` is the shell around them. `NfsClient`
//! has a session and puts SEQUENCE before what it is given; `files` and `layouts` are conveniences on top. Statuses
//! come back as errors that name the operation; nothing is retried unless the name of the method says so.

mod callback;
mod connection;
mod data;
pub mod files;
mod layouts;
mod message;
pub mod ops;
mod session;
mod xattrs;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nfs4::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CallbackSecParms4, ChannelAttrs4, ClientOwner4, CreateSession4Args,
    CreateSession4ResOk, EXCHGID4_FLAG_CONFIRMED_R, EXCHGID4_FLAG_USE_PNFS_DS, EXCHGID4_FLAG_USE_PNFS_MDS,
    ExchangeId4Args, ExchangeId4ResOk, NfsArgop4, NfsResop4, NfsStat4, OpProperties, ReclaimComplete4Args,
    Sequence4Args, StateProtect4A, Verifier4,
};
use oncrpc::{Credential, ReplyBody};
use thiserror::Error;
use xdr::{Opaque, XdrError};

pub use callback::{Answer, Callbacks};
pub use connection::{Connection, REPLY_TIMEOUT};
pub use files::OpenFile;
pub use layouts::{Layout, socket_address};
pub use message::{Reply, auth_sys, call_record, compound_record, framed};
pub use nfs4;
pub use session::Session;

/// How long `…_when_ready` asks again after DELAY, GRACE and their kin.
pub const READY_TIMEOUT: Duration = Duration::from_secs(40);
const RETRY_PERIOD: Duration = Duration::from_millis(20);

/// As Linux asks: 64 slots, requests and replies of 1 MiB and what is around them.
pub const FORE_CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 1_049_620,
    maxresponsesize: 1_049_480,
    maxresponsesize_cached: 3_428,
    maxoperations: 8,
    maxrequests: 64,
    rdma_ird: None,
};

pub const BACK_CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 4_096,
    maxresponsesize: 4_096,
    maxresponsesize_cached: 0,
    maxoperations: 2,
    maxrequests: 16,
    rdma_ird: None,
};

/// The callback program that Linux announces.
pub const CALLBACK_PROGRAM: u32 = 0x4000_0000;

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("operation {opnum} answers {status}")]
    Status { status: NfsStat4, opnum: u32 },
    #[error("the call is refused: {0:?}")]
    Rpc(ReplyBody),
    #[error("the reply cannot be read: {0}")]
    Xdr(#[from] XdrError),
    #[error("the connection has ended: {0}")]
    Closed(String),
    #[error("no answer in time")]
    Timeout,
    #[error("no slot is free")]
    NoSlot,
    #[error("the reply lacks the result of {0}")]
    Missing(&'static str),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl ClientError {
    /// The status, if it is an operation's.
    pub fn status(&self) -> Option<NfsStat4> {
        match self {
            ClientError::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// Identity of a client, and how it connects.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `co_ownerid`.
    pub name: String,
    /// `co_verifier`: another one is another boot of the client.
    pub verifier: [u8; 8],
    pub minorversion: u32,
    pub credential: Credential,
    pub exchange_flags: u32,
    /// Whether the session asks for a back channel on the first connection.
    pub has_back_channel: bool,
    pub fore_channel: ChannelAttrs4,
    /// Whether to say RECLAIM_COMPLETE at once: nothing to reclaim.
    pub completes_reclaim: bool,
}

impl ClientOptions {
    /// A client of the head, NFSv4.2, root by AUTH_SYS.
    pub fn named(name: &str) -> ClientOptions {
        ClientOptions {
            name: name.to_owned(),
            verifier: *b"boot 001",
            minorversion: 2,
            credential: auth_sys(0, 0, &[]),
            exchange_flags: EXCHGID4_FLAG_USE_PNFS_MDS,
            has_back_channel: true,
            fore_channel: FORE_CHANNEL,
            completes_reclaim: true,
        }
    }

    pub fn minorversion(self, minorversion: u32) -> ClientOptions {
        ClientOptions { minorversion, ..self }
    }

    pub fn credential(self, credential: Credential) -> ClientOptions {
        ClientOptions { credential, ..self }
    }

    pub fn verifier(self, verifier: [u8; 8]) -> ClientOptions {
        ClientOptions { verifier, ..self }
    }

    /// A client that will reclaim: RECLAIM_COMPLETE is left to the test.
    pub fn reclaiming(self) -> ClientOptions {
        ClientOptions { completes_reclaim: false, ..self }
    }

    /// As Linux comes to a data server.
    pub fn for_data_server(self) -> ClientOptions {
        ClientOptions { exchange_flags: EXCHGID4_FLAG_USE_PNFS_DS, minorversion: 1, ..self }
    }

    pub fn exchange_id(&self) -> NfsArgop4 {
        NfsArgop4::ExchangeId(ExchangeId4Args {
            clientowner: ClientOwner4 {
                verifier: Verifier4(self.verifier),
                ownerid: Opaque::from(self.name.as_str()),
            },
            flags: self.exchange_flags,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        })
    }

    pub fn create_session(&self, exchanged: &ExchangeId4ResOk) -> NfsArgop4 {
        NfsArgop4::CreateSession(CreateSession4Args {
            clientid: exchanged.clientid,
            sequence: exchanged.sequenceid,
            flags: if self.has_back_channel { CREATE_SESSION4_FLAG_CONN_BACK_CHAN } else { 0 },
            fore_chan_attrs: self.fore_channel,
            back_chan_attrs: BACK_CHANNEL,
            cb_program: CALLBACK_PROGRAM,
            sec_parms: vec![CallbackSecParms4::None],
        })
    }
}

/// A client with a session.
pub struct NfsClient {
    pub connection: Arc<Connection>,
    pub callbacks: Arc<Callbacks>,
    pub session: Session,
    pub options: ClientOptions,
    pub exchanged: ExchangeId4ResOk,
    pub created: CreateSession4ResOk,
    server: SocketAddr,
}

impl NfsClient {
    /// EXCHANGE_ID, CREATE_SESSION and, unless it is left to the test, RECLAIM_COMPLETE.
    pub fn connect(server: SocketAddr, options: ClientOptions) -> Result<NfsClient, ClientError> {
        let callbacks = Arc::new(Callbacks::default());
        let connection = Connection::open(server, Arc::clone(&callbacks))?;
        let reply =
            connection.call(&options.credential, options.minorversion, &[options.exchange_id()])?.ok()?;
        let exchanged = crate::body!(reply, ExchangeId).ok_or(ClientError::Missing("EXCHANGE_ID"))?;
        let create = options.create_session(&exchanged);
        let reply = connection.call(&options.credential, options.minorversion, &[create])?.ok()?;
        let created = crate::body!(reply, CreateSession).ok_or(ClientError::Missing("CREATE_SESSION"))?;
        let mut client = NfsClient {
            connection: Arc::new(connection),
            callbacks,
            session: Session::new(&created),
            options,
            exchanged,
            created,
            server,
        };
        // A client that the server has confirmed before has said so then.
        let is_new = client.exchanged.flags & EXCHGID4_FLAG_CONFIRMED_R == 0;
        if client.options.completes_reclaim && is_new {
            client.reclaim_complete()?;
        }
        Ok(client)
    }

    pub fn server(&self) -> SocketAddr {
        self.server
    }

    pub fn reclaim_complete(&mut self) -> Result<(), ClientError> {
        self.call(&[NfsArgop4::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]).map(drop)
    }

    /// A further connection; whether it belongs to the session is up to what is sent on it.
    pub fn second_connection(&self) -> Result<Connection, ClientError> {
        Connection::open(self.server, Arc::clone(&self.callbacks))
    }

    /// SEQUENCE and `ops`; the reply may hold an error. As Linux does, only what must not run twice is to be cached.
    pub fn compound(&mut self, ops: &[NfsArgop4]) -> Result<Reply, ClientError> {
        let must_not_run_twice =
            |op: &NfsArgop4| OpProperties::of(op.opnum()).is_some_and(|properties| properties.non_idempotent);
        let cachethis = ops.iter().any(must_not_run_twice);
        let sequence = self.session.begin(cachethis).ok_or(ClientError::NoSlot)?;
        self.compound_as(sequence, ops)
    }

    /// As `compound`, with a SEQUENCE of the caller's making.
    pub fn compound_as(&mut self, sequence: Sequence4Args, ops: &[NfsArgop4]) -> Result<Reply, ClientError> {
        let outcome = self.connection.call(
            &self.options.credential,
            self.options.minorversion,
            &Session::compound(sequence, ops),
        );
        let results: &[NfsResop4] = outcome.as_ref().map_or(&[], |reply| &reply.results);
        self.session.finish(&sequence, results);
        outcome
    }

    /// As `compound`; a status other than NFS4_OK is an error.
    pub fn call(&mut self, ops: &[NfsArgop4]) -> Result<Reply, ClientError> {
        self.compound(ops)?.ok()
    }

    /// As `call`, asking again while the server says DELAY, GRACE, RECALLCONFLICT or LAYOUTTRYLATER.
    pub fn call_when_ready(&mut self, ops: &[NfsArgop4]) -> Result<Reply, ClientError> {
        when_ready(|| self.call(ops))
    }

    /// Does `ops` as somebody else, on the same session.
    pub fn call_as(&mut self, credential: Credential, ops: &[NfsArgop4]) -> Result<Reply, ClientError> {
        let own = std::mem::replace(&mut self.options.credential, credential);
        let outcome = self.call(ops);
        self.options.credential = own;
        outcome
    }
}

/// Asks again as long as the answer is that it is too early.
pub fn when_ready<T>(mut ask: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        match ask() {
            Err(error) if is_temporary(&error) && Instant::now() < deadline => {
                std::thread::sleep(RETRY_PERIOD)
            }
            outcome => return outcome,
        }
    }
}

fn is_temporary(error: &ClientError) -> bool {
    matches!(
        error.status(),
        Some(NfsStat4::Delay | NfsStat4::Grace | NfsStat4::RecallConflict | NfsStat4::LayoutTryLater)
    )
}
