//! An upload in several requests, each with a Content-Range: the bytes are kept unnamed until the last one is there.
//!
//! `Content-Range: bytes FIRST-LAST/TOTAL` appends; a part at 0 begins anew, each further one starts where the last ended.
//! A part that is not the last is answered 202 with `Range: bytes=0-LAST`. `Content-Range: bytes */TOTAL` with an empty
//! body asks how far it is, and if all of it is there, for its name once more. A part that breaks off keeps what came of
//! it. An upload that nobody goes on with is given up after an hour.
//!
//! An upload that is begun anew supersedes the one before, whose client does not know that: it goes on with bytes of other
//! contents. So each has an id (`Upload-Id`), and where one was superseded only parts that name theirs are taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use files::{MovesSeen, Upload, UploadTarget};
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use http_server::{RequestBody, Response};
use http_wire::range::ContentRange;
use types::{Checksum, ChecksumKind, FileId, Identity};

use super::under_way::Admitted;
use super::{answer, promised};
use crate::call::Call;
use crate::front::Front;
use crate::locks::Path;
use crate::refusal::Refusal;
use crate::resolve::PathTarget;
use crate::upload::LockOwner;

const IDLE: Duration = Duration::from_secs(3_600);
const UPLOAD_ID: HeaderName = HeaderName::from_static("upload-id");

/// Issuers, password files and certificates may have one name for different people: the identity tells them apart.
type Key = (String, Identity, Path);

/// Uploads in several requests, by caller and path.
pub(crate) struct Resumable {
    /// As many as are admitted.
    uploads: HashMap<Key, Slot>,
    /// Where an upload was superseded: until its client would find it no more anyway, and as long as the other one is there,
    /// into which its parts would go.
    contested: HashMap<Key, Duration>,
    /// Places to remember as contested, of all callers and of each. Those of uploads that go on are always remembered: they
    /// are as few as are admitted.
    contested_max: usize,
    contested_per_caller_max: usize,
}

struct Slot {
    /// The unnamed file's, which no other upload ever has.
    id: FileId,
    total: u64,
    /// `None` while a request has it in hand.
    waiting: Option<Waiting>,
    expires: Duration,
}

pub(crate) struct Waiting {
    upload: Upload,
    admitted: Admitted,
}

impl Resumable {
    pub fn new(contested_max: usize, contested_per_caller_max: usize) -> Resumable {
        let (uploads, contested) = (HashMap::new(), HashMap::new());
        Resumable { uploads, contested, contested_max, contested_per_caller_max }
    }

    /// Takes out what nobody goes on with.
    pub fn expired(&mut self, now: Duration) -> Vec<Waiting> {
        let is_over = |upload: &Slot| upload.waiting.is_some() && upload.expires <= now;
        let over = self.uploads.extract_if(|_, upload| is_over(upload));
        let over = over.filter_map(|(_, upload)| upload.waiting).collect();
        self.contested.retain(|key, expires| *expires > now || self.uploads.contains_key(key));
        over
    }

    /// The upload that a request goes on with; `None` if there is no upload of that length.
    fn take_up(
        &mut self,
        key: &Key,
        named: Option<&HeaderValue>,
        total: u64,
    ) -> Result<Option<Waiting>, Refusal> {
        let is_contested = self.contested.contains_key(key);
        let Some(upload) = self.uploads.get_mut(key).filter(|upload| upload.total == total) else {
            return if named.is_some() { Err(superseded()) } else { Ok(None) };
        };
        match named {
            Some(named) if *named != id_value(upload.id) => return Err(superseded()),
            None if is_contested => return Err(ambiguous()),
            _ => {}
        }
        let being_received = || Refusal::busy("a part of this upload is being received: come again");
        upload.waiting.take().map(Some).ok_or_else(being_received)
    }

    /// Removes an upload for one that begins at the first byte. A part that is being received finds its upload gone
    /// when it ends.
    fn supersede(&mut self, key: &Key, named: Option<&HeaderValue>, now: Duration) -> Option<Waiting> {
        let upload = self.uploads.get(key)?;
        // A client that names what it begins anew is the one that knows of it.
        if named.is_none_or(|named| *named != id_value(upload.id)) {
            if !self.contested.contains_key(key) {
                self.make_room(key);
            }
            self.contested.insert(key.clone(), now + IDLE);
        }
        self.uploads.remove(key).and_then(|upload| upload.waiting)
    }

    /// Forgets where an upload is over, first a place of the same caller: so nobody keeps others from beginning anew.
    fn make_room(&mut self, key: &Key) {
        let is_callers = |other: &Key| (&other.0, &other.1) == (&key.0, &key.1);
        let of_caller = self.contested.keys().filter(|other| is_callers(other)).count();
        let is_greedy = of_caller >= self.contested_per_caller_max;
        if !is_greedy && self.contested.len() < self.contested_max {
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

/// An upload's place while a request has it; free when this is dropped, unless the upload was put back.
struct Hand {
    front: Arc<Front>,
    key: Key,
    id: FileId,
    admitted: Option<Admitted>,
}

impl Hand {
    fn put_back(mut self, upload: Upload) {
        let Some(admitted) = self.admitted.take() else { return };
        let waiting = Waiting { upload, admitted };
        let expires = self.front.services.clock.monotonic() + IDLE;
        let mut resumable = self.front.resumable.lock();
        match resumable.uploads.get_mut(&self.key).filter(|upload| upload.id == self.id) {
            Some(upload) => (upload.waiting, upload.expires) = (Some(waiting), expires),
            // Superseded. It is given up, without the lock.
            None => {
                drop(resumable);
                drop(waiting);
            }
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let mut resumable = self.front.resumable.lock();
        let ours = resumable.uploads.get(&self.key);
        if ours.is_some_and(|upload| upload.id == self.id && upload.waiting.is_none()) {
            resumable.uploads.remove(&self.key);
        }
    }
}

impl Front {
    pub(super) async fn put_part(
        self: &Arc<Self>,
        call: &Call,
        (place, seen): (&PathTarget, MovesSeen),
        part: ContentRange,
        body: RequestBody,
    ) -> Result<Response, Refusal> {
        // A refusal comes before the upload is taken out, so that its parts so far stay.
        let promised = promised(&call.headers)?;
        match part {
            ContentRange::Part { complete: None, .. } => {
                return Err(Refusal::bad_request("Content-Range must name the whole length"));
            }
            ContentRange::Part { range, .. }
                if body.length().is_some_and(|length| length != range.length()) =>
            {
                return Err(Refusal::bad_request("body is not as long as Content-Range says"));
            }
            _ => {}
        }
        let key = (call.caller.name.to_string(), call.caller.identity.clone(), place.path.clone());
        let named = call.single(UPLOAD_ID)?;
        let (range, total) = match part {
            ContentRange::Part { range, complete } => (range, complete.unwrap_or(range.end())),
            ContentRange::Unsatisfied { complete } => {
                let known = self.resumable.lock().take_up(&key, named, complete)?;
                let mut known = known.map(|waiting| self.in_hand(key, waiting));
                known.iter_mut().for_each(|upload| upload.walked_again(place, seen));
                return self.tell_arrived(call, known, promised).await;
            }
        };
        let (first, end) = (range.offset(), range.end());
        let mut upload = if first > 0 {
            let known = self.resumable.lock().take_up(&key, named, total)?;
            self.in_hand(key.clone(), known.ok_or_else(|| out_of_order(0))?)
        } else {
            // An upload that is there may have other contents.
            let now = self.services.clock.monotonic();
            let before = self.resumable.lock().supersede(&key, named, now);
            drop(before);
            self.begun(&key, self.begin_parts(call, place, total).await?)
        };
        upload.walked_again(place, seen);
        if !upload.is_coming() || upload.arrived() != first {
            return Err(out_of_order(upload.arrived()));
        }
        if end == total {
            upload.recall_ahead().await?;
        }
        append(&mut upload, body, end).await?;
        match upload.arrived() {
            arrived if arrived < total => self.keep(&key, upload, arrived),
            _ => self.complete_parts(call, upload, promised).await,
        }
    }

    /// If another upload was begun meanwhile, the client is not told to go on.
    fn keep(&self, key: &Key, kept: Upload, arrived: u64) -> Result<Response, Refusal> {
        let id = kept.file().file;
        drop(kept);
        let is_there = self.resumable.lock().uploads.get(key).is_some_and(|upload| upload.id == id);
        if is_there { Ok(accepted(StatusCode::ACCEPTED, arrived, Some(id))) } else { Err(superseded()) }
    }

    /// Answers how far the upload is; if all bytes are there, gives it its name.
    async fn tell_arrived(
        self: &Arc<Self>,
        call: &Call,
        known: Option<Upload>,
        promised: Vec<Checksum>,
    ) -> Result<Response, Refusal> {
        let Some(known) = known else { return Ok(accepted(StatusCode::PERMANENT_REDIRECT, 0, None)) };
        match known.arrived() {
            arrived if Some(arrived) < known.terms().size => {
                Ok(accepted(StatusCode::PERMANENT_REDIRECT, arrived, Some(known.file().file)))
            }
            _ => self.complete_parts(call, known, promised).await,
        }
    }

    async fn complete_parts(
        self: &Arc<Self>,
        call: &Call,
        mut kept: Upload,
        promised: Vec<Checksum>,
    ) -> Result<Response, Refusal> {
        if !promised.is_empty() {
            kept.promise(promised);
        }
        let owner = LockOwner::of(call)?;
        Ok(answer(&self.publish(kept.finish().await?, owner).await?))
    }

    /// However the request ends, the bytes that came stay.
    fn in_hand(self: &Arc<Self>, key: Key, waiting: Waiting) -> Upload {
        let Waiting { mut upload, admitted } = waiting;
        let (front, id, admitted) = (Arc::clone(self), upload.file().file, Some(admitted));
        let hand = Hand { front, key, id, admitted };
        upload.keep_by(move |upload| hand.put_back(upload));
        upload
    }

    /// Gives an upload its place. Of two that begin at once, the later one has it.
    fn begun(self: &Arc<Self>, key: &Key, begun: Waiting) -> Upload {
        let now = self.services.clock.monotonic();
        let (id, total) = (begun.upload.file().file, begun.upload.terms().size.unwrap_or(0));
        let mut resumable = self.resumable.lock();
        let before = resumable.supersede(key, None, now);
        resumable.uploads.insert(key.clone(), Slot { id, total, waiting: None, expires: now + IDLE });
        drop(resumable);
        drop(before);
        self.in_hand(key.clone(), begun)
    }

    async fn begin_parts(&self, call: &Call, place: &PathTarget, total: u64) -> Result<Waiting, Refusal> {
        let admitted = self.in_parts.admit(&call.caller)?;
        let mut terms = self.terms(call, place, &RequestBody::empty())?;
        terms.size = Some(total);
        // The checksums that the last part will promise are not known yet.
        terms.kinds = ChecksumKind::ALL.to_vec();
        let mut upload = self.begin_upload(call, UploadTarget::new(place.clone(), None), terms).await?;
        upload.open().await?;
        Ok(Waiting { upload, admitted })
    }
}

async fn append(upload: &mut Upload, mut body: RequestBody, end: u64) -> Result<(), Refusal> {
    while let Some(bytes) = body.next().await? {
        if upload.arrived() + bytes.len() as u64 > end {
            return Err(Refusal::bad_request("body is longer than Content-Range says"));
        }
        upload.write(bytes).await?;
    }
    if upload.arrived() < end {
        return Err(Refusal::bad_request("body is shorter than Content-Range says"));
    }
    Ok(())
}

fn accepted(status: StatusCode, arrived: u64, id: Option<FileId>) -> Response {
    let response = Response::new(status);
    let response = match id {
        Some(id) => response.with(UPLOAD_ID, id_value(id)),
        None => response,
    };
    match arrived_range(arrived) {
        Some(range) => response.with(header::RANGE, range),
        None => response,
    }
}

fn out_of_order(arrived: u64) -> Refusal {
    let refusal =
        Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("the next byte is number {arrived}"));
    match arrived_range(arrived) {
        Some(range) => refusal.with(header::RANGE, range),
        None => refusal,
    }
}

fn superseded() -> Refusal {
    Refusal::conflict("this upload is over: another one of this name was begun meanwhile, or it was given up")
}

fn ambiguous() -> Refusal {
    Refusal::conflict(
        "several uploads of this name were begun: name yours by the Upload-Id that its first part was answered with",
    )
}

fn id_value(id: FileId) -> HeaderValue {
    HeaderValue::try_from(id.to_string()).expect("digits are a header value")
}

fn arrived_range(arrived: u64) -> Option<HeaderValue> {
    let last = arrived.checked_sub(1)?;
    Some(HeaderValue::try_from(format!("bytes=0-{last}")).expect("digits are a header value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superseded_upload_is_told_from_the_other_as_long_as_that_goes_on() {
        let mut resumable = Resumable::new(10, 10);
        let key = || key("ann", "x");
        let refused = |resumable: &mut Resumable| {
            let refused = resumable.take_up(&key(), None, 9).err().expect("nobody gets it without its id");
            refused.status
        };
        resumable.uploads.insert(key(), upload(1));
        assert_eq!(refused(&mut resumable), StatusCode::SERVICE_UNAVAILABLE, "one of them needs no id");
        drop(resumable.supersede(&key(), None, Duration::ZERO));
        resumable.uploads.insert(key(), upload(2));
        // A part of it is being received all the time.
        resumable.expired(IDLE * 3);
        assert_eq!(refused(&mut resumable), StatusCode::CONFLICT);
        let named = resumable.take_up(&key(), Some(&id_value(FileId(1))), 9);
        assert_eq!(named.err().map(|refusal| refusal.status), Some(StatusCode::CONFLICT));
        resumable.uploads.clear();
        resumable.expired(IDLE * 3);
        assert!(resumable.contested.is_empty());
    }

    #[test]
    fn a_caller_that_begins_many_uploads_anew_does_not_keep_others_from_it() {
        let mut resumable = Resumable::new(8, 5);
        let mut begin_anew = |caller: &str, name: String, at_s: u64| {
            resumable.uploads.insert(key(caller, &name), upload(1));
            drop(resumable.supersede(&key(caller, &name), None, Duration::from_secs(at_s)));
        };
        begin_anew("bert", "first".to_owned(), 0);
        for number in 1..100 {
            begin_anew("ann", number.to_string(), number);
        }
        begin_anew("bert", "second".to_owned(), 100);
        begin_anew("carl", "first".to_owned(), 101);
        begin_anew("carl", "second".to_owned(), 102);
        let is_contested = |caller: &str, name: &str| resumable.contested.contains_key(&key(caller, name));
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
        let mut resumable = Resumable::new(2, 1);
        for name in ["a", "b", "c"] {
            resumable.uploads.insert(key("ann", name), upload(1));
            drop(resumable.supersede(&key("ann", name), None, Duration::ZERO));
            resumable.uploads.insert(key("ann", name), upload(2));
        }
        for name in ["a", "b", "c"] {
            let stale = resumable.take_up(&key("ann", name), None, 9);
            assert_eq!(stale.err().map(|refusal| refusal.status), Some(StatusCode::CONFLICT));
        }
    }

    fn key(caller: &str, name: &str) -> Key {
        let name = types::Name::new(name.as_bytes()).unwrap();
        (caller.to_owned(), Identity::new(10, 100, &[]), vec![name])
    }

    fn upload(id: u64) -> Slot {
        Slot { id: FileId(id), total: 9, waiting: None, expires: IDLE }
    }
}
