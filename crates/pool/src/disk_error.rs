//! Errors of the disk, as opposed to those of a request.

use rustix::io::Errno;

/// And not of a pool that is full, or of what was asked for.
pub fn is_of_the_disk(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::IO | Errno::ROFS | Errno::NXIO | Errno::NODEV | Errno::UCLEAN | Errno::SHUTDOWN | Errno::STALE
    )
}
