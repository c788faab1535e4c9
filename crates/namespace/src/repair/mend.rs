//! How each problem is mended.

use api::ReplicaState;
use types::{FileId, PoolId, Timestamp};

use super::lost_found::{add_name, lost_found, root_owner};
use super::replicas::remove_location;
use crate::bulk::tables::TABLES;
use crate::check::{ATTACHED, Problem, counts};
use crate::inode::{Instance, NO_PARENT, new_inode};
use crate::locality::state_number;
use crate::session::{Session, insert_inodes, note_placement};
use crate::store::{StoreError, StoreResult};

/// Mends one, as things are now; what was made of it, with all that is gone.
pub fn mend(session: &mut dyn Session, problem: &Problem, now: Timestamp) -> StoreResult<String> {
    match problem {
        Problem::Database(message) => Err(StoreError::Failed(message.clone())),
        Problem::NoRoot => mend_root(session, now),
        Problem::NameOfNothing { dir, name, .. } | Problem::NameInNoDirectory { dir, name } => {
            remove_names(session, &[(*dir, name.clone())])?;
            Ok("name removed".to_owned())
        }
        Problem::DirectoryNames { dir, .. } => keep_one_name(session, *dir, now),
        Problem::WrongParent { dir, named_in, .. } => {
            session.run(&format!("UPDATE inodes SET parent = {} WHERE id = {}", id(*named_in), id(*dir)))?;
            Ok("it says so now".to_owned())
        }
        Problem::Unreachable { dir } => mend_way_up(session, *dir, now),
        Problem::Unnamed { file, .. } => {
            session.run(&format!("UPDATE inodes SET extras = extras & -5 WHERE id = {}", id(*file)))?;
            Ok("it counts as published".to_owned())
        }
        Problem::SymlinkWithoutTarget { file } => remove_symlink(session, *file),
        Problem::Nameless { file, .. } => move_to_lost_found(session, *file, now),
        Problem::LocationOfNothing { file, pool } => {
            remove_location(session, *file, *pool)?;
            Ok("location removed".to_owned())
        }
        Problem::StrangeReplica { file, pool, .. } => mend_state(session, *file, *pool, now),
        Problem::Placement { file, .. } => {
            note_placement(session, &format!("id = {}", id(*file)))?;
            Ok("noted as it is".to_owned())
        }
        Problem::RowsOfNothing { table, file } => attach_or_remove(session, table, *file),
        Problem::RowsMissing { table, file } => {
            let mask = !flag(table);
            session.run(&format!("UPDATE inodes SET extras = extras & {mask} WHERE id = {}", id(*file)))?;
            Ok("it says none".to_owned())
        }
        Problem::WrongHome { file, .. } => {
            session.run(&format!(
                "UPDATE inodes SET parent = coalesce((SELECT min(d.parent) FROM dentries d \
                 WHERE d.inode = inodes.id), 0) WHERE id = {}",
                id(*file)
            ))?;
            Ok("counted where it has a name".to_owned())
        }
        Problem::LinkCount { file, counted, .. } => {
            session.run(&format!(
                "UPDATE inodes SET nlink = {counted} - (SELECT CAST(coalesce(sum(p.nlink), 0) AS bigint) \
                 FROM dir_deltas p WHERE p.inode = inodes.id) WHERE id = {}",
                id(*file)
            ))?;
            Ok(format!("link count is {counted}"))
        }
        Problem::DeltaOfNothing { dir } => {
            let gone = removed(session, "dir_deltas", &format!("inode = {}", id(*dir)))?;
            Ok(format!("removed: {gone}"))
        }
        Problem::AccountOfNothing { dir, .. } => remove_accounts(session, *dir),
        Problem::Usage { account, counted, .. } => {
            counts::set(session, account, counted)?;
            Ok("noted as counted".to_owned())
        }
        Problem::Totals { counted_files, counted_bytes, .. } => {
            let [files, bytes] = [*counted_files, *counted_bytes].map(u64::cast_signed);
            session.run(&format!("UPDATE progress SET files = {files}, bytes = {bytes} WHERE id = 1"))?;
            Ok("noted as counted".to_owned())
        }
    }
}

fn id(file: FileId) -> i64 {
    file.0.cast_signed()
}

/// The bit by which a file says that it has rows there.
fn flag(table: &str) -> i64 {
    ATTACHED.iter().find(|(attached, _)| *attached == table).map_or(0, |(_, bit)| i64::from(*bit))
}

fn mend_root(session: &mut dyn Session, now: Timestamp) -> StoreResult<String> {
    if session.number("SELECT id FROM inodes WHERE id = 1")?.is_some() {
        session.run("UPDATE inodes SET kind = 1, parent = 0, size = 0 WHERE id = 1")?;
        return Ok("it is a directory without a parent again".to_owned());
    }
    let mut root = new_inode(FileId::ROOT, types::FileKind::Directory, now, Instance { start: 0 });
    root.attributes.mode = 0o755;
    (root.attributes.uid, root.attributes.gid) = root_owner(session)?;
    insert_inodes(session, &[root])?;
    Ok("made anew, mode 0755".to_owned())
}

/// The only replica of a file is what there is of it: the comparison with the pool says whether it is whole. One of several
/// may be of an earlier version.
fn mend_state(session: &mut dyn Session, file: FileId, pool: PoolId, now: Timestamp) -> StoreResult<String> {
    let others = format!("SELECT count(*) FROM locations WHERE inode = {}", id(file));
    let is_only = session.number(&others)? == Some(1);
    let state = if is_only { ReplicaState::Good } else { ReplicaState::Stale };
    session.run(&format!(
        "UPDATE locations SET state = {}, since = {} WHERE inode = {} AND pool = {}",
        state_number(state),
        now.seconds,
        id(file),
        session.narrow(pool.0)
    ))?;
    Ok(format!("it is {}", state.name()))
}

/// All names of a file: the directories with the names.
fn names_of(session: &mut dyn Session, file: FileId) -> StoreResult<Vec<(FileId, Vec<u8>)>> {
    session.rows(
        &format!("SELECT parent, name FROM dentries WHERE inode = {} ORDER BY parent, name", id(file)),
        |row| (row.id(0), row.bytes(1)),
    )
}

fn remove_names(session: &mut dyn Session, names: &[(FileId, Vec<u8>)]) -> StoreResult<String> {
    let mut told = Vec::new();
    for (dir, name) in names {
        let sql = format!("DELETE FROM dentries WHERE parent = {} AND name = $1", id(*dir));
        session.execute(&sql, &[name])?;
        told.push(format!("\"{}\" in {dir}", name.escape_ascii()));
    }
    Ok(told.join(", "))
}

fn keep_one_name(session: &mut dyn Session, dir: FileId, now: Timestamp) -> StoreResult<String> {
    let mut names = names_of(session, dir)?;
    if names.is_empty() {
        return move_to_lost_found(session, dir, now);
    }
    let parent = session.number(&format!("SELECT parent FROM inodes WHERE id = {}", id(dir)))?;
    let kept = names.iter().position(|(named_in, _)| Some(id(*named_in)) == parent).unwrap_or(0);
    let (named_in, name) = names.remove(kept);
    let gone = remove_names(session, &names)?;
    Ok(format!("kept \"{}\" in {named_in}, removed {gone}", name.escape_ascii()))
}

fn move_to_lost_found(session: &mut dyn Session, file: FileId, now: Timestamp) -> StoreResult<String> {
    let dir = lost_found(session, now)?;
    let name = add_name(session, dir, &file.to_string(), file)?;
    session.run(&format!("UPDATE inodes SET parent = {} WHERE id = {}", id(dir), id(file)))?;
    Ok(format!("it is /lost+found/{name}"))
}

/// Only the topmost directory has to be moved; the rest hangs on it.
fn mend_way_up(session: &mut dyn Session, dir: FileId, now: Timestamp) -> StoreResult<String> {
    let mut seen = std::collections::HashSet::new();
    let mut at = dir;
    while seen.insert(at) && at != FileId::ROOT {
        let parent = session.rows(
            &format!(
                "SELECT p.id FROM inodes i JOIN inodes p ON p.id = i.parent AND p.kind = 1 WHERE i.id = {}",
                id(at)
            ),
            |row| row.id(0),
        )?;
        match parent.first() {
            Some(parent) => at = *parent,
            None => break,
        }
    }
    if at == FileId::ROOT {
        return Ok("reached by way of a directory above it".to_owned());
    }
    let names = names_of(session, at)?;
    let gone = remove_names(session, &names)?;
    session.run(&format!("UPDATE inodes SET parent = {} WHERE id = {}", id(NO_PARENT), id(at)))?;
    let made = move_to_lost_found(session, at, now)?;
    Ok(format!("directory {at} is moved: {made}; removed {gone}"))
}

fn remove_symlink(session: &mut dyn Session, file: FileId) -> StoreResult<String> {
    let names = names_of(session, file)?;
    let names = remove_names(session, &names)?;
    let columns = "id, mode, uid, gid, mtime_s, mtime_ns";
    let gone = session.rows(&format!("SELECT {columns} FROM inodes WHERE id = {}", id(file)), |row| {
        format!(
            "mode {:o}, owner {}:{}, mtime {}.{:09}",
            row.number(1),
            row.number(2) as u32,
            row.number(3) as u32,
            row.number(4),
            row.number(5)
        )
    })?;
    session.run(&format!("DELETE FROM inodes WHERE id = {}", id(file)))?;
    Ok(format!("removed with its names {names}; it had {}", gone.join(", ")))
}

/// Rows of a file that is there belong to it.
fn attach_or_remove(session: &mut dyn Session, table: &str, file: FileId) -> StoreResult<String> {
    let flag = flag(table);
    let noted =
        session.run(&format!("UPDATE inodes SET extras = extras | {flag} WHERE id = {}", id(file)))?;
    if noted > 0 {
        return Ok("the file speaks of them".to_owned());
    }
    let gone = removed(session, table, &format!("inode = {}", id(file)))?;
    Ok(format!("removed: {gone}"))
}

fn remove_accounts(session: &mut dyn Session, dir: FileId) -> StoreResult<String> {
    let of_dir = format!("scope = 2 AND id = {}", id(dir));
    let counts = removed(session, "usage", &of_dir)?;
    Ok(format!("removed: {counts}, {}", removed(session, "quotas", &of_dir)?))
}

/// Takes rows away and tells them.
fn removed(session: &mut dyn Session, table: &str, of: &str) -> StoreResult<String> {
    let columns = TABLES.iter().find(|known| known.name == table).map_or(0, |known| known.width());
    let rows = session.rows(&format!("SELECT * FROM {table} WHERE {of}"), |row| {
        let shown = (0..columns).map(|at| match row.bytes(at) {
            bytes if bytes.is_empty() => row.number(at).to_string(),
            bytes => format!("\"{}\"", bytes.escape_ascii()),
        });
        format!("({})", shown.collect::<Vec<_>>().join(", "))
    })?;
    session.run(&format!("DELETE FROM {table} WHERE {of}"))?;
    Ok(format!("{table} {}", rows.join(" ")))
}
