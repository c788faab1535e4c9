//! A host joins by a token.

use std::sync::Arc;

use types::PoolId;
use xdr::Opaque;

use super::{ANSWER_TIME, MemberError, dial};
use crate::rpc::{Answerer, Refused};
use crate::session::{JOIN, Join, Joined};
use crate::transport::TlsDialer;
use crate::trust::{Dialling, MemberKey, Token};

/// A host that has joined.
pub struct Membership {
    pub cluster: [u8; 16],
    pub pool: PoolId,
    pub certificate: String,
    pub authority: String,
    /// Of the keys of the cluster.
    pub generation: u32,
}

/// A host that joins: as it calls itself, and the pool that it has already.
#[derive(Clone, Copy)]
pub struct Joining<'a> {
    pub host: &'a str,
    pub pool: Option<PoolId>,
}

/// Joins by a token: tries its addresses in turn.
pub async fn join(token: &Token, key: &MemberKey, joining: Joining<'_>) -> Result<Membership, MemberError> {
    let dialling = Dialling::of_stranger(token.authority)?;
    let mut last = None;
    for address in &token.addresses {
        match join_at(address, &dialling, token, key, joining).await {
            Ok(membership) => return Ok(membership),
            Err(refused @ MemberError::Refused { .. }) => return Err(refused),
            Err(error) => last = Some(error),
        }
    }
    let nobody =
        || MemberError::Unreachable { address: "the head".to_owned(), reason: "no address".to_owned() };
    Err(last.unwrap_or_else(nobody))
}

async fn join_at(
    address: &str,
    dialling: &Dialling,
    token: &Token,
    key: &MemberKey,
    Joining { host, pool }: Joining<'_>,
) -> Result<Membership, MemberError> {
    let connection = dial(address, (&TlsDialer, dialling), Arc::new(Nothing)).await?;
    let public_key = Opaque(key.public_key().into());
    let (host, pool) = (host.to_owned(), pool.map(|pool| pool.0));
    let join = Join { secret: token.secret, public_key, host, pool };
    let joined: Result<Joined, _> = connection.call(JOIN, &join, ANSWER_TIME).await;
    connection.close();
    match joined.map_err(|_| MemberError::Broken { address: address.to_owned() })? {
        Joined::Pool { cluster, pool, certificate, authority, generation } => {
            Ok(Membership { cluster, pool: PoolId(pool), certificate, authority, generation })
        }
        Joined::Refused { reason } => Err(MemberError::Refused { address: address.to_owned(), reason }),
    }
}

/// Answers nothing.
struct Nothing;

#[async_trait::async_trait]
impl Answerer for Nothing {
    async fn answer(&self, _: u32, _: xdr::Decoder) -> Result<xdr::Encoder, Refused> {
        Err(Refused::NoProcedure)
    }
}
