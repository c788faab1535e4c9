//! Opens that deny writing, by the door they came through.

use std::collections::BTreeMap;

use crate::{Door, Modes, Share};

#[derive(Debug, Default)]
pub(super) struct Denials(BTreeMap<Door, usize>);

impl Denials {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any came through another door. Nobody (`None`) has every door for another.
    pub fn has_others(&self, door: Option<Door>) -> bool {
        self.0.keys().any(|other| Some(*other) != door)
    }

    /// An open of this door had the first share and has the second.
    pub fn replace(&mut self, door: Door, before: Option<Share>, share: Option<Share>) {
        let denies = |share: Option<Share>| share.is_some_and(|share| share.deny.contains(Modes::WRITE));
        match (denies(before), denies(share)) {
            (false, true) => *self.0.entry(door).or_default() += 1,
            (true, false) => {
                let count = self.0.get_mut(&door).expect("what goes was counted when it came");
                *count -= 1;
                if *count == 0 {
                    self.0.remove(&door);
                }
            }
            _ => {}
        }
    }
}
