//! The seam between the compound engine and the operations of one kind of server: the head's or the pools'.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use nfs4::{ClientId4, NfsArgop4, NfsResop4};

use crate::context::Compound;
use crate::exports::View;

#[async_trait]
pub(crate) trait OperationTable: Send + Sync + 'static {
    /// The view of a client with this address. `None`: the address is not served.
    fn admit(&self, peer: IpAddr) -> Option<Arc<View>>;
    /// Whether a host is one of those that something is exported to.
    fn is_served(&self, peer: IpAddr) -> bool {
        self.admit(peer).is_some()
    }
    /// Changes whenever `admit` may answer differently.
    fn exports_version(&self) -> u64 {
        0
    }
    /// Whether a client has opens, locks or layouts.
    fn holds_state(&self, _client: ClientId4) -> bool {
        false
    }
    /// Releases the state of clients that are gone: a restarted client must not meet the locks of its former life.
    async fn release_departed(&self) {}
    /// Runs anything but session operations. The minor version and the presence of needed file handles are checked.
    async fn execute(&self, compound: &mut Compound, operation: NfsArgop4) -> NfsResop4;
}
