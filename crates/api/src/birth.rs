//! When a file was made, as tickets and labels of replicas say it: a file id that came back, in a database that was put
//! back or is another one, does not lead to the bytes of the file that had it before.

use types::Timestamp;

/// Seconds since 1970, of which the last 32 bits: enough to tell two files of one id apart, and to build a lost namespace
/// anew. 0: unknown, as in labels and tickets that are older.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Birth(pub u32);

impl Birth {
    pub const UNKNOWN: Birth = Birth(0);

    pub fn of(time: Timestamp) -> Birth {
        Birth((time.seconds & i64::from(u32::MAX)) as u32)
    }

    /// `None`: unknown. Until 2106 it is the time that it was made of, without the fraction of the second.
    pub fn time(self) -> Option<Timestamp> {
        if self == Birth::UNKNOWN { None } else { Timestamp::new(self.0.into(), 0) }
    }

    /// Whether they may be of one file.
    pub fn agrees_with(self, other: Birth) -> bool {
        self == other || self == Birth::UNKNOWN || other == Birth::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_is_the_second_and_is_told_from_every_other_that_is_known() {
        let of = |seconds| Birth::of(Timestamp::new(seconds, 999).unwrap());
        assert_eq!(of(1_700_000_000).time(), Timestamp::new(1_700_000_000, 0));
        assert_eq!((of(0).time(), of(1 << 32).time()), (None, None));
        assert_eq!(Birth::of(of(-5).time().unwrap()), of(-5), "also of one that is not the time itself");
        assert!(of(7).agrees_with(of(7)) && !of(7).agrees_with(of(8)));
        assert!(of(7).agrees_with(Birth::UNKNOWN) && Birth::UNKNOWN.agrees_with(of(8)));
    }
}
