//! Replies out of a stream of bytes, without a socket and without joining what arrives in parts.
//!
//! The head of a record is collected: everything but the data of READ fits there. The data is passed on in the pieces it
//! came in.

use anyhow::{Result, bail};
use bytes::Bytes;
use nfs4::{NfsResop4, NfsStat4, Read4ResOk, Res, TAG_BYTES_MAX, op};
use oncrpc::ReplyHeader;
use xdr::{Decoder, Opaque, Xdr};

use super::super::wire::Reply;

/// More than a reply to SEQUENCE, PUTFH and WRITE has.
const HEAD_BYTES: usize = 512;
const MARK_BYTES: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

/// A part of a reply, in this order: one head, data of READ if there is any, the end.
#[derive(Debug)]
pub enum Part<'a> {
    /// The data of a READ is not among the results; it has `data_len` bytes.
    Head {
        reply: Reply,
        data_len: u32,
    },
    /// Bytes of the data, which stand at `at` in it.
    Data {
        at: u32,
        bytes: &'a [u8],
    },
    End,
}

#[derive(Debug, Default)]
pub struct Replies {
    /// The mark of the fragment that begins, as far as it has come.
    mark: Vec<u8>,
    /// Bytes of the present fragment that have not come; `None` between fragments.
    left: Option<usize>,
    is_last: bool,
    /// Bytes of the record before the data, as far as they have come; empty once they are decoded.
    head: Vec<u8>,
    is_decoded: bool,
    data_len: u32,
    data_at: u32,
}

impl Replies {
    /// Takes all of `bytes`, and calls with each part of a reply that is in them.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Part) -> Result<()>) -> Result<()> {
        while !bytes.is_empty() {
            let Some(left) = self.left else {
                let (mark, rest) = bytes.split_at(bytes.len().min(MARK_BYTES - self.mark.len()));
                bytes = rest;
                self.mark.extend_from_slice(mark);
                self.begin_fragment();
                if self.left == Some(0) {
                    self.end_fragment(&mut each)?;
                }
                continue;
            };
            let (content, rest) = bytes.split_at(bytes.len().min(left));
            bytes = rest;
            self.left = Some(left - content.len());
            self.take(content, &mut each)?;
            if self.left == Some(0) {
                self.end_fragment(&mut each)?;
            }
        }
        Ok(())
    }

    fn begin_fragment(&mut self) {
        if let Ok(mark) = self.mark[..].try_into().map(u32::from_be_bytes) {
            self.mark.clear();
            self.left = Some((mark & !LAST_FRAGMENT) as usize);
            self.is_last = mark & LAST_FRAGMENT != 0;
        }
    }

    fn end_fragment(&mut self, each: &mut impl FnMut(Part) -> Result<()>) -> Result<()> {
        self.left = None;
        if !self.is_last {
            return Ok(());
        }
        if !self.is_decoded {
            self.decode(each)?;
        }
        if self.data_at < self.data_len {
            bail!("a reply ends within the data of READ");
        }
        self.is_decoded = false;
        (self.data_len, self.data_at) = (0, 0);
        each(Part::End)
    }

    fn take(&mut self, content: &[u8], each: &mut impl FnMut(Part) -> Result<()>) -> Result<()> {
        if self.is_decoded {
            return self.pass_on(content, each);
        }
        let (head, data) = content.split_at(content.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        if self.head.len() == HEAD_BYTES {
            self.decode(each)?;
            self.pass_on(data, each)?;
        }
        Ok(())
    }

    fn decode(&mut self, each: &mut impl FnMut(Part) -> Result<()>) -> Result<()> {
        let mut d = Decoder::new(Bytes::copy_from_slice(&self.head));
        let (reply, data_len) = decode(&mut d)?;
        self.data_len = data_len;
        self.is_decoded = true;
        self.head.clear();
        each(Part::Head { reply, data_len })?;
        self.pass_on(&d.rest(), each)
    }

    /// Without the padding that may follow the data.
    fn pass_on(&mut self, bytes: &[u8], each: &mut impl FnMut(Part) -> Result<()>) -> Result<()> {
        let left = (self.data_len - self.data_at) as usize;
        let bytes = &bytes[..bytes.len().min(left)];
        if bytes.is_empty() {
            return Ok(());
        }
        let at = self.data_at;
        self.data_at += bytes.len() as u32;
        each(Part::Data { at, bytes })
    }
}

/// The reply as far as the data of READ, which is its last operation, and the length of that data.
fn decode(d: &mut Decoder) -> Result<(Reply, u32)> {
    let header = ReplyHeader::decode(d)?;
    if !header.is_success() {
        bail!("the server refuses the call: {:?}", header.body);
    }
    let status = NfsStat4::decode(d)?;
    d.opaque(TAG_BYTES_MAX)?;
    let mut reply = Reply { xid: header.xid, status, results: Vec::new() };
    for _ in 0..d.u32()? {
        let mut ahead = d.clone();
        if ahead.u32()? == op::READ && NfsStat4::decode(&mut ahead)? == NfsStat4::Ok {
            let (eof, data_len) = (ahead.bool()?, ahead.u32()?);
            reply.results.push(NfsResop4::Read(Res::Ok(Read4ResOk { eof, data: Opaque::new() })));
            *d = ahead;
            return Ok((reply, data_len));
        }
        reply.results.push(NfsResop4::decode(d)?);
    }
    Ok((reply, 0))
}

#[cfg(test)]
mod tests {
    use nfs4::{Compound4Res, StableHow4, Verifier4, Write4ResOk};
    use oncrpc::record_header;
    use xdr::Encoder;

    use super::*;

    fn message(xid: u32, results: Vec<NfsResop4>) -> Vec<u8> {
        let status = results.last().map_or(NfsStat4::Ok, NfsResop4::status);
        let mut e = Encoder::new();
        ReplyHeader::success(xid).encode(&mut e);
        Compound4Res { status, tag: Opaque::new(), resarray: results }.encode(&mut e);
        e.into_bytes().to_vec()
    }

    fn read(len: usize) -> (Vec<u8>, NfsResop4) {
        let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let result = NfsResop4::Read(Res::Ok(Read4ResOk { eof: true, data: Opaque(data.clone().into()) }));
        (data, result)
    }

    fn write() -> NfsResop4 {
        let (count, committed, writeverf) = (7, StableHow4::FileSync, Verifier4([3; 8]));
        NfsResop4::Write(Res::Ok(Write4ResOk { count, committed, writeverf }))
    }

    fn records(messages: &[Vec<u8>]) -> Vec<u8> {
        messages.iter().flat_map(|m| [&record_header(m.len())[..], m].concat()).collect()
    }

    /// Xid, last result and data of each reply.
    fn collected(stream: &[u8], cut: usize) -> Result<Vec<(u32, NfsResop4, Vec<u8>)>> {
        let (mut replies, mut whole, mut present) = (Replies::default(), Vec::new(), None);
        for chunk in stream.chunks(cut) {
            replies.feed(chunk, |part| {
                match part {
                    Part::Head { reply, data_len } => {
                        assert!(present.is_none(), "a second head");
                        present =
                            Some((reply.xid, reply.results.last().cloned().unwrap(), Vec::new(), data_len));
                    }
                    Part::Data { at, bytes } => {
                        let (_, _, data, _) = present.as_mut().unwrap();
                        assert_eq!(at as usize, data.len());
                        data.extend_from_slice(bytes);
                    }
                    Part::End => {
                        let (xid, result, data, data_len) = present.take().unwrap();
                        assert_eq!(data.len(), data_len as usize);
                        whole.push((xid, result, data));
                    }
                }
                Ok(())
            })?;
        }
        assert!(present.is_none());
        Ok(whole)
    }

    #[test]
    fn replies_come_out_as_they_went_in_however_the_stream_is_cut() {
        let put_fh = || NfsResop4::PutFh(NfsStat4::Ok);
        let (long, long_read) = read(3001);
        let (short, short_read) = read(5);
        let stream = records(&[
            message(1, vec![put_fh(), long_read]),
            message(2, vec![put_fh(), write()]),
            message(3, vec![put_fh(), short_read]),
            message(4, vec![NfsResop4::PutFh(NfsStat4::Stale)]),
        ]);
        for cut in [1, 2, 3, 5, 100, 511, 512, 513, 3000, stream.len()] {
            let found = collected(&stream, cut).unwrap();
            assert_eq!(found.iter().map(|(xid, _, _)| *xid).collect::<Vec<_>>(), [1, 2, 3, 4], "cut {cut}");
            assert_eq!((&found[0].2, &found[2].2), (&long, &short), "cut {cut}");
            assert_eq!((&found[1].1, &found[3].1), (&write(), &NfsResop4::PutFh(NfsStat4::Stale)));
        }
    }

    #[test]
    fn a_reply_in_several_fragments_is_one_reply() {
        let (data, result) = read(2000);
        let message = message(9, vec![result]);
        let (first, second) = message.split_at(700);
        let mut stream = (first.len() as u32).to_be_bytes().to_vec();
        stream.extend_from_slice(first);
        stream.extend_from_slice(&[0; 4]);
        stream.extend_from_slice(&record_header(second.len()));
        stream.extend_from_slice(second);
        for cut in [1, 64, stream.len()] {
            let found = collected(&stream, cut).unwrap();
            assert_eq!((found.len(), found[0].0, &found[0].2), (1, 9, &data), "cut {cut}");
        }
    }

    #[test]
    fn a_reply_that_ends_within_its_data_is_an_error() {
        let (_, result) = read(2000);
        let mut message = message(9, vec![result]);
        message.truncate(1000);
        let error = collected(&records(&[message]), 4096).unwrap_err();
        assert!(error.to_string().contains("within the data"), "{error}");
    }

    #[test]
    fn a_refused_call_is_an_error() {
        let message = xdr::to_bytes(&ReplyHeader::garbage_args(7)).to_vec();
        let error = collected(&records(&[message]), 4096).unwrap_err();
        assert!(error.to_string().contains("GarbageArgs"), "{error}");
    }
}
