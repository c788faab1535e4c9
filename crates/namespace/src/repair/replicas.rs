//! Where files lie, made to agree with what pools have.

use api::ReplicaRef;
use types::{Epoch, FileId, FileKind, PoolId, Timestamp};

use super::lost_found::{add_name, directory, lost_found, root_owner};
use super::{RepairError, RepairLog, Repairs, meta, set_meta};
use crate::ids::FIRST;
use crate::inode::{Instance, new_inode};
use crate::locality::Placement;
use crate::session::{Session, insert_inodes, insert_locations, note_placement};
use crate::store::StoreResult;

/// Unit of used space, in bytes.
const BLOCK: u64 = 4096;

/// A replica that the namespace does not place where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stray {
    pub file: FileId,
    pub pool: PoolId,
    pub size: u64,
    pub space_used: u64,
    /// The lowest whose tickets the pool honours.
    pub epoch: Epoch,
    pub modified: Option<Timestamp>,
    /// When its file was made, where its label says that.
    pub birth: Option<Timestamp>,
}

impl Repairs {
    /// Replicas of files that are not said to lie there are their data. Files that nobody named, or whose names are all
    /// gone, get one: otherwise they would be removed at the next start, and the replicas with them.
    pub fn place(&mut self, strays: &[Stray], log: &mut dyn RepairLog) -> Result<u64, RepairError> {
        let now = self.clock.now();
        self.transaction(log, |session, log| {
            for stray in strays {
                insert_locations(session, &[(stray.file, ReplicaRef::good(stray.pool, now))])?;
                note_placement(session, &of_file(stray.file))?;
                raise_epoch(session, stray)?;
                let was =
                    format!("{} has a replica of {}, which is not placed there", stray.pool, stray.file);
                let made = match name_unnamed(session, stray, now)? {
                    Some(name) => format!("it lies there, and is /lost+found/{}/{name}", stray.pool),
                    None => "it lies there".to_owned(),
                };
                log.note(&was, &made)?;
            }
            Ok(strays.len() as u64)
        })
    }

    /// Replicas of files that are not there become files below `/lost+found`, each under its number and with the size
    /// that it has on disk.
    pub fn adopt(&mut self, strays: &[Stray], log: &mut dyn RepairLog) -> Result<u64, RepairError> {
        let now = self.clock.now();
        self.transaction(log, |session, log| {
            for stray in strays {
                let made = adopt(session, stray, now)?;
                let was = format!(
                    "{} has a replica of {} with {} bytes, which is no file",
                    stray.pool, stray.file, stray.size
                );
                log.note(&was, &made)?;
            }
            Ok(strays.len() as u64)
        })
    }

    /// So many numbers that no file ever had, the first of them; durably, before anything is made of them.
    pub fn new_files(&mut self, count: u64) -> Result<FileId, RepairError> {
        self.session.transaction(|session| {
            let first = meta(session, "next_file")?.map_or(FIRST, i64::cast_unsigned);
            set_meta(session, "next_file", (first + count).cast_signed())?;
            Ok(FileId(first))
        })
    }

    /// Locations at which nothing is.
    pub fn drop_locations(
        &mut self,
        locations: &[(FileId, PoolId)],
        log: &mut dyn RepairLog,
    ) -> Result<u64, RepairError> {
        self.transaction(log, |session, log| {
            for (file, pool) in locations {
                remove_location(session, *file, *pool)?;
                note_placement(session, &of_file(*file))?;
                log.note(&format!("file {file} is said to lie on {pool}"), "location removed")?;
            }
            Ok(locations.len() as u64)
        })
    }

    /// Files are as long as what there is of them: what is missing is given up. Checksums were of the whole.
    pub fn shorten(&mut self, sizes: &[(FileId, u64)], log: &mut dyn RepairLog) -> Result<u64, RepairError> {
        self.transaction(log, |session, log| {
            for (file, size) in sizes {
                let id = file.0.cast_signed();
                let before = session.number(&format!("SELECT size FROM inodes WHERE id = {id}"))?;
                let (new, used) =
                    (size.cast_signed(), size.div_ceil(BLOCK).saturating_mul(BLOCK).cast_signed());
                session.run(&format!(
                    "UPDATE inodes SET size = {new}, extras = extras & -2, \
                     space_used = CASE WHEN space_used > {used} THEN {used} ELSE space_used END \
                     WHERE id = {id} AND kind = 0"
                ))?;
                session.run(&format!("DELETE FROM checksums WHERE inode = {id}"))?;
                note_placement(session, &of_file(*file))?;
                let was = format!("file {file} has {} bytes", before.unwrap_or_default());
                log.note(&was, &format!("it has the {size} of its replica"))?;
            }
            Ok(sizes.len() as u64)
        })
    }
}

fn of_file(file: FileId) -> String {
    format!("id = {}", file.0.cast_signed())
}

pub fn remove_location(session: &mut dyn Session, file: FileId, pool: PoolId) -> StoreResult<()> {
    let (file, pool) = (file.0.cast_signed(), session.narrow(pool.0));
    session.run(&format!("DELETE FROM locations WHERE inode = {file} AND pool = {pool}"))?;
    Ok(())
}

/// Gives a file without a name one beside the adopted replicas of its pool; returns the name.
fn name_unnamed(session: &mut dyn Session, stray: &Stray, now: Timestamp) -> StoreResult<Option<String>> {
    let id = stray.file.0.cast_signed();
    let of_file = format!("id = {id} AND kind = 0 AND nlink = 0");
    if session.number(&format!("SELECT id FROM inodes WHERE {of_file}"))?.is_none() {
        return Ok(None);
    }
    let lost = lost_found(session, now)?;
    let dir = directory(session, lost, &stray.pool.to_string(), now)?;
    let name = add_name(session, dir, &stray.file.to_string(), stray.file)?;
    let modified = stray.modified.unwrap_or(now);
    // The size of an upload is noted when it gets its name.
    session.run(&format!(
        "UPDATE inodes SET nlink = 1, extras = extras & -5, parent = {}, size = {}, space_used = {}, \
         mtime_s = {}, mtime_ns = {} WHERE {of_file}",
        dir.0.cast_signed(),
        stray.size.cast_signed(),
        stray.space_used.cast_signed(),
        modified.seconds,
        modified.nanoseconds()
    ))?;
    Ok(Some(name))
}

/// A pool refuses tickets of epochs below its own.
fn raise_epoch(session: &mut dyn Session, stray: &Stray) -> StoreResult<()> {
    let (file, epoch) = (stray.file.0.cast_signed(), session.narrow(stray.epoch.0));
    session.run(&format!("UPDATE inodes SET epoch = {epoch} WHERE id = {file} AND epoch < {epoch}"))?;
    Ok(())
}

fn adopt(session: &mut dyn Session, stray: &Stray, now: Timestamp) -> StoreResult<String> {
    let exists = session
        .number(&format!("SELECT id FROM inodes WHERE id = {}", stray.file.0.cast_signed()))?
        .is_some();
    insert_locations(session, &[(stray.file, ReplicaRef::good(stray.pool, now))])?;
    if exists {
        // Two pools have one: the file is made of the first.
        raise_epoch(session, stray)?;
        return Ok("a second replica of a file that was made of another".to_owned());
    }
    let lost = lost_found(session, now)?;
    let dir = directory(session, lost, &stray.pool.to_string(), now)?;
    let mut inode = new_inode(stray.file, FileKind::Regular, now, Instance { start: 0 });
    let attributes = &mut inode.attributes;
    attributes.mode = 0o600;
    (attributes.uid, attributes.gid) = root_owner(session)?;
    (attributes.size, attributes.space_used) = (stray.size, stray.space_used);
    attributes.mtime = stray.modified.unwrap_or(now);
    attributes.birth = stray.birth.unwrap_or(attributes.birth);
    attributes.epoch = stray.epoch;
    inode.extras.placement = Placement::Replicas;
    inode.parent = dir;
    insert_inodes(session, &[inode])?;
    let next = meta(session, "next_file")?.map_or(FIRST, i64::cast_unsigned);
    set_meta(session, "next_file", next.max(stray.file.0 + 1).cast_signed())?;
    let name = add_name(session, dir, &stray.file.to_string(), stray.file)?;
    Ok(format!("it is /lost+found/{}/{name}", stray.pool))
}
