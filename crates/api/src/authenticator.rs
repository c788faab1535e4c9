//! The authentication seam: from credentials to a caller, and what a caller may ask for beyond the mode bits.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use thiserror::Error;
use types::{Identity, Name};

#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The first credential that was given counts, in the order of the enum: a bad token is an error, not a reason to try
    /// the certificate.
    async fn authenticate(&self, credential: Credential<'_>, from: &Origin) -> Result<Caller, AuthError>;

    /// A macaroon that lets its bearer act as `caller` within the caveats, and never beyond what `caller` itself may, nor
    /// longer. Its bearer is a `Role::User` at most. Refused to the anonymous, and to the bearer of a macaroon that is
    /// bound to addresses: what is given on would lose the bond.
    fn mint(&self, caller: &Caller, request: &MacaroonRequest) -> Result<Macaroon, AuthError>;

    /// Ends the session that a macaroon is of ([`MacaroonRequest::is_session`]) before its time, whatever caveats were
    /// appended to it. It stays ended over a restart. A macaroon that is of no session goes on.
    async fn end(&self, session: &str);
}

#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    /// A JWT or a macaroon.
    Bearer(&'a str),
    Password {
        user: &'a str,
        password: &'a str,
    },
    /// DER, leaf first; the handshake has proven that the client has the leaf's key, nothing else.
    Certificates(&'a [Bytes]),
    None,
}

/// Where the request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub address: IpAddr,
    pub is_encrypted: bool,
}

impl Origin {
    /// Macaroons are given over TLS, and to this host.
    pub fn gets_macaroons(&self) -> bool {
        self.is_encrypted || self.address.is_loopback()
    }
}

#[derive(Clone, Debug)]
pub struct Caller {
    /// For logs, lock owners and the page: a user name, a token's subject, a certificate's DN.
    pub name: Arc<str>,
    pub identity: Identity,
    pub role: Role,
    /// `None`: the mode bits alone decide. Else every operation must also be within one of these.
    /// A grant without activities allows nothing.
    pub grants: Option<Arc<[PathGrant]>>,
    /// Seconds since 1970; what is kept beyond a request (a web session, a macaroon) ends then.
    pub expires_s: Option<u64>,
    /// Stands for the password that the credential comes from, at once or by macaroons: these end with it.
    pub password: Option<[u8; 16]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Anonymous,
    User,
    /// May see and change the instance: clients, log levels, pools.
    Admin,
}

/// Some activities at and below a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathGrant {
    pub activities: Activities,
    /// Whole components: `/foo/bar` holds `/foo/bar/qux` and not `/foo/bargain`.
    pub path: Vec<Name>,
    /// Only below `path`, not `path` itself (a WLCG scope with a trailing slash).
    pub is_below_only: bool,
}

impl PathGrant {
    /// Allows nothing, and says that the credential is bound to addresses.
    pub const BOND: PathGrant =
        PathGrant { activities: Activities::NONE, path: Vec::new(), is_below_only: false };
}

/// As in dCache's macaroons. A WLCG scope stands for several: `storage.create` is Upload, Manage and UpdateMetadata
/// without Delete, so nothing is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Activity {
    /// Stat. Any other activity on a path allows it, and on the directories above it.
    ReadMetadata,
    UpdateMetadata,
    List,
    Download,
    /// New files. Replacing one needs Delete as well.
    Upload,
    /// Directories and renames.
    Manage,
    Delete,
    Stage,
}

impl Activity {
    pub const ALL: [Activity; 8] = [
        Activity::ReadMetadata,
        Activity::UpdateMetadata,
        Activity::List,
        Activity::Download,
        Activity::Upload,
        Activity::Manage,
        Activity::Delete,
        Activity::Stage,
    ];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Activities(u8);

impl Activities {
    pub const NONE: Activities = Activities(0);
    pub const ALL: Activities = Activities(0xff);

    pub fn of(activities: &[Activity]) -> Activities {
        activities.iter().fold(Activities::NONE, |all, activity| Activities(all.0 | 1 << *activity as u8))
    }

    pub fn contains(self, activity: Activity) -> bool {
        self.0 & 1 << activity as u8 != 0
    }

    pub fn union(self, other: Activities) -> Activities {
        Activities(self.0 | other.0)
    }

    pub fn intersection(self, other: Activities) -> Activities {
        Activities(self.0 & other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Caller {
    /// `None`: nobody has said who it is.
    pub fn known_name(&self) -> Option<Arc<str>> {
        (self.role != Role::Anonymous).then(|| Arc::clone(&self.name))
    }

    pub fn anonymous() -> Caller {
        Caller {
            name: "anonymous".into(),
            identity: Identity::nobody(),
            role: Role::Anonymous,
            grants: None,
            expires_s: None,
            password: None,
        }
    }

    /// Whether the credential allows the activity at the path; the mode bits have their own say.
    pub fn may(&self, activity: Activity, path: &[Name]) -> bool {
        let Some(grants) = &self.grants else { return true };
        grants.iter().any(|grant| {
            let is_within =
                path.starts_with(&grant.path) && (!grant.is_below_only || path.len() > grant.path.len());
            if activity == Activity::ReadMetadata {
                // The way to a granted path can be walked.
                return !grant.activities.is_empty() && (is_within || grant.path.starts_with(path));
            }
            is_within && grant.activities.contains(activity)
        })
    }

    /// Whether the credential is good from some addresses only. A capability that is given for it, and that could be used
    /// from elsewhere, would lose that bond.
    pub fn is_bound_to_addresses(&self) -> bool {
        self.grants.as_deref().is_some_and(|grants| grants.iter().any(|grant| grant.activities.is_empty()))
    }

    /// Where `Manage` is allowed, and on the way to there: a caller that may create `/a/b/c` may make `/a` and `/a/b`
    /// (WLCG profile 1.3 §2.2.1). A grant for what is below a directory is one to make that directory.
    pub fn may_make_directory(&self, path: &[Name]) -> bool {
        let Some(grants) = &self.grants else { return true };
        self.may(Activity::Manage, path)
            || grants
                .iter()
                .any(|grant| grant.activities.contains(Activity::Manage) && grant.path.starts_with(path))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MacaroonRequest {
    /// `None`: whatever the caller may.
    pub activities: Option<Activities>,
    /// `None`: wherever the caller may.
    pub path: Option<Vec<Name>>,
    /// At most what the configuration allows, which is also what `None` gives.
    pub validity: Option<Duration>,
    /// ISO 8601 times with a zone; it ends at the soonest of these, of `validity` and of what the caller's own allows.
    pub ends: Vec<String>,
    /// Address ranges it may be used from, each as `a.b.c.d/n`; empty: from anywhere.
    pub addresses: Vec<String>,
    /// It is a login of the page, which can be ended before its time.
    pub is_session: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Macaroon {
    pub token: String,
    pub expires_s: u64,
}

#[derive(Clone, Debug, Error)]
pub enum AuthError {
    /// 401: another credential might do.
    #[error("{0}")]
    Refused(String),
    /// 403: the caller is known, and may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// The request for a macaroon makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// An issuer cannot be reached and nothing is known of it yet; trying again may help.
    #[error("{0}")]
    Unavailable(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<Name> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .map(|name| Name::new(name.as_bytes()).unwrap())
            .collect()
    }

    fn bearer(activities: &[Activity], path: &str, is_below_only: bool) -> Caller {
        let grant = PathGrant { activities: Activities::of(activities), path: names(path), is_below_only };
        Caller { grants: Some([grant].into()), ..Caller::anonymous() }
    }

    #[test]
    fn a_grant_holds_whole_components() {
        let caller = bearer(&[Activity::Download], "/foo/bar", false);
        assert!(caller.may(Activity::Download, &names("/foo/bar")));
        assert!(caller.may(Activity::Download, &names("/foo/bar/qux")));
        assert!(!caller.may(Activity::Download, &names("/foo/bargain")));
        assert!(!caller.may(Activity::Upload, &names("/foo/bar/qux")));
    }

    #[test]
    fn a_grant_with_a_trailing_slash_allows_only_below() {
        let caller = bearer(&[Activity::Upload], "/foo/bar", true);
        assert!(!caller.may(Activity::Upload, &names("/foo/bar")));
        assert!(caller.may(Activity::Upload, &names("/foo/bar/qux")));
    }

    #[test]
    fn a_caller_that_may_create_a_path_may_make_the_directories_above_it() {
        for is_below_only in [false, true] {
            let caller = bearer(&[Activity::Upload, Activity::Manage], "/foo/bar", is_below_only);
            for path in ["/foo", "/foo/bar", "/foo/bar/qux"] {
                assert!(caller.may_make_directory(&names(path)), "{path}");
            }
            for path in ["/foo/bargain", "/fo", "/foo/baz", "/other"] {
                assert!(!caller.may_make_directory(&names(path)), "{path}");
            }
            assert!(!caller.may(Activity::Manage, &names("/foo")), "nothing else there");
        }
        assert!(!bearer(&[Activity::Upload], "/foo/bar", false).may_make_directory(&names("/foo")));
        assert!(Caller { grants: None, ..Caller::anonymous() }.may_make_directory(&names("/foo")));
    }

    #[test]
    fn any_grant_allows_stat_there_and_on_the_way() {
        let caller = bearer(&[Activity::Upload], "/foo/bar", false);
        assert!(caller.may(Activity::ReadMetadata, &names("/foo")));
        assert!(caller.may(Activity::ReadMetadata, &names("/foo/bar/x")));
        assert!(!caller.may(Activity::ReadMetadata, &names("/foo/baz")));
    }
}
