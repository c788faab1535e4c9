//! A namespace built anew from the descriptions of files on the pools and from the replicas there.
//!
//! Contradictions (a directory without a description, one name for two files) are mended by the repairs that follow.

use api::{Description, ReplicaRef, ReplicaState};
use types::{Epoch, FileId, FileKind, PoolId, Timestamp};

use super::lost_found::root_owner;
use super::{RepairError, RepairLog, Repairs, Stray, distrust_caches, meta, set_meta};
use crate::accounts::scope_number;
use crate::check::Kind;
use crate::ids::FIRST;
use crate::inode::{Inode, Instance, NO_PARENT, new_inode};
use crate::locality::Placement;
use crate::session::{Session, insert_inodes, insert_locations, insert_names, insert_targets};
use crate::store::StoreResult;
use crate::timeline::RESTORED;

/// Numbers that are passed over: of files that were made and of which nothing is left.
const NUMBERS_SKIPPED: u64 = 1 << 40;
/// Starts that are passed over. A change attribute holds the number of its start, and what clients saw last is not known:
/// only what was described.
const STARTS_SKIPPED: u64 = 1 << 20;
/// Change attributes are compared as numbers with a sign, and begin with the start. Some are left to go on with.
const STARTS_MAX: u64 = i32::MAX as u64 - STARTS_SKIPPED;

/// In the place of a schema version while a namespace is being built: no head opens it.
pub const UNFINISHED: i32 = i32::MAX;

/// Facts about one file: a description, a replica or both.
#[derive(Clone, Debug, Default)]
pub struct FileFacts {
    pub described: Option<Description>,
    pub replicas: Vec<Stray>,
    /// Of a fence that has no replica.
    pub epoch: Epoch,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    last_file: u64,
    next_cookie: u64,
    last_change: u64,
}

impl Repairs {
    /// From here until `finish_load` no head opens the namespace.
    pub fn begin_load(&mut self) -> Result<(), RepairError> {
        let sql = format!("INSERT INTO schema_version SELECT {UNFINISHED}, max(applied) FROM schema_version");
        self.session.transaction(|session| {
            session.run(&sql)?;
            Ok(())
        })
    }

    /// Into a namespace that has nothing but its root, in the order of file ids; as many as make a good transaction.
    pub fn load(&mut self, load: &mut Load, files: &[FileFacts]) -> Result<(), RepairError> {
        let now = self.clock.now();
        self.session.transaction(|session| Ok(write(session, load, files, now)?))
    }

    /// Everything is loaded: numbers go on above it, and what does not fit is mended.
    pub fn finish_load(&mut self, load: &Load, log: &mut dyn RepairLog) -> Result<(), RepairError> {
        self.session.transaction(|session| mark(session, load))?;
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Database) {
            self.mend(kind, log)?;
        }
        // Entries that were put into /lost+found count there.
        self.settle(log)?;
        let sql = format!("DELETE FROM schema_version WHERE version = {UNFINISHED}");
        self.session.transaction(|session| {
            session.run(&sql)?;
            Ok(())
        })
    }
}

fn write(session: &mut dyn Session, load: &mut Load, files: &[FileFacts], now: Timestamp) -> StoreResult<()> {
    let (mut inodes, mut names) = (Vec::new(), Vec::new());
    let (mut locations, mut targets) = (Vec::new(), Vec::new());
    let owner = root_owner(session)?;
    load.next_cookie = load.next_cookie.max(FIRST);
    for known in files {
        let Some(inode) = inode(known, owner, now) else { continue };
        let file = inode.id();
        load.last_file = load.last_file.max(file.0);
        load.last_change = load.last_change.max(inode.attributes.change);
        locations.extend(known.replicas.iter().map(|stray| (file, noted(known, stray.pool, now))));
        if let Some(described) = &known.described {
            targets.extend(described.target.as_ref().map(|target| (file, target.as_bytes().to_vec())));
            for (dir, name) in &described.names {
                names.push((*dir, name.as_bytes().to_vec(), load.next_cookie, file));
                load.next_cookie += 1;
            }
        }
        if file == FileId::ROOT {
            session.run("DELETE FROM inodes WHERE id = 1")?;
        }
        inodes.push(inode);
    }
    insert_inodes(session, &inodes)?;
    insert_names(session, &names)?;
    insert_locations(session, &locations)?;
    insert_targets(session, &targets)
}

/// A replica that is there, as it was noted last. One that nobody was told of is good. Of several that were good, those with the
/// highest epoch in their labels are: the others were copied from, or are being made.
fn noted(known: &FileFacts, pool: PoolId, now: Timestamp) -> ReplicaRef {
    let mut told = known.described.iter().flat_map(|described| &described.replicas);
    let noted = told.find(|told| told.pool == pool).copied().unwrap_or(ReplicaRef::good(pool, now));
    let own = known.replicas.iter().find(|replica| replica.pool == pool).map_or(known.epoch, |own| own.epoch);
    let is_above = |replica: &Stray| replica.epoch > own;
    let is_below = |replica: &Stray| replica.epoch < own;
    match noted.state {
        ReplicaState::Good if known.replicas.iter().any(is_above) => {
            ReplicaRef::new(pool, ReplicaState::Stale, now)
        }
        // It was described before its copy was complete.
        ReplicaState::Filling
            if !known.replicas.iter().any(is_above) && known.replicas.iter().any(is_below) =>
        {
            ReplicaRef::good(pool, now)
        }
        _ => noted,
    }
}

fn inode(known: &FileFacts, owner: (u32, u32), now: Timestamp) -> Option<Inode> {
    let is_good = |replica: &&Stray| noted(known, replica.pool, now).state == ReplicaState::Good;
    let good = known.replicas.iter().filter(is_good).max_by_key(|replica| replica.size);
    let largest = good.or_else(|| known.replicas.iter().max_by_key(|replica| replica.size));
    let file = match (&known.described, largest) {
        (Some(described), _) => described.file,
        (None, Some(replica)) => replica.file,
        (None, None) => return None,
    };
    let kind = known.described.as_ref().map_or(FileKind::Regular, |described| described.kind);
    let mut inode = new_inode(file, kind, now, Instance { start: 0 });
    let attributes = &mut inode.attributes;
    attributes.mode = 0o600;
    (attributes.uid, attributes.gid) = owner;
    if let Some(described) = &known.described {
        attributes.mode = described.mode;
        (attributes.uid, attributes.gid) = (described.uid, described.gid);
        attributes.size = described.size;
        attributes.change = described.change;
        attributes.epoch = described.epoch;
        let time = described.mtime;
        (attributes.atime, attributes.mtime, attributes.birth) = (time, time, time);
        if !kind.is_directory() {
            attributes.nlink = u32::try_from(described.names.len()).unwrap_or(u32::MAX).max(1);
        }
        inode.parent = described.names.first().map_or(NO_PARENT, |(dir, _)| *dir);
    }
    if let Some(replica) = largest {
        // The replica is newer than the description. If the sizes agree, the described time stays: a user may have set
        // it.
        let is_as_told = known.described.as_ref().is_some_and(|described| described.size == replica.size);
        if !is_as_told {
            attributes.mtime = replica.modified.unwrap_or(attributes.mtime);
        }
        (attributes.size, attributes.space_used) = (replica.size, replica.space_used);
        // The pool asks for it.
        attributes.birth = replica.birth.unwrap_or(attributes.birth);
    }
    inode.judge_placement();
    if largest.is_some() {
        inode.extras.placement = Placement::Replicas;
    }
    let attributes = &mut inode.attributes;
    let epochs = known.replicas.iter().map(|replica| replica.epoch);
    attributes.epoch = epochs.chain([known.epoch, attributes.epoch]).max().unwrap_or_default();
    Some(inode)
}

fn mark(session: &mut dyn Session, load: &Load) -> StoreResult<()> {
    let after = |found: Option<i64>, last: u64| found.map_or(FIRST, i64::cast_unsigned).max(last + 1);
    let next_file = after(meta(session, "next_file")?, load.last_file) + NUMBERS_SKIPPED;
    set_meta(session, "next_file", next_file.cast_signed())?;
    let next_cookie = after(meta(session, "next_cookie")?, load.next_cookie);
    set_meta(session, "next_cookie", next_cookie.cast_signed())?;
    set_meta(session, "starts", start_above(load.last_change).cast_signed())?;
    // The first start goes on above what was noted of the namespace that is lost.
    set_meta(session, RESTORED, 1)?;
    // Something, so that everything is counted.
    session.run(&format!(
        "INSERT INTO usage (scope, id, files, directories, bytes) VALUES ({}, 1, 0, 0, 0) \
         ON CONFLICT (scope, id) DO NOTHING",
        scope_number(api::Scope::Tree)
    ))?;
    distrust_caches(session)
}

fn start_above(change: u64) -> u64 {
    ((change >> 32) + STARTS_SKIPPED).min(STARTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(pool: u32, epoch: u32) -> Stray {
        Stray {
            file: FileId(7),
            pool: PoolId(pool),
            size: 9,
            space_used: 9,
            epoch: Epoch(epoch),
            modified: None,
            birth: None,
        }
    }

    /// Of a file that was moved from pool 1 to pool 2, or was about to be.
    #[test]
    fn of_several_replicas_those_with_the_highest_epoch_are_good() {
        use ReplicaState::{Filling, Good, Stale};
        let states = |told: &[(u32, ReplicaState)], epochs: [u32; 2]| {
            let told =
                told.iter().map(|(pool, state)| ReplicaRef::new(PoolId(*pool), *state, Timestamp::EPOCH));
            let described = Description { replicas: told.collect(), ..described() };
            let replicas = vec![replica(1, epochs[0]), replica(2, epochs[1])];
            let known = FileFacts { described: Some(described), replicas, ..FileFacts::default() };
            [1, 2].map(|pool| noted(&known, PoolId(pool), Timestamp::EPOCH).state)
        };
        assert_eq!(states(&[(1, Good)], [5, 0]), [Good, Stale], "the copy was begun since");
        assert_eq!(states(&[(1, Good)], [5, 6]), [Stale, Good], "it was completed since");
        assert_eq!(states(&[(1, Good), (2, Filling)], [5, 0]), [Good, Filling]);
        assert_eq!(states(&[(1, Good), (2, Filling)], [5, 6]), [Stale, Good]);
        assert_eq!(states(&[(1, Stale), (2, Good)], [5, 6]), [Stale, Good]);
        assert_eq!(states(&[(1, Good), (2, Good)], [5, 5]), [Good, Good]);
        let alone = FileFacts { replicas: vec![replica(2, 6)], ..FileFacts::default() };
        assert_eq!(noted(&alone, PoolId(2), Timestamp::EPOCH).state, Good);
        let told = vec![ReplicaRef::new(PoolId(2), Filling, Timestamp::EPOCH)];
        let described = Some(Description { replicas: told, ..described() });
        let alone = FileFacts { described, ..alone };
        assert_eq!(noted(&alone, PoolId(2), Timestamp::EPOCH).state, Filling, "it may lack bytes");
    }

    fn described() -> Description {
        Description {
            file: FileId(7),
            kind: FileKind::Regular,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 9,
            mtime: Timestamp::EPOCH,
            change: 0,
            epoch: Epoch(0),
            names: Vec::new(),
            target: None,
            replicas: Vec::new(),
        }
    }

    #[test]
    fn change_attributes_after_a_rebuild_have_no_sign() {
        for start in [0, 5, 1 << 31, u64::from(u32::MAX)] {
            let after = start_above(start << 32 | 7);
            assert!(after > start.min(1 << 30) && after + STARTS_SKIPPED <= i32::MAX as u64, "{start}");
        }
    }
}
