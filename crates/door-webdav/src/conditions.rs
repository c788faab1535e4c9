//! What must hold before anything is changed: conditional headers, `If`, and the locks of others.

use http::StatusCode;
use http_wire::conditional::{self, Current, Verdict};
use http_wire::dav::{self, IfHeader, Precondition, ResourceState};
use types::Name;

use crate::call::Call;
use crate::front::Front;
use crate::get::etag;
use crate::locks::Reach;
use crate::refusal::Refusal;
use crate::resolve::Place;

impl Front {
    /// `If-Match`, `If-None-Match`, `If-Unmodified-Since` (RFC 9110 §13) and `If` (RFC 4918 §10.4).
    pub(crate) fn check_conditions(&self, call: &Call, place: &Place) -> Result<(), Refusal> {
        let current_etag = place.found.as_ref().map(etag);
        let current = match (&current_etag, &place.found) {
            (Some(etag), Some(found)) => Some(Current { etag, modified: found.mtime }),
            _ => None,
        };
        if conditional::evaluate(&call.method, &call.headers, current) != Verdict::Proceed {
            return Err(Refusal::precondition("a condition of the request does not hold"));
        }
        let Some(header) = if_header(call)? else { return Ok(()) };
        let locks = self.locks.lock();
        let holds = header.holds(|tag| {
            let path = match tag {
                None => place.path.clone(),
                // A resource elsewhere has no state here.
                Some(url) => match self.own_path(call, url.as_bytes()) {
                    Ok(path) => path,
                    Err(_) => return ResourceState::default(),
                },
            };
            ResourceState {
                tokens: locks.covering(&path).map(|lock| lock.token.clone()).collect(),
                // The state of other resources is known by their locks only.
                etag: current_etag.as_ref().filter(|_| path == place.path).map(ToString::to_string),
            }
        });
        if holds { Ok(()) } else { Err(Refusal::precondition("no list of the If header holds")) }
    }

    /// Whether the locks of others, or the caller's own without their tokens, forbid a change.
    pub(crate) fn check_locks(&self, call: &Call, path: &[Name], reach: Reach) -> Result<(), Refusal> {
        let submitted = submitted(call)?;
        let locks = self.locks.lock();
        match locks.forbidding(path, reach, &call.caller.name, &submitted) {
            None => Ok(()),
            Some(lock) => Err(locked(&lock.root_href)),
        }
    }

    /// As `check_locks`, where a name comes or goes: a lock of the directory, whatever its depth, protects its members
    /// (RFC 4918 §7.4).
    pub(crate) fn check_member_locks(&self, call: &Call, path: &[Name], reach: Reach) -> Result<(), Refusal> {
        if let [above @ .., _] = path {
            self.check_locks(call, above, Reach::One)?;
        }
        self.check_locks(call, path, reach)
    }

    /// The locks of what was removed or moved away.
    pub(crate) fn forget_locks(&self, path: &[Name]) {
        let gone = self.locks.lock().remove_tree(path);
        gone.iter().for_each(|lock| self.release_lock(lock));
    }
}

pub(crate) fn if_header(call: &Call) -> Result<Option<IfHeader>, Refusal> {
    let mut values = call.headers.get_all("if").iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => IfHeader::parse(value.as_bytes())
            .map(Some)
            .map_err(|error| Refusal::bad_request(error.to_string())),
        _ => Err(Refusal::bad_request("If is given twice")),
    }
}

/// The tokens of `If`: that somebody names them is enough, wherever they stand in it.
pub(crate) fn submitted(call: &Call) -> Result<Vec<String>, Refusal> {
    let header = if_header(call)?;
    let tokens = header.iter().flat_map(IfHeader::submitted_tokens);
    Ok(tokens.map(str::to_owned).collect())
}

/// 423 with the lock's root (RFC 4918 §16, `lock-token-submitted`).
pub(crate) fn locked(root_href: &str) -> Refusal {
    let why = dav::error_body(&Precondition::LockTokenSubmitted { hrefs: &[root_href] });
    Refusal::new(StatusCode::LOCKED, "locked").with_xml(why)
}
