//! Replicas, as the head itself reaches them: where they are, opening them, setting their length.
//!
//! The size in the namespace is the truth: a replica may be longer (bytes written by a pNFS client that has not
//! committed its layout yet). It is shorter only where bytes were lost: a start finishes a cut that a kill interrupted.

use std::sync::Arc;
use std::time::Duration;

use api::{
    ANSWER_TIME, Birth, Cut, Grant, Locality, NamespaceError, OpenReplica, PoolError, Purpose, ReplicaFacts,
    SelectError, Selection, Ticket, TicketMode,
};
use file_state::{Change, Holder};
use parking_lot::Mutex;
use types::{Attributes, FileId, PoolId};

use crate::cuts::BegunCut;
use crate::lengths::Alone;
use crate::{FileChangeGuard, Files, FilesError};

/// A file that gets a new length, first at its replicas and then in the namespace, while this lives.
pub(crate) struct Resizing {
    pub files: Arc<Files>,
    pub file: Attributes,
    pub size: u64,
    /// Until the namespace has the length.
    begun: Mutex<Vec<BegunCut>>,
    _changing: FileChangeGuard,
    _alone: Alone,
}

/// An open replica and the ticket that it was opened with, which names its pool.
#[derive(Clone)]
pub(crate) struct Located {
    pub ticket: Ticket,
    pub replica: Arc<dyn OpenReplica>,
}

impl Files {
    /// A pool for a new file. The caller says what it knows of the file; the purpose is to create it.
    pub fn choose(&self, new: &Selection<'_>) -> Result<PoolId, FilesError> {
        require_possible(new.bytes)?;
        let want = Selection { purpose: Purpose::Create, ..*new };
        Ok(self.services.pools.select(&want)?.pool)
    }

    /// Chooses the pool for a file without any replica; concurrent callers get the same pool. Files get their place
    /// when they are created; this is for the few that could not.
    pub async fn place(&self, file: FileId, client: Option<u64>) -> Result<PoolId, FilesError> {
        let turn = Arc::clone(&self.placing).lock_owned().await;
        match self.services.locations.locality(file).await? {
            placed @ Locality::Replicas(_) => {
                return placed.good_pools().next().ok_or(SelectError::NoLocation.into());
            }
            // A lost one is placed for a write that replaces all of it.
            Locality::Empty | Locality::Lost => {}
        }
        let pool = self.choose(&Selection { file: Some(file), client, ..Selection::new(Purpose::Create) })?;
        let locations = Arc::clone(&self.services.locations);
        // The next in turn sees the location also if this caller is dropped, and gives no second one.
        let add = async move {
            let _turn = turn;
            locations.add_location(file, pool).await
        };
        self.tasks.carry_on(add).await?;
        Ok(pool)
    }

    /// The pool to read or write the file at. `None`: it is empty, and has no replica yet.
    ///
    /// `NoLocation`: it has bytes, and nobody knows where.
    pub async fn locate(
        &self,
        file: &Attributes,
        mode: TicketMode,
        client: Option<u64>,
    ) -> Result<Option<Grant>, FilesError> {
        self.locate_but(file, mode, client, &[]).await
    }

    /// As [`Files::locate`], at none of the pools that were tried.
    async fn locate_but(
        &self,
        file: &Attributes,
        mode: TicketMode,
        client: Option<u64>,
        tried: &[PoolId],
    ) -> Result<Option<Grant>, FilesError> {
        // A client that is sent to a replica that is shorter than its file would take the rest for zeros.
        if client.is_some() && !self.has_finished_cuts(file.file).await {
            return Err(SelectError::Away.into());
        }
        // A write of a client there could be missed, and a read could be of old bytes in a moment.
        if client.is_some() && self.is_moving(file.file) {
            return Err(SelectError::Unavailable.into());
        }
        let locality = self.services.locations.locality(file.file).await?;
        let Some(locations) = good_replicas(file, &locality)? else { return Ok(None) };
        let purpose = if mode == TicketMode::Read { Purpose::Read } else { Purpose::Write };
        let want = Selection {
            locations: &locations,
            file: Some(file.file),
            owner: Some((file.uid, file.gid)),
            bytes: file.size,
            client,
            tried,
            ..Selection::new(purpose)
        };
        Ok(Some(self.services.pools.select(&want)?))
    }

    /// `None`: the file is empty, and has no replica yet.
    pub async fn open_replica(
        &self,
        file: &Attributes,
        mode: TicketMode,
    ) -> Result<Option<Arc<dyn OpenReplica>>, FilesError> {
        Ok(self.open_located(file, mode).await?.map(|located| located.replica))
    }

    /// Whether the pool makes the replica, for a client that is sent there with a ticket that says so.
    pub fn is_made_by_pool(&self, file: &Attributes, pool: PoolId) -> bool {
        let made_through = || self.services.pools.pool(pool)?.status().made_through;
        file.size == 0 && made_through().is_some_and(|old| file.file > old)
    }

    /// Before a client is sent to a pool with a ticket that makes no replica.
    pub async fn make_replica(&self, file: &Attributes, pool: PoolId) -> Result<(), FilesError> {
        if file.size > 0 {
            // There is one, or it was lost.
            return Ok(());
        }
        let at = self.services.pools.pool(pool).ok_or(PoolError::Offline(pool))?;
        Ok(at.make(&[(file.file, Birth::of(file.birth))], ANSWER_TIME).await.sole()?)
    }

    /// As [`Files::open_replica`], with where it is. To read, another good replica is taken if a pool cannot be reached.
    pub(crate) async fn open_located(
        &self,
        file: &Attributes,
        mode: TicketMode,
    ) -> Result<Option<Located>, FilesError> {
        let Some(grant) = self.locate(file, mode, None).await? else { return Ok(None) };
        let (mut opened, mut tried) = (self.open_at(grant, file, mode).await, vec![grant.pool]);
        while mode == TicketMode::Read
            && matches!(opened, Err(FilesError::Pool(PoolError::Offline(_) | PoolError::Unknown(_))))
        {
            match self.locate_but(file, mode, None, &tried).await {
                Ok(Some(grant)) if !tried.contains(&grant.pool) => {
                    opened = self.open_at(grant, file, mode).await;
                    tried.push(grant.pool);
                }
                // The error of the pool says more.
                Ok(_) | Err(_) => break,
            }
        }
        opened.map(Some)
    }

    async fn open_at(
        &self,
        grant: Grant,
        file: &Attributes,
        mode: TicketMode,
    ) -> Result<Located, FilesError> {
        let pool = self.services.pools.pool(grant.pool).ok_or(PoolError::Offline(grant.pool))?;
        let ticket = grant.own_ticket(file, mode);
        match pool.open(&ticket).await {
            Ok(replica) => Ok(Located { ticket, replica }),
            Err(error) => Err(self.unless_removed(file.file, error.into()).await),
        }
    }

    /// An operation that holds no open of a file may find that the last name went, and the replicas with it: the file
    /// is stale then, and no data is lost.
    pub(crate) async fn unless_removed(&self, file: FileId, error: FilesError) -> FilesError {
        if !matches!(error, FilesError::Pool(PoolError::NoReplica(_) | PoolError::Io { .. })) {
            return error;
        }
        match self.services.namespace.attributes(file).await {
            Ok(now) if now.nlink == 0 && !self.table().file(file).is_in_use() => {
                NamespaceError::Stale(file).into()
            }
            Err(stale @ NamespaceError::Stale(_)) => stale.into(),
            Ok(_) | Err(_) => error,
        }
    }

    /// The replica to write at. An empty file without one gets it.
    pub async fn open_for_writing(&self, file: &Attributes) -> Result<Arc<dyn OpenReplica>, FilesError> {
        Ok(self.open_located_for_writing(file).await?.replica)
    }

    /// As [`Files::open_located_for_writing`], for a write that leaves nothing of what the file has: a replica that was
    /// lost is made anew.
    pub(crate) async fn open_located_for_replacing(&self, file: &Attributes) -> Result<Located, FilesError> {
        self.open_located_for_writing(&nothing_yet(file)).await
    }

    /// As [`Files::open_for_writing`], with where it is.
    pub(crate) async fn open_located_for_writing(&self, file: &Attributes) -> Result<Located, FilesError> {
        if let Some(located) = self.open_located(file, TicketMode::ReadWrite).await? {
            return Ok(located);
        }
        self.place(file.file, None).await?;
        let placed = self.open_located(file, TicketMode::ReadWrite).await?;
        placed.ok_or(FilesError::Select(SelectError::NoLocation))
    }

    /// Waits until nobody else has anything to do with the length. `Recalled`: not within `patience`.
    pub(crate) async fn begin_resizing(
        self: &Arc<Self>,
        file: &Attributes,
        size: u64,
        by: Option<Holder>,
        patience: Duration,
    ) -> Result<Resizing, FilesError> {
        // Layouts do not mind a file that grows.
        let change = if size <= file.size { Change::Truncate } else { Change::SetAttributes };
        let changing = self.before_change(file.file, by, change, patience).await?;
        // Behind the recall: a layout's return may write.
        let alone = tokio::time::timeout(patience, self.lengths.alone(file.file)).await;
        let alone = alone.map_err(|_| FilesError::Recalled)?;
        let (files, file, begun) = (Arc::clone(self), *file, Mutex::default());
        Ok(Resizing { files, file, size, begun, _changing: changing, _alone: alone })
    }

    /// Returns the space used. `begun`: the cuts that are noted.
    async fn truncate_alone(
        &self,
        file: &Attributes,
        size: u64,
        begun: &Mutex<Vec<BegunCut>>,
    ) -> Result<u64, FilesError> {
        let locations = match self.services.locations.locality(file.file).await? {
            // Also a lost one is empty from then on.
            Locality::Empty | Locality::Lost if size == 0 => return Ok(0),
            locality => match good_replicas(file, &locality)? {
                Some(locations) => locations,
                None => vec![self.place(file.file, None).await?],
            },
        };
        let mut space_used = 0;
        for location in locations {
            let pool = self.services.pools.pool(location).ok_or(PoolError::Offline(location))?;
            match pool.facts(&[file.file], ANSWER_TIME).await.sole()? {
                Some(facts) => {
                    check_birth(file, location, &facts)?;
                    if facts.size > size {
                        let cut = Cut { file: file.file, pool: location, size };
                        let noted = self.begin_cut(cut).await?;
                        begun.lock().extend(noted);
                    }
                }
                // It would be made anew, of zeros.
                None if file.size > 0 && size > 0 => return Err(lost(location, "is gone").into()),
                None if size > 0 => {
                    let born = [(file.file, Birth::of(file.birth))];
                    pool.make(&born, ANSWER_TIME).await.sole()?;
                }
                None => {}
            }
            let truncated = pool.truncate(&[(file.file, size)], ANSWER_TIME).await;
            space_used = truncated.sole()?.space_used;
        }
        Ok(space_used)
    }
}

impl Resizing {
    /// Returns the space used.
    pub async fn set_at_replicas(&self) -> Result<u64, FilesError> {
        match self.files.truncate_alone(&self.file, self.size, &self.begun).await {
            Ok(space_used) => Ok(space_used),
            Err(error) => Err(self.files.unless_removed(self.file.file, error).await),
        }
    }

    /// The namespace has the length.
    pub fn end_cuts(&self) {
        self.begun.lock().drain(..).for_each(BegunCut::end);
    }
}

/// Pools whose replicas have the data; `None`: there is no data. A file gets its place before its first byte and before a
/// length beyond 0. One that is lost is an error and not one of zeros, unless the caller leaves nothing of it and says that
/// its length is 0.
fn good_replicas(file: &Attributes, locality: &Locality) -> Result<Option<Vec<PoolId>>, FilesError> {
    let good: Vec<PoolId> = match locality {
        Locality::Empty | Locality::Lost if file.size == 0 => return Ok(None),
        Locality::Empty | Locality::Lost => Vec::new(),
        Locality::Replicas(_) => locality.good_pools().collect(),
    };
    if good.is_empty() { Err(SelectError::NoLocation.into()) } else { Ok(Some(good)) }
}

pub(crate) fn require_possible(size: u64) -> Result<(), FilesError> {
    if i64::try_from(size).is_ok() { Ok(()) } else { Err(FilesError::TooLarge) }
}

/// The file as one whose replica may be made.
fn nothing_yet(file: &Attributes) -> Attributes {
    Attributes { size: 0, ..*file }
}

/// A replica found under the id of a file must be that file's.
pub(crate) fn check_birth(file: &Attributes, pool: PoolId, found: &ReplicaFacts) -> Result<(), PoolError> {
    match found.birth.agrees_with(Birth::of(file.birth)) {
        true => Ok(()),
        false => Err(lost(pool, "is that of another file, which was made at another time")),
    }
}

pub(crate) fn lost(pool: PoolId, what_of_it: &str) -> PoolError {
    let reason = format!("it has data, and its replica {what_of_it}");
    PoolError::Io { pool, operation: "find the data of the file", reason }
}
