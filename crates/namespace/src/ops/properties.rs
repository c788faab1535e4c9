//! Properties that users attach to files, and checksums that were computed later.

use std::collections::BTreeMap;

use api::uploads::{PROPERTIES_BYTES_MAX, PROPERTIES_LEN_MAX, PROPERTY_NAME_BYTES_MAX};
use api::{NamespaceError, PropertyChange};
use bytes::Bytes;
use types::permission::is_owner;
use types::{Access, Attributes, Checksum, FileId, Identity};

use super::require;
use super::writes::require_regular;
use crate::group::{Group, OpResult};

pub fn set_properties(
    group: &mut Group<'_>,
    who: &Identity,
    file: FileId,
    changes: &[PropertyChange],
) -> OpResult<Attributes> {
    let mut inode = group.inode(file)?;
    if changes.is_empty() {
        return Ok(inode.attributes);
    }
    if !is_owner(who, &inode.attributes) {
        require(group, who, &inode, Access::WRITE)?;
    }
    let known = group.attached().properties(&inode)?;
    let wanted = applied(&known, changes);
    check_bounds(&wanted)?;
    if changes.iter().any(|change| matches!(change, PropertyChange::Set(_))) {
        group.require_room()?;
    }

    for name in known.keys().filter(|name| !wanted.contains_key(*name)) {
        group.attached().remove_property(file, name);
    }
    for (name, value) in wanted.iter().filter(|(name, value)| known.get(*name) != Some(value)) {
        group.attached().set_property(file, name, value);
    }
    inode.extras.has_properties = !wanted.is_empty();
    inode.touch(group.now(), group.instance);
    group.put(inode);
    Ok(inode.attributes)
}

fn applied(known: &BTreeMap<String, Bytes>, changes: &[PropertyChange]) -> BTreeMap<String, Bytes> {
    let mut wanted = known.clone();
    for change in changes {
        match change {
            PropertyChange::Set(property) => {
                wanted.insert(property.name.clone(), property.value.clone());
            }
            PropertyChange::Remove(name) => {
                wanted.remove(name);
            }
        }
    }
    wanted
}

fn check_bounds(wanted: &BTreeMap<String, Bytes>) -> Result<(), NamespaceError> {
    let bytes: usize = wanted.iter().map(|(name, value)| name.len() + value.len()).sum();
    let has_long_name = wanted.keys().any(|name| name.len() > PROPERTY_NAME_BYTES_MAX);
    if wanted.len() > PROPERTIES_LEN_MAX || bytes > PROPERTIES_BYTES_MAX || has_long_name {
        return Err(NamespaceError::NoSpace);
    }
    Ok(())
}

pub fn record_checksums(
    group: &mut Group<'_>,
    file: FileId,
    of_change: u64,
    checksums: &[Checksum],
) -> OpResult<bool> {
    let mut inode = group.inode(file)?;
    require_regular(&inode)?;
    if inode.attributes.change != of_change {
        return Ok(false);
    }
    if !checksums.is_empty() {
        group.attached().add_checksums(&mut inode, checksums);
        group.put(inode);
    }
    Ok(true)
}

pub fn forget_checksums(group: &mut Group<'_>, file: FileId) -> OpResult<()> {
    let mut inode = group.inode(file)?;
    if inode.extras.has_checksums {
        inode.extras.has_checksums = false;
        // Of copies of an inode the highest change wins, and an older one would show them again.
        inode.attributes.change = group.instance.next_change(inode.attributes.change);
        group.put(inode);
    }
    Ok(())
}
