//! Standard error: what it is connected to, and the form of lines there.

use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;

/// The priority `err` of syslog(3), for the journal.
const ERROR_PREFIX: &str = "<3>";

/// Whether the journal of systemd reads what is written to standard error (systemd.exec(5), JOURNAL_STREAM).
pub fn is_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    // A shell or a test in between may have put something else in its place.
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|found| stream == format!("{}:{}", found.dev(), found.ino()))
}

/// On a terminal, unless the user wants none: NO_COLOR, whatever its value (no-color.org).
pub fn has_colours() -> bool {
    let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !wants_none
}

/// The line by which a command fails.
pub fn fail(error: &anyhow::Error) {
    let prefix = if is_journal() { ERROR_PREFIX } else { "" };
    eprintln!("{prefix}forebay: {error:#}");
}
