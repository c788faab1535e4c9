//! CB_NOTIFY_LOCK: notifies a client that waits for a lock when the lock may be available (RFC 8881 §20.11).
//!
//! A client that was promised this by OPEN asks again only every 30 s by itself (Linux: NFS4_LOCK_MAXTIMEOUT). So no
//! waiter is forgotten: if a client cannot be told, or does not ask again, the next waiter is told.

use std::time::Duration;

use nfs4::{CbNotifyLock4Args, NfsCbArgop4, NfsStat4, OPEN4_RESULT_MAY_NOTIFY_LOCK};
use nfs4_state::stateid::LockNotice;

use super::clients::Clients;

/// Time for a notified client to ask again, and for its connection to carry the message.
const PATIENCE: Duration = Duration::from_secs(2);

/// The promise in the answer to OPEN: only a client that can be called gets it.
pub(super) fn promise(is_reachable: bool) -> u32 {
    if is_reachable { OPEN4_RESULT_MAY_NOTIFY_LOCK } else { 0 }
}

/// Notifies waiters whose locks have become free. To be called after a release, and now and then in case a notified
/// client does not ask again.
pub(super) fn tell_waiters(clients: &Clients) {
    let notices = clients.states.lock().waiters().notices(clients.fs.clock.monotonic(), PATIENCE);
    notices.into_iter().for_each(|notice| tell(clients, notice));
}

fn tell(clients: &Clients, notice: LockNotice) {
    let (sessions, states) = (clients.sessions.clone(), clients.states.clone());
    let operation = NfsCbArgop4::NotifyLock(CbNotifyLock4Args {
        fh: clients.fs.handle(notice.file),
        lock_owner: notice.owner.clone(),
    });
    clients.spawn_call(async move {
        let LockNotice { client, file, .. } = notice;
        let answered = sessions.callbacks.call_client(client, operation, PATIENCE).await;
        match answered.map(|result| result.status()) {
            Ok(NfsStat4::Ok) => {}
            // The client has no such process or file any more, or cannot be reached: the next are told soon.
            Ok(status) => {
                tracing::debug!(client = client.0, %file, status = status.name(), "client does not wait for a lock");
                states.lock().waiters().notice_unheard(&notice);
            }
            Err(error) => {
                tracing::debug!(client = client.0, %file, %error, "cannot tell a client of a lock");
                states.lock().waiters().notice_unheard(&notice);
            }
        }
    });
}
