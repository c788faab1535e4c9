//! Layouts and their stateids (RFC 8881 §12.5.3): one per client and file, from the first LAYOUTGET to the last return.

use std::time::Duration;

use file_state::{Change, ChangeVerdict, FileStateError, Holder, LayoutMode, LayoutModes, Modes};
use nfs4::{ClientId4, LayoutIomode4, NfsStat4, StateId4};
use types::FileId;

use super::ClientState;
use super::table::Kind;

#[derive(Clone, Copy, Debug)]
pub struct LayoutRequest {
    pub client: ClientId4,
    pub file: FileId,
    /// Of an open, a lock, or the layout.
    pub stateid: StateId4,
    pub mode: LayoutMode,
}

/// A layout to recall: the stateid is as CB_LAYOUTRECALL has to carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRecall {
    pub client: ClientId4,
    pub file: FileId,
    pub stateid: StateId4,
    pub iomode: LayoutIomode4,
}

/// Whether a file may be made smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Resize {
    Proceed,
    /// Others have layouts. These are to be recalled now; others may be on their way already.
    Wait(Vec<LayoutRecall>),
}

/// A layout that was not given back in time. `can_write` says that it must be fenced off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokedLayout {
    pub client: ClientId4,
    pub file: FileId,
    pub can_write: bool,
}

impl ClientState {
    /// Whether the client may ask for the layout: the stateid is good, and it has the file open so.
    pub fn judge_layout(&self, request: &LayoutRequest) -> Result<(), NfsStat4> {
        let LayoutRequest { client, file, stateid, mode } = *request;
        let state = self.states.find(client, stateid)?;
        let access = match state.kind {
            // Requests of one client overtake each other: an older seqid is as good (RFC 8881 §12.5.3).
            Kind::Layout if state.file == file => {
                tolerate_older(stateid, state.seqid)?;
                self.files.access_of(file, Holder(client.0))
            }
            _ => self.access(client, &self.states.judge(client, stateid, file)?)?,
        };
        let wanted = match mode {
            LayoutMode::Read => access != Modes::NONE,
            LayoutMode::ReadWrite => access.contains(Modes::WRITE),
        };
        if wanted { Ok(()) } else { Err(NfsStat4::OpenMode) }
    }

    /// Grants a layout. A client that has one already and asks by an open stateid gets the same `other` all the same:
    /// to Linux a second one would invalidate the first (`pnfs_layout_process`).
    pub fn layout_get(&mut self, request: &LayoutRequest, now: Duration) -> Result<StateId4, NfsStat4> {
        self.judge_layout(request)?;
        let LayoutRequest { client, file, mode, .. } = *request;
        self.files.grant_layout(file, Holder(client.0), mode, now).map_err(|error| match error {
            FileStateError::RecallConflict => NfsStat4::RecallConflict,
            // At the bound the client does its I/O through the head.
            _ => NfsStat4::LayoutUnavailable,
        })?;
        let key = self.states.layout_of(client, file);
        let key = key.unwrap_or_else(|| self.states.insert(client, file, Kind::Layout));
        Ok(self.states.bump(key))
    }

    /// Whether a stateid is the client's layout of the file, for LAYOUTERROR and LAYOUTSTATS.
    pub fn judge_layout_stateid(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(), NfsStat4> {
        let state = self.states.find(client, stateid)?;
        if state.kind != Kind::Layout || state.file != file {
            return Err(NfsStat4::BadStateId);
        }
        tolerate_older(stateid, state.seqid)
    }

    /// LAYOUTCOMMIT needs a layout to write.
    pub fn judge_layout_commit(
        &self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
    ) -> Result<(), NfsStat4> {
        self.judge_layout_stateid(client, file, stateid)?;
        if self.files.layout_of(file, Holder(client.0)).read_write {
            Ok(())
        } else {
            Err(NfsStat4::BadIoMode)
        }
    }

    /// LAYOUTRETURN of one file, by the newest stateid: a return that was sent before a grant came in must not take that
    /// grant with it (Linux refreshes the stateid and asks again). `modes` may be none, if only a part of the file was returned: what is given are whole
    /// files. The stateid is answered while something is held.
    pub fn layout_return(
        &mut self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
        modes: LayoutModes,
    ) -> Result<Option<StateId4>, NfsStat4> {
        self.judge_layout_stateid(client, file, stateid)?;
        super::judge_seqid(stateid, self.states.find(client, stateid)?.seqid)?;
        self.drop_layouts(client, file, modes);
        let left = self.states.layout_of(client, file);
        Ok(left.map(|key| self.states.bump(key)))
    }

    /// LAYOUTRETURN of all files.
    pub fn layout_return_all(&mut self, client: ClientId4, modes: LayoutModes) {
        let files: Vec<FileId> = self.files.layouts_of(Holder(client.0)).map(|(file, _)| file).collect();
        for file in files {
            self.drop_layouts(client, file, modes);
        }
    }

    pub(super) fn drop_layouts(&mut self, client: ClientId4, file: FileId, modes: LayoutModes) {
        let left = self.files.return_layout(file, Holder(client.0), modes);
        if left.is_empty()
            && let Some(key) = self.states.layout_of(client, file)
        {
            self.states.remove(key);
        }
    }

    /// Asks to make a file smaller, on behalf of a client or of nobody with layouts. Who has to wait asks again.
    pub fn begin_resize(&mut self, file: FileId, by: Option<ClientId4>, deadline: Duration) -> Resize {
        let by = by.map(|client| Holder(client.0));
        let recalls = match self.files.change(file, by, Change::Truncate, deadline) {
            ChangeVerdict::Proceed => return Resize::Proceed,
            ChangeVerdict::Wait { recalls } => recalls,
        };
        let with_stateid = recalls.into_iter().filter_map(|recall| {
            let client = ClientId4(recall.holder.0);
            let key = self.states.layout_of(client, file)?;
            let stateid = if recall.is_repeated { self.states.stateid(key) } else { self.states.bump(key) };
            Some(LayoutRecall { client, file, stateid, iomode: iomode(recall.modes) })
        });
        Resize::Wait(with_stateid.collect())
    }

    /// The client did not hear of the recall: it is told again, with the same stateid, by who asks next.
    pub fn recall_unheard(&mut self, client: ClientId4, file: FileId) {
        self.files.recall_unheard(file, Holder(client.0));
    }

    /// The client cannot be reached, or says that it has no such layout: the recall is over, and what it might still do
    /// is to be fenced off.
    pub fn expire_recall(&mut self, client: ClientId4, file: FileId) {
        self.files.expire_recall(file, Holder(client.0));
    }

    /// Layouts to revoke. Each comes again after `retry_at` until [`ClientState::revoke_layout`] says that it is done.
    pub fn expired_recalls(&mut self, now: Duration, retry_at: Duration) -> Vec<RevokedLayout> {
        let due = self.files.expired_recalls(now, retry_at).into_iter();
        due.map(|revoke| RevokedLayout {
            client: ClientId4(revoke.holder.0),
            file: revoke.file,
            can_write: revoke.modes.read_write,
        })
        .collect()
    }

    /// The layout is fenced off and is forgotten: its stateid is a bad one from now on.
    pub fn revoke_layout(&mut self, client: ClientId4, file: FileId) {
        self.drop_layouts(client, file, LayoutModes::ALL);
    }

    /// Whether somebody may be writing the file at the pools right now: its attributes here may be behind.
    pub fn is_written_at_pools(&self, file: FileId) -> bool {
        self.files.is_written_at_pools(file)
    }

    /// Files that a client may write at the pools: to be fenced off before the state of a lost client is released.
    pub fn writable_layouts(&self, client: ClientId4) -> Vec<FileId> {
        let layouts = self.files.layouts_of(Holder(client.0));
        layouts.filter(|(_, modes)| modes.read_write).map(|(file, _)| file).collect()
    }

    /// Every layout, for draining a pool.
    pub fn layouts(&self) -> impl Iterator<Item = (FileId, ClientId4)> {
        self.files.layouts().map(|(file, holder, _)| (file, ClientId4(holder.0)))
    }
}

fn tolerate_older(stateid: StateId4, newest: u32) -> Result<(), NfsStat4> {
    match super::judge_seqid(stateid, newest) {
        Err(NfsStat4::OldStateId) => Ok(()),
        judged => judged,
    }
}

fn iomode(modes: LayoutModes) -> LayoutIomode4 {
    match (modes.read, modes.read_write) {
        (true, true) => LayoutIomode4::Any,
        (false, true) => LayoutIomode4::Rw,
        (_, false) => LayoutIomode4::Read,
    }
}
