//! The HTTP data face of a pool on another host: what it asks its head, over the control connection.
//!
//! ```text
//! HOLD      is this version current? Then the file is held under a number that the pool draws
//! TELL      holds to release, uploads that are put off or given up
//! BEGIN     the bytes of an upload are about to come in -> the sums that will be compared
//! COMPLETE  all bytes are on the disk -> the file has its name. It may be asked again
//! ```
//!
//! The head answers for files and uploads of the pool that asks, and for no others. Holds end with the session. Uploads that
//! have begun belong to the process of the pool.

mod desk;
mod link;
#[cfg(test)]
mod tests;
mod wire;

use std::any::Any;

use async_trait::async_trait;
use types::{Checksum, ChecksumKind, FileId, IoMode, Network, PoolId, Timestamp};
use xdr::{Decoder, Encoder, Opaque, Xdr, XdrError};

pub(crate) use desk::{ABSENCE_MAX, FaceDesk, Holds};
pub use link::{FaceError, FaceHold, FaceLink};

/// Numbers of procedures. The program keeps those from 40 to 59 for data faces.
pub mod procedure {
    pub const HOLD: u32 = 40;
    pub const TELL: u32 = 41;
    pub const BEGIN: u32 = 42;
    pub const COMPLETE: u32 = 43;

    pub(crate) const ALL: std::ops::RangeInclusive<u32> = 40..=59;
}

/// Of names of hosts.
const NAME_MAX: usize = 253;
const NETWORK_BYTES_MAX: usize = 64;
const NETWORKS_MAX: usize = 64;
/// Holds of one pool at a time.
pub const HOLDS_MAX: usize = 4_096;

/// How clients reach the data face of a pool, beside its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpFace {
    pub port: u16,
    /// As the certificate of the pool host names it. `None`: clients go to the address of the pool.
    pub name: Option<String>,
    pub is_tls: bool,
    /// Clients of these may come without TLS.
    pub plain_networks: Vec<Network>,
}

/// Where clients reach HTTP of the head.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct HeadHttp {
    /// Empty: as the pool host reaches the head.
    #[xdr(max = NAME_MAX)]
    pub name: String,
    pub port: u32,
}

/// Holds a file until it is dropped.
pub type Hold = Box<dyn Any + Send + Sync>;

/// A file as it is while it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldVersion {
    pub birth: Timestamp,
    pub size: u64,
    pub mtime: Timestamp,
    pub io: IoMode,
}

/// Data that is on the disk of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivedBytes {
    pub size: u64,
    pub checksums: Vec<Checksum>,
}

/// A file that has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct StoredVersion {
    pub file: u64,
    pub change: u64,
    /// Nothing had the name before.
    pub is_new: bool,
}

/// Why the head does not do it, as the client is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Of HTTP.
    pub status: u16,
    pub reason: String,
    /// The client may come again in a moment (`Retry-After`).
    pub is_passing: bool,
    /// XML that says why, in place of the reason.
    pub xml: Option<Vec<u8>>,
}

/// The head's answers to data faces; the binary gives them. Every call says which pool asks.
#[async_trait]
pub trait DataFaces: Send + Sync + 'static {
    /// `None`: the file is another version, has no name, or is not on this pool.
    async fn hold(
        &self,
        pool: PoolId,
        file: FileId,
        change: u64,
    ) -> Result<Option<(Hold, HeldVersion)>, Denied>;

    /// `has_bytes`: the pool has all the bytes, and compares those that come in with them.
    async fn begin(&self, pool: PoolId, file: FileId, has_bytes: bool) -> Result<Vec<ChecksumKind>, Denied>;

    /// The upload may be begun again.
    fn put_off(&self, pool: PoolId, file: FileId);

    /// The upload is over.
    fn give_up(&self, pool: PoolId, file: FileId);

    async fn complete(
        &self,
        pool: PoolId,
        file: FileId,
        arrived: ArrivedBytes,
    ) -> Result<StoredVersion, Denied>;
}

/// A field at the end of a message that a peer of before does not send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added<T>(pub Option<T>);

impl<T: Xdr> Xdr for Added<T> {
    fn encode(&self, e: &mut Encoder) {
        self.0.encode(e);
    }

    fn decode(d: &mut Decoder) -> Result<Added<T>, XdrError> {
        if d.is_empty() { Ok(Added(None)) } else { Option::decode(d).map(Added) }
    }
}

/// An [`HttpFace`] on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct ToldFace {
    port: u32,
    #[xdr(max = NAME_MAX)]
    name: String,
    is_tls: bool,
    #[xdr(max = NETWORKS_MAX)]
    plain_networks: Vec<ToldNetwork>,
}

#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
struct ToldNetwork {
    #[xdr(max = NETWORK_BYTES_MAX)]
    text: String,
}

impl ToldFace {
    pub fn of(face: &HttpFace) -> ToldFace {
        let networks = face.plain_networks.iter().take(NETWORKS_MAX);
        ToldFace {
            port: face.port.into(),
            name: face.name.clone().unwrap_or_default(),
            is_tls: face.is_tls,
            plain_networks: networks.map(|network| ToldNetwork { text: network.to_string() }).collect(),
        }
    }

    /// The error is told to the pool host.
    pub fn into_face(self) -> Result<HttpFace, String> {
        let port = u16::try_from(self.port).ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| format!("its HTTP port {} is none", self.port))?;
        let is_in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if !self.name.chars().all(is_in_name) {
            return Err(format!("its HTTP name {:?} is no name of a host", self.name));
        }
        let networks = self.plain_networks.into_iter().map(|network| network.text.parse());
        Ok(HttpFace {
            port,
            name: Some(self.name).filter(|name| !name.is_empty()),
            is_tls: self.is_tls,
            plain_networks: networks.collect::<Result<_, String>>()?,
        })
    }
}

/// Bytes of a reason and of XML in one message.
const REASON_BYTES_MAX: usize = 1_024;
const XML_BYTES_MAX: usize = 8_192;

/// [`Denied`] on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
struct ToldDenial {
    status: u32,
    #[xdr(max = REASON_BYTES_MAX)]
    reason: String,
    is_passing: bool,
    #[xdr(max = XML_BYTES_MAX)]
    xml: Opaque,
}

impl ToldDenial {
    fn of(denied: Denied) -> ToldDenial {
        let Denied { status, reason, is_passing, xml } = denied;
        let xml = xml.filter(|xml| xml.len() <= XML_BYTES_MAX).unwrap_or_default();
        let reason = crate::wire::shortened(reason, REASON_BYTES_MAX);
        ToldDenial { status: status.into(), reason, is_passing, xml: Opaque(xml.into()) }
    }

    fn into_denied(self) -> Denied {
        let ToldDenial { status, reason, is_passing, xml } = self;
        // A head that answers nonsense has failed.
        let status = u16::try_from(status).ok().filter(|status| (400..600).contains(status)).unwrap_or(500);
        let xml = Some(xml.0.to_vec()).filter(|xml| !xml.is_empty());
        Denied { status, reason, is_passing, xml }
    }
}
