//! New keys of members, while they are in use.
//!
//! A rotation is a new generation of all keys: the head makes a new authority, and each pool host a new key pair, for which it
//! asks a certificate over its link ([`CERTIFY`]). The head accepts both keys of a pool until it sees the new one in a HELLO,
//! and then that one only. The pool host keeps both until the head has welcomed it with the new one. So a crash at any point
//! leaves it a key that opens the head.

use async_trait::async_trait;
use types::PoolId;
use xdr::{Opaque, Xdr};

use crate::session::{CERTIFICATE_MAX, PUBLIC_KEY_MAX, TEXT_MAX};
use crate::trust::{Dialling, Fingerprint, MemberKey, TrustError};

pub const CERTIFY: u32 = 60;

#[derive(Xdr)]
pub struct Certify {
    /// SubjectPublicKeyInfo.
    #[xdr(max = PUBLIC_KEY_MAX)]
    pub public_key: Opaque,
}

#[derive(Xdr)]
#[xdr(union)]
pub enum Certified {
    #[xdr(0)]
    Certificate {
        /// Of the keys of the cluster.
        generation: u32,
        #[xdr(max = CERTIFICATE_MAX)]
        certificate: String,
        #[xdr(max = CERTIFICATE_MAX)]
        authority: String,
    },
    #[xdr(1)]
    Refused {
        #[xdr(max = TEXT_MAX)]
        reason: String,
    },
}

/// The keys of members, as the head knows them.
#[async_trait]
pub trait KeyRegistry: Send + Sync + 'static {
    /// The newest generation.
    fn generation(&self) -> u32;

    /// A certificate for a further key of the pool; the key is on disk when this returns. The error is told to the host.
    async fn certify(&self, pool: PoolId, public_key: &[u8]) -> Result<Certified, String>;

    /// The pool has said hello with this key: it needs no former one.
    async fn used(&self, pool: PoolId, key: Fingerprint);

    /// Why a host that has a certificate of this pool is not let in, and what to do, in a line.
    fn refusal(&self, pool: PoolId) -> String;
}

/// Keys of a member, of one generation.
pub struct KeySet {
    pub generation: u32,
    pub key: MemberKey,
    /// PEM, as that of the authority.
    pub certificate: String,
    pub authority: String,
}

impl KeySet {
    pub fn dialling(&self) -> Result<Dialling, TrustError> {
        Dialling::of_member(&self.key, &self.certificate, &self.authority)
    }
}

/// The disk of a member.
pub trait KeyStore: Send + Sync + 'static {
    /// Keeps the next keys beside those in use; they are on disk when this returns. Blocks.
    fn keep_next(&self, next: &KeySet) -> Result<(), String>;

    /// The head knows the next keys: those of before are forgotten. Blocks.
    fn adopt_next(&self) -> Result<(), String>;
}
