//! The rules of a head and its pools against a model of what happened: many short histories, each from a seed.

mod model;
mod plan;
#[cfg(test)]
mod tests;
mod world;

use model::Check;
use plan::Plan;

use crate::histories::{Failure, History, Line, LineSubject, Simulation};

/// A fault in the carrying of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A fence counts as confirmed when it is sent.
    MissingFence,
    /// The head leaves out the margin for the pool's clock.
    EarlyLeaseEnd,
    /// A pool gets a lease before it has the floor of terms.
    LateFloor,
    /// A start of the head forgets longer leases of the starts before.
    ForgottenLease,
    /// A HELLO of a process that has ended counts as that of a new one.
    OldHello,
    /// The head goes on without a pool whose lease is over, and does not note the floor of terms that the pool is to take.
    UnnotedFloor,
    /// A pool that connects anew is waited for again to say that it has settled its writes.
    ForgottenFloor,
}

pub struct Rules;

impl Simulation for Rules {
    type Plan = Plan;
    type Plant = Plant;
    type Check = Check;

    const NAME: &'static str = "rules";
    const SUBJECT: &'static str = "the head and pool";
    const PLANTS: &'static [(&'static str, Plant)] = &[
        ("missing-fence", Plant::MissingFence),
        ("early-lease-end", Plant::EarlyLeaseEnd),
        ("late-floor", Plant::LateFloor),
        ("forgotten-lease", Plant::ForgottenLease),
        ("old-hello", Plant::OldHello),
        ("unnoted-floor", Plant::UnnotedFloor),
        ("forgotten-floor", Plant::ForgottenFloor),
    ];

    fn draw(seed: u64) -> Plan {
        Plan::draw(seed)
    }

    fn run(plan: &Plan, plant: Option<Plant>, is_traced: bool) -> History<Check> {
        let done = world::run(plan, plant, is_traced);
        let about = |pool: Option<usize>| pool.map(|pool| pool as u64);
        let failure = done.failure.map(|model::Failure { check, pool, what }| Failure {
            check,
            about: about(pool),
            what,
        });
        let line = |line: &world::Line| {
            let subject = about(line.pool).map_or(LineSubject::Everything, LineSubject::One);
            Line { about: subject, text: line.to_string() }
        };
        History {
            failure,
            hash: done.hash,
            events: done.events,
            lines: done.lines.iter().map(line).collect(),
        }
    }
}
