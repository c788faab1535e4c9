//! Uploads that outlive a request, counted: all together, and of each caller, so that nobody uses up what is there for
//! all.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Caller;
use parking_lot::Mutex;

use crate::locks::Principal;
use crate::refusal::Refusal;

pub(crate) struct UnderWay {
    /// Leaf lock.
    counts: Arc<Mutex<Counts>>,
    all_max: usize,
    each_max: usize,
}

#[derive(Default)]
struct Counts {
    all: usize,
    /// Callers without any have no entry.
    each: BTreeMap<Principal, usize>,
}

/// A place, free again when this is dropped.
pub(crate) struct Admitted {
    counts: Arc<Mutex<Counts>>,
    who: Principal,
}

impl UnderWay {
    pub fn new(all_max: usize, each_max: usize) -> UnderWay {
        UnderWay { counts: Arc::default(), all_max, each_max }
    }

    pub fn admit(&self, caller: &Caller) -> Result<Admitted, Refusal> {
        let who = Principal::from(caller);
        let mut counts = self.counts.lock();
        if counts.all >= self.all_max {
            return Err(Refusal::busy("too many uploads are under way"));
        }
        let of_caller = counts.each.get(&who).copied().unwrap_or(0);
        if of_caller >= self.each_max {
            return Err(Refusal::busy(format!("{} has too many uploads under way", caller.name)));
        }
        counts.all += 1;
        counts.each.insert(who.clone(), of_caller + 1);
        Ok(Admitted { counts: Arc::clone(&self.counts), who })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.all -= 1;
        match counts.each.get_mut(&self.who) {
            Some(of_caller) if *of_caller > 1 => *of_caller -= 1,
            _ => _ = counts.each.remove(&self.who),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use types::Identity;

    use super::*;

    fn caller(name: &str, uid: u32) -> Caller {
        Caller { name: name.into(), identity: Identity::new(uid, 100, &[]), ..Caller::anonymous() }
    }

    #[test]
    fn one_caller_does_not_use_up_what_is_there_for_all() {
        let uploads = UnderWay::new(4, 2);
        let status = |who: &Caller| uploads.admit(who).map(|_| ()).map_err(|refusal| refusal.status);
        let (anna, namesake) = (caller("anna", 1), caller("anna", 2));
        let held = [uploads.admit(&anna).unwrap(), uploads.admit(&anna).unwrap()];
        assert_eq!(status(&anna), Err(StatusCode::SERVICE_UNAVAILABLE));
        let others = [uploads.admit(&namesake).unwrap(), uploads.admit(&namesake).unwrap()];
        assert_eq!(status(&caller("bert", 3)), Err(StatusCode::SERVICE_UNAVAILABLE), "all together");
        drop(held);
        assert_eq!(status(&anna), Ok(()));
        drop(others);
        assert!(uploads.counts.lock().each.is_empty());
    }
}
