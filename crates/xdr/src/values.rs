//! [`Xdr`] for the types that need no declaration of their own.

use bytes::Bytes;

use crate::{Decoder, Encoder, Opaque, Xdr, XdrError};

/// A value of variable length whose bound stands at the place of use: `#[xdr(max = N)]`.
pub trait Bounded: Xdr {
    /// `max` counts bytes of an opaque or a string, items of an array.
    fn decode_bounded(d: &mut Decoder, max: usize) -> Result<Self, XdrError>;
}

/// One value as a message in one piece.
pub fn to_bytes(value: &impl Xdr) -> Bytes {
    let mut e = Encoder::new();
    value.encode(&mut e);
    e.into_bytes()
}

/// A message that is one value and nothing else.
pub fn from_bytes<T: Xdr>(bytes: Bytes) -> Result<T, XdrError> {
    let mut d = Decoder::new(bytes);
    let value = T::decode(&mut d)?;
    d.finish()?;
    Ok(value)
}

macro_rules! number {
    ($($number:ident by $put:ident),*) => {$(
        impl Xdr for $number {
            fn encode(&self, e: &mut Encoder) {
                e.$put(*self);
            }

            fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
                d.$number()
            }
        }
    )*};
}

number!(u32 by put_u32, i32 by put_i32, u64 by put_u64, i64 by put_i64, bool by put_bool);

impl Xdr for () {
    fn encode(&self, _: &mut Encoder) {}

    fn decode(_: &mut Decoder) -> Result<Self, XdrError> {
        Ok(())
    }
}

impl<A: Xdr, B: Xdr> Xdr for (A, B) {
    fn encode(&self, e: &mut Encoder) {
        self.0.encode(e);
        self.1.encode(e);
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Ok((A::decode(d)?, B::decode(d)?))
    }
}

impl<const N: usize> Xdr for [u8; N] {
    fn encode(&self, e: &mut Encoder) {
        e.opaque_fixed(self);
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        d.opaque_fixed()
    }
}

impl<T: Xdr> Xdr for Option<T> {
    fn encode(&self, e: &mut Encoder) {
        e.put_bool(self.is_some());
        if let Some(value) = self {
            value.encode(e);
        }
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        if d.bool()? { T::decode(d).map(Some) } else { Ok(None) }
    }
}

impl<T: Xdr> Xdr for Box<T> {
    fn encode(&self, e: &mut Encoder) {
        (**self).encode(e);
    }

    /// A type can only contain itself behind a box or a vector; both count as a level.
    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        d.nested(|d| T::decode(d).map(Box::new))
    }
}

impl Xdr for Opaque {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(&self.0);
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Self::decode_bounded(d, usize::MAX)
    }
}

impl Bounded for Opaque {
    fn decode_bounded(d: &mut Decoder, max: usize) -> Result<Self, XdrError> {
        d.opaque(max).map(Opaque)
    }
}

impl Xdr for String {
    fn encode(&self, e: &mut Encoder) {
        e.opaque_slice(self.as_bytes());
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Self::decode_bounded(d, usize::MAX)
    }
}

impl Bounded for String {
    fn decode_bounded(d: &mut Decoder, max: usize) -> Result<Self, XdrError> {
        d.string(max)
    }
}

impl<T: Xdr> Xdr for Vec<T> {
    fn encode(&self, e: &mut Encoder) {
        e.put_len(self.len());
        self.iter().for_each(|item| item.encode(e));
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        Self::decode_bounded(d, usize::MAX)
    }
}

impl<T: Xdr> Bounded for Vec<T> {
    fn decode_bounded(d: &mut Decoder, max: usize) -> Result<Self, XdrError> {
        d.array(max, T::decode)
    }
}
