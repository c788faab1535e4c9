//! Layout recall: its causes, and layouts that the client does not return (RFC 8881 §12.5.5, §20.3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use nfs4::{
    BindConnToSession4Args, ChannelDirFromClient4, CreateHow4, FfLayoutReturn4, FileAttributes,
    LayoutIomode4, LayoutRecall4, LayoutReturn4, LayoutType4, NfsArgop4, NfsCbArgop4, NfsFh4, NfsStat4,
    OPEN4_SHARE_ACCESS_BOTH, OpenFlag4, ReferringCall4, ReferringCallList4, SEQ4_STATUS_CB_PATH_DOWN,
    SEQ4_STATUS_CB_PATH_DOWN_SESSION, StableHow4, StateId4,
};
use testkit::nfs_client::{Answer, Layout, NfsClient, OpenFile, ops, when_ready};

use crate::server::{Server, Setup, status_of};

const WAIT: Duration = Duration::from_secs(20);

/// A holder with data behind a layout for writing, and another client that has the file open.
struct Scene {
    holder: NfsClient,
    other: NfsClient,
    file: OpenFile,
    opened: OpenFile,
    layout: Layout,
    data_server: NfsClient,
}

impl Scene {
    fn set(server: &Server) -> Scene {
        let mut holder = server.client("holder");
        let root = holder.root().unwrap();
        let file = holder.create(&root, "file").unwrap();
        let layout = holder.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
        let mut data_server = holder.data_server(&layout).unwrap();
        let stateid = layout.data_server().stateid;
        data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[7; 10_000]).unwrap();
        holder.layout_commit(&file.handle, layout.stateid, Some(9_999)).unwrap();
        let mut other = server.client("other");
        let opened = other.create(&root, "file").unwrap();
        Scene { holder, other, file, opened, layout, data_server }
    }

    fn truncate(&mut self) -> NfsStat4 {
        status_of(self.other.set_size(&self.opened.handle, self.opened.stateid, 100))
    }

    /// Returns the stateid of the recalled layout.
    fn recall_by_truncation(&mut self) -> StateId4 {
        assert_eq!(self.truncate(), NfsStat4::Delay);
        let recall = self.holder.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
        handle_of(&recall.recall).1
    }

    /// Asks again, as Linux does on DELAY, while the holder renews its lease.
    fn truncate_when_ready(&mut self) -> Duration {
        let since = Instant::now();
        loop {
            match self.truncate() {
                NfsStat4::Delay => {
                    assert!(since.elapsed() < WAIT, "the truncation never gets through");
                    // Both sessions live on, or the lease of one would end before the recall does.
                    self.holder.call(&[]).unwrap();
                    self.data_server.call(&[]).unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
                NfsStat4::Ok => return since.elapsed(),
                status => panic!("{status}"),
            }
        }
    }

    fn read_by_ticket(&mut self) -> NfsStat4 {
        let stateid = self.layout.data_server().stateid;
        status_of(self.data_server.read(self.layout.ticket(), stateid, 0, 10))
    }

    fn write_by_ticket(&mut self) -> NfsStat4 {
        let stateid = self.layout.data_server().stateid;
        let (ticket, data) = (self.layout.ticket().clone(), [9; 10]);
        status_of(self.data_server.write(&ticket, stateid, 0, StableHow4::FileSync, &data))
    }
}

fn handle_of(recall: &LayoutRecall4) -> (&NfsFh4, StateId4, u64, u64) {
    match recall {
        LayoutRecall4::File(file) => (&file.fh, file.stateid, file.offset, file.length),
        other => panic!("not of a file: {other:?}"),
    }
}

#[test]
fn a_truncation_by_another_client_recalls_the_layout_and_waits_for_its_return() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    assert_eq!(scene.truncate(), NfsStat4::Delay, "the layout is not back yet");
    let recall = scene.holder.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    assert_eq!((recall.layout_type, recall.changed), (LayoutType4::FLEX_FILES, false));
    let (handle, stateid, offset, length) = handle_of(&recall.recall);
    assert_eq!(handle, &scene.file.handle);
    assert_eq!((offset, length), (0, u64::MAX));
    let expected = StateId4 { seqid: scene.layout.stateid.seqid + 1, ..scene.layout.stateid };
    assert_eq!(stateid, expected, "Linux takes exactly the next seqid (pnfs_check_callback_stateid)");
    scene.holder.layout_return(&scene.file.handle, stateid, &FfLayoutReturn4::default()).unwrap();
    scene.truncate_when_ready();
    assert_eq!(scene.holder.size(&scene.file.handle).unwrap(), 100);
}

/// Linux from 6.1 on cancels its calls at a recall: one of them may come to the pool behind its LAYOUTRETURN.
#[test]
fn a_write_that_was_given_up_at_a_recall_is_refused_after_the_return() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let stateid = scene.recall_by_truncation();
    assert_eq!(scene.write_by_ticket(), NfsStat4::Ok, "until it is returned");
    scene.holder.layout_return(&scene.file.handle, stateid, &FfLayoutReturn4::default()).unwrap();
    assert_eq!(scene.write_by_ticket(), NfsStat4::Stale);
    scene.truncate_when_ready();
    assert_eq!(scene.holder.size(&scene.file.handle).unwrap(), 100);
}

#[test]
fn a_write_that_was_given_up_at_a_recall_is_refused_after_all_layouts_are_returned() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.recall_by_truncation();
    scene.holder.call(&[ops::layout_return_many(LayoutReturn4::All)]).unwrap();
    assert_eq!(scene.write_by_ticket(), NfsStat4::Stale);
    scene.truncate_when_ready();
}

/// Layouts are returned on close.
#[test]
fn a_write_that_was_given_up_at_a_recall_is_refused_after_the_file_is_closed() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.recall_by_truncation();
    scene.holder.close(&scene.file).unwrap();
    scene.truncate_when_ready();
    assert_eq!(scene.write_by_ticket(), NfsStat4::Stale);
}

#[test]
fn a_layout_that_nobody_asked_for_is_returned_without_a_fence() {
    let (_instance, server) = Server::start();
    let Scene { mut holder, file, .. } = Scene::set(&server);
    let mut ticket = || {
        let layout = holder.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
        holder.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
        layout.ticket().clone()
    };
    assert_eq!(ticket(), ticket());
}

#[test]
fn a_recall_comes_on_the_session_of_the_holder_with_its_own_sequence() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.holder.callbacks.answer_always(Answer::Status(NfsStat4::NoMatchingLayout));
    scene.truncate_when_ready();
    let seen = scene.holder.callbacks.seen();
    let NfsCbArgop4::Sequence(sequence) = &seen[0].argarray[0] else { panic!("{:?}", seen[0]) };
    assert_eq!(sequence.sessionid, scene.holder.session.id);
    assert_eq!((sequence.sequenceid, sequence.slotid), (1, 0));
    assert_eq!(seen[0].minorversion, scene.holder.options.minorversion);
    assert!(scene.other.callbacks.seen().is_empty(), "the client that truncates gets no recall");
}

/// RFC 8881 §20.9.3: Linux waits for the reply to the call that is named, and takes the recall for what it is.
#[test]
fn a_recall_names_the_call_that_granted_until_its_reply_has_been_seen() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let granting = scene.holder.session.sequence(0, false);
    scene.layout =
        scene.holder.layout_get(&scene.file.handle, scene.layout.stateid, LayoutIomode4::Rw).unwrap();
    // It is asked again and again.
    scene.holder.callbacks.answer_always(Answer::Status(NfsStat4::Delay));
    assert_eq!(scene.truncate(), NfsStat4::Delay);
    let call = ReferringCall4 { sequenceid: granting.sequenceid, slotid: granting.slotid };
    let list = ReferringCallList4 { sessionid: scene.holder.session.id, referring_calls: vec![call] };
    assert_eq!(referring_calls(&scene.holder), [list]);

    // The slot is used again: the reply has been there.
    scene.holder.call(&[]).unwrap();
    let mut later = std::iter::repeat_with(|| referring_calls(&scene.holder)).take(20);
    assert!(later.any(|lists| lists.is_empty()), "it is named no longer");
}

fn referring_calls(holder: &NfsClient) -> Vec<ReferringCallList4> {
    let compound = holder.callbacks.wait(WAIT).expect("a recall comes");
    let NfsCbArgop4::Sequence(sequence) = &compound.argarray[0] else { panic!("{compound:?}") };
    sequence.referring_call_lists.clone()
}

#[test]
fn a_holder_that_knows_of_no_layout_has_returned_it() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.holder.callbacks.answer_always(Answer::Status(NfsStat4::NoMatchingLayout));
    scene.truncate_when_ready();
    assert_eq!(scene.holder.size(&scene.file.handle).unwrap(), 100);
}

#[test]
fn a_recall_finds_the_connection_that_was_bound_last() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let second = scene.holder.second_connection().unwrap();
    let bind = NfsArgop4::BindConnToSession(BindConnToSession4Args {
        sessid: scene.holder.session.id,
        dir: ChannelDirFromClient4::BackOrBoth,
        use_conn_in_rdma_mode: false,
    });
    second.call(&scene.holder.options.credential, 2, &[bind]).unwrap().ok().unwrap();
    // The first connection, which the session was made on, is gone.
    scene.holder.connection = Arc::new(second);
    assert_eq!(scene.truncate(), NfsStat4::Delay);
    assert!(scene.holder.callbacks.wait_for_layout_recall(WAIT).is_some());
    let reply = scene.holder.call(&[]).unwrap();
    let flags = testkit::body!(reply, Sequence).unwrap().status_flags;
    assert_eq!(flags & (SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION), 0, "{flags:#x}");
}

#[test]
fn a_client_whose_back_channel_is_gone_is_told_so() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    // Fore channel only; the connection that carried the callbacks ends.
    scene.holder.connection = Arc::new(scene.holder.second_connection().unwrap());
    let deadline = Instant::now() + WAIT;
    loop {
        let reply = scene.holder.call(&[]).unwrap();
        let flags = testkit::body!(reply, Sequence).unwrap().status_flags;
        if flags & SEQ4_STATUS_CB_PATH_DOWN != 0 {
            break;
        }
        assert!(Instant::now() < deadline, "nobody says that the path is down");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_holder_that_asks_for_time_is_asked_again_and_not_fenced() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    // Linux says so when the recall overtakes a LAYOUTGET (pnfs_check_callback_stateid).
    scene.holder.callbacks.answer_once(Answer::Status(NfsStat4::Delay));
    assert_eq!(scene.truncate(), NfsStat4::Delay);
    let first = scene.holder.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    let second = scene.holder.callbacks.wait_for_layout_recall(WAIT).expect("it comes again");
    let (_, stateid, _, _) = handle_of(&first.recall);
    assert_eq!(handle_of(&second.recall).1, stateid, "the same recall, not a further one");
    assert_eq!(scene.write_by_ticket(), NfsStat4::Ok);
    scene.holder.layout_return(&scene.file.handle, stateid, &FfLayoutReturn4::default()).unwrap();
    scene.truncate_when_ready();
    assert_eq!(scene.holder.size(&scene.file.handle).unwrap(), 100);
}

#[test]
fn an_open_that_truncates_recalls_as_well() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.holder.callbacks.answer_always(Answer::Status(NfsStat4::NoMatchingLayout));
    let root = scene.other.root().unwrap();
    let empty = FileAttributes { size: Some(0), ..FileAttributes::default() };
    let how = || OpenFlag4::Create(CreateHow4::Unchecked(empty.encode_all()));
    when_ready(|| scene.other.open_as(&root, "file", "owner", OPEN4_SHARE_ACCESS_BOTH, how())).unwrap();
    assert_eq!(scene.other.size(&scene.file.handle).unwrap(), 0);
    assert_eq!(scene.holder.callbacks.seen().len(), 1);
}

#[test]
fn growing_removing_and_renaming_recall_nothing() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let root = scene.other.root().unwrap();
    scene.other.set_size(&scene.opened.handle, scene.opened.stateid, 20_000).unwrap();
    scene.other.rename((&root, "file"), (&root, "renamed")).unwrap();
    scene.other.remove(&root, "renamed").unwrap();
    assert_eq!(scene.write_by_ticket(), NfsStat4::Ok);
    assert!(scene.holder.callbacks.seen().is_empty());
}

#[test]
fn one_recall_is_enough_however_often_the_truncation_is_asked_for() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    for _ in 0..5 {
        assert_eq!(scene.truncate(), NfsStat4::Delay);
    }
    assert_eq!(scene.holder.callbacks.seen().len(), 1);
}

#[test]
fn a_layout_that_is_not_returned_is_revoked_and_its_ticket_is_worth_nothing() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 2, ..Setup::default() });
    let mut scene = Scene::set(&server);
    assert_eq!(scene.write_by_ticket(), NfsStat4::Ok);
    // The holder says it will return the layout, and does not.
    scene.truncate_when_ready();
    assert_eq!(scene.write_by_ticket(), NfsStat4::Stale, "fenced at the pool");
    assert_eq!(scene.read_by_ticket(), NfsStat4::Stale);
    let again = scene.holder.layout_get(&scene.file.handle, scene.file.stateid, LayoutIomode4::Rw).unwrap();
    assert_ne!(again.ticket(), scene.layout.ticket(), "of the next epoch");
    scene.layout = again;
    assert_eq!(scene.write_by_ticket(), NfsStat4::Ok);
}

#[test]
fn a_holder_that_does_not_answer_holds_nobody_up_for_longer_than_the_lease() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 2, ..Setup::default() });
    let mut scene = Scene::set(&server);
    scene.holder.callbacks.answer_always(Answer::Silence);
    scene.truncate_when_ready();
    assert_eq!(scene.write_by_ticket(), NfsStat4::Stale);
}

#[test]
fn while_a_layout_is_recalled_no_new_one_is_given_to_others() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    assert_eq!(scene.truncate(), NfsStat4::Delay);
    let outcome = scene.holder.layout_get(&scene.file.handle, scene.file.stateid, LayoutIomode4::Rw);
    assert!(
        matches!(status_of(outcome), NfsStat4::RecallConflict | NfsStat4::Delay | NfsStat4::LayoutTryLater),
        "it would be recalled at once"
    );
}

#[test]
fn a_client_that_truncates_under_its_own_layout_alone_gets_no_recall() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.holder.set_size(&scene.file.handle, scene.file.stateid, 50).unwrap();
    assert_eq!(scene.holder.size(&scene.file.handle).unwrap(), 50);
    assert!(scene.holder.callbacks.seen().is_empty());
    assert_eq!(scene.read_by_ticket(), NfsStat4::Ok);
}

#[test]
fn the_layouts_of_an_expired_client_are_fenced() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 2, ..Setup::default() });
    let mut scene = Scene::set(&server);
    scene.holder.callbacks.answer_always(Answer::Silence);
    let since = Instant::now();
    // The holder is silent at the head; its data server session alone does not keep the layout from who needs the file.
    while scene.write_by_ticket() == NfsStat4::Ok {
        assert!(since.elapsed() < WAIT, "the ticket outlives the client");
        scene.truncate();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(scene.write_by_ticket(), NfsStat4::Stale);
}
