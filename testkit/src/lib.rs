//! Suites, fakes, fault injection and an NFS client for tests.

pub mod nfs_client;
