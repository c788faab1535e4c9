//! The body of LOCK (RFC 4918 §9.10, §14.11).

use bytes::Bytes;

use super::xml::{XmlBody, XmlError, decode};

/// An owner is kept as long as the lock and shown to everybody who asks.
pub const OWNER_BYTES_MAX: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockScope {
    Exclusive,
    Shared,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    pub scope: LockScope,
    /// The `owner` element, standing alone.
    pub owner_xml: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRequest {
    New(LockInfo),
    /// §9.10.2: no body; the token stands in the If header.
    Refresh,
}

impl LockRequest {
    pub fn parse(body: &[u8]) -> Result<LockRequest, XmlError> {
        if body.is_empty() {
            return Ok(LockRequest::Refresh);
        }
        let text = decode(body)?;
        let mut xml = XmlBody::new(&text);
        let root = xml.dav_root("lockinfo")?;
        let (mut scope, mut is_write, mut owner_xml) = (None, false, None);
        while let Some(child) = xml.next_child()? {
            if child.name.is_dav("lockscope") {
                scope = Some(lock_scope(&mut xml)?);
            } else if child.name.is_dav("locktype") {
                is_write = has_child(&mut xml, "write")?;
            } else if child.name.is_dav("owner") {
                owner_xml = Some(xml.capture(&child, root.lang(), OWNER_BYTES_MAX)?);
            } else {
                xml.skip()?;
            }
        }
        xml.finish()?;
        if !is_write {
            return Err(XmlError::Unexpected("the locktype is not write"));
        }
        let scope = scope.ok_or(XmlError::Unexpected("there is no lockscope"))?;
        Ok(LockRequest::New(LockInfo { scope, owner_xml }))
    }
}

fn lock_scope(xml: &mut XmlBody<'_>) -> Result<LockScope, XmlError> {
    let mut scope = None;
    while let Some(child) = xml.next_child()? {
        xml.skip()?;
        let named = if child.name.is_dav("exclusive") {
            LockScope::Exclusive
        } else if child.name.is_dav("shared") {
            LockScope::Shared
        } else {
            continue;
        };
        if scope.replace(named).is_some() {
            return Err(XmlError::Unexpected("the lockscope is both exclusive and shared"));
        }
    }
    scope.ok_or(XmlError::Unexpected("the lockscope is neither exclusive nor shared"))
}

fn has_child(xml: &mut XmlBody<'_>, local: &str) -> Result<bool, XmlError> {
    let mut found = false;
    while let Some(child) = xml.next_child()? {
        xml.skip()?;
        found |= child.name.is_dav(local);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(inside: &str) -> Result<LockRequest, XmlError> {
        LockRequest::parse(format!("<D:lockinfo xmlns:D='DAV:'>{inside}</D:lockinfo>").as_bytes())
    }

    const WRITE: &str = "<D:locktype><D:write/></D:locktype>";

    #[test]
    fn no_body_refreshes() {
        assert_eq!(LockRequest::parse(b""), Ok(LockRequest::Refresh));
    }

    #[test]
    fn scope_and_owner_are_read() {
        let owner = "<D:owner><D:href>mailto:a@b</D:href></D:owner>";
        let inside = format!("<D:lockscope><D:shared/></D:lockscope>{WRITE}{owner}");
        let owner = "<D:owner xmlns:D=\"DAV:\"><D:href>mailto:a@b</D:href></D:owner>";
        assert_eq!(
            request(&inside),
            Ok(LockRequest::New(LockInfo { scope: LockScope::Shared, owner_xml: Some(owner.into()) }))
        );
    }

    #[test]
    fn a_lock_that_is_no_write_lock_or_of_no_scope_is_refused() {
        for inside in [
            WRITE,
            "<D:lockscope><D:shared/></D:lockscope>",
            &format!("<D:lockscope><D:shared/><D:exclusive/></D:lockscope>{WRITE}"),
            &format!("<D:lockscope><D:local/></D:lockscope>{WRITE}"),
            "<D:lockscope><D:shared/></D:lockscope><D:locktype><D:read/></D:locktype>",
        ] {
            assert!(matches!(request(inside), Err(XmlError::Unexpected(_))), "{inside}");
        }
    }

    #[test]
    fn an_owner_is_bounded() {
        let owner = format!("<D:owner>{}</D:owner>", "x".repeat(OWNER_BYTES_MAX));
        let inside = format!("<D:lockscope><D:shared/></D:lockscope>{WRITE}{owner}");
        assert!(request(&inside).is_err_and(|e| e.is_limit()));
    }
}
