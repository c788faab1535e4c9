//! Rules that are checked by counting rows or following parents, not by one query.

use std::collections::{BTreeMap, HashMap, HashSet};

use api::{Account, Counted, Scope};
use types::FileId;

use super::{PROBLEMS_MAX, Problem};
use crate::accounts::counting::{COUNTS, counted, is_counting};
use crate::accounts::load::journaled;
use crate::accounts::scope_number;
use crate::inode::NO_PARENT;
use crate::session::Session;
use crate::store::StoreResult;

pub fn root(session: &mut dyn Session) -> StoreResult<Vec<Problem>> {
    let parent = session.number("SELECT parent FROM inodes WHERE id = 1 AND kind = 1")?;
    Ok(if parent == Some(NO_PARENT.0.cast_signed()) { Vec::new() } else { vec![Problem::NoRoot] })
}

/// Every directory with the one that it says it lies in.
fn parents(session: &mut dyn Session) -> StoreResult<HashMap<FileId, FileId>> {
    let mut parents = HashMap::new();
    session.query("SELECT id, parent FROM inodes WHERE kind = 1", &[], &mut |row| {
        parents.insert(row.id(0), row.id(1));
    })?;
    Ok(parents)
}

pub fn unreachable(session: &mut dyn Session) -> StoreResult<Vec<Problem>> {
    let bad = unreachable_of(&parents(session)?);
    Ok(bad.into_iter().take(PROBLEMS_MAX).map(|dir| Problem::Unreachable { dir }).collect())
}

/// Directories from which the way up ends elsewhere than at the root, or never.
fn unreachable_of(parents: &HashMap<FileId, FileId>) -> Vec<FileId> {
    let mut good = HashSet::from([FileId::ROOT]);
    let mut bad = HashSet::new();
    for start in parents.keys() {
        let mut way = Vec::new();
        let mut on_way = HashSet::new();
        let mut at = *start;
        let is_good = loop {
            if good.contains(&at) {
                break true;
            }
            if bad.contains(&at) || !on_way.insert(at) {
                break false;
            }
            way.push(at);
            match parents.get(&at) {
                Some(parent) => at = *parent,
                None => break false,
            }
        };
        let into = if is_good { &mut good } else { &mut bad };
        into.extend(way.into_iter().filter(|dir| parents.contains_key(dir)));
    }
    let mut bad: Vec<FileId> = bad.into_iter().collect();
    bad.sort_unstable();
    bad
}

pub fn totals(session: &mut dyn Session) -> StoreResult<Vec<Problem>> {
    let told = session.rows("SELECT files, bytes FROM progress", |row| (row.number(0), row.number(1)))?;
    let all = session.rows(&format!("SELECT {COUNTS} FROM inodes"), |row| counted(row, 0))?;
    let (told, all) = (told.first().copied().unwrap_or_default(), all.first().copied().unwrap_or_default());
    let there = (all.files + all.directories, all.bytes);
    let [files, bytes, counted_files, counted_bytes] =
        [told.0, told.1, there.0, there.1].map(i64::cast_unsigned);
    let problem = Problem::Totals { files, counted_files, bytes, counted_bytes };
    Ok(if told == there { Vec::new() } else { vec![problem] })
}

/// Of users, of groups and of trees.
pub fn usage(session: &mut dyn Session) -> StoreResult<Vec<Problem>> {
    if !is_counting(session)? {
        return Ok(Vec::new());
    }
    let parents = parents(session)?;
    let pending = pending(session, &parents)?;
    let mut problems = Vec::new();
    for (scope, column) in [(Scope::User, "uid"), (Scope::Group, "gid")] {
        let mut there = BTreeMap::new();
        session.query(
            &format!("SELECT {column}, {COUNTS} FROM inodes GROUP BY {column}"),
            &[],
            // PostgreSQL keeps the bits of a number without sign.
            &mut |row| {
                there.insert(u64::from(row.number(0) as u32), counted(row, 1));
            },
        )?;
        problems.extend(compare(session, scope, &pending, &there)?);
    }
    let mut within: HashMap<FileId, Counted> = HashMap::new();
    session.query(
        &format!("SELECT parent, {COUNTS} FROM inodes WHERE parent != 0 GROUP BY parent"),
        &[],
        &mut |row| {
            within.insert(row.id(0), counted(row, 1));
        },
    )?;
    bring_up(&mut within, &parents);
    let there = within.into_iter().filter(|(dir, _)| parents.contains_key(dir));
    let there = there.map(|(dir, counted)| (dir.0, counted)).collect();
    problems.extend(compare(session, Scope::Tree, &pending, &there)?);
    problems.truncate(PROBLEMS_MAX);
    Ok(problems)
}

/// Adds what is within each directory to all above it.
fn bring_up(within: &mut HashMap<FileId, Counted>, parents: &HashMap<FileId, FileId>) {
    for dir in deepest_first(parents) {
        let (Some(below), Some(parent)) = (within.get(&dir).copied(), parents.get(&dir)) else { continue };
        if *parent != NO_PARENT {
            within.entry(*parent).or_default().add(&below);
        }
    }
}

/// Changes that the journal adds to `usage`.
fn pending(
    session: &mut dyn Session,
    parents: &HashMap<FileId, FileId>,
) -> StoreResult<BTreeMap<Account, Counted>> {
    let (mut pending, mut within) = (BTreeMap::new(), HashMap::new());
    for (account, change) in journaled(session)? {
        match account.scope {
            Scope::Tree => {
                within.insert(FileId(account.id), change);
            }
            Scope::User | Scope::Group => {
                pending.insert(account, change);
            }
        }
    }
    bring_up(&mut within, parents);
    let there = within.into_iter().filter(|(dir, _)| parents.contains_key(dir));
    pending.extend(there.map(|(dir, change)| (Account { scope: Scope::Tree, id: dir.0 }, change)));
    Ok(pending)
}

/// Brings the journal into `usage`, which then stands for itself.
pub fn fold(session: &mut dyn Session) -> StoreResult<()> {
    let parents = parents(session)?;
    for (account, change) in pending(session, &parents)? {
        let (scope, id) = (scope_number(account.scope), account.id.cast_signed());
        let told = told(session, &format!("scope = {scope} AND id = {id}"))?;
        let mut counted = told.get(&account.id).copied().unwrap_or_default();
        counted.add(&change);
        set(session, &account, &counted)?;
    }
    session.run("DELETE FROM usage_journal")?;
    Ok(())
}

pub fn set(session: &mut dyn Session, account: &Account, counted: &Counted) -> StoreResult<()> {
    let (scope, id) = (scope_number(account.scope), account.id.cast_signed());
    session.run(&format!("DELETE FROM usage WHERE scope = {scope} AND id = {id}"))?;
    if !counted.is_nothing() {
        session.run(&format!(
            "INSERT INTO usage (scope, id, files, directories, bytes) VALUES ({scope}, {id}, {}, {}, {})",
            counted.files, counted.directories, counted.bytes
        ))?;
    }
    Ok(())
}

/// Directories in an order in which each comes before the one it lies in. Those in a circle come last.
fn deepest_first(parents: &HashMap<FileId, FileId>) -> Vec<FileId> {
    let mut children: HashMap<FileId, usize> = HashMap::new();
    for parent in parents.values() {
        *children.entry(*parent).or_default() += 1;
    }
    let mut order: Vec<FileId> = parents.keys().copied().filter(|dir| !children.contains_key(dir)).collect();
    let mut at = 0;
    while let Some(dir) = order.get(at).copied() {
        at += 1;
        let Some(parent) = parents.get(&dir).filter(|parent| parents.contains_key(*parent)) else { continue };
        if let Some(left) = children.get_mut(parent) {
            *left -= 1;
            if *left == 0 {
                order.push(*parent);
            }
        }
    }
    order
}

fn told(session: &mut dyn Session, which: &str) -> StoreResult<BTreeMap<u64, Counted>> {
    let mut told = BTreeMap::new();
    let sql = format!("SELECT id, files, directories, bytes FROM usage WHERE {which}");
    session.query(&sql, &[], &mut |row| {
        let counted = Counted { files: row.number(1), directories: row.number(2), bytes: row.number(3) };
        told.insert(row.id(0).0, counted);
    })?;
    Ok(told)
}

/// An account of nothing need not be there.
fn compare(
    session: &mut dyn Session,
    scope: Scope,
    pending: &BTreeMap<Account, Counted>,
    there: &BTreeMap<u64, Counted>,
) -> StoreResult<Vec<Problem>> {
    let mut told = told(session, &format!("scope = {}", scope_number(scope)))?;
    for (account, change) in pending.iter().filter(|(account, _)| account.scope == scope) {
        told.entry(account.id).or_default().add(change);
    }
    let mut ids: Vec<u64> = told.keys().chain(there.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let differing = ids.into_iter().filter_map(|id| {
        let of = |counts: &BTreeMap<u64, Counted>| counts.get(&id).copied().unwrap_or_default();
        let (told, counted) = (of(&told), of(there));
        let account = Account { scope, id };
        (told != counted).then_some(Problem::Usage { account, told, counted })
    });
    Ok(differing.take(PROBLEMS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_and_what_hangs_on_them_are_unreachable() {
        let parents = [(1, 0), (2, 1), (3, 2), (4, 5), (5, 4), (6, 5), (7, 99)];
        let parents = parents.into_iter().map(|(dir, parent)| (FileId(dir), FileId(parent))).collect();
        assert_eq!(unreachable_of(&parents), [4, 5, 6, 7].map(FileId));
    }

    #[test]
    fn a_directory_comes_before_the_one_it_lies_in() {
        let parents = [(1, 0), (2, 1), (3, 2), (9, 3), (4, 1)];
        let parents: HashMap<_, _> =
            parents.into_iter().map(|(dir, parent)| (FileId(dir), FileId(parent))).collect();
        let order = deepest_first(&parents);
        let place = |dir: u64| order.iter().position(|at| at.0 == dir).unwrap();
        assert_eq!(order.len(), 5);
        for (dir, parent) in [(2, 1), (3, 2), (9, 3), (4, 1)] {
            assert!(place(dir) < place(parent), "{order:?}");
        }
    }
}
