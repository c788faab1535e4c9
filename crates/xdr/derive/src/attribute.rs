//! Reading `#[xdr(...)]`.

use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, Ident, Result, Token};

/// The number of a union's arm.
pub enum Arm {
    Number(Box<Expr>),
    Default,
}

/// Whether a type says `#[xdr(union)]`.
pub fn is_union(attributes: &[Attribute]) -> Result<bool> {
    let Some(attribute) = only(attributes)? else { return Ok(false) };
    let word: Ident = attribute.parse_args()?;
    if word == "union" {
        Ok(true)
    } else {
        Err(Error::new(word.span(), "expected `union`, the only xdr attribute of a type"))
    }
}

/// The bound of a field, if it has one.
pub fn max(attributes: &[Attribute]) -> Result<Option<Expr>> {
    let Some(attribute) = only(attributes)? else { return Ok(None) };
    attribute
        .parse_args_with(|input: ParseStream| {
            let word: Ident = input.parse()?;
            if word != "max" {
                return Err(Error::new(
                    word.span(),
                    "expected `max = EXPR`, the only xdr attribute of a field",
                ));
            }
            input.parse::<Token![=]>()?;
            input.parse()
        })
        .map(Some)
}

/// The number of a variant, if it has one.
pub fn arm(attributes: &[Attribute]) -> Result<Option<Arm>> {
    let Some(attribute) = only(attributes)? else { return Ok(None) };
    attribute
        .parse_args_with(|input: ParseStream| {
            let keyword = "default";
            if input.fork().parse::<Ident>().is_ok_and(|word| word == keyword) {
                input.parse::<Ident>()?;
                return Ok(Arm::Default);
            }
            input.parse().map(|number| Arm::Number(Box::new(number)))
        })
        .map(Some)
}

fn only(attributes: &[Attribute]) -> Result<Option<&Attribute>> {
    let mut ours = attributes.iter().filter(|attribute| attribute.path().is_ident("xdr"));
    let first = ours.next();
    match ours.next() {
        Some(second) => Err(Error::new(second.span(), "only one xdr attribute may stand here")),
        None => Ok(first),
    }
}
