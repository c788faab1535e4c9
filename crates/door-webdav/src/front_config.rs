//! The services that the front asks, and its configuration.

use std::sync::Arc;
use std::time::Duration;

use api::{Authenticator, Namespace, Properties, TicketKeys};
use files::Files;
use types::{ChecksumKind, Clock, Random};

use crate::tpc::{CopyCounts, ThirdPartyConfig};

/// As messages and statistics name the door, and as a pool manager knows the addresses of data faces for it.
pub const NAME: &str = "http";

pub struct FrontServices {
    pub namespace: Arc<dyn Namespace>,
    pub properties: Arc<dyn Properties>,
    pub files: Arc<Files>,
    pub authenticator: Arc<dyn Authenticator>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub ticket_keys: TicketKeys,
    /// For third-party copies.
    pub client: http_client::Client,
    pub copy_counts: Arc<CopyCounts>,
}

#[derive(Clone, Debug)]
pub struct FrontConfig {
    /// For the storage record and the User-Agent of copies.
    pub site: String,
    pub redirect: Redirect,
    /// There is a certificate: the storage record names URLs of https.
    pub is_tls: bool,
    /// `host:port` by which clients know this instance, for COPY and MOVE; what the Host header says always counts.
    pub authorities: Vec<String>,
    /// Names in the root directory that are not files' here: other parts of the server answer them.
    pub reserved: &'static [&'static str],
    /// Kept for every upload; others are computed when somebody asks.
    pub checksums: Vec<ChecksumKind>,
    /// Where a browser that asks for a directory is sent, with the path appended. `None`: it gets the plain index.
    pub page: Option<String>,
    pub locks_max: usize,
    pub uploads_max: usize,
    pub uploads_per_caller_max: usize,
    pub copies: ThirdPartyConfig,
    pub lock_timeout_max: Duration,
    /// How long a change waits for layouts of NFS clients to come back before the client is told to come again.
    pub recall_patience: Duration,
}

/// Whether clients are sent to the pool that has the bytes, where they can follow: every GET but those of clients known not
/// to, a PUT that waits with its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    Never,
    /// To every pool with a data face.
    ToFaces,
}
