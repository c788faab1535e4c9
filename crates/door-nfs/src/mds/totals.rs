//! Attributes of the whole file system: its total space, and the space left to a user.
//!
//! Within a tree that has a quota it is as if the quota were the file system, so that `df` of a directory tells of it.

use api::{Account, PoolStatus, Quotas, Standing};
use nfs4::{FileAttributes, NfsStat4, attr::number};
use types::{FileId, Identity};

use super::file_system::FileSystem;
use crate::status;

pub(super) const TOTALS: nfs4::Bitmap4 = nfs4::Bitmap4::of(&[
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::QUOTA_AVAIL_HARD,
    number::QUOTA_AVAIL_SOFT,
    number::QUOTA_USED,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
]);

const OF_USER: nfs4::Bitmap4 =
    nfs4::Bitmap4::of(&[number::QUOTA_AVAIL_HARD, number::QUOTA_AVAIL_SOFT, number::QUOTA_USED]);

pub(super) async fn add(
    out: &mut FileAttributes,
    fs: &FileSystem,
    who: &Identity,
    file: FileId,
    mask: &nfs4::Bitmap4,
) -> Result<(), NfsStat4> {
    let pools = fs.files.pools().states();
    let usage = fs.namespace.usage().await.map_err(status::of_namespace)?;
    let sum = |of: fn(&PoolStatus) -> u64| pools.iter().map(of).fold(0, u64::saturating_add);
    let mut bytes = Space { total: sum(|pool| pool.total_bytes), free: sum(|pool| pool.free_bytes) };
    let free_files = sum(|pool| pool.free_files);
    let mut files = Space { total: free_files.saturating_add(usage.files), free: free_files };
    if let Some(Standing { used, bytes_left, files_left, .. }) =
        fs.files.quotas().tree(file).await.map_err(status::of_namespace)?
    {
        bytes.bound(bytes_left, used.bytes());
        files.bound(files_left, used.entries());
    }
    out.space_total = Some(bytes.total);
    (out.space_free, out.space_avail) = (Some(bytes.free), Some(bytes.free));
    out.files_total = Some(files.total);
    (out.files_free, out.files_avail) = (Some(files.free), Some(files.free));
    if !mask.intersect(&OF_USER).is_empty() {
        add_user(out, fs.files.quotas(), who, bytes.free).await?;
    }
    Ok(())
}

struct Space {
    total: u64,
    free: u64,
}

impl Space {
    fn bound(&mut self, left: Option<u64>, used: u64) {
        let Some(left) = left else { return };
        self.total = self.total.min(left.saturating_add(used));
        self.free = self.free.min(left);
    }
}

/// RFC 8881 §5.8.2: of the caller's own account. Without a quota there is as much as there is.
async fn add_user(
    out: &mut FileAttributes,
    quotas: &dyn Quotas,
    who: &Identity,
    free: u64,
) -> Result<(), NfsStat4> {
    let account = Account::user(who.uid);
    let (used, limit) = match quotas.standing(account).await.map_err(status::of_namespace)? {
        Some(standing) => (standing.used, standing.quota.bytes),
        None => (quotas.counted(account).await.map_err(status::of_namespace)?, api::Limit::default()),
    };
    let used = used.bytes();
    let left = |limit: Option<u64>| limit.map_or(free, |limit| limit.saturating_sub(used));
    out.quota_avail_hard = Some(left(limit.hard));
    out.quota_avail_soft = Some(left(limit.soft.or(limit.hard)));
    out.quota_used = Some(used);
    Ok(())
}
