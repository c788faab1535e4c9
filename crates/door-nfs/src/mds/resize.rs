//! A new length for a file: first at its replicas, then in the namespace, as `Files::set_length` has it.
//!
//! Bytes that were cut off do not come back. So all checks that may refuse come first: other attributes of a SETATTR
//! are set before, in a call of their own, and after the cut only the length is set, for which the door has checked the
//! caller's permission.

use api::{SetAttributes, SetTime};
use files::Change;
use nfs4::attr::number;
use nfs4::{Bitmap4, NfsStat4};
use types::Attributes;

use super::change::before_change;
use super::file_system::FileSystem;
use crate::context::Compound;
use crate::status;

/// For a SETATTR of the size with others, which is what was `asked`; notes in `done` what is set.
pub(super) async fn with_others(
    compound: &Compound,
    fs: &FileSystem,
    (file, size): (&Attributes, u64),
    (change, asked): (SetAttributes, Bitmap4),
    done: &mut Bitmap4,
) -> Result<(), NfsStat4> {
    let keeps_set_id = change.keeps_set_id;
    let others = beside_size(change);
    if others != SetAttributes::default() {
        // Recalled before the others are set: they may take the permission that a retry after DELAY needs.
        let kind = if size <= file.size { Change::Truncate } else { Change::SetAttributes };
        let _way = before_change(compound, fs, file.file, kind).await.map_err(status::of_files)?;
        set(compound, fs, file, &others).await?;
        *done = asked;
        done.remove(number::SIZE);
    }
    set_length(compound, fs, file, size, keeps_set_id).await?;
    *done = asked;
    if others.mtime.is_some() {
        // The new length has moved it.
        done.remove(number::TIME_MODIFY_SET);
        set(compound, fs, file, &SetAttributes { mtime: others.mtime, ..SetAttributes::default() }).await?;
        *done = asked;
    }
    Ok(())
}

/// A new length sets the time of modification by itself.
fn beside_size(change: SetAttributes) -> SetAttributes {
    let mtime = change.mtime.filter(|time| *time != SetTime::Now);
    SetAttributes { size: None, keeps_set_id: false, mtime, ..change }
}

/// The caller's permission is checked already. `keeps_set_id`: the request named the mode too.
pub(super) async fn set_length(
    compound: &Compound,
    fs: &FileSystem,
    file: &Attributes,
    size: u64,
    keeps_set_id: bool,
) -> Result<(), NfsStat4> {
    let set = fs.files.set_length(fs.by(compound), file, size, keeps_set_id).await;
    set.map(drop).map_err(status::of_files)
}

async fn set(
    compound: &Compound,
    fs: &FileSystem,
    file: &Attributes,
    change: &SetAttributes,
) -> Result<(), NfsStat4> {
    let set = fs.namespace.set_attributes(&compound.identity, file.file, change).await;
    set.map(drop).map_err(status::of_namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Timestamp;

    /// As Linux sends them together for O_TRUNC and `ftruncate`: one call to the namespace, not two.
    #[test]
    fn a_length_with_the_present_time_is_a_length_alone() {
        let size = SetAttributes { size: Some(9), mtime: Some(SetTime::Now), ..SetAttributes::default() };
        assert_eq!(beside_size(size.clone()), SetAttributes::default());
        let given = SetAttributes { mtime: Some(SetTime::To(Timestamp::EPOCH)), ..SetAttributes::default() };
        assert_eq!(beside_size(SetAttributes { size: Some(9), ..given.clone() }), given);
    }
}
