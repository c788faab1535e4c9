//! The URLs of this instance: which are its own, and the paths that they name here.

use std::borrow::Cow;

use http::{StatusCode, header};
use http_wire::target::{AbsoluteUrl, Reference, Target};
use types::Name;

use crate::call::Call;
use crate::lock_table::Path;
use crate::refusal::Refusal;

pub(crate) struct OwnUrls {
    /// `host:port` by which clients know this instance; what the Host header says always counts.
    pub authorities: Vec<String>,
    /// Names in the root directory that are not files' here: other parts of the server answer them.
    pub reserved: &'static [&'static str],
}

impl OwnUrls {
    /// The path in `Destination`, which must be of this instance, and whether it ends with a slash.
    pub fn destination(&self, call: &Call) -> Result<(Path, bool), Refusal> {
        let value = call.single("destination")?;
        let value = value.ok_or_else(|| Refusal::bad_request("Destination is missing"))?;
        self.target(call, value.as_bytes()).map(|target| (target.path, target.trailing_slash))
    }

    /// The path that a URL of this instance, or a bare path, names.
    pub fn path(&self, call: &Call, url: &[u8]) -> Result<Path, Refusal> {
        self.target(call, url).map(|target| target.path)
    }

    /// Whether the URL is of this instance.
    pub fn contain(&self, call: &Call, url: &AbsoluteUrl) -> bool {
        // As a URL of the same scheme, so that a default port may be written or not on either side.
        let is_same = |own: &str| {
            let own = AbsoluteUrl::parse(&format!("{}://{own}/", url.scheme().name()));
            own.is_ok_and(|own| own.authority() == url.authority())
        };
        call.header(&header::HOST).is_some_and(is_same)
            || self.authorities.iter().any(|own| is_same(own))
            || is_same(&call.peer.local.to_string())
    }

    /// A name that is written so that it does not look like the server's own is that all the same: no file may be found by
    /// the second spelling of a name that the first one gives to the server.
    pub fn refuse_reserved(&self, path: &[Name]) -> Result<(), Refusal> {
        let is_first = |name: &&str| path.first().is_some_and(|first| first.as_bytes() == name.as_bytes());
        match self.reserved.iter().find(|name| is_first(name)) {
            Some(name) => Err(Refusal::forbidden(format!("/{name} is the server's own"))),
            None => Ok(()),
        }
    }

    fn target(&self, call: &Call, url: &[u8]) -> Result<Target, Refusal> {
        let reference = Reference::parse(&without_userinfo(url))
            .map_err(|error| Refusal::new(error.status(), error.to_string()))?;
        let target = match reference {
            Reference::Here(target) => target,
            Reference::Absolute(url) if self.contain(call, &url) => {
                url.target().map_err(|error| Refusal::new(error.status(), error.to_string()))?
            }
            Reference::Absolute(url) => {
                let message = format!("{} is another server", url.authority());
                return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
            }
        };
        self.refuse_reserved(&target.path)?;
        Ok(target)
    }
}

/// git and lftp write their login into the URLs of a MOVE. The request itself tells the caller.
fn without_userinfo(url: &[u8]) -> Cow<'_, [u8]> {
    let url = url.trim_ascii();
    let authority = url.windows(3).position(|three| three == b"://").map_or(0, |colon| colon + 3);
    // A path may have such characters too.
    if authority == 0 || url.iter().position(|byte| *byte == b'/') != Some(authority - 2) {
        return Cow::Borrowed(url);
    }
    let (scheme, rest) = url.split_at(authority);
    let end = rest.iter().position(|byte| b"/?#\\".contains(byte)).unwrap_or(rest.len());
    match rest[..end].iter().rposition(|byte| *byte == b'@') {
        Some(at) => Cow::Owned([scheme, &rest[at + 1..]].concat()),
        None => Cow::Borrowed(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn userinfo_is_taken_out_of_a_url_and_nothing_out_of_a_path() {
        let text = |url: &str| String::from_utf8(without_userinfo(url.as_bytes()).into_owned()).unwrap();
        assert_eq!(text("http://ann:pw@host:80/a@b"), "http://host:80/a@b");
        assert_eq!(text("https://a@b@host"), "https://host");
        for as_it_is in ["http://host/a@b", "http://host?a@b", "/a://b@c/d", "/a@b", "a@b"] {
            assert_eq!(text(as_it_is), as_it_is);
        }
    }
}
