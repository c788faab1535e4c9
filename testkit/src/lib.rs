//! Suites, fakes, fault injection and an NFS client for tests.
