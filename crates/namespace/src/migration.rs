//! A step from one version of a schema to the next.

/// Released ones are never edited: a change is a new one at the end.
pub struct Migration {
    /// For people, a sentence.
    pub what: &'static str,
    /// Tables whose every row is read or written.
    pub touches: &'static [&'static str],
    pub sql: &'static str,
}
