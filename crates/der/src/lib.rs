//! As much of the Distinguished Encoding Rules (X.690) as Kerberos, proxy certificates and VOMS need: tags of one byte,
//! lengths that are known.
//!
//! The reader borrows the bytes that it reads and goes no deeper than its caller asks, so nothing here recurses or allocates
//! by what a peer says. It accepts only the shortest form of a length.

mod error;
mod reader;
mod tag;
mod value;
mod writer;

pub use error::DerError;
pub use reader::{Element, Reader, only};
pub use tag::Tag;
pub use value::{dotted, flags, int32, integer, octets_of_bits, time, uint32, unsigned};
pub use writer::{field, put_integer, put_time, tagged};
