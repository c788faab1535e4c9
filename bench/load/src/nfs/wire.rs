//! COMPOUND calls as bytes and replies as values.

use anyhow::{Result, bail};
use bytes::Bytes;
use nfs4::{Compound4Res, NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NfsArgop4, NfsResop4, NfsStat4};
use oncrpc::{AuthSys, CallHeader, Credential, OpaqueAuth, ReplyHeader, record_header};
use xdr::{Decoder, Encoder, Opaque, Xdr};

/// As Linux mounts.
pub const MINOR_VERSION: u32 = 2;
/// Sixty-four calls of usual length.
const BATCH_BYTES: usize = 24 << 10;

/// Calls that wait to be sent, one after the other in one buffer.
pub struct Calls {
    /// The call's header without its xid, and COMPOUND's tag and minor version: the same in every call.
    header: Bytes,
    ready: Encoder,
}

impl Calls {
    pub fn new(minor_version: u32, uid: u32, gid: u32) -> Calls {
        let credential = Credential::Sys(AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"forebay-load"),
            uid,
            gid,
            gids: Vec::new(),
        });
        let mut e = Encoder::new();
        CallHeader {
            xid: 0,
            program: NFS4_PROGRAM,
            version: NFS_V4,
            procedure: NFSPROC4_COMPOUND,
            credential,
            verifier: OpaqueAuth::NONE,
        }
        .encode(&mut e);
        Opaque::new().encode(&mut e);
        e.put_u32(minor_version);
        Calls { header: e.into_bytes().slice(4..), ready: Encoder::new() }
    }

    pub fn add(&mut self, xid: u32, operations: &[NfsArgop4]) {
        let e = &mut self.ready;
        let mark = e.reserve_u32();
        e.put_u32(xid);
        e.put_raw(&self.header);
        e.put_len(operations.len());
        operations.iter().for_each(|operation| operation.encode(e));
        let record = u32::from_be_bytes(record_header(e.len_since(mark)));
        e.patch_u32(mark, record);
    }

    /// All that wait.
    pub fn take(&mut self) -> Bytes {
        std::mem::replace(&mut self.ready, Encoder::with_capacity(BATCH_BYTES)).into_bytes()
    }

    /// As `take`, for one call: the data of WRITE is not copied.
    pub fn take_segments(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.ready).into_segments()
    }
}

/// The reply to a COMPOUND.
#[derive(Debug)]
pub struct Reply {
    pub xid: u32,
    pub status: NfsStat4,
    pub results: Vec<NfsResop4>,
}

impl Reply {
    pub fn decode(message: Bytes) -> Result<Reply> {
        let mut d = Decoder::new(message);
        let header = ReplyHeader::decode(&mut d)?;
        if !header.is_success() {
            bail!("the server refuses the call: {:?}", header.body);
        }
        let Compound4Res { status, resarray, .. } = Compound4Res::decode(&mut d)?;
        Ok(Reply { xid: header.xid, status, results: resarray })
    }

    /// The operation that failed and its status, in the words of the error list; `None` if none failed.
    pub fn failure(&self) -> Option<String> {
        if self.status == NfsStat4::Ok {
            return None;
        }
        let place = self.results.last().map_or("COMPOUND", name);
        Some(format!("{place} answers {}", self.status))
    }
}

/// The operations that this client sends.
fn name(result: &NfsResop4) -> &'static str {
    match result {
        NfsResop4::Access(_) => "ACCESS",
        NfsResop4::Close(_) => "CLOSE",
        NfsResop4::Commit(_) => "COMMIT",
        NfsResop4::Create(_) => "CREATE",
        NfsResop4::CreateSession(_) => "CREATE_SESSION",
        NfsResop4::ExchangeId(_) => "EXCHANGE_ID",
        NfsResop4::GetAttr(_) => "GETATTR",
        NfsResop4::GetDeviceInfo(_) => "GETDEVICEINFO",
        NfsResop4::GetFh(_) => "GETFH",
        NfsResop4::LayoutCommit(_) => "LAYOUTCOMMIT",
        NfsResop4::LayoutGet(_) => "LAYOUTGET",
        NfsResop4::LayoutReturn(_) => "LAYOUTRETURN",
        NfsResop4::Lookup(_) => "LOOKUP",
        NfsResop4::Open(_) => "OPEN",
        NfsResop4::PutFh(_) => "PUTFH",
        NfsResop4::PutRootFh(_) => "PUTROOTFH",
        NfsResop4::Read(_) => "READ",
        NfsResop4::ReadDir(_) => "READDIR",
        NfsResop4::ReclaimComplete(_) => "RECLAIM_COMPLETE",
        NfsResop4::Remove(_) => "REMOVE",
        NfsResop4::Sequence(_) => "SEQUENCE",
        NfsResop4::Write(_) => "WRITE",
        _ => "an operation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use nfs4::Compound4Args;
    use oncrpc::RecordReader;

    #[test]
    fn calls_that_wait_are_records_one_after_the_other() {
        let mut calls = Calls::new(2, 1, 2);
        calls.add(7, &[NfsArgop4::PutRootFh, NfsArgop4::GetFh]);
        calls.add(8, &[NfsArgop4::PutRootFh]);
        let mut stream = BytesMut::from(&calls.take()[..]);
        let mut records = RecordReader::new(1 << 20, 1);
        for (xid, operations) in
            [(7, vec![NfsArgop4::PutRootFh, NfsArgop4::GetFh]), (8, vec![NfsArgop4::PutRootFh])]
        {
            let mut d = Decoder::new(records.feed(&mut stream).unwrap().unwrap());
            let header = CallHeader::decode(&mut d).unwrap();
            assert_eq!((header.xid, header.program, header.version, header.procedure), (xid, 100_003, 4, 1));
            assert!(matches!(header.credential, Credential::Sys(AuthSys { uid: 1, gid: 2, .. })));
            let compound = Compound4Args::decode(&mut d).unwrap();
            assert_eq!((compound.minorversion, compound.argarray), (2, operations));
            d.finish().unwrap();
        }
        assert!(stream.is_empty() && calls.take().is_empty());
    }

    #[test]
    fn a_refused_call_is_an_error() {
        let error = Reply::decode(xdr::to_bytes(&ReplyHeader::prog_unavail(7))).unwrap_err();
        assert!(error.to_string().contains("ProgUnavail"), "{error}");
    }
}
