//! Counters of events, for operators. Counting is one relaxed addition to a cache line that few other threads add to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use metrics::histogram;

/// Threads add to one of so many copies.
const STRIPES: usize = 16;

const GROUP_OPERATIONS: &str = "forebay_namespace_group_operations";
const COMMIT_SECONDS: &str = "forebay_namespace_commit_seconds";

/// Kinds of entries in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    Inode,
    Name,
    /// That a directory has no such name.
    AbsentName,
    Locations,
    Target,
    Acl,
    /// That all names of a directory are kept. Hits are those of absent names.
    WholeDirectory,
}

/// Kinds of queries to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Inode,
    Name,
    List,
    Locations,
    Target,
    Files,
    Properties,
    Checksums,
    Paths,
    Clients,
    /// Of a file, wherever they are.
    Names,
    Usage,
    /// Names of extended attributes.
    Xattrs,
    /// The value of one.
    Xattr,
    Acl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Hit(CacheKind),
    Miss(CacheKind),
    Evicted(CacheKind),
    /// A cold read.
    Read(Question),
    /// While a group was applied.
    Asked(Question),
}

const CACHE_KINDS: [(CacheKind, &str); 7] = [
    (CacheKind::Inode, "inode"),
    (CacheKind::Name, "name"),
    (CacheKind::AbsentName, "absent_name"),
    (CacheKind::Locations, "locations"),
    (CacheKind::Target, "target"),
    (CacheKind::Acl, "acl"),
    (CacheKind::WholeDirectory, "whole_directory"),
];

const QUESTIONS: [(Question, &str); 15] = [
    (Question::Inode, "inode"),
    (Question::Name, "name"),
    (Question::List, "list"),
    (Question::Locations, "locations"),
    (Question::Target, "target"),
    (Question::Files, "files"),
    (Question::Properties, "properties"),
    (Question::Checksums, "checksums"),
    (Question::Paths, "paths"),
    (Question::Clients, "clients"),
    (Question::Names, "names"),
    (Question::Usage, "usage"),
    (Question::Xattrs, "xattrs"),
    (Question::Xattr, "xattr"),
    (Question::Acl, "acl"),
];

const EVENTS: usize = 3 * CACHE_KINDS.len() + 2 * QUESTIONS.len();

impl Event {
    fn place(self) -> usize {
        let questions = 3 * CACHE_KINDS.len();
        match self {
            Event::Hit(kept) => kept as usize,
            Event::Miss(kept) => CACHE_KINDS.len() + kept as usize,
            Event::Evicted(kept) => 2 * CACHE_KINDS.len() + kept as usize,
            Event::Read(question) => questions + question as usize,
            Event::Asked(question) => questions + QUESTIONS.len() + question as usize,
        }
    }
}

pub struct Counts {
    stripes: Box<[Stripe]>,
}

/// Two lines of 64 bytes are fetched together.
#[repr(align(128))]
struct Stripe([AtomicU64; EVENTS]);

thread_local! {
    static STRIPE: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Counts {
    pub fn new() -> Counts {
        let stripe = || Stripe(std::array::from_fn(|_| AtomicU64::new(0)));
        Counts { stripes: (0..STRIPES).map(|_| stripe()).collect() }
    }

    pub fn add(&self, event: Event) {
        self.stripes[stripe()].0[event.place()].fetch_add(1, Ordering::Relaxed);
    }

    fn sum(&self, event: Event) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0[event.place()].load(Ordering::Relaxed)).sum()
    }

    pub fn kept(&self) -> impl Iterator<Item = (CacheKind, CacheFigures)> {
        CACHE_KINDS.iter().map(|(kept, name)| {
            let figures = CacheFigures {
                kind: name,
                hits: self.sum(Event::Hit(*kept)),
                misses: self.sum(Event::Miss(*kept)),
                evictions: self.sum(Event::Evicted(*kept)),
                ..CacheFigures::default()
            };
            (*kept, figures)
        })
    }

    pub fn questions(&self) -> Vec<QuestionFigures> {
        let figures = QUESTIONS.iter().flat_map(|(question, kind)| {
            [("reader", Event::Read(*question)), ("committer", Event::Asked(*question))]
                .map(|(by, event)| QuestionFigures { by, kind, count: self.sum(event) })
        });
        figures.filter(|figures| figures.count > 0).collect()
    }
}

fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    STRIPE.with(|stripe| {
        stripe.get().unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
            stripe.set(Some(new));
            new
        })
    })
}

/// Of a group that was committed.
pub fn record_group(operations: usize, commit: std::time::Duration) {
    histogram!(GROUP_OPERATIONS).record(operations as f64);
    histogram!(COMMIT_SECONDS).record(commit.as_secs_f64());
}

/// Counters since the namespace was opened, and current gauges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub cache: Vec<CacheFigures>,
    pub questions: Vec<QuestionFigures>,
    /// Operations that wait for the committer.
    pub queued: u64,
}

/// Of one kind of what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    pub kind: &'static str,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub entries: u64,
    pub bytes: u64,
    pub bytes_max: u64,
}

/// Of one kind of question: `by` readers or the committer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionFigures {
    pub by: &'static str,
    pub kind: &'static str,
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_its_own_place_and_its_own_name() {
        for (at, (kept, _)) in CACHE_KINDS.iter().enumerate() {
            assert_eq!(*kept as usize, at);
        }
        for (at, (question, _)) in QUESTIONS.iter().enumerate() {
            assert_eq!(*question as usize, at);
        }
        assert_eq!(Event::Asked(Question::Acl).place(), EVENTS - 1);
    }

    #[test]
    fn counts_of_many_threads_are_summed() {
        let counts = Counts::new();
        std::thread::scope(|scope| {
            for _ in 0..STRIPES + 3 {
                scope.spawn(|| (0..100).for_each(|_| counts.add(Event::Hit(CacheKind::Name))));
            }
        });
        counts.add(Event::Read(Question::List));
        let found: Vec<_> = counts.kept().map(|(_, figures)| (figures.kind, figures.hits)).collect();
        assert_eq!(found[1], ("name", 100 * (STRIPES as u64 + 3)));
        assert_eq!(counts.questions(), [QuestionFigures { by: "reader", kind: "list", count: 1 }]);
    }
}
