//! Measured costs: time and CPU of one request, by access, mode and size.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mode::Mode;

/// The sizes that are measured: 4 KiB to 4 MiB, each the double of the last one.
pub const SIZES: [u64; 11] = [
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];
/// No request that a measurement waited for takes longer.
const WALL_MAX: Duration = Duration::from_secs(60);

/// The classes of requests that have thresholds of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Appends to a file, with their share of the sync at the end.
    Write,
    /// Reads that find nothing in the page cache.
    ReadSequential,
    ReadRandom,
}

impl Access {
    pub const ALL: [Access; 3] = [Access::Write, Access::ReadSequential, Access::ReadRandom];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    pub access: Access,
    pub mode: Mode,
    pub request_bytes: u64,
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

impl Cost {
    /// The number that modes are compared by. CPU time is in the wall time and counts once more: it is taken from other
    /// requests, and a wait for the device is not.
    pub fn weighed_ns(&self) -> u64 {
        self.wall_ns.saturating_add(self.cpu_ns)
    }
}

/// Invariants: sizes are of `SIZES`; a mode that has a cost of an access has it at every size; buffered has all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Cost>", into = "Vec<Cost>")]
pub struct Costs(Vec<Cost>);

impl Costs {
    /// In the order of `SIZES`. `None`: the mode is not possible here.
    pub fn weighed(&self, access: Access, mode: Mode) -> Option<[u64; SIZES.len()]> {
        let of_both = || self.0.iter().filter(move |cost| cost.access == access && cost.mode == mode);
        let mut weighed = [0; SIZES.len()];
        for (ns, size) in weighed.iter_mut().zip(SIZES) {
            *ns = of_both().find(|cost| cost.request_bytes == size)?.weighed_ns();
        }
        Some(weighed)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Cost> {
        self.0.iter()
    }
}

impl From<Costs> for Vec<Cost> {
    fn from(costs: Costs) -> Vec<Cost> {
        costs.0
    }
}

impl TryFrom<Vec<Cost>> for Costs {
    type Error = &'static str;

    fn try_from(costs: Vec<Cost>) -> Result<Costs, &'static str> {
        if costs.len() > Access::ALL.len() * Mode::ALL.len() * SIZES.len() {
            return Err("there are more costs than sizes, modes and accesses");
        }
        let wall_max_ns = WALL_MAX.as_nanos() as u64;
        if costs.iter().any(|cost| cost.wall_ns == 0 || cost.weighed_ns() > 2 * wall_max_ns) {
            return Err("a cost is zero or absurd");
        }
        let costs = Costs(costs);
        for access in Access::ALL {
            for mode in Mode::ALL {
                let of_both = costs.iter().filter(|cost| cost.access == access && cost.mode == mode).count();
                let is_complete = of_both == SIZES.len() && costs.weighed(access, mode).is_some();
                if !is_complete && (of_both > 0 || mode == Mode::Buffered) {
                    return Err("a size has no cost, or two");
                }
            }
        }
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffered() -> Vec<Cost> {
        let of = |access| {
            SIZES.map(|request_bytes| Cost {
                access,
                mode: Mode::Buffered,
                request_bytes,
                wall_ns: request_bytes,
                cpu_ns: 0,
            })
        };
        Access::ALL.into_iter().flat_map(of).collect()
    }

    #[test]
    fn complete_costs_are_read_back_in_the_order_of_their_sizes() {
        let mut costs = buffered();
        costs.reverse();
        let costs = Costs::try_from(costs).unwrap();
        assert_eq!(costs.weighed(Access::Write, Mode::Buffered), Some(SIZES));
        assert_eq!(costs.weighed(Access::Write, Mode::Direct), None);
        let text = serde_json::to_string(&costs).unwrap();
        assert_eq!(serde_json::from_str::<Costs>(&text).unwrap(), costs);
    }

    #[test]
    fn incomplete_doubled_and_absurd_costs_are_refused() {
        let changes: [fn(&mut Vec<Cost>); 8] = [
            |costs| costs.clear(),
            |costs| costs.truncate(costs.len() - 1),
            |costs| costs.push(costs[0]),
            |costs| costs.push(Cost { mode: Mode::Direct, ..costs[0] }),
            |costs| costs[3].request_bytes += 1,
            |costs| costs[3].wall_ns = 0,
            |costs| costs[3].wall_ns = u64::MAX,
            |costs| costs.extend(std::iter::repeat_n(costs[0], 1000)),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut costs = buffered();
            change(&mut costs);
            assert!(Costs::try_from(costs).is_err(), "{index}");
        }
    }
}
