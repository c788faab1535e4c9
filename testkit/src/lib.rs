//! Suites, fakes, fault injection and an NFS client for tests.

pub mod channel;
pub mod clock;
pub mod dice;
pub mod faulty;
pub mod fixed_replica;
pub mod former_tickets;
pub mod lossy_disk;
pub mod memory_pool;
pub mod memory_pools;
pub mod namespace_suite;
pub mod nfs_client;
pub mod pool_suite;
pub mod postgres;
pub mod watched_namespace;
