//! What a replica says of itself in extended attributes, so that a pool can be read without its index.
//!
//! `user.forebay.id` is text, `1 <file> <instance> <epoch>`: version, file id and instance in hexadecimal, and the
//! lowest epoch whose tickets are honoured. It is kept short: with it alone an ext4 inode of 256 bytes needs no
//! further block. `user.forebay.state` stands only on a replica that is not in order.

use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;
use thiserror::Error;
use types::{Epoch, FileId};

const ID: &str = "user.forebay.id";
const STATE: &str = "user.forebay.state";
/// Data was lost on the way to the disk (a sync failed); nothing more may be written.
const BROKEN_WRITEBACK: &str = "broken-writeback";
const VERSION: &str = "1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub file: FileId,
    pub instance: [u8; 16],
    pub epoch: Epoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LabelError {
    #[error("cannot read extended attributes: {0}")]
    Unreadable(Errno),
    #[error("label cannot be understood")]
    Malformed,
}

/// `None`: no label.
pub fn read(file: impl AsFd) -> Result<Option<Label>, LabelError> {
    let mut value = [0; 128];
    match fgetxattr(file, ID, &mut value[..]) {
        Ok(length) => parse(&value[..length]).map(Some).ok_or(LabelError::Malformed),
        Err(Errno::NODATA) => Ok(None),
        Err(Errno::RANGE) => Err(LabelError::Malformed),
        Err(errno) => Err(LabelError::Unreadable(errno)),
    }
}

pub fn write(file: impl AsFd, label: &Label) -> Result<(), Errno> {
    fsetxattr(file, ID, text(label).as_bytes(), XattrFlags::empty())
}

pub fn is_broken(file: impl AsFd) -> Result<bool, LabelError> {
    let mut value = [0; 64];
    match fgetxattr(file, STATE, &mut value[..]) {
        // A state that this version does not know is not one that it may write to either.
        Ok(_) | Err(Errno::RANGE) => Ok(true),
        Err(Errno::NODATA) => Ok(false),
        Err(errno) => Err(LabelError::Unreadable(errno)),
    }
}

pub fn mark_broken(file: impl AsFd) -> Result<(), Errno> {
    fsetxattr(file, STATE, BROKEN_WRITEBACK.as_bytes(), XattrFlags::empty())
}

fn text(label: &Label) -> String {
    format!("{VERSION} {} {} {}", label.file, instance_text(&label.instance), label.epoch.0)
}

fn parse(value: &[u8]) -> Option<Label> {
    let text = std::str::from_utf8(value).ok()?;
    let mut words = text.split(' ');
    let (version, file, instance, epoch) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if version != VERSION || words.next().is_some() {
        return None;
    }
    let epoch = Epoch(epoch.parse().ok()?);
    Some(Label { file: parse_file(file)?, instance: parse_instance(instance)?, epoch })
}

/// Sixteen lower-case hexadecimal digits, as `FileId` displays: one spelling for each id.
pub fn parse_file(text: &str) -> Option<FileId> {
    let file = FileId(u64::from_str_radix(text, 16).ok()?);
    (file.to_string() == text).then_some(file)
}

pub fn instance_text(instance: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*instance))
}

pub fn parse_instance(text: &str) -> Option<[u8; 16]> {
    let instance = u128::from_str_radix(text, 16).ok()?.to_be_bytes();
    (instance_text(&instance) == text).then_some(instance)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_label_is_text_that_an_operator_can_read() {
        let label = Label { file: FileId(0x1f), instance: [0xa0; 16], epoch: Epoch(3) };
        let expected = "1 000000000000001f a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0 3";
        assert_eq!(text(&label), expected);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(read(&file), Ok(None));
        write(&file, &label).unwrap();
        assert_eq!(read(&file), Ok(Some(label)));
        assert_eq!(is_broken(&file), Ok(false));
        mark_broken(&file).unwrap();
        assert_eq!(is_broken(&file), Ok(true));
    }

    /// An ext4 inode of 256 bytes has 92 for attributes: an entry of 16, the name and the value in steps of four, and
    /// four of zeros behind the last.
    #[test]
    fn a_label_fits_into_a_small_inode() {
        let label = Label { file: FileId(u64::MAX), instance: [0xff; 16], epoch: Epoch(99_999_999) };
        let name = "forebay.id".len().next_multiple_of(4);
        assert!(16 + name + text(&label).len().next_multiple_of(4) <= 92);
    }

    proptest! {
        #[test]
        fn any_label_reads_back(file: u64, instance: [u8; 16], epoch: u32) {
            let label = Label { file: FileId(file), instance, epoch: Epoch(epoch) };
            prop_assert_eq!(parse(text(&label).as_bytes()), Some(label));
        }

        #[test]
        fn bytes_that_are_no_label_are_refused_without_a_panic(value: Vec<u8>) {
            prop_assert_eq!(parse(&value), None);
        }
    }

    #[test]
    fn there_is_one_spelling_for_each_id() {
        for wrong in ["1f", "000000000000001F", "+00000000000001f", "0000000000000001f", ""] {
            assert_eq!(parse_file(wrong), None, "{wrong}");
        }
        assert_eq!(parse_file("000000000000001f"), Some(FileId(0x1f)));
    }
}
