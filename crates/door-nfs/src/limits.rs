//! Limits that the transport, the compound engine and the operations of head and pools share.

/// Largest READ and WRITE.
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;
