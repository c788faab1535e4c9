//! The rule: facts and thresholds in, mode and reason out.
//!
//! Invariants: a mode that the pool cannot do is never chosen; a longer request, all else being equal, is never nearer
//! to the page cache; under `Policy::Auto` a read that the page cache has is buffered. The table is at [`decide`].

use super::facts::{Inputs, Kind, Pattern, Residency, Reuse};
use super::thresholds::{Crossover, Policy, Thresholds};
use super::{Decision, Mode, Reason};

/// Chooses the mode of one request. The first row that holds decides.
///
/// | rule of `Policy::Auto` | mode | reason |
/// |---|---|---|
/// | the operator pinned a mode | that one, or the next that is possible | `pinned` |
/// | the policy is one mode | that one, or the next that is possible | `forced` |
/// | a read has `hot_percent` of its range in the page cache | buffered | `hot-read` |
/// | shorter than `small_bytes` | buffered | `small` |
/// | the range is dirty, the file contended, and this is a large write | direct | `dirty-contended` |
/// | the range is dirty | buffered | `dirty-pages` |
/// | the file is contended, and this is a large write | direct | `contended` |
/// | memory is tight | uncached, or direct if large | `memory-tight` |
/// | a write is longer than the headroom for dirty pages | uncached, or direct if large | `dirty-headroom-low` |
/// | a write will be read soon, the file fits the cache | buffered | `read-after-write` |
/// | the bytes are used again, the file fits the cache | buffered | `reused` |
/// | a read of which residency or reuse is unknown | buffered | `residency-unknown`, `reuse-unknown` |
/// | from `uncached_bytes_min` or `direct_bytes_min` of the class | uncached or direct | `stable-large`, `large-write`, `streaming-read`, `random-read` |
/// | all others | buffered | `below-crossover` |
///
/// A row that wants a mode that is impossible here is skipped, save the first two and the last but one: these fall back
/// from direct to uncached to buffered, with `direct-unavailable`, `uncached-unavailable`, `below-one-block` or
/// `unaligned` as their reason. By size, uncached stands in for direct only where its own threshold allows it.
///
/// `Policy::Paper` and `Policy::BeeGfs` have the rows of their sources only, and never choose uncached.
pub fn decide(inputs: &Inputs, thresholds: &Thresholds) -> Decision {
    let asked = Asked::new(inputs, thresholds);
    if let Some(mode) = inputs.file.pinned {
        return asked.nearest(mode, Reason::Pinned);
    }
    match thresholds.policy {
        Policy::Auto => asked.decide_by_all(),
        Policy::Buffered => asked.nearest(Mode::Buffered, Reason::Forced),
        Policy::Uncached => asked.nearest(Mode::Uncached, Reason::Forced),
        Policy::Direct => asked.nearest(Mode::Direct, Reason::Forced),
        Policy::Paper => asked.decide_as_paper(),
        Policy::BeeGfs => asked.decide_as_beegfs(),
    }
}

/// A request with what follows from its facts.
struct Asked<'a> {
    inputs: &'a Inputs,
    thresholds: &'a Thresholds,
    /// A read ends with its file.
    length_bytes: u64,
    class: Crossover,
    /// Why direct I/O is impossible here.
    direct_obstacle: Option<Reason>,
    is_aligned: bool,
}

/// The mode that sizes ask for, and the reason why it is not the one they ask for first.
#[derive(Clone, Copy)]
struct BySize {
    mode: Mode,
    obstacle: Option<Reason>,
}

impl<'a> Asked<'a> {
    fn new(inputs: &'a Inputs, thresholds: &'a Thresholds) -> Asked<'a> {
        let request = &inputs.request;
        let length_bytes = match request.kind {
            Kind::Write => request.length_bytes,
            Kind::Read => request.length_bytes.min(inputs.file.size_bytes.saturating_sub(request.offset)),
        };
        let class = match (request.kind, request.pattern) {
            (Kind::Write, _) => thresholds.write,
            (Kind::Read, Pattern::Sequential) => thresholds.read_sequential,
            (Kind::Read, Pattern::Strided | Pattern::Backward | Pattern::Random) => thresholds.read_random,
            (Kind::Read, Pattern::Unknown) => thresholds.read_sequential.and(thresholds.read_random),
        };
        let direct = inputs.pool.capabilities.direct;
        let direct_obstacle = match direct {
            None => Some(Reason::DirectUnavailable),
            // A direct read takes the blocks around its range. A write would write bytes of others.
            Some(alignment) if request.kind == Kind::Write => {
                (!has_whole_block(request.offset, length_bytes, u64::from(alignment.offset_bytes)))
                    .then_some(Reason::BelowOneBlock)
            }
            Some(_) => None,
        };
        let is_aligned = direct.is_some_and(|alignment| {
            request.offset.is_multiple_of(u64::from(alignment.offset_bytes))
                && request
                    .memory_alignment_bytes
                    .is_none_or(|bytes| bytes >= u64::from(alignment.memory_bytes))
        });
        Asked { inputs, thresholds, length_bytes, class, direct_obstacle, is_aligned }
    }

    fn decide_by_all(&self) -> Decision {
        let request = &self.inputs.request;
        if request.kind == Kind::Read && self.is_hot() {
            return Decision::buffered(Reason::HotRead);
        }
        if self.is_small() {
            return Decision::buffered(Reason::Small);
        }
        self.decide_under_conflict()
            .or_else(|| self.decide_under_pressure())
            .or_else(|| self.decide_by_use())
            .unwrap_or_else(|| self.decide_by_size())
    }

    fn decide_under_conflict(&self) -> Option<Decision> {
        let file = &self.inputs.file;
        // Reads take no lock that others wait for, and a read past the cache waits for the write-back of others' writes.
        let is_contended = file.is_contended
            && self.inputs.request.kind == Kind::Write
            && self.direct_obstacle.is_none()
            && reaches(self.length_bytes, self.thresholds.contended_direct_bytes_min);
        match (file.is_dirty, is_contended) {
            (false, false) => None,
            (false, true) => Some(Decision { mode: Mode::Direct, reason: Reason::Contended }),
            (true, true) if reaches(self.length_bytes, self.direct_bytes_min()) => {
                Some(Decision { mode: Mode::Direct, reason: Reason::DirtyContended })
            }
            // A bypass would flush for each request what write-back does once.
            (true, _) => Some(Decision::buffered(Reason::DirtyPages)),
        }
    }

    fn decide_under_pressure(&self) -> Option<Decision> {
        let pool = &self.inputs.pool;
        let is_write = self.inputs.request.kind == Kind::Write;
        let reason = if pool.is_memory_tight {
            Reason::MemoryTight
        } else if is_write && pool.dirty_headroom_bytes.is_some_and(|headroom| headroom < self.length_bytes) {
            Reason::DirtyHeadroomLow
        } else {
            return None;
        };
        let Thresholds { tight_uncached_bytes_min, tight_direct_bytes_min, .. } = *self.thresholds;
        let tight = self.by_size(tight_uncached_bytes_min, tight_direct_bytes_min);
        // Pressure brings no request nearer to the page cache than its size alone does.
        let mode = tight.mode.max(self.by_class().mode);
        (mode != Mode::Buffered).then_some(Decision { mode, reason })
    }

    fn decide_by_use(&self) -> Option<Decision> {
        let Inputs { request, file, .. } = self.inputs;
        let is_write = request.kind == Kind::Write;
        let fits_cache =
            file.size_bytes.max(file.final_size_bytes.unwrap_or(0)) <= self.thresholds.cached_file_bytes_max;
        let reason = if is_write && file.is_read_after_write_expected && fits_cache {
            Reason::ReadAfterWrite
        } else if file.reuse == Reuse::Reused && fits_cache {
            Reason::Reused
        } else if !is_write && file.residency == Residency::Unknown {
            Reason::ResidencyUnknown
        } else if !is_write && file.reuse == Reuse::Unknown && fits_cache {
            Reason::ReuseUnknown
        } else {
            return None;
        };
        Some(Decision::buffered(reason))
    }

    fn decide_by_size(&self) -> Decision {
        let request = &self.inputs.request;
        let BySize { mode, obstacle } = self.by_class();
        let reason = match (obstacle, mode, request.kind, request.pattern) {
            (Some(obstacle), ..) => obstacle,
            (None, Mode::Buffered, ..) => Reason::BelowCrossover,
            (None, Mode::Direct, Kind::Write, _) if request.is_stable => Reason::StableLarge,
            (None, _, Kind::Write, _) => Reason::LargeWrite,
            (None, _, Kind::Read, Pattern::Sequential) => Reason::StreamingRead,
            (None, _, Kind::Read, _) => Reason::RandomRead,
        };
        Decision { mode, reason }
    }

    fn decide_as_paper(&self) -> Decision {
        let Inputs { file, pool, .. } = self.inputs;
        if self.is_small() {
            return Decision::buffered(Reason::Small);
        }
        if reaches(self.length_bytes, self.class.direct_bytes_min) {
            return self.direct_or_buffered(Reason::Large);
        }
        if file.is_contended {
            return self.direct_or_buffered(Reason::Contended);
        }
        if pool.is_memory_tight {
            return self.direct_or_buffered(Reason::MemoryTight);
        }
        match file.reuse {
            Reuse::Once => self.direct_or_buffered(Reason::UsedOnce),
            Reuse::Reused => Decision::buffered(Reason::Reused),
            Reuse::Unknown => Decision::buffered(Reason::ReuseUnknown),
        }
    }

    fn decide_as_beegfs(&self) -> Decision {
        if reaches(self.length_bytes, self.class.direct_bytes_min) {
            return self.direct_or_buffered(Reason::Large);
        }
        Decision::buffered(Reason::Small)
    }

    /// The mode, or the next one towards buffered that is possible.
    fn nearest(&self, mode: Mode, reason: Reason) -> Decision {
        let obstacle = match mode {
            Mode::Buffered => None,
            Mode::Uncached => (!self.is_uncached_possible()).then_some(Reason::UncachedUnavailable),
            Mode::Direct => self.direct_obstacle,
        };
        match obstacle {
            None => Decision { mode, reason },
            Some(obstacle) if mode == Mode::Direct && self.is_uncached_possible() => {
                Decision { mode: Mode::Uncached, reason: obstacle }
            }
            Some(obstacle) => Decision::buffered(obstacle),
        }
    }

    fn direct_or_buffered(&self, reason: Reason) -> Decision {
        self.direct_obstacle.map_or(Decision { mode: Mode::Direct, reason }, Decision::buffered)
    }

    fn by_class(&self) -> BySize {
        self.by_size(self.class.uncached_bytes_min, self.direct_bytes_min())
    }

    /// The possible mode that is farthest from the page cache and allowed at this size.
    fn by_size(&self, uncached_bytes_min: Option<u64>, direct_bytes_min: Option<u64>) -> BySize {
        let mut obstacle = None;
        if reaches(self.length_bytes, direct_bytes_min) {
            let is_too_short =
                !self.is_aligned && self.length_bytes < self.thresholds.unaligned_direct_bytes_min;
            obstacle = self.direct_obstacle.or(is_too_short.then_some(Reason::Unaligned));
            if obstacle.is_none() {
                return BySize { mode: Mode::Direct, obstacle };
            }
        }
        if reaches(self.length_bytes, uncached_bytes_min) {
            if self.is_uncached_possible() {
                return BySize { mode: Mode::Uncached, obstacle };
            }
            obstacle = obstacle.or(Some(Reason::UncachedUnavailable));
        }
        BySize { mode: Mode::Buffered, obstacle }
    }

    fn is_uncached_possible(&self) -> bool {
        self.inputs.pool.capabilities.is_uncached_possible
    }

    fn is_small(&self) -> bool {
        // An empty request has no bytes to bypass with.
        self.length_bytes < self.class.small_bytes.max(1)
    }

    fn is_hot(&self) -> bool {
        match self.inputs.file.residency {
            Residency::Unknown | Residency::None => false,
            Residency::Part { resident_bytes } => {
                let hot = u128::from(self.length_bytes) * u128::from(self.thresholds.hot_percent);
                u128::from(resident_bytes) * 100 >= hot
            }
            Residency::All => true,
        }
    }

    /// A stable write has a size of its own, where that is the smaller one.
    fn direct_bytes_min(&self) -> Option<u64> {
        let request = &self.inputs.request;
        let stable = self.thresholds.stable_direct_bytes_min.filter(|_| request.is_stable);
        match (self.class.direct_bytes_min, stable) {
            (Some(size), Some(stable)) if request.kind == Kind::Write => Some(size.min(stable)),
            (None, Some(stable)) if request.kind == Kind::Write => Some(stable),
            (size, _) => size,
        }
    }
}

impl Crossover {
    /// The sizes at which both bypass.
    fn and(self, other: Crossover) -> Crossover {
        let larger = |ours: Option<u64>, theirs: Option<u64>| Some(ours?.max(theirs?));
        Crossover {
            small_bytes: self.small_bytes.max(other.small_bytes),
            uncached_bytes_min: larger(self.uncached_bytes_min, other.uncached_bytes_min),
            direct_bytes_min: larger(self.direct_bytes_min, other.direct_bytes_min),
        }
    }
}

fn reaches(length_bytes: u64, bytes_min: Option<u64>) -> bool {
    bytes_min.is_some_and(|bytes_min| length_bytes >= bytes_min)
}

/// Whether `offset..offset + length` holds a block of that size that begins at a multiple of it.
fn has_whole_block(offset: u64, length: u64, block_bytes: u64) -> bool {
    let end = offset.saturating_add(length);
    offset
        .checked_next_multiple_of(block_bytes)
        .and_then(|start| start.checked_add(block_bytes))
        .is_some_and(|block_end| block_end <= end)
}
