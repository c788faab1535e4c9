//! The client against a server of a few lines, without a socket.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use nfs4::{Access4ResOk, Bitmap4};
use nfs4::{
    ChangeInfo4, Close4ResOk, Compound4Args, Compound4Res, Create4ResOk, CreateHow4, CreateSession4ResOk,
    DirEntry4, ExchangeId4ResOk, Fattr4, GetAttr4ResOk, GetFh4ResOk, Open4ResOk, OpenClaim4, OpenDelegation4,
    OpenFlag4, ReadDir4ResOk, Remove4ResOk, Sequence4ResOk, ServerOwner4, StateId4, StateProtect4R, op,
};
use oncrpc::{CallHeader, RecordReader, ReplyHeader};
use xdr::{Decoder, Encoder, Xdr};

use super::super::creators::Limit;
use super::super::{How, Op};
use super::*;

/// Knows names and opens, checks sequence ids; file handles are paths.
#[derive(Default)]
struct Server {
    slots_max: u32,
    next: BTreeMap<u32, u32>,
    names: BTreeSet<String>,
    opens: BTreeSet<[u8; 12]>,
    /// Verifiers of exclusive creates.
    verifiers: BTreeSet<[u8; 8]>,
    /// OPEN of this name fails.
    refused: Option<String>,
    /// So many OPENs and CLOSEs are answered DELAY.
    delays: u32,
    sessions: u32,
    clients: u32,
    current: String,
    /// Names in one reply to READDIR.
    page: usize,
}

impl Server {
    fn new(slots_max: u32) -> Server {
        Server { slots_max, names: BTreeSet::from(["/".to_owned()]), ..Server::default() }
    }

    fn answer(&mut self, call: Bytes) -> Bytes {
        let mut d = Decoder::new(call);
        let header = CallHeader::decode(&mut d).unwrap();
        let compound = Compound4Args::decode(&mut d).unwrap();
        let (mut status, mut resarray) = (NfsStat4::Ok, Vec::new());
        for operation in compound.argarray {
            resarray.push(self.perform(operation));
            status = resarray.last().map_or(NfsStat4::Ok, NfsResop4::status);
            if status != NfsStat4::Ok {
                break;
            }
        }
        let mut e = Encoder::new();
        ReplyHeader::success(header.xid).encode(&mut e);
        Compound4Res { status, tag: Opaque::new(), resarray }.encode(&mut e);
        e.into_bytes()
    }

    fn perform(&mut self, operation: NfsArgop4) -> NfsResop4 {
        let cinfo = ChangeInfo4::default();
        let may_be_delayed = match operation {
            NfsArgop4::Open(_) => Some(op::OPEN),
            NfsArgop4::Close(_) => Some(op::CLOSE),
            _ => None,
        };
        if let Some(operation) = may_be_delayed.filter(|_| self.delays > 0) {
            self.delays -= 1;
            return NfsResop4::error(operation, NfsStat4::Delay);
        }
        match operation {
            NfsArgop4::ExchangeId(_) => {
                self.clients += 1;
                NfsResop4::ExchangeId(Res::Ok(exchanged()))
            }
            NfsArgop4::CreateSession(args) => {
                self.sessions += 1;
                let maxrequests = args.fore_chan_attrs.maxrequests.min(self.slots_max);
                NfsResop4::CreateSession(Res::Ok(CreateSession4ResOk {
                    sessionid: SessionId4([5; 16]),
                    sequence: args.sequence,
                    flags: 0,
                    fore_chan_attrs: ChannelAttrs4 { maxrequests, ..args.fore_chan_attrs },
                    back_chan_attrs: args.back_chan_attrs,
                }))
            }
            NfsArgop4::DestroySession(_) => {
                self.sessions -= 1;
                NfsResop4::DestroySession(NfsStat4::Ok)
            }
            NfsArgop4::DestroyClientId(_) => {
                self.clients -= 1;
                NfsResop4::DestroyClientId(NfsStat4::Ok)
            }
            NfsArgop4::Sequence(args) => self.sequence(args),
            NfsArgop4::ReclaimComplete(_) => NfsResop4::ReclaimComplete(NfsStat4::Ok),
            NfsArgop4::PutRootFh => {
                self.current = "/".to_owned();
                NfsResop4::PutRootFh(NfsStat4::Ok)
            }
            NfsArgop4::PutFh(args) => {
                self.current = String::from_utf8(args.object.as_bytes().to_vec()).unwrap();
                NfsResop4::PutFh(NfsStat4::Ok)
            }
            NfsArgop4::Lookup(args) => {
                let path = self.path(&args.objname);
                if !self.names.contains(&path) {
                    return NfsResop4::Lookup(NfsStat4::NoEnt);
                }
                self.current = path;
                NfsResop4::Lookup(NfsStat4::Ok)
            }
            NfsArgop4::Create(args) => {
                self.current = self.path(&args.objname);
                assert!(self.names.insert(self.current.clone()), "{} is made twice", self.current);
                NfsResop4::Create(Res::Ok(Create4ResOk { cinfo, attrset: Bitmap4::EMPTY }))
            }
            NfsArgop4::Open(args) => self.open(args),
            NfsArgop4::Close(args) => {
                assert!(self.opens.remove(&args.open_stateid.other), "closed twice");
                NfsResop4::Close(Res::Ok(Close4ResOk { open_stateid: args.open_stateid }))
            }
            NfsArgop4::ReadDir(args) => self.read_directory(args.cookie),
            NfsArgop4::Remove(args) => {
                assert!(self.names.remove(&self.path(&args.target)), "removed twice");
                NfsResop4::Remove(Res::Ok(Remove4ResOk { cinfo }))
            }
            NfsArgop4::GetFh => {
                let object = NfsFh4::from(self.current.clone().into_bytes());
                NfsResop4::GetFh(Res::Ok(GetFh4ResOk { object }))
            }
            NfsArgop4::GetAttr(_) => {
                NfsResop4::GetAttr(Res::Ok(GetAttr4ResOk { obj_attributes: Fattr4::default() }))
            }
            NfsArgop4::Access(args) => {
                NfsResop4::Access(Res::Ok(Access4ResOk { supported: args.access, access: args.access }))
            }
            other => panic!("{other:?} was not expected"),
        }
    }

    fn sequence(&mut self, args: Sequence4Args) -> NfsResop4 {
        let next = self.next.entry(args.slotid).or_insert(1);
        if *next != args.sequenceid
            || args.slotid > args.highest_slotid
            || args.highest_slotid >= self.slots_max
        {
            return NfsResop4::error(op::SEQUENCE, NfsStat4::SeqMisordered);
        }
        *next += 1;
        NfsResop4::Sequence(Res::Ok(Sequence4ResOk {
            sessionid: args.sessionid,
            sequenceid: args.sequenceid,
            slotid: args.slotid,
            highest_slotid: args.highest_slotid,
            target_highest_slotid: self.slots_max - 1,
            status_flags: 0,
        }))
    }

    fn read_directory(&self, cookie: u64) -> NfsResop4 {
        let within = format!("{}/", self.current);
        let names = self.names.iter().filter_map(|path| path.strip_prefix(&within));
        let mut left = names.enumerate().skip(cookie as usize);
        let entry = |(at, name): (usize, &str)| DirEntry4 {
            cookie: at as u64 + 1,
            name: Component4::from(name),
            attrs: Fattr4::default(),
        };
        let entries = left.by_ref().take(self.page).map(entry).collect();
        let eof = left.next().is_none();
        NfsResop4::ReadDir(Res::Ok(ReadDir4ResOk { cookieverf: Verifier4::default(), entries, eof }))
    }

    fn open(&mut self, args: nfs4::Open4Args) -> NfsResop4 {
        let OpenClaim4::Null(name) = &args.claim else { panic!("{:?}", args.claim) };
        let path = self.path(name);
        if self.refused.as_ref().is_some_and(|refused| path.ends_with(refused)) {
            return NfsResop4::error(op::OPEN, NfsStat4::NoSpc);
        }
        if let OpenFlag4::Create(CreateHow4::Exclusive41(with)) = &args.openhow {
            assert!(self.verifiers.insert(with.verf.0), "a verifier is used twice");
        }
        assert!(self.names.insert(path.clone()), "{path} is made twice");
        self.current = path;
        let mut other = [0; 12];
        other[..8].copy_from_slice(&(self.names.len() as u64).to_be_bytes());
        self.opens.insert(other);
        NfsResop4::Open(Res::Ok(Open4ResOk {
            stateid: StateId4 { seqid: 1, other },
            cinfo: ChangeInfo4::default(),
            rflags: 0,
            attrset: Bitmap4::EMPTY,
            delegation: OpenDelegation4::None,
        }))
    }

    fn path(&self, name: &Component4) -> String {
        format!("{}/{}", self.current.trim_end_matches('/'), String::from_utf8_lossy(name.as_bytes()))
    }
}

fn exchanged() -> ExchangeId4ResOk {
    ExchangeId4ResOk {
        clientid: ClientId4(9),
        sequenceid: 1,
        flags: 0,
        state_protect: StateProtect4R::None,
        server_owner: ServerOwner4 { minor_id: 0, major_id: Opaque::new() },
        server_scope: Opaque::new(),
        server_impl_id: None,
    }
}

fn plan(creators: u32, limit: Limit) -> Plan {
    Plan {
        creators,
        directories: Directories::Shared,
        limit,
        op: Op::Create,
        how: How::Exclusive,
        path: vec!["a".to_owned(), "b".to_owned()],
        nonce: 0xabc,
        uid: 0,
        gid: 0,
        waits: false,
        is_counted: false,
    }
}

/// Each exchange takes a millisecond. Says what was found, and how many calls were under way at once at most.
fn run(plan: Plan, server: &mut Server) -> (Result<(u32, Measured)>, usize) {
    let mut client = Client::new(plan);
    let mut records = RecordReader::new(1 << 20, 1);
    let (mut now, mut at_once) = (Duration::ZERO, 0);
    client.start();
    while !client.is_done() {
        client.wake(now);
        let mut sent = BytesMut::from(&client.calls()[..]);
        if sent.is_empty() {
            now = client.next_due().expect("the client waits for nothing");
            continue;
        }
        let mut replies = Vec::new();
        while let Some(call) = records.feed(&mut sent).unwrap() {
            replies.push(server.answer(call));
        }
        at_once = at_once.max(replies.len());
        assert_eq!(client.under_way() as usize, replies.len());
        now += Duration::from_millis(1);
        // A server need not answer in order.
        for reply in replies.into_iter().rev() {
            if let Err(error) = client.reply(reply, now) {
                return (Err(error), at_once);
            }
        }
    }
    (client.into_measured().context("nothing was measured"), at_once)
}

fn files(server: &Server) -> usize {
    server.names.iter().filter(|name| name.matches('/').count() > 3).count()
}

#[test]
fn each_creator_has_one_call_under_way_and_all_is_closed_at_the_end() {
    let mut server = Server::new(64);
    let (outcome, at_once) = run(plan(8, Limit::Count(100)), &mut server);
    let (slots, measured) = outcome.unwrap();
    assert_eq!((slots, at_once, measured.latencies.len(), files(&server)), (8, 8, 100, 100));
    assert!(measured.errors.is_empty() && server.opens.is_empty());
    assert_eq!((server.sessions, server.clients), (0, 0));
    assert!(server.names.contains("/a/b/load-abc/7-1"), "{:?}", server.names);
}

#[test]
fn a_create_lasts_from_open_to_the_reply_to_close() {
    let (outcome, _) = run(plan(4, Limit::Count(40)), &mut Server::new(64));
    let measured = outcome.unwrap().1;
    assert_eq!(
        (measured.first_reply, measured.elapsed),
        (Duration::from_millis(40), Duration::from_millis(20))
    );
    assert_eq!(measured.latencies.summary().p50_us, 2000);
}

#[test]
fn no_create_begins_after_the_time_and_those_begun_are_ended() {
    let mut server = Server::new(64);
    let (outcome, _) = run(plan(4, Limit::Time(Duration::from_millis(9))), &mut server);
    let measured = outcome.unwrap().1;
    assert_eq!((measured.elapsed, measured.latencies.len()), (Duration::from_millis(10), 20));
    assert!(server.opens.is_empty());
}

#[test]
fn fewer_slots_are_fewer_creators() {
    let (outcome, at_once) = run(plan(8, Limit::Count(30)), &mut Server::new(3));
    assert_eq!((outcome.unwrap().0, at_once), (3, 3));
}

#[test]
fn more_creators_than_creates_is_no_reason_to_wait() {
    for count in [0, 2] {
        let (outcome, _) = run(plan(8, Limit::Count(count)), &mut Server::new(64));
        assert_eq!(outcome.unwrap().1.latencies.len() as u64, count);
    }
}

#[test]
fn each_has_its_own_directory_when_asked() {
    let mut server = Server::new(64);
    let own = Plan { directories: Directories::Own, ..plan(3, Limit::Count(9)) };
    assert_eq!(run(own, &mut server).0.unwrap().1.latencies.len(), 9);
    for creator in 0..3 {
        assert!(server.names.contains(&format!("/a/b/load-abc/creator-{creator}/{creator}-3")));
    }
}

#[test]
fn directories_are_made_and_files_are_removed_when_asked() {
    let mut server = Server::new(64);
    let made = run(Plan { op: Op::Mkdir, ..plan(2, Limit::Count(10)) }, &mut server).0.unwrap().1;
    assert_eq!((made.latencies.len(), files(&server)), (10, 10));
    let mut server = Server::new(64);
    let removed = run(Plan { op: Op::CreateRemove, ..plan(2, Limit::Count(10)) }, &mut server).0.unwrap().1;
    assert_eq!((removed.latencies.len(), files(&server)), (10, 0));
}

#[test]
fn a_waiting_client_begins_when_told_and_counts_its_names_in_the_end() {
    let mut server = Server { page: 7, refused: Some("/1-3".to_owned()), ..Server::new(64) };
    let waiting = Plan { waits: true, is_counted: true, ..plan(2, Limit::Count(20)) };
    let mut client = Client::new(waiting);
    let mut records = RecordReader::new(1 << 20, 1);
    client.start();
    let mut rounds = 0;
    while !client.is_done() {
        if client.is_ready() {
            assert_eq!((client.under_way(), files(&server)), (0, 0));
            client.begin(Duration::ZERO);
        }
        let mut sent = BytesMut::from(&client.calls()[..]);
        while let Some(call) = records.feed(&mut sent).unwrap() {
            let reply = server.answer(call);
            client.reply(reply, Duration::ZERO).unwrap();
        }
        rounds += 1;
        assert!(rounds < 1000, "it never ends");
    }
    let (_, measured) = client.into_measured().unwrap();
    assert_eq!((measured.latencies.len(), measured.names), (19, Some(19)));
}

#[test]
fn a_create_that_fails_is_counted_and_the_next_name_is_taken() {
    let mut server = Server { refused: Some("/1-3".to_owned()), ..Server::new(64) };
    let measured = run(plan(2, Limit::Count(20)), &mut server).0.unwrap().1;
    assert_eq!(measured.latencies.len(), 19);
    assert_eq!(
        measured.errors.into_iter().collect::<Vec<_>>(),
        [("OPEN answers NFS4ERR_NOSPC".to_owned(), 1)]
    );
}

#[test]
fn a_creator_repeats_a_delayed_call_after_a_while() {
    let mut server = Server { delays: 5, ..Server::new(64) };
    let measured = run(plan(1, Limit::Count(3)), &mut server).0.unwrap().1;
    assert_eq!((measured.latencies.len(), measured.retries, files(&server)), (3, 5, 3));
    assert!(measured.errors.is_empty() && server.opens.is_empty());
    // 100, 200, 400, 800, 1,600 ms, and the calls; it counts as a part of what the create took.
    assert_eq!(measured.latencies.summary().max_us, 3_107_000);
}

#[test]
fn a_creator_gives_up_a_call_that_is_delayed_too_often() {
    let mut server = Server { delays: 10, ..Server::new(64) };
    let measured = run(plan(1, Limit::Count(2)), &mut server).0.unwrap().1;
    assert_eq!((measured.latencies.len(), measured.retries), (1, 9));
    assert_eq!(measured.errors.get("OPEN answers NFS4ERR_DELAY"), Some(&1));
}

#[test]
fn a_session_that_is_lost_ends_the_run() {
    let mut server = Server::new(64);
    server.next.insert(1, 5);
    let error = run(plan(2, Limit::Count(20)), &mut server).0.unwrap_err();
    assert_eq!(error.to_string(), "SEQUENCE answers NFS4ERR_SEQ_MISORDERED");
}
