//! Why a request failed, as an element (RFC 4918 §16).

use bytes::{BufMut, Bytes, BytesMut};

use super::escape;

/// Pre- and postconditions that this server names. The status that belongs to each stands in RFC 4918 §16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition<'a> {
    /// 423: what is locked and needs a token; at least one URL.
    LockTokenSubmitted { hrefs: &'a [&'a str] },
    /// 423: whose lock is in the way, as far as it may be said.
    NoConflictingLock { hrefs: &'a [&'a str] },
    /// 409: UNLOCK with a token of another resource.
    LockTokenMatchesRequestUri,
    /// 403: PROPFIND without a Depth that is small enough.
    PropfindFiniteDepth,
    /// 403: PROPPATCH of what the server computes.
    CannotModifyProtectedProperty,
    /// 409: properties that cannot follow a COPY or MOVE.
    PreservedLiveProperties,
    /// 507 (RFC 4331 §6).
    SufficientDiskSpace,
    /// 507 (RFC 4331 §6).
    QuotaNotExceeded,
}

impl Precondition<'_> {
    pub const fn element(&self) -> &'static str {
        match self {
            Precondition::LockTokenSubmitted { .. } => "lock-token-submitted",
            Precondition::NoConflictingLock { .. } => "no-conflicting-lock",
            Precondition::LockTokenMatchesRequestUri => "lock-token-matches-request-uri",
            Precondition::PropfindFiniteDepth => "propfind-finite-depth",
            Precondition::CannotModifyProtectedProperty => "cannot-modify-protected-property",
            Precondition::PreservedLiveProperties => "preserved-live-properties",
            Precondition::SufficientDiskSpace => "sufficient-disk-space",
            Precondition::QuotaNotExceeded => "quota-not-exceeded",
        }
    }

    fn hrefs(&self) -> &[&str] {
        match self {
            Precondition::LockTokenSubmitted { hrefs } | Precondition::NoConflictingLock { hrefs } => hrefs,
            _ => &[],
        }
    }

    /// The element in its `error`; `D` must stand for `DAV:` where it is written.
    pub(super) fn put(&self, out: &mut BytesMut) {
        out.put_slice(b"<D:");
        out.put_slice(self.element().as_bytes());
        if self.hrefs().is_empty() {
            out.put_slice(b"/>");
            return;
        }
        out.put_u8(b'>');
        for href in self.hrefs() {
            out.put_slice(b"<D:href>");
            escape::text(out, href);
            out.put_slice(b"</D:href>");
        }
        out.put_slice(b"</D:");
        out.put_slice(self.element().as_bytes());
        out.put_u8(b'>');
    }
}

/// A whole body.
pub fn error_body(why: &Precondition<'_>) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    out.put_slice(super::escape::XML_DECLARATION);
    out.put_slice(b"<D:error xmlns:D=\"DAV:\">");
    why.put(&mut out);
    out.put_slice(b"</D:error>\n");
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_condition_and_the_locked_urls() {
        let body = error_body(&Precondition::LockTokenSubmitted { hrefs: &["/a&b/", "/c"] });
        let expected = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\"><D:lock-token-submitted>\
            <D:href>/a&amp;b/</D:href><D:href>/c</D:href></D:lock-token-submitted></D:error>\n";
        assert_eq!(std::str::from_utf8(&body).unwrap(), expected);
        let body = error_body(&Precondition::PropfindFiniteDepth);
        assert!(body.ends_with(b"<D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n"));
    }
}
