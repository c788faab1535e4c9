//! Copies that are carried on when COPY has been answered: OFFLOAD_STATUS, OFFLOAD_CANCEL and CB_OFFLOAD (RFC 7862 §4.8,
//! §15.8, §15.9, §16.1).
//!
//! A task of its own does what the client's further COPYs would: each turn finds both files as they are and opens their
//! replicas anew, so that it meets what became of them meanwhile, fencing too. Until it ends, the files are held open
//! for the client: their data stays, and no client gets a delegation of the target. A copy that fails half way ends
//! with the bytes done, and a COPY of the rest gets the error.
//!
//! Invariants: a stateid is good from the answer of COPY until the client has answered CB_OFFLOAD, has cancelled it, or is
//! gone; after a cancel was answered nothing more is written. Nothing outlives the process: a client finds its stateid gone
//! with its session and copies anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::Stretch;
use files::{FileChangeGuard, Files, Modes, OpenFile, Share};
use nfs4::{
    CbOffload4Args, ClientId4, NfsCbArgop4, NfsStat4, OffloadCancel4Args, OffloadInfo4, OffloadStatus4Args,
    OffloadStatus4ResOk, ReferringCallList4, StableHow4, StateId4, WriteResponse4,
};
use nfs4_state::stateid::ClientState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use types::{Attributes, Clock, FileId};

use super::super::clients::Clients;
use super::super::file_system::WAIT;
use super::{Copied, Judged, copy_stretch};
use crate::callback::CallbackError;
use crate::context::Compound;
use crate::session_ops::Sessions;

/// Copies that run at a time, of all clients: each has an I/O at a pool, beside those that clients wait for.
const RUNNING_MAX: usize = 16;
/// Of one client, those that wait to be told included.
const PER_CLIENT_MAX: usize = 8;
/// Of all clients.
const KNOWN_MAX: usize = 1024;
/// The replicas are opened anew after so long.
const TURN: Duration = Duration::from_millis(500);
/// How long OFFLOAD_CANCEL and the end of a client wait for the piece that is under way.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// Between attempts to tell a client.
const TELL_PAUSE: Duration = Duration::from_millis(500);
/// Set in the numbers of these stateids, and never in those of opens, locks, layouts and delegations.
const MARK: u64 = 1 << 63;

/// Copies of clients, in one answer or carried on.
pub(crate) struct Copies {
    pub clients: Arc<Clients>,
    pub offloads: Arc<Offloads>,
    /// A COPY that takes longer may be carried on.
    pub answer_within: Duration,
}

/// The copies that are carried on.
#[derive(Debug)]
pub(crate) struct Offloads {
    /// Of this start of the server, as in other stateids.
    boot: u32,
    /// Leaf lock.
    table: Mutex<Table>,
    /// One was cancelled or is gone.
    changed: Notify,
    cancel_wait: Duration,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    known: BTreeMap<u64, CopyProgress>,
    running: usize,
}

#[derive(Debug)]
struct CopyProgress {
    client: ClientId4,
    /// That is written to.
    file: FileId,
    done: u64,
    is_running: bool,
    is_cancelled: bool,
}

/// One copy. It is forgotten when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Offload {
    offloads: Arc<Offloads>,
    key: u64,
}

impl Offloads {
    pub fn new(boot: u32) -> Arc<Offloads> {
        Offloads::with_cancel_wait(boot, CANCEL_WAIT)
    }

    fn with_cancel_wait(boot: u32, cancel_wait: Duration) -> Arc<Offloads> {
        Arc::new(Offloads { boot, table: Mutex::default(), changed: Notify::new(), cancel_wait })
    }

    /// `None`: there are as many as may be.
    pub(super) fn begin(self: &Arc<Self>, client: ClientId4, file: FileId) -> Option<Offload> {
        let mut table = self.table.lock();
        let of_client = table.known.values().filter(|known| known.client == client).count();
        if table.running >= RUNNING_MAX || of_client >= PER_CLIENT_MAX || table.known.len() >= KNOWN_MAX {
            return None;
        }
        table.last += 1;
        let key = table.last | MARK;
        let known = CopyProgress { client, file, done: 0, is_running: true, is_cancelled: false };
        table.known.insert(key, known);
        table.running += 1;
        Some(Offload { offloads: Arc::clone(self), key })
    }

    /// Copies that run, and those that are done and of which their clients have not heard.
    pub fn counts(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.running, table.known.len() - table.running)
    }

    /// Whether a stateid is that of a copy of the client.
    pub fn knows(&self, client: ClientId4, stateid: StateId4) -> bool {
        self.find(&self.table.lock(), client, stateid).is_ok()
    }

    /// Ends all copies of clients that are gone. Those are answered of which one is in the middle of a piece still.
    pub async fn end_of(&self, clients: &[ClientId4]) -> BTreeSet<ClientId4> {
        self.end(|_, known| clients.contains(&known.client)).await;
        let table = self.table.lock();
        let left = table.known.values().map(|known| known.client);
        left.filter(|client| clients.contains(client)).collect()
    }

    /// RFC 7862 §4.8: a seqid of zero does not stand for the newest here.
    fn find(&self, table: &Table, client: ClientId4, stateid: StateId4) -> Result<u64, NfsStat4> {
        let (boot, number) = stateid.other.split_at(4);
        let key = number.iter().fold(0, |key, byte| key << 8 | u64::from(*byte));
        let is_ours = boot == self.boot.to_be_bytes() && stateid.seqid == 1;
        let known = table.known.get(&key).filter(|known| is_ours && known.client == client);
        known.map(|_| key).ok_or(NfsStat4::BadStateId)
    }

    fn find_of(
        &self,
        table: &Table,
        client: ClientId4,
        (file, stateid): (FileId, StateId4),
    ) -> Result<u64, NfsStat4> {
        let key = self.find(table, client, stateid)?;
        if table.known[&key].file == file { Ok(key) } else { Err(NfsStat4::BadStateId) }
    }

    fn progress(&self, client: ClientId4, what: (FileId, StateId4)) -> Result<OffloadStatus4ResOk, NfsStat4> {
        let table = self.table.lock();
        let known = &table.known[&self.find_of(&table, client, what)?];
        let complete = (!known.is_running).then_some(NfsStat4::Ok);
        Ok(OffloadStatus4ResOk { count: known.done, complete })
    }

    async fn cancel(&self, client: ClientId4, what: (FileId, StateId4)) -> Result<(), NfsStat4> {
        let key = self.find_of(&self.table.lock(), client, what)?;
        if self.end(|other, _| other == key).await { Ok(()) } else { Err(NfsStat4::Delay) }
    }

    async fn end(&self, which: impl Fn(u64, &CopyProgress) -> bool) -> bool {
        {
            let mut table = self.table.lock();
            let chosen = table.known.iter_mut().filter(|(key, known)| which(**key, known));
            chosen.for_each(|(_, known)| known.is_cancelled = true);
        }
        self.changed.notify_waiters();
        let gone = self.until(|table| !table.known.iter().any(|(key, known)| which(*key, known)));
        tokio::time::timeout(self.cancel_wait, gone).await.is_ok()
    }

    async fn until(&self, is_so: impl Fn(&Table) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before looking, or a change in between would be missed.
            changed.as_mut().enable();
            if is_so(&self.table.lock()) {
                return;
            }
            changed.await;
        }
    }
}

impl Offload {
    fn stateid(&self) -> StateId4 {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&self.offloads.boot.to_be_bytes());
        other[4..].copy_from_slice(&self.key.to_be_bytes());
        StateId4 { seqid: 1, other }
    }

    /// So much is done. False: it was cancelled.
    fn note(&self, done: u64) -> bool {
        let mut table = self.offloads.table.lock();
        let known = table.known.get_mut(&self.key).expect("it is known as long as this lives");
        known.done = done;
        !known.is_cancelled
    }

    /// The last byte is written; the client is still to be told.
    fn complete(&self) {
        let mut table = self.offloads.table.lock();
        let known = table.known.get_mut(&self.key).expect("it is known as long as this lives");
        if std::mem::replace(&mut known.is_running, false) {
            table.running -= 1;
        }
    }

    async fn cancelled(&self) {
        self.offloads.until(|table| table.known[&self.key].is_cancelled).await;
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.complete();
        self.offloads.table.lock().known.remove(&self.key);
        self.offloads.changed.notify_waiters();
    }
}

pub(in super::super) fn progress(
    compound: &Compound,
    copies: &Copies,
    args: &OffloadStatus4Args,
) -> Result<OffloadStatus4ResOk, NfsStat4> {
    copies.offloads.progress(compound.client()?, (compound.file()?, args.stateid))
}

pub(in super::super) async fn cancel(
    compound: &Compound,
    copies: &Copies,
    args: &OffloadCancel4Args,
) -> Result<(), NfsStat4> {
    copies.offloads.cancel(compound.client()?, (compound.file()?, args.stateid)).await
}

/// A file that is held open for a client. It counts as one of the client's own opens, and a CLOSE meanwhile leaves it the
/// file's layouts: they go with this then.
struct Held {
    /// `None` while it is dropped.
    open: Option<OpenFile>,
    file: FileId,
    client: ClientId4,
    states: Arc<Mutex<ClientState>>,
    files: Arc<Files>,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.open.take());
        self.states.lock().layouts().drop_uncovered(self.client, self.file);
        self.files.returned();
    }
}

/// A copy on its way, with all that keeps its files.
struct Job {
    files: Arc<Files>,
    clock: Arc<dyn Clock>,
    stretch: Stretch,
    source: Held,
    target: Held,
    /// Keeps delegations of the target away where it was not opened to write.
    changing: Option<Arc<FileChangeGuard>>,
}

/// Carries a copy on that has begun. `None`: the files cannot be held open beside what the client has, and the answer is
/// what was done.
pub(super) async fn carry_on(
    compound: &Compound,
    clients: &Clients,
    judged: Judged,
    offload: Offload,
    begun: Copied,
) -> Option<StateId4> {
    let client = compound.client?;
    let hold = async |file: &Attributes, modes| {
        let held =
            clients.fs.files.open_found(file, clients.fs.holder(client), Share::new(modes, Modes::NONE));
        // An open of the client's own that denies it, or a delegation that is recalled: neither is worth waiting for.
        let (open, _) = tokio::time::timeout(WAIT, held).await.ok()?.ok()?;
        let (states, files) = (Arc::clone(&clients.states), Arc::clone(&clients.fs.files));
        Some(Held { open: Some(open), file: file.file, client, states, files })
    };
    let source = hold(&judged.source, Modes::READ).await?;
    let target = hold(&judged.target, Modes::WRITE).await?;
    let job = Job {
        files: Arc::clone(&clients.fs.files),
        clock: Arc::clone(&clients.fs.clock),
        stretch: judged.stretch,
        source,
        target,
        changing: judged.changing,
    };
    let stateid = offload.stateid();
    let fh = clients.fs.handle(job.target.file);
    let behind = compound.referring_calls();
    let (sessions, patience) = (Arc::clone(&clients.sessions), clients.fs.lease);
    clients.spawn_call(async move {
        let count = job.finish(&offload, begun).await;
        drop(job);
        offload.complete();
        let response = WriteResponse4 {
            callback_id: None,
            count,
            committed: StableHow4::Unstable,
            writeverf: begun.verifier,
        };
        let told = CbOffload4Args { fh, stateid, offload_info: OffloadInfo4::Ok(response) };
        tokio::select! {
            biased;
            () = offload.cancelled() => {}
            () = tell(&sessions, client, &told, &behind, patience) => {}
        }
    });
    Some(stateid)
}

impl Job {
    /// Copies as far as possible. Returns the bytes copied, those before included.
    async fn finish(&self, offload: &Offload, begun: Copied) -> u64 {
        let mut done = begun.count;
        while done < self.stretch.length && offload.note(done) {
            match self.turn(offload, done).await {
                // The source has become shorter.
                Ok(None) => break,
                Ok(Some(moved)) => {
                    done += moved.count;
                    // Earlier writes may be lost: the client gets the first verifier, and COMMIT shows the loss.
                    if moved.verifier != begun.verifier {
                        break;
                    }
                }
                Err(status) => {
                    let file = self.target.file;
                    tracing::debug!(%file, done, status = status.name(), "a copy ends half way");
                    break;
                }
            }
        }
        offload.note(done);
        done
    }

    async fn turn(&self, offload: &Offload, done: u64) -> Result<Option<Copied>, NfsStat4> {
        let Job { files, clock, .. } = self;
        let attributes = async |file| files.fresh_attributes(file).await.map_err(crate::status::of_files);
        let source = attributes(self.source.file).await?;
        let target = attributes(self.target.file).await?;
        let rest = self.stretch.behind(done);
        let length = rest.length.min(source.size.saturating_sub(rest.from));
        if length == 0 {
            return Ok(None);
        }
        let until = clock.monotonic() + TURN;
        let is_over = |more: u64| !offload.note(done + more) || clock.monotonic() >= until;
        let stretch = Stretch { length, ..rest };
        copy_stretch(files, (&source, &target), self.changing.as_ref(), stretch, is_over).await.map(Some)
    }
}

/// Until the client has heard of it or is gone.
async fn tell(
    sessions: &Sessions,
    client: ClientId4,
    told: &CbOffload4Args,
    behind: &[ReferringCallList4],
    patience: Duration,
) {
    loop {
        let operation = NfsCbArgop4::Offload(told.clone());
        match sessions.callbacks.call_behind(client, operation, &|| behind.to_vec(), patience).await {
            Ok(result) if result.status() == NfsStat4::Delay => {}
            Ok(result) => {
                let status = result.status().name();
                tracing::debug!(client = client.0, status, "client has heard of a copy");
                return;
            }
            Err(CallbackError::UnknownClient) => return,
            Err(error) => tracing::debug!(client = client.0, %error, "cannot tell a client of a copy yet"),
        }
        tokio::time::sleep(TELL_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);
    const A: ClientId4 = ClientId4(1);

    fn offloads() -> Arc<Offloads> {
        Offloads::new(5)
    }

    #[test]
    fn copies_are_bounded_for_each_client_and_in_all() {
        let offloads = offloads();
        let of = |client| offloads.begin(ClientId4(client), FILE);
        let mut held: Vec<_> = (0..PER_CLIENT_MAX).map(|_| of(1).unwrap()).collect();
        assert!(of(1).is_none(), "of one client");
        held.extend((PER_CLIENT_MAX..RUNNING_MAX).map(|at| of(2 + at as u64).unwrap()));
        assert!(of(99).is_none(), "in all");
        assert_eq!(offloads.counts(), (RUNNING_MAX, 0));
        // A copy that only waits to be reported takes no turn of others.
        held[0].complete();
        assert_eq!(offloads.counts(), (RUNNING_MAX - 1, 1));
        assert!(of(1).is_none(), "but one of its client");
        assert!(of(99).is_some());
        held.clear();
        assert_eq!(offloads.counts(), (0, 0));
    }

    #[test]
    fn a_stateid_is_good_for_its_client_its_file_and_its_seqid_only() {
        let (offloads, other_boot) = (offloads(), Offloads::new(6));
        let offload = offloads.begin(A, FILE).unwrap();
        let stateid = offload.stateid();
        assert!(offload.note(9));
        let running = OffloadStatus4ResOk { count: 9, complete: None };
        assert_eq!(offloads.progress(A, (FILE, stateid)), Ok(running));
        let bad = Err(NfsStat4::BadStateId);
        assert_eq!(offloads.progress(ClientId4(2), (FILE, stateid)), bad);
        assert_eq!(offloads.progress(A, (FileId(8), stateid)), bad);
        for seqid in [0, 2] {
            assert_eq!(offloads.progress(A, (FILE, StateId4 { seqid, ..stateid })), bad, "RFC 7862 §4.8");
        }
        assert_eq!(other_boot.progress(A, (FILE, stateid)), bad);
        offload.complete();
        let complete = OffloadStatus4ResOk { count: 9, complete: Some(NfsStat4::Ok) };
        assert_eq!(offloads.progress(A, (FILE, stateid)), Ok(complete));
        drop(offload);
        assert_eq!(offloads.progress(A, (FILE, stateid)), bad);
    }

    #[tokio::test]
    async fn a_cancel_is_answered_when_the_copy_has_ended() {
        let offloads = offloads();
        let offload = offloads.begin(A, FILE).unwrap();
        let stateid = offload.stateid();
        let ending = async {
            offload.cancelled().await;
            assert!(!offload.note(1), "it must not go on");
            assert!(offloads.knows(A, stateid));
            drop(offload);
        };
        let (cancelled, ()) = tokio::join!(offloads.cancel(A, (FILE, stateid)), ending);
        assert_eq!(cancelled, Ok(()));
        assert_eq!(offloads.cancel(A, (FILE, stateid)).await, Err(NfsStat4::BadStateId));
    }

    #[tokio::test]
    async fn a_copy_that_does_not_end_holds_a_cancel_up_for_a_bounded_time() {
        let offloads = Offloads::with_cancel_wait(5, Duration::from_millis(1));
        let offload = offloads.begin(A, FILE).unwrap();
        let other = offloads.begin(ClientId4(2), FILE).unwrap();
        assert_eq!(offloads.cancel(A, (FILE, offload.stateid())).await, Err(NfsStat4::Delay));
        assert_eq!(offloads.end_of(&[A]).await, BTreeSet::from([A]));
        assert!(other.note(1), "it is another client's");
        drop(offload);
        assert_eq!(offloads.end_of(&[A]).await, BTreeSet::new());
    }
}
