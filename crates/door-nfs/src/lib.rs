//! The NFS door: NFSv4.1/4.2 at the head (metadata server, pNFS flex-files) and at the pools (data servers).
//!
//! One compound engine, two operation tables (`mds`, `ds`). The door knows XDR and states; semantics it knows only
//! through `api`. Results are encoded in `compound` only, semantic errors become status codes in `status` only.
//!
//! ```text
//! transport -> compound -> mds (head)  -> api::Namespace, api::PoolManager, access (the conflict table)
//!                       -> ds  (pool)  -> api::Pool
//! ```

mod callback;
mod compound;
mod context;
mod ds;
mod exports;
mod fh;
mod head;
mod mds;
mod operations;
mod pool_door;
mod security;
mod session_ops;
mod status;
mod transport;

pub use exports::{Export, ExportError, ExportRules, Hosts, Squash};
pub use head::{ClientStatus, DoorStatus, HeadConfig, HeadDoor, HeadServices, PoolReports, StartError};
pub use nfs4_state::{DelegationMode, DelegationRules};
pub use pool_door::{PoolDoor, PoolDoorConfig};
pub use security::{Flavor, Kerberos, LocalUsers, Security, SecurityStatus};

/// Largest READ and WRITE, at head and pools.
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;
