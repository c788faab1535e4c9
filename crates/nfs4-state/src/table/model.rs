//! Clients and sessions in random steps beside a model that is plain enough to be read: a retransmission gets the
//! answer of the first request, no request runs twice, and when all clients are gone nothing is left of them.
//!
//! `FOREBAY_TEST_MODEL_STEPS=1000000` plays so many steps, in release within seconds; a few are played each time.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::fixture::*;
use crate::{Principal, RequestFacts, SequenceVerdict, SessionLimits, SlotTicket};
use nfs4::{ClientId4, NfsStat4, Sequence4Args, SessionId4};
use testkit::dice::Dice;

const STEPS: u64 = 40_000;
const STEPS_PER_RUN: u64 = 400;
const OWNERS: [&str; 3] = ["one", "two", "three"];
const SLOTS: u32 = 3;
const KEPT_BYTES: usize = 512;
const SESSIONS_PER_CLIENT: usize = 3;
const BODIES: [&[u8]; 2] = [b"putrootfh", b"remove"];

#[derive(Debug)]
struct Client {
    owner: &'static str,
    verifier: u8,
    is_confirmed: bool,
    /// The last CREATE_SESSION that was answered, and what with.
    created: Option<(u32, SessionId4)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Running,
    /// And the reply, where it is kept.
    Done(Option<Bytes>),
}

/// The last request on a slot.
#[derive(Clone, Debug)]
struct Sent {
    sequence: u32,
    body: usize,
    uid: u32,
    fate: Fate,
}

#[derive(Default)]
struct Model {
    clients: BTreeMap<ClientId4, Client>,
    sessions: BTreeMap<SessionId4, (ClientId4, BTreeMap<u32, Sent>)>,
    /// That there were, to come back with.
    all_clients: Vec<ClientId4>,
    all_sessions: Vec<SessionId4>,
    running: Vec<(SlotTicket, u64)>,
}

impl Model {
    fn depart(&mut self, id: ClientId4) {
        self.clients.remove(&id);
        self.sessions.retain(|_, (client, _)| *client != id);
    }

    fn find(&self, owner: &str, is_confirmed: bool) -> Option<ClientId4> {
        let mut of_owner = self
            .clients
            .iter()
            .filter(|(_, known)| known.owner == owner && known.is_confirmed == is_confirmed);
        let found = of_owner.next().map(|(id, _)| *id);
        assert!(of_owner.next().is_none(), "one record of each kind");
        found
    }

    fn sessions_of(&self, id: ClientId4) -> usize {
        self.sessions.values().filter(|(client, _)| *client == id).count()
    }

    fn exchange(&mut self, fixture: &mut Fixture, dice: &mut Dice) {
        let (owner, verifier) = (dice.of(&OWNERS), 1 + dice.below(2) as u8);
        let reply = fixture.exchange_id(owner, verifier).unwrap();
        let known = self.find(owner, true).filter(|id| self.clients[id].verifier == verifier);
        if let Some(known) = known {
            let next = self.clients[&known].created.unwrap().0.wrapping_add(1);
            assert_eq!((reply.clientid, reply.sequenceid), (known, next), "its record is there");
            return;
        }
        if let Some(former) = self.find(owner, false) {
            self.depart(former);
        }
        assert!(!self.all_clients.contains(&reply.clientid), "no id comes twice");
        let client = Client { owner, verifier, is_confirmed: false, created: None };
        self.clients.insert(reply.clientid, client);
        self.all_clients.push(reply.clientid);
    }

    fn create_session(&mut self, fixture: &mut Fixture, dice: &mut Dice) {
        if self.all_clients.is_empty() {
            return;
        }
        let id = dice.of(&self.all_clients);
        let last = self.clients.get(&id).and_then(|client| client.created);
        let sequence = last.map_or(0, |(last, _)| last).wrapping_add_signed(dice.of(&[-1, 0, 0, 1, 1, 1, 2]));
        if last.is_some_and(|(last, _)| sequence == last.wrapping_add(1))
            && self.sessions_of(id) >= SESSIONS_PER_CLIENT
        {
            return;
        }
        let answer = fixture.create_session(id, sequence).map(|created| created.sessionid);
        let Some(client) = self.clients.get(&id) else {
            return assert_eq!(answer, Err(NfsStat4::StaleClientId));
        };
        match (last, answer) {
            (Some((last, session)), Ok(answer)) if sequence == last => {
                assert_eq!(answer, session, "sent again")
            }
            (last, Ok(session)) => {
                assert_eq!(sequence, last.map_or(0, |(last, _)| last).wrapping_add(1));
                assert!(!self.all_sessions.contains(&session), "no id comes twice");
                let owner = client.owner;
                if let Some(former) = self.find(owner, true).filter(|former| *former != id) {
                    self.depart(former);
                }
                let client = self.clients.get_mut(&id).unwrap();
                (client.is_confirmed, client.created) = (true, Some((sequence, session)));
                self.sessions.insert(session, (id, BTreeMap::new()));
                self.all_sessions.push(session);
            }
            (last, Err(status)) => {
                assert_eq!(status, NfsStat4::SeqMisordered);
                let last = last.map_or(0, |(last, _)| last);
                assert!(sequence != last.wrapping_add(1), "it was its turn");
            }
        }
    }

    fn send(&mut self, fixture: &mut Fixture, dice: &mut Dice) {
        if self.all_sessions.is_empty() {
            return;
        }
        // Mostly of the last ones, or all would be dead.
        let live: Vec<SessionId4> = self.sessions.keys().copied().collect();
        let session =
            if live.is_empty() || dice.below(16) == 0 { dice.of(&self.all_sessions) } else { dice.of(&live) };
        let slotid = dice.below(u64::from(SLOTS) + 1) as u32;
        let last = self.sessions.get(&session).and_then(|(_, slots)| slots.get(&slotid)).cloned();
        let before = last.as_ref().map_or(0, |sent| sent.sequence);
        let sequenceid = before.wrapping_add_signed(dice.of(&[-1, 0, 0, 1, 1, 1, 2]));
        let (body, uid, cachethis) = (dice.below(2) as usize, dice.below(2) as u32, dice.below(2) == 0);
        let args =
            Sequence4Args { sessionid: session, sequenceid, slotid, highest_slotid: slotid, cachethis };
        let facts = RequestFacts::new(200, 2, &Principal::sys(uid), BODIES[body]);
        let verdict = fixture.begin(&args, &facts);

        let Some((_, slots)) = self.sessions.get_mut(&session) else {
            return assert_eq!(verdict, SequenceVerdict::Refuse(NfsStat4::BadSession));
        };
        let is_running = last.as_ref().is_some_and(|sent| sent.fate == Fate::Running);
        let refusal = |status| SequenceVerdict::Refuse(status);
        match last {
            _ if slotid >= SLOTS => assert_eq!(verdict, refusal(NfsStat4::BadSlot)),
            Some(sent) if sequenceid == sent.sequence => match sent.fate {
                _ if (sent.body, sent.uid) != (body, uid) => {
                    assert_eq!(verdict, refusal(NfsStat4::SeqFalseRetry))
                }
                Fate::Running => assert_eq!(verdict, refusal(NfsStat4::Delay)),
                Fate::Done(Some(reply)) => assert_eq!(verdict, SequenceVerdict::Replay(reply)),
                Fate::Done(None) => assert!(matches!(verdict, SequenceVerdict::Uncached(_)), "{verdict:?}"),
            },
            _ if sequenceid == before.wrapping_add(1) && !is_running => {
                let SequenceVerdict::Execute(ticket) = verdict else { panic!("it is new: {verdict:?}") };
                assert_eq!(ticket.cache_this, cachethis);
                slots.insert(slotid, Sent { sequence: sequenceid, body, uid, fate: Fate::Running });
                self.running.push((ticket, dice.below(1000)));
            }
            _ => assert_eq!(verdict, refusal(NfsStat4::SeqMisordered)),
        }
    }

    fn finish(&mut self, fixture: &mut Fixture, dice: &mut Dice) {
        if self.running.is_empty() {
            return;
        }
        let at = dice.below(self.running.len() as u64) as usize;
        let (ticket, length) = self.running.swap_remove(at);
        let (session, slot, is_kept) = (ticket.session, ticket.result.slotid, ticket.cache_this);
        let max = ticket.reply_bytes_max;
        assert!(!is_kept || max == KEPT_BYTES, "the session's bound");
        let reply =
            Bytes::from(format!("{session:?} {slot} {:1$}", ticket.result.sequenceid, length as usize));
        fixture.table.finish(fixture.now, ticket, Some(reply.clone()));
        if let Some(sent) = self.sessions.get_mut(&session).and_then(|(_, slots)| slots.get_mut(&slot)) {
            assert_eq!(sent.fate, Fate::Running);
            sent.fate = Fate::Done(Some(reply).filter(|reply| is_kept && reply.len() <= max));
        }
    }

    fn destroy(&mut self, fixture: &mut Fixture, dice: &mut Dice) {
        if dice.below(3) > 0 {
            let Some(session) = (!self.all_sessions.is_empty()).then(|| dice.of(&self.all_sessions)) else {
                return;
            };
            let expected =
                if self.sessions.contains_key(&session) { Ok(()) } else { Err(NfsStat4::BadSession) };
            assert_eq!(fixture.destroy_session(session), expected);
            self.sessions.remove(&session);
            return;
        }
        let Some(id) = (!self.all_clients.is_empty()).then(|| dice.of(&self.all_clients)) else { return };
        let holds_state = dice.below(4) == 0;
        let answer = fixture.table.destroy_clientid(id, holds_state).map(|departed| departed.client);
        if !self.clients.contains_key(&id) {
            assert_eq!(answer, Err(NfsStat4::StaleClientId));
        } else if holds_state || self.sessions_of(id) > 0 {
            assert_eq!(answer, Err(NfsStat4::ClientIdBusy));
        } else {
            assert_eq!(answer, Ok(id));
            self.depart(id);
        }
    }

    /// Nobody says a word for longer than a lease: who has no request running is gone.
    fn silence(&mut self, fixture: &mut Fixture) {
        fixture.now += LEASE * 2;
        let mut departed: Vec<_> = fixture.expire().iter().map(|gone| gone.client).collect();
        let is_busy = |id: &ClientId4| {
            self.running
                .iter()
                .any(|(ticket, _)| self.sessions.get(&ticket.session).is_some_and(|(client, _)| client == id))
        };
        let silent: Vec<ClientId4> = self.clients.keys().copied().filter(|id| !is_busy(id)).collect();
        let mut expected: Vec<_> =
            silent.iter().copied().filter(|id| self.clients[id].is_confirmed).collect();
        departed.sort();
        expected.sort();
        assert_eq!(departed, expected);
        silent.into_iter().for_each(|id| self.depart(id));
    }
}

fn run(dice: &mut Dice) {
    // Slots that come and go have a test of their own.
    let mut fixture = Fixture::with_limits(SessionLimits { slots_max: SLOTS, ..SessionLimits::default() });
    fixture.fore.maxrequests = SLOTS;
    fixture.fore.maxresponsesize_cached = KEPT_BYTES as u32;
    let mut model = Model::default();
    for _ in 0..STEPS_PER_RUN {
        match dice.below(40) {
            0..3 => model.exchange(&mut fixture, dice),
            3..8 => model.create_session(&mut fixture, dice),
            8..26 => model.send(&mut fixture, dice),
            26..37 => model.finish(&mut fixture, dice),
            37..39 => model.destroy(&mut fixture, dice),
            _ if dice.below(8) == 0 => model.silence(&mut fixture),
            _ => {}
        }
        assert_eq!(fixture.table.sessions().count(), model.sessions.len());
        assert_eq!(fixture.table.clients().count(), model.clients.len());
    }
    while !model.running.is_empty() {
        model.finish(&mut fixture, dice);
    }
    model.silence(&mut fixture);
    let table = &fixture.table;
    assert!(
        table.clients().is_empty() && table.sessions().count() == 0,
        "clients that are gone left something"
    );
    assert_eq!(table.sessions().reply_cache_reserved(), 0);
}

#[test]
fn every_answer_is_the_models_no_request_runs_twice_and_nothing_outlives_its_client() {
    let steps =
        std::env::var("FOREBAY_TEST_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let mut dice = Dice::seeded(0x2545_f491_4f6c_dd1d);
    for _ in 0..steps / STEPS_PER_RUN {
        run(&mut dice);
    }
}
