//! The answers of a pool to a question about many files.

use crate::PoolError;

/// One answer for each file of the question, in the question's order.
#[must_use]
#[derive(Debug)]
pub struct Answers<T>(Vec<Result<T, PoolError>>);

impl<T> Answers<T> {
    /// The same error for each of `count` files.
    pub fn alike(count: usize, error: &PoolError) -> Answers<T> {
        (0..count).map(|_| Err(error.clone())).collect()
    }

    /// The answer to a question about one file.
    pub fn sole(mut self) -> Result<T, PoolError> {
        assert_eq!(self.0.len(), 1, "the question was about one file");
        self.0.pop().expect("there is one, as was asserted")
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl<T> FromIterator<Result<T, PoolError>> for Answers<T> {
    fn from_iter<I: IntoIterator<Item = Result<T, PoolError>>>(answers: I) -> Answers<T> {
        Answers(answers.into_iter().collect())
    }
}

impl<T> IntoIterator for Answers<T> {
    type Item = Result<T, PoolError>;
    type IntoIter = std::vec::IntoIter<Result<T, PoolError>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
