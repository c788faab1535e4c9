//! The operator's configuration. The binary makes it from its own file; nothing here reads TOML.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use types::{Identity, Name, Network};

use crate::x509;

#[derive(Clone, Debug)]
pub struct Config {
    /// One user a line, see [`crate::passwords`]. `None`, or no such file: nobody logs in by password.
    pub password_file: Option<PathBuf>,
    /// Identities of tokens and certificates, see [`crate::mapping`].
    pub mapping_file: Option<PathBuf>,
    /// Where sessions are noted that their users have ended. `None`: a restart forgets them.
    pub ended_file: Option<PathBuf>,
    pub issuers: Vec<Issuer>,
    /// `None`: certificates are refused.
    pub x509: Option<x509::VerifierConfig>,
    /// All macaroons of the instance hang on it: to be kept secret, and the same at every head.
    pub macaroon_secret: [u8; 32],
    /// The location in macaroons; it is for people and not checked.
    pub location: String,
    pub macaroon_validity_max: Duration,
    pub anonymous: Anonymous,
    /// Clients whose passwords, tokens and macaroons are accepted over a connection without TLS.
    pub secrets_in_clear: SecretsInClear,
    /// How far the clocks of issuers may be from ours.
    pub clock_skew: Duration,
}

impl Config {
    pub const MACAROON_VALIDITY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
    pub const CLOCK_SKEW: Duration = Duration::from_secs(60);

    /// Macaroons and nothing else: what an instance has before anybody configured anything.
    pub fn new(macaroon_secret: [u8; 32]) -> Config {
        Config {
            password_file: None,
            mapping_file: None,
            ended_file: None,
            issuers: Vec::new(),
            x509: None,
            macaroon_secret,
            location: String::new(),
            macaroon_validity_max: Config::MACAROON_VALIDITY_MAX,
            anonymous: Anonymous::Refuse,
            secrets_in_clear: SecretsInClear::From(Vec::new()),
            clock_skew: Config::CLOCK_SKEW,
        }
    }
}

/// Clients that may send secrets without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretsInClear {
    /// Clients of these networks.
    From(Vec<Network>),
    /// All: for listeners on loopback.
    Accepted,
}

impl SecretsInClear {
    pub fn are_accepted_from(&self, address: IpAddr) -> bool {
        match self {
            SecretsInClear::From(networks) => networks.iter().any(|network| network.contains(address)),
            SecretsInClear::Accepted => true,
        }
    }
}

/// Treatment of a request without any credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anonymous {
    Refuse,
    /// Stat, lists and downloads, as far as the mode bits let this identity.
    ReadOnly(Identity),
}

#[derive(Clone, Debug)]
pub struct Issuer {
    /// As the tokens' `iss`; a slash at the end makes no difference.
    pub url: String,
    pub profile: Profile,
    /// The scopes' paths begin here, and no token of this issuer reaches anything else.
    pub base_path: Vec<Name>,
    /// Our names to this issuer; a token must name one of them, or the wildcard of its profile.
    pub audiences: Vec<String>,
    /// Of tokens with scopes whose subject the mapping file does not know. `None`: these are refused.
    pub identity: Option<Identity>,
    /// A token without storage scopes, whose subject and groups are not mapped either, may read as `identity`.
    pub members_may_read: bool,
    pub keys: KeyBounds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// WLCG Common JWT Profile 1.x.
    Wlcg,
    SciTokens,
    /// Whichever the token claims to be.
    Auto,
}

/// How an issuer's keys are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBounds {
    /// Older keys are fetched anew, while they go on being used.
    pub refresh: Duration,
    /// Between two attempts, however many tokens name unknown keys.
    pub attempt_interval: Duration,
    /// While the issuer cannot be reached its keys are believed this long.
    pub age_max: Duration,
    /// Of one attempt, both requests together.
    pub deadline: Duration,
}

impl Default for KeyBounds {
    fn default() -> KeyBounds {
        KeyBounds {
            refresh: Duration::from_secs(3600),
            attempt_interval: Duration::from_secs(60),
            age_max: Duration::from_secs(4 * 24 * 3600),
            deadline: Duration::from_secs(10),
        }
    }
}
