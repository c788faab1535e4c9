//! `forebay pool`: which pools get files and clients, on a running instance or a stopped one.

pub mod busiest;
pub mod calibrate;
pub mod costs;
pub mod gathered;
pub mod iostat;
mod members;
pub mod problems;
pub mod scrub;
pub mod times;
pub mod write_journal;

use std::collections::BTreeSet;
use std::process::ExitCode;

use admin::instance::PoolHostView;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use types::PoolId;

use crate::cli::{InstanceArguments, PoolArguments, PoolCommand};
use crate::cluster::book::Book;
use crate::control::{self, Request};
use crate::data_dir::{DataDir, DrainedPools};
use crate::pool_host::KnownHost;
use crate::questions::PoolQuestion;
use crate::system::SystemRandom;
use crate::table::{Column, Table};
use crate::{output, pool_host};

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PoolState {
    /// `pool-0`.
    pub name: String,
    /// `None`: only its head knows.
    pub drained: Option<bool>,
    /// To most clients: it gets half as many new files. `None`: only its head knows.
    pub slow: Option<bool>,
    pub offline: Option<String>,
    /// Files there of which clients still have layouts, while it is drained or offline. `None`: it is not known, for
    /// nothing runs.
    pub layouts_left: Option<usize>,
    /// Of a pool on another host, as a head that runs sees it.
    #[serde(default)]
    pub host: Option<PoolHostView>,
}

#[derive(Serialize)]
pub struct PoolList {
    pub pools: Vec<PoolState>,
}

pub fn run(command: &PoolCommand) -> Result<ExitCode> {
    match command {
        PoolCommand::Up(arguments) => return pool_host::run(arguments),
        PoolCommand::List { place, output } => {
            let pools = ask(place, PoolQuestion::List)?;
            output::print(*output, &PoolList { pools }, PoolList::text)?;
        }
        PoolCommand::Drain(arguments) => change(arguments, PoolQuestion::Drain)?,
        PoolCommand::Enable(arguments) => change(arguments, PoolQuestion::Enable)?,
        PoolCommand::Calibrate(arguments) => return calibrate::run(arguments),
        PoolCommand::Iostat(arguments) if arguments.by_file => return busiest::run(arguments),
        PoolCommand::Iostat(arguments) => return iostat::run(arguments),
        PoolCommand::Scrub(arguments) => return scrub::run(arguments),
        PoolCommand::Files(arguments) => members::files(arguments)?,
        PoolCommand::Remove(arguments) => members::remove(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn change(arguments: &PoolArguments, question: impl FnOnce(u32) -> PoolQuestion) -> Result<()> {
    let id = number(&arguments.pool)?;
    let mut pools = ask(&arguments.place, question(id))?;
    pools.retain(|pool| pool.name == PoolId(id).to_string());
    output::print(arguments.output, &PoolList { pools }, PoolList::text)
}

/// `pool-3`, as everything calls it, or the number alone.
pub fn number(name: &str) -> Result<u32> {
    let digits = name.strip_prefix("pool-").unwrap_or(name);
    digits.parse().ok().with_context(|| format!("{name:?} is no pool (they are called pool-0, pool-1, …)"))
}

fn ask(place: &InstanceArguments, question: PoolQuestion) -> Result<Vec<PoolState>> {
    let data = place.config_of_any()?.data;
    let host = KnownHost::of(&data);
    if let (Some(host), PoolQuestion::Drain(_) | PoolQuestion::Enable(_)) = (&host, question) {
        bail!(host.refusal());
    }
    if let Some(pools) = control::ask(&data, Request::Pool(question))? {
        return Ok(pools);
    }
    if let Some(host) = host {
        let pool = host.pool.with_context(|| format!("{} has not joined a cluster", data.display()))?;
        let offline = Some("its process does not run".to_owned());
        return Ok(vec![PoolState { offline, ..PoolState::of_host(pool) }]);
    }
    let data = DataDir::open_existing(&data, &SystemRandom)?;
    let elsewhere = Book::pools_of(data.path())?.into_iter().map(|pool| PoolId(pool.number));
    let all: BTreeSet<_> = (0..data.pools).map(PoolId).chain(elsewhere).collect();
    let drained = apply(&data.drained_pools(), &all, question)?;
    let state = |id: PoolId| PoolState {
        name: id.to_string(),
        drained: Some(drained.contains(&id)),
        slow: Some(false),
        ..PoolState::of_host(id)
    };
    Ok(all.into_iter().map(state).collect())
}

/// Answers `question` with the drained pools. A change is stored before this returns.
pub fn apply(
    kept: &DrainedPools,
    all: &BTreeSet<PoolId>,
    question: PoolQuestion,
) -> Result<BTreeSet<PoolId>> {
    let before = kept.load()?;
    let mut drained = before.clone();
    match question {
        PoolQuestion::List => {}
        PoolQuestion::Drain(id) | PoolQuestion::Enable(id) if !all.contains(&PoolId(id)) => {
            bail!("there is no pool-{id} (`forebay pool list` tells which there are)")
        }
        PoolQuestion::Drain(id) => _ = drained.insert(PoolId(id)),
        PoolQuestion::Enable(id) => _ = drained.remove(&PoolId(id)),
    }
    if drained != before {
        kept.store(&drained)?;
    }
    Ok(drained)
}

impl PoolList {
    fn text(&self) -> String {
        if self.pools.iter().all(|pool| pool.host.is_none()) {
            let mut table = Table::new([Column::Text("pool"), Column::Text("state")]);
            self.pools.iter().for_each(|pool| table.row([pool.name.clone(), pool.state()]));
            return table.to_string();
        }
        let mut table = Table::new([Column::Text("pool"), Column::Text("host"), Column::Text("state")]);
        for pool in &self.pools {
            let host = pool.host.as_ref().map(|host| host.host.clone()).unwrap_or_default();
            table.row([pool.name.clone(), host, pool.state()]);
        }
        table.to_string()
    }
}

impl PoolState {
    /// As its own host knows it.
    pub fn of_host(pool: PoolId) -> PoolState {
        PoolState { name: pool.to_string(), ..PoolState::default() }
    }

    fn state(&self) -> String {
        let drained = match (self.drained, self.layouts_left) {
            (None | Some(false), _) => None,
            (Some(true), None | Some(0)) => Some("drained".to_owned()),
            (Some(true), Some(left)) => {
                Some(format!("draining, files of which clients have layouts: {left}"))
            }
        };
        let missed = self.host.as_ref().and_then(PoolHostView::missed);
        let said: Vec<String> = drained.into_iter().chain(self.offline.clone()).chain(missed).collect();
        match said.is_empty() {
            true if self.slow == Some(true) => "enabled; slow to clients".to_owned(),
            true if self.drained.is_none() => "in order; its head knows whether it is enabled".to_owned(),
            true => "enabled".to_owned(),
            false => said.join("; "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_named_as_the_banner_names_it_or_by_its_number() {
        assert_eq!((number("pool-3").unwrap(), number("3").unwrap()), (3, 3));
        assert!(number("pool-x").is_err() && number("").is_err());
    }

    #[test]
    fn of_a_pool_that_is_drained_and_offline_both_are_told() {
        let pool = |drained: bool, offline: Option<&str>| {
            let offline = offline.map(str::to_owned);
            let layouts_left = drained.then_some(0);
            let (drained, slow) = (Some(drained), Some(false));
            PoolState { drained, slow, offline, layouts_left, ..PoolState::of_host(PoolId(3)) }
        };
        let state = |drained, offline| pool(drained, offline).state();
        assert_eq!(state(false, None), "enabled");
        let slow = PoolState { slow: Some(true), ..pool(false, None) };
        assert_eq!(slow.state(), "enabled; slow to clients");
        assert_eq!(state(true, None), "drained");
        assert_eq!(state(false, Some("no disk")), "no disk");
        assert_eq!(state(true, Some("no disk")), "drained; no disk");
        let host = PoolHostView { missed_fences: 2, ..PoolHostView::default() };
        let missed = PoolState { host: Some(host), ..pool(false, Some("no answer for 7 s")) };
        assert_eq!(missed.state(), "no answer for 7 s; fences missed: 2");
        assert!(PoolState::of_host(PoolId(3)).state().starts_with("in order"));
    }

    #[test]
    fn drained_pools_are_stored_and_an_unknown_pool_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let kept = DataDir::open(dir.path(), Some(2), &SystemRandom).unwrap().drained_pools();
        let all = BTreeSet::from([PoolId(0), PoolId(1)]);
        let ask = |question| apply(&kept, &all, question);
        assert!(ask(PoolQuestion::Drain(2)).is_err());
        assert_eq!(ask(PoolQuestion::Drain(1)).unwrap(), BTreeSet::from([PoolId(1)]));
        assert_eq!(ask(PoolQuestion::List).unwrap(), BTreeSet::from([PoolId(1)]));
        assert!(
            ask(PoolQuestion::Enable(1)).unwrap().is_empty() && ask(PoolQuestion::List).unwrap().is_empty()
        );
    }
}
