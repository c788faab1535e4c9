//! The seams: what services and doors know of each other.
//!
//! Floor 2. Traits, the values they exchange, tickets and their keys, running checksums, and the list of pools that managers
//! keep; no implementation of a seam. Services and doors never import each
//! other: they meet as these traits in the binary. The traits are the only `async` on floors 0 to 2.

pub mod acls;
pub mod answers;
pub mod authenticator;
pub mod birth;
pub mod cuts;
pub mod description;
pub mod directories;
pub mod error;
pub mod io;
pub mod keys;
pub mod lineage;
pub mod local_range;
pub mod locality;
pub mod namespace;
pub mod observer;
pub mod paths;
pub mod pool;
pub mod pool_list;
pub mod pool_manager;
pub mod quotas;
pub mod ranges;
pub mod records;
pub mod sums;
pub mod term_floor;
pub mod ticket;
pub mod uploads;
pub mod xattrs;

pub use acls::Acls;
pub use answers::Answers;
pub use authenticator::{
    Activities, Activity, AuthError, Authenticator, Caller, Credential, Macaroon, MacaroonRequest, Origin,
    PathGrant, Role,
};
pub use birth::Birth;
pub use cuts::{Cut, CutNotes, CutNumber};
pub use description::Description;
pub use directories::{Consistency, Directories};
pub use error::{NamespaceError, PoolError, SelectError};
pub use io::{IoHandle, ReadData, Stability, Verifier};
pub use keys::{AcceptedKeys, HandleKey, KeyGeneration, KeyMaterial, PoolKey, Sealer, Term, TicketKeys};
pub use lineage::Lineage;
pub use local_range::LocalRange;
pub use locality::{Locality, ReplicaRef, ReplicaState};
pub use namespace::{
    Cookie, CreateKind, CreateMode, CreateSpec, Created, DirEntry, ExpectedEnds, ExpectedFile, Found, Linked,
    Namespace, Page, Renamed, Replace, SetAttributes, SetTime, Unlinked, Usage, Written,
};
pub use observer::{Observer, Subject, Unobserved};
pub use paths::Paths;
pub use pool::{
    ANSWER_TIME, BATCH_LEN_MAX, OpenReplica, Pool, PoolStatus, ReplicaFacts, Synced, WriteThrough,
};
pub use pool_list::{Face, FaceElsewhere, PoolList, PoolListError};
pub use pool_manager::{
    ClientReport, Grant, Outcome, PoolManager, Purpose, Selection, TransferReport, Transfers,
};
pub use quotas::{Account, Counted, Limit, QUOTAS_MAX, Quota, Quotas, Scope, Standing};
pub use ranges::{Advice, RangeKind, ReplicaRanges, Source, Stretch};
pub use records::{ClientRecord, FileLocations, Locations, RecoveryRecords};
pub use sums::{Sums, mismatch};
pub use term_floor::{FormerTickets, TermFloor, WritePass};
pub use ticket::{Conditions, Demand, OpenedTicket, Presence, SEALED_BYTES, Ticket, TicketError, TicketMode};
pub use uploads::{
    PROPERTIES_BYTES_MAX, Properties, Property, PropertyChange, Publish, Published, Unnamed, Uploads,
};
pub use xattrs::{ListedXattr, SetXattr, XATTR_BYTES_MAX, XATTR_NAMES_BYTES_MAX, XATTRS_BYTES_MAX, Xattrs};
