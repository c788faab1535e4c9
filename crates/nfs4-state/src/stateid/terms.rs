//! The terms on which a client has a delegation.

use types::Timestamp;

/// The terms of a delegation beside its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationTerms {
    /// The change attribute when the client had none yet: what it says later differs from that of the file as it was
    /// (RFC 8881 §10.4.3), and never by chance, for the client's own is not older. `None`: not known what the client has.
    pub change: Option<u64>,
    /// The client keeps the file's times (RFC 9754 §5), which were these.
    pub times: Option<DelegatedTimes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedTimes {
    pub accessed: Timestamp,
    pub modified: Timestamp,
}

impl DelegatedTimes {
    /// Of a time that the client gives, what is taken: nothing from before the delegation, and nothing from the future
    /// (RFC 9754 §5).
    pub fn vet(original: Timestamp, given: Timestamp, now: Timestamp) -> Option<Timestamp> {
        Some(given.min(now)).filter(|taken| *taken > original)
    }
}
