//! `forebay pool`: which pools get files and clients, on a running instance or a stopped one.

pub mod busiest;
pub mod calibrate;
pub mod costs;
pub mod drain;
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
use crate::data_dir::{DataDir, Drained, DrainedPools};
use crate::pool_host::KnownHost;
use crate::pools::drain::DrainState;
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
    /// While its files are moved to other pools.
    #[serde(default)]
    pub moves: Option<DrainState>,
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
        PoolCommand::Drain(arguments) => return drain::run(arguments),
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
    if let Some(host) = host.as_ref().filter(|_| !matches!(question, PoolQuestion::List)) {
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
        drained: Some(drained.pools.contains(&id)),
        slow: Some(false),
        moves: drained.emptied.contains(&id).then(DrainState::default),
        ..PoolState::of_host(id)
    };
    Ok(all.into_iter().map(state).collect())
}

/// Answers `question` with the drained pools. A change is stored before this returns.
pub fn apply(kept: &DrainedPools, all: &BTreeSet<PoolId>, question: PoolQuestion) -> Result<Drained> {
    let before = kept.load()?;
    let mut drained = before.clone();
    if let PoolQuestion::Drain { pool, .. } | PoolQuestion::Enable(pool) | PoolQuestion::AwaitEmpty(pool) =
        question
        && !all.contains(&PoolId(pool))
    {
        bail!("there is no pool-{pool} (`forebay pool list` tells which there are)");
    }
    match question {
        PoolQuestion::List | PoolQuestion::AwaitEmpty(_) => {}
        PoolQuestion::Drain { pool, keeps_files } => {
            let pool = PoolId(pool);
            drained.pools.insert(pool);
            match keeps_files {
                true => drained.emptied.remove(&pool),
                false => drained.emptied.insert(pool),
            };
        }
        PoolQuestion::Enable(pool) => {
            drained.pools.remove(&PoolId(pool));
            drained.emptied.remove(&PoolId(pool));
        }
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
        let layouts = self.layouts_left.filter(|left| *left > 0);
        let layouts = layouts.map(|left| format!("files of which clients have layouts: {left}"));
        let drained = match (self.drained, &self.moves, layouts) {
            (None | Some(false), ..) => None,
            (Some(true), None, None) => Some("drained".to_owned()),
            (Some(true), None, Some(layouts)) => Some(format!("draining, {layouts}")),
            (Some(true), Some(moves), _) if moves.is_empty => Some("drained, no file is left".to_owned()),
            (Some(true), Some(moves), None) => Some(format!("draining, {moves}")),
            (Some(true), Some(moves), Some(layouts)) => Some(format!("draining, {layouts}; {moves}")),
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
        let moving = |moves, layouts_left| {
            let moves = Some(moves);
            PoolState { moves, layouts_left: Some(layouts_left), ..pool(true, None) }.state()
        };
        let moves = DrainState { files_left: Some(3), bytes_left: Some(5 << 20), ..DrainState::default() };
        assert_eq!(moving(moves.clone(), 0), "draining, files left: 3 (5.0 MiB)");
        let with_layouts = "draining, files of which clients have layouts: 2; files left: 3 (5.0 MiB)";
        assert_eq!(moving(moves, 2), with_layouts);
        let empty = DrainState { is_empty: true, ..DrainState::default() };
        assert_eq!(moving(empty, 0), "drained, no file is left");
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
        let drain = |pool, keeps_files| PoolQuestion::Drain { pool, keeps_files };
        assert!(ask(drain(2, false)).is_err() && ask(PoolQuestion::AwaitEmpty(2)).is_err());
        let one = BTreeSet::from([PoolId(1)]);
        let kept = Drained { pools: one.clone(), emptied: BTreeSet::new() };
        assert_eq!(ask(drain(1, true)).unwrap(), kept);
        assert_eq!(ask(PoolQuestion::List).unwrap(), kept);
        let emptied = Drained { pools: one.clone(), emptied: one };
        assert_eq!(ask(drain(1, false)).unwrap(), emptied);
        assert_eq!(ask(PoolQuestion::List).unwrap(), emptied);
        assert_eq!(ask(drain(1, true)).unwrap(), kept);
        for question in [PoolQuestion::Enable(1), PoolQuestion::List] {
            assert_eq!(ask(question).unwrap(), Drained::default());
        }
    }

    /// It knew no pool whose files are moved.
    #[test]
    fn pools_that_an_earlier_version_has_drained_keep_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), Some(2), &SystemRandom).unwrap();
        std::fs::write(dir.path().join("drained-pools.json"), r#"{"version": 1, "pools": [1]}"#).unwrap();
        let drained = data.drained_pools().load().unwrap();
        assert_eq!(drained, Drained { pools: BTreeSet::from([PoolId(1)]), emptied: BTreeSet::new() });
    }
}
