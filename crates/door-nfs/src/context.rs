//! State that a COMPOUND carries from operation to operation (RFC 8881 §16.2.3): file handles, stateids, the caller.

use api::{OpenedTicket, Subject};
use nfs4::{ClientId4, NfsStat4, ReferringCall4, ReferringCallList4, SessionId4, StateId4, op};
use types::{Attributes, FileId, Identity};

use crate::exports::ViewPlace;
use crate::transport::Caller;

/// A decoded file handle: a file at the head, a replica by its ticket at a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    File(FileId),
    Replica(OpenedTicket),
}

/// The current or the saved file handle, and what goes with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandleState {
    pub handle: Option<Handle>,
    pub place: ViewPlace,
    pub stateid: Option<StateId4>,
}

pub(crate) struct Compound {
    pub caller: Caller,
    /// The caller's identity in the export of the current file handle.
    pub identity: Identity,
    pub minorversion: u32,
    /// The number of the operation that comes after the one that runs.
    pub next: Option<u32>,
    /// Set by SEQUENCE.
    pub client: Option<ClientId4>,
    pub session: Option<SessionId4>,
    /// Which request of the session this is.
    pub request: Option<ReferringCall4>,
    pub current: HandleState,
    pub saved: HandleState,
    /// The client has asked for MDSTHRESHOLD, and so knows which layouts are not worth asking for.
    pub knows_threshold: bool,
    /// Bytes that the reply may still take, by the session's ca_maxresponsesize.
    pub reply_room: usize,
}

impl Compound {
    /// Before the first operation.
    pub fn begin(caller: Caller, minorversion: u32, reply_room: usize) -> Compound {
        let start = HandleState { handle: None, place: caller.view.start(), stateid: None };
        Compound {
            identity: caller.view.identity(start.place, &caller.claimed),
            caller,
            minorversion,
            next: None,
            client: None,
            session: None,
            request: None,
            current: start,
            saved: start,
            knows_threshold: false,
            reply_room,
        }
    }

    /// File and client of this request, for the list of slow operations.
    pub fn subject(&self) -> Subject {
        let what = match self.current.handle {
            Some(Handle::File(file)) => file.to_string(),
            Some(Handle::Replica(opened)) => opened.ticket.file.to_string(),
            None => String::new(),
        };
        Subject { what, client: self.caller.connection.peer().to_string() }
    }

    /// The current file handle at the head.
    pub fn file(&self) -> Result<FileId, NfsStat4> {
        match self.current.handle {
            Some(Handle::File(file)) => Ok(file),
            Some(Handle::Replica(_)) => Err(NfsStat4::BadHandle),
            None => Err(NfsStat4::NoFileHandle),
        }
    }

    pub fn saved_file(&self) -> Result<FileId, NfsStat4> {
        match self.saved.handle {
            Some(Handle::File(file)) => Ok(file),
            Some(Handle::Replica(_)) => Err(NfsStat4::BadHandle),
            None => Err(NfsStat4::NoFileHandle),
        }
    }

    /// The current file handle at a pool.
    pub fn ticket(&self) -> Result<OpenedTicket, NfsStat4> {
        match self.current.handle {
            Some(Handle::Replica(opened)) => Ok(opened),
            Some(Handle::File(_)) => Err(NfsStat4::BadHandle),
            None => Err(NfsStat4::NoFileHandle),
        }
    }

    /// A new current file handle, found in the directory that was the current one; the stateid that went with the old
    /// one goes (RFC 8881 §16.2.3.1.2).
    pub fn set_file(&mut self, file: FileId) {
        self.enter(file, self.caller.view.step(self.current.place, file));
    }

    /// As `set_file`, of a file that lies at `place`.
    pub fn enter(&mut self, file: FileId, place: ViewPlace) {
        self.move_to(place);
        self.current.handle = Some(Handle::File(file));
        self.current.stateid = None;
    }

    /// The caller may have another identity in another export.
    pub fn move_to(&mut self, place: ViewPlace) {
        if self.current.place != place {
            self.current.place = place;
            self.identity = self.caller.view.identity(place, &self.caller.claimed);
        }
    }

    pub fn is_read_only(&self) -> bool {
        self.caller.view.rules(self.current.place).is_read_only
    }

    /// Whether the caller's flavor is one of those that reach files there.
    pub fn is_admitted(&self, place: ViewPlace) -> bool {
        self.caller.view.rules(place).flavors.admit(self.caller.flavor)
    }

    /// Whether the operation that sets a file handle must itself refuse the caller's flavor (RFC 8881 §2.6.3.1.1). It
    /// must not if no operation follows, or the next one judges for itself, asks for the flavors, or sets another
    /// handle.
    pub fn is_judged_here(&self) -> bool {
        self.next.is_some_and(|next| !judges_flavor(next))
    }

    /// The identity to look up the parent directory, or a name in a pseudo directory, with: the way to an export is open, whatever the modes on it.
    pub fn climber(&self) -> Identity {
        if self.current.place == ViewPlace::Pseudo { Identity::root() } else { self.identity.clone() }
    }

    /// Attributes of the current file as this client may know them.
    pub fn shown(&self, attributes: Attributes) -> Attributes {
        if self.current.place == ViewPlace::Pseudo { as_pseudo(attributes) } else { attributes }
    }

    /// Puts the current stateid in the place of its stand-in.
    pub fn resolve(&self, stateid: StateId4) -> Result<StateId4, NfsStat4> {
        in_place_of(stateid, self.current.stateid)
    }

    /// As `resolve`, of the saved file: its stateid was saved with it (RFC 8881 §16.2.3.1.2).
    pub fn resolve_saved(&self, stateid: StateId4) -> Result<StateId4, NfsStat4> {
        in_place_of(stateid, self.saved.stateid)
    }

    /// This request, for a callback that must not overtake its reply (RFC 8881 §2.10.6.3).
    pub fn referring_calls(&self) -> Vec<ReferringCallList4> {
        let call = self.session.zip(self.request);
        let list =
            call.map(|(sessionid, call)| ReferringCallList4 { sessionid, referring_calls: vec![call] });
        list.into_iter().collect()
    }

    /// The client of the session; the engine lets no operation that asks for it run without SEQUENCE.
    pub fn client(&self) -> Result<ClientId4, NfsStat4> {
        self.client.ok_or(NfsStat4::OpNotInSession)
    }
}

fn in_place_of(stateid: StateId4, stands_for: Option<StateId4>) -> Result<StateId4, NfsStat4> {
    if stateid != StateId4::CURRENT {
        return Ok(stateid);
    }
    // Seqid 0 means the newest: another request may have raised it since, and the client could not know.
    let newest =
        |stateid: StateId4| if stateid.is_special() { stateid } else { StateId4 { seqid: 0, ..stateid } };
    stands_for.map(newest).ok_or(NfsStat4::BadStateId)
}

pub(crate) fn judges_flavor(number: u32) -> bool {
    matches!(
        number,
        op::PUTFH
            | op::PUTPUBFH
            | op::PUTROOTFH
            | op::RESTOREFH
            | op::SAVEFH
            | op::LOOKUP
            | op::LOOKUPP
            | op::OPEN
            | op::SECINFO
            | op::SECINFO_NO_NAME
    )
}

/// A pseudo directory belongs to nobody in particular, and everybody may look into it (RFC 8881 §7.4).
pub(crate) fn as_pseudo(attributes: Attributes) -> Attributes {
    Attributes { mode: 0o555, uid: 0, gid: 0, has_acl: false, ..attributes }
}
