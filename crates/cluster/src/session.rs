//! Messages between a pool host and the head, besides the calls of the pool seam: all of it is asked by the pool host.
//!
//! ```text
//! JOIN    once, with a token in place of a certificate: the host becomes a pool
//! HELLO   first on the control connection: who the pool is now -> term, keys
//! ATTACH  first on a data connection
//! RENEW   each second: how the pool is, which keys it has -> its lease, and keys that it lacks
//! BYE     the pool stops: its lease is over
//! CERTIFY a certificate for a new key of the host (`rotation`)
//! ```
//!
//! Calls of the pool seam have the numbers from 10 on (`wire::procedure`), those of data faces the numbers from 40 on
//! (`face::procedure`). Numbers of procedures and arms are the protocol's and stay. Versions N and N-1 work together: what one does not know it
//! leaves out.

use api::{KeyGeneration, KeyMaterial, Term};
use cluster_state::{HeldTerms, Process};
use xdr::{Opaque, Xdr};

use crate::face::{Added, HeadHttp, ToldFace};
use crate::wire::Status;

/// The version of this protocol that this program speaks, and the oldest that it still understands.
pub const VERSION: u32 = 1;
pub const VERSION_MIN: u32 = 1;

pub const JOIN: u32 = 1;
pub const HELLO: u32 = 2;
pub const ATTACH: u32 = 3;
pub const RENEW: u32 = 4;
pub const BYE: u32 = 5;

/// Of names of hosts, addresses and reasons.
pub(crate) const TEXT_MAX: usize = 256;
pub(crate) const CERTIFICATE_MAX: usize = 16 << 10;
pub(crate) const PUBLIC_KEY_MAX: usize = 1 << 10;

#[derive(Xdr)]
pub struct Join {
    pub secret: [u8; 16],
    /// SubjectPublicKeyInfo.
    #[xdr(max = PUBLIC_KEY_MAX)]
    pub public_key: Opaque,
    /// As the host calls itself.
    #[xdr(max = TEXT_MAX)]
    pub host: String,
    /// The pool that the host has already.
    pub pool: Option<u32>,
}

#[derive(Xdr)]
#[xdr(union)]
pub enum Joined {
    #[xdr(0)]
    Pool {
        cluster: [u8; 16],
        pool: u32,
        #[xdr(max = CERTIFICATE_MAX)]
        certificate: String,
        #[xdr(max = CERTIFICATE_MAX)]
        authority: String,
        /// Of the keys of the cluster.
        generation: u32,
    },
    #[xdr(1)]
    Refused {
        #[xdr(max = TEXT_MAX)]
        reason: String,
    },
}

/// A process of a pool host.
#[derive(Clone, Copy, Xdr)]
pub struct Incarnation {
    starts: u64,
    draw: u64,
}

impl Incarnation {
    pub fn of(process: Process) -> Incarnation {
        let Process { starts, draw } = process;
        Incarnation { starts, draw }
    }

    pub fn process(self) -> Process {
        let Incarnation { starts, draw } = self;
        Process { starts, draw }
    }
}

#[derive(Xdr)]
pub struct Hello {
    pub version: u32,
    pub version_min: u32,
    pub cluster: [u8; 16],
    pub process: Incarnation,
    /// The pool holds a lease now.
    pub has_lease: bool,
    #[xdr(max = TEXT_MAX)]
    pub host: String,
    /// The version of the program, for people.
    #[xdr(max = TEXT_MAX)]
    pub program: String,
    /// Where clients reach the NFS face. Empty: where this connection comes from.
    #[xdr(max = TEXT_MAX)]
    pub address: String,
    pub nfs_port: u32,
    pub pool: u32,
    pub clone_granularity: Option<u32>,
    pub status: Status,
    /// The HTTP data face, if clients are to be sent there.
    pub http: Added<ToldFace>,
}

#[derive(Xdr)]
#[xdr(union)]
pub enum Welcome {
    #[xdr(0)]
    Welcome {
        version: u32,
        terms: Terms,
        keys: Keys,
        nfs_lease_ms: u64,
        /// No file has a higher number yet.
        newest_file: u64,
        /// Where clients of HTTP are sent back to.
        http: Added<HeadHttp>,
    },
    #[xdr(1)]
    Refused {
        #[xdr(max = TEXT_MAX)]
        reason: String,
    },
}

/// The term of the head, and the lowest whose tickets to write are honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Terms {
    pub term: u64,
    pub floor: u64,
}

impl Terms {
    pub fn of(term: Term, floor: Term) -> Terms {
        Terms { term: term.0, floor: floor.0 }
    }

    pub fn terms(self) -> cluster_state::Terms {
        cluster_state::Terms { term: Term(self.term), floor: Term(self.floor) }
    }
}

impl From<cluster_state::Terms> for Terms {
    fn from(terms: cluster_state::Terms) -> Terms {
        Terms::of(terms.term, terms.floor)
    }
}

#[derive(Clone, Xdr)]
pub struct Keys {
    pub newest: Key,
    pub former: Option<Key>,
}

#[derive(Clone, Xdr)]
pub struct Key {
    generation: u32,
    nfs: [u8; 32],
    http: [u8; 32],
}

impl Key {
    pub fn of(material: &KeyMaterial) -> Key {
        let KeyMaterial { generation, nfs, http } = *material;
        Key { generation: generation.0, nfs, http }
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub fn material(&self) -> KeyMaterial {
        KeyMaterial { generation: KeyGeneration(self.generation), nfs: self.nfs, http: self.http }
    }
}

/// Which keys a pool has and what it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct Held {
    pub generation: u32,
    pub has_former: bool,
    pub terms: Terms,
    /// No write by a ticket below the floor is under way.
    pub is_settled: bool,
}

impl Held {
    pub fn terms(self) -> HeldTerms {
        HeldTerms { terms: self.terms.terms(), is_settled: self.is_settled }
    }
}

#[derive(Xdr)]
pub struct Attach {
    pub process: Incarnation,
}

#[derive(Xdr)]
pub struct Renew {
    pub held: Held,
    pub status: Status,
}

#[derive(Xdr)]
#[xdr(union)]
pub enum Renewed {
    #[xdr(0)]
    Renewed {
        /// From the moment at which this was asked. 0: there are fences to take first.
        lease_ms: u64,
        terms: Terms,
        /// If the pool has others.
        keys: Option<Keys>,
        /// Of the keys of the cluster: a pool host that has an older one asks for another certificate (CERTIFY).
        generation: u32,
    },
    /// The pool is to say hello again, over another connection.
    #[xdr(1)]
    Unknown,
}
