//! `derive(Xdr)` for structs, enums and discriminated unions (RFC 4506 §4.3, §4.14, §4.15).
//!
//! * struct: its fields in order;
//! * enum without data, `#[repr(u32)]`: its number;
//! * enum with `#[xdr(union)]`: the number of the arm, then the arm's fields. Each variant names its number by
//!   `#[xdr(EXPR)]`; one may be `#[xdr(default)]` with a single `u32` that keeps the number, and a void body.
//!
//! `#[xdr(max = EXPR)]` on a field bounds an opaque, a string or an array when it is decoded.

#![forbid(unsafe_code)]

mod attribute;
mod fields;
mod shape;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `xdr::Xdr`; see the crate's own page.
#[proc_macro_derive(Xdr, attributes(xdr))]
pub fn derive_xdr(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    shape::implementation(input).unwrap_or_else(|error| error.into_compile_error()).into()
}
