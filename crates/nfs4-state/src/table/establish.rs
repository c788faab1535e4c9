//! Sessions come and go: CREATE_SESSION (RFC 8881 §18.36), DESTROY_SESSION (§18.37) and BIND_CONN_TO_SESSION (§18.34).
//!
//! CREATE_SESSION takes two steps, since confirming a restarted client ends its old state, and that must be on record
//! before the reply leaves: `create_session` judges, the shell does the actions, `commit_session` makes the session.
//! A retransmission in between gets DELAY.

use std::time::Duration;

use nfs4::{
    BindConnToSession4Args, BindConnToSession4ResOk, CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    CREATE_SESSION4_FLAG_CONN_RDMA, CREATE_SESSION4_FLAG_PERSIST, CallbackSecParms4, ChannelDirFromClient4,
    ChannelDirFromServer4, ClientId4, CreateSession4Args, CreateSession4ResOk, NfsStat4, SessionId4,
};

use super::SessionTable;
use super::records::{Action, Departed};
use crate::back_channel::BackChannel;
use crate::client::CreateTurn;
use crate::session::{Session, session_id};
use crate::{ConnectionId, Peer, Principal, channel};

const CREATE_FLAGS: u32 =
    CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN | CREATE_SESSION4_FLAG_CONN_RDMA;

/// The next step of a CREATE_SESSION.
#[derive(Debug)]
pub enum CreateStep {
    /// A retransmission: the reply of the first copy.
    Replay(Result<CreateSession4ResOk, NfsStat4>),
    /// Do `actions`, then [`SessionTable::commit_session`] or [`SessionTable::abandon_session`].
    Prepared(PendingSession),
}

/// A session that is about to be made.
#[derive(Debug)]
#[must_use = "a prepared session must be committed or abandoned"]
pub struct PendingSession {
    pub actions: Vec<Action>,
    client: ClientId4,
    args: CreateSession4Args,
    minor_version: u32,
    security: CallbackSecParms4,
    connection: ConnectionId,
}

/// A session that was made, and the former incarnation of its client, whose state is to be released.
#[derive(Debug, PartialEq, Eq)]
pub struct Started {
    pub reply: CreateSession4ResOk,
    pub departed: Option<Departed>,
}

impl SessionTable {
    pub fn create_session(
        &mut self,
        args: &CreateSession4Args,
        minor_version: u32,
        principal: Principal,
        peer: &Peer,
    ) -> Result<CreateStep, NfsStat4> {
        let client = self.records.clients.get_mut(args.clientid).ok_or(NfsStat4::StaleClientId)?;
        if let CreateTurn::Replay(reply) = client.create_slot.turn(args.sequence)? {
            return Ok(CreateStep::Replay(reply));
        }
        let judged = if !client.confirmed && client.principal != principal {
            Err(NfsStat4::ClidInUse)
        } else {
            check_create(args)
        };
        let security = judged.inspect_err(|status| client.create_slot.done(Err(*status)))?;
        client.create_slot.running = true;
        // The former incarnation's record stops to entitle to reclaims; the client itself gets its own with
        // RECLAIM_COMPLETE. Without a former one nothing is on record that must change.
        let (is_confirmed, owner) = (client.confirmed, client.owner().clone());
        let restarts = !is_confirmed && self.records.clients.confirmed_of(&owner).is_some();
        let put = || Action::PutRecord { owner, reclaim_complete: false };
        Ok(CreateStep::Prepared(PendingSession {
            actions: restarts.then(put).into_iter().collect(),
            client: args.clientid,
            args: args.clone(),
            minor_version,
            security,
            connection: peer.connection,
        }))
    }

    /// The actions are durable: makes the session and confirms its client.
    pub fn commit_session(&mut self, now: Duration, pending: PendingSession) -> Result<Started, NfsStat4> {
        let id = pending.client;
        let (limits, lease) = (&self.config.limits, self.config.lease);
        let client = self.records.clients.get(id).ok_or(NfsStat4::StaleClientId)?;
        let may_have_more = client.sessions.len() < limits.sessions_per_client_max;
        // A lapsed client must not keep others out; but none is evicted for a client that gets no session anyway.
        while may_have_more
            && self.records.affordable_slots(id, &pending.args, limits) == 0
            && self.records.evict(now, lease)
        {}
        let outcome = self.start_session(now, &pending);
        let client = self.records.clients.get_mut(id).expect("it was there a moment ago");
        client.create_slot.done(outcome.clone());
        let reply = outcome?;
        client.sessions.push(reply.sessionid);
        client.renew(now);
        let departed = self.records.confirm(id);
        Ok(Started { reply, departed })
    }

    /// The actions could not be made durable: the client may send the same request again.
    pub fn abandon_session(&mut self, pending: PendingSession) {
        if let Some(client) = self.records.clients.get_mut(pending.client) {
            client.create_slot.running = false;
        }
    }

    /// `in_session` is the session of the COMPOUND's SEQUENCE; `is_last` says that nothing follows in the COMPOUND.
    pub fn destroy_session(
        &mut self,
        id: SessionId4,
        connection: ConnectionId,
        in_session: Option<SessionId4>,
        is_last: bool,
    ) -> Result<(), NfsStat4> {
        if in_session == Some(id) && !is_last {
            return Err(NfsStat4::NotOnlyOp);
        }
        let session = self.records.sessions.get(id).ok_or(NfsStat4::BadSession)?;
        if !session.is_associated(connection) {
            return Err(NfsStat4::ConnNotBoundToSession);
        }
        let session = self.records.sessions.remove(id).expect("it was there a moment ago");
        if let Some(client) = self.records.clients.get_mut(session.client) {
            client.sessions.retain(|known| *known != id);
        }
        Ok(())
    }

    pub fn bind_conn_to_session(
        &mut self,
        now: Duration,
        args: &BindConnToSession4Args,
        peer: &Peer,
    ) -> Result<BindConnToSession4ResOk, NfsStat4> {
        let session = self.records.sessions.get_mut(args.sessid).ok_or(NfsStat4::BadSession)?;
        let dir = match args.dir {
            ChannelDirFromClient4::Fore => ChannelDirFromServer4::Fore,
            ChannelDirFromClient4::Back => ChannelDirFromServer4::Back,
            ChannelDirFromClient4::ForeOrBoth | ChannelDirFromClient4::BackOrBoth => {
                ChannelDirFromServer4::Both
            }
        };
        if dir != ChannelDirFromServer4::Fore {
            channel::check_back(&session.back.attrs).map_err(|_| NfsStat4::Inval)?;
            session.back.bind(peer.connection);
        }
        if dir != ChannelDirFromServer4::Back {
            session.associate(peer.connection);
        }
        if let Some(client) = self.records.clients.get_mut(session.client) {
            client.renew(now);
        }
        Ok(BindConnToSession4ResOk { sessid: args.sessid, dir, use_conn_in_rdma_mode: false })
    }

    fn start_session(
        &mut self,
        now: Duration,
        pending: &PendingSession,
    ) -> Result<CreateSession4ResOk, NfsStat4> {
        let (args, limits) = (&pending.args, &self.config.limits);
        let slots = self.records.affordable_slots(pending.client, args, limits);
        let client = self.records.clients.get_mut(pending.client).expect("the caller has looked");
        if client.sessions.len() >= limits.sessions_per_client_max {
            return Err(NfsStat4::NoSpc);
        }
        let asked = &args.fore_chan_attrs;
        if slots == 0 {
            return Err(NfsStat4::Delay);
        }
        let fore = channel::fore(asked, limits, slots);
        let back = channel::back(&args.back_chan_attrs);
        let connections_max = limits.connections_per_session_max;
        let back_channel = BackChannel::new(
            args.cb_program,
            pending.security.clone(),
            back,
            limits.callback_slots_max,
            connections_max,
        );
        let mut session =
            Session::new(client.id, pending.minor_version, fore, back_channel, connections_max, now);
        session.associate(pending.connection);
        let mut flags = 0;
        if args.flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0 {
            session.back.bind(pending.connection);
            flags |= CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        }
        client.sessions_made = client.sessions_made.wrapping_add(1);
        let instance = (self.config.instance >> 32) as u32;
        let sessionid = session_id(client.id, client.sessions_made, instance);
        self.records.sessions.insert(sessionid, session);
        Ok(CreateSession4ResOk {
            sessionid,
            sequence: args.sequence,
            flags,
            fore_chan_attrs: fore,
            back_chan_attrs: back,
        })
    }
}

fn check_create(args: &CreateSession4Args) -> Result<CallbackSecParms4, NfsStat4> {
    if args.flags & !CREATE_FLAGS != 0 {
        return Err(NfsStat4::Inval);
    }
    channel::check_fore(&args.fore_chan_attrs)?;
    // Also without CONN_BACK_CHAN: a connection may be bound to the back channel later.
    channel::check_back(&args.back_chan_attrs)?;
    channel::callback_security(&args.sec_parms)
}

#[cfg(test)]
mod tests {
    use nfs4::ChannelAttrs4;

    use super::super::fixture::{CHANNEL, Fixture, peer};
    use super::*;
    use crate::SessionLimits;

    #[test]
    fn a_session_confirms_its_client_and_grants_what_linux_needs() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        let reply = server.create_session(client, 1).unwrap();
        assert!(server.table.clients().is_confirmed(client));
        assert_eq!(reply.sequence, 1);
        assert_eq!(reply.flags, CREATE_SESSION4_FLAG_CONN_BACK_CHAN);
        assert!(reply.fore_chan_attrs.maxoperations >= 8);
        assert_eq!(reply.back_chan_attrs, CHANNEL);
        assert!(server.actions.is_empty(), "a first mount writes nothing");
    }

    #[test]
    fn a_retransmitted_create_session_gets_the_same_reply() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        let first = server.create_session(client, 1).unwrap();
        assert_eq!(server.create_session(client, 1).unwrap(), first);
        assert_eq!(server.table.sessions().count(), 1);
        assert_eq!(server.create_session(client, 3), Err(NfsStat4::SeqMisordered));
        assert_eq!(server.create_session(client, 0), Err(NfsStat4::SeqMisordered));
        assert_ne!(server.create_session(client, 2).unwrap().sessionid, first.sessionid);
    }

    #[test]
    fn an_error_is_kept_and_repeated_too() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        server.flags = 0x10;
        assert_eq!(server.create_session(client, 1), Err(NfsStat4::Inval));
        server.flags = 0;
        assert_eq!(server.create_session(client, 1), Err(NfsStat4::Inval));
        server.create_session(client, 2).unwrap();
    }

    #[test]
    fn a_retransmission_while_the_record_is_written_is_told_to_wait() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        let pending = server.prepare_session(client, 1).unwrap();
        assert_eq!(server.create_session(client, 1), Err(NfsStat4::Delay));
        server.table.abandon_session(pending);
        server.create_session(client, 1).expect("the same request again");
    }

    #[test]
    fn a_client_that_vanished_while_the_record_was_written_is_stale() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        let pending = server.prepare_session(client, 1).unwrap();
        server.exchange_id("a", 1).unwrap();
        assert_eq!(server.table.commit_session(server.now, pending), Err(NfsStat4::StaleClientId));
    }

    #[test]
    fn another_principal_cannot_confirm_a_client() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        server.principal = Principal::sys(7);
        assert_eq!(server.create_session(client, 1), Err(NfsStat4::ClidInUse));
    }

    #[test]
    fn sessions_of_a_client_are_bounded() {
        let mut server =
            Fixture::with_limits(SessionLimits { sessions_per_client_max: 2, ..Default::default() });
        let client = server.exchange_id("a", 1).unwrap().clientid;
        server.create_session(client, 1).unwrap();
        server.create_session(client, 2).unwrap();
        assert_eq!(server.create_session(client, 3), Err(NfsStat4::NoSpc));
    }

    #[test]
    fn the_reply_cache_of_all_sessions_is_bounded() {
        let bytes = u64::from(CHANNEL.maxresponsesize_cached) * 24;
        let limits = SessionLimits { reply_cache_bytes_max: bytes, ..SessionLimits::default() };
        let mut server = Fixture::with_limits(limits);
        let client = server.exchange_id("a", 1).unwrap().clientid;
        let slots = |reply: CreateSession4ResOk| reply.fore_chan_attrs.maxrequests;
        let first = server.create_session(client, 1).unwrap();
        assert_eq!(slots(first.clone()), 16);
        assert_eq!(slots(server.create_session(client, 2).unwrap()), 5, "an eighth is for other addresses");
        assert_eq!(server.create_session(client, 3), Err(NfsStat4::Delay));
        server.destroy_session(first.sessionid).unwrap();
        assert_eq!(slots(server.create_session(client, 3).unwrap()), 16, "DELAY has not used the number");
    }

    #[test]
    fn a_channel_too_small_is_refused() {
        let mut server = Fixture::new();
        let client = server.exchange_id("a", 1).unwrap().clientid;
        server.fore = ChannelAttrs4 { maxrequestsize: 10, ..CHANNEL };
        assert_eq!(server.create_session(client, 1), Err(NfsStat4::TooSmall));
    }

    #[test]
    fn a_session_is_destroyed_by_the_last_operation_of_its_own_compound() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        let connection = server.peer.connection;
        let destroy = |server: &mut Fixture, is_last| {
            server.table.destroy_session(session, connection, Some(session), is_last)
        };
        assert_eq!(destroy(&mut server, false), Err(NfsStat4::NotOnlyOp));
        assert_eq!(destroy(&mut server, true), Ok(()));
        assert_eq!(destroy(&mut server, true), Err(NfsStat4::BadSession));
    }

    #[test]
    fn only_an_associated_connection_destroys_a_session() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        let stranger = ConnectionId(77);
        let refused = server.table.destroy_session(session, stranger, None, true);
        assert_eq!(refused, Err(NfsStat4::ConnNotBoundToSession));
        server.peer = peer(77);
        server.sequence(session, 0, 1).expect("with SP4_NONE a SEQUENCE associates");
        assert_eq!(server.table.destroy_session(session, stranger, None, true), Ok(()));
    }

    #[test]
    fn a_connection_can_be_bound_to_either_channel_or_both() {
        use ChannelDirFromClient4 as Asked;
        use ChannelDirFromServer4 as Got;
        let mut server = Fixture::new();
        let (_, sessid) = server.mount("a");
        for (asked, got) in [
            (Asked::Fore, Got::Fore),
            (Asked::Back, Got::Back),
            (Asked::ForeOrBoth, Got::Both),
            (Asked::BackOrBoth, Got::Both),
        ] {
            let args = BindConnToSession4Args { sessid, dir: asked, use_conn_in_rdma_mode: true };
            let reply = server.table.bind_conn_to_session(server.now, &args, &peer(5)).unwrap();
            assert_eq!((reply.dir, reply.use_conn_in_rdma_mode), (got, false));
        }
        let unknown = BindConnToSession4Args {
            sessid: SessionId4([9; 16]),
            dir: Asked::Fore,
            use_conn_in_rdma_mode: false,
        };
        let refused = server.table.bind_conn_to_session(server.now, &unknown, &peer(5));
        assert_eq!(refused, Err(NfsStat4::BadSession));
    }
}
