//! A server table with the usual client at hand.

use std::time::Duration;

use bytes::Bytes;
use nfs4::*;
use xdr::Opaque;

use crate::{
    Action, ConnectionId, Courtesy, CreateStep, Departed, KnownClient, Peer, PendingSession, Principal,
    RequestFacts, Role, SequenceVerdict, ServerIdentity, SessionConfig, SessionLimits, SessionTable,
};

pub(super) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const LEASE: Duration = s(90);
pub(super) const GRACE: Duration = s(100);

pub(super) const COURTESY: Courtesy = Courtesy { time: s(1000), clients_max: 3, states_max: 20 };

pub(super) const CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 1_049_620,
    maxresponsesize: 1_049_480,
    maxresponsesize_cached: 2_048,
    maxoperations: 8,
    maxrequests: 16,
    rdma_ird: None,
};

pub(super) fn peer(connection: u64) -> Peer {
    Peer { connection: ConnectionId(connection), address: ([127, 0, 0, 1], 700).into() }
}

pub(super) fn facts() -> RequestFacts {
    RequestFacts::new(200, 2, &Principal::sys(0), b"putrootfh")
}

pub(super) fn sequence_args(sessionid: SessionId4, slotid: u32, sequenceid: u32) -> Sequence4Args {
    Sequence4Args { sessionid, sequenceid, slotid, highest_slotid: slotid, cachethis: false }
}

pub(super) struct Fixture {
    pub table: SessionTable,
    pub now: Duration,
    pub principal: Principal,
    pub peer: Peer,
    pub flags: u32,
    pub minor_version: u32,
    pub fore: ChannelAttrs4,
    pub back_channel: bool,
    /// All actions that the table asked for, and the clients that departed.
    pub actions: Vec<Action>,
    pub departed: Vec<ClientId4>,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(Role::MetadataServer, SessionLimits::default(), vec![])
    }

    pub fn with_role(role: Role) -> Fixture {
        Fixture::with(role, SessionLimits::default(), vec![])
    }

    pub fn with_limits(limits: SessionLimits) -> Fixture {
        Fixture::with(Role::MetadataServer, limits, vec![])
    }

    pub fn restarted(known: Vec<KnownClient>) -> Fixture {
        Fixture::with(Role::MetadataServer, SessionLimits::default(), known)
    }

    fn with(role: Role, limits: SessionLimits, known: Vec<KnownClient>) -> Fixture {
        let identity = ServerIdentity {
            major_id: Bytes::from_static(b"head"),
            minor_id: 0,
            scope: Bytes::from_static(b"instance"),
            role,
            implementation: Bytes::from_static(b"forebay"),
        };
        let config = SessionConfig {
            identity,
            limits,
            lease: LEASE,
            courtesy: COURTESY,
            grace: GRACE,
            instance: 0x89ab_cdef_0123_4567,
        };
        Fixture {
            table: SessionTable::new(config, s(1000), known),
            now: s(1000),
            principal: Principal::sys(0),
            peer: peer(1),
            flags: 0,
            minor_version: 1,
            fore: CHANNEL,
            back_channel: true,
            actions: vec![],
            departed: vec![],
        }
    }

    pub fn exchange_id(&mut self, owner: &str, verifier: u8) -> Result<ExchangeId4ResOk, NfsStat4> {
        let args = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: Verifier4([verifier; 8]), ownerid: Opaque::from(owner) },
            flags: self.flags,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        };
        let exchanged = self.table.exchange_id(
            self.now,
            &args,
            self.minor_version,
            self.principal,
            &self.peer,
            |_| true,
        )?;
        self.note(exchanged.departed);
        Ok(exchanged.reply)
    }

    pub fn prepare_session(
        &mut self,
        clientid: ClientId4,
        sequence: u32,
    ) -> Result<PendingSession, NfsStat4> {
        match self.create_step(clientid, sequence)? {
            CreateStep::Prepared(pending) => Ok(pending),
            CreateStep::Replay(_) => panic!("the request is new"),
        }
    }

    pub fn create_session(
        &mut self,
        clientid: ClientId4,
        sequence: u32,
    ) -> Result<CreateSession4ResOk, NfsStat4> {
        match self.create_step(clientid, sequence)? {
            CreateStep::Replay(reply) => reply,
            CreateStep::Prepared(pending) => {
                self.actions.extend(pending.actions.iter().cloned());
                let started = self.table.commit_session(self.now, pending)?;
                self.note(started.departed);
                Ok(started.reply)
            }
        }
    }

    pub fn mount(&mut self, owner: &str) -> (ClientId4, SessionId4) {
        let client = self.exchange_id(owner, 1).unwrap().clientid;
        (client, self.create_session(client, 1).unwrap().sessionid)
    }

    pub fn begin(&mut self, args: &Sequence4Args, facts: &RequestFacts) -> SequenceVerdict {
        self.table.begin(self.now, args, facts, &self.peer)
    }

    /// A whole request on a slot.
    pub fn sequence(
        &mut self,
        session: SessionId4,
        slot: u32,
        sequence: u32,
    ) -> Result<Sequence4ResOk, NfsStat4> {
        match self.begin(&sequence_args(session, slot, sequence), &facts()) {
            SequenceVerdict::Execute(ticket) => {
                let result = ticket.result;
                self.table.finish(self.now, ticket, None);
                Ok(result)
            }
            SequenceVerdict::Refuse(status) => Err(status),
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Nobody holds anything.
    pub fn expire(&mut self) -> Vec<Departed> {
        self.table.expire(self.now, &()).departed
    }

    pub fn destroy_session(&mut self, session: SessionId4) -> Result<(), NfsStat4> {
        self.table.destroy_session(session, self.peer.connection, None, true)
    }

    pub fn bind_back(&mut self, sessid: SessionId4) {
        let args =
            BindConnToSession4Args { sessid, dir: ChannelDirFromClient4::Back, use_conn_in_rdma_mode: false };
        self.table.bind_conn_to_session(self.now, &args, &self.peer).unwrap();
    }

    fn create_step(&mut self, clientid: ClientId4, sequence: u32) -> Result<CreateStep, NfsStat4> {
        let back = if self.back_channel { CREATE_SESSION4_FLAG_CONN_BACK_CHAN } else { 0 };
        let args = CreateSession4Args {
            clientid,
            sequence,
            flags: self.flags | back,
            fore_chan_attrs: self.fore,
            back_chan_attrs: CHANNEL,
            cb_program: 0x4000_0000,
            sec_parms: vec![CallbackSecParms4::None],
        };
        self.table.create_session(&args, self.minor_version, self.principal, &self.peer)
    }

    fn note(&mut self, departed: Option<Departed>) {
        if let Some(departed) = departed {
            self.departed.push(departed.client);
            self.actions.extend(departed.action);
        }
    }
}
