//! A server that knows sessions only, on a loopback socket, and a small client to it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use api::NamespaceError;
use async_trait::async_trait;
use bytes::BytesMut;
use nfs4::*;
use nfs4_state::SessionLimits;
use oncrpc::{
    AuthSys, CallHeader, Credential, MessageType, OpaqueAuth, ReplyHeader, message_type, record_header,
};
use parking_lot::Mutex;
use testkit::clock::ManualClock;
use testkit::former_tickets::NoFormerTickets;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use types::FileId;

use super::*;
use crate::compound::Engine;
use crate::context::Handle;
use crate::exports::{Export, Squash, View};
use crate::operation_table::OperationTable;
use crate::operations::Operations;
use crate::security::Security;
use crate::transport::{self, Flight, TransportLimits};

pub(crate) const LEASE: Duration = Duration::from_secs(90);
pub(crate) const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// A database that fails when it is told to.
#[derive(Default)]
pub(crate) struct TestRecords {
    pub fails: AtomicBool,
    pub records: Mutex<Vec<ClientRecord>>,
}

impl TestRecords {
    pub fn of(&self, owner: &str) -> Option<bool> {
        let records = self.records.lock();
        records.iter().find(|record| record.owner == owner.as_bytes()).map(|record| record.reclaim_complete)
    }

    fn check(&self) -> Result<(), NamespaceError> {
        let fails = self.fails.load(Ordering::Relaxed);
        if fails { Err(NamespaceError::Busy) } else { Ok(()) }
    }
}

#[async_trait]
impl RecoveryRecords for TestRecords {
    async fn load(&self) -> Result<Vec<ClientRecord>, NamespaceError> {
        Ok(self.records.lock().clone())
    }

    async fn put(&self, record: &ClientRecord) -> Result<(), NamespaceError> {
        self.check()?;
        let mut records = self.records.lock();
        records.retain(|known| known.owner != record.owner);
        records.push(record.clone());
        Ok(())
    }

    async fn remove(&self, owner: &[u8]) -> Result<(), NamespaceError> {
        self.check()?;
        self.records.lock().retain(|known| known.owner != owner);
        Ok(())
    }
}

pub(crate) struct TestTable {
    /// PUTPUBFH takes one permit; without one it waits.
    pub gate: Semaphore,
}

#[async_trait]
impl OperationTable for TestTable {
    fn admit(&self, _: IpAddr) -> Option<Arc<View>> {
        Some(Arc::new(View::of_everything(Export::of_everything(Squash::Root).rules)))
    }

    async fn execute(&self, compound: &mut Compound, operation: NfsArgop4) -> NfsResop4 {
        match operation {
            NfsArgop4::PutRootFh => {
                compound.current.handle = Some(Handle::File(FileId(1)));
                NfsResop4::PutRootFh(NfsStat4::Ok)
            }
            NfsArgop4::Read(args) => {
                let data = Opaque(vec![0; args.count as usize].into());
                NfsResop4::Read(Res::Ok(Read4ResOk { eof: false, data }))
            }
            NfsArgop4::PutPubFh => {
                self.gate.acquire().await.expect("it is never closed").forget();
                NfsResop4::PutPubFh(NfsStat4::Ok)
            }
            other => NfsResop4::error(other.opnum(), NfsStat4::NotSupp),
        }
    }
}

pub(crate) struct Server {
    pub engine: Arc<Engine>,
    pub table: Arc<TestTable>,
    pub clock: Arc<ManualClock>,
    pub records: Arc<TestRecords>,
    pub former_tickets: Arc<NoFormerTickets>,
    pub flight: Arc<Flight>,
    address: std::net::SocketAddr,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Server {
        Server::with(TransportLimits::default(), &[]).await
    }

    /// With the records of clients that a former instance knew.
    pub async fn restarted(owners: &[&str]) -> Server {
        Server::with(TransportLimits::default(), owners).await
    }

    pub async fn with(limits: TransportLimits, owners: &[&str]) -> Server {
        Server::secured(Security::sys(), limits, owners).await
    }

    pub async fn secured(security: Arc<Security>, limits: TransportLimits, owners: &[&str]) -> Server {
        Server::set(SessionLimits::default(), security, (limits, 1 << 30), owners).await
    }

    /// With these bounds of sessions.
    pub async fn bounded(session_limits: SessionLimits) -> Server {
        Server::set(session_limits, Security::sys(), (TransportLimits::default(), 1 << 30), &[]).await
    }

    /// With so many bytes of calls and replies in memory.
    pub async fn in_flight(bytes_max: u64) -> Server {
        Server::in_flight_with(TransportLimits::default(), bytes_max).await
    }

    pub async fn in_flight_with(limits: TransportLimits, bytes_max: u64) -> Server {
        Server::set(SessionLimits::default(), Security::sys(), (limits, bytes_max), &[]).await
    }

    async fn set(
        session_limits: SessionLimits,
        security: Arc<Security>,
        (limits, flight_bytes_max): (TransportLimits, u64),
        owners: &[&str],
    ) -> Server {
        let (clock, records) = (Arc::new(ManualClock::new(1000)), Arc::new(TestRecords::default()));
        for owner in owners {
            let record = ClientRecord { owner: owner.as_bytes().to_vec(), reclaim_complete: true };
            records.put(&record).await.unwrap();
        }
        let config = SessionsConfig {
            role: Role::MetadataServer,
            major_id: b"head".to_vec(),
            scope: b"instance".to_vec(),
            lease: LEASE,
            courtesy: Courtesy::NONE,
            grace: LEASE,
            boot: 0x1234_5678_9abc_def0,
            limits: session_limits,
        };
        let known = records.load().await.unwrap();
        let former_tickets = Arc::<NoFormerTickets>::default();
        let recovery = Recovery { records: records.clone(), known, former_tickets: former_tickets.clone() };
        let sessions = Sessions::new(config, Some(recovery), clock.clone());
        let table = Arc::new(TestTable { gate: Semaphore::new(0) });
        let engine = Arc::new(Engine {
            sessions: Arc::new(sessions),
            operations: Operations::new("nfs", Arc::new(api::Unobserved)),
            security,
            table: table.clone(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let flight = Flight::new(flight_bytes_max);
        let serving = tokio::spawn(transport::serve(
            listener,
            Arc::clone(&engine),
            limits,
            Arc::clone(&flight),
            stopped,
        ));
        Server { flight, engine, table, clock, records, former_tickets, address, stop, serving }
    }

    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.serving.await.unwrap();
    }

    pub async fn connect(&self) -> Client {
        self.connect_from([127, 0, 0, 1]).await
    }

    pub async fn connect_from(&self, address: [u8; 4]) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        Client { stream, buffer: BytesMut::new(), xid: 0, uid: 0 }
    }

    /// A client with a session whose back channel is this connection.
    pub async fn mount(&self, owner: &str) -> (Client, ClientId4, SessionId4) {
        self.mount_from([127, 0, 0, 1], owner).await
    }

    pub async fn mount_from(&self, address: [u8; 4], owner: &str) -> (Client, ClientId4, SessionId4) {
        let mut client = self.connect_from(address).await;
        let id = client.exchange_id(owner, 1).await.unwrap();
        let session = client.create_session(id, 1).await.unwrap();
        (client, id, session)
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    xid: u32,
    uid: u32,
}

impl Client {
    /// Sends bytes as they are.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub async fn try_send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends nothing more.
    pub async fn hang_up(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// The server has hung up.
    pub async fn is_cut(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(0) | Err(_))
    }

    async fn send(&mut self, encoder: Encoder) {
        let bytes = encoder.into_bytes();
        self.send_raw(&[&record_header(bytes.len())[..], &bytes].concat()).await;
    }

    async fn receive(&mut self) -> Bytes {
        let mut reader = oncrpc::RecordReader::new(1 << 21, 16);
        loop {
            if let Some(record) = reader.feed(&mut self.buffer).unwrap() {
                return record;
            }
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "the server hung up");
        }
    }

    /// Sends a call by AUTH_SYS of NFSv4's COMPOUND, changed by `change`, without waiting for its reply.
    pub async fn send_call(
        &mut self,
        change: impl FnOnce(&mut CallHeader),
        arguments: impl FnOnce(&mut Encoder),
    ) {
        self.xid += 1;
        let sys =
            AuthSys { stamp: 0, machine_name: Opaque::from("client"), uid: self.uid, gid: 0, gids: vec![] };
        let mut header = CallHeader {
            xid: self.xid,
            program: NFS4_PROGRAM,
            version: NFS_V4,
            procedure: NFSPROC4_COMPOUND,
            credential: Credential::Sys(sys),
            verifier: OpaqueAuth::NONE,
        };
        change(&mut header);
        let mut e = Encoder::new();
        header.encode(&mut e);
        arguments(&mut e);
        self.send(e).await;
    }

    /// The next reply: its header, and its results.
    pub async fn reply(&mut self) -> (ReplyHeader, Decoder) {
        let mut d = Decoder::new(self.receive().await);
        (ReplyHeader::decode(&mut d).unwrap(), d)
    }

    pub async fn send_compound(&mut self, argarray: Vec<NfsArgop4>) {
        let arguments = Compound4Args { tag: Opaque::from("test"), minorversion: 1, argarray };
        self.send_call(|_| {}, |e| arguments.encode(e)).await;
    }

    /// Sends a COMPOUND and returns the encoded COMPOUND4res.
    pub async fn compound_bytes(&mut self, argarray: Vec<NfsArgop4>) -> Bytes {
        self.send_compound(argarray).await;
        let (header, results) = self.reply().await;
        assert!(header.is_success() && header.xid == self.xid, "{header:?}");
        results.rest()
    }

    pub async fn compound(&mut self, argarray: Vec<NfsArgop4>) -> Vec<NfsResop4> {
        let mut d = Decoder::new(self.compound_bytes(argarray).await);
        Compound4Res::decode(&mut d).unwrap().resarray
    }

    pub async fn exchange_id(&mut self, owner: &str, verifier: u8) -> Result<ClientId4, NfsStat4> {
        let args = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: Verifier4([verifier; 8]), ownerid: Opaque::from(owner) },
            flags: EXCHGID4_FLAG_USE_PNFS_MDS,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        };
        match &self.compound(vec![NfsArgop4::ExchangeId(args)]).await[..] {
            [NfsResop4::ExchangeId(Res::Ok(reply))] => Ok(reply.clientid),
            [other] => Err(other.status()),
            others => panic!("{others:?}"),
        }
    }

    pub async fn create_session(
        &mut self,
        clientid: ClientId4,
        sequence: u32,
    ) -> Result<SessionId4, NfsStat4> {
        let channel = ChannelAttrs4 {
            headerpadsize: 0,
            maxrequestsize: 65_536,
            maxresponsesize: 65_536,
            maxresponsesize_cached: 4096,
            maxoperations: 8,
            maxrequests: 4,
            rdma_ird: None,
        };
        let sys = AuthSysParms { machinename: Opaque::from("server"), uid: 5, ..AuthSysParms::default() };
        let args = CreateSession4Args {
            clientid,
            sequence,
            flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            fore_chan_attrs: channel,
            back_chan_attrs: channel,
            cb_program: CALLBACK_PROGRAM,
            sec_parms: vec![CallbackSecParms4::Sys(sys)],
        };
        match &self.compound(vec![NfsArgop4::CreateSession(args)]).await[..] {
            [NfsResop4::CreateSession(Res::Ok(reply))] => Ok(reply.sessionid),
            [other] => Err(other.status()),
            others => panic!("{others:?}"),
        }
    }

    /// One operation behind SEQUENCE, its reply kept.
    pub async fn run(&mut self, session: SessionId4, sequence: u32, operation: NfsArgop4) -> NfsStat4 {
        let results = self.compound(vec![sequence_op(session, 0, sequence, true), operation]).await;
        results.last().unwrap().status()
    }

    /// Waits for a callback: its xid, credential and operations.
    pub async fn callback(&mut self) -> (u32, Credential, CbCompound4Args) {
        let record = self.receive().await;
        assert_eq!(message_type(&record).unwrap().1, MessageType::Call);
        let mut d = Decoder::new(record);
        let header = CallHeader::decode(&mut d).unwrap();
        assert_eq!((header.program, header.version, header.procedure), (CALLBACK_PROGRAM, 1, 1));
        (header.xid, header.credential, CbCompound4Args::decode(&mut d).unwrap())
    }

    pub async fn answer(&mut self, xid: u32, resarray: Vec<NfsCbResop4>) {
        let mut e = Encoder::new();
        ReplyHeader::success(xid).encode(&mut e);
        let status = resarray.last().map_or(NfsStat4::Ok, NfsCbResop4::status);
        CbCompound4Res { status, tag: Opaque::new(), resarray }.encode(&mut e);
        self.send(e).await;
    }
}

pub(crate) fn sequence_op(sessionid: SessionId4, slotid: u32, sequenceid: u32, cachethis: bool) -> NfsArgop4 {
    NfsArgop4::Sequence(Sequence4Args { sessionid, sequenceid, slotid, highest_slotid: slotid, cachethis })
}
