//! Rename, in the order of checks of Linux' `do_renameat2` and `vfs_rename`.

use api::{ExpectedEnds, NamespaceError, Renamed, Replace};
use types::{Access, FileId, Identity, Name};

use super::{
    drop_link, existing, judge_expectation, judge_replacement, may_add, may_take, next_home, require,
    searchable,
};
use crate::group::{Group, OpResult};
use crate::inode::{Inode, LINKS_MAX, NO_PARENT};

pub fn rename(
    group: &mut Group<'_>,
    who: &Identity,
    from: (FileId, &Name),
    to: (FileId, &Name),
    replace: Replace,
    expected: ExpectedEnds,
) -> OpResult<Renamed> {
    let source = searchable(group, who, from.0)?;
    let target = searchable(group, who, to.0)?;
    let moved = existing(group, from.0, from.1)?.ok_or(NamespaceError::NotFound)?;
    let replaced = existing(group, to.0, to.1)?;
    judge_expectation(expected.source, Some(&moved))?;
    judge_expectation(expected.target, replaced.as_ref())?;
    // Here Linux asks for `RENAME_NOREPLACE`.
    judge_replacement(replace, replaced.as_ref())?;
    if from.0 != to.0 {
        refuse_cycle(group, &moved, replaced.as_ref(), from.0, to.0)?;
    }
    if replaced.is_some_and(|replaced| replaced.id() == moved.id()) {
        if replace == Replace::Any || from == to {
            return Ok(unchanged(group, &source, &target, &moved));
        }
        return drop_source(group, who, from, (&source, &target), moved);
    }
    check(group, who, (&source, &target), &moved, replaced.as_ref())?;
    if replaced.is_none() {
        group.require_room()?;
    }
    let cookie = group.new_cookie()?;
    let home = replaced.map(|replaced| next_home(group, &replaced, to)).transpose()?;
    move_account(group, who, (&moved, from.0, to.0), replaced.as_ref())?;

    let now = group.now();
    group.names().remove(from.0, from.1);
    let replaced = match replaced {
        Some(replaced) => {
            group.names().replace(to.0, to.1, moved.id());
            Some(drop_link(group, replaced, home.unwrap_or(NO_PARENT), now))
        }
        None => {
            group.names().add(to.0, to.1, cookie, moved.id());
            None
        }
    };
    let moved = move_inode(group, moved, (from.0, to.0), now);
    let gone_directory = u32::from(replaced.is_some_and(|replaced| replaced.is_directory()));
    let moved_directory = u32::from(moved.is_directory());
    // A move within one directory takes a subdirectory and gives it back.
    let source_change = touch_directory(group, from.0, 0, moved_directory, now)?;
    let target_change = touch_directory(group, to.0, moved_directory, gone_directory, now)?;
    Ok(Renamed {
        source: group.change_info(&source, if from.0 == to.0 { &target_change } else { &source_change }),
        target: group.change_info(&target, &target_change),
        moved: moved.attributes,
        replaced: replaced.map(|replaced| replaced.attributes),
    })
}

/// As Linux' `RENAME_EXCHANGE`: a caller that may take both names away may give each the other's file.
pub fn exchange(
    group: &mut Group<'_>,
    who: &Identity,
    dir: FileId,
    name: &Name,
    (taken, file): (&Name, FileId),
) -> OpResult<()> {
    let parent = searchable(group, who, dir)?;
    let one = existing(group, dir, name)?.ok_or(NamespaceError::NotFound)?;
    let other = existing(group, dir, taken)?.ok_or(NamespaceError::NotFound)?;
    judge_replacement(Replace::File(file), Some(&other))?;
    for entry in [&one, &other] {
        may_take(group, who, &parent, entry)?;
        may_add(group, who, &parent, entry.is_directory())?;
    }
    let now = group.now();
    for (name, mut entry) in [(taken, one), (name, other)] {
        group.names().replace(dir, name, entry.id());
        entry.touch(now, group.instance);
        group.put(entry);
    }
    touch_directory(group, dir, 0, 0, now)?;
    Ok(())
}

fn check(
    group: &mut Group<'_>,
    who: &Identity,
    (source, target): (&Inode, &Inode),
    moved: &Inode,
    replaced: Option<&Inode>,
) -> OpResult<()> {
    may_take(group, who, source, moved)?;
    match replaced {
        None => may_add(group, who, target, moved.is_directory())?,
        Some(replaced) => {
            may_take(group, who, target, replaced)?;
            may_add(group, who, target, moved.is_directory())?;
            match (moved.is_directory(), replaced.is_directory()) {
                (true, false) => return Err(NamespaceError::NotDirectory.into()),
                (false, true) => return Err(NamespaceError::IsDirectory.into()),
                _ => {}
            }
        }
    }
    let changes_parent = moved.is_directory() && source.id() != target.id();
    if changes_parent {
        // Its ".." is written.
        require(group, who, moved, Access::WRITE)?;
    }
    match replaced {
        Some(replaced) if replaced.is_directory() && group.names().has_children(replaced.id())? => {
            Err(NamespaceError::NotEmpty.into())
        }
        None if changes_parent && target.attributes.nlink >= LINKS_MAX => {
            Err(NamespaceError::TooManyLinks.into())
        }
        _ => Ok(()),
    }
}

/// A directory must not come to lie below itself, and an ancestor of the source cannot be replaced (it is not empty).
fn refuse_cycle(
    group: &mut Group<'_>,
    moved: &Inode,
    replaced: Option<&Inode>,
    from: FileId,
    to: FileId,
) -> OpResult<()> {
    if moved.is_directory() && lies_below(group, to, moved.id())? {
        return Err(NamespaceError::Cycle.into());
    }
    match replaced {
        Some(replaced) if replaced.is_directory() && lies_below(group, from, replaced.id())? => {
            Err(NamespaceError::NotEmpty.into())
        }
        _ => Ok(()),
    }
}

/// Whether `dir` is `ancestor` or below it.
fn lies_below(group: &mut Group<'_>, dir: FileId, ancestor: FileId) -> OpResult<bool> {
    let mut at = dir;
    while at != NO_PARENT {
        if at == ancestor {
            return Ok(true);
        }
        at = group.directory(at)?.parent;
    }
    Ok(false)
}

/// The trees above the target get what those above the source had, if they may.
fn move_account(
    group: &mut Group<'_>,
    who: &Identity,
    (moved, from, to): (&Inode, FileId, FileId),
    replaced: Option<&Inode>,
) -> OpResult<()> {
    if moved.parent != from || from == to {
        return Ok(());
    }
    if moved.is_directory() {
        return group.usage().move_tree(who, moved, to);
    }
    let freed = replaced.filter(|replaced| replaced.attributes.nlink == 1);
    group.usage().require_quota(who, (Some(moved), &Inode { parent: to, ..*moved }), freed)
}

fn move_inode(
    group: &mut Group<'_>,
    mut moved: Inode,
    (from, to): (FileId, FileId),
    now: types::Timestamp,
) -> Inode {
    // A file of several names may count elsewhere, and goes on to.
    if moved.parent == from {
        moved.parent = to;
    }
    moved.touch(now, group.instance);
    group.put(moved);
    moved
}

/// Read again, for both directories may be one.
fn touch_directory(
    group: &mut Group<'_>,
    dir: FileId,
    gained: u32,
    lost: u32,
    now: types::Timestamp,
) -> OpResult<Inode> {
    let mut inode = group.directory(dir)?;
    inode.attributes.nlink = (inode.attributes.nlink + gained).saturating_sub(lost);
    group.touch_entries(inode, now);
    group.directory(dir)
}

/// Both names lead to one file: only the source name is removed.
fn drop_source(
    group: &mut Group<'_>,
    who: &Identity,
    from: (FileId, &Name),
    (source, target): (&Inode, &Inode),
    moved: Inode,
) -> OpResult<Renamed> {
    may_take(group, who, source, &moved)?;
    may_take(group, who, target, &moved)?;
    let now = group.now();
    group.names().remove(from.0, from.1);
    let home = if moved.parent == from.0 { target.id() } else { moved.parent };
    let moved = drop_link(group, moved, home, now);
    let after = touch_directory(group, from.0, 0, 0, now)?;
    let source_change = group.change_info(source, &after);
    let still = group.change_info(target, target);
    Ok(Renamed {
        source: source_change,
        target: if source.id() == target.id() { source_change } else { still },
        moved: moved.attributes,
        replaced: None,
    })
}

fn unchanged(group: &Group<'_>, source: &Inode, target: &Inode, moved: &Inode) -> Renamed {
    let (source, target) = (group.change_info(source, source), group.change_info(target, target));
    Renamed { source, target, moved: group.shown(moved).attributes, replaced: None }
}
