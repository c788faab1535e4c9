//! Replicas of other files than those in whose places they lie: moved behind the pool's back, or left from before a database
//! was put back. None of them is deleted. A replica that bears the label of another file moves into that file's place.
//! A replica without a free place becomes a file in `/lost+found` under a new number. The file in whose place it lay
//! has lost its data.

use std::io::{BufRead, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use api::Pool;
use namespace::{RepairLog, Repairs};
use pool::LocalPool;
use types::{FileId, PoolId};

use super::super::compare::{Owner, PoolProblem};
use super::{Done, Price, Work};

/// A replica in a place that is not its own, or of another birth than the file there, with what is wrong with it.
type MisplacedReplica = (String, (PoolId, FileId));

impl<R: BufRead, W: Write> Work<'_, R, W> {
    pub(super) fn put_right(&mut self, repairs: &mut Repairs, of_pools: &[PoolProblem]) -> Result<Done> {
        let (movable, homeless) = divide(of_pools);
        let told: Vec<String> = homeless.iter().chain(&movable).map(|(told, _)| told.clone()).collect();
        let title = "replicas in the places of other files";
        let question = "move them to their own places, or else into /lost+found under new numbers";
        if told.is_empty() || !self.ask(title, &told, question, Price::Nothing, false)? {
            return Ok(Done::All);
        }
        // They may lie where another one belongs.
        self.set_aside(repairs, homeless)?;
        let mut homeless = Vec::new();
        for (told, (pool, file)) in movable {
            self.log.note(&told, "put into the place that its label says, if that is free")?;
            self.log.secure()?;
            if self.local_pool(pool)?.put_in_place(file)? {
                self.made += 1;
            } else {
                homeless.push((told, (pool, file)));
            }
        }
        self.set_aside(repairs, homeless)?;
        Ok(Done::Moved)
    }

    /// They become files below `/lost+found` under numbers that no file ever had.
    pub(super) fn set_aside(&mut self, repairs: &mut Repairs, places: Vec<MisplacedReplica>) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let first = repairs.new_files(places.len() as u64)?;
        let numbers = || (first.0..).map(FileId);
        for ((was, _), number) in places.iter().zip(numbers()) {
            self.log.note(was, &format!("it is of {number}"))?;
        }
        self.log.secure()?;
        let mut strays = Vec::new();
        for ((was, (pool, file)), number) in places.into_iter().zip(numbers()) {
            let local = self.local_pool(pool)?;
            local.renumber(file, number)?;
            let found = pool::look(local.dir(), number)?.with_context(|| was)?;
            strays.push(crate::fsck::stray(pool, &found));
        }
        self.made += repairs.adopt(&strays, self.log)?;
        Ok(())
    }

    fn local_pool(&self, id: PoolId) -> Result<Arc<LocalPool>> {
        let found = self.services.local_pools.iter().find(|pool| pool.id() == id);
        found.cloned().context("a pool disappeared during the repair")
    }
}

/// Replicas that have a place of their own by their label, and replicas of another birth, which have none.
fn divide(of_pools: &[PoolProblem]) -> (Vec<MisplacedReplica>, Vec<MisplacedReplica>) {
    let (mut movable, mut homeless) = (Vec::new(), Vec::new());
    for problem in of_pools {
        let (places, place) = match *problem {
            PoolProblem::OtherFile { file, pool, .. } => (&mut movable, (pool, file)),
            PoolProblem::OtherBirth { file, pool } => (&mut homeless, (pool, file)),
            PoolProblem::Unknown { facts, pool, of: Owner::OtherBirth } => {
                (&mut homeless, (pool, facts.file))
            }
            _ => continue,
        };
        places.push((problem.to_string(), place));
    }
    (movable, homeless)
}
