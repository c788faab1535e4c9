//! `forebay cluster`: tokens for hosts that are to join, and the hosts that have.

use std::collections::BTreeMap;
use std::process::ExitCode;

use admin::instance::PoolHostView;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use types::display::{Seconds, Size};

use crate::cli::{ClusterCommand, InstanceArguments};
use crate::control::{self, Request};
use crate::output;
use crate::table::{Column, Table};

#[derive(Debug, Serialize, Deserialize)]
pub struct TokenReport {
    pub token: String,
    /// Since 1970.
    pub expires_s: u64,
    pub valid_s: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ClusterReport {
    pub cluster: String,
    /// Where pool hosts reach the head.
    pub address: String,
    pub pools: Vec<PoolHostReport>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PoolHostReport {
    pub name: String,
    /// Where clients reach the pool.
    pub address: Option<String>,
    #[serde(flatten)]
    pub seen: PoolHostView,
    pub offline: Option<String>,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Calls that the head has sent to it since the start, by procedure.
    pub calls: BTreeMap<String, u64>,
}

pub fn run(command: &ClusterCommand) -> Result<ExitCode> {
    match command {
        ClusterCommand::Token { place, hours, output } => {
            let report: TokenReport = ask(place, Request::ClusterToken(*hours))?;
            output::print(*output, &report, TokenReport::text)?;
        }
        ClusterCommand::Status { place, output } => {
            let report: ClusterReport = ask(place, Request::ClusterStatus)?;
            output::print(*output, &report, ClusterReport::text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask<T: serde::de::DeserializeOwned>(place: &InstanceArguments, request: Request) -> Result<T> {
    let data = place.config()?.data;
    match control::ask(&data, request)? {
        Some(report) => Ok(report),
        None => bail!("nothing runs on {} (start it: forebay up --cluster)", data.display()),
    }
}

/// The command that a host joins by.
pub fn join_command(token: &str) -> String {
    format!("forebay pool up --data DIR --join {token}")
}

impl TokenReport {
    fn text(&self) -> String {
        format!("{}\n(valid for {})\n", join_command(&self.token), Seconds(self.valid_s))
    }
}

impl ClusterReport {
    fn text(&self) -> String {
        let mut out = format!("cluster  {}, pool hosts connect to {}\n", self.cluster, self.address);
        if self.pools.is_empty() {
            out += "No host has joined; add one by the command that `forebay cluster token` prints\n";
            return out;
        }
        let mut table = Table::new([
            Column::Text("pool"),
            Column::Text("host"),
            Column::Text("version"),
            Column::Text("address"),
            Column::Text("state"),
            Column::Number("silent"),
            Column::Number("lease"),
            Column::Number("fences missed"),
            Column::Number("free"),
        ]);
        for pool in &self.pools {
            let seen = &pool.seen;
            let state = match &pool.offline {
                Some(why) if seen.standing == "ready" => why.clone(),
                Some(why) => format!("{}: {why}", seen.standing),
                None => seen.standing.clone(),
            };
            let lease = if seen.lease_s > 0.0 { format!("{:.0} s", seen.lease_s) } else { "none".to_owned() };
            table.row([
                pool.name.clone(),
                seen.host.clone(),
                seen.version.clone().unwrap_or_default(),
                pool.address.clone().unwrap_or_default(),
                state,
                Seconds(seen.silent_s).to_string(),
                lease,
                seen.missed_fences.to_string(),
                Size(pool.free_bytes).to_string(),
            ]);
        }
        out + &table.to_string()
    }
}
