//! `forebay fsck --repair`: one question for each kind of problem, then the repair, then the check once more.
//!
//! Only on a stopped instance: repairs go past the memory of a head, and what could be done through a running one is of
//! files that nobody can read anyhow.

mod others;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, Write};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::ANSWER_TIME;
use namespace::{ProblemKind, Repairs, Stray};
use types::{FileId, PoolId};

use super::answers::{Answers, Price, of_person};
use super::compare::{Owner, PoolProblem, compare};
use super::findings::{Finding, Findings};
use super::list::List;
use super::log::Log;
use crate::cli::FsckArguments;
use crate::config::Config;
use crate::control::{self, Request};
use crate::data_dir::DataDir;
use crate::output::counted;
use crate::progress::{Meter, Shown};
use crate::report::FsckReport;
use crate::services::Services;
use crate::system::SystemRandom;

/// As many as the namespace tells of one kind.
const TOLD_MAX: usize = 10_000;

/// `list` gets what is left at the end.
pub fn run(arguments: &FsckArguments, config: &Config, list: Option<&mut List>) -> Result<FsckReport> {
    let mut answers = of_person(arguments.yes)?;
    if control::ask::<serde_json::Value>(&config.data, Request::Status)?.is_some() {
        bail!("{} is in use by a running server; stop it, then repair", config.data.display());
    }
    let data = DataDir::open_existing(&config.data, &SystemRandom)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut log = Log::open(data.path())?;
    let mut made = 0;
    loop {
        let meter = Meter::new();
        let shown = Shown::of(&meter, arguments.progress);
        meter.begin("opening namespace and pools");
        let services = runtime.block_on(super::open(&data, config))?;
        let mut found = OfPools(Vec::new());
        runtime.block_on(async {
            let compared = compare(&services.namespace, &services.checked_pools(), &meter, &mut found).await;
            services.namespace.close().await;
            compared
        })?;
        // Before questions are asked.
        drop(shown);
        let handle = runtime.handle().clone();
        let (answers, log) = (&mut answers, &mut log);
        let mut work = Work { arguments, data: &data, services: &services, handle, answers, log, made: 0 };
        let done = work.repair(&found.0);
        made += work.made;
        runtime.block_on(services.close());
        drop(services);
        if done? == Done::All {
            break;
        }
    }
    if made > 0 {
        let repairs = counted(made, "repair is", "repairs are");
        eprintln!("{repairs} listed in {}", log.path.display());
    }
    runtime.block_on(super::check_opened(&data, config, arguments.progress, list))
}

/// The problems that a repair looks for: those of the namespace it asks for again, kind by kind.
struct OfPools(Vec<PoolProblem>);

#[async_trait::async_trait]
impl Findings for OfPools {
    async fn take(&mut self, finding: Finding) -> Result<()> {
        if let Finding::OfPool(problem) = finding {
            self.0.push(problem);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// Replicas lie elsewhere now, and all is to be compared anew.
    Moved,
    All,
}

struct Work<'a, R, W> {
    arguments: &'a FsckArguments,
    data: &'a DataDir,
    services: &'a Services,
    handle: tokio::runtime::Handle,
    answers: &'a mut Answers<R, W>,
    log: &'a mut Log,
    made: u64,
}

impl<R: BufRead, W: Write> Work<'_, R, W> {
    fn repair(&mut self, of_pools: &[PoolProblem]) -> Result<Done> {
        let namespace = Arc::clone(&self.services.namespace);
        let mut repairs = namespace.repairs().context("cannot repair the namespace")?;
        let done = self.put_right(&mut repairs, of_pools)?;
        if done == Done::All {
            for kind in ProblemKind::ALL {
                self.repair_kind(&mut repairs, kind)?;
            }
            self.place(&mut repairs, of_pools)?;
            self.take_in(&mut repairs, of_pools)?;
            self.forget(&mut repairs, of_pools)?;
            self.shorten(&mut repairs, of_pools)?;
        }
        if self.made > 0 {
            self.made += repairs.settle(self.log)?;
        }
        Ok(done)
    }

    fn repair_kind(&mut self, repairs: &mut Repairs, kind: ProblemKind) -> Result<()> {
        let problems: Vec<String> = repairs.find(kind)?.iter().map(ToString::to_string).collect();
        if problems.is_empty() {
            return Ok(());
        }
        if self.ask(kind.title(), &problems, "repair them", Price::Nothing, false)? {
            self.made += repairs.mend(kind, self.log)?;
        }
        Ok(())
    }

    fn ask(
        &mut self,
        title: &str,
        problems: &[String],
        question: &str,
        price: Price,
        agreed: bool,
    ) -> Result<bool> {
        let count = match problems.len() {
            TOLD_MAX.. => format!("{TOLD_MAX} or more"),
            count => count.to_string(),
        };
        self.answers.ask(title, problems, &count, question, price, agreed)
    }

    /// Replicas of files that lie nowhere.
    fn place(&mut self, repairs: &mut Repairs, of_pools: &[PoolProblem]) -> Result<()> {
        let (told, strays) = self.strays(of_pools, |of| of == Owner::Unplaced)?;
        if !told.is_empty()
            && self.ask(
                "replicas that the namespace does not have",
                &told,
                "record their locations",
                Price::Nothing,
                false,
            )?
        {
            self.made += repairs.place(&strays, self.log)?;
        }
        Ok(())
    }

    /// Replicas of no file become files, or go.
    fn take_in(&mut self, repairs: &mut Repairs, of_pools: &[PoolProblem]) -> Result<()> {
        let (told, strays) = self.strays(of_pools, |of| of == Owner::Nobody)?;
        if self.may_take_in("replicas of no file", &told, &strays, "move them into /lost+found")? {
            self.made += repairs.adopt(&strays, self.log)?;
        }
        let (told, strays) = self.strays(of_pools, |of| matches!(of, Owner::NoRegularFile(_)))?;
        let title = "replicas of objects that are not regular files";
        if self.may_take_in(title, &told, &strays, "move them into /lost+found under new numbers")? {
            let places = told.into_iter().zip(strays.iter().map(|stray| (stray.pool, stray.file)));
            self.set_aside(repairs, places.collect())?;
        }
        Ok(())
    }

    /// `false`: nobody wants them as files, or they were deleted.
    fn may_take_in(
        &mut self,
        title: &str,
        told: &[String],
        strays: &[Stray],
        question: &str,
    ) -> Result<bool> {
        if told.is_empty() {
            return Ok(false);
        }
        if !self.arguments.delete_unknown_replicas {
            return self.ask(title, told, question, Price::Nothing, false);
        }
        if self.ask(title, told, "delete them for good", Price::Data, true)? {
            self.delete(strays)?;
        }
        Ok(false)
    }

    fn delete(&mut self, strays: &[Stray]) -> Result<()> {
        use namespace::RepairLog;
        for stray in strays {
            let was = format!("{} has a replica of {}, {} bytes", stray.pool, stray.file, stray.size);
            self.log.note(&was, "deleted")?;
        }
        self.log.secure()?;
        for stray in strays {
            let pool = self.services.pools.pool(stray.pool);
            let pool = pool.context("a pool disappeared during the repair")?;
            self.handle.block_on(pool.remove(&[stray.file], ANSWER_TIME)).sole()?;
            self.made += 1;
        }
        Ok(())
    }

    /// Locations at which there is nothing.
    fn forget(&mut self, repairs: &mut Repairs, of_pools: &[PoolProblem]) -> Result<()> {
        let (spare, lost) = gone(of_pools);
        self.rescue(repairs, of_pools)?;
        let title = "missing or short replicas that no file needs";
        if !spare.told.is_empty()
            && self.ask(title, &spare.told, "remove their locations", Price::Nothing, false)?
        {
            self.made += repairs.drop_locations(&spare.locations, self.log)?;
        }
        let agreed = self.arguments.give_up_lost_data;
        let title = "files whose data no pool has";
        if !lost.told.is_empty()
            && self.ask(title, &lost.told, "truncate them to length 0", Price::Data, agreed)?
        {
            self.made += repairs.drop_locations(&lost.locations, self.log)?;
            let empty: Vec<(FileId, u64)> = lost.files.iter().map(|file| (*file, 0)).collect();
            self.made += repairs.shorten(&empty, self.log)?;
        }
        Ok(())
    }

    /// Files whose whole data lies where the namespace does not place it: it is noted, and the bad location forgotten.
    fn rescue(&mut self, repairs: &mut Repairs, of_pools: &[PoolProblem]) -> Result<()> {
        let whole = whole_elsewhere(of_pools);
        let (_, strays) = self.strays(of_pools, |of| of == Owner::Elsewhere)?;
        let (mut told, mut bad, mut good) = (Vec::new(), Vec::new(), Vec::new());
        for problem in of_pools {
            let Some((file, pool, false)) = bad_location(problem) else { continue };
            let Some(from) = whole.get(&file) else { continue };
            let Some(stray) = strays.iter().find(|stray| (stray.file, stray.pool) == (file, *from)) else {
                continue;
            };
            told.push(format!("{problem}, but {from} has it"));
            bad.push((file, pool));
            good.push(*stray);
        }
        good.dedup();
        let title = "files whose data is on another pool than recorded";
        if !told.is_empty() && self.ask(title, &told, "record the pool that has it", Price::Nothing, false)? {
            self.made += repairs.place(&good, self.log)?;
            self.made += repairs.drop_locations(&bad, self.log)?;
        }
        Ok(())
    }

    /// Files of which a part is gone.
    fn shorten(&mut self, repairs: &mut Repairs, of_pools: &[PoolProblem]) -> Result<()> {
        let (told, sizes) = cut(of_pools);
        let agreed = self.arguments.give_up_lost_data;
        let title = "files that are longer than their replicas";
        if !told.is_empty()
            && self.ask(title, &told, "truncate them to the data that is left", Price::Data, agreed)?
        {
            self.accept_lengths(of_pools)?;
            self.made += repairs.shorten(&sizes, self.log)?;
        }
        Ok(())
    }

    /// Their pools would go on missing what is given up.
    fn accept_lengths(&self, of_pools: &[PoolProblem]) -> Result<()> {
        for problem in of_pools {
            if let PoolProblem::Short { file, pool, elsewhere: false, .. } = *problem {
                pool::accept_length(&self.data.pool(pool.0), file)?;
            }
        }
        Ok(())
    }

    /// Replicas that the namespace does not place, as their files say.
    fn strays(
        &self,
        of_pools: &[PoolProblem],
        is_wanted: impl Fn(Owner) -> bool,
    ) -> Result<(Vec<String>, Vec<Stray>)> {
        let (mut told, mut strays) = (Vec::new(), Vec::new());
        for problem in of_pools {
            let PoolProblem::Unknown { facts, pool, of } = *problem else { continue };
            if !is_wanted(of) {
                continue;
            }
            let found = match pool::look(&self.data.pool(pool.0), facts.file) {
                Ok(found) => found,
                Err(error) => {
                    eprintln!("{problem}: not repaired: {error}");
                    continue;
                }
            };
            let Ok(found) = found else { continue };
            told.push(problem.to_string());
            strays.push(super::stray(pool, &found));
        }
        Ok((told, strays))
    }
}

/// Files and locations whose data is not where the namespace says.
#[derive(Default)]
struct Gone {
    told: Vec<String>,
    files: Vec<FileId>,
    locations: Vec<(FileId, PoolId)>,
}

impl Gone {
    fn push(&mut self, problem: &PoolProblem, file: FileId, pool: Option<PoolId>) {
        self.told.push(problem.to_string());
        self.files.push(file);
        self.locations.extend(pool.map(|pool| (file, pool)));
    }
}

/// The file, the pool where it should be whole and is not, and whether another pool that it is said to lie on has it.
fn bad_location(problem: &PoolProblem) -> Option<(FileId, PoolId, bool)> {
    match *problem {
        PoolProblem::Missing { file, pool, elsewhere, .. }
        | PoolProblem::Short { file, pool, elsewhere, .. } => Some((file, pool, elsewhere)),
        PoolProblem::NoSuchPool { file, pool, size, elsewhere } if size > 0 => Some((file, pool, elsewhere)),
        _ => None,
    }
}

/// Damaged files of which some pool has a whole replica that the namespace does not know.
fn whole_elsewhere(of_pools: &[PoolProblem]) -> HashMap<FileId, PoolId> {
    let sizes: HashMap<FileId, u64> = of_pools
        .iter()
        .filter_map(|problem| match *problem {
            PoolProblem::Missing { file, size, elsewhere: false, .. }
            | PoolProblem::Short { file, size, elsewhere: false, .. }
            | PoolProblem::NoSuchPool { file, size, elsewhere: false, .. } => Some((file, size)),
            _ => None,
        })
        .collect();
    of_pools
        .iter()
        .filter_map(|problem| match *problem {
            PoolProblem::Unknown { facts, pool, of: Owner::Elsewhere }
                if sizes.get(&facts.file).is_some_and(|size| facts.size >= *size) =>
            {
                Some((facts.file, pool))
            }
            _ => None,
        })
        .collect()
}

/// Files that are to be as long as the longest that a pool has of them.
fn cut(of_pools: &[PoolProblem]) -> (Vec<String>, Vec<(FileId, u64)>) {
    let whole = whole_elsewhere(of_pools);
    let (mut told, mut sizes) = (Vec::new(), HashMap::<FileId, u64>::new());
    for problem in of_pools {
        let PoolProblem::Short { file, written, elsewhere: false, .. } = *problem else { continue };
        if !whole.contains_key(&file) {
            told.push(problem.to_string());
            let size = sizes.entry(file).or_default();
            *size = written.max(*size);
        }
    }
    let mut sizes: Vec<_> = sizes.into_iter().collect();
    sizes.sort_unstable();
    (told, sizes)
}

/// Bad locations that can be dropped without loss, and those whose data is lost.
fn gone(of_pools: &[PoolProblem]) -> (Gone, Gone) {
    let (mut spare, mut lost) = (Gone::default(), Gone::default());
    let whole = whole_elsewhere(of_pools);
    // Files of which a part is left are cut to that.
    let short: HashSet<FileId> = cut(of_pools).1.into_iter().map(|(file, _)| file).collect();
    for problem in of_pools {
        match *problem {
            // Rescued.
            PoolProblem::Missing { file, .. } | PoolProblem::NoSuchPool { file, .. }
                if whole.contains_key(&file) => {}
            PoolProblem::Short { file, pool, elsewhere: true, .. } => spare.push(problem, file, Some(pool)),
            PoolProblem::Missing { file, pool, elsewhere, .. } => {
                let into = if elsewhere || short.contains(&file) { &mut spare } else { &mut lost };
                into.push(problem, file, Some(pool));
            }
            PoolProblem::NoSuchPool { file, pool, size, elsewhere } => {
                let is_spare = elsewhere || size == 0 || short.contains(&file);
                let into = if is_spare { &mut spare } else { &mut lost };
                into.push(problem, file, Some(pool));
            }
            // Unless a pool has it after all.
            PoolProblem::NoPlace { file, .. } => {
                let is_there = |problem: &PoolProblem| matches!(problem, PoolProblem::Unknown { facts, .. } if facts.file == file);
                if !of_pools.iter().any(is_there) {
                    lost.push(problem, file, None);
                }
            }
            // Which of the replicas to believe is for the operator to say.
            PoolProblem::NoneGood { .. } => {}
            // Those of other files stay only if nobody wants them put right.
            PoolProblem::OtherBirth { .. }
            | PoolProblem::OtherFile { .. }
            | PoolProblem::Short { .. }
            | PoolProblem::Unknown { .. } => {}
        }
    }
    (spare, lost)
}

#[cfg(test)]
mod tests {
    use api::ReplicaFacts;

    use super::*;

    const FILE: FileId = FileId(5);

    fn short(pool: u32, written: u64, elsewhere: bool) -> PoolProblem {
        PoolProblem::Short { file: FILE, pool: PoolId(pool), size: 100, written, elsewhere }
    }

    fn missing(pool: u32) -> PoolProblem {
        PoolProblem::Missing { file: FILE, pool: PoolId(pool), size: 100, elsewhere: false }
    }

    fn stray(pool: u32, size: u64) -> PoolProblem {
        let facts =
            ReplicaFacts { file: FILE, birth: api::Birth::UNKNOWN, size, space_used: 4096, modified: None };
        PoolProblem::Unknown { facts, pool: PoolId(pool), of: Owner::Elsewhere }
    }

    #[test]
    fn a_file_is_not_given_up_if_an_unknown_replica_has_it_whole() {
        let problems = [short(0, 7, false), missing(1), stray(2, 99), stray(3, 100)];
        assert_eq!(whole_elsewhere(&problems), HashMap::from([(FILE, PoolId(3))]));
        assert_eq!(cut(&problems).1, []);
        let (spare, lost) = gone(&problems);
        assert_eq!((spare.locations, lost.files), (Vec::new(), Vec::new()));
        let (_, lost) = gone(&[missing(1), stray(2, 99)]);
        assert_eq!(lost.files, [FILE]);
    }

    #[test]
    fn a_short_replica_beside_a_whole_one_is_forgotten_and_the_file_not_cut() {
        let problems = [short(1, 7, true)];
        assert_eq!(cut(&problems).1, []);
        let (spare, lost) = gone(&problems);
        assert_eq!((spare.locations, lost.files), (vec![(FILE, PoolId(1))], Vec::new()));
    }

    #[test]
    fn of_several_parts_the_longest_is_kept() {
        let problems = [short(0, 7, false), short(1, 60, false), short(2, 9, false), missing(3)];
        assert_eq!(cut(&problems).1, [(FILE, 60)]);
        assert!(gone(&problems).1.files.is_empty());
    }
}
