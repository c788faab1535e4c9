//! Bounds of the conflict table.

/// Bounds of the state that clients can make grow. At a bound the call is refused with
/// [`FileStateError::Limit`](crate::FileStateError::Limit).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub opens_per_holder: usize,
    pub locks_per_holder: usize,
    pub locks_per_file: usize,
    /// Beyond it a waiter for a lock is not remembered, and has to ask now and then.
    pub waiters_per_file: usize,
    pub waiters_per_holder: usize,
    pub layouts_per_holder: usize,
    pub delegations_per_holder: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            opens_per_holder: 1 << 18,
            locks_per_holder: 1 << 17,
            locks_per_file: 1 << 16,
            waiters_per_file: 1 << 10,
            waiters_per_holder: 1 << 12,
            layouts_per_holder: 1 << 18,
            delegations_per_holder: 1 << 16,
        }
    }
}
