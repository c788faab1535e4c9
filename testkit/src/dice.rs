//! Chance for tests of random steps.

/// Numbers that are the same in every run.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn seeded(seed: u64) -> Dice {
        assert_ne!(seed, 0, "from zero comes nothing else");
        Dice(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        // xorshift64 (Marsaglia 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % bound
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same_and_every_side_comes_up() {
        let throws = |seed| {
            let mut dice = Dice::seeded(seed);
            (0..100).map(|_| dice.of(&[1, 2, 3, 4, 5, 6])).collect::<Vec<_>>()
        };
        assert_eq!(throws(5), throws(5));
        assert_ne!(throws(5), throws(6));
        assert!((1..=6).all(|side| throws(5).contains(&side)));
    }
}
