//! Writes: all of the bytes, or the error that stopped them.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pwrite, retry_on_intr};

/// The largest offset that a file may have.
pub const OFFSET_MAX: u64 = i64::MAX.cast_unsigned();

/// Waits for the page cache, not for the disk. After an error some of the bytes may have been written.
pub fn write_all(file: BorrowedFd<'_>, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
    if offset.checked_add(data.len() as u64).is_none_or(|end| end > OFFSET_MAX) {
        return Err(Errno::FBIG);
    }
    while !data.is_empty() {
        let written = retry_on_intr(|| pwrite(file, data, offset))?;
        if written == 0 {
            return Err(Errno::IO);
        }
        data = &data[written..];
        offset += written as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_write_past_the_largest_offset_is_too_large() {
        let file = tempfile::tempfile().unwrap();
        for offset in [OFFSET_MAX, u64::MAX - 1, u64::MAX] {
            assert_eq!(write_all(file.as_fd(), b"ab", offset), Err(Errno::FBIG));
        }
        assert_eq!(write_all(file.as_fd(), b"ab", 3), Ok(()));
        assert_eq!(file.metadata().unwrap().len(), 5);
    }
}
