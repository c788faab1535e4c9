//! A second descriptor of an open file, with O_DIRECT.
//!
//! O_DIRECT belongs to an open file description. Setting it on the one at hand would turn the buffered reads and writes
//! that share it into direct ones, so the file is opened again, by its entry in `/proc/self/fd`. A file without a name has
//! such an entry too.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fstat, open};
use rustix::io::{Errno, retry_on_intr};

/// `None`: the file system has no direct I/O, or the process has no `/proc`, or may not open this file again.
pub fn reopen_direct(file: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    reopen_below(file, "/proc/self/fd")
}

fn reopen_below(file: BorrowedFd<'_>, descriptors: &str) -> Result<Option<OwnedFd>, Errno> {
    let access = fcntl_getfl(file)? & OFlags::RWMODE;
    let path = format!("{descriptors}/{}", file.as_raw_fd());
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    match retry_on_intr(|| open(path.as_str(), flags, Mode::empty())) {
        // A `/proc` that is a plain directory could hold anything under this name.
        Ok(direct) => Ok(is_same(file, direct.as_fd())?.then_some(direct)),
        Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(errno),
        Err(_) => Ok(None),
    }
}

fn is_same(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (a, b) = (fstat(a)?, fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{FileExt, symlink};

    use super::*;

    #[test]
    fn the_second_descriptor_is_direct_and_the_first_stays_as_it_was() {
        let file = tempfile::tempfile().unwrap();
        let Some(direct) = reopen_direct(file.as_fd()).unwrap() else {
            println!("skipped: no direct I/O here");
            return;
        };
        assert!(fcntl_getfl(&direct).unwrap().contains(OFlags::DIRECT));
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::DIRECT));
        file.write_all_at(b"abc", 0).unwrap();
        assert_eq!(File::from(direct).metadata().unwrap().len(), 3);
    }

    #[test]
    fn a_descriptor_for_reads_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"abc").unwrap();
        let file = File::open(&path).unwrap();
        let Some(direct) = reopen_direct(file.as_fd()).unwrap() else { return };
        assert_eq!(fcntl_getfl(&direct).unwrap() & OFlags::RWMODE, OFlags::RDONLY);
    }

    #[test]
    fn without_proc_no_descriptor_is_given() {
        let file = tempfile::tempfile().unwrap();
        assert!(reopen_below(file.as_fd(), "/nowhere/fd").unwrap().is_none());
    }

    #[test]
    fn another_file_of_that_name_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("other"), b"abc").unwrap();
        let file = tempfile::tempfile().unwrap();
        symlink("other", directory.path().join(file.as_raw_fd().to_string())).unwrap();
        assert!(reopen_below(file.as_fd(), directory.path().to_str().unwrap()).unwrap().is_none());
    }

    #[test]
    fn a_socket_is_not_opened_again() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(reopen_direct(socket.as_fd()).unwrap().is_none());
    }
}
