//! The gathered bytes of a file as ranges, and the data and holes of the file with them.

use api::RangeKind;
use rustix::io::Errno;
use types::ByteRange;

/// Sorted; they neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(Vec<ByteRange>);

impl Runs {
    /// The ranges may overlap, and come in any order.
    pub(super) fn new(mut ranges: Vec<ByteRange>) -> Runs {
        ranges.sort_unstable_by_key(|range| range.offset());
        let mut runs: Vec<ByteRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            let joined = runs
                .last()
                .filter(|last| range.offset() <= last.end())
                .and_then(|last| ByteRange::from_bounds(last.offset(), last.end().max(range.end())));
            match joined {
                Some(joined) => *runs.last_mut().expect("there is one to join") = joined,
                None => runs.push(range),
            }
        }
        Runs(runs)
    }

    /// Where the next kind begins, as `ReplicaRanges::seek` says. `seek` looks into the file alone. The runs are those before
    /// that look: a flush in between takes bytes from here to there.
    pub fn seek(
        &self,
        offset: u64,
        kind: RangeKind,
        seek: impl Fn(u64, RangeKind) -> Result<Option<u64>, Errno>,
    ) -> Result<Option<u64>, Errno> {
        match kind {
            RangeKind::Data => {
                let gathered = self.from(offset).map(|run| run.offset().max(offset));
                Ok(seek(offset, kind)?.into_iter().chain(gathered).min())
            }
            RangeKind::Hole => {
                let mut at = offset;
                loop {
                    let Some(hole) = seek(at, kind)? else { return Ok(None) };
                    at = self.end_of_run(hole);
                    if at == hole {
                        return Ok(Some(hole));
                    }
                }
            }
        }
    }

    /// The first run that ends behind `offset`.
    fn from(&self, offset: u64) -> Option<ByteRange> {
        self.0.get(self.0.partition_point(|run| run.end() <= offset)).copied()
    }

    /// The end of the run that has the byte at `offset`, or else `offset`.
    fn end_of_run(&self, offset: u64) -> u64 {
        self.from(offset).filter(|run| run.offset() <= offset).map_or(offset, ByteRange::end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPAN: usize = 60;

    fn next(data: &[bool], offset: u64, kind: RangeKind) -> Option<u64> {
        let is_wanted = |at: &usize| data[*at] == (kind == RangeKind::Data);
        let found = (offset as usize..data.len()).find(is_wanted).map(|at| at as u64);
        match kind {
            RangeKind::Data => found,
            RangeKind::Hole => found.or(Some(offset.max(data.len() as u64))),
        }
    }

    fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0..50_u64, 1..10_u64), 0..8)
    }

    fn mark(ranges: &[(u64, u64)]) -> Vec<bool> {
        let mut data = vec![false; SPAN];
        for (offset, length) in ranges {
            data[*offset as usize..(offset + length) as usize].fill(true);
        }
        data
    }

    proptest! {
        #[test]
        fn data_and_holes_are_those_of_the_file_with_the_gathered_bytes(
            in_file in ranges(),
            gathered in ranges(),
            offset in 0..70_u64,
        ) {
            let file = mark(&in_file);
            let all = mark(&[in_file, gathered.clone()].concat());
            let runs = Runs::new(gathered.iter().map(|(at, length)| ByteRange::new(*at, *length).unwrap()).collect());
            for pair in runs.0.windows(2) {
                prop_assert!(pair[0].end() < pair[1].offset(), "{:?}", runs);
            }
            for kind in [RangeKind::Data, RangeKind::Hole] {
                let found = runs.seek(offset, kind, |at, kind| Ok(next(&file, at, kind)));
                prop_assert_eq!(found, Ok(next(&all, offset, kind)), "{:?} from {}", kind, offset);
            }
        }
    }
}
