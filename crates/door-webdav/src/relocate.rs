//! COPY and MOVE inside the instance (RFC 4918 §9.8, §9.9): the server does them, no byte passes the client.

pub(crate) mod beside;
pub(crate) mod copier;
pub(crate) mod copies;
pub(crate) mod ends;
pub(crate) mod moves;
pub(crate) mod survey;
mod until_seen;
