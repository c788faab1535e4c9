//! XDR (RFC 4506) over shared bytes.
//!
//! Invariants: file data is never copied (a decoded [`Opaque`] is a slice of the received buffer, an encoded one
//! of [`SHARE_MIN`] bytes or more becomes a segment of its own), and a length or count from the wire allocates
//! nothing before the bytes it promises are known to be there.
//!
//! Padding is checked for presence and not for content: the Linux kernel ignores what the pad bytes hold, and so
//! a peer that relies on it would be refused for nothing. We always send zeros.
//!
//! Deliberately absent: floating point, quadruple precision, and reading from streams.

#![forbid(unsafe_code)]

// The code that the derive generates says `::xdr::`, in this crate too.
extern crate self as xdr;

mod decoder;
mod encoder;
mod error;
mod opaque;
mod values;

pub use bytes::Bytes;
pub use decoder::{Decoder, Limits};
pub use encoder::{Encoder, Mark, SHARE_MIN};
pub use error::XdrError;
pub use opaque::Opaque;
pub use values::{Bounded, from_bytes, to_bytes};
pub use xdr_derive::Xdr;

/// A value with one XDR representation.
pub trait Xdr: Sized {
    /// Appends the value; encoding cannot fail, since types hold only what can be said in XDR.
    fn encode(&self, e: &mut Encoder);

    /// Takes one value off the front. After an error the decoder's position is unspecified.
    fn decode(d: &mut Decoder) -> Result<Self, XdrError>;
}
