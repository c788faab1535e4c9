//! Data was written: size, times and change become visible together.

use api::NamespaceError;
use types::{Attributes, FileId, FileKind};

use crate::group::{Group, OpResult};
use crate::inode::Inode;
use crate::written::Delta;

pub fn record_write(group: &mut Group<'_>, file: FileId, delta: &Delta) -> OpResult<Attributes> {
    let mut inode = group.inode(file)?;
    require_regular(&inode)?;
    if !delta.is_empty() {
        delta.apply(&mut inode, group.instance);
        group.put(inode);
    }
    Ok(inode.attributes)
}

pub fn require_regular(inode: &Inode) -> Result<(), NamespaceError> {
    match inode.attributes.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(NamespaceError::IsDirectory),
        _ => Err(NamespaceError::NotRegular),
    }
}
