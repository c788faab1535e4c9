//! The observer of how long operations take: for latencies, and for the list of slow ones.

use std::time::Duration;

/// Asked after every operation of every door, so it is quick and never waits.
pub trait Observer: Send + Sync {
    /// `describe` is asked only if the operation is worth keeping.
    fn took(
        &self,
        door: &'static str,
        operation: &'static str,
        took: Duration,
        describe: &dyn Fn() -> Subject,
    );
}

/// The file and the client of an operation, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// A path, or a file's number.
    pub what: String,
    /// An address or a client's number.
    pub client: String,
}

/// For whom nobody looks.
pub struct Unobserved;

impl Observer for Unobserved {
    fn took(
        &self,
        _door: &'static str,
        _operation: &'static str,
        _took: Duration,
        _describe: &dyn Fn() -> Subject,
    ) {
    }
}
