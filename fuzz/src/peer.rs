//! The clients' side of the back channel: calls are answered as the input has it, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use door_nfs::direct::Direct;
use nfs4::{
    CbCompound4Args, CbCompound4Res, CbSequence4ResOk, FileAttributes, GetAttr4ResOk, NfsCbArgop4,
    NfsCbResop4, NfsStat4, Res,
};
use oncrpc::{CallHeader, RecordReader, ReplyHeader};
use tokio::net::TcpStream;
use xdr::{Decoder, Encoder, Opaque, Xdr};

const RECORD_MAX: usize = 1 << 20;
/// Between looks for calls, doubling: time leaps from one look to the next, and a call is to be found before the server
/// gives up.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How clients answer the server's calls; with zero they do not answer.
#[derive(Default)]
pub struct Manner(AtomicU8);

impl Manner {
    pub fn be(&self, manner: u8) {
        self.0.store(manner, Ordering::Relaxed);
    }

    /// How long a client says that the file is that it writes.
    fn size(&self) -> u64 {
        u64::from(self.0.load(Ordering::Relaxed) >> 3) * 100
    }

    fn status(&self) -> Option<NfsStat4> {
        match self.0.load(Ordering::Relaxed) % 8 {
            0 => None,
            1..=3 => Some(NfsStat4::Ok),
            4 => Some(NfsStat4::Delay),
            5 => Some(NfsStat4::BadStateId),
            6 => Some(NfsStat4::NoMatchingLayout),
            _ => Some(NfsStat4::BadHandle),
        }
    }

    /// The callback's SEQUENCE is what the client does not like.
    fn refuses_sequence(&self) -> Option<NfsStat4> {
        match self.0.load(Ordering::Relaxed) {
            248..=251 => Some(NfsStat4::SeqMisordered),
            252 | 253 => Some(NfsStat4::BadSession),
            254 => Some(NfsStat4::Delay),
            255 => Some(NfsStat4::BadSlot),
            _ => None,
        }
    }
}

/// Answers calls until the stream ends.
pub async fn answer(server: Arc<Direct>, calls: TcpStream, manner: Arc<Manner>) {
    let mut reader = RecordReader::new(RECORD_MAX, 1);
    let (mut buffer, mut pause) = (BytesMut::new(), LOOK_MIN);
    loop {
        match calls.try_read_buf(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {
                pause = LOOK_MIN;
                while let Some(record) = reader.feed(&mut buffer).expect("the server makes whole records") {
                    if let Some(answer) = answer_to(record, &manner) {
                        server.answer(answer);
                    }
                }
            }
            // Nothing came, or an error that the next look shows as the end.
            Err(_) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LOOK_MAX);
            }
        }
    }
}

fn answer_to(record: Bytes, manner: &Manner) -> Option<Bytes> {
    let mut d = Decoder::new(record);
    let header = CallHeader::decode(&mut d).expect("the server makes whole calls");
    let mut e = Encoder::new();
    ReplyHeader::success(header.xid).encode(&mut e);
    if header.procedure == nfs4::CB_COMPOUND {
        let call = CbCompound4Args::decode(&mut d).expect("what the server asks is XDR");
        compound(&call, manner)?.encode(&mut e);
    }
    Some(e.into_bytes())
}

fn compound(call: &CbCompound4Args, manner: &Manner) -> Option<CbCompound4Res> {
    let mut status = NfsStat4::Ok;
    let mut resarray = Vec::new();
    for operation in &call.argarray {
        let result = match operation {
            NfsCbArgop4::Sequence(asked) => {
                let done = CbSequence4ResOk {
                    sessionid: asked.sessionid,
                    sequenceid: asked.sequenceid,
                    slotid: asked.slotid,
                    highest_slotid: asked.highest_slotid,
                    target_highest_slotid: asked.highest_slotid,
                };
                NfsCbResop4::Sequence(manner.refuses_sequence().map_or(Res::Ok(done), Res::Err))
            }
            NfsCbArgop4::GetAttr(asked) if manner.status()? == NfsStat4::Ok => {
                let own = FileAttributes {
                    change: Some(manner.size()),
                    size: Some(manner.size()),
                    ..FileAttributes::default()
                };
                NfsCbResop4::GetAttr(Res::Ok(GetAttr4ResOk {
                    obj_attributes: own.encode(&asked.attr_request),
                }))
            }
            other => result(other, manner.status()?),
        };
        status = result.status();
        resarray.push(result);
        if status != NfsStat4::Ok {
            break;
        }
    }
    Some(CbCompound4Res { status, tag: Opaque::new(), resarray })
}

fn result(operation: &NfsCbArgop4, status: NfsStat4) -> NfsCbResop4 {
    match operation {
        NfsCbArgop4::GetAttr(_) => NfsCbResop4::GetAttr(Res::Err(status)),
        NfsCbArgop4::Recall(_) => NfsCbResop4::Recall(status),
        NfsCbArgop4::LayoutRecall(_) => NfsCbResop4::LayoutRecall(status),
        NfsCbArgop4::RecallSlot(_) => NfsCbResop4::RecallSlot(status),
        NfsCbArgop4::NotifyLock(_) => NfsCbResop4::NotifyLock(status),
        NfsCbArgop4::NotifyDeviceId(_) => NfsCbResop4::NotifyDeviceId(status),
        NfsCbArgop4::Offload(_) => NfsCbResop4::Offload(status),
        other => panic!("a call with {other:?}, which no client of this server expects"),
    }
}
