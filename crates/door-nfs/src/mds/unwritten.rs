//! CB_GETATTR: attributes from the holder of a delegation to write (RFC 8881 §10.4.3, §20.1; RFC 9754 §5).
//!
//! The holder answers the change attribute that it was told with the delegation, and another one while it has bytes that
//! it has not written. Linux always counts one up from the first (`nfs4_callback_getattr`), so what it says is compared
//! with that, however far the file's own has gone by what the holder has written since.

use std::time::Duration;

use files::Told;
use nfs4::attr::number;
use nfs4::{Bitmap4, ClientId4, FileAttributes, NfsStat4, NfsTime4};
use nfs4_state::stateid::{DelegatedTimes, DelegationTerms};
use tokio::time::Instant;
use types::{FileId, Timestamp};

use super::clients::{Clients, OVERTAKEN_PAUSE};

const ASKED: Bitmap4 = Bitmap4::of(&[number::CHANGE, number::SIZE]);

/// `None`: the client does not answer.
pub(super) async fn ask(
    clients: &Clients,
    file: FileId,
    client: ClientId4,
    patience: Duration,
) -> Option<Told> {
    let deadline = Instant::now() + patience;
    let handle = clients.fs.handle(file);
    loop {
        let terms = clients.states.lock().delegations().terms(client, file)?;
        let wanted = match terms.times {
            Some(_) => ASKED.with(number::TIME_DELEG_ACCESS).with(number::TIME_DELEG_MODIFY),
            None => ASKED,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let answered =
            clients.sessions.callbacks.ask_attributes(client, (handle.clone(), wanted), left).await;
        match answered {
            Ok(Ok(told)) => {
                let told = FileAttributes::decode(&told).ok()?;
                return judge(&terms, &told, clients.fs.clock.now());
            }
            // The call may overtake the reply that grants the delegation: then the client does not know it yet.
            Ok(Err(NfsStat4::BadHandle)) if Instant::now() + OVERTAKEN_PAUSE < deadline => {
                tokio::time::sleep(OVERTAKEN_PAUSE).await;
            }
            Ok(Err(status)) => {
                tracing::debug!(client = client.0, %file, status = status.name(), "client does not say what it has written");
                return None;
            }
            Err(error) => {
                tracing::debug!(client = client.0, %file, %error, "cannot ask a client what it has written");
                return None;
            }
        }
    }
}

fn judge(terms: &DelegationTerms, told: &FileAttributes, now: Timestamp) -> Option<Told> {
    let size = told.size.filter(|size| i64::try_from(*size).is_ok())?;
    let change = told.change?;
    let time = |original, given: Option<NfsTime4>| {
        let given = given.and_then(|given| Timestamp::new(given.seconds, given.nseconds))?;
        DelegatedTimes::vet(original, given, now)
    };
    Some(Told {
        is_modified: terms.change != Some(change),
        size,
        accessed: terms.times.and_then(|times| time(times.accessed, told.time_deleg_access)),
        modified: terms.times.and_then(|times| time(times.modified, told.time_deleg_modify)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::new(seconds, 0).unwrap()
    }

    fn told(change: u64) -> FileAttributes {
        let time = |seconds| Some(NfsTime4 { seconds, nseconds: 0 });
        FileAttributes {
            change: Some(change),
            size: Some(5),
            time_deleg_access: time(9),
            time_deleg_modify: time(99),
            ..FileAttributes::default()
        }
    }

    #[test]
    fn another_change_attribute_than_the_first_says_that_there_is_more_than_was_written() {
        let terms = DelegationTerms { change: Some(7), times: None };
        let is_modified = |terms, change| judge(&terms, &told(change), at(20)).unwrap().is_modified;
        assert_eq!([7, 8, 6].map(|change| is_modified(terms, change)), [false, true, true]);
        let reclaimed = DelegationTerms::default();
        assert!(is_modified(reclaimed, 7), "what a client had before a restart is not known");
    }

    #[test]
    fn times_are_believed_where_they_were_delegated_and_within_their_bounds() {
        let times = Some(DelegatedTimes { accessed: at(10), modified: at(10) });
        let judged = judge(&DelegationTerms { change: Some(7), times }, &told(7), at(20)).unwrap();
        assert_eq!((judged.accessed, judged.modified), (None, Some(at(20))));
        let judged = judge(&DelegationTerms { change: Some(7), times: None }, &told(7), at(20)).unwrap();
        assert_eq!((judged.accessed, judged.modified), (None, None));
    }

    #[test]
    fn an_answer_without_a_requested_attribute_is_ignored() {
        let terms = DelegationTerms::default();
        let without_size = FileAttributes { size: None, ..told(7) };
        assert_eq!(judge(&terms, &without_size, at(20)), None);
        let larger_than_files_can_be = FileAttributes { size: Some(u64::MAX), ..told(7) };
        assert_eq!(judge(&terms, &larger_than_files_can_be, at(20)), None);
        assert_eq!(judge(&terms, &FileAttributes::default(), at(20)), None);
    }
}
