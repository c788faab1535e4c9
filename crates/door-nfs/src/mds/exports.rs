//! Where the files of clients lie: in which export, or on the way to one.
//!
//! Any client can present a handle, so PUTFH judges where the file lies: by the directories above it, up to the first
//! that is an export of this client. (A handle that names its export would need no climbing; but then one file has
//! several handles, and Linux an inode with a cache of its own for each.) For a client with the whole namespace as its
//! one export nothing is looked up.

use std::sync::Arc;

use file_state::Modes;
use nfs4::NfsStat4;
use types::{Attributes, FileId, FileKind};

use super::clients::Clients;
use super::homes::Homes;
use crate::context::Compound;
use crate::exports::{ExportTable, ViewPlace};
use crate::status;

/// Directories above a file that are looked at; a file that lies deeper cannot be reached by its handle.
const DEPTH_MAX: usize = 4096;

pub(crate) struct Exports {
    pub clients: Arc<Clients>,
    pub table: ExportTable,
    pub homes: Homes,
}

impl Exports {
    /// Where a file lies in the client's view. STALE: in none of its exports (PUTFH knows no ACCESS, RFC 8881 §15.2).
    pub async fn place_of(&self, compound: &Compound, file: &Attributes) -> Result<ViewPlace, NfsStat4> {
        let view = &compound.caller.view;
        if view.is_whole() {
            return Ok(compound.current.place);
        }
        if let Some(place) = view.of_directory(file.file) {
            return Ok(place);
        }
        if file.nlink == 0 {
            return self.place_of_unlinked(compound, file.file);
        }
        let home = self.homes.one(file.file).await.map_err(status::of_namespace)?;
        if let Some(place) = self.climb(compound, home).await? {
            return Ok(place);
        }
        if file.kind == FileKind::Directory || file.nlink == 1 {
            return Err(NfsStat4::Stale);
        }
        // Another of its names may be where this client looks.
        let homes = self
            .homes
            .all(file.file, self.clients.fs.clock.monotonic())
            .await
            .map_err(status::of_namespace)?;
        for home in homes.iter() {
            if let Some(place) = self.climb(compound, Some(*home)).await? {
                return Ok(place);
            }
        }
        Err(NfsStat4::Stale)
    }

    /// The place of a file in a directory, found by going up.
    async fn climb(&self, compound: &Compound, dir: Option<FileId>) -> Result<Option<ViewPlace>, NfsStat4> {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            let Some(dir) = at else { return Ok(None) };
            match compound.caller.view.of_directory(dir) {
                Some(ViewPlace::Pseudo) => return Ok(None),
                Some(place) => return Ok(Some(place)),
                None => at = self.homes.one(dir).await.map_err(status::of_namespace)?,
            }
        }
        Ok(None)
    }

    /// A file without a name lies nowhere: only a client that has it open, or may still reclaim that, reaches it. The
    /// export in which it was opened is unknown; if the client writes it, the export is a writable one.
    fn place_of_unlinked(&self, compound: &Compound, file: FileId) -> Result<ViewPlace, NfsStat4> {
        let Clients { fs, sessions, .. } = &*self.clients;
        let client = compound.client()?;
        let (access, layout) = {
            let table = fs.files.table();
            (table.file(file).access_of(fs.holder(client)), table.file(file).layout_of(fs.holder(client)))
        };
        // The client may not have reclaimed yet its open to write from before a restart.
        let may_reclaim = sessions.reclaims.in_grace() && sessions.reclaims.judge(client, true).is_ok();
        let is_written = access.contains(Modes::WRITE) || layout.read_write || may_reclaim;
        if is_written || access != Modes::NONE || !layout.is_empty() || sessions.reclaims.in_grace() {
            return compound.caller.view.strictest(is_written, compound.caller.flavor).ok_or(NfsStat4::Stale);
        }
        Err(NfsStat4::Stale)
    }
}
