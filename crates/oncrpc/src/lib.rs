//! ONC RPC version 2 (RFC 5531): record marking, calls, replies, AUTH_SYS, RPCSEC_GSS (RFC 2203).
//!
//! Sans-io: bytes in, values out. The transport owns the socket and the buffer, the doors own the programs.
//!
//! Invariants: a record that came in one fragment is never copied, everything a peer announces is bounded before
//! it is believed, and a call that cannot be served says which reply it is due.
//!
//! Deliberately absent: UDP, portmapper, and the tokens inside RPCSEC_GSS (they are bytes here).

#![forbid(unsafe_code)]

mod auth;
mod call;
mod credential;
mod gss;
mod message;
mod record;
mod reply;

pub use auth::{AUTH_BODY_MAX, AuthFlavor, AuthStat, OpaqueAuth};
pub use call::{CallError, CallHeader};
pub use credential::{AuthSys, Credential, GIDS_MAX, MACHINE_NAME_MAX};
pub use gss::{
    GssCredential, GssInitArgs, GssInitRes, GssProcedure, GssService, IntegrityBody, SequenceFate,
    SequenceWindow, privacy_token, signed_header, unnumbered,
};
pub use message::{MessageType, RPC_VERSION, message_type};
pub use record::{RecordError, RecordReader, record_header};
pub use reply::{AcceptedReply, AcceptedStatus, RejectedReply, ReplyBody, ReplyHeader};
