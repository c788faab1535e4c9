//! WebDAV (RFC 4918) on the wire: request bodies and headers to values, values to multistatus and error bodies.
//!
//! No I/O. The caller bounds a body at [`BODY_BYTES_MAX`] before it comes here; everything else that a peer can make
//! grow (depth, attributes, namespaces, names, values, conditions) is bounded here, and the error says so.
//! Properties that are kept for users are kept as self-contained XML, so that they can be put into an answer as they
//! are. URLs are not understood here: an `href` is written as given, percent-encoded by the caller.

mod active_lock;
#[cfg(test)]
mod clients;
mod date;
mod error_body;
mod escape;
mod header;
mod if_header;
mod live;
mod lockinfo;
mod multistatus;
mod name;
mod propfind;
mod proppatch;
mod xml;

use http::HeaderName;

pub use active_lock::{ActiveLock, lock_body};
pub use error_body::{Precondition, error_body};
pub use header::{DavHeaderError, Depth, Timeout, lock_token, overwrite};
pub use if_header::{Condition, ConditionList, IfHeader, ResourceState, State};
pub use live::LiveProperty;
pub use lockinfo::{LockInfo, LockRequest, LockScope, OWNER_BYTES_MAX};
pub use multistatus::{Multistatus, PropStats, Props};
pub use name::{PROPERTY_NAME_BYTES_MAX, QName};
pub use propfind::{PROPFIND_NAMES_BYTES_MAX, PROPFIND_NAMES_MAX, PropFind};
pub use proppatch::{PROPPATCH_OPS_MAX, PropPatch, PropPatchOp, value_text};
pub use xml::XmlError;

/// The longest request body that is read as XML.
pub const BODY_BYTES_MAX: usize = 256 << 10;

/// The header `If` (RFC 4918 §10.4). A name that is made once is found without being parsed each time.
pub const IF: HeaderName = HeaderName::from_static("if");

/// How the bodies written here are declared.
pub const XML_CONTENT_TYPE: &str = "application/xml; charset=utf-8";

/// The namespace of RFC 4918 (§21.1).
pub const DAV: &str = "DAV:";
