//! `cargo xtask reference`: writes the pages of `docs/reference/` that are generated.
//!
//! The declarations of command line and configuration are the program's, and so is the generator: a test of the crate
//! `forebay`, which otherwise checks that the pages are current.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

const TEST: &str = "reference::the_generated_pages_are_current";
const WRITE: &str = "FOREBAY_TEST_WRITE_REFERENCE";

pub fn run(root: &Path) -> Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root)
        .args(["test", "--quiet", "-p", "forebay", "--bin", "forebay", TEST, "--", "--exact"])
        .env(WRITE, "1")
        .status()
        .context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
