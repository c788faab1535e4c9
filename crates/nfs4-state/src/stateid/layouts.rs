//! Layouts and their stateids (RFC 8881 §12.5.3): one per client and file, from the first LAYOUTGET to the last return.

use std::time::Duration;

use file_state::{FileStateError, GrantKind, LayoutMode, LayoutModes, Modes};
use nfs4::{ClientId4, LayoutIomode4, NfsStat4, StateId4};
use types::FileId;

use super::access::access_of;
use super::door_table::DoorTable;
use super::lost::LostLocks;
use super::table::{Kind, StateTable, judge_seqid};

#[derive(Clone, Copy, Debug)]
pub struct LayoutRequest {
    pub client: ClientId4,
    pub file: FileId,
    /// Of an open, a lock, a delegation, or the layout.
    pub stateid: StateId4,
    pub mode: LayoutMode,
}

pub struct Layouts<'a> {
    pub(super) table: &'a DoorTable,
    pub(super) states: &'a mut StateTable,
    pub(super) lost: &'a LostLocks,
}

impl Layouts<'_> {
    /// Whether the client may ask for the layout: the stateid is good, and it has the file open so, or may open it so by itself.
    pub fn judge(&self, request: &LayoutRequest) -> Result<(), NfsStat4> {
        let LayoutRequest { client, file, stateid, mode } = *request;
        let state = self.states.find(client, stateid)?;
        let access = match state.kind {
            // Requests of one client overtake each other: an older seqid is as good (RFC 8881 §12.5.3).
            Kind::Layout if state.file == file => {
                tolerate_older(stateid, state.seqid)?;
                self.table.lock().file(file).access_of(self.table.holder(client))
            }
            _ => access_of(self.table, self.states, client, &self.states.judge(client, stateid, file)?)?,
        };
        let wanted = match mode {
            LayoutMode::Read => access != Modes::NONE,
            LayoutMode::ReadWrite => access.contains(Modes::WRITE),
        };
        if !wanted {
            return Err(NfsStat4::OpenMode);
        }
        // Its writes go through the head, and fail if they are by a lock that was lost.
        if self.lost.has(self.table, client, file) { Err(NfsStat4::LayoutUnavailable) } else { Ok(()) }
    }

    /// Grants a layout. A client that has one already and asks by an open stateid gets the same `other` all the same:
    /// to Linux a second one would invalidate the first (`pnfs_layout_process`).
    pub fn get(&mut self, request: &LayoutRequest, now: Duration) -> Result<StateId4, NfsStat4> {
        self.judge(request)?;
        let LayoutRequest { client, file, mode, .. } = *request;
        let granted = self.table.lock().layouts().grant(file, self.table.holder(client), mode, now);
        granted.map_err(|error| match error {
            FileStateError::RecallConflict => NfsStat4::RecallConflict,
            // At the bound the client does its I/O through the head.
            _ => NfsStat4::LayoutUnavailable,
        })?;
        let key = self.states.layout_of(client, file);
        let key = key.unwrap_or_else(|| self.states.insert(client, file, Kind::Layout));
        Ok(self.states.bump(key))
    }

    /// Whether a stateid is the client's layout of the file, for LAYOUTERROR and LAYOUTSTATS.
    pub fn judge_stateid(&self, client: ClientId4, file: FileId, stateid: StateId4) -> Result<(), NfsStat4> {
        let state = self.states.find(client, stateid)?;
        if state.kind != Kind::Layout || state.file != file {
            return Err(NfsStat4::BadStateId);
        }
        tolerate_older(stateid, state.seqid)
    }

    /// Clients of this door that have a layout of the file.
    pub fn clients(&self, file: FileId) -> Vec<ClientId4> {
        self.table
            .lock()
            .file(file)
            .layout_holders()
            .filter_map(|holder| self.table.client_of(holder))
            .collect()
    }

    /// Whether the client was asked to return a layout by which it may write, and has not done so. A WRITE of such a client may
    /// come to the pool after the return: Linux cancels its calls at a recall, and does not wait for them.
    pub fn is_recalled_to_write(&self, client: ClientId4, file: FileId) -> bool {
        let (table, holder) = (self.table.lock(), self.table.holder(client));
        let file = table.file(file);
        file.layout_of(holder).read_write && file.is_recalled(holder, GrantKind::Layout)
    }

    /// The files of which that is so.
    pub fn recalled_to_write(&self, client: ClientId4) -> Vec<FileId> {
        let mut files = self.writable(client);
        files.retain(|file| self.is_recalled_to_write(client, *file));
        files
    }

    /// When the client was last granted a layout of the file, if it has one.
    pub fn granted(&self, client: ClientId4, file: FileId) -> Option<Duration> {
        self.table.lock().file(file).layout_granted(self.table.holder(client))
    }

    /// LAYOUTCOMMIT needs a layout to write.
    pub fn judge_commit(&self, client: ClientId4, file: FileId, stateid: StateId4) -> Result<(), NfsStat4> {
        self.judge_stateid(client, file, stateid)?;
        let held = self.table.lock().file(file).layout_of(self.table.holder(client));
        if held.read_write { Ok(()) } else { Err(NfsStat4::BadIoMode) }
    }

    /// LAYOUTRETURN of one file, by the newest stateid: a return that was sent before a grant came in must not take that
    /// grant with it (Linux refreshes the stateid and asks again). `modes` may be none, if only a part of the file was
    /// returned: what is given are whole files. The stateid is answered while something is held.
    pub fn give_back(
        &mut self,
        client: ClientId4,
        file: FileId,
        stateid: StateId4,
        modes: LayoutModes,
    ) -> Result<Option<StateId4>, NfsStat4> {
        self.judge_stateid(client, file, stateid)?;
        judge_seqid(stateid, self.states.find(client, stateid)?.seqid)?;
        self.drop(client, file, modes);
        let left = self.states.layout_of(client, file);
        Ok(left.map(|key| self.states.bump(key)))
    }

    /// The layouts that a client has now, with their stateids.
    pub fn held(&self, client: ClientId4) -> Vec<(FileId, StateId4)> {
        let files: Vec<FileId> =
            self.table.lock().layouts_of(self.table.holder(client)).map(|(file, _)| file).collect();
        let stateid_of = |file| Some((file, self.states.stateid(self.states.layout_of(client, file)?)));
        files.into_iter().filter_map(stateid_of).collect()
    }

    /// LAYOUTRETURN of all files: of those that were held, unless more was granted since.
    pub fn give_back_all(&mut self, client: ClientId4, modes: LayoutModes, held: &[(FileId, StateId4)]) {
        for (file, stateid) in held {
            let key = self.states.layout_of(client, *file);
            if key.is_some_and(|key| self.states.stateid(key) == *stateid) {
                self.drop(client, *file, modes);
            }
        }
    }

    pub(super) fn drop(&mut self, client: ClientId4, file: FileId, modes: LayoutModes) {
        let left = self.table.lock().layouts().give_back(file, self.table.holder(client), modes);
        if left.is_empty()
            && let Some(key) = self.states.layout_of(client, file)
        {
            self.states.remove(key);
        }
    }

    /// Layouts were given with `return_on_close`: with the last open go those that no delegation covers. For the door, when
    /// what it held open itself for the client is closed.
    pub fn drop_uncovered(&mut self, client: ClientId4, file: FileId) {
        let left = self.table.lock().file(file).access_of(self.table.holder(client));
        if left == Modes::NONE {
            self.drop(client, file, LayoutModes::ALL);
        }
    }

    /// Files that a client may write at the pools: to be fenced off before the state of a lost client is released.
    pub fn writable(&self, client: ClientId4) -> Vec<FileId> {
        let files = self.table.lock();
        let layouts = files.layouts_of(self.table.holder(client));
        layouts.filter(|(_, modes)| modes.read_write).map(|(file, _)| file).collect()
    }
}

fn tolerate_older(stateid: StateId4, newest: u32) -> Result<(), NfsStat4> {
    match judge_seqid(stateid, newest) {
        Err(NfsStat4::OldStateId) => Ok(()),
        judged => judged,
    }
}

/// As CB_LAYOUTRECALL names what is held.
pub fn iomode(modes: LayoutModes) -> LayoutIomode4 {
    match (modes.read, modes.read_write) {
        (true, true) => LayoutIomode4::Any,
        (false, true) => LayoutIomode4::Rw,
        (_, false) => LayoutIomode4::Read,
    }
}
