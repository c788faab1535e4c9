//! The implementation for each shape of type.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DataEnum, DeriveInput, Error, Fields, Generics, Ident, Result, Variant, parse_quote,
};

use crate::attribute::{self, Arm};
use crate::fields;

/// The bodies of `encode(&self, e)` and `decode(d)`.
struct Bodies {
    encode: TokenStream,
    decode: TokenStream,
}

pub fn implementation(input: DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let Bodies { encode, decode } = bodies(&input)?;
    let generics = bounded(input.generics.clone())?;
    let (of, arguments, conditions) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        #[allow(clippy::unnecessary_cast, unused_variables)]
        impl #of ::xdr::Xdr for #name #arguments #conditions {
            fn encode(&self, e: &mut ::xdr::Encoder) {
                #encode
            }

            fn decode(
                d: &mut ::xdr::Decoder,
            ) -> ::core::result::Result<Self, ::xdr::XdrError> {
                #decode
            }
        }
    })
}

fn bodies(input: &DeriveInput) -> Result<Bodies> {
    let union = attribute::is_union(&input.attrs)?;
    match &input.data {
        Data::Struct(data) if !union => structure(&data.fields),
        Data::Enum(data) if union => discriminated_union(&input.ident, data),
        Data::Enum(data) => enumeration(input, data),
        Data::Struct(_) => Err(Error::new(input.ident.span(), "an XDR union is written as an enum")),
        Data::Union(data) => {
            Err(Error::new(data.union_token.span(), "an XDR union is written as an enum with #[xdr(union)]"))
        }
    }
}

fn structure(fields: &Fields) -> Result<Bodies> {
    let pattern = fields::pattern(fields);
    let encodes = fields::encode(fields);
    let decodes = fields::decode(fields)?;
    Ok(Bodies {
        encode: quote! { let Self #pattern = self; #encodes },
        decode: quote! { #decodes ::core::result::Result::Ok(Self #pattern) },
    })
}

fn enumeration(input: &DeriveInput, data: &DataEnum) -> Result<Bodies> {
    let name = &input.ident;
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new(variant.span(), "a variant with data needs #[xdr(union)] on the enum"));
        }
        if attribute::arm(&variant.attrs)?.is_some() {
            return Err(Error::new(
                variant.span(),
                "the number stands as `= NUMBER`, or #[xdr(union)] is missing",
            ));
        }
    }
    if !has_repr_u32(&input.attrs) {
        return Err(Error::new(name.span(), "an XDR enum needs #[repr(u32)], or #[xdr(union)]"));
    }
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let numbers: Vec<_> = (0..variants.len()).map(|index| format_ident!("NUMBER_{index}")).collect();
    let text = name.to_string();
    Ok(Bodies {
        encode: quote! {
            e.put_u32(match self { #(Self::#variants => #name::#variants as u32,)* });
        },
        decode: quote! {
            #(const #numbers: u32 = #name::#variants as u32;)*
            match d.u32()? {
                #(#numbers => ::core::result::Result::Ok(Self::#variants),)*
                value => ::core::result::Result::Err(
                    ::xdr::XdrError::InvalidDiscriminant { type_name: #text, value },
                ),
            }
        },
    })
}

fn discriminated_union(name: &Ident, data: &DataEnum) -> Result<Bodies> {
    let (mut constants, mut encodes, mut decodes) = (Vec::new(), Vec::new(), Vec::new());
    let mut default = None;
    for (index, variant) in data.variants.iter().enumerate() {
        let ident = &variant.ident;
        match attribute::arm(&variant.attrs)? {
            None => {
                return Err(Error::new(
                    variant.span(),
                    "an arm needs its number, #[xdr(EXPR)], or #[xdr(default)]",
                ));
            }
            Some(Arm::Default) if default.is_some() => {
                return Err(Error::new(variant.span(), "a union has one default arm"));
            }
            Some(Arm::Default) => {
                default_is_one_number(variant)?;
                encodes.push(quote!(Self::#ident(value) => e.put_u32(*value),));
                default = Some(ident);
            }
            Some(Arm::Number(number)) => {
                let constant = format_ident!("ARM_{index}");
                let pattern = fields::pattern(&variant.fields);
                let encode = fields::encode(&variant.fields);
                let decode = fields::decode(&variant.fields)?;
                constants.push(quote!(const #constant: u32 = (#number) as u32;));
                encodes.push(quote!(Self::#ident #pattern => { e.put_u32(#constant); #encode }));
                decodes
                    .push(quote!(#constant => { #decode ::core::result::Result::Ok(Self::#ident #pattern) }));
            }
        }
    }
    let text = name.to_string();
    let otherwise = match default {
        Some(ident) => quote!(::core::result::Result::Ok(Self::#ident(value))),
        None => quote!(::core::result::Result::Err(
            ::xdr::XdrError::InvalidDiscriminant { type_name: #text, value },
        )),
    };
    // Two arms of one number are a mistake of the declaration; the compiler says so at the second.
    Ok(Bodies {
        encode: quote! { #(#constants)* match self { #(#encodes)* } },
        decode: quote! {
            #(#constants)*
            #[deny(unreachable_patterns)]
            match d.u32()? { #(#decodes)* value => #otherwise, }
        },
    })
}

fn default_is_one_number(variant: &Variant) -> Result<()> {
    let keeps_number = match &variant.fields {
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
            matches!(&fields.unnamed[0].ty, syn::Type::Path(path) if path.path.is_ident("u32"))
        }
        _ => false,
    };
    if keeps_number {
        Ok(())
    } else {
        Err(Error::new(variant.span(), "the default arm holds its number and no more: `Other(u32)`"))
    }
}

fn has_repr_u32(attributes: &[Attribute]) -> bool {
    let is_u32 = |attribute: &Attribute| attribute.parse_args::<Ident>().is_ok_and(|repr| repr == "u32");
    attributes.iter().any(|attribute| attribute.path().is_ident("repr") && is_u32(attribute))
}

/// Every type parameter must itself be XDR; a borrowed value cannot be decoded.
fn bounded(mut generics: Generics) -> Result<Generics> {
    if let Some(lifetime) = generics.lifetimes().next() {
        return Err(Error::new(
            lifetime.span(),
            "a decoded value borrows nothing: use `Opaque` or an owned type",
        ));
    }
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::xdr::Xdr));
    }
    Ok(generics)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(input: DeriveInput) -> String {
        implementation(input).expect_err("the declaration is wrong").to_string()
    }

    #[test]
    fn an_enum_with_data_is_told_to_be_a_union() {
        let said = complaint(parse_quote!(
            #[repr(u32)]
            enum E {
                A = 1,
                B(u32),
            }
        ));
        assert_eq!(said, "a variant with data needs #[xdr(union)] on the enum");
    }

    #[test]
    fn an_enum_of_unsaid_width_is_refused() {
        let said = complaint(parse_quote!(
            enum E {
                A = 1,
            }
        ));
        assert_eq!(said, "an XDR enum needs #[repr(u32)], or #[xdr(union)]");
    }

    #[test]
    fn an_arm_without_a_number_is_refused() {
        let said = complaint(parse_quote!(
            #[xdr(union)]
            enum U {
                #[xdr(0)]
                A,
                B,
            }
        ));
        assert_eq!(said, "an arm needs its number, #[xdr(EXPR)], or #[xdr(default)]");
    }

    #[test]
    fn a_default_arm_with_a_body_is_refused() {
        let said = complaint(parse_quote!(
            #[xdr(union)]
            enum U {
                #[xdr(default)]
                Other(u32, u32),
            }
        ));
        assert_eq!(said, "the default arm holds its number and no more: `Other(u32)`");
    }

    #[test]
    fn an_unknown_attribute_is_refused() {
        let said = complaint(parse_quote!(
            struct S {
                #[xdr(maximum = 3)]
                name: Opaque,
            }
        ));
        assert_eq!(said, "expected `max = EXPR`, the only xdr attribute of a field");
        let said = complaint(parse_quote!(
            #[xdr(onion)]
            enum U {}
        ));
        assert_eq!(said, "expected `union`, the only xdr attribute of a type");
    }

    #[test]
    fn a_borrowed_field_is_refused() {
        let said = complaint(parse_quote!(
            struct S<'a> {
                name: &'a [u8],
            }
        ));
        assert_eq!(said, "a decoded value borrows nothing: use `Opaque` or an owned type");
    }
}
