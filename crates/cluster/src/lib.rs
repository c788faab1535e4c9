//! Heads and pools on different hosts.
//!
//! A pool host dials the head: one connection for what both tell each other (`session`), and others on which the head moves
//! data (`remote`). Both are our own ONC RPC program (`rpc`, `wire`) over TLS with certificates of the cluster's own
//! authority (`trust`). A pool honours tickets to write under a lease only (`leased`), so that a head can give up on a pool
//! that it does not reach. The rules of this are those of `cluster-state`.
//!
//! Floor 3b. It knows no namespace, no door and no disk: the binary gives it the pool that it serves.

mod face;
mod head;
mod leased;
mod making;
mod member;
mod remote;
mod rotation;
mod rpc;
mod service;
mod session;
mod tasks;
mod transport;
pub mod trust;
mod wire;

pub use cluster_state::{
    Arrival, HeldLease, HeldTerms, LeaseRules, Process, Refusal, Renewal, SessionId, Standing,
};
pub use face::{
    ArrivedBytes, DataFaces, Denied, FaceError, FaceHold, FaceLink, HOLDS_MAX as FACE_HOLDS_MAX, HeadHttp,
    HeldVersion, Hold, HttpFace, StoredVersion,
};
pub use head::{Registry, Seat, Told, serve, serve_at};
pub use leased::LeasedPool;
pub use making::MakingPool;
pub use member::{
    Admission, Joining, KeyRing, MemberConfig, MemberError, MemberReport, MemberStanding, Membership,
    PoolMember, join,
};
pub use remote::{RemotePool, RemoteReport};
pub use rotation::{Certified, KeyRegistry, KeySet, KeyStore};
pub use rpc::{Answerer, CallError, Connection, PROGRAM, Refused, VERSION};
pub use rustls::ServerConfig as HeadTls;
pub use service::PoolService;
pub use session::{Held, Hello, Join, Joined, Key, Keys, Terms};
pub use tasks::{Host, Tasks};
pub use transport::{ByteStream, Caller, Dialer, Identified, Port, TlsDialer};
pub use wire::{Greeting, Status};
