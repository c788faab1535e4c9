//! CB_LAYOUTRECALL of LAYOUTRECALL4_ALL: a client that has many layouts at a closed pool is asked once for all that it
//! has, instead of for each (RFC 8881 §12.5.5.2.1.5, §20.3).
//!
//! The wanted layouts have their deadlines as if they were recalled one by one, and are revoked and fenced off in time.
//! The client also loses layouts at other pools, which it gets again when it asks. Until the wanted layouts are
//! returned, and the client has answered or returned all, it gets no layout. A client that answers with an error is
//! asked for each layout from then on. Linux answers NOMATCHING_LAYOUT when it has forgotten its layouts, also while
//! its last calls are still on their way to the pool: so it is fenced off.

use std::collections::BTreeMap;
use std::sync::Arc;

use file_state::{Door, FileState};
use nfs4::{ClientId4, NfsStat4};
use nfs4_state::stateid::client_of;
use parking_lot::Mutex;
use types::FileId;

use super::super::clients::Clients;
use super::super::counts::Step;
use super::super::courtesy;
use super::super::recalls::{Recalls, Turn};
use super::progress::Progress;
use crate::callback::CallbackError;

/// A client with more layouts to return than this is asked for all.
const SINGLE_MAX: usize = 64;

/// Asks clients that have many layouts of the files for all. Other holders, and clients that cannot be asked for all,
/// are to be asked for each layout.
pub(super) fn call_back(recalls: &Arc<Recalls>, progress: &Arc<Mutex<Progress>>, files: &[FileId]) {
    let fs = &recalls.clients.fs;
    let holders = holders_of_many(&fs.files.table(), fs.door, files);
    for (client, files) in holders {
        if progress.lock().may_ask_for_all(client) {
            ask(recalls, progress, client, &files);
        }
    }
}

/// Clients of this door only.
fn holders_of_many(table: &FileState, door: Door, files: &[FileId]) -> BTreeMap<ClientId4, Vec<FileId>> {
    let mut held: BTreeMap<ClientId4, Vec<FileId>> = BTreeMap::new();
    for file in files {
        let holders = table.file(*file).layout_holders_to_recall();
        for client in holders.filter_map(|holder| client_of(door, holder)) {
            held.entry(client).or_default().push(*file);
        }
    }
    held.retain(|_, files| files.len() > SINGLE_MAX);
    held
}

fn ask(recalls: &Arc<Recalls>, progress: &Arc<Mutex<Progress>>, client: ClientId4, files: &[FileId]) {
    let Clients { fs, states, .. } = &*recalls.clients;
    // A client that is silent for longer than a lease is not asked, and not waited for.
    if !courtesy::depart(&recalls.clients, &[client]).is_empty() {
        return;
    }
    let Some(turn) = Turn::take(recalls, client) else { return };
    let patience = fs.files.recall_time();
    let deadline = fs.clock.monotonic() + patience;
    progress.lock().begin_asking_for_all(client, deadline);
    let wanted = states.lock().recalls().begin_at_once(client, files, deadline);
    if wanted == 0 {
        progress.lock().end_asking_for_all(client, false);
        return;
    }
    recalls.grants.counts.count_all_layouts(Step::Sent);
    tracing::info!(client = client.0, wanted, "recalling all layouts of a client, for those at closed pools");
    let asking = {
        let (recalls, progress) = (Arc::downgrade(recalls), Arc::clone(progress));
        async move {
            let Some(recalls) = recalls.upgrade() else { return };
            let Clients { fs, sessions, .. } = &*recalls.clients;
            // Once it has returned all it is granted new ones, which are not asked for.
            let is_wanted = || progress.lock().is_asked_for_all(client, fs.clock.monotonic());
            let answered = sessions.callbacks.recall_all_layouts(client, &is_wanted, patience).await;
            settle(&recalls, &progress, client, answered);
            drop(turn);
        }
    };
    recalls.clients.spawn_call(asking);
}

/// The consequence of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The client gives back, or its time passes.
    Wait,
    /// The client says that it has no layout: it is not waited for.
    HoldsNothing,
    /// It is asked for each layout, and judged by what it answers to that.
    AskForEach,
}

fn next(answered: Result<NfsStat4, CallbackError>) -> Next {
    match answered {
        // It has said DELAY, or nothing, until its time was over.
        Ok(NfsStat4::Ok | NfsStat4::Delay) | Err(CallbackError::TimedOut) => Next::Wait,
        Ok(NfsStat4::NoMatchingLayout) => Next::HoldsNothing,
        _ => Next::AskForEach,
    }
}

fn settle(
    recalls: &Recalls,
    progress: &Mutex<Progress>,
    client: ClientId4,
    answered: Result<NfsStat4, CallbackError>,
) {
    let Recalls { clients, grants, .. } = recalls;
    if let Some(step) = Step::of_answer(answered) {
        grants.counts.count_all_layouts(step);
    }
    let answer = answered.map_or_else(|error| error.to_string(), |status| status.name().to_owned());
    let next = next(answered);
    tracing::debug!(client = client.0, answer, ?next, "asked a client for all its layouts");
    match next {
        Next::Wait => {}
        Next::HoldsNothing => clients.states.lock().recalls().expire_at_once(client),
        Next::AskForEach => {
            clients.states.lock().recalls().forget_at_once(client);
            // Requests that wait for one of these layouts now recall it.
            clients.fs.files.returned();
        }
    }
    // Not before: the answer would be taken for that to another question.
    progress.lock().end_asking_for_all(client, next == Next::AskForEach);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use file_state::{Holder, LayoutMode};

    use super::*;

    const DOOR: Door = Door::numbered(2);

    #[test]
    fn a_client_with_many_layouts_of_the_files_is_asked_for_all_and_one_with_few_is_not() {
        let mut table = FileState::default();
        let files: Vec<FileId> = (1..=65).map(FileId).collect();
        let mut grant = |file, number| {
            let holder = Holder::of(DOOR, number);
            table.layouts().grant(file, holder, LayoutMode::Read, Duration::ZERO).unwrap();
        };
        files.iter().for_each(|file| grant(*file, 1));
        files[1..].iter().for_each(|file| grant(*file, 2));
        // Many of its layouts are elsewhere.
        (65..200).for_each(|file| grant(FileId(file), 3));
        assert_eq!(holders_of_many(&table, DOOR, &files), BTreeMap::from([(ClientId4(1), files.clone())]));
        let _ = table.changes().recall_layouts(files[0], Duration::from_secs(1));
        assert!(holders_of_many(&table, DOOR, &files).is_empty(), "it was asked for one of them");
    }

    #[test]
    fn a_client_that_returns_layouts_has_its_time_and_one_without_is_not_waited_for() {
        for answered in [Ok(NfsStat4::Ok), Ok(NfsStat4::Delay), Err(CallbackError::TimedOut)] {
            assert_eq!(next(answered), Next::Wait, "{answered:?}");
        }
        assert_eq!(next(Ok(NfsStat4::NoMatchingLayout)), Next::HoldsNothing);
    }

    #[test]
    fn a_client_that_answers_with_an_error_is_asked_for_each_layout() {
        let failed = [
            Ok(NfsStat4::NotSupp),
            Ok(NfsStat4::Inval),
            Ok(NfsStat4::UnknownLayoutType),
            Ok(NfsStat4::OpNotInSession),
            Err(CallbackError::NoPath),
            Err(CallbackError::Busy),
            Err(CallbackError::Refused(NfsStat4::BadSession)),
        ];
        for answered in failed {
            assert_eq!(next(answered), Next::AskForEach, "{answered:?}");
        }
    }
}
