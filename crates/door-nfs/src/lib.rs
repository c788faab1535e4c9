//! The NFS door: NFSv4.1/4.2 and pNFS flex-files at the head and at the pools.
