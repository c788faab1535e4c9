//! cachestat(2), Linux 6.5: the pages of a range that are in memory. Neither libc nor rustix has it.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// The number of the call on every architecture.
const CACHESTAT: libc::c_long = 451;

/// Numbers of pages of one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedPages {
    /// In memory; pages that are still being read count.
    pub cached: u64,
    pub dirty: u64,
    pub in_writeback: u64,
}

/// Counts the pages of `[offset, offset + length)`; a length of zero reaches to the end of the file. The cost grows with
/// the cached pages of the range. An error means that the kernel, or this file system, cannot tell.
pub fn cachestat(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<CachedPages, Errno> {
    let range = [offset, length];
    let mut counts = [0_u64; 5];
    // SAFETY: the kernel reads two numbers of 64 bits at `range` and writes five at `counts`; both arrays have these, and
    // live longer than the call.
    #[allow(unsafe_code)]
    let answer =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    if answer != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    let [cached, dirty, in_writeback, ..] = counts;
    Ok(CachedPages { cached, dirty, in_writeback })
}
