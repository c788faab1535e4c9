//! The visitor of the page.
//!
//! A session is a macaroon in a cookie: nothing is kept here, and it outlives a restart. But a macaroon never makes an
//! administrator, so that a shared link makes none. This module remembers which sessions an administrator opened. It
//! forgets that at a restart, after which an administrator logs in again.

use std::collections::HashMap;

use api::{Activity, AuthError, Caller, Credential, Origin, Role};
use http::uri::PathAndQuery;
use http_server::Request;
use http_wire::credential::{self, Given};
use http_wire::target::{Query, put_query_text};
use parking_lot::Mutex;
use types::{Access, Attributes, Name, permission};

use super::Page;
use crate::refusal::Refusal;

pub(crate) struct Visitor {
    pub caller: Caller,
    pub is_administrator: bool,
    /// The token of a shared link, which every link on the page carries on.
    pub link_token: Option<String>,
    /// A cookie came whose session is over.
    pub session_ended: bool,
    /// Whether this connection gets macaroons, of which links to share are made.
    gets_macaroons: bool,
    /// The view that was asked for, to come back to after a login.
    pub here: String,
}

impl Visitor {
    /// Nobody, who may nothing.
    pub fn stranger(here: &str) -> Visitor {
        Visitor {
            caller: Caller { grants: Some([].into()), ..Caller::anonymous() },
            is_administrator: false,
            link_token: None,
            session_ended: false,
            gets_macaroons: false,
            here: here.to_owned(),
        }
    }

    /// The address of the login that leads back here.
    pub fn login_url(&self) -> String {
        let mut url = String::from("/ui/login");
        if self.link_token.is_none() && self.here.starts_with("/ui/") && !self.here.starts_with("/ui/log") {
            url.push_str("?to=");
            put_query_text(&mut url, &self.here);
        }
        url
    }

    pub fn is_logged_in(&self) -> bool {
        self.caller.role != Role::Anonymous && self.link_token.is_none()
    }

    /// Whether the door gives a link to share on this connection.
    pub fn may_share(&self) -> bool {
        self.is_logged_in() && self.gets_macaroons
    }

    /// The query that is appended to links into the namespace.
    pub fn link_suffix(&self) -> String {
        let mut suffix = String::new();
        if let Some(token) = &self.link_token {
            suffix.push_str("?authz=");
            put_query_text(&mut suffix, token);
        }
        suffix
    }

    /// Both what the credential and what the mode bits say; whether it then succeeds the door decides, and of what has an
    /// ACL the door alone.
    pub fn may(&self, activity: Activity, path: &[Name], attributes: &Attributes, wanted: Access) -> bool {
        let is_allowed =
            || attributes.has_acl || permission::allows(&self.caller.identity, attributes, None, wanted);
        self.caller.may(activity, path) && is_allowed()
    }
}

impl Page {
    pub(super) async fn visitor(&self, request: &Request) -> Result<Visitor, Refusal> {
        let here = request.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let query = request.uri.query().map(Query::parse).transpose()?.unwrap_or_default();
        let given = credential::given(&request.method, &request.headers, &query);
        let link_token = query.first("authz").map(str::to_owned);
        let session = credential::session(&request.headers);
        let is_session = matches!(&given, Ok(Given::Bearer(token)) if Some(token.as_str()) == session)
            && link_token.is_none();
        if session.is_some() && link_token.is_none() && given.is_err() {
            // A cookie that is no token: not an error of the person in front of the browser.
            return self.without_session(request, here).await;
        }
        let given = given?;
        let certificates = request.peer.tls.as_ref().map_or(&[][..], |tls| &tls.certificates);
        let credential = match &given {
            Given::Bearer(token) => Credential::Bearer(token),
            Given::Password { user, password } => Credential::Password { user, password },
            Given::Nothing if !certificates.is_empty() => Credential::Certificates(certificates),
            Given::Nothing => Credential::None,
        };
        let is_nobody = matches!(credential, Credential::None);
        let origin = origin(request);
        match self.authenticator.authenticate(credential, &origin).await {
            Ok(caller) => {
                let now_s = self.now_s();
                let is_remembered =
                    is_session && session.is_some_and(|token| self.administrators.has(token, now_s));
                let is_administrator = link_token.is_none() && (caller.role == Role::Admin || is_remembered);
                Ok(Visitor {
                    caller,
                    is_administrator,
                    link_token,
                    session_ended: false,
                    gets_macaroons: origin.gets_macaroons(),
                    here: here.to_owned(),
                })
            }
            Err(AuthError::Refused(_) | AuthError::Forbidden(_)) if is_nobody => Ok(Visitor::stranger(here)),
            Err(AuthError::Refused(_)) if is_session => self.without_session(request, here).await,
            Err(_) if link_token.is_some() => {
                Err(Refusal::forbidden("This link has expired, or it was not copied completely."))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn without_session(&self, request: &Request, here: &str) -> Result<Visitor, Refusal> {
        let caller = self.authenticator.authenticate(Credential::None, &origin(request)).await;
        let stranger = Visitor::stranger(here);
        Ok(Visitor { caller: caller.unwrap_or(stranger.caller.clone()), session_ended: true, ..stranger })
    }

    pub(super) fn now_s(&self) -> u64 {
        u64::try_from(self.clock.now().seconds).unwrap_or(0)
    }
}

pub(super) fn origin(request: &Request) -> Origin {
    Origin { address: request.peer.address.ip(), is_encrypted: request.peer.tls.is_some() }
}

/// Tokens of sessions that administrators opened, with the second each ends.
#[derive(Default)]
pub(crate) struct Administrators(Mutex<HashMap<String, u64>>);

const SESSIONS_MAX: usize = 1_000;

impl Administrators {
    /// At the bound the session that ends soonest becomes an ordinary one.
    pub fn remember(&self, token: &str, expires_s: u64, now_s: u64) {
        let mut sessions = self.0.lock();
        sessions.retain(|_, end_s| *end_s > now_s);
        if sessions.len() >= SESSIONS_MAX {
            let soonest = sessions.iter().min_by_key(|(_, end_s)| **end_s).map(|(token, _)| token.clone());
            soonest.and_then(|token| sessions.remove(&token));
        }
        sessions.insert(token.to_owned(), expires_s);
    }

    pub fn forget(&self, token: &str) {
        self.0.lock().remove(token);
    }

    fn has(&self, token: &str, now_s: u64) -> bool {
        self.0.lock().get(token).is_some_and(|end_s| *end_s > now_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_bound_the_session_that_ends_soonest_is_an_ordinary_one() {
        let sessions = Administrators::default();
        for number in 0..=SESSIONS_MAX as u64 {
            sessions.remember(&number.to_string(), 100 + number, 0);
        }
        assert!(!sessions.has("0", 1) && sessions.has("1", 1) && sessions.has("1000", 1));
        assert_eq!(sessions.0.lock().len(), SESSIONS_MAX);
    }

    #[test]
    fn a_session_of_an_administrator_ends() {
        let sessions = Administrators::default();
        sessions.remember("a", 10, 0);
        assert!(sessions.has("a", 9) && !sessions.has("a", 10));
        sessions.remember("b", 20, 10);
        assert_eq!(sessions.0.lock().len(), 1);
        sessions.forget("b");
        assert!(!sessions.has("b", 11));
    }
}
