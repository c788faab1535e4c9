//! SEQUENCE (RFC 8881 §18.46): one request's way through its slot.

use std::time::Duration;

use bytes::Bytes;
use nfs4::{
    ClientId4, NfsStat4, SEQ4_STATUS_BACKCHANNEL_FAULT, SEQ4_STATUS_CB_PATH_DOWN,
    SEQ4_STATUS_CB_PATH_DOWN_SESSION, Sequence4Args, Sequence4ResOk, SessionId4,
};

use super::SessionTable;
use super::records::Records;
use crate::client::Client;
use crate::session::Session;
use crate::slot::{SlotRequest, SlotVerdict};
use crate::{Peer, RequestFacts};

/// The verdict on a COMPOUND that starts with SEQUENCE.
#[derive(Debug, PartialEq, Eq)]
pub enum SequenceVerdict {
    /// Run it, then [`SessionTable::finish`].
    Execute(SlotTicket),
    /// Send this again: the encoded COMPOUND4res of the first copy.
    Replay(Bytes),
    /// It ran and its reply was not kept: answer SEQUENCE with this, and RETRY_UNCACHED_REP for what follows.
    Uncached(Sequence4ResOk),
    /// Answer SEQUENCE with this error, which has used nothing up.
    Refuse(NfsStat4),
}

/// The right and duty of the one copy of a request that runs.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slot is busy until its ticket is given back"]
pub struct SlotTicket {
    pub client: ClientId4,
    pub session: SessionId4,
    /// SEQUENCE's own result.
    pub result: Sequence4ResOk,
    /// The reply will be kept.
    pub cache_this: bool,
    /// Most bytes of the reply with its RPC header (RFC 8881 §18.36.3); beyond it REP_TOO_BIG, or
    /// REP_TOO_BIG_TO_CACHE where the reply is to be kept.
    pub reply_bytes_max: usize,
}

/// The shortest reply there is: RPC header, COMPOUND4res without a tag, and SEQUENCE's result.
const SEQUENCE_REPLY_BYTES: u32 = 24 + 12 + 8 + 36;

impl SlotTicket {
    /// The error of an operation whose result does not fit.
    pub fn too_big(&self) -> NfsStat4 {
        if self.cache_this { NfsStat4::RepTooBigToCache } else { NfsStat4::RepTooBig }
    }
}

impl SessionTable {
    /// Renews the lease, associates the connection, and judges the request.
    pub fn begin(
        &mut self,
        now: Duration,
        args: &Sequence4Args,
        facts: &RequestFacts,
        peer: &Peer,
    ) -> SequenceVerdict {
        let Records { clients, sessions, .. } = &mut self.records;
        let Some(session) = sessions.get_mut(args.sessionid) else {
            return SequenceVerdict::Refuse(NfsStat4::BadSession);
        };
        if facts.operations > session.fore.maxoperations {
            return SequenceVerdict::Refuse(NfsStat4::TooManyOps);
        }
        if facts.bytes > session.fore.maxrequestsize as usize {
            return SequenceVerdict::Refuse(NfsStat4::ReqTooBig);
        }
        if args.cachethis && session.fore.maxresponsesize_cached < SEQUENCE_REPLY_BYTES {
            return SequenceVerdict::Refuse(NfsStat4::RepTooBigToCache);
        }
        let reserved = session.reply_cache_bytes();
        let verdict = session.slots.begin(&SlotRequest {
            slot: args.slotid,
            sequence: args.sequenceid,
            highest_slot: args.highest_slotid,
            digest: facts.digest,
        });
        session.associate(peer.connection);
        let id = session.client;
        let given_back = reserved - session.reply_cache_bytes();
        let uses_all = verdict == SlotVerdict::Execute && session.slots.is_last(args.slotid);
        sessions.give_back(given_back);
        if uses_all {
            sessions.offer_slots(args.sessionid, &self.config.limits);
        }
        clients.get_mut(id).expect("a session belongs to a client").renew(now);
        let client = self.records.clients.get(id).expect("it was there a moment ago");
        let session = self.records.sessions.get(args.sessionid).expect("it was there a moment ago");
        match verdict {
            SlotVerdict::Refuse(status) => SequenceVerdict::Refuse(status),
            SlotVerdict::Replay(reply) => SequenceVerdict::Replay(reply),
            SlotVerdict::Uncached => {
                SequenceVerdict::Uncached(self.records.sequence_result(args, client, session))
            }
            SlotVerdict::Execute => {
                SequenceVerdict::Execute(self.records.ticket(args, facts, client, session))
            }
        }
    }

    /// The request is done. `reply` is its encoded COMPOUND4res, kept if the client asked for it. A session destroyed
    /// meanwhile needs nothing.
    pub fn finish(&mut self, now: Duration, ticket: SlotTicket, reply: Option<Bytes>) {
        let Some(session) = self.records.sessions.get_mut(ticket.session) else { return };
        let kept = reply.filter(|reply| ticket.cache_this && reply.len() <= ticket.reply_bytes_max);
        session.slots.finish(ticket.result.slotid, ticket.result.sequenceid, kept);
        if let Some(client) = self.records.clients.get_mut(session.client) {
            client.renew(now);
        }
    }
}

impl Records {
    fn ticket(
        &self,
        args: &Sequence4Args,
        facts: &RequestFacts,
        client: &Client,
        session: &Session,
    ) -> SlotTicket {
        let fore = &session.fore;
        // A SEQUENCE alone is kept unasked: its reply is short, and clients probe slots with it.
        let alone = facts.operations == 1;
        let reply_bytes_max =
            if args.cachethis && !alone { fore.maxresponsesize_cached } else { fore.maxresponsesize };
        SlotTicket {
            client: client.id,
            session: args.sessionid,
            result: self.sequence_result(args, client, session),
            cache_this: args.cachethis || alone,
            reply_bytes_max: reply_bytes_max as usize,
        }
    }

    fn sequence_result(&self, args: &Sequence4Args, client: &Client, session: &Session) -> Sequence4ResOk {
        Sequence4ResOk {
            sessionid: args.sessionid,
            sequenceid: args.sequenceid,
            slotid: args.slotid,
            // Not below what the client has named (RFC 8881 §18.46.3).
            highest_slotid: (session.slots.len() - 1).max(args.highest_slotid),
            target_highest_slotid: session.slots.target() - 1,
            status_flags: client.status_flags | self.back_channel_flags(client, session),
        }
    }

    /// RESTART_RECLAIM_NEEDED is never among the flags: sessions do not survive a restart here, so a client learns of
    /// it by BADSESSION and STALE_CLIENTID.
    fn back_channel_flags(&self, client: &Client, session: &Session) -> u32 {
        if session.back.is_at_fault() {
            return SEQ4_STATUS_BACKCHANNEL_FAULT;
        }
        if !session.back.is_down() {
            return 0;
        }
        let another = self.sessions.of(&client.sessions).any(|session| session.back.is_up());
        let whole_client = if another { 0 } else { SEQ4_STATUS_CB_PATH_DOWN };
        SEQ4_STATUS_CB_PATH_DOWN_SESSION | whole_client
    }
}

#[cfg(test)]
mod tests {
    use nfs4::{ChannelAttrs4, SEQ4_STATUS_RECALLABLE_STATE_REVOKED};

    use super::super::fixture::{CHANNEL, Fixture, facts, peer, sequence_args};
    use super::*;
    use crate::Principal;

    #[test]
    fn a_request_runs_once_and_its_reply_is_repeated() {
        let mut server = Fixture::new();
        let (client, session) = server.mount("a");
        let args = Sequence4Args { cachethis: true, ..sequence_args(session, 3, 1) };
        let SequenceVerdict::Execute(ticket) = server.begin(&args, &facts()) else { panic!("it is new") };
        assert_eq!((ticket.client, ticket.result.slotid, ticket.result.sequenceid), (client, 3, 1));
        assert_eq!((ticket.result.highest_slotid, ticket.result.target_highest_slotid), (15, 15));
        assert_eq!(server.begin(&args, &facts()), SequenceVerdict::Refuse(NfsStat4::Delay));
        server.table.finish(server.now, ticket, Some(Bytes::from_static(b"reply")));
        assert_eq!(server.begin(&args, &facts()), SequenceVerdict::Replay(Bytes::from_static(b"reply")));
    }

    #[test]
    fn a_reply_is_kept_only_where_asked() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        let args = sequence_args(session, 0, 1);
        let SequenceVerdict::Execute(ticket) = server.begin(&args, &facts()) else { panic!("it is new") };
        assert_eq!(ticket.reply_bytes_max, CHANNEL.maxresponsesize as usize);
        assert_eq!(ticket.too_big(), NfsStat4::RepTooBig);
        let result = ticket.result;
        server.table.finish(server.now, ticket, Some(Bytes::from_static(b"reply")));
        assert_eq!(server.begin(&args, &facts()), SequenceVerdict::Uncached(result));
    }

    #[test]
    fn a_reply_that_can_never_be_kept_is_refused_before_anything_runs() {
        let mut server = Fixture::new();
        server.fore = ChannelAttrs4 { maxresponsesize_cached: 10, ..CHANNEL };
        let (_, session) = server.mount("a");
        let args = Sequence4Args { cachethis: true, ..sequence_args(session, 0, 1) };
        assert_eq!(server.begin(&args, &facts()), SequenceVerdict::Refuse(NfsStat4::RepTooBigToCache));
        // The number was not used up.
        let args = sequence_args(session, 0, 1);
        assert!(matches!(server.begin(&args, &facts()), SequenceVerdict::Execute(_)));
    }

    #[test]
    fn a_kept_reply_has_the_smaller_bound() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        let args = Sequence4Args { cachethis: true, ..sequence_args(session, 0, 1) };
        let SequenceVerdict::Execute(ticket) = server.begin(&args, &facts()) else { panic!("it is new") };
        assert_eq!(ticket.reply_bytes_max, CHANNEL.maxresponsesize_cached as usize);
        assert_eq!(ticket.too_big(), NfsStat4::RepTooBigToCache);
        let result = ticket.result;
        let too_long = Bytes::from(vec![0; CHANNEL.maxresponsesize_cached as usize + 1]);
        server.table.finish(server.now, ticket, Some(too_long));
        assert_eq!(server.begin(&args, &facts()), SequenceVerdict::Uncached(result));
    }

    #[test]
    fn a_sequence_alone_is_kept_unasked() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        let alone = RequestFacts::new(100, 1, &Principal::sys(0), b"");
        let args = sequence_args(session, 0, 1);
        let SequenceVerdict::Execute(ticket) = server.begin(&args, &alone) else { panic!("it is new") };
        server.table.finish(server.now, ticket, Some(Bytes::from_static(b"reply")));
        assert_eq!(server.begin(&args, &alone), SequenceVerdict::Replay(Bytes::from_static(b"reply")));
    }

    #[test]
    fn requests_beyond_the_channel_are_refused_and_use_nothing_up() {
        let mut server = Fixture::new();
        server.fore = ChannelAttrs4 { maxrequestsize: 512, maxoperations: 8, ..CHANNEL };
        let (_, session) = server.mount("a");
        let args = sequence_args(session, 0, 1);
        let big = RequestFacts::new(513, 2, &Principal::sys(0), b"");
        let many = RequestFacts::new(100, 9, &Principal::sys(0), b"");
        assert_eq!(server.begin(&args, &big), SequenceVerdict::Refuse(NfsStat4::ReqTooBig));
        assert_eq!(server.begin(&args, &many), SequenceVerdict::Refuse(NfsStat4::TooManyOps));
        assert!(matches!(server.begin(&args, &facts()), SequenceVerdict::Execute(_)));
    }

    #[test]
    fn a_session_destroyed_under_a_request_takes_its_reply_quietly() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        let SequenceVerdict::Execute(ticket) = server.begin(&sequence_args(session, 0, 1), &facts()) else {
            panic!("it is new")
        };
        server.destroy_session(session).unwrap();
        server.table.finish(server.now, ticket, None);
        assert_eq!(server.sequence(session, 0, 2), Err(NfsStat4::BadSession));
    }

    #[test]
    fn the_client_is_told_that_its_back_channel_is_gone_until_it_binds_another() {
        let mut server = Fixture::new();
        let (_, session) = server.mount("a");
        assert_eq!(server.sequence(session, 0, 1).unwrap().status_flags, 0);
        server.table.sessions_mut().connection_closed(server.peer.connection);
        server.peer = peer(2);
        let flags = server.sequence(session, 0, 2).unwrap().status_flags;
        assert_eq!(flags, SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION);
        server.bind_back(session);
        assert_eq!(server.sequence(session, 0, 3).unwrap().status_flags, 0);
    }

    #[test]
    fn a_client_that_wanted_no_back_channel_is_not_told_that_it_is_down() {
        let mut server = Fixture::new();
        server.back_channel = false;
        let (_, session) = server.mount("a");
        assert_eq!(server.sequence(session, 0, 1).unwrap().status_flags, 0);
    }

    #[test]
    fn raised_flags_stay_until_they_are_lowered() {
        let mut server = Fixture::new();
        let (client, session) = server.mount("a");
        server.table.clients_mut().raise_status(client, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
        for sequence in 1..3 {
            let flags = server.sequence(session, 0, sequence).unwrap().status_flags;
            assert_eq!(flags, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
        }
        server.table.clients_mut().lower_status(client, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
        assert_eq!(server.sequence(session, 0, 3).unwrap().status_flags, 0);
    }
}
