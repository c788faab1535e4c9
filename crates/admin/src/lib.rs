//! Interfaces for operators: metrics, health, the JSON interface and the web page.
//!
//! A door: it meets services as traits of `api`, and the instance it speaks of as [`Instance`], which the binary
//! implements. `router.rs` dispatches requests by path and puts the headers that protect browsers on every answer.
//!
//! `log` is the filter of the log whose levels the interface changes while the instance runs; `metrics` is the recorder
//! that every crate's measurements end in.
//!
//! Absent: measurements and problems (the binary and the services know them), connections and TLS (`http-server`).

#![forbid(unsafe_code)]

mod answer;
mod caller;
mod config;
#[cfg(test)]
mod fixture;
mod health;
mod host;
pub mod instance;
mod json_api;
pub mod log;
pub mod metrics;
mod page;
mod refusal;
mod router;
mod service;

pub use config::{AdminConfig, AdminServices};
pub use host::{HostAdmin, HostInstance, HostSnapshot};
pub use instance::Instance;
pub use service::{Admin, RESERVED, owns};
