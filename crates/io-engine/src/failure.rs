//! Translates the kernel's error numbers to errors of a pool.

use api::PoolError;
use rustix::io::Errno;
use types::PoolId;

/// `operation` is a verb and its object: the message reads "pool-1 failed to write data: …".
pub fn pool_error(pool: PoolId, operation: &'static str, errno: Errno) -> PoolError {
    match errno {
        // Too many open files is a bound that was reached, not a disk that failed.
        Errno::MFILE | Errno::NFILE => PoolError::Busy(pool),
        Errno::NOSPC | Errno::DQUOT => PoolError::NoSpace(pool),
        Errno::FBIG => PoolError::TooLarge,
        Errno::OPNOTSUPP | Errno::NOSYS => PoolError::Unsupported(pool),
        _ => PoolError::Io { pool, operation, reason: std::io::Error::from(errno).to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_open_files_are_busy() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            assert!(matches!(pool_error(PoolId(1), "read data", errno), PoolError::Busy(PoolId(1))));
        }
    }

    #[test]
    fn a_full_disk_and_a_full_quota_are_no_space() {
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            assert!(matches!(pool_error(PoolId(1), "write data", errno), PoolError::NoSpace(PoolId(1))));
        }
        assert!(matches!(pool_error(PoolId(1), "write data", Errno::FBIG), PoolError::TooLarge));
        let absent = pool_error(PoolId(1), "share data", Errno::OPNOTSUPP);
        assert!(matches!(absent, PoolError::Unsupported(PoolId(1))));
        let io = pool_error(PoolId(1), "write data", Errno::IO);
        assert!(io.to_string().starts_with("pool-1 failed to write data: "), "{io}");
    }
}
