//! Services and configuration that the binary gives the door at the head.

use std::sync::Arc;
use std::time::Duration;

use api::{FormerTickets, HandleKey, Lineage, Namespace, Observer, RecoveryRecords, TicketKeys, Xattrs};
use files::Files;
use nfs4_state::{Courtesy, DelegationRules};
use types::{Clock, Random};

use crate::exports::Export;
use crate::owners::OwnerNames;
use crate::security::Security;

/// Services that the door calls, known by their traits only.
pub struct HeadServices {
    pub namespace: Arc<dyn Namespace>,
    pub lineage: Arc<dyn Lineage>,
    pub xattrs: Arc<dyn Xattrs>,
    pub records: Arc<dyn RecoveryRecords>,
    pub files: Arc<Files>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub observer: Arc<dyn Observer>,
    pub handle_key: HandleKey,
    pub ticket_keys: TicketKeys,
    pub former_tickets: Arc<dyn FormerTickets>,
}

pub struct HeadConfig {
    pub instance: [u8; 16],
    pub lease: Duration,
    pub courtesy: Courtesy,
    pub grace: Duration,
    /// Without any, no client sees anything.
    pub exports: Vec<Export>,
    pub security: Arc<Security>,
    /// Names of users and groups for clients that want names; without them all clients get numbers.
    pub owners: Option<Arc<OwnerNames>>,
    pub clients_max: usize,
    /// Per listener.
    pub connections_max: usize,
    /// Of calls on their way in, calls under way, and replies, in memory: of each.
    pub flight_bytes_max: u64,
    pub slots_max: u32,
    /// Clients are told to read and write smaller files through the head; 0: none.
    pub layout_bytes_min: u64,
    /// A COPY that takes longer is carried on when it is answered, where the client would have that.
    pub copy_answer: Duration,
    pub delegations: DelegationRules,
}
