//! A name in a directory, as it comes in requests.

use nfs4::{Component4, NfsStat4};
use types::Name;

use crate::status;

pub(super) fn name(component: &Component4) -> Result<Name, NfsStat4> {
    Name::new(component.as_bytes()).map_err(status::of_name)
}
