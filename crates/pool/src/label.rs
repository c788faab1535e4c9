//! The label of a replica, in its extended attributes, so that a pool can be read without its index.
//!
//! `user.forebay.id` is text, `3 <file> <instance> <epoch> <length> <birth>`: version, file id, instance (22 characters of
//! base64url), the lowest epoch whose tickets are honoured, the length that the file is known to have had on disk, and the
//! second in which the file was made (0: not known), numbers in hexadecimal. It is kept short: with it alone an ext4 inode of
//! 256 bytes needs no further block. Two versions are read besides, with 32 hexadecimal digits of the instance, and know no
//! birth: `2 <file> <instance> <epoch> <length>`, and `1 <file> <instance> <epoch>` with 16 digits of the file and a decimal
//! epoch, which knows no length either. `user.forebay.state` stands only on a replica that is not in order.

use std::os::fd::AsFd;

use api::Birth;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;
use thiserror::Error;
use types::{Epoch, FileId, hex, hex::Hex};

const ID: &str = "user.forebay.id";
const STATE: &str = "user.forebay.state";
/// Data was lost on the way to the disk (a sync failed); nothing more may be written.
const BROKEN_WRITEBACK: &str = "broken-writeback";
/// The disk has other bytes than were written; nothing may be read or written.
const DAMAGED: &str = "damaged";
const VERSION: &str = "3";
const WITHOUT_BIRTH: &str = "2";
const WITHOUT_LENGTH: &str = "1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub file: FileId,
    pub instance: [u8; 16],
    pub epoch: Epoch,
    /// Bytes missing below it were lost. `None`: written by a version that noted no length.
    pub length: Option<u64>,
    /// Of the file that it was made for.
    pub birth: Birth,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    InOrder,
    /// It takes no more data, and can be read.
    Broken,
    /// It takes no more data, and cannot be read.
    Damaged,
}

pub fn state(file: impl AsFd) -> Result<State, LabelError> {
    let mut value = [0; 64];
    match fgetxattr(file, STATE, &mut value[..]) {
        Ok(length) if value[..length] == *DAMAGED.as_bytes() => Ok(State::Damaged),
        // A state that this version does not know is not one that it may write to either.
        Ok(_) | Err(Errno::RANGE) => Ok(State::Broken),
        Err(Errno::NODATA) => Ok(State::InOrder),
        Err(errno) => Err(LabelError::Unreadable(errno)),
    }
}

/// One that is damaged stays so.
pub fn mark_broken(file: impl AsFd) -> Result<(), Errno> {
    match state(&file) {
        Ok(State::Damaged) => Ok(()),
        _ => fsetxattr(file, STATE, BROKEN_WRITEBACK.as_bytes(), XattrFlags::empty()),
    }
}

pub fn mark_damaged(file: impl AsFd) -> Result<(), Errno> {
    fsetxattr(file, STATE, DAMAGED.as_bytes(), XattrFlags::empty())
}

fn text(label: &Label) -> String {
    let Label { file, instance, epoch, length, birth } = label;
    let (instance, length) = (URL_SAFE_NO_PAD.encode(instance), length.unwrap_or_default());
    format!("{VERSION} {:x} {instance} {:x} {length:x} {:x}", file.0, epoch.0, birth.0)
}

fn parse(value: &[u8]) -> Option<Label> {
    let text = std::str::from_utf8(value).ok()?;
    let mut words = text.split(' ');
    let (version, file, instance, epoch) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let narrow = |text| u32::try_from(parse_number(text)?).ok();
    let label = match version {
        VERSION => Label {
            file: FileId(parse_number(file)?),
            instance: parse_short_instance(instance)?,
            epoch: Epoch(narrow(epoch)?),
            length: Some(parse_number(words.next()?)?),
            birth: Birth(narrow(words.next()?)?),
        },
        WITHOUT_BIRTH => Label {
            file: FileId(parse_number(file)?),
            instance: parse_instance(instance)?,
            epoch: Epoch(narrow(epoch)?),
            length: Some(parse_number(words.next()?)?),
            birth: Birth::UNKNOWN,
        },
        WITHOUT_LENGTH => Label {
            file: parse_file(file)?,
            instance: parse_instance(instance)?,
            epoch: Epoch(epoch.parse().ok()?),
            length: None,
            birth: Birth::UNKNOWN,
        },
        _ => return None,
    };
    words.next().is_none().then_some(label)
}

/// Unused bits are zero, so that there is one spelling.
fn parse_short_instance(text: &str) -> Option<[u8; 16]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// Lower-case hexadecimal digits without zeros before them: one spelling for each number.
fn parse_number(text: &str) -> Option<u64> {
    let number = u64::from_str_radix(text, 16).ok()?;
    (format!("{number:x}") == text).then_some(number)
}

/// Sixteen lower-case hexadecimal digits, as `FileId` displays: one spelling for each id.
pub fn parse_file(text: &str) -> Option<FileId> {
    let file = FileId(u64::from_str_radix(text, 16).ok()?);
    (file.to_string() == text).then_some(file)
}

pub fn instance_text(instance: &[u8; 16]) -> String {
    Hex(instance).to_string()
}

pub fn parse_instance(text: &str) -> Option<[u8; 16]> {
    let instance = hex::decode(text.as_bytes())?.try_into().ok()?;
    (instance_text(&instance) == text).then_some(instance)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_label_is_text_that_an_operator_can_read() {
        let (length, birth) = (Some(4096), Birth(0x6553_f100));
        let label = Label { file: FileId(0x1f), instance: [0xa0; 16], epoch: Epoch(10), length, birth };
        let expected = "3 1f oKCgoKCgoKCgoKCgoKCgoA a 1000 6553f100";
        assert_eq!(text(&label), expected);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(read(&file), Ok(None));
        write(&file, &label).unwrap();
        assert_eq!(read(&file), Ok(Some(label)));
        assert_eq!(state(&file), Ok(State::InOrder));
        mark_broken(&file).unwrap();
        assert_eq!(state(&file), Ok(State::Broken));
    }

    #[test]
    fn a_damaged_replica_stays_damaged_when_a_sync_of_it_fails() {
        let file = tempfile::tempfile().unwrap();
        mark_damaged(&file).unwrap();
        mark_broken(&file).unwrap();
        assert_eq!(state(&file), Ok(State::Damaged));
    }

    /// An ext4 inode of 256 bytes has 92 for attributes: an entry of 16, the name and the value in steps of four, and
    /// four of zeros behind the last. Beyond 17 billion files, 65,535 epochs or 4 PiB it takes a block of its own.
    #[test]
    fn a_label_fits_into_a_small_inode() {
        let (file, length) = (FileId((1 << 40) - 1), Some((1 << 52) - 1));
        let birth = Birth(u32::MAX);
        let label = Label { file, instance: [0xff; 16], epoch: Epoch(0xffff), length, birth };
        let name = "forebay.id".len().next_multiple_of(4);
        assert!(16 + name + text(&label).len().next_multiple_of(4) <= 92);
    }

    proptest! {
        #[test]
        fn any_label_reads_back(file: u64, instance: [u8; 16], epoch: u32, length: u64, birth: u32) {
            let (file, epoch, length, birth) = (FileId(file), Epoch(epoch), Some(length), Birth(birth));
            let label = Label { file, instance, epoch, length, birth };
            prop_assert_eq!(parse(text(&label).as_bytes()), Some(label));
        }

        #[test]
        fn bytes_that_are_no_label_are_refused_without_a_panic(value: Vec<u8>) {
            prop_assert_eq!(parse(&value), None);
        }
    }

    #[test]
    fn labels_of_older_versions_know_no_birth_and_the_first_no_length() {
        let (epoch, birth) = (Epoch(10), Birth::UNKNOWN);
        let label = |length| Label { file: FileId(0x1f), instance: [0xa0; 16], epoch, length, birth };
        let first = b"1 000000000000001f a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0 10";
        assert_eq!(parse(first), Some(label(None)));
        let second = b"2 1f a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0 a 1000";
        assert_eq!(parse(second), Some(label(Some(4096))));
        for wrong in [
            "3 1f oKCgoKCgoKCgoKCgoKCgoB a 0 0",
            "3 1f oKCgoKCgoKCgoKCgoKCgoA a 0",
            "2 01f a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0 a 0",
            "2 1f a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0 a",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
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
