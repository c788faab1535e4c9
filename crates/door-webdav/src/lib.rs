//! The HTTP and WebDAV door (RFC 9110, 9112, 4918; HTTP-TPC of WLCG).
//!
//! The front at the head knows paths, callers, locks and the conflict table; the data face at a pool moves the bytes
//! that a ticket names. Both are a `http_server::Service`. A PUT becomes visible when it is complete and agrees with
//! its checksums; one that ends otherwise leaves nothing, but for the parts of an upload in parts (`put/resume.rs`). Only `refusal.rs` turns the seams' errors into statuses.
//!
//! `Front` gives each request to the part that serves its method (`front.rs`); the parts are put together in `assembly.rs`,
//! and each has only those that it asks.
//!
//! Absent: the page for browsers and the administrator's interface (`admin`), connections and TLS (`http-server`).

#![forbid(unsafe_code)]

mod access;
mod admission;
mod assembly;
mod call;
mod changes;
mod collections;
mod completions;
mod conditions;
mod data;
mod deletes;
mod front;
mod front_config;
mod get;
mod host;
mod index;
mod live;
mod lock;
mod lock_table;
mod macaroons;
mod multistatus;
mod options;
mod own_urls;
mod path_locks;
mod propfind;
mod proppatch;
mod put;
mod redirects;
mod refusal;
mod relocate;
mod removals;
mod representation;
mod resolve;
mod sums;
mod tasks;
mod third_party;
mod ticket;
mod tpc;
mod tree;
mod upload;
mod well_known;

pub use completions::{Completions, FileVersion, LocalCompletions, PoolCompletions, StoredUpload};
pub use data::{DataFace, DataFaceConfig, HeadPlace};
pub use front::{Front, FrontService};
pub use front_config::{FrontConfig, FrontServices, NAME, Redirect};
pub use refusal::Refusal;
pub use representation::Hold;
pub use tpc::{CopyCounts, CopyFigures, Direction, ThirdPartyConfig};
