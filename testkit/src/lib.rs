//! Suites, fakes, fault injection and an NFS client for tests.

pub mod dice;
pub mod namespace_suite;
pub mod nfs_client;
pub mod pool_suite;
pub mod postgres;
