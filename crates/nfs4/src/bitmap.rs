//! `bitmap4`: a set of small numbers (attributes, operations, notifications).
//!
//! Kept inline in eight words, which is more than twice what RFCs have assigned: it is `Copy` and needs no heap.
//! Longer bitmaps are refused. Trailing zero words are not sent, and accepted when they come.

use std::fmt;

use xdr::{Decoder, Encoder, Xdr, XdrError};

/// Words of a bitmap that are kept; bit `n` is bit `n % 32` of word `n / 32`.
const WORDS: usize = 8;

/// A set of numbers below 256.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bitmap4 {
    words: [u32; WORDS],
}

impl Bitmap4 {
    /// The numbers that fit: `0..CAPACITY`.
    pub const CAPACITY: u32 = WORDS as u32 * 32;
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// The set of the given numbers, at compile time where wanted. Panics on a number of `CAPACITY` or more.
    pub const fn of(numbers: &[u32]) -> Self {
        let mut words = [0; WORDS];
        let mut i = 0;
        while i < numbers.len() {
            assert!(numbers[i] < Self::CAPACITY, "the number fits the bitmap");
            words[(numbers[i] / 32) as usize] |= 1 << (numbers[i] % 32);
            i += 1;
        }
        Self { words }
    }

    pub const fn contains(&self, n: u32) -> bool {
        n < Self::CAPACITY && self.words[(n / 32) as usize] & (1 << (n % 32)) != 0
    }

    /// Adds a number. Panics on a number of `CAPACITY` or more: callers insert known constants.
    pub fn insert(&mut self, n: u32) {
        assert!(n < Self::CAPACITY, "the number fits the bitmap");
        self.words[(n / 32) as usize] |= 1 << (n % 32);
    }

    pub fn remove(&mut self, n: u32) {
        if n < Self::CAPACITY {
            self.words[(n / 32) as usize] &= !(1 << (n % 32));
        }
    }

    /// This set and one number more. Panics on a number of `CAPACITY` or more.
    #[must_use]
    pub const fn with(mut self, n: u32) -> Self {
        assert!(n < Self::CAPACITY, "the number fits the bitmap");
        self.words[(n / 32) as usize] |= 1 << (n % 32);
        self
    }

    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|i| self.words[i] & other.words[i]) }
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|i| self.words[i] | other.words[i]) }
    }

    /// The numbers of `self` that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|i| self.words[i] & !other.words[i]) }
    }

    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// The numbers in ascending order, which is also the order of attribute values in a `fattr4`.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.words;
        (0..WORDS).flat_map(move |i| {
            let mut word = words[i];
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(i as u32 * 32 + bit)
            })
        })
    }

    /// Words that are sent: up to the last one that is not zero.
    pub fn words(&self) -> &[u32] {
        let len = self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        &self.words[..len]
    }

    /// Bytes on the wire.
    pub fn encoded_len(&self) -> usize {
        4 + 4 * self.words().len()
    }
}

impl FromIterator<u32> for Bitmap4 {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::EMPTY;
        numbers.into_iter().for_each(|n| set.insert(n));
        set
    }
}

impl fmt::Debug for Bitmap4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Xdr for Bitmap4 {
    fn encode(&self, e: &mut Encoder) {
        let words = self.words();
        (words.len() as u32).encode(e);
        words.iter().for_each(|word| word.encode(e));
    }

    fn decode(d: &mut Decoder) -> Result<Self, XdrError> {
        let count = u32::decode(d)? as usize;
        if count > WORDS {
            return Err(XdrError::LengthOverLimit { length: count as u32, limit: WORDS });
        }
        let mut set = Self::EMPTY;
        for word in &mut set.words[..count] {
            *word = u32::decode(d)?;
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(set: Bitmap4) -> Bytes {
        let mut e = Encoder::new();
        set.encode(&mut e);
        e.into_bytes()
    }

    #[test]
    fn bits_are_counted_from_the_low_end_of_the_first_word() {
        assert_eq!(&bytes_of(Bitmap4::of(&[1, 33]))[..], [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2]);
        assert_eq!(&bytes_of(Bitmap4::EMPTY)[..], [0, 0, 0, 0]);
    }

    #[test]
    fn trailing_zero_words_are_accepted_and_not_sent() {
        let long = Bytes::from_static(&[0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let set = Bitmap4::decode(&mut Decoder::new(long)).unwrap();
        assert_eq!(set, Bitmap4::of(&[0]));
        assert_eq!(bytes_of(set).len(), set.encoded_len());
        assert_eq!(set.encoded_len(), 8);
    }

    #[test]
    fn a_bitmap_of_nine_words_is_refused() {
        let mut long = vec![0, 0, 0, 9];
        long.resize(4 + 9 * 4, 0);
        assert!(Bitmap4::decode(&mut Decoder::new(long.into())).is_err());
    }

    proptest! {
        #[test]
        fn it_is_the_set_of_its_numbers(a in proptest::collection::btree_set(0u32..256, 0..20),
                                        b in proptest::collection::btree_set(0u32..256, 0..20)) {
            let set = |numbers: &BTreeSet<u32>| numbers.iter().copied().collect::<Bitmap4>();
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(x.intersect(&y), set(&a.intersection(&b).copied().collect()));
            prop_assert_eq!(x.union(&y), set(&a.union(&b).copied().collect()));
            prop_assert_eq!(x.difference(&y), set(&a.difference(&b).copied().collect()));
            prop_assert_eq!(Bitmap4::decode(&mut Decoder::new(bytes_of(x))).unwrap(), x);
        }
    }
}
