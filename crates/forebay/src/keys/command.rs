//! `forebay keys renew`, on a running instance or a stopped one.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;

use super::{Keys, KeysReport};
use crate::cli::KeysCommand;
use crate::config::Config;
use crate::control::{self, Request};
use crate::data_dir::DataDir;
use crate::output;
use crate::system::{SystemClock, SystemRandom};

pub fn run(command: &KeysCommand) -> Result<ExitCode> {
    let KeysCommand::Renew { place, output } = command;
    let config = place.config()?;
    let report = match control::ask::<KeysReport>(&config.data, Request::RenewKeys)? {
        Some(report) => report,
        None => renew_stopped(&config)?,
    };
    output::print(*output, &report, |report| format!("{report}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The next start seals with the new keys.
fn renew_stopped(config: &Config) -> Result<KeysReport> {
    let data = DataDir::open_existing(&config.data, &SystemRandom)?;
    Keys::open(&data, config.keys, Arc::new(SystemClock::new()))?.renew()
}
