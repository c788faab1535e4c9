//! Locks as an answer shows them (RFC 4918 §14.1, §15.8, §15.10).

use std::fmt::Write;

use bytes::{BufMut, Bytes, BytesMut};

use super::{Depth, LockScope, Timeout, escape};

/// One lock on or above a resource. `D` must stand for `DAV:` where it is written.
#[derive(Clone, Copy, Debug)]
pub struct ActiveLock<'a> {
    pub scope: LockScope,
    pub depth: Depth,
    /// As `LockInfo` has it.
    pub owner_xml: Option<&'a [u8]>,
    /// The time until it expires.
    pub timeout: Timeout,
    pub token: &'a str,
    /// Where it was taken, percent-encoded.
    pub root_href: &'a str,
}

impl ActiveLock<'_> {
    fn put(&self, out: &mut BytesMut) {
        out.put_slice(b"<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope>");
        out.put_slice(match self.scope {
            LockScope::Exclusive => b"<D:exclusive/>",
            LockScope::Shared => b"<D:shared/>",
        });
        // Writing to memory that grows cannot fail.
        let _ = write!(out, "</D:lockscope><D:depth>{}</D:depth>", self.depth);
        out.put_slice(self.owner_xml.unwrap_or_default());
        let _ = write!(out, "<D:timeout>{}</D:timeout><D:locktoken><D:href>", self.timeout);
        escape::text(out, self.token);
        out.put_slice(b"</D:href></D:locktoken><D:lockroot><D:href>");
        escape::text(out, self.root_href);
        out.put_slice(b"</D:href></D:lockroot></D:activelock>");
    }
}

/// The inside of `lockdiscovery`.
pub(super) fn put_locks(out: &mut BytesMut, locks: &[ActiveLock<'_>]) {
    for lock in locks {
        lock.put(out);
    }
}

/// The inside of `supportedlock`: exclusive and shared write locks.
pub(super) const SUPPORTED_LOCKS: &str = "\
    <D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
    <D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

/// The body of an answer to LOCK (§9.10.1): the locks on the resource, the new one among them.
pub fn lock_body(locks: &[ActiveLock<'_>]) -> Bytes {
    let mut out = BytesMut::with_capacity(1024);
    out.put_slice(super::escape::XML_DECLARATION);
    out.put_slice(b"<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>");
    put_locks(&mut out, locks);
    out.put_slice(b"</D:lockdiscovery></D:prop>\n");
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_lock_says_all_of_the_lock() {
        let lock = ActiveLock {
            scope: LockScope::Exclusive,
            depth: Depth::Infinity,
            owner_xml: Some(b"<o:owner xmlns:o=\"DAV:\">me &amp; you</o:owner>"),
            timeout: Timeout::Seconds(600),
            token: "urn:uuid:1",
            root_href: "/a%20b&c/",
        };
        let expected = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
            <D:prop xmlns:D=\"DAV:\"><D:lockdiscovery><D:activelock><D:locktype><D:write/></D:locktype>\
            <D:lockscope><D:exclusive/></D:lockscope><D:depth>infinity</D:depth>\
            <o:owner xmlns:o=\"DAV:\">me &amp; you</o:owner><D:timeout>Second-600</D:timeout>\
            <D:locktoken><D:href>urn:uuid:1</D:href></D:locktoken>\
            <D:lockroot><D:href>/a%20b&amp;c/</D:href></D:lockroot></D:activelock></D:lockdiscovery></D:prop>\n";
        assert_eq!(std::str::from_utf8(&lock_body(&[lock])).unwrap(), expected);
    }
}
