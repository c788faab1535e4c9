//! A pool: replicas as plain files, their identity, index and space.
