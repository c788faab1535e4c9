//! The disk threads: bounded queues, reads that are ready at once, syncs.
