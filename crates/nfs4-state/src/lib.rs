//! NFSv4.1 clients, sessions, slots, stateids, leases and grace, without I/O.
//!
//! [`SessionTable`] is one machine for both roles, head and pool. It is told the time and where requests come from,
//! and answers verdicts; what must be durable before a reply may leave is returned as [`Action`]. The caller holds a
//! lock around each call and does what was said after it.

#![forbid(unsafe_code)]

mod adaptive;
mod back_channel;
mod channel;
mod client;
mod config;
mod grace;
mod session;
mod slot;
pub mod stateid;
mod table;

pub use adaptive::{Adaptive, DelegationMode, DelegationRules, WriteDelegations};
pub use back_channel::CallbackOutcome;
pub use client::Incarnation;
pub use config::{
    ConnectionId, Courtesy, Peer, Principal, RequestFacts, Role, ServerIdentity, SessionConfig, SessionLimits,
};
pub use grace::KnownClient;
pub use table::SessionTable;
pub use table::callbacks::{CallbackRefusal, CallbackTicket, Callbacks};
pub use table::clients::Clients;
pub use table::courtesy::{Holdings, Lapsed};
pub use table::establish::{CreateStep, PendingSession, Started};
pub use table::exchange::Exchanged;
pub use table::facts::{ClientFacts, SessionFacts};
pub use table::reclaims::Reclaims;
pub use table::records::{Action, Departed};
pub use table::sequence::{SequenceVerdict, SlotTicket};
pub use table::sessions::{Sessions, SlotFacts, SlotRecall};
