//! The NFS door: NFSv4.1/4.2 at the head (metadata server, pNFS flex-files) and at the pools (data servers).
//!
//! One compound engine, two operation tables (`mds`, `ds`). The door knows XDR and states; semantics it knows only
//! through `api`. Results are encoded in `compound` only, semantic errors become status codes in `status` only.
//!
//! ```text
//! transport -> compound -> mds (head)  -> files (bytes, entries, pools, the conflict table), api::Namespace
//!                       -> ds  (pool)  -> api::Pool
//! ```

mod asking;
mod callback;
mod compound;
mod context;
#[cfg(feature = "direct")]
pub mod direct;
mod ds;
mod exports;
mod fh;
mod head;
mod head_config;
mod limits;
mod mds;
mod operation_table;
mod operations;
mod owners;
mod pool_door;
mod security;
mod session_ops;
mod stability;
mod status;
mod transport;

pub use asking::NamesUnavailable;
pub use exports::{Export, ExportError, ExportRules, Hosts, ServedHosts, Squash};
pub use head::{ClientStatus, CopyStatus, DoorStatus, HeadDoor, PoolReports, StartError};
pub use head_config::{HeadConfig, HeadServices};
pub use mds::GrantCounts;
pub use nfs4_state::{Courtesy, DelegationMode, DelegationRules, WriteDelegations};
pub use owners::{LocalNames, OwnerKind, OwnerNames};
pub use pool_door::{PoolDoor, PoolDoorConfig};
pub use security::{Flavor, Flavors, Kerberos, LocalUsers, Security, SecurityStatus};
pub use transport::Flight;

/// As messages and statistics name the door, and as a pool manager knows the addresses of pools for it.
pub const NAME: &str = "nfs";
