//! Removal of a name.

use api::{ExpectedFile, NamespaceError, Unlinked};
use types::{FileId, Identity, Name};

use super::{drop_link, existing, judge_expectation, may_take, next_home, searchable};
use crate::group::{Group, OpResult};

pub fn unlink(
    group: &mut Group<'_>,
    who: &Identity,
    dir: FileId,
    name: &Name,
    expected: ExpectedFile,
) -> OpResult<Unlinked> {
    let mut parent = searchable(group, who, dir)?;
    let entry = existing(group, dir, name)?.ok_or(NamespaceError::NotFound)?;
    judge_expectation(expected, Some(&entry))?;
    may_take(group, who, &parent, &entry)?;
    if entry.is_directory() && group.names().has_children(entry.id())? {
        return Err(NamespaceError::NotEmpty.into());
    }
    let home = next_home(group, &entry, (dir, name))?;

    let now = group.now();
    group.names().remove(dir, name);
    let entry = drop_link(group, entry, home, now);
    if entry.is_directory() {
        parent.attributes.nlink = parent.attributes.nlink.saturating_sub(1);
    }
    Ok(Unlinked { attributes: entry.attributes, parent: group.touch_entries(parent, now) })
}
