//! The state before the group: the cache, and the database for what the cache does not know.

use crate::cache::Cache;
use crate::counts::{Event, Question};
use crate::store::Store;

pub struct Source<'a> {
    pub store: &'a mut dyn Store,
    pub cache: &'a Cache,
}

impl Source<'_> {
    /// Asks the store for something that the cache does not know.
    pub fn ask(&mut self, question: Question) -> &mut dyn Store {
        self.cache.counts.add(Event::Asked(question));
        &mut *self.store
    }
}
