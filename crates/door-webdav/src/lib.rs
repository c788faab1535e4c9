//! The HTTP and WebDAV door (RFC 9110, 9112, 4918; HTTP-TPC of WLCG).
//!
//! The front at the head knows paths, callers, locks and the conflict table; the data face at a pool moves the bytes
//! that a ticket names. Both are a `http_server::Service`. A PUT becomes visible when it is complete and agrees with
//! its checksums; one that ends otherwise leaves nothing, but for the parts of an upload in parts (`put/resume.rs`). Only `refusal.rs` turns the seams' errors into statuses.
//!
//! Absent: the page for browsers and the administrator's interface (`admin`), connections and TLS (`http-server`).

#![forbid(unsafe_code)]

mod call;
mod collection;
mod completions;
mod conditions;
mod data;
mod elsewhere;
mod front;
mod get;
mod index;
mod live;
mod lock;
mod locks;
mod propfind;
mod proppatch;
mod put;
mod refusal;
mod relocate;
mod representation;
mod resolve;
mod service;
mod sums;
mod survey;
mod tasks;
mod ticket;
mod tpc;
mod upload;

pub use data::{DataFace, DataFaceConfig};
pub use front::{Front, FrontConfig, FrontService, FrontServices, NAME, Redirect};
pub use tpc::TransferConfig;
