//! CB_NOTIFY_LOCK: who was refused a lock and waits for it hears when it might be had (RFC 8881 §20.11).
//!
//! A client that was promised this by OPEN asks again only every 30 s by itself (Linux: NFS4_LOCK_MAXTIMEOUT). So nobody is
//! forgotten for lack of an answer: who cannot be told, or does not come, makes room for the next.

use std::time::Duration;

use nfs4::{CbNotifyLock4Args, NfsCbArgop4, NfsStat4, OPEN4_RESULT_MAY_NOTIFY_LOCK};
use nfs4_state::stateid::LockNotice;

use super::Head;
use crate::fh;

/// So long who was told may take to come, and its connection to carry the message.
const PATIENCE: Duration = Duration::from_secs(2);

/// What OPEN promises: only who can be called.
pub(super) fn promise(is_reachable: bool) -> u32 {
    if is_reachable { OPEN4_RESULT_MAY_NOTIFY_LOCK } else { 0 }
}

/// Tells those whom what was released lets through. To be called after a release, and now and then for those who did not
/// come.
pub(crate) fn tell_waiters(head: &Head) {
    let notices = head.states.lock().lock_notices(head.clock.monotonic(), PATIENCE);
    notices.into_iter().for_each(|notice| tell(head, notice));
}

fn tell(head: &Head, notice: LockNotice) {
    let (sessions, states) = (head.sessions.clone(), head.states.clone());
    let operation = NfsCbArgop4::NotifyLock(CbNotifyLock4Args {
        fh: fh::encode(&head.key, notice.file),
        lock_owner: notice.owner.clone(),
    });
    head.spawn_call(async move {
        let LockNotice { client, file, .. } = notice;
        let answered = sessions.call_client(client, operation, PATIENCE).await;
        match answered.map(|result| result.status()) {
            Ok(NfsStat4::Ok) => {}
            // It has no such process or file any more, or cannot be reached: the next are told soon.
            Ok(status) => {
                tracing::debug!(client = client.0, %file, status = status.name(), "client does not wait for a lock");
                states.lock().lock_notice_unheard(&notice);
            }
            Err(error) => {
                tracing::debug!(client = client.0, %file, %error, "cannot tell a client of a lock");
                states.lock().lock_notice_unheard(&notice);
            }
        }
    });
}
