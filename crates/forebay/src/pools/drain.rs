//! `forebay pool drain`: a pool gets no new files and no clients, and its files are moved to other pools.

use std::fmt;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use types::PoolId;
use types::display::Size;

use super::{PoolList, PoolState, ask, number};
use crate::cli::DrainArguments;
use crate::control::{self, Request};
use crate::output;
use crate::questions::PoolQuestion;

/// How far the files of a pool are moved. Those that were written since may not be counted yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainState {
    /// No file is left.
    pub is_empty: bool,
    /// `None`: they are not counted yet, or no instance runs.
    pub files_left: Option<u64>,
    pub bytes_left: Option<u64>,
    /// Since the drain began, or the instance.
    pub files_moved: u64,
    pub bytes_moved: u64,
    /// Of those that are left: in use, or changed while they were copied.
    pub files_waiting: u64,
    /// Of those that are left: they cannot be moved.
    pub files_failed: u64,
    /// Some of these.
    pub failures: Vec<FailedMove>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedMove {
    /// The number of the file, 16 digits, as its replica is named.
    pub file: String,
    pub path: Option<String>,
    pub why: String,
}

impl fmt::Display for DrainState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(files), Some(bytes)) = (self.files_left, self.bytes_left) else {
            return f.write_str("files are not counted yet");
        };
        write!(f, "files left: {files} ({})", Size(bytes))?;
        if self.files_moved > 0 {
            write!(f, ", moved: {} ({})", self.files_moved, Size(self.bytes_moved))?;
        }
        if self.files_waiting > 0 {
            write!(f, ", in use: {}", self.files_waiting)?;
        }
        if self.files_failed > 0 {
            write!(f, ", failed: {}", self.files_failed)?;
        }
        if let Some(FailedMove { file, path, why }) = self.failures.first() {
            write!(f, " ({}: {why})", path.as_ref().unwrap_or(file))?;
        }
        Ok(())
    }
}

pub fn run(arguments: &DrainArguments) -> Result<ExitCode> {
    let id = number(&arguments.pool.pool)?;
    let place = &arguments.pool.place;
    let question = PoolQuestion::Drain { pool: id, keeps_files: arguments.keep_files };
    let mut pools = ask(place, question)?;
    if arguments.wait {
        let data = place.config_of_any()?.data;
        let request = Request::Pool(PoolQuestion::AwaitEmpty(id));
        let answer = control::ask_showing::<Vec<PoolState>>(&data, request, arguments.progress)?;
        pools = answer.with_context(|| {
            format!("no instance runs on {}: its files are moved when one does", data.display())
        })?;
    }
    pools.retain(|pool| pool.name == PoolId(id).to_string());
    let Some(pool) = pools.first() else { bail!("pool-{id} is not listed any more") };
    let is_left = arguments.wait && pool.moves.as_ref().is_some_and(|moves| !moves.is_empty);
    output::print(arguments.pool.output, &PoolList { pools }, PoolList::text)?;
    Ok(if is_left { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_files_left_and_why_they_are_left() {
        assert_eq!(DrainState::default().to_string(), "files are not counted yet");
        let failure = FailedMove { file: "7".to_owned(), path: Some("/a".to_owned()), why: "EIO".to_owned() };
        let state = DrainState {
            files_left: Some(3),
            bytes_left: Some(1 << 10),
            files_moved: 2,
            bytes_moved: 1 << 20,
            files_waiting: 2,
            files_failed: 1,
            failures: vec![failure.clone()],
            ..DrainState::default()
        };
        let line = "files left: 3 (1.0 KiB), moved: 2 (1.0 MiB), in use: 2, failed: 1 (/a: EIO)";
        assert_eq!(state.to_string(), line);
        let without_name =
            DrainState { failures: vec![FailedMove { path: None, ..failure }], ..state.clone() };
        assert!(without_name.to_string().ends_with("(7: EIO)"));
    }
}
