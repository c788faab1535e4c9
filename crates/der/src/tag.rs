//! Tags as they stand on the wire.

/// A tag with its class and form, as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub u8);

impl Tag {
    pub const BOOLEAN: Self = Tag(0x01);
    pub const INTEGER: Self = Tag(0x02);
    pub const BIT_STRING: Self = Tag(0x03);
    pub const OCTET_STRING: Self = Tag(0x04);
    pub const OBJECT_IDENTIFIER: Self = Tag(0x06);
    pub const UTF8_STRING: Self = Tag(0x0c);
    pub const PRINTABLE_STRING: Self = Tag(0x13);
    pub const T61_STRING: Self = Tag(0x14);
    pub const IA5_STRING: Self = Tag(0x16);
    pub const GENERALIZED_TIME: Self = Tag(0x18);
    pub const VISIBLE_STRING: Self = Tag(0x1a);
    pub const GENERAL_STRING: Self = Tag(0x1b);
    pub const UNIVERSAL_STRING: Self = Tag(0x1c);
    pub const BMP_STRING: Self = Tag(0x1e);
    pub const SEQUENCE: Self = Tag(0x30);
    pub const SET: Self = Tag(0x31);

    /// `[APPLICATION n]`, constructed.
    pub const fn application(n: u8) -> Self {
        Tag(0x60 | n)
    }

    /// `[n]` over a constructed value, or an explicit tag: Kerberos tags every field so.
    pub const fn context(n: u8) -> Self {
        Tag(0xa0 | n)
    }

    /// `[n]` over a primitive value.
    pub const fn context_primitive(n: u8) -> Self {
        Tag(0x80 | n)
    }
}
