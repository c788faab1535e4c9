//! The streams of one file: requests that follow each other.
//!
//! A request belongs to the stream that it continues: from its end, up to its beginning, or at its distance. Clients
//! send read-ahead in parallel and out of order, so a stream also takes requests near its front and counts how many of
//! them are neighbours. A request that belongs to none begins a stream.

use crate::mode::Pattern;

const STREAMS_MAX: usize = 8;
const POINTS_MAX: usize = 8;
/// Equal steps that make a stream of contiguous requests.
const CONTIGUOUS_RUN_MIN: u8 = 2;
/// Equal steps that make a stream with gaps. Three requests at equal distances come about by chance.
const STRIDE_RUN_MIN: u8 = 3;
/// Neighbours, less requests without one, that make a stream sequential although it is out of order. It stays so while
/// they are more than none.
const SCORE_MIN: i8 = 3;
const SCORE_MAX: i8 = 8;
/// A request so many units ahead of the front still belongs to a stream.
const AHEAD_UNITS_MAX: u64 = 32;
/// The bits of `Stream::seen`.
const UNITS_KEPT: u64 = 64;
const REPEAT_PENALTY: i8 = 2;

/// The streams of one kind.
#[derive(Default)]
pub(super) struct Streams {
    streams: [Stream; STREAMS_MAX],
    /// The place of the stream of the last request.
    latest: usize,
    points: Points,
    strays: Strays,
    clock: u64,
}

/// The beginnings of the latest streams, to find three at equal distances.
struct Points {
    /// `u64::MAX`, where no request begins, is a free place.
    offsets: [u64; POINTS_MAX],
    oldest: usize,
}

/// Whether each of the last 16 requests belonged to no stream, the latest in the lowest bit.
#[derive(Clone, Copy, Default)]
struct Strays {
    bits: u16,
    requests: u32,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    offset: u64,
    end: u64,
    step: Step,
    /// How many times in a row the step was the same.
    run: u8,
    /// Neighbours, less requests without one.
    score: i8,
    is_dense: bool,
    /// The length of the first request; `front` and `seen` are counted in it. 0: the place is free.
    unit_bytes: u64,
    /// The unit behind the farthest one seen.
    front: u64,
    /// The 64 units before `front`; the lowest bit is the nearest.
    seen: u64,
    /// Requests outside of these bytes are not near the front.
    near_start: u64,
    near_end: u64,
    used_at: u64,
}

/// From one request of a stream to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    None,
    /// It begins where the last one ended.
    Forward,
    /// It ends where the last one began.
    Back,
    /// It begins at that distance from the last one's beginning.
    Stride(i64),
}

/// Where a request stands among the units that a stream has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Elsewhere,
    Repeated,
    New { neighbours: i8 },
}

impl Streams {
    /// The pattern of the stream that the request `offset..end` belongs to.
    pub(super) fn record(&mut self, offset: u64, end: u64) -> Pattern {
        self.clock += 1;
        let found = self.find_continued(offset, end).or_else(|| self.find_near(offset, end));
        let (at, is_stray) = found.unwrap_or_else(|| (self.begin(offset, end), true));
        self.latest = at;
        self.streams[at].used_at = self.clock;
        self.strays.record(is_stray);
        match self.streams[at].pattern() {
            Pattern::Unknown if self.strays.are_most() => Pattern::Random,
            pattern => pattern,
        }
    }

    /// The stream that expects this request: the latest, or the first of those that it touches, or one of its distance.
    fn find_continued(&mut self, offset: u64, end: u64) -> Option<(usize, bool)> {
        let at = if self.streams[self.latest].expects(offset, end) {
            self.latest
        } else {
            // Most requests touch one, and this is the cheaper question.
            let touched = self.streams.iter().position(|stream| stream.is_touched(offset, end));
            touched.or_else(|| self.streams.iter().position(|stream| stream.expects(offset, end)))?
        };
        self.streams[at].go_on(offset, end);
        Some((at, false))
    }

    /// The stream that has this request near its front and did not see it before.
    fn find_near(&mut self, offset: u64, end: u64) -> Option<(usize, bool)> {
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if end <= stream.near_start || offset >= stream.near_end {
                continue;
            }
            match stream.standing(stream.units(offset, end)) {
                Standing::Elsewhere => {}
                Standing::Repeated => stream.add_score(-REPEAT_PENALTY),
                Standing::New { neighbours } => {
                    stream.go_on(offset, end);
                    return Some((at, neighbours == 0));
                }
            }
        }
        None
    }

    /// Begins a stream in the place of the one that was used least lately.
    fn begin(&mut self, offset: u64, end: u64) -> usize {
        let (mut at, mut used_at) = (0, u64::MAX);
        for (place, stream) in self.streams.iter().enumerate() {
            if stream.used_at < used_at {
                (at, used_at) = (place, stream.used_at);
            }
        }
        let mut stream = Stream { offset, end, unit_bytes: end - offset, ..Stream::default() };
        stream.mark(stream.units(offset, end));
        if let Some(distance) = self.points.find_distance(offset) {
            (stream.step, stream.run) = (Step::Stride(distance), STRIDE_RUN_MIN - 1);
        }
        self.points.add(offset);
        self.streams[at] = stream;
        at
    }
}

impl Default for Points {
    fn default() -> Points {
        Points { offsets: [u64::MAX; POINTS_MAX], oldest: 0 }
    }
}

impl Points {
    fn add(&mut self, offset: u64) {
        self.offsets[self.oldest] = offset;
        self.oldest = (self.oldest + 1) % POINTS_MAX;
    }

    /// The distance at which two earlier points lead to this one.
    fn find_distance(&self, offset: u64) -> Option<i64> {
        self.offsets.iter().find_map(|point| {
            let distance = offset.wrapping_sub(*point);
            let before = point.wrapping_sub(distance);
            // No branch a point: the compiler compares several at a time.
            let is_met = self.offsets.iter().fold(false, |is_met, other| is_met | (*other == before));
            let is_free = *point == u64::MAX || before == u64::MAX;
            (is_met && !is_free && distance != 0).then_some(distance.cast_signed())
        })
    }
}

impl Strays {
    const REQUESTS_MIN: u32 = 6;

    fn record(&mut self, is_stray: bool) {
        self.bits = self.bits << 1 | u16::from(is_stray);
        self.requests = self.requests.saturating_add(1);
    }

    /// Three of four requests belonged to no stream.
    fn are_most(self) -> bool {
        let requests = self.requests.min(u16::BITS);
        requests >= Self::REQUESTS_MIN && self.bits.count_ones() * 4 >= requests * 3
    }
}

impl Stream {
    fn pattern(&self) -> Pattern {
        match self.step {
            Step::Forward if self.run >= CONTIGUOUS_RUN_MIN => Pattern::Sequential,
            Step::Back if self.run >= CONTIGUOUS_RUN_MIN => Pattern::Backward,
            Step::Stride(distance) if self.run >= STRIDE_RUN_MIN && distance < 0 => Pattern::Backward,
            // Requests that overlap leave no gap.
            Step::Stride(distance)
                if self.run >= STRIDE_RUN_MIN && distance.unsigned_abs() < self.unit_bytes =>
            {
                Pattern::Sequential
            }
            Step::Stride(_) if self.run >= STRIDE_RUN_MIN => Pattern::Strided,
            _ if self.is_dense => Pattern::Sequential,
            _ => Pattern::Unknown,
        }
    }

    fn expects(&self, offset: u64, end: u64) -> bool {
        match self.step_to(offset, end) {
            Step::Forward | Step::Back => self.is_touched(offset, end),
            step => step == self.step && step != Step::Stride(0),
        }
    }

    fn is_touched(&self, offset: u64, end: u64) -> bool {
        (offset == self.end || end == self.offset) && self.unit_bytes > 0
    }

    fn step_to(&self, offset: u64, end: u64) -> Step {
        if offset == self.end {
            Step::Forward
        } else if end == self.offset {
            Step::Back
        } else {
            Step::Stride(offset.wrapping_sub(self.offset).cast_signed())
        }
    }

    fn go_on(&mut self, offset: u64, end: u64) {
        let step = self.step_to(offset, end);
        self.run = if step == self.step { self.run.saturating_add(1) } else { 1 };
        self.step = step;
        let units = self.units(offset, end);
        match self.standing(units) {
            Standing::New { neighbours: 0 } => self.add_score(-1),
            Standing::New { neighbours } => self.add_score(neighbours),
            // Requests of several lengths share units.
            Standing::Repeated if step == Step::Forward => self.add_score(1),
            Standing::Repeated | Standing::Elsewhere => {}
        }
        self.mark(units);
        (self.offset, self.end) = (offset, end);
    }

    fn add_score(&mut self, score: i8) {
        self.score = (self.score + score).clamp(-SCORE_MAX, SCORE_MAX);
        self.is_dense = self.score >= SCORE_MIN || self.is_dense && self.score > 0;
    }

    fn standing(&self, (first, behind): (u64, u64)) -> Standing {
        if behind > self.front {
            let gap = first.saturating_sub(self.front);
            let neighbours = i8::from(first <= self.front);
            return if gap <= AHEAD_UNITS_MAX { Standing::New { neighbours } } else { Standing::Elsewhere };
        }
        let is_seen = |unit: u64| match self.front.checked_sub(unit) {
            Some(age @ 1..=UNITS_KEPT) => self.seen >> (age - 1) & 1 == 1,
            _ => false,
        };
        if self.front - first > UNITS_KEPT {
            Standing::Elsewhere
        } else if is_seen(first) {
            Standing::Repeated
        } else {
            let before = first.checked_sub(1).is_some_and(is_seen);
            Standing::New { neighbours: i8::from(before) + i8::from(is_seen(behind)) }
        }
    }

    fn mark(&mut self, (first, behind): (u64, u64)) {
        if behind > self.front {
            let shift = u32::try_from(behind - self.front).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(shift).unwrap_or(0);
            self.front = behind;
            let at = |unit: u64| unit.saturating_mul(self.unit_bytes);
            self.near_start = at(behind.saturating_sub(UNITS_KEPT + 1));
            self.near_end = at(behind.saturating_add(AHEAD_UNITS_MAX + 1));
        }
        for age in self.front - behind..(self.front - first).min(UNITS_KEPT) {
            self.seen |= 1 << age;
        }
    }

    /// The first unit of a range and the one behind its last, each at the nearest boundary and one unit at least.
    fn units(&self, offset: u64, end: u64) -> (u64, u64) {
        let nearest = |at: u64| at / self.unit_bytes + u64::from(at % self.unit_bytes > self.unit_bytes / 2);
        let first = nearest(offset).min(u64::MAX - 1);
        (first, nearest(end).max(first + 1))
    }
}
