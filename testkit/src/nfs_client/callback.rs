//! The client's side of the back channel: answers CB_COMPOUND by a script and keeps what came.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nfs4::{
    CbCompound4Args, CbCompound4Res, CbGetAttr4Args, CbLayoutRecall4Args, CbOffload4Args, CbRecall4Args,
    CbSequence4ResOk, FileAttributes, GetAttr4ResOk, NfsCbArgop4, NfsCbResop4, NfsStat4, Res,
};
use oncrpc::{CallHeader, ReplyHeader};
use xdr::{Decoder, Encoder, Xdr};

/// How the next callback is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// CB_SEQUENCE succeeds, what follows gets this status.
    Status(NfsStat4),
    /// Nobody answers.
    Silence,
}

/// Script and record, shared by the connections of a client.
#[derive(Debug)]
pub struct Callbacks {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State {
    script: VecDeque<Answer>,
    otherwise: Answer,
    seen: Vec<CbCompound4Args>,
    awaited: usize,
    /// The answer to CB_GETATTR if its status is OK.
    attributes: FileAttributes,
}

impl Default for Callbacks {
    fn default() -> Callbacks {
        let otherwise = Answer::Status(NfsStat4::Ok);
        let state = State {
            script: VecDeque::new(),
            otherwise,
            seen: Vec::new(),
            awaited: 0,
            attributes: FileAttributes::default(),
        };
        Callbacks { state: Mutex::new(state), arrived: Condvar::new() }
    }
}

impl Callbacks {
    /// Answers the next callback so, before the standing answer applies again.
    pub fn answer_once(&self, answer: Answer) {
        self.lock().script.push_back(answer);
    }

    /// Answers so from now on.
    pub fn answer_always(&self, answer: Answer) {
        self.lock().otherwise = answer;
    }

    /// Sets the attributes that the client reports, as far as it is asked, for a file that it has delegated to write.
    pub fn keep_attributes(&self, attributes: FileAttributes) {
        self.lock().attributes = attributes;
    }

    /// Everything that came so far.
    pub fn seen(&self) -> Vec<CbCompound4Args> {
        self.lock().seen.clone()
    }

    /// The next callback that nobody has waited for yet; `None` if none comes within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<CbCompound4Args> {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        while state.seen.len() <= state.awaited {
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.awaited += 1;
        Some(state.seen[state.awaited - 1].clone())
    }

    /// The next layout recall; other callbacks are passed over.
    pub fn wait_for_layout_recall(&self, timeout: Duration) -> Option<CbLayoutRecall4Args> {
        self.wait_for(timeout, |operation| match operation {
            NfsCbArgop4::LayoutRecall(recall) => Some(recall),
            _ => None,
        })
    }

    /// The next recall of a delegation; other callbacks are passed over.
    pub fn wait_for_recall(&self, timeout: Duration) -> Option<CbRecall4Args> {
        self.wait_for(timeout, |operation| match operation {
            NfsCbArgop4::Recall(recall) => Some(recall),
            _ => None,
        })
    }

    /// The next question for attributes; other callbacks are passed over.
    pub fn wait_for_get_attr(&self, timeout: Duration) -> Option<CbGetAttr4Args> {
        self.wait_for(timeout, |operation| match operation {
            NfsCbArgop4::GetAttr(asked) => Some(asked),
            _ => None,
        })
    }

    /// The next end of a copy; other callbacks are passed over.
    pub fn wait_for_offload(&self, timeout: Duration) -> Option<CbOffload4Args> {
        self.wait_for(timeout, |operation| match operation {
            NfsCbArgop4::Offload(offload) => Some(offload),
            _ => None,
        })
    }

    fn wait_for<T>(&self, timeout: Duration, wanted: impl Fn(NfsCbArgop4) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + timeout;
        loop {
            let compound = self.wait(deadline.saturating_duration_since(Instant::now()))?;
            let found = compound.argarray.into_iter().find_map(&wanted);
            if found.is_some() {
                return found;
            }
        }
    }

    /// The reply to a call on the back channel, or none if the script is silent.
    pub(super) fn reply(&self, message: Bytes) -> Option<Bytes> {
        let mut decoder = Decoder::new(message);
        let header = CallHeader::decode(&mut decoder).ok()?;
        let mut encoder = Encoder::new();
        if header.procedure == nfs4::CB_NULL {
            ReplyHeader::success(header.xid).encode(&mut encoder);
            return Some(encoder.into_bytes());
        }
        let Ok(call) = CbCompound4Args::decode(&mut decoder) else {
            ReplyHeader::garbage_args(header.xid).encode(&mut encoder);
            return Some(encoder.into_bytes());
        };
        let answer = self.record(call.clone());
        let Answer::Status(status) = answer else { return None };
        ReplyHeader::success(header.xid).encode(&mut encoder);
        let attributes = self.lock().attributes.clone();
        results(call, status, &attributes).encode(&mut encoder);
        Some(encoder.into_bytes())
    }

    fn record(&self, call: CbCompound4Args) -> Answer {
        let mut state = self.lock();
        state.seen.push(call);
        self.arrived.notify_all();
        state.script.pop_front().unwrap_or(state.otherwise)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn results(call: CbCompound4Args, status: NfsStat4, attributes: &FileAttributes) -> CbCompound4Res {
    let mut reached = NfsStat4::Ok;
    let mut resarray = Vec::new();
    for operation in &call.argarray {
        let result = match operation {
            NfsCbArgop4::Sequence(sequence) => NfsCbResop4::Sequence(Res::Ok(CbSequence4ResOk {
                sessionid: sequence.sessionid,
                sequenceid: sequence.sequenceid,
                slotid: sequence.slotid,
                highest_slotid: sequence.highest_slotid,
                target_highest_slotid: sequence.highest_slotid,
            })),
            NfsCbArgop4::LayoutRecall(_) => NfsCbResop4::LayoutRecall(status),
            NfsCbArgop4::Recall(_) => NfsCbResop4::Recall(status),
            NfsCbArgop4::GetAttr(asked) => NfsCbResop4::GetAttr(match status {
                NfsStat4::Ok => {
                    Res::Ok(GetAttr4ResOk { obj_attributes: attributes.encode(&asked.attr_request) })
                }
                status => Res::Err(status),
            }),
            NfsCbArgop4::RecallAny(_) => NfsCbResop4::RecallAny(status),
            NfsCbArgop4::NotifyDeviceId(_) => NfsCbResop4::NotifyDeviceId(status),
            NfsCbArgop4::NotifyLock(_) => NfsCbResop4::NotifyLock(status),
            NfsCbArgop4::Offload(_) => NfsCbResop4::Offload(status),
            NfsCbArgop4::RecallSlot(_) => NfsCbResop4::RecallSlot(status),
            _ => NfsCbResop4::Illegal(NfsStat4::OpIllegal),
        };
        reached = result.status();
        resarray.push(result);
        if reached != NfsStat4::Ok {
            break;
        }
    }
    CbCompound4Res { status: reached, tag: call.tag, resarray }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs4::{CbSequence4Args, LayoutIomode4, LayoutRecall4, LayoutType4, NFS_CB_VERSION, SessionId4};
    use oncrpc::{Credential, OpaqueAuth};
    use xdr::Opaque;

    fn recall() -> CbCompound4Args {
        let sequence = CbSequence4Args {
            sessionid: SessionId4([3; 16]),
            sequenceid: 1,
            slotid: 0,
            highest_slotid: 0,
            cachethis: false,
            referring_call_lists: Vec::new(),
        };
        let recall = CbLayoutRecall4Args {
            layout_type: LayoutType4::FLEX_FILES,
            iomode: LayoutIomode4::Any,
            changed: false,
            recall: LayoutRecall4::All,
        };
        CbCompound4Args {
            tag: Opaque::new(),
            minorversion: 1,
            callback_ident: 0,
            argarray: vec![NfsCbArgop4::Sequence(sequence), NfsCbArgop4::LayoutRecall(recall)],
        }
    }

    fn call(arguments: &CbCompound4Args) -> Bytes {
        let mut encoder = Encoder::new();
        CallHeader {
            xid: 5,
            program: 0x4000_0000,
            version: NFS_CB_VERSION,
            procedure: nfs4::CB_COMPOUND,
            credential: Credential::None,
            verifier: OpaqueAuth::NONE,
        }
        .encode(&mut encoder);
        arguments.encode(&mut encoder);
        encoder.into_bytes()
    }

    fn status_of(reply: Bytes) -> NfsStat4 {
        let mut decoder = Decoder::new(reply);
        assert!(ReplyHeader::decode(&mut decoder).unwrap().is_success());
        CbCompound4Res::decode(&mut decoder).unwrap().status
    }

    #[test]
    fn the_script_answers_first_and_the_standing_answer_afterwards() {
        let callbacks = Callbacks::default();
        callbacks.answer_once(Answer::Status(NfsStat4::NoMatchingLayout));
        callbacks.answer_once(Answer::Silence);
        assert_eq!(status_of(callbacks.reply(call(&recall())).unwrap()), NfsStat4::NoMatchingLayout);
        assert_eq!(callbacks.reply(call(&recall())), None);
        assert_eq!(status_of(callbacks.reply(call(&recall())).unwrap()), NfsStat4::Ok);
        assert_eq!(callbacks.seen().len(), 3);
    }

    #[test]
    fn each_callback_is_waited_for_once() {
        let callbacks = Callbacks::default();
        callbacks.reply(call(&recall()));
        assert!(callbacks.wait_for_layout_recall(Duration::ZERO).is_some());
        assert!(callbacks.wait(Duration::ZERO).is_none());
    }
}
