//! Terms that the head tells a pool, and those that the pool holds.

use api::{Term, TermFloor};

/// The term of the head, and the lowest whose tickets to write are honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    pub term: Term,
    pub floor: Term,
}

impl Terms {
    /// At the pool.
    pub fn apply(self, floor: &TermFloor) {
        floor.begin_term(self.term);
        floor.raise(self.floor);
    }
}

/// The terms that a pool holds, as it tells the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldTerms {
    pub terms: Terms,
    /// No write by a ticket below the floor is under way.
    pub is_settled: bool,
}

impl HeldTerms {
    pub fn of(floor: &TermFloor) -> HeldTerms {
        // The floor first: writes are then settled below this one or a later one.
        let terms = Terms { floor: floor.lowest(), term: floor.newest() };
        HeldTerms { terms, is_settled: floor.is_settled() }
    }

    /// No write below `floor` is under way at the pool, and none begins there.
    pub fn have_settled(&self, floor: Term) -> bool {
        self.is_settled && self.terms.floor >= floor
    }
}
