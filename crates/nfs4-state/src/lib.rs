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
    ConnectionId, Peer, Principal, RequestFacts, Role, ServerIdentity, SessionConfig, SessionLimits,
};
pub use grace::KnownClient;
pub use table::{
    Action, CallbackRefusal, CallbackTicket, ClientFacts, Courtesy, CreateStep, Departed, Exchanged,
    Holdings, Lapsed, PendingSession, SequenceVerdict, SessionTable, SlotFacts, SlotRecall, SlotTicket,
    Started,
};
