//! Which way a database has gone: each start, and each new connection of a head to PostgreSQL, draws a number that is kept
//! in it and noted beside it, so that an older copy and one that went another way are told from the one that was here last.
//!
//! The last [`LEN`] numbers are kept, each in a slot of `meta`. File ids go on above all that any note says, whichever
//! database it is: a pool keeps data by file id.

use std::collections::BTreeMap;
use std::fmt;

use crate::store::NumberEnds;

/// Draws that are remembered.
const LEN: u64 = 64;
const PLACE: &str = "timeline";
/// The numbers of this namespace were raised by hand; the next start takes it for what follows upon any other.
pub const RESTORED: &str = "restored";

/// Note beside a database of how far it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Starts of heads.
    pub starts: u64,
    /// The last draw: its number, counted from one, and what was drawn.
    pub place: u64,
    pub drawn: i64,
    /// Every file id ever given lies below.
    pub files: u64,
    /// Groups of changes that were on disk.
    pub groups: u64,
}

/// A mark as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Where, for people.
    pub by: String,
    pub mark: Mark,
}

/// Why a database is not the one that was here last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It lacks starts or connections that were noted.
    OlderStart {
        by: String,
        has: u64,
        noted: u64,
    },
    OlderChanges {
        by: String,
        has: u64,
        noted: u64,
    },
    OtherWay {
        by: String,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::OlderStart { by, has, noted } => {
                write!(f, "is behind {by}: it has seen {has} starts and connections of a head, {by} {noted}")
            }
            Unfit::OlderChanges { by, has, noted } => {
                write!(f, "is behind {by}: it has {has} groups of changes, {by} has seen {noted}")
            }
            Unfit::OtherWay { by } => {
                write!(f, "and {by} went different ways: what was noted there last is not in the database")
            }
        }
    }
}

/// As the database has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    place: u64,
    drawn: BTreeMap<u64, i64>,
    is_restored: bool,
}

impl Timeline {
    /// Of all rows of `meta`; others are passed over.
    pub fn of<'a>(meta: impl IntoIterator<Item = (&'a str, i64)>) -> Timeline {
        let mut found = Timeline::default();
        for (key, value) in meta {
            match key {
                PLACE => found.place = value.cast_unsigned(),
                RESTORED => found.is_restored = value != 0,
                _ => {
                    let slot = key.strip_prefix(PLACE).and_then(|slot| slot.strip_prefix('_'));
                    if let Some(slot) = slot.and_then(|slot| slot.parse().ok()) {
                        found.drawn.insert(slot, value);
                    }
                }
            }
        }
        found
    }

    /// Whether the database is the one that the notes are of. `groups`: that it has.
    pub fn admit(&self, groups: u64, noted: &[Noted]) -> Result<(), Unfit> {
        if self.is_restored {
            return Ok(());
        }
        let newest = noted.iter().map(|noted| noted.mark.place).max().unwrap_or_default();
        for Noted { by, mark } in noted {
            let by = by.clone();
            if mark.place > self.place {
                return Err(Unfit::OlderStart { by, has: self.place, noted: mark.place });
            }
            // A pool whose note could not be written for long says nothing; the newest note has to be there.
            let is_remembered = self.place - mark.place < LEN;
            if is_remembered && !self.has(mark) || !is_remembered && mark.place == newest {
                return Err(Unfit::OtherWay { by });
            }
            if mark.groups > groups {
                return Err(Unfit::OlderChanges { by, has: groups, noted: mark.groups });
            }
        }
        Ok(())
    }

    fn has(&self, mark: &Mark) -> bool {
        self.drawn.get(&(mark.place % LEN)) == Some(&mark.drawn)
    }

    /// Rows that a start writes into `meta`. A restored database takes in the noted draws, to know them from now on.
    pub fn begin(&mut self, noted: &[Noted], drawn: i64) -> Vec<(String, i64)> {
        if self.is_restored {
            self.place = noted.iter().map(|noted| noted.mark.place).chain([self.place]).max().unwrap_or(0);
            for Noted { mark, .. } in noted.iter().filter(|noted| self.place - noted.mark.place < LEN - 1) {
                self.drawn.insert(mark.place % LEN, mark.drawn);
            }
            self.is_restored = false;
        }
        self.draw(drawn);
        let slots = self.drawn.iter().map(|(slot, drawn)| (slot_key(*slot), *drawn));
        [(PLACE.to_owned(), self.place.cast_signed()), (RESTORED.to_owned(), 0)]
            .into_iter()
            .chain(slots)
            .collect()
    }

    /// Rows that a new connection writes.
    pub fn go_on(&mut self, drawn: i64) -> [(String, i64); 2] {
        self.draw(drawn);
        [(PLACE.to_owned(), self.place.cast_signed()), (self.last_key(), drawn)]
    }

    fn draw(&mut self, drawn: i64) {
        self.place += 1;
        self.drawn.insert(self.place % LEN, drawn);
    }

    /// Where `meta` has the last draw.
    pub fn last_key(&self) -> String {
        slot_key(self.place % LEN)
    }

    /// The last draw.
    pub fn last(&self) -> (u64, i64) {
        (self.place, self.drawn.get(&(self.place % LEN)).copied().unwrap_or_default())
    }
}

fn slot_key(slot: u64) -> String {
    format!("{PLACE}_{slot}")
}

/// Never the same twice.
pub fn draw() -> i64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
    i64::from_be_bytes(bytes)
}

/// Above every number that was given since, whichever database it is. Both kinds are reserved in blocks of one length, so
/// that as many cookies may have been given as file ids.
pub fn above(ends: NumberEnds, noted: &[Noted]) -> NumberEnds {
    let files = noted.iter().map(|noted| noted.mark.files).max().unwrap_or_default();
    let lacking = files.saturating_sub(ends.files);
    NumberEnds { files: ends.files.max(files), cookies: ends.cookies.saturating_add(lacking) }
}

/// The most groups that were noted. A restored database has fewer, and is known by its draws from the first start on.
pub fn groups(noted: &[Noted]) -> u64 {
    noted.iter().map(|noted| noted.mark.groups).max().unwrap_or_default()
}

/// The most starts that were noted.
pub fn starts(noted: &[Noted]) -> u64 {
    noted.iter().map(|noted| noted.mark.starts).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(draws: std::ops::RangeInclusive<i64>) -> Timeline {
        let mut timeline = Timeline::default();
        for drawn in draws {
            timeline.begin(&[], drawn);
        }
        timeline
    }

    fn noted(place: u64, drawn: i64, groups: u64) -> Vec<Noted> {
        vec![Noted { by: "pool-0".to_owned(), mark: Mark { place, drawn, groups, ..Mark::default() } }]
    }

    #[test]
    fn a_database_that_goes_on_where_it_was_is_admitted() {
        let timeline = after(1..=100);
        assert_eq!(timeline.admit(7, &[]), Ok(()));
        for place in [37, 99, 100] {
            assert_eq!(timeline.admit(7, &noted(place, place.cast_signed(), 7)), Ok(()), "{place}");
        }
        assert_eq!(Timeline::default().admit(0, &[]), Ok(()));
    }

    #[test]
    fn an_older_database_and_one_that_went_another_way_are_refused() {
        let timeline = after(1..=100);
        let refused = |notes: &[Noted]| timeline.admit(7, notes).unwrap_err().to_string();
        assert!(refused(&noted(101, 101, 7)).contains("has seen 100 starts"));
        assert!(refused(&noted(100, 100, 8)).contains("it has 7 groups of changes, pool-0 has seen 8"));
        assert!(refused(&noted(100, 99, 7)).contains("different ways"));
        assert!(refused(&noted(20, 20, 7)).contains("different ways"), "nobody remembers that long");
        // One disk that could not be written for long, beside others.
        let both: Vec<Noted> = noted(20, 20, 7).into_iter().chain(noted(100, 100, 7)).collect();
        assert_eq!(timeline.admit(7, &both), Ok(()));
        let before = Timeline::default();
        assert!(before.admit(7, &noted(1, 1, 0)).is_err(), "as an older program left it");
    }

    #[test]
    fn cookies_and_file_ids_go_on_above_what_may_have_been_given_since() {
        let notes = vec![Noted { by: "pool-0".to_owned(), mark: Mark { files: 5000, ..Mark::default() } }];
        let ends = NumberEnds { files: 1000, cookies: 200 };
        let above = above(ends, &notes);
        assert_eq!((above.files, above.cookies), (5000, 4200));
        let damaged =
            vec![Noted { by: "pool-0".to_owned(), mark: Mark { files: u64::MAX, ..Mark::default() } }];
        assert_eq!(super::above(above, &damaged).files, u64::MAX);
        assert_eq!(super::above(above, &[]).files, 5000);
    }

    #[test]
    fn a_restored_database_is_admitted_once_and_goes_on_from_the_notes() {
        let mut timeline = Timeline { is_restored: true, ..after(1..=5) };
        let notes: Vec<Noted> = noted(90, 900, 50).into_iter().chain(noted(89, 890, 40)).collect();
        assert_eq!(timeline.admit(7, &notes), Ok(()));
        let written = timeline.begin(&notes, 910);
        assert_eq!(timeline.last(), (91, 910));
        let read = Timeline::of(written.iter().map(|(key, value)| (key.as_str(), *value)));
        assert_eq!(read, timeline);
        // It was killed before anything was noted.
        for one in [noted(90, 900, 7), noted(89, 890, 7), noted(91, 910, 7)] {
            assert_eq!(read.admit(7, &one), Ok(()));
        }
        assert!(read.admit(7, &noted(90, 901, 7)).is_err());
    }
}
