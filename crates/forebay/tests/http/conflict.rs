//! One conflict table: what a client of one door holds stands in the way of the other door's clients.

use std::time::{Duration, Instant};

use nfs4::{
    DelegReturn4Args, FfLayoutReturn4, FileAttributes, LayoutIomode4, LayoutRecall4, NfsArgop4, NfsFh4,
    NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
    OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OPEN4_SHARE_ACCESS_WRITE, OpenDelegation4, StableHow4, StateId4,
};
use testkit::nfs_client::{Answer as Callback, Layout, NfsClient, OpenFile, ops};

use crate::dav::{LOCK, lock};
use crate::server::{Instance, Server, status_of, until};

const WAIT: Duration = Duration::from_secs(20);

/// A client with a layout to write `/file`, and 10,000 bytes written at the pool that the head has not heard of.
pub struct Writer {
    pub client: NfsClient,
    file: OpenFile,
    layout: Layout,
}

impl Writer {
    pub fn of(server: &Server) -> Writer {
        let mut client = server.nfs("writer");
        let root = client.root().unwrap();
        let file = client.create(&root, "file").unwrap();
        let layout = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
        let mut pool = client.data_server(&layout).unwrap();
        let stateid = layout.data_server().stateid;
        pool.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[7; 10_000]).unwrap();
        Writer { client, file, layout }
    }

    /// Waits for the recall and gives the layout back.
    pub fn gives_back(&mut self) {
        self.gives_back_after(|| {});
    }

    /// As `gives_back`, with something done while it is waited for.
    pub fn gives_back_after(&mut self, meanwhile: impl FnOnce()) {
        let recall = self.client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
        let LayoutRecall4::File(recalled) = recall.recall else { panic!("{recall:?}") };
        assert_eq!(recalled.fh, self.file.handle);
        meanwhile();
        self.client.layout_return(&self.file.handle, recalled.stateid, &FfLayoutReturn4::default()).unwrap();
    }
}

/// A client with a delegation to read `/file`, which is empty.
pub struct Reader {
    pub client: NfsClient,
    handle: NfsFh4,
    delegation: StateId4,
}

impl Reader {
    pub fn of(server: &Server) -> Reader {
        let mut client = server.nfs("reader");
        let root = client.root().unwrap();
        let made = client.create(&root, "file").unwrap();
        client.close(&made).unwrap();
        let wanted = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
        let file = client.open(&root, "file", wanted).unwrap();
        let OpenDelegation4::Read(granted) = &file.opened.delegation else { panic!("{:?}", file.opened) };
        let (handle, delegation) = (file.handle.clone(), granted.stateid);
        client.close(&file).unwrap();
        Reader { client, handle, delegation }
    }

    /// Waits for the recall, and gives the delegation back when something is done, by this client too.
    pub fn gives_back_after(&mut self, meanwhile: impl FnOnce(&mut NfsClient)) {
        let recall = self.client.callbacks.wait_for_recall(WAIT).expect("a recall comes");
        assert_eq!((&recall.fh, recall.stateid), (&self.handle, self.delegation));
        meanwhile(&mut self.client);
        let give_back = NfsArgop4::DelegReturn(DelegReturn4Args { deleg_stateid: self.delegation });
        self.client.call(&[ops::put_fh(&self.handle), give_back]).unwrap();
    }
}

#[test]
fn a_dav_lock_denies_nfs_writers_and_removal() {
    let (_instance, server) = Server::start();
    server.put("/file", "data");
    let token = lock(&server, "/file");
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let open = |client: &mut NfsClient, access| status_of(client.open(&root, "file", access));
    assert_eq!(open(&mut client, OPEN4_SHARE_ACCESS_WRITE), NfsStat4::ShareDenied);
    let removed = client.call(&[ops::put_fh(&root), ops::remove("file")]);
    assert_eq!(status_of(removed), NfsStat4::FileOpen);
    assert_eq!(open(&mut client, OPEN4_SHARE_ACCESS_READ), NfsStat4::Ok, "readers are welcome");
    let put = server.ask("PUT", "/file").with("If", format!("({token})")).body("of the lock's owner");
    assert_eq!(server.send(&put).status, 204);
    assert_eq!(
        open(&mut client, OPEN4_SHARE_ACCESS_WRITE),
        NfsStat4::ShareDenied,
        "the new file is locked too"
    );
    assert_eq!(server.send(&server.ask("UNLOCK", "/file").with("Lock-Token", &token)).status, 204);
    assert_eq!(open(&mut client, OPEN4_SHARE_ACCESS_WRITE), NfsStat4::Ok);
}

#[test]
fn an_administrator_sees_who_has_which_path_open() {
    let (_instance, server) = Server::start();
    let mut client = server.nfs("host-of-ann");
    let root = client.root().unwrap();
    let file = client.create(&root, "before").unwrap();
    assert_eq!(server.send(&server.ask("MKCOL", "/caf%C3%A9")).status, 201);
    let to = server.url("/caf%C3%A9/after");
    assert_eq!(server.send(&server.ask("MOVE", "/before").with("Destination", to)).status, 201);
    let opens = || String::from_utf8(server.call("GET", "/api/v1/opens").body).unwrap();
    let seen = opens();
    assert!(seen.contains("\"path\":\"/caf%C3%A9/after\"") && seen.contains("host-of-ann"), "{seen}");
    // Without a name it is still open, and has no path.
    assert_eq!(server.status_of("DELETE", "/caf%C3%A9/after"), 204);
    assert!(opens().contains("\"path\":null"), "{}", opens());
    client.close(&file).unwrap();
    assert!(opens().contains("\"total\":0"), "{}", opens());
}

#[test]
fn a_file_that_an_nfs_client_has_open_for_writing_is_not_locked() {
    let (_instance, server) = Server::start();
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let ask = server.ask("LOCK", "/file").body(LOCK);
    assert_eq!(server.send(&ask).status, 423);
    client.close(&file).unwrap();
    assert_eq!(server.send(&ask).status, 200);
}

#[test]
fn a_dav_lock_calls_a_delegation_to_write_home() {
    let (_instance, server) = Server::start();
    server.put("/file", "data");
    let mut client = server.nfs("writer");
    let root = client.root().unwrap();
    let wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let file = client.open(&root, "file", wanted).unwrap();
    let OpenDelegation4::Write(granted) = file.opened.delegation.clone() else { panic!("{:?}", file.opened) };
    client.close(&file).unwrap();
    std::thread::scope(|scope| {
        let locked = scope.spawn(|| lock(&server, "/file"));
        let recall = client.callbacks.wait_for_recall(WAIT).expect("a recall comes");
        assert_eq!((&recall.fh, recall.stateid), (&file.handle, granted.stateid));
        let give_back = NfsArgop4::DelegReturn(DelegReturn4Args { deleg_stateid: granted.stateid });
        client.call(&[ops::put_fh(&file.handle), give_back]).unwrap();
        locked.join().unwrap();
    });
    let open = client.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE);
    assert_eq!(status_of(open), NfsStat4::ShareDenied);
}

/// The walk reaches the directory of the silent client before that of the client that answers.
#[test]
fn waiting_for_one_directory_does_not_make_the_sizes_in_the_next_one_wrong() {
    let (_instance, server) = Server::start();
    let wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let writers = ["a", "b"].map(|name| {
        assert_eq!(server.status_of("MKCOL", &format!("/{name}")), 201);
        server.put(&format!("/{name}/file"), "data");
        let mut client = server.nfs(name);
        let root = client.root().unwrap();
        let dir = client.lookup(&root, name).unwrap();
        let file = client.open(&dir, "file", wanted).unwrap();
        assert!(matches!(file.opened.delegation, OpenDelegation4::Write(_)), "{:?}", file.opened);
        client
    });
    writers[0].callbacks.answer_always(Callback::Silence);
    let told = FileAttributes { size: Some(9_000), change: Some(u64::MAX), ..FileAttributes::default() };
    writers[1].callbacks.keep_attributes(told);
    let found = server.send(&server.ask("PROPFIND", "/").with("Depth", "infinity"));
    let text = found.text();
    let sizes: Vec<_> = text.split("getcontentlength>").skip(1).step_by(2).collect();
    assert_eq!(sizes.len(), 2, "{text}");
    assert!(sizes[0].starts_with("4<") && sizes[1].starts_with("9000<"), "{sizes:?}");
}

#[test]
fn a_put_recalls_the_layouts_of_the_file_and_goes_on_when_they_are_back() {
    let (_instance, server) = Server::start();
    let mut writer = Writer::of(&server);
    std::thread::scope(|scope| {
        let server = &server;
        let change = scope.spawn(move || server.send(&server.ask("PUT", "/file").body("replaced")).status);
        writer.gives_back();
        assert_eq!(change.join().unwrap(), 204);
    });
    assert_eq!(server.read("/file"), b"replaced");
}

#[test]
fn a_delete_and_a_move_over_a_file_leave_its_layouts_to_a_client_that_has_it_open() {
    let (_instance, server) = Server::start();
    let ways = [
        server.ask("DELETE", "/file"),
        server.ask("MOVE", "/other").with("Destination", server.url("/file")),
        server.ask("MOVE", "/dir").with("Destination", server.url("/file")),
    ];
    for ask in ways {
        server.put("/other", "other");
        server.call("MKCOL", "/dir");
        let mut writer = Writer::of(&server);
        assert_eq!(server.send(&ask).status, 204, "{ask:?}");
        let mut pool = writer.client.data_server(&writer.layout).unwrap();
        let (ticket, stateid) = (writer.layout.ticket(), writer.layout.data_server().stateid);
        pool.write(ticket, stateid, 10_000, StableHow4::FileSync, &[8; 5]).unwrap();
        assert_eq!(pool.read(ticket, stateid, 9_999, 6).unwrap().data[..], [7, 8, 8, 8, 8, 8]);
        assert!(writer.client.callbacks.seen().is_empty(), "nothing is recalled: {ask:?}");
        writer.client.close(&writer.file).unwrap();
        server.call("DELETE", "/file");
    }
}

#[test]
fn a_delete_and_a_move_wait_for_the_delegations_of_the_files() {
    let (_instance, server) = Server::start();
    let ways = [
        (server.ask("DELETE", "/file"), 204),
        (server.ask("MOVE", "/other").with("Destination", server.url("/file")), 204),
        (server.ask("MOVE", "/file").with("Destination", server.url("/new")), 201),
    ];
    for (ask, status) in ways {
        server.put("/other", "other");
        let mut reader = Reader::of(&server);
        std::thread::scope(|scope| {
            let (server, ask) = (&server, &ask);
            let change = scope.spawn(move || server.send(ask).status);
            reader.gives_back_after(|_| assert_eq!(server.read("/file"), b"", "it is there until then"));
            assert_eq!(change.join().unwrap(), status, "{ask:?}");
        });
        server.call("DELETE", "/file");
    }
}

#[test]
fn a_change_that_waits_for_a_delegation_in_vain_is_told_to_come_again() {
    let (_instance, server) = Server::start_with("recall_patience_ms = 300");
    let reader = Reader::of(&server);
    reader.client.callbacks.answer_always(Callback::Silence);
    let move_away = server.ask("MOVE", "/file").with("Destination", server.url("/new"));
    for ask in [server.ask("DELETE", "/file"), move_away] {
        let refused = server.send(&ask);
        assert_eq!(refused.status, 503, "{refused:?}");
        assert_eq!(refused.told("retry-after"), "1");
        assert_eq!(server.read("/file"), b"", "nothing was changed");
    }
    reader.client.callbacks.wait_for_recall(WAIT).expect("it was recalled");
}

#[test]
fn layouts_are_called_back_while_the_body_of_a_put_comes_in() {
    let (_instance, server) = Server::start();
    let mut writer = Writer::of(&server);
    let mut put = server.connect();
    put.begin(&server.ask("PUT", "/file").with("Content-Length", 8));
    writer.gives_back();
    put.write(b"replaced");
    assert_eq!(put.answer(false).status, 204);
    assert_eq!(server.read("/file"), b"replaced");
}

#[test]
fn a_put_that_breaks_off_after_its_recall_costs_a_layout_and_its_client_gets_another_at_once() {
    // A lease lasts longer than this test waits.
    let (_instance, server) = Server::start();
    let mut writer = Writer::of(&server);
    writer.client.layout_commit(&writer.file.handle, writer.layout.stateid, Some(9_999)).unwrap();
    let mut put = server.connect();
    put.begin(&server.ask("PUT", "/file").with("Content-Length", 8));
    writer.gives_back();
    drop(put);
    assert!(server.read("/file") == [7; 10_000]);
    let Writer { client, file, .. } = &mut writer;
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"through the head").unwrap();
    assert_eq!(&server.read("/file")[..16], b"through the head");
    let mut layout = || status_of(client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw));
    until("it has a layout again", || layout() == NfsStat4::Ok);
}

#[test]
fn an_upload_is_not_lost_to_a_client_that_gives_nothing_back() {
    let instance = Instance::with_lease(5, "recall_patience_ms = 1");
    let server = instance.up();
    let writer = Writer::of(&server);
    writer.client.callbacks.answer_always(Callback::Silence);
    assert_eq!(server.put("/file", "replaced").status, 204);
    assert_eq!(server.read("/file"), b"replaced");
}

/// The lease is a minute.
#[test]
fn a_client_has_as_long_to_give_back_to_http_as_to_nfs() {
    let (_instance, server) = Server::start_with("[nfs.delegations]\nrecall_s = 1");
    let writer = Writer::of(&server);
    writer.client.callbacks.answer_always(Callback::Silence);
    let since = Instant::now();
    assert_eq!(server.put("/file", "replaced").status, 204);
    assert!(since.elapsed() < WAIT, "{:?}", since.elapsed());
}

#[test]
fn data_written_at_the_pool_under_a_layout_is_read_by_http_with_its_length() {
    let (_instance, server) = Server::start();
    let mut writer = Writer::of(&server);
    let head = server.call("HEAD", "/file");
    assert_eq!(head.told("content-length"), "10000");
    assert_eq!(server.read("/file"), [7; 10_000]);
    let mut pool = writer.client.data_server(&writer.layout).unwrap();
    let stateid = writer.layout.data_server().stateid;
    pool.write(writer.layout.ticket(), stateid, 10_000, StableHow4::FileSync, &[8; 5]).unwrap();
    let longer = server.call("GET", "/file");
    assert_eq!((longer.body.len(), &longer.body[9_999..]), (10_005, &[7, 8, 8, 8, 8, 8][..]));
    assert_ne!(longer.told("etag"), head.told("etag"), "it is another state");
    let part = server.send(&server.ask("GET", "/file").with("Range", "bytes=-3"));
    assert_eq!(part.told("content-range"), "bytes 10002-10004/10005");
    writer.client.layout_commit(&writer.file.handle, writer.layout.stateid, Some(10_004)).unwrap();
    assert_eq!(server.read("/file").len(), 10_005);
}

#[test]
fn an_open_file_keeps_its_old_bytes_after_http_has_replaced_or_deleted_it() {
    let (_instance, server) = Server::start();
    server.put("/file", "old contents");
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let read = |client: &mut NfsClient| client.read(&file.handle, file.stateid, 0, 100).unwrap().data;
    assert_eq!(server.put("/file", "new").status, 204);
    assert_eq!(&read(&mut client)[..], b"old contents");
    assert_eq!(server.status_of("DELETE", "/file"), 204);
    // A file made later is removed and reaped: the old one was not, though it has no name.
    server.put("/later", "x");
    let later = client.lookup(&root, "later").unwrap();
    assert_eq!(server.status_of("DELETE", "/later"), 204);
    until("the later file is reaped", || status_of(client.size(&later)) == NfsStat4::Stale);
    assert_eq!(&read(&mut client)[..], b"old contents");
}

#[test]
fn http_reads_data_that_nfs_has_written_and_closed_and_nfs_reads_data_that_http_has_put() {
    let (_instance, server) = Server::start();
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    for round in 0..20u8 {
        let file = client.create(&root, "file").unwrap();
        client.write(&file.handle, file.stateid, 0, StableHow4::Unstable, &[round; 100]).unwrap();
        client.close(&file).unwrap();
        assert_eq!(server.read("/file"), [round; 100]);
        assert_eq!(server.put("/file", [round + 100; 100]).status, 204);
        let file = client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
        let data = client.read(&file.handle, file.stateid, 0, 200).unwrap().data;
        assert_eq!(&data[..], [round + 100; 100]);
        client.close(&file).unwrap();
    }
}
