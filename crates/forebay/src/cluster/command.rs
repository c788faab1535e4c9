//! `forebay cluster`: tokens for hosts that are to join, the hosts that have, and their keys.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;

use admin::instance::PoolHostView;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use types::display::{Seconds, Size};

use crate::cli::{ClusterCommand, InstanceArguments};
use crate::control::{self, Request};
use crate::output;
use crate::pools;
use crate::questions::MemberQuestion;
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
    pub keys: ClusterKeysReport,
    pub pools: Vec<PoolHostReport>,
}

/// The keys of the cluster's authority and of its members.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClusterKeysReport {
    pub generation: u32,
    /// `None`: they were made by a version that did not note it.
    pub age_s: Option<u64>,
    /// Keys of the generation before are accepted too.
    pub overlap: bool,
    /// Pools whose hosts have keys of the generation before still.
    pub lagging: Vec<String>,
    /// Pools whose hosts are not let in: they have missed a rotation.
    pub left_behind: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ShutOutReport {
    pub pool: String,
    pub host: String,
    /// Clients may write at the pool for so long.
    pub lease_s: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PoolHostReport {
    pub name: String,
    /// Where clients reach the pool.
    pub address: Option<String>,
    /// Where clients of HTTP reach it. `None`: they are not sent there.
    pub http: Option<String>,
    #[serde(flatten)]
    pub seen: PoolHostView,
    pub offline: Option<String>,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Of the keys of its host.
    pub key_generation: u32,
    pub shut_out: bool,
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
        ClusterCommand::RotateKeys { place, end_overlap, output } => {
            let question = if *end_overlap { MemberQuestion::EndOverlap } else { MemberQuestion::RotateKeys };
            let report: ClusterKeysReport = ask(place, Request::Member(question))?;
            output::print(*output, &report, |report| format!("{report}\n"))?;
        }
        ClusterCommand::ShutOut { place, pool, output } => {
            let question = MemberQuestion::ShutOut(pools::number(pool)?);
            let report: ShutOutReport = ask(place, Request::Member(question))?;
            output::print(*output, &report, ShutOutReport::text)?;
        }
        ClusterCommand::Readmit { place, pool, hours, output } => {
            let question = MemberQuestion::Readmit { pool: pools::number(pool)?, hours: *hours };
            let report: TokenReport = ask(place, Request::Member(question))?;
            output::print(*output, &report, TokenReport::text)?;
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

impl ShutOutReport {
    fn text(&self) -> String {
        let ShutOutReport { pool, host, lease_s } = self;
        let mut out = format!("{pool} on {host} is shut out: its keys are accepted no more\n");
        out += &match *lease_s {
            left if left > 0.0 => {
                format!("Clients may write there for {left:.0} s, until its lease is over\n")
            }
            _ => "It has no lease\n".to_owned(),
        };
        out += "Join tokens made before are void: make new ones with forebay cluster token\n";
        out += "Clients that reach the host can read there: block its NFS port if it is in wrong hands\n";
        out
    }
}

impl fmt::Display for ClusterKeysReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.generation)?;
        if let Some(age_s) = self.age_s {
            write!(f, ", {} old", Seconds(age_s))?;
        }
        if self.overlap {
            write!(f, "; those before are accepted too, and used by {}", self.lagging.join(", "))?;
        }
        if !self.left_behind.is_empty() {
            write!(f, "; not let in, for a rotation was missed: {}", self.left_behind.join(", "))?;
        }
        Ok(())
    }
}

impl ClusterReport {
    fn text(&self) -> String {
        let mut out = format!("cluster  {}, pool hosts connect to {}\n", self.cluster, self.address);
        out += &format!("keys     {}\n", self.keys);
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
