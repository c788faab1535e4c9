//! Reads elements one by one, without recursion.

use crate::{DerError, Tag};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    pub tag: Tag,
    pub content: &'a [u8],
    /// With tag and length, as it is signed.
    pub whole: &'a [u8],
}

impl<'a> Element<'a> {
    /// The values that the content is.
    pub fn reader(&self) -> Reader<'a> {
        Reader::new(self.content)
    }
}

/// The one element, of this tag, that `bytes` are.
pub fn only(bytes: &[u8], wanted: Tag) -> Result<Element<'_>, DerError> {
    let mut reader = Reader::new(bytes);
    let element = reader.element(wanted)?;
    reader.finish()?;
    Ok(element)
}

/// The values inside of one value, in turn.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next value, of any tag.
    pub fn next_element(&mut self) -> Result<Element<'a>, DerError> {
        let all = self.rest;
        let (&tag, after_tag) = all.split_first().ok_or(DerError::Truncated)?;
        if tag & 0x1f == 0x1f {
            return Err(DerError::LongTag);
        }
        let (len, after_length) = length(after_tag)?;
        let (content, rest) = after_length.split_at_checked(len).ok_or(DerError::Truncated)?;
        self.rest = rest;
        Ok(Element { tag: Tag(tag), content, whole: &all[..all.len() - rest.len()] })
    }

    /// The next value, which has this tag.
    pub fn element(&mut self, wanted: Tag) -> Result<Element<'a>, DerError> {
        match self.rest.first() {
            Some(found) if *found != wanted.0 => Err(DerError::Tag { wanted, found: Tag(*found) }),
            _ => self.next_element(),
        }
    }

    /// The content of the next value, which has this tag.
    pub fn value(&mut self, wanted: Tag) -> Result<&'a [u8], DerError> {
        self.element(wanted).map(|element| element.content)
    }

    /// `None`, and nothing is consumed, if another element or none follows.
    pub fn next_if(&mut self, wanted: Tag) -> Result<Option<Element<'a>>, DerError> {
        if self.rest.first() == Some(&wanted.0) { self.next_element().map(Some) } else { Ok(None) }
    }

    pub fn inside(&mut self, wanted: Tag) -> Result<Reader<'a>, DerError> {
        self.value(wanted).map(Reader::new)
    }

    /// The one value that `[n]` holds.
    pub fn field(&mut self, n: u8, wanted: Tag) -> Result<&'a [u8], DerError> {
        let mut field = self.inside(Tag::context(n))?;
        let value = field.value(wanted)?;
        field.finish()?;
        Ok(value)
    }

    pub fn optional(&mut self, n: u8, wanted: Tag) -> Result<Option<&'a [u8]>, DerError> {
        match self.rest.first() {
            Some(tag) if *tag == Tag::context(n).0 => self.field(n, wanted).map(Some),
            _ => Ok(None),
        }
    }

    pub fn finish(self) -> Result<(), DerError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DerError::Trailing) }
    }
}

fn length(bytes: &[u8]) -> Result<(usize, &[u8]), DerError> {
    let (&first, rest) = bytes.split_first().ok_or(DerError::Truncated)?;
    if first < 0x80 {
        return Ok((usize::from(first), rest));
    }
    let count = usize::from(first & 0x7f);
    if count == 0 || count > 4 {
        return Err(DerError::Length);
    }
    let (digits, rest) = rest.split_at_checked(count).ok_or(DerError::Truncated)?;
    let len = digits.iter().fold(0usize, |len, digit| len << 8 | usize::from(*digit));
    if len < 0x80 || digits[0] == 0 {
        return Err(DerError::Length);
    }
    Ok((len, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_in_their_shortest_form() {
        let of = |bytes: &[u8]| only(bytes, Tag::OCTET_STRING).map(|element| element.content.len());
        assert_eq!(of(&[4, 2, 1, 2]), Ok(2));
        assert_eq!(of(&[4, 0x81, 2, 1, 2]), Err(DerError::Length));
        assert_eq!(of(&[4, 0x82, 0, 0x80]), Err(DerError::Length));
        assert_eq!(of(&[4, 0x80, 0, 0]), Err(DerError::Length), "indefinite lengths are BER");
        assert_eq!(of(&[4, 0x85, 1, 1, 1, 1, 1]), Err(DerError::Length));
        assert_eq!(of(&[4, 0x84, 0xff, 0xff, 0xff, 0xff]), Err(DerError::Truncated));
        assert_eq!(of(&[4, 0x83, 0xff, 0xff, 0xff, 0]), Err(DerError::Truncated));
        assert_eq!(of(&[4]), Err(DerError::Truncated));
        assert_eq!(of(&[]), Err(DerError::Truncated));
        assert_eq!(of(&[2, 1, 1]), Err(DerError::Tag { wanted: Tag::OCTET_STRING, found: Tag::INTEGER }));
        assert_eq!(of(&[4, 0, 0]), Err(DerError::Trailing));
    }

    #[test]
    fn a_tag_of_several_bytes_is_refused() {
        assert_eq!(Reader::new(&[0x1f, 0x81, 1, 0]).next_element(), Err(DerError::LongTag));
    }

    #[test]
    fn an_element_that_is_not_there_is_left_to_the_next_reader() {
        let mut reader = Reader::new(&[4, 1, 7, 2, 1, 1]);
        assert_eq!(reader.next_if(Tag::INTEGER), Ok(None));
        let string = reader.next_if(Tag::OCTET_STRING).unwrap().unwrap();
        assert_eq!((string.content, string.whole), (&[7][..], &[4, 1, 7][..]));
        assert_eq!(reader.value(Tag::INTEGER), Ok(&[1][..]));
        assert_eq!(reader.next_if(Tag::INTEGER), Ok(None));
        assert_eq!(reader.finish(), Ok(()));
    }
}
