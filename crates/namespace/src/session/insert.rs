//! Many rows by one statement.

use api::ReplicaRef;
use types::FileId;

use super::Session;
use crate::inode::{Inode, encode_kind};
use crate::locality::state_number;
use crate::store::StoreResult;

/// Of one statement: far below what either engine takes.
const ROWS_MAX: usize = 500;

pub fn insert_inodes(session: &mut dyn Session, inodes: &[Inode]) -> StoreResult<()> {
    for some in inodes.chunks(ROWS_MAX) {
        let rows: Vec<String> = some.iter().map(|inode| inode_row(session, inode)).collect();
        session.run(&format!(
            "INSERT INTO inodes (id, kind, mode, uid, gid, nlink, size, space_used, parent, atime_s, atime_ns, \
             mtime_s, mtime_ns, ctime_s, ctime_ns, birth_s, birth_ns, change, epoch, major, minor, extras) VALUES {}",
            rows.join(", ")
        ))?;
    }
    Ok(())
}

fn inode_row(session: &dyn Session, inode: &Inode) -> String {
    let a = &inode.attributes;
    let (kind, device) = encode_kind(a.kind);
    let mut row = vec![a.file.0.cast_signed(), i64::from(kind)];
    row.extend([a.mode, a.uid, a.gid, a.nlink].map(|value| session.narrow(value)));
    row.extend([a.size, a.space_used, inode.parent.0].map(u64::cast_signed));
    for time in [a.atime, a.mtime, a.ctime, a.birth] {
        row.extend([time.seconds, i64::from(time.nanoseconds())]);
    }
    row.push(a.change.cast_signed());
    let narrow = [a.epoch.0, device.major, device.minor, inode.extras_bits()];
    row.extend(narrow.map(|value| session.narrow(value)));
    let row: Vec<String> = row.iter().map(i64::to_string).collect();
    format!("({})", row.join(", "))
}

/// Directory, name, cookie, file. Of two that have one name the later gets it.
pub fn insert_names(session: &mut dyn Session, names: &[(FileId, Vec<u8>, u64, FileId)]) -> StoreResult<()> {
    for some in names.chunks(ROWS_MAX) {
        // One statement must not change a row twice.
        let mut last = std::collections::BTreeMap::new();
        for (dir, name, cookie, file) in some {
            last.insert((*dir, name.as_slice()), (*cookie, *file));
        }
        let rows: Vec<String> = (1..)
            .zip(&last)
            .map(|(at, ((dir, _), (cookie, file)))| {
                let [dir, cookie, file] = [dir.0, *cookie, file.0].map(u64::cast_signed);
                format!("({dir}, ${at}, {cookie}, {file})")
            })
            .collect();
        let bytes: Vec<&[u8]> = last.keys().map(|(_, name)| *name).collect();
        let sql = format!(
            "INSERT INTO dentries (parent, name, cookie, inode) VALUES {} \
             ON CONFLICT (parent, name) DO UPDATE SET inode = excluded.inode, cookie = excluded.cookie",
            rows.join(", ")
        );
        session.execute(&sql, &bytes)?;
    }
    Ok(())
}

/// A replica that is noted already stays as it is.
pub fn insert_locations(session: &mut dyn Session, locations: &[(FileId, ReplicaRef)]) -> StoreResult<()> {
    for some in locations.chunks(ROWS_MAX) {
        let rows: Vec<String> = some
            .iter()
            .map(|(file, replica)| {
                let (file, pool) = (file.0.cast_signed(), session.narrow(replica.pool.0));
                format!("({file}, {pool}, {}, {})", state_number(replica.state), replica.since.seconds)
            })
            .collect();
        session.run(&format!(
            "INSERT INTO locations (inode, pool, state, since) VALUES {} ON CONFLICT (inode, pool) DO NOTHING",
            rows.join(", ")
        ))?;
    }
    Ok(())
}

pub fn insert_targets(session: &mut dyn Session, targets: &[(FileId, Vec<u8>)]) -> StoreResult<()> {
    for some in targets.chunks(ROWS_MAX) {
        let rows: Vec<String> =
            (1..).zip(some).map(|(at, (file, _))| format!("({}, ${at})", file.0.cast_signed())).collect();
        let bytes: Vec<&[u8]> = some.iter().map(|(_, target)| target.as_slice()).collect();
        session
            .execute(&format!("INSERT INTO symlinks (inode, target) VALUES {}", rows.join(", ")), &bytes)?;
    }
    Ok(())
}
