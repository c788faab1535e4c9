//! The program behind a listener: the transport brings it calls, and asks it about hosts and connections.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use nfs4_state::{ConnectionId, Principal};

use super::connection::Connection;
use super::flight::CallPlace;
use crate::exports::{Claimed, View};
use crate::security::{Flavor, Kerberos};

pub(crate) trait Program: Send + Sync + 'static {
    /// The view of a client with this address. `None`: the address is not served.
    fn admit(&self, peer: IpAddr) -> Option<Arc<View>>;
    /// Whether a host is one of those that something is exported to.
    fn is_served(&self, peer: IpAddr) -> bool;
    /// Changes whenever `admit` may answer differently.
    fn exports_version(&self) -> u64;
    /// `None`: Kerberos is not served.
    fn kerberos(&self) -> Option<&Kerberos>;
    /// Whether a session has the connection for its calls or for those to its client.
    fn is_used(&self, connection: ConnectionId) -> bool;
    /// The transport has closed a connection.
    fn disconnected(&self, connection: ConnectionId);
    /// Runs one COMPOUND; the segments are the encoded `COMPOUND4res`. The reply counts against `place`.
    fn call(
        &self,
        caller: Caller,
        body: Bytes,
        place: &mut CallPlace,
    ) -> impl Future<Output = Result<Vec<Bytes>, GarbageArguments>> + Send;
}

/// The caller, from the RPC header, before any export squashes it.
pub(crate) struct Caller {
    pub connection: Arc<Connection>,
    /// The exports that this client sees.
    pub view: Arc<View>,
    pub claimed: Claimed,
    /// Owner of the caller's client records.
    pub principal: Principal,
    /// `None` is AUTH_NONE.
    pub flavor: Option<Flavor>,
    /// Where the record of the call begins in memory.
    pub record_address: usize,
}

impl Caller {
    /// A WRITE of the call has this payload: the next record of the connection is received so that its payload lies well.
    pub fn has_written(&self, payload: &[u8], offset: u64) {
        self.connection.payload_place().learn(self.record_address, payload, offset);
    }
}

/// The request could not be decoded as far as its operations: the RPC layer answers GARBAGE_ARGS.
#[derive(Debug)]
pub(crate) struct GarbageArguments;
