//! Uploads whose bytes come in several requests, by caller and path.
//!
//! An upload that is begun anew supersedes the one before, whose client does not know that: it goes on with bytes of other
//! contents. So each has an id, and where one was superseded only parts that name theirs are taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Caller;
use parking_lot::Mutex;
use types::{Clock, FileId, Identity, Name};

use super::places::Places;
use super::{UploadBounds, UploadPlace};
use crate::{Upload, UploadError, path_text};

/// An upload that nobody goes on with is given up then.
const IDLE: Duration = Duration::from_secs(3_600);

/// Issuers, password files and certificates may have one name for different people: the identity tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UploadKey {
    caller: Arc<str>,
    identity: Identity,
    path: Vec<Name>,
}

impl UploadKey {
    pub fn new(caller: &Caller, path: Vec<Name>) -> UploadKey {
        UploadKey { caller: Arc::clone(&caller.name), identity: caller.identity.clone(), path }
    }

    fn is_of_caller(&self, other: &UploadKey) -> bool {
        (&self.caller, &self.identity) == (&other.caller, &other.identity)
    }

    fn superseded(&self) -> UploadError {
        UploadError::Superseded { path: path_text(&self.path) }
    }
}

pub struct UploadsInParts(Arc<BoundedParts>);

struct BoundedParts {
    /// Leaf lock.
    parts: Mutex<Parts>,
    places: Places,
    clock: Arc<dyn Clock>,
}

impl UploadsInParts {
    pub fn new(bounds: UploadBounds, clock: Arc<dyn Clock>) -> UploadsInParts {
        let parts = Mutex::new(Parts::new(bounds));
        UploadsInParts(Arc::new(BoundedParts { parts, places: Places::new(bounds), clock }))
    }

    pub fn admit(&self, caller: &Caller) -> Result<UploadPlace, UploadError> {
        self.0.places.admit(caller)
    }

    /// The upload of that length that a request goes on with; `None` if there is none. `named` is the id that the request
    /// names, as text. However the request ends, the bytes that came stay: an upload that is dropped is found again.
    pub fn take_up(
        &self,
        key: &UploadKey,
        named: Option<&[u8]>,
        total: u64,
    ) -> Result<Option<Upload>, UploadError> {
        let waiting = self.0.parts.lock().take_up(key, named, total)?;
        Ok(waiting.map(|waiting| self.in_hand(key, waiting)))
    }

    /// Gives up an upload for one that begins at the first byte and may have other contents.
    pub fn supersede(&self, key: &UploadKey, named: Option<&[u8]>) {
        let now = self.0.clock.monotonic();
        let before = self.0.parts.lock().supersede(key, named, now);
        // It closes its open in the conflict table, which is another lock.
        drop(before);
    }

    /// Gives an upload its place. Of two that begin at once, the later one has it.
    pub fn begin(&self, key: &UploadKey, upload: Upload, place: UploadPlace) -> Upload {
        let now = self.0.clock.monotonic();
        let (id, total) = (upload.file().file, upload.terms().size.unwrap_or(0));
        let mut parts = self.0.parts.lock();
        let before = parts.supersede(key, None, now);
        parts.uploads.insert(key.clone(), Slot { id, total, waiting: None, expires: now + IDLE });
        drop(parts);
        drop(before);
        self.in_hand(key, Waiting { upload, place })
    }

    /// Ends a request whose part is not the last. `Superseded`: another upload was begun meanwhile.
    pub fn put_back(&self, key: &UploadKey, upload: Upload) -> Result<(), UploadError> {
        let id = upload.file().file;
        drop(upload);
        let is_there = self.0.parts.lock().uploads.get(key).is_some_and(|slot| slot.id == id);
        if is_there { Ok(()) } else { Err(key.superseded()) }
    }

    /// To be called every second or so.
    pub fn give_up_idle(&self) {
        let now = self.0.clock.monotonic();
        let over = self.0.parts.lock().expired(now);
        drop(over);
    }

    fn in_hand(&self, key: &UploadKey, waiting: Waiting) -> Upload {
        let Waiting { mut upload, place } = waiting;
        let (shared, key, id) = (Arc::clone(&self.0), key.clone(), upload.file().file);
        let hand = Hand { shared, key, id, place: Some(place) };
        upload.keep_by(move |upload| hand.put_back(upload));
        upload
    }
}

struct Parts {
    /// As many as have places.
    uploads: HashMap<UploadKey, Slot>,
    /// Where an upload was superseded: until its client would find it no more anyway, and as long as the other one is there,
    /// into which its parts would go.
    contested: HashMap<UploadKey, Duration>,
    /// Of keys that are remembered as contested. Those of uploads that go on are always remembered: they are as few as have
    /// places.
    contested_bounds: UploadBounds,
}

struct Slot {
    /// The unnamed file's, which no other upload ever has.
    id: FileId,
    total: u64,
    /// `None` while a request has it in hand.
    waiting: Option<Waiting>,
    expires: Duration,
}

struct Waiting {
    upload: Upload,
    place: UploadPlace,
}

impl Parts {
    fn new(contested_bounds: UploadBounds) -> Parts {
        Parts { uploads: HashMap::new(), contested: HashMap::new(), contested_bounds }
    }

    /// Takes out what nobody goes on with.
    fn expired(&mut self, now: Duration) -> Vec<Waiting> {
        let is_over = |upload: &Slot| upload.waiting.is_some() && upload.expires <= now;
        let over = self.uploads.extract_if(|_, upload| is_over(upload));
        let over = over.filter_map(|(_, upload)| upload.waiting).collect();
        self.contested.retain(|key, expires| *expires > now || self.uploads.contains_key(key));
        over
    }

    /// The upload that a request goes on with; `None` if there is no upload of that length.
    fn take_up(
        &mut self,
        key: &UploadKey,
        named: Option<&[u8]>,
        total: u64,
    ) -> Result<Option<Waiting>, UploadError> {
        let is_contested = self.contested.contains_key(key);
        let Some(upload) = self.uploads.get_mut(key).filter(|upload| upload.total == total) else {
            return if named.is_some() { Err(key.superseded()) } else { Ok(None) };
        };
        match named {
            Some(named) if named != text(upload.id).as_bytes() => return Err(key.superseded()),
            None if is_contested => return Err(UploadError::Ambiguous),
            _ => {}
        }
        upload.waiting.take().map(Some).ok_or(UploadError::BeingReceived)
    }

    /// Removes an upload for one that begins at the first byte. A part that is being received finds its upload gone
    /// when it ends.
    fn supersede(&mut self, key: &UploadKey, named: Option<&[u8]>, now: Duration) -> Option<Waiting> {
        let upload = self.uploads.get(key)?;
        // A client that names what it begins anew is the one that knows of it.
        if named.is_none_or(|named| named != text(upload.id).as_bytes()) {
            if !self.contested.contains_key(key) {
                self.make_room(key);
            }
            self.contested.insert(key.clone(), now + IDLE);
        }
        self.uploads.remove(key).and_then(|upload| upload.waiting)
    }

    /// Forgets where an upload is over, first a place of the same caller: so nobody keeps others from beginning anew.
    fn make_room(&mut self, key: &UploadKey) {
        let is_callers = |other: &UploadKey| other.is_of_caller(key);
        let of_caller = self.contested.keys().filter(|other| is_callers(other)).count();
        let is_greedy = of_caller >= self.contested_bounds.per_caller_max;
        if !is_greedy && self.contested.len() < self.contested_bounds.all_max {
            return;
        }
        let over = self
            .contested
            .iter()
            .filter(|(other, _)| !self.uploads.contains_key(*other) && (!is_greedy || is_callers(other)));
        let soonest = over.min_by_key(|(_, expires)| **expires).map(|(other, _)| other.clone());
        soonest.and_then(|other| self.contested.remove(&other));
    }
}

/// An upload's slot while a request has it; free when this is dropped, unless the upload was put back.
struct Hand {
    shared: Arc<BoundedParts>,
    key: UploadKey,
    id: FileId,
    /// There until the upload is put back.
    place: Option<UploadPlace>,
}

impl Hand {
    fn put_back(mut self, upload: Upload) {
        let Some(place) = self.place.take() else { return };
        let waiting = Waiting { upload, place };
        let expires = self.shared.clock.monotonic() + IDLE;
        let mut parts = self.shared.parts.lock();
        match parts.uploads.get_mut(&self.key).filter(|slot| slot.id == self.id) {
            Some(slot) => (slot.waiting, slot.expires) = (Some(waiting), expires),
            // Superseded. It is given up, without the lock.
            None => {
                drop(parts);
                drop(waiting);
            }
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let mut parts = self.shared.parts.lock();
        let ours = parts.uploads.get(&self.key);
        if ours.is_some_and(|slot| slot.id == self.id && slot.waiting.is_none()) {
            parts.uploads.remove(&self.key);
        }
    }
}

/// As a client is told it, and names it.
fn text(id: FileId) -> String {
    id.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superseded_upload_is_told_from_the_other_as_long_as_that_goes_on() {
        let mut parts = Parts::new(bounds(10, 10));
        let key = || key("ann", "x");
        let refused =
            |parts: &mut Parts| parts.take_up(&key(), None, 9).err().expect("nobody gets it without its id");
        parts.uploads.insert(key(), upload(1));
        assert!(matches!(refused(&mut parts), UploadError::BeingReceived), "one of them needs no id");
        drop(parts.supersede(&key(), None, Duration::ZERO));
        parts.uploads.insert(key(), upload(2));
        // A part of it is being received all the time.
        parts.expired(IDLE * 3);
        assert!(matches!(refused(&mut parts), UploadError::Ambiguous));
        let named = parts.take_up(&key(), Some(text(FileId(1)).as_bytes()), 9);
        let told = named.err().expect("it is over").to_string();
        assert!(told.starts_with("this upload of /x is over"), "{told}");
        parts.uploads.clear();
        parts.expired(IDLE * 3);
        assert!(parts.contested.is_empty());
    }

    #[test]
    fn a_caller_that_begins_many_uploads_anew_does_not_keep_others_from_it() {
        let mut parts = Parts::new(bounds(8, 5));
        let mut begin_anew = |caller: &str, name: String, at_s: u64| {
            parts.uploads.insert(key(caller, &name), upload(1));
            drop(parts.supersede(&key(caller, &name), None, Duration::from_secs(at_s)));
        };
        begin_anew("bert", "first".to_owned(), 0);
        for number in 1..100 {
            begin_anew("ann", number.to_string(), number);
        }
        begin_anew("bert", "second".to_owned(), 100);
        begin_anew("carl", "first".to_owned(), 101);
        begin_anew("carl", "second".to_owned(), 102);
        let is_contested = |caller: &str, name: &str| parts.contested.contains_key(&key(caller, name));
        let left = ["95", "96", "97", "98", "99"].map(|name| is_contested("ann", name));
        assert_eq!(left, [true; 5], "as many as a caller may have");
        assert!(!is_contested("bert", "first"), "beyond the bound of all the oldest goes");
        assert!(
            is_contested("bert", "second") && is_contested("carl", "first") && is_contested("carl", "second")
        );
    }

    /// They are as few as are admitted.
    #[test]
    fn a_superseded_upload_is_told_from_one_that_goes_on_however_many_there_are() {
        let mut parts = Parts::new(bounds(2, 1));
        for name in ["a", "b", "c"] {
            parts.uploads.insert(key("ann", name), upload(1));
            drop(parts.supersede(&key("ann", name), None, Duration::ZERO));
            parts.uploads.insert(key("ann", name), upload(2));
        }
        for name in ["a", "b", "c"] {
            let stale = parts.take_up(&key("ann", name), None, 9);
            assert!(matches!(stale, Err(UploadError::Ambiguous)));
        }
    }

    fn bounds(all_max: usize, per_caller_max: usize) -> UploadBounds {
        UploadBounds { all_max, per_caller_max }
    }

    fn key(caller: &str, name: &str) -> UploadKey {
        let (caller, identity) = (caller.into(), Identity::new(10, 100, &[]));
        UploadKey { caller, identity, path: vec![Name::new(name.as_bytes()).unwrap()] }
    }

    fn upload(id: u64) -> Slot {
        Slot { id: FileId(id), total: 9, waiting: None, expires: IDLE }
    }
}
