//! The creators: what each of them calls next, and how long it took.
//!
//! A creator owns a slot and has one call under way. The compounds are those of the Linux client, without the layout
//! that it asks for in the same breath as OPEN: nothing is written here.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use nfs4::attr::number;
use nfs4::{
    ACCESS4_EXTEND, ACCESS4_MODIFY, ACCESS4_READ, Access4Args, Bitmap4, ClientId4, Close4Args, Component4,
    CreatVerfAttr, Create4Args, CreateHow4, CreateType4, Fattr4, FileAttributes, GetAttr4Args, NfsArgop4,
    NfsFh4, NfsResop4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_DENY_NONE, Open4Args, OpenClaim4,
    OpenFlag4, PutFh4Args, Remove4Args, Res, StateId4, StateOwner4, Verifier4,
};
use xdr::Opaque;

use super::wire::Reply;
use super::{How, Op};
use crate::Directories;
use crate::report::Latencies;

/// The work of one client.
#[derive(Clone, Debug)]
pub struct Plan {
    pub creators: u32,
    pub directories: Directories,
    pub limit: Limit,
    pub op: Op,
    pub how: How,
    /// Components of the directory to work in.
    pub path: Vec<String>,
    pub nonce: u64,
    pub uid: u32,
    pub gid: u32,
    /// Whether the creators wait to be told to begin.
    pub waits: bool,
    /// Whether the names in the directory of this run are counted in the end.
    pub is_counted: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Limit {
    Count(u64),
    Time(Duration),
}

/// Measurements of the creators.
#[derive(Debug, Default)]
pub struct Measured {
    /// From the first call to the last reply.
    pub elapsed: Duration,
    /// Of each create that went well, all its calls.
    pub latencies: Latencies,
    /// Sum of the times of the first of these calls.
    pub first_reply: Duration,
    /// Counts by operation and error. After an error the creator goes on with the next name.
    pub errors: BTreeMap<String, u64>,
    /// Calls that were made once more because the answer was DELAY.
    pub retries: u64,
    /// Names in the directory of this run after the last create, if they were counted.
    pub names: Option<u64>,
}

/// Attributes that the Linux client requests after most operations.
const ATTRIBUTES: Bitmap4 = Bitmap4::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
]);

/// As Linux waits before it asks again: twice as long each time, 15 s at most. An operation that takes longer than all
/// of this, more than half a minute, has failed.
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(15);
const RETRIES_MAX: u32 = 9;

/// Room for about a minute of creates without growing.
const LATENCIES_EXPECTED: usize = 1 << 20;

pub struct Creators {
    op: Op,
    how: How,
    limit: Limit,
    nonce: u64,
    /// One for all: to Linux the creators are processes of one user.
    owner: StateOwner4,
    file_attributes: Fattr4,
    directory_attributes: Fattr4,
    each: Vec<Creator>,
    began: Duration,
    begun: u64,
    measured: Measured,
}

struct Creator {
    directory: NfsFh4,
    number: u64,
    name: Bytes,
    /// The file, once it is open.
    file: NfsFh4,
    stateid: StateId4,
    began: Duration,
    stage: Stage,
    /// How often the call under way was made before.
    retries: u32,
}

/// The next step of a creator after a reply.
#[derive(Debug)]
pub enum Next {
    Call(Vec<NfsArgop4>),
    /// Then it makes the same call [`again`](Creators::again).
    WaitUntil(Duration),
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Closing,
    Removing,
    MakingDirectory,
    Finished,
}

impl Creators {
    /// Creator `i` works in `directories[i]`.
    pub fn new(plan: &Plan, clientid: ClientId4, directories: Vec<NfsFh4>) -> Creators {
        let creator = |directory| Creator {
            directory,
            number: 0,
            name: Bytes::new(),
            file: NfsFh4::default(),
            stateid: StateId4::ANONYMOUS,
            began: Duration::ZERO,
            stage: Stage::Finished,
            retries: 0,
        };
        Creators {
            op: plan.op,
            how: plan.how,
            limit: plan.limit,
            nonce: plan.nonce,
            owner: StateOwner4 { clientid, owner: Opaque::from_static(b"forebay-load") },
            file_attributes: mode(0o644),
            directory_attributes: mode(0o755),
            each: directories.into_iter().map(creator).collect(),
            began: Duration::ZERO,
            begun: 0,
            measured: Measured {
                latencies: Latencies::with_capacity(LATENCIES_EXPECTED),
                ..Measured::default()
            },
        }
    }

    pub fn start(&mut self, now: Duration) {
        self.began = now;
    }

    pub fn are_done(&self) -> bool {
        self.each.iter().all(|creator| creator.stage == Stage::Finished)
    }

    pub fn into_measured(self) -> Measured {
        self.measured
    }

    fn is_over(&self, now: Duration) -> bool {
        matches!(self.limit, Limit::Time(length) if now.saturating_sub(self.began) >= length)
    }

    /// The first call for the next name; `None` if the limit is reached.
    pub fn begin(&mut self, index: usize, now: Duration) -> Option<Vec<NfsArgop4>> {
        let reached = self.is_over(now) || matches!(self.limit, Limit::Count(count) if self.begun >= count);
        let creator = &mut self.each[index];
        if reached {
            creator.stage = Stage::Finished;
            return None;
        }
        self.begun += 1;
        creator.number += 1;
        creator.name = format!("{index}-{}", creator.number).into();
        creator.began = now;
        creator.stage = if self.op == Op::Mkdir { Stage::MakingDirectory } else { Stage::Opening };
        creator.retries = 0;
        self.again(index)
    }

    /// The call of the creator's stage, as it was or is to be made; `None` if it has finished.
    pub fn again(&self, index: usize) -> Option<Vec<NfsArgop4>> {
        let creator = &self.each[index];
        let (directory, name) = (put_fh(&creator.directory), Component4::from(creator.name.clone()));
        Some(match creator.stage {
            Stage::Opening => {
                let access = ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND;
                let access = NfsArgop4::Access(Access4Args { access });
                vec![directory, self.open(index, name), NfsArgop4::GetFh, access, get_attr()]
            }
            Stage::Closing => {
                let close = NfsArgop4::Close(Close4Args { seqid: 0, open_stateid: creator.stateid });
                vec![put_fh(&creator.file), get_attr(), close]
            }
            Stage::Removing => vec![directory, NfsArgop4::Remove(Remove4Args { target: name })],
            Stage::MakingDirectory => {
                let create = NfsArgop4::Create(Create4Args {
                    objtype: CreateType4::Dir,
                    objname: name,
                    createattrs: self.directory_attributes.clone(),
                });
                vec![directory, create, NfsArgop4::GetFh, get_attr()]
            }
            Stage::Finished => return None,
        })
    }

    /// Takes the reply of a creator's call and says what it does next.
    pub fn reply(&mut self, index: usize, reply: &Reply, now: Duration) -> Result<Next> {
        self.measured.elapsed = now.saturating_sub(self.began);
        let is_over = self.is_over(now);
        let creator = &mut self.each[index];
        // When the time is over nobody waits any more, or the rate would be that of whoever waits longest.
        if reply.status == NfsStat4::Delay && creator.retries < RETRIES_MAX && !is_over {
            let wait = DELAY_MAX.min(DELAY_MIN * 2_u32.pow(creator.retries));
            creator.retries += 1;
            self.measured.retries += 1;
            return Ok(Next::WaitUntil(now + wait));
        }
        creator.retries = 0;
        if let Some(failure) = reply.failure() {
            *self.measured.errors.entry(failure).or_default() += 1;
            return Ok(Next::of(self.begin(index, now)));
        }
        match creator.stage {
            Stage::Opening => {
                creator.stage = Stage::Closing;
                self.measured.first_reply += now.saturating_sub(creator.began);
                (creator.file, creator.stateid) =
                    opened(&reply.results).context("OPEN's reply lacks results")?;
                Ok(Next::of(self.again(index)))
            }
            Stage::Closing if self.op == Op::CreateRemove => {
                creator.stage = Stage::Removing;
                Ok(Next::of(self.again(index)))
            }
            stage => {
                let took = now.saturating_sub(creator.began);
                if stage == Stage::MakingDirectory {
                    self.measured.first_reply += took;
                }
                self.measured.latencies.add(took);
                Ok(Next::of(self.begin(index, now)))
            }
        }
    }

    fn open(&self, index: usize, name: Component4) -> NfsArgop4 {
        let attrs = self.file_attributes.clone();
        let how = match self.how {
            How::Guarded => CreateHow4::Guarded(attrs),
            How::Unchecked => CreateHow4::Unchecked(attrs),
            How::Exclusive => CreateHow4::Exclusive41(CreatVerfAttr { verf: self.verifier(index), attrs }),
        };
        NfsArgop4::Open(Open4Args {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_BOTH,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: self.owner.clone(),
            openhow: OpenFlag4::Create(how),
            claim: OpenClaim4::Null(name),
        })
    }

    /// Another for each file of this run and of any other.
    fn verifier(&self, index: usize) -> Verifier4 {
        let file = (index as u64) << 48 | self.each[index].number;
        Verifier4((self.nonce ^ file).to_be_bytes())
    }
}

impl Next {
    fn of(call: Option<Vec<NfsArgop4>>) -> Next {
        call.map_or(Next::Finish, Next::Call)
    }
}

fn opened(results: &[NfsResop4]) -> Option<(NfsFh4, StateId4)> {
    let (mut file, mut stateid) = (None, None);
    for result in results {
        match result {
            NfsResop4::Open(Res::Ok(body)) => stateid = Some(body.stateid),
            NfsResop4::GetFh(Res::Ok(body)) => file = Some(body.object.clone()),
            _ => {}
        }
    }
    file.zip(stateid)
}

fn mode(mode: u32) -> Fattr4 {
    FileAttributes { mode: Some(mode), ..FileAttributes::default() }.encode_all()
}

fn put_fh(object: &NfsFh4) -> NfsArgop4 {
    NfsArgop4::PutFh(PutFh4Args { object: object.clone() })
}

fn get_attr() -> NfsArgop4 {
    NfsArgop4::GetAttr(GetAttr4Args { attr_request: ATTRIBUTES })
}
