//! Authentication: tokens, macaroons, certificates and passwords, mapped to identities and grants.
//!
//! Floor 3. The one implementation of `api::Authenticator` is [`Authority`]. Each kind of credential has a module that
//! decides by itself, without the others; [`mapping`] says which identity somebody from outside has. Nothing here asks
//! the mode bits: what a credential allows and what an identity may are two questions, and both must be answered yes.

pub mod authority;
pub mod cert;
pub mod config;
mod ended;
pub mod macaroons;
pub mod mapping;
pub mod passwords;
pub mod paths;
pub mod tokens;
pub mod watched;
pub mod x509;

pub use authority::Authority;
pub use config::{Anonymous, Config, Issuer, Profile, SecretsInClear};
pub use mapping::Mapping;
pub use tokens::Fetch;
