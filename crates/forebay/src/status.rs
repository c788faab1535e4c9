//! `forebay status`: asks the running process and prints what it says.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::StatusArguments;
use crate::control::{self, Request};
use crate::output;
use crate::report::StatusReport;

pub fn run(arguments: &StatusArguments) -> Result<ExitCode> {
    let data = arguments.place.config()?.data;
    let Some(report) = control::ask::<StatusReport>(&data, Request::Status)? else {
        bail!("no forebay is running on {} (start it with: forebay up --data {0})", data.display());
    };
    output::print(arguments.output, &report, StatusReport::text)?;
    Ok(ExitCode::SUCCESS)
}
