//! `forebay status`: asks the running process and prints what it says.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::StatusArguments;
use crate::control::{self, Request};
use crate::output;
use crate::pool_host::{HostStatus, KnownHost};
use crate::report::StatusReport;

pub fn run(arguments: &StatusArguments) -> Result<ExitCode> {
    let data = arguments.place.config_of_any()?.data;
    if KnownHost::of(&data).is_some() {
        let Some(report) = control::ask::<HostStatus>(&data, Request::Status)? else {
            bail!("no forebay is running on {0} (start it with: forebay pool up --data {0})", data.display());
        };
        output::print(arguments.output, &report, HostStatus::text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(report) = control::ask::<StatusReport>(&data, Request::Status)? else {
        bail!("no forebay is running on {} (start it with: forebay up --data {0})", data.display());
    };
    output::print(arguments.output, &report, StatusReport::text)?;
    Ok(ExitCode::SUCCESS)
}
