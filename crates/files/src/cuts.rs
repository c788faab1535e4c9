//! Cuts at pools on other hosts whose outcome is not known, because the head ended or the pool gave no answer.
//!
//! Each is noted before the pool is asked (`api::CutNotes`). Where the replica is shorter than its file, and no shorter than
//! the cut was to make it, the file gets the length of the replica: before anybody is told its length or sent to its pool, if
//! the pool answers, and else when it does. Nobody waits for a pool that is away.

use std::sync::{Arc, OnceLock};

use api::{
    ANSWER_TIME, Cut, CutNotes, CutNumber, Grant, NamespaceError, PoolError, ReplicaFacts, SetAttributes,
    TicketMode,
};
use file_state::Change;
use types::{Attributes, FileId, Identity};

use crate::replicas::check_birth;
use crate::{Files, FilesError};

#[derive(Default)]
pub(crate) struct Cuts(OnceLock<Arc<dyn CutNotes>>);

/// A cut that is noted. If it is dropped before its end, it is left.
pub(crate) struct BegunCut {
    notes: Arc<dyn CutNotes>,
    number: Option<CutNumber>,
}

impl BegunCut {
    pub fn end(mut self) {
        if let Some(number) = self.number.take() {
            self.notes.end(number);
        }
    }
}

impl Drop for BegunCut {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.notes.leave(number);
        }
    }
}

/// How far a cut came.
enum Found {
    /// The file is as short, or gone, or its replica has lost bytes: there is nothing to finish.
    Over,
    /// The replica is as long as the file.
    Uncut,
    Shorter(Attributes, ReplicaFacts),
}

impl Files {
    /// From now on cuts are noted. Before anybody is served, and once.
    pub fn note_cuts(&self, notes: Arc<dyn CutNotes>) {
        let is_first = self.cuts.0.set(notes).is_ok();
        assert!(is_first, "cuts are noted in one place");
    }

    pub(crate) async fn begin_cut(&self, cut: Cut) -> Result<Option<BegunCut>, FilesError> {
        let Some(notes) = self.cuts.0.get() else { return Ok(None) };
        let number = notes.begin(cut).await?;
        Ok(number.map(|number| BegunCut { notes: Arc::clone(notes), number: Some(number) }))
    }

    /// The attributes, read again if a cut of the file was left and is finished now.
    pub(crate) async fn attributes_once_cut(&self, known: Attributes) -> Result<Attributes, FilesError> {
        match self.left_cut(known.file) {
            None => Ok(known),
            Some(_) => {
                Box::pin(async {
                    self.has_finished_cuts(known.file).await;
                    self.attributes(known.file).await
                })
                .await
            }
        }
    }

    /// Finishes cuts of the file that were left. `false`: some are left still.
    pub(crate) async fn has_finished_cuts(&self, file: FileId) -> bool {
        match self.left_cut(file) {
            None => true,
            Some(_) => Box::pin(self.finish_cuts(file)).await.is_ok() && self.left_cut(file).is_none(),
        }
    }

    fn left_cut(&self, file: FileId) -> Option<(CutNumber, Cut)> {
        self.cuts.0.get()?.left(file)
    }

    /// Finishes cuts of the file that were left, as far as their pools answer.
    pub async fn finish_cuts(&self, file: FileId) -> Result<(), FilesError> {
        let Some(notes) = self.cuts.0.get() else { return Ok(()) };
        while let Some((number, cut)) = notes.left(file) {
            let pool = self.services.pools.pool(cut.pool).ok_or(PoolError::Offline(cut.pool))?;
            if pool.status().offline.is_some() {
                return Err(PoolError::Offline(cut.pool).into());
            }
            let alone = self.lengths.alone(file).await;
            match self.look_at_cut(cut).await? {
                Found::Over => notes.end(number),
                Found::Uncut => {
                    notes.find_uncut(number);
                    return Ok(());
                }
                Found::Shorter(before, facts) => {
                    self.finish_cut(&before, &facts).await?;
                    notes.end(number);
                    drop(alone);
                    self.call_back(file, None, Change::Truncate);
                }
            }
        }
        Ok(())
    }

    /// While nobody else sets the length.
    async fn look_at_cut(&self, cut: Cut) -> Result<Found, FilesError> {
        let file = match self.services.namespace.attributes(cut.file).await {
            Err(NamespaceError::Stale(_)) => return Ok(Found::Over),
            attributes => attributes?,
        };
        let locality = self.services.locations.locality(cut.file).await?;
        if file.size <= cut.size || !locality.good_pools().any(|pool| pool == cut.pool) {
            return Ok(Found::Over);
        }
        let pool = self.services.pools.pool(cut.pool).ok_or(PoolError::Offline(cut.pool))?;
        let Some(facts) = pool.facts(&[cut.file], ANSWER_TIME).await.sole()? else { return Ok(Found::Over) };
        if facts.size >= file.size {
            return Ok(Found::Uncut);
        }
        if facts.size < cut.size || check_birth(&file, cut.pool, &facts).is_err() {
            return Ok(Found::Over);
        }
        // The pool refuses if its label knows of more bytes than there are.
        match pool.open(&Grant { pool: cut.pool }.own_ticket(&file, TicketMode::Read)).await {
            Ok(_) => Ok(Found::Shorter(file, facts)),
            Err(PoolError::Io { .. } | PoolError::NoReplica(_)) => Ok(Found::Over),
            Err(error) => Err(error.into()),
        }
    }

    async fn finish_cut(&self, before: &Attributes, facts: &ReplicaFacts) -> Result<(), FilesError> {
        let set = SetAttributes {
            size: Some(facts.size),
            size_is_authorized: true,
            space_used: Some(facts.space_used),
            ..SetAttributes::default()
        };
        let set = self.services.namespace.set_attributes(&Identity::root(), before.file, &set).await?;
        let (file, from, to) = (before.file, before.size, set.size);
        tracing::info!(%file, from, to, "a truncation that had been interrupted is finished");
        Ok(())
    }
}
