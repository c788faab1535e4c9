//! Keytab files as MIT's tools write them: version 2, big-endian, records with holes where entries were removed.

use thiserror::Error;

use crate::crypto::{Key, KeyError};
use crate::principal::{COMPONENTS_MAX, PART_BYTES_MAX, Principal};

/// The version that everything of the last twenty-five years writes; version 1 is in the byte order of its host.
const VERSION: [u8; 2] = [5, 2];
const ENTRIES_MAX: usize = 4096;

/// The keys of a host's services.
#[derive(Debug, Clone, Default)]
pub struct Keytab {
    pub entries: Vec<KeytabEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeytabEntry {
    pub principal: Principal,
    /// Key version number: which of the principal's keys this is.
    pub kvno: u32,
    pub key: Key,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeytabError {
    #[error("not a keytab of version 2")]
    Version,
    #[error("entry {index} is damaged")]
    Damaged { index: usize },
    #[error("more than {ENTRIES_MAX} entries")]
    TooMany,
}

impl Keytab {
    /// Entries whose encryption type is not supported are left out.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeytabError> {
        let mut rest = bytes.strip_prefix(&VERSION).ok_or(KeytabError::Version)?;
        let mut entries = Vec::new();
        for index in 0.. {
            if rest.is_empty() {
                break;
            }
            if index >= ENTRIES_MAX {
                return Err(KeytabError::TooMany);
            }
            let damaged = KeytabError::Damaged { index };
            let mut fields = Fields { rest };
            let size = i32::from_be_bytes(fields.array().ok_or(damaged)?);
            // Files end in zeroes where an entry was removed from the end.
            if size == 0 {
                break;
            }
            let record = fields.take(size.unsigned_abs() as usize).ok_or(damaged)?;
            rest = fields.rest;
            // A hole has a negative size.
            if size > 0 {
                entries.extend(entry(record).ok_or(damaged)?);
            }
        }
        Ok(Keytab { entries })
    }
}

/// `None`: damaged. `Some(None)`: a key of a type that is not supported.
fn entry(record: &[u8]) -> Option<Option<KeytabEntry>> {
    let mut fields = Fields { rest: record };
    let count = usize::from(fields.u16()?);
    if count > COMPONENTS_MAX {
        return None;
    }
    let realm = fields.string()?;
    let components = (0..count).map(|_| fields.string()).collect::<Option<Vec<_>>>()?;
    let _name_type = fields.u32()?;
    let _written = fields.u32()?;
    let [short_kvno] = fields.array::<1>()?;
    let enctype = fields.u16()?;
    let key = fields.counted()?;
    // The key version in full follows if there is room for it; zero there means that it was not written.
    let kvno = fields.u32().filter(|kvno| *kvno != 0).unwrap_or(u32::from(short_kvno));
    match Key::new(i32::from(enctype), key) {
        Ok(key) => Some(Some(KeytabEntry { principal: Principal { components, realm }, kvno, key })),
        Err(KeyError::Enctype(_)) => Some(None),
        Err(KeyError::Length { .. }) => None,
    }
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.u16()?);
        self.take(len)
    }

    fn string(&mut self) -> Option<String> {
        let bytes = self.counted()?;
        (bytes.len() <= PART_BYTES_MAX).then(|| String::from_utf8(bytes.to_vec()).ok())?
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Enctype;

    fn record(enctype: u16, key: &[u8], short_kvno: u8, kvno: Option<u32>) -> Vec<u8> {
        let mut out = vec![0, 2];
        for part in ["EXAMPLE.ORG", "nfs", "head.example.org"] {
            out.extend_from_slice(&(part.len() as u16).to_be_bytes());
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(&[0, 0, 0, 1, 0x65, 0, 0, 0, short_kvno]);
        out.extend_from_slice(&enctype.to_be_bytes());
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        out.extend_from_slice(key);
        out.extend(kvno.iter().flat_map(|kvno| kvno.to_be_bytes()));
        out
    }

    fn file(records: &[(i32, Vec<u8>)]) -> Vec<u8> {
        let mut out = VERSION.to_vec();
        for (sign, record) in records {
            out.extend_from_slice(&(sign * record.len() as i32).to_be_bytes());
            out.extend_from_slice(record);
        }
        out
    }

    #[test]
    fn entries_are_read_and_holes_and_old_types_are_not() {
        let bytes = file(&[
            (1, record(18, &[1; 32], 3, None)),
            (-1, record(18, &[2; 32], 3, None)),
            (1, record(23, &[3; 16], 3, None)),
            (1, record(17, &[4; 16], 1, Some(257))),
            (1, record(17, &[5; 16], 7, Some(0))),
        ]);
        let entries = Keytab::parse(&bytes).unwrap().entries;
        let seen: Vec<_> = entries.iter().map(|entry| (entry.key.enctype(), entry.kvno)).collect();
        let (aes128, aes256) = (Enctype::Aes128CtsHmacSha1_96, Enctype::Aes256CtsHmacSha1_96);
        assert_eq!(seen, [(aes256, 3), (aes128, 257), (aes128, 7)]);
        assert_eq!(entries[0].principal.to_string(), "nfs/head.example.org@EXAMPLE.ORG");
        assert_eq!(entries[1].key, Key::new(17, &[4; 16]).unwrap());
    }

    #[test]
    fn zeroes_at_the_end_are_the_end() {
        let mut bytes = file(&[(1, record(18, &[1; 32], 3, None))]);
        bytes.extend_from_slice(&[0; 10]);
        assert_eq!(Keytab::parse(&bytes).unwrap().entries.len(), 1);
    }

    #[test]
    fn bytes_that_are_no_keytab_are_refused() {
        assert_eq!(Keytab::parse(b"").unwrap_err(), KeytabError::Version);
        assert_eq!(Keytab::parse(&[5, 1]).unwrap_err(), KeytabError::Version);
        let whole = file(&[(1, record(18, &[1; 32], 3, None))]);
        for len in 3..whole.len() {
            assert_eq!(Keytab::parse(&whole[..len]).unwrap_err(), KeytabError::Damaged { index: 0 }, "{len}");
        }
        let wrong_length = file(&[(1, record(18, &[1; 16], 3, None))]);
        assert_eq!(Keytab::parse(&wrong_length).unwrap_err(), KeytabError::Damaged { index: 0 });
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_keytab_or_refused(
            noise in proptest::collection::vec(any::<u8>(), 0..200),
            at in 2usize..80,
            byte in any::<u8>(),
        ) {
            let _ = Keytab::parse(&[&VERSION[..], &noise].concat());
            let mut spoiled = file(&[(1, record(18, &[1; 32], 3, None))]);
            spoiled[at] = byte;
            let _ = Keytab::parse(&spoiled);
        }
    }
}
