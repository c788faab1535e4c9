//! What a COMPOUND carries from operation to operation (RFC 8881 §16.2.3): file handles, stateids, who asks.

use std::sync::Arc;

use api::{Subject, Ticket};
use nfs4::{ClientId4, NfsStat4, SessionId4, StateId4};
use types::{Attributes, FileId, Identity};

use crate::exports::{Claimed, Place, View};
use crate::security::Flavor;
use crate::transport::Connection;

pub(crate) use nfs4_state::Principal;

/// What a file handle names: a file at the head, a replica by its ticket at a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    File(FileId),
    Replica(Ticket),
}

pub(crate) struct Compound<'a> {
    pub connection: &'a Arc<Connection>,
    /// Whom the current file handle's export takes the caller for.
    pub identity: Identity,
    pub claimed: Claimed,
    /// What this client sees.
    pub view: Arc<View>,
    /// Of the current file handle.
    pub place: Place,
    pub saved_place: Place,
    /// Who owns client records, before squashing.
    pub principal: Principal,
    /// `None` is AUTH_NONE.
    pub flavor: Option<Flavor>,
    pub minorversion: u32,
    /// Set by SEQUENCE.
    pub client: Option<ClientId4>,
    pub session: Option<SessionId4>,
    pub current: Option<Handle>,
    pub saved: Option<Handle>,
    pub current_stateid: Option<StateId4>,
    pub saved_stateid: Option<StateId4>,
    /// Bytes that the reply may still take, by the session's ca_maxresponsesize.
    pub reply_room: usize,
}

impl Compound<'_> {
    /// What is being done and for whom, for the list of slow operations.
    pub fn subject(&self) -> Subject {
        let what = match self.current {
            Some(Handle::File(file)) => file.to_string(),
            Some(Handle::Replica(ticket)) => ticket.file.to_string(),
            None => String::new(),
        };
        Subject { what, client: self.connection.peer().to_string() }
    }

    /// The current file handle at the head.
    pub fn file(&self) -> Result<FileId, NfsStat4> {
        match self.current {
            Some(Handle::File(file)) => Ok(file),
            Some(Handle::Replica(_)) => Err(NfsStat4::BadHandle),
            None => Err(NfsStat4::NoFileHandle),
        }
    }

    pub fn saved_file(&self) -> Result<FileId, NfsStat4> {
        match self.saved {
            Some(Handle::File(file)) => Ok(file),
            Some(Handle::Replica(_)) => Err(NfsStat4::BadHandle),
            None => Err(NfsStat4::NoFileHandle),
        }
    }

    /// The current file handle at a pool.
    pub fn ticket(&self) -> Result<Ticket, NfsStat4> {
        match self.current {
            Some(Handle::Replica(ticket)) => Ok(ticket),
            Some(Handle::File(_)) => Err(NfsStat4::BadHandle),
            None => Err(NfsStat4::NoFileHandle),
        }
    }

    /// A new current file handle, found in the directory that was the current one; the stateid that went with the old
    /// one goes (RFC 8881 §16.2.3.1.2).
    pub fn set_file(&mut self, file: FileId) {
        self.enter(file, self.view.step(self.place, file));
    }

    /// As `set_file`, of a file that lies at `place`.
    pub fn enter(&mut self, file: FileId, place: Place) {
        self.move_to(place);
        self.current = Some(Handle::File(file));
        self.current_stateid = None;
    }

    /// The caller may be somebody else in another export.
    pub fn move_to(&mut self, place: Place) {
        if self.place != place {
            self.place = place;
            self.identity = self.view.identity(place, &self.claimed);
        }
    }

    pub fn is_read_only(&self) -> bool {
        self.view.rules(self.place).is_read_only
    }

    /// Who walks to the directory above: the way to an export is open, whatever the modes of what it leads through.
    pub fn climber(&self) -> Identity {
        if self.place == Place::Pseudo { Identity::root() } else { self.identity.clone() }
    }

    /// Attributes of the current file as this client may know them.
    pub fn shown(&self, attributes: Attributes) -> Attributes {
        if self.place == Place::Pseudo { as_pseudo(attributes) } else { attributes }
    }

    /// Puts the current stateid in the place of its stand-in.
    pub fn resolve(&self, stateid: StateId4) -> Result<StateId4, NfsStat4> {
        if stateid == StateId4::CURRENT {
            // The newest of it: another request may have moved its seqid since, and the client could not know.
            let newest = |stateid: StateId4| {
                if stateid.is_special() { stateid } else { StateId4 { seqid: 0, ..stateid } }
            };
            return self.current_stateid.map(newest).ok_or(NfsStat4::BadStateId);
        }
        Ok(stateid)
    }

    /// The client of the session; the engine lets no operation that asks for it run without SEQUENCE.
    pub fn client(&self) -> Result<ClientId4, NfsStat4> {
        self.client.ok_or(NfsStat4::OpNotInSession)
    }
}

/// A pseudo directory belongs to nobody in particular, and everybody may look into it (RFC 8881 §7.4).
pub(crate) fn as_pseudo(attributes: Attributes) -> Attributes {
    Attributes { mode: 0o555, uid: 0, gid: 0, ..attributes }
}
