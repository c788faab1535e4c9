//! The client: from EXCHANGE_ID through the creators' work to DESTROY_CLIENTID.
//!
//! Replies and times go in, calls come out; no socket, no clock. Before and after the creators' work one call is under
//! way, on slot 0; in between each creator has its slot. A slot is found again by the low bits of the xid.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nfs4::{
    Bitmap4, CallbackSecParms4, ChannelAttrs4, ClientId4, ClientOwner4, Component4, Create4Args,
    CreateSession4Args, CreateType4, DestroyClientId4Args, DestroySession4Args, EXCHGID4_FLAG_USE_PNFS_MDS,
    ExchangeId4Args, ExchangeId4ResOk, FileAttributes, Lookup4Args, NfsArgop4, NfsFh4, NfsResop4, NfsStat4,
    PutFh4Args, ReadDir4Args, ReclaimComplete4Args, Res, Sequence4Args, SessionId4, StateProtect4A,
    Verifier4,
};
use oncrpc::{MessageType, message_type};
use xdr::Opaque;

use super::creators::{Creators, Measured, Next, Plan};
use super::wire::{Calls, MINOR_VERSION, Reply};
use crate::Directories;

pub(super) const SLOT_BITS: u32 = 10;
/// Names for one READDIR: as much as Linux asks for at once.
const READDIR_BYTES: u32 = 256 << 10;
const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// As Linux asks, but for the number of slots: requests and replies of 1 MiB and what is around them.
const FORE_CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 1_049_620,
    maxresponsesize: 1_049_480,
    maxresponsesize_cached: 3_428,
    maxoperations: 8,
    maxrequests: 0,
    rdma_ird: None,
};

const BACK_CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 4_096,
    maxresponsesize: 4_096,
    maxresponsesize_cached: 0,
    maxoperations: 2,
    maxrequests: 1,
    rdma_ird: None,
};

/// The purpose of the call under way.
enum Step {
    ExchangeId,
    CreateSession,
    ReclaimComplete,
    Root,
    /// The next component of the path; if it is not there, it is made.
    Walk {
        rest: Vec<String>,
        is_missing: bool,
    },
    /// The directory of this run.
    RunDirectory,
    /// A directory for each creator.
    OwnDirectory {
        parent: NfsFh4,
        made: Vec<NfsFh4>,
    },
    /// The directories of the creators stand; all waits for `begin`.
    Ready(Vec<NfsFh4>),
    Creating(Box<Creators>),
    /// The names in the directory of this run, so many so far.
    Counting(u64),
    DestroySession,
    DestroyClientId,
    Done,
}

pub struct Client {
    plan: Plan,
    calls: Calls,
    step: Step,
    xids: u32,
    under_way: u32,
    clientid: ClientId4,
    session: SessionId4,
    /// The sequence id of the next request, for each slot granted.
    slots: Vec<u32>,
    /// Slots whose creator was told to come again, by when it does.
    waiting: BinaryHeap<Reverse<(Duration, usize)>>,
    /// Where the walk is; from then on the directory of this run.
    directory: NfsFh4,
    measured: Option<Measured>,
}

impl Client {
    pub fn new(plan: Plan) -> Client {
        Client {
            calls: Calls::new(MINOR_VERSION, plan.uid, plan.gid),
            plan,
            step: Step::ExchangeId,
            xids: 0,
            under_way: 0,
            clientid: ClientId4::default(),
            session: SessionId4::default(),
            slots: Vec::new(),
            waiting: BinaryHeap::new(),
            directory: NfsFh4::default(),
            measured: None,
        }
    }

    /// Makes the first call.
    pub fn start(&mut self) {
        self.call_alone(exchange_id(self.plan.nonce, EXCHGID4_FLAG_USE_PNFS_MDS));
    }

    /// Calls that are ready to be sent.
    pub fn calls(&mut self) -> Bytes {
        self.calls.take()
    }

    /// How many calls have no reply yet.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    pub fn is_done(&self) -> bool {
        matches!(self.step, Step::Done)
    }

    /// Whether the creators only wait for `begin`.
    pub fn is_ready(&self) -> bool {
        matches!(self.step, Step::Ready(_))
    }

    /// Lets the creators start; before they are ready nothing happens.
    pub fn begin(&mut self, now: Duration) {
        let Step::Ready(directories) = &mut self.step else { return };
        let directories = std::mem::take(directories);
        let creators = directories.len();
        let mut work = Creators::new(&self.plan, self.clientid, directories);
        work.start(now);
        let first: Vec<_> = (0..creators).map(|index| work.begin(index, now)).collect();
        self.step = Step::Creating(Box::new(work));
        for (slot, operations) in first.into_iter().enumerate() {
            self.go_on(slot, operations);
        }
    }

    /// How many slots were granted, and what the creators found; `None` unless all is done.
    pub fn into_measured(self) -> Option<(u32, Measured)> {
        let slots = self.slots.len() as u32;
        self.measured.map(|measured| (slots, measured))
    }

    /// Takes a record that the server sent.
    pub fn reply(&mut self, record: Bytes, now: Duration) -> Result<()> {
        // No back channel was asked for: whatever is called is not for us.
        if message_type(&record)?.1 == MessageType::Call {
            return Ok(());
        }
        let reply = Reply::decode(record)?;
        let slot = (reply.xid & ((1 << SLOT_BITS) - 1)) as usize;
        self.under_way = self.under_way.saturating_sub(1);
        if !self.slots.is_empty() && !matches!(self.step, Step::DestroyClientId) {
            self.count(slot, &reply)?;
        }
        match &mut self.step {
            Step::Creating(creators) => {
                match creators.reply(slot, &reply, now)? {
                    Next::Call(operations) => self.call(slot, operations),
                    Next::WaitUntil(due) => self.waiting.push(Reverse((due, slot))),
                    Next::Finish => self.go_on(slot, None),
                }
                Ok(())
            }
            _ => self.advance(&reply, now),
        }
    }

    /// When the next who was told to come again does.
    pub fn next_due(&self) -> Option<Duration> {
        self.waiting.peek().map(|Reverse((due, _))| *due)
    }

    /// Lets those come again whose time it is.
    pub fn wake(&mut self, now: Duration) {
        while self.next_due().is_some_and(|due| due <= now)
            && let Some(Reverse((_, slot))) = self.waiting.pop()
        {
            let Step::Creating(creators) = &self.step else { return };
            if let Some(operations) = creators.again(slot) {
                self.call(slot, operations);
            }
        }
    }

    /// The slot may be used again once the server has taken the request (RFC 8881 §2.10.6.1).
    fn count(&mut self, slot: usize, reply: &Reply) -> Result<()> {
        // DESTROY_SESSION stands alone, without SEQUENCE.
        if matches!(self.step, Step::DestroySession) {
            return Ok(());
        }
        let Some(NfsResop4::Sequence(Res::Ok(_))) = reply.results.first() else {
            bail!("{}", reply.failure().unwrap_or_else(|| "a reply lacks SEQUENCE".to_owned()));
        };
        let next = self.slots.get_mut(slot).context("a reply for a slot that has no request")?;
        *next = next.wrapping_add(1);
        Ok(())
    }

    fn advance(&mut self, reply: &Reply, now: Duration) -> Result<()> {
        let step = std::mem::replace(&mut self.step, Step::Done);
        // A component of the path that is missing is made; whoever leaves need not be let out.
        let may_fail = matches!(step, Step::Walk { is_missing: false, .. } if reply.status == NfsStat4::NoEnt)
            || matches!(step, Step::DestroySession | Step::DestroyClientId);
        if let (Some(failure), false) = (reply.failure(), may_fail) {
            bail!("{failure}");
        }
        match step {
            Step::ExchangeId => self.create_session(reply)?,
            Step::CreateSession => self.reclaim_complete(reply)?,
            Step::ReclaimComplete => {
                self.step = Step::Root;
                self.call(0, vec![NfsArgop4::PutRootFh, NfsArgop4::GetFh]);
            }
            Step::Root => {
                self.directory = handle(reply)?;
                let rest = self.plan.path.iter().rev().cloned().collect();
                self.walk(rest);
            }
            Step::Walk { rest, is_missing: false } if reply.status == NfsStat4::NoEnt => {
                if let Some(name) = rest.last() {
                    let make = make_directory(name);
                    self.call(0, vec![put_fh(&self.directory), make, NfsArgop4::GetFh]);
                }
                self.step = Step::Walk { rest, is_missing: true };
            }
            Step::Walk { mut rest, .. } => {
                self.directory = handle(reply)?;
                rest.pop();
                self.walk(rest);
            }
            Step::RunDirectory => {
                self.directory = handle(reply)?;
                self.make_own(self.directory.clone(), Vec::new(), now);
            }
            Step::OwnDirectory { parent, mut made } => {
                made.push(handle(reply)?);
                self.make_own(parent, made, now);
            }
            Step::Counting(so_far) => self.count_names(so_far, reply)?,
            Step::DestroySession => {
                self.step = Step::DestroyClientId;
                let clientid = self.clientid;
                self.call_alone(NfsArgop4::DestroyClientId(DestroyClientId4Args { clientid }));
            }
            Step::DestroyClientId | Step::Ready(_) | Step::Creating(_) | Step::Done => {}
        }
        Ok(())
    }

    fn create_session(&mut self, reply: &Reply) -> Result<()> {
        let Some(NfsResop4::ExchangeId(Res::Ok(exchanged))) = reply.results.first() else {
            bail!("the reply lacks EXCHANGE_ID");
        };
        self.clientid = exchanged.clientid;
        self.step = Step::CreateSession;
        let create = create_session(exchanged, self.plan.creators);
        self.call_alone(create);
        Ok(())
    }

    fn reclaim_complete(&mut self, reply: &Reply) -> Result<()> {
        let Some(NfsResop4::CreateSession(Res::Ok(created))) = reply.results.first() else {
            bail!("the reply lacks CREATE_SESSION");
        };
        let granted = created.fore_chan_attrs.maxrequests.clamp(1, 1 << SLOT_BITS);
        self.session = created.sessionid;
        self.slots = vec![1; granted as usize];
        self.step = Step::ReclaimComplete;
        self.call(0, vec![NfsArgop4::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
        Ok(())
    }

    /// `rest` is what is left of the path, the next component last.
    fn walk(&mut self, rest: Vec<String>) {
        let here = put_fh(&self.directory);
        if let Some(name) = rest.last() {
            let objname = Component4::from(name.as_str());
            let lookup = NfsArgop4::Lookup(Lookup4Args { objname });
            self.step = Step::Walk { rest, is_missing: false };
            self.call(0, vec![here, lookup, NfsArgop4::GetFh]);
        } else {
            self.step = Step::RunDirectory;
            let make = make_directory(&format!("load-{:x}", self.plan.nonce));
            self.call(0, vec![here, make, NfsArgop4::GetFh]);
        }
    }

    /// Makes the next creator's directory; once there are enough, the creators start or are ready to.
    fn make_own(&mut self, parent: NfsFh4, made: Vec<NfsFh4>, now: Duration) {
        let creators = self.slots.len().min(self.plan.creators as usize);
        if self.plan.directories == Directories::Own && made.len() < creators {
            let make = make_directory(&format!("creator-{}", made.len()));
            self.call(0, vec![put_fh(&parent), make, NfsArgop4::GetFh]);
            self.step = Step::OwnDirectory { parent, made };
            return;
        }
        self.step = Step::Ready(if made.is_empty() { vec![parent; creators] } else { made });
        if !self.plan.waits {
            self.begin(now);
        }
    }

    /// A creator's next call; when none has any, the names are counted or the session ends.
    fn go_on(&mut self, slot: usize, operations: Option<Vec<NfsArgop4>>) {
        if let Some(operations) = operations {
            self.call(slot, operations);
            return;
        }
        let work = match std::mem::replace(&mut self.step, Step::DestroySession) {
            Step::Creating(work) if work.are_done() => work,
            unfinished => {
                self.step = unfinished;
                return;
            }
        };
        self.measured = Some(work.into_measured());
        if self.plan.is_counted {
            self.read_directory(0, Verifier4::default(), 0);
        } else {
            self.destroy_session();
        }
    }

    /// Asks for the names after `cookie`, of which `so_far` came before.
    fn read_directory(&mut self, cookie: u64, cookieverf: Verifier4, so_far: u64) {
        self.step = Step::Counting(so_far);
        let (dircount, maxcount) = (READDIR_BYTES, READDIR_BYTES);
        let read = ReadDir4Args { cookie, cookieverf, dircount, maxcount, attr_request: Bitmap4::EMPTY };
        self.call(0, vec![put_fh(&self.directory), NfsArgop4::ReadDir(read)]);
    }

    fn count_names(&mut self, so_far: u64, reply: &Reply) -> Result<()> {
        let Some(NfsResop4::ReadDir(Res::Ok(page))) = reply.results.last() else {
            bail!("the reply lacks READDIR");
        };
        let count = so_far + page.entries.len() as u64;
        match page.entries.last() {
            Some(last) if !page.eof => self.read_directory(last.cookie, page.cookieverf, count),
            None if !page.eof => bail!("READDIR answers no names and no end"),
            _ => {
                if let Some(measured) = &mut self.measured {
                    measured.names = Some(count);
                }
                self.destroy_session();
            }
        }
        Ok(())
    }

    fn destroy_session(&mut self) {
        self.step = Step::DestroySession;
        let sessionid = self.session;
        self.call_alone(NfsArgop4::DestroySession(DestroySession4Args { sessionid }));
    }

    /// SEQUENCE and `operations`.
    fn call(&mut self, slot: usize, operations: Vec<NfsArgop4>) {
        let sequence = NfsArgop4::Sequence(Sequence4Args {
            sessionid: self.session,
            sequenceid: self.slots[slot],
            slotid: slot as u32,
            highest_slotid: self.slots.len() as u32 - 1,
            cachethis: true,
        });
        let xid = self.xid(slot);
        let mut all = Vec::with_capacity(operations.len() + 1);
        all.push(sequence);
        all.extend(operations);
        self.calls.add(xid, &all);
    }

    /// Without a session.
    fn call_alone(&mut self, operation: NfsArgop4) {
        let xid = self.xid(0);
        self.calls.add(xid, &[operation]);
    }

    /// Of one more call.
    fn xid(&mut self, slot: usize) -> u32 {
        self.xids = self.xids.wrapping_add(1);
        self.under_way += 1;
        self.xids << SLOT_BITS | slot as u32
    }
}

/// The nonce is the client's name and its boot.
pub(super) fn exchange_id(nonce: u64, flags: u32) -> NfsArgop4 {
    NfsArgop4::ExchangeId(ExchangeId4Args {
        clientowner: ClientOwner4 {
            verifier: Verifier4(nonce.to_be_bytes()),
            ownerid: Opaque::from(format!("forebay-load {nonce:x}").as_str()),
        },
        flags,
        state_protect: StateProtect4A::None,
        client_impl_id: None,
    })
}

/// Asks for so many slots and no back channel.
pub(super) fn create_session(exchanged: &ExchangeId4ResOk, slots: u32) -> NfsArgop4 {
    NfsArgop4::CreateSession(CreateSession4Args {
        clientid: exchanged.clientid,
        sequence: exchanged.sequenceid,
        flags: 0,
        fore_chan_attrs: ChannelAttrs4 { maxrequests: slots, ..FORE_CHANNEL },
        back_chan_attrs: BACK_CHANNEL,
        cb_program: CALLBACK_PROGRAM,
        sec_parms: vec![CallbackSecParms4::None],
    })
}

pub(super) fn handle(reply: &Reply) -> Result<NfsFh4> {
    match reply.results.last() {
        Some(NfsResop4::GetFh(Res::Ok(body))) => Ok(body.object.clone()),
        _ => bail!("the reply lacks GETFH"),
    }
}

pub(super) fn put_fh(object: &NfsFh4) -> NfsArgop4 {
    NfsArgop4::PutFh(PutFh4Args { object: object.clone() })
}

fn make_directory(name: &str) -> NfsArgop4 {
    let attributes = FileAttributes { mode: Some(0o755), ..FileAttributes::default() };
    NfsArgop4::Create(Create4Args {
        objtype: CreateType4::Dir,
        objname: Component4::from(name),
        createattrs: attributes.encode_all(),
    })
}

#[cfg(test)]
mod tests;
