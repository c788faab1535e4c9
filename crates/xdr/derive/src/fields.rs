//! The fields of a struct or of a union's arm: a pattern that binds them, their encoding, their decoding.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Field, Fields, Result};

use crate::attribute;

/// `{ a: field_0, b: field_1 }`, `(field_0, field_1)` or nothing, as the fields are written.
pub fn pattern(fields: &Fields) -> TokenStream {
    let names = names(fields);
    match fields {
        Fields::Named(named) => {
            let labels = named.named.iter().map(|field| &field.ident);
            quote!({ #(#labels: #names),* })
        }
        Fields::Unnamed(_) => quote!((#(#names),*)),
        Fields::Unit => quote!(),
    }
}

/// Statements that encode the fields that `pattern` has bound by reference.
pub fn encode(fields: &Fields) -> TokenStream {
    let encodes = fields.iter().zip(names(fields)).map(|(field, name)| {
        let ty = &field.ty;
        quote_spanned!(ty.span()=> <#ty as ::xdr::Xdr>::encode(#name, e);)
    });
    quote!(#(#encodes)*)
}

/// Statements that decode the fields into the names of `pattern`, so that it then serves as a constructor.
pub fn decode(fields: &Fields) -> Result<TokenStream> {
    let decodes = fields
        .iter()
        .zip(names(fields))
        .map(|(field, name)| {
            let value = decode_one(field)?;
            Ok(quote!(let #name = #value;))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(quote!(#(#decodes)*))
}

fn decode_one(field: &Field) -> Result<TokenStream> {
    let ty = &field.ty;
    Ok(match attribute::max(&field.attrs)? {
        Some(max) => {
            quote_spanned!(ty.span()=> <#ty as ::xdr::Bounded>::decode_bounded(d, (#max) as usize)?)
        }
        None => quote_spanned!(ty.span()=> <#ty as ::xdr::Xdr>::decode(d)?),
    })
}

fn names(fields: &Fields) -> Vec<Ident> {
    (0..fields.len()).map(|index| format_ident!("field_{index}")).collect()
}
