//! The instance's `Authenticator`: sends each credential to who can judge it, and gives the answer an identity.
//!
//! Nothing here falls back: a credential that is refused is refused, whatever else the client might have shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{
    Activities, Activity, AuthError, Authenticator, Caller, Credential, Macaroon, MacaroonRequest, Origin,
    PathGrant, Role,
};
use async_trait::async_trait;
use bytes::Bytes;
use quick_cache::sync::Cache;
use types::{Clock, Identity};

use crate::config::{Anonymous, Config, SecretsInClear};
use crate::ended::Ended;
use crate::macaroons::Macaroons;
use crate::mapping::{Fact, Mapped, Mapping};
use crate::passwords::Passwords;
use crate::tokens::{Bearer, Fetch, Tokens, jwt};
use crate::watched::Watched;
use crate::x509;

/// How long a new authority or revocation list may go unseen.
const CERTIFICATES_LOOK_INTERVAL_S: u64 = 30;
/// Callers of tokens, so that a mapping of thousands of lines is not searched with each request.
const CALLERS_MAX: usize = 10_000;
const READ: &[Activity] = &[Activity::ReadMetadata, Activity::List, Activity::Download];

pub struct Authority {
    passwords: Passwords,
    mapping: Arc<Watched<Mapping>>,
    tokens: Tokens,
    macaroons: Macaroons,
    ended: Arc<Ended>,
    certificates: Option<Certificates>,
    anonymous: Anonymous,
    secrets_in_clear: SecretsInClear,
    clock: Arc<dyn Clock>,
    /// By what the token said; valid for the mapping that it was made with.
    callers: Cache<usize, CachedCaller>,
}

#[derive(Clone)]
struct CachedCaller {
    /// Held so that its address, which is the key, is nobody else's.
    bearer: Arc<Bearer>,
    mapping: Arc<Mapping>,
    caller: Caller,
}

struct Certificates {
    verifier: Arc<x509::Verifier>,
    /// In seconds of the monotonic clock. The thread that advances it looks at the directories.
    next_look_s: AtomicU64,
}

impl Authority {
    /// Reads files: not for an async thread. Errors are for the operator, with file and line.
    pub fn open(config: Config, fetch: &Arc<dyn Fetch>, clock: Arc<dyn Clock>) -> Result<Authority, String> {
        let macaroons =
            Macaroons::new(&config.macaroon_secret, &config.location, config.macaroon_validity_max);
        let certificates = config.x509.map(|config| Certificates {
            verifier: Arc::new(x509::Verifier::new(config)),
            next_look_s: AtomicU64::new(clock.monotonic().as_secs() + CERTIFICATES_LOOK_INTERVAL_S),
        });
        Ok(Authority {
            passwords: Passwords::open(config.password_file.as_deref(), clock.clone())?,
            mapping: Watched::open(config.mapping_file.as_deref(), Mapping::parse, clock.clone())?,
            tokens: Tokens::new(&config.issuers, fetch, &clock, config.clock_skew)?,
            macaroons,
            ended: Arc::new(Ended::open(config.ended_file)?),
            certificates,
            anonymous: config.anonymous,
            secrets_in_clear: config.secrets_in_clear,
            clock,
            callers: Cache::new(CALLERS_MAX),
        })
    }

    async fn bearer(&self, text: &str, from: &Origin) -> Result<Caller, AuthError> {
        self.check_channel(from)?;
        if !jwt::is_jwt(text) {
            return self.macaroon(text, from).await;
        }
        let bearer = self.tokens.judge(text).await?;
        let mapping = self.mapping.current().await;
        // While it is kept, no other token can be at its address.
        let key = Arc::as_ptr(&bearer).addr();
        if let Some(known) = self.callers.get(&key)
            && Arc::ptr_eq(&known.bearer, &bearer)
            && Arc::ptr_eq(&known.mapping, &mapping)
        {
            return Ok(known.caller);
        }
        let caller = caller_of(&bearer, &mapping)?;
        self.callers.insert(key, CachedCaller { bearer, mapping, caller: caller.clone() });
        Ok(caller)
    }

    async fn macaroon(&self, text: &str, from: &Origin) -> Result<Caller, AuthError> {
        let caller = self.macaroons.verify(text, from.address, self.now_s())?;
        let has_ended =
            |text| self.macaroons.session(text).is_some_and(|session| self.ended.has(&session.mark));
        if !self.ended.is_empty() && has_ended(text) {
            return Err(AuthError::Refused("the session was ended by its user".to_owned()));
        }
        if let Some(password) = caller.password {
            let user = self.passwords.find(&caller.name).await;
            if user.is_none_or(|user| self.macaroons.stamp_of(&user.hash) != password) {
                return Err(AuthError::Refused(
                    "the password that the macaroon comes from was changed".to_owned(),
                ));
            }
        }
        Ok(caller)
    }

    async fn password(&self, user: &str, password: &str, from: &Origin) -> Result<Caller, AuthError> {
        self.check_channel(from)?;
        let found = self.passwords.check(user, password, from.address).await?;
        let mapping = self.mapping.current().await;
        let mapped = mapping.find(&[Fact::User(user)]);
        let (identity, role) = mapped
            .map_or((found.identity.clone(), found.role), |mapped| (mapped.identity.clone(), mapped.role));
        Ok(Caller {
            name: user.into(),
            identity,
            role,
            grants: None,
            expires_s: None,
            password: Some(self.macaroons.stamp_of(&found.hash)),
        })
    }

    async fn certificates(&self, chain: &[Bytes]) -> Result<Caller, AuthError> {
        let certificates = self
            .certificates
            .as_ref()
            .ok_or_else(|| AuthError::Refused("client certificates are not accepted here".to_owned()))?;
        certificates.look(&*self.clock).await;
        let user = certificates
            .verifier
            .judge(chain, self.now_s())
            .map_err(|error| AuthError::Refused(error.to_string()))?;
        let facts: Vec<Fact<'_>> =
            user.fqans.iter().map(|fqan| Fact::Fqan(fqan)).chain([Fact::Dn(&user.dn)]).collect();
        let mapping = self.mapping.current().await;
        let Some(Mapped { identity, role }) = mapping.find(&facts).cloned() else {
            let why = match user.voms_refusals.first() {
                Some(refusal) => format!("{} is not known here, and {refusal}", user.dn),
                None => format!("{} is not known here", user.dn),
            };
            return Err(AuthError::Forbidden(why));
        };
        // A limited proxy was made to move data, and not to speak for its owner in anything else.
        let role = if user.is_limited { Role::User } else { role };
        Ok(Caller {
            name: user.dn.as_str().into(),
            identity,
            role,
            grants: None,
            expires_s: Some(user.expires_s),
            password: None,
        })
    }

    fn nobody(&self) -> Result<Caller, AuthError> {
        match &self.anonymous {
            Anonymous::Refuse => Err(AuthError::Refused("credentials are needed".to_owned())),
            Anonymous::ReadOnly(identity) => {
                let grants =
                    [PathGrant { activities: Activities::of(READ), path: Vec::new(), is_below_only: false }];
                Ok(Caller { identity: identity.clone(), grants: Some(grants.into()), ..Caller::anonymous() })
            }
        }
    }

    fn check_channel(&self, from: &Origin) -> Result<(), AuthError> {
        if from.is_encrypted || self.secrets_in_clear.are_accepted_from(from.address) {
            return Ok(());
        }
        // It was sent already; refusing it keeps people from doing so every day (RFC 6750 §5.3).
        Err(AuthError::Refused("passwords and tokens are accepted over TLS only".to_owned()))
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.clock.now().seconds).unwrap_or(0)
    }
}

#[async_trait]
impl Authenticator for Authority {
    async fn authenticate(&self, credential: Credential<'_>, from: &Origin) -> Result<Caller, AuthError> {
        match credential {
            Credential::Bearer(text) => self.bearer(text, from).await,
            Credential::Password { user, password } => self.password(user, password, from).await,
            Credential::Certificates(chain) => self.certificates(chain).await,
            Credential::None => self.nobody(),
        }
    }

    fn mint(&self, caller: &Caller, request: &MacaroonRequest) -> Result<Macaroon, AuthError> {
        self.macaroons.mint(caller, request, self.now_s())
    }

    async fn end(&self, session: &str) {
        if let Some(ending) = self.macaroons.session(session) {
            self.ended.add(ending, self.now_s()).await;
        }
    }
}

impl Certificates {
    async fn look(&self, clock: &dyn Clock) {
        let now_s = clock.monotonic().as_secs();
        let due_s = self.next_look_s.load(Ordering::Relaxed);
        let next_s = now_s + CERTIFICATES_LOOK_INTERVAL_S;
        let is_mine = now_s >= due_s
            && self.next_look_s.compare_exchange(due_s, next_s, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_mine {
            let verifier = self.verifier.clone();
            // A failure to run the closure means that the runtime stops; what is known serves until then.
            let _ = tokio::task::spawn_blocking(move || verifier.refresh()).await;
        }
    }
}

/// With storage scopes the scopes say what may be done, and groups nothing (WLCG profile, "capabilities win"); without
/// them the bearer is who the mapping says, within the issuer's base path.
fn caller_of(bearer: &Bearer, mapping: &Mapping) -> Result<Caller, AuthError> {
    let issuer = &*bearer.issuer;
    let mut facts = vec![Fact::Subject { issuer: &issuer.url, subject: &bearer.subject }];
    if bearer.grants.is_none() {
        facts.extend(bearer.groups.iter().map(|group| Fact::Group { issuer: &issuer.url, group }));
    }
    let at_base = |activities| PathGrant { activities, path: issuer.base_path.clone(), is_below_only: false };
    let default = |identity: &Identity| Mapped { identity: identity.clone(), role: Role::User };
    let (mapped, grants) = match (mapping.find(&facts), &bearer.grants, &issuer.identity) {
        (Some(mapped), Some(grants), _) => {
            // Scopes are about storage only, so they never carry the instance's administration.
            (Mapped { role: Role::User, ..mapped.clone() }, grants.clone())
        }
        (Some(mapped), None, _) => (mapped.clone(), vec![at_base(Activities::ALL)]),
        (None, Some(grants), Some(identity)) => (default(identity), grants.clone()),
        (None, None, Some(identity)) if issuer.members_may_read => {
            (default(identity), vec![at_base(Activities::of(READ))])
        }
        (None, Some(_), None) => {
            return Err(AuthError::Forbidden("the token's subject has no identity here".to_owned()));
        }
        (None, None, _) => {
            let why = "the token has no storage scope, and neither its subject nor its groups are known here";
            return Err(AuthError::Forbidden(why.to_owned()));
        }
    };
    let name = if bearer.subject.is_empty() { issuer.url.as_str() } else { bearer.subject.as_str() };
    Ok(Caller {
        name: name.into(),
        identity: mapped.identity,
        role: mapped.role,
        grants: Some(grants.into()),
        expires_s: Some(bearer.expires_s),
        password: None,
    })
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
