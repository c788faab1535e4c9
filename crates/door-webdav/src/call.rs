//! One request, with its caller and its target, as handlers use it.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use api::{Activity, Caller, Origin, Role};
use http::header::{self, AsHeaderName, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_server::{Held, Peer};
use http_wire::dav::{self, Depth, IfHeader};
use types::{Attributes, Name};

use crate::lock_table::{LockOwner, Path, Principal};
use crate::refusal::Refusal;
use crate::sums::{asks_for_digest, may_see_sums};

pub(crate) struct Call {
    pub caller: Caller,
    pub origin: Origin,
    pub method: Method,
    pub headers: HeaderMap,
    pub path: Path,
    /// The path ended with a slash: a directory is meant.
    pub is_directory_form: bool,
    /// `?authz=`: a link that carries its own permission.
    pub token_in_query: Option<String>,
    pub peer: Arc<Peer>,
}

impl Call {
    pub fn header(&self, name: &header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Of a header that says one thing. Said twice, another reader might take the other.
    pub fn single(&self, name: impl AsHeaderName + Display + Clone) -> Result<Option<&HeaderValue>, Refusal> {
        let mut values = self.headers.get_all(name.clone()).iter();
        let first = values.next();
        match values.next() {
            None => Ok(first),
            Some(_) => Err(Refusal::bad_request(format!("{name} is given twice"))),
        }
    }

    /// A body is taken as it comes: one that is compressed would be kept so, and be given out as what it is not.
    pub fn refuse_encoded_body(&self) -> Result<(), Refusal> {
        let is_identity = |value: &HeaderValue| {
            value.as_bytes().split(|byte| *byte == b',').all(|coding| {
                let coding = coding.trim_ascii();
                coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
            })
        };
        if self.headers.get_all(header::CONTENT_ENCODING).iter().all(is_identity) {
            return Ok(());
        }
        let message = "a body is taken without Content-Encoding only";
        Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
            .with(header::ACCEPT_ENCODING, HeaderValue::from_static("identity")))
    }

    pub fn depth(&self) -> Result<Option<Depth>, Refusal> {
        let value = self.single("depth")?;
        let depth = value.map(|value| Depth::parse(value.as_bytes())).transpose();
        depth.map_err(|error| Refusal::bad_request(error.to_string()))
    }

    /// A collection is moved and removed with all that is in it (RFC 4918 §9.6.1, §9.9.2). Of anything else `Depth` says
    /// nothing (§10.2), and is not read.
    pub fn demand_whole(&self, found: &Attributes) -> Result<(), Refusal> {
        if !found.kind.is_directory() || self.depth()?.is_none_or(|depth| depth == Depth::Infinity) {
            return Ok(());
        }
        let message =
            format!("{} takes a directory with all that is in it: Depth must be infinity", self.method);
        Err(Refusal::bad_request(message))
    }

    pub fn may_overwrite(&self) -> Result<bool, Refusal> {
        let value = self.single("overwrite")?.map(HeaderValue::as_bytes);
        dav::overwrite(value).map_err(|error| Refusal::bad_request(error.to_string()))
    }

    pub fn if_header(&self) -> Result<Option<IfHeader>, Refusal> {
        let header = self.single(dav::IF)?.map(|value| IfHeader::parse(value.as_bytes())).transpose();
        header.map_err(|error| Refusal::bad_request(error.to_string()))
    }

    /// The user for whom locks are judged, with the tokens of `If`: that somebody names them is enough, wherever they stand
    /// in it.
    pub fn lock_owner(&self) -> Result<LockOwner, Refusal> {
        let header = self.if_header()?;
        let tokens = header.iter().flat_map(IfHeader::submitted_tokens).map(str::to_owned).collect();
        Ok(LockOwner { principal: Principal::from(&self.caller), tokens })
    }

    pub fn demand(&self, activity: Activity, path: &[Name]) -> Result<(), Refusal> {
        if self.caller.may(activity, path) { Ok(()) } else { Err(self.denied()) }
    }

    /// For GET and HEAD. HEAD tells metadata, which were judged on the way to the file, and a checksum on demand.
    pub fn demand_reading(&self, path: &[Name]) -> Result<(), Refusal> {
        if self.method != Method::HEAD {
            return self.demand(Activity::Download, path);
        }
        let is_allowed = !asks_for_digest(&self.headers) || may_see_sums(&self.caller, path);
        if is_allowed { Ok(()) } else { Err(self.denied()) }
    }

    /// Memory for an answer that is made in it, or 503. To be held as long as it is made.
    pub async fn memory(&self, bytes: usize) -> Result<Held, Refusal> {
        let held = self.peer.memory.take(payer(&self.caller), bytes).await;
        held.ok_or_else(|| Refusal::busy("the server has no memory for this answer now; try again"))
    }

    /// An anonymous caller is asked to log in; a known one may not do this.
    pub fn denied(&self) -> Refusal {
        if self.caller.role == Role::Anonymous {
            unauthorized("this needs a login or a token")
        } else {
            Refusal::forbidden(format!("{} may not do this here", self.caller.name))
        }
    }

    /// A refusal by the mode bits, for an anonymous caller turned into the question who it is.
    pub fn reconsider(&self, refusal: Refusal) -> Refusal {
        if refusal.status == StatusCode::FORBIDDEN && self.caller.role == Role::Anonymous {
            return unauthorized("this needs a login or a token");
        }
        refusal
    }
}

/// Callers that share a login, or a link, share its memory. The grants of a link tell it from the login of its owner,
/// who would otherwise have no memory left because of strangers. `None`: anonymous callers, which have nothing in
/// common.
pub(crate) fn payer(caller: &Caller) -> Option<u64> {
    if caller.role == Role::Anonymous {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    (caller.identity.uid, &caller.grants).hash(&mut hasher);
    Some(hasher.finish())
}

pub(crate) fn unauthorized(message: impl Into<String>) -> Refusal {
    let basic = HeaderValue::from_static("Basic realm=\"forebay\", charset=\"UTF-8\"");
    // Some clients take the first one only, and of those more know Basic (duplicity).
    Refusal::new(StatusCode::UNAUTHORIZED, message)
        .with(header::WWW_AUTHENTICATE, basic)
        .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"forebay\""))
}

#[cfg(test)]
mod tests {
    use api::{Activities, PathGrant};
    use types::Identity;

    use super::*;

    #[test]
    fn holders_of_a_link_share_memory_with_each_other_and_not_with_its_owner_or_the_anonymous() {
        let of = |uid| Identity::new(uid, 100, &[]);
        let owner = Caller { role: Role::User, identity: of(1), ..Caller::anonymous() };
        let link = |activity, name: &str| {
            let path = vec![Name::new(name.as_bytes()).unwrap()];
            let grant = PathGrant { activities: Activities::of(&[activity]), path, is_below_only: false };
            Caller { grants: Some([grant].into()), ..owner.clone() }
        };
        assert_eq!(payer(&owner), payer(&owner));
        assert_ne!(payer(&owner), payer(&Caller { identity: of(2), ..owner.clone() }));
        let of_link = payer(&link(Activity::Download, "a"));
        assert_eq!(of_link, payer(&link(Activity::Download, "a")));
        for other in [owner.clone(), link(Activity::List, "a"), link(Activity::Download, "b")] {
            assert_ne!(of_link, payer(&other));
        }
        let reader = Caller { grants: Some([PathGrant::BOND].into()), ..Caller::anonymous() };
        assert_eq!((payer(&Caller::anonymous()), payer(&reader)), (None, None));
    }
}
