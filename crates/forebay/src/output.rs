//! The answer of a command on standard output: text for people, or with `--json` one object for programs.
//!
//! An object has the field names of the HTTP API and of the control socket's reports. A list is a member of an object and
//! has the name that it has there: `{"pools": [...]}`.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cli::OutputArguments;

/// Prints `report`, or the `text` that is made of it. The text ends with a line feed.
pub fn print<T: Serialize>(
    output: OutputArguments,
    report: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<()> {
    let printed = if output.json { serde_json::to_string_pretty(report)? + "\n" } else { text(report) };
    print_text(&printed)
}

/// An amount with its noun: `1 file`, `2 files`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A reader that has seen enough (`head`) is no error.
pub fn print_text(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write the answer"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_of_a_thing_is_in_the_singular() {
        let entries = |count| counted(count, "directory", "directories");
        assert_eq!([0, 1, 2].map(entries), ["0 directories", "1 directory", "2 directories"]);
    }
}
