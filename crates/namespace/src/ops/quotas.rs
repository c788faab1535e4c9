//! Quotas are given and taken.

use api::{Account, NamespaceError, Quota, Scope};
use types::FileId;

use crate::group::{Group, OpError, OpResult};

pub fn set_quota(group: &mut Group<'_>, account: Account, quota: Option<Quota>) -> OpResult<()> {
    if account.scope == Scope::Tree && quota.is_some() {
        group.directory(FileId(account.id)).map_err(|error| match error {
            OpError::Refused(NamespaceError::Stale(_)) => OpError::Refused(NamespaceError::NotFound),
            error => error,
        })?;
    }
    group.usage().set_quota(account, quota);
    Ok(())
}
