//! Counts uploads that outlive a request: all together, and of each caller, so that nobody uses up what is there for all.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Caller;
use parking_lot::Mutex;

use super::UploadBounds;
use crate::UploadError;

pub(super) struct Places {
    /// Leaf lock.
    counts: Arc<Mutex<Counts>>,
    bounds: UploadBounds,
}

#[derive(Default)]
struct Counts {
    all: usize,
    /// Callers without any have no entry.
    each: BTreeMap<Account, usize>,
}

/// Issuers, password files and certificates may have one name for different people: the user id tells them apart.
type Account = (Arc<str>, u32);

/// A place, free again when this is dropped.
pub struct UploadPlace {
    counts: Arc<Mutex<Counts>>,
    account: Account,
}

impl Places {
    pub fn new(bounds: UploadBounds) -> Places {
        Places { counts: Arc::default(), bounds }
    }

    pub fn admit(&self, caller: &Caller) -> Result<UploadPlace, UploadError> {
        let account = (Arc::clone(&caller.name), caller.identity.uid);
        let mut counts = self.counts.lock();
        if counts.all >= self.bounds.all_max {
            return Err(UploadError::TooMany);
        }
        let of_caller = counts.each.get(&account).copied().unwrap_or(0);
        if of_caller >= self.bounds.per_caller_max {
            return Err(UploadError::TooManyOf(Arc::clone(&caller.name)));
        }
        counts.all += 1;
        counts.each.insert(account.clone(), of_caller + 1);
        Ok(UploadPlace { counts: Arc::clone(&self.counts), account })
    }
}

impl Drop for UploadPlace {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.all -= 1;
        match counts.each.get_mut(&self.account) {
            Some(of_caller) if *of_caller > 1 => *of_caller -= 1,
            _ => _ = counts.each.remove(&self.account),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Identity;

    use super::*;

    fn caller(name: &str, uid: u32) -> Caller {
        Caller { name: name.into(), identity: Identity::new(uid, 100, &[]), ..Caller::anonymous() }
    }

    #[test]
    fn one_caller_does_not_use_up_what_is_there_for_all() {
        let places = Places::new(UploadBounds { all_max: 4, per_caller_max: 2 });
        let (anna, namesake) = (caller("anna", 1), caller("anna", 2));
        let held = [places.admit(&anna).unwrap(), places.admit(&anna).unwrap()];
        assert!(matches!(places.admit(&anna), Err(UploadError::TooManyOf(_))));
        let others = [places.admit(&namesake).unwrap(), places.admit(&namesake).unwrap()];
        assert!(matches!(places.admit(&caller("bert", 3)), Err(UploadError::TooMany)), "all together");
        drop(held);
        assert!(places.admit(&anna).is_ok());
        drop(others);
        assert!(places.counts.lock().each.is_empty());
    }
}
