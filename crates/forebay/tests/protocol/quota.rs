//! Quotas as clients meet them: what is refused and with what, and what `df` is told.

use nfs4::attr::number;
use nfs4::{
    DelegReturn4Args, LayoutIomode4, NfsArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OpenDelegation4, StableHow4, StateId4,
};
use testkit::nfs_client::{ClientOptions, Layout, NfsClient, OpenFile, auth_sys, ops};

use crate::layout::state_of;
use crate::server::{Instance, Server, directory_of, status_of};

const UID: u32 = 1234;

fn user(server: &Server) -> NfsClient {
    server.client_by(ClientOptions::named("user").credential(auth_sys(UID, UID, &[])))
}

fn forebay(instance: &Instance, command: &[&str]) -> String {
    let output = instance.run(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A directory of the user's, and the user.
fn with_directory(server: &Server) -> (NfsFh4, NfsClient) {
    let dir = directory_of(&mut server.client("root"), "dir", UID);
    (dir, user(server))
}

#[test]
fn a_user_beyond_the_quota_is_refused_what_takes_more_and_nothing_else() {
    let (instance, server) = Server::start();
    let (dir, mut client) = with_directory(&server);
    let file = client.create(&dir, "f").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, &[1; 6000]).unwrap();
    forebay(&instance, &["quota", "set", "--user", "1234", "--bytes-hard", "8000", "--files-hard", "3"]);

    let mut write = |offset, length: usize| {
        let data = vec![2; length];
        status_of(client.write(&file.handle, file.stateid, offset, StableHow4::FileSync, &data))
    };
    assert_eq!(write(6000, 2001), NfsStat4::DQuot);
    assert_eq!(write(6000, 2000), NfsStat4::Ok);
    assert_eq!(write(8000, 1), NfsStat4::DQuot);
    // In place all may be written.
    assert_eq!(write(0, 8000), NfsStat4::Ok);
    assert_eq!(status_of(client.set_size(&file.handle, file.stateid, 8001)), NfsStat4::DQuot);
    client.set_size(&file.handle, file.stateid, 100).unwrap();

    client.create(&dir, "g").unwrap();
    assert_eq!(status_of(client.create(&dir, "h")), NfsStat4::DQuot);
    assert_eq!(status_of(client.mkdir(&dir, "d", 0o755)), NfsStat4::DQuot);
    client.remove(&dir, "g").unwrap();
    let mut root = server.client("root");
    for name in ["r1", "r2"] {
        root.create(&dir, name).unwrap();
    }

    let wanted = [number::QUOTA_AVAIL_HARD, number::QUOTA_AVAIL_SOFT, number::QUOTA_USED];
    let told = client.attributes(&dir, &wanted).unwrap();
    let quota = (told.quota_avail_hard, told.quota_avail_soft, told.quota_used);
    assert_eq!(quota, (Some(7900), Some(7900), Some(100)));
    let shown = forebay(&instance, &["quota", "show", "--user", "1234"]);
    let words: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..3], ["100", "-", "7.8K"], "{shown}");
    forebay(&instance, &["quota", "remove", "--user", "1234"]);
    client.set_size(&file.handle, file.stateid, 80_000).unwrap();
    // Without a quota as much is left as there is.
    let told = client.attributes(&dir, &wanted).unwrap();
    assert!(told.quota_used == Some(80_000) && told.quota_avail_hard > Some(1 << 20));
}

/// At the pools nobody asks: a layout ends where the quota does.
#[test]
fn a_layout_reaches_as_far_as_the_quota_and_behind_it_the_head_judges() {
    let (instance, server) = Server::start();
    let (dir, mut client) = with_directory(&server);
    forebay(&instance, &["quota", "set", "--tree", "/dir", "--bytes-hard", "100000"]);
    let file = client.create(&dir, "f").unwrap();
    let zero = StateId4 { seqid: 0, ..file.stateid };
    let layout = client.layout_get(&file.handle, zero, LayoutIomode4::Rw).unwrap();
    assert_eq!((layout.segment.offset, layout.segment.length), (0, 102_400));
    let reading = client.layout_get(&file.handle, zero, LayoutIomode4::Read).unwrap();
    assert_eq!(reading.segment.length, u64::MAX);

    let mut pool = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    pool.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &vec![3; 100_000]).unwrap();
    client.layout_commit(&file.handle, layout.stateid, Some(99_999)).unwrap();
    let full = client.layout_get(&file.handle, zero, LayoutIomode4::Rw).unwrap();
    assert_eq!(full.segment.length, 102_400);
    let more = client.write(&file.handle, file.stateid, 100_000, StableHow4::FileSync, &[4]);
    assert_eq!(status_of(more), NfsStat4::DQuot);
    // Another file has no place at all.
    let other = client.create(&dir, "g").unwrap();
    let zero = StateId4 { seqid: 0, ..other.stateid };
    let refused = client.layout_get(&other.handle, zero, LayoutIomode4::Rw);
    assert_eq!(status_of(refused), NfsStat4::LayoutUnavailable);
}

/// Writes zeros at the pool, from the beginning of a file on, and tells the head.
fn write_at_the_pool(client: &mut NfsClient, file: &OpenFile, layout: &Layout, length: usize) {
    let mut pool = client.data_server(layout).unwrap();
    let stateid = layout.data_server().stateid;
    pool.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &vec![0; length]).unwrap();
    client.layout_commit(&file.handle, layout.stateid, Some(length as u64 - 1)).unwrap();
    assert_eq!(client.size(&file.handle).unwrap(), length as u64);
}

#[test]
fn files_written_at_once_exceed_a_quota_by_what_was_free_when_each_was_asked_for_and_not_more() {
    let (instance, server) = Server::start();
    let (dir, mut client) = with_directory(&server);
    forebay(&instance, &["quota", "set", "--tree", "/dir", "--bytes-hard", "100000"]);
    let files = ["f", "g"].map(|name| client.create(&dir, name).unwrap());
    let layouts = files.each_ref().map(|file| {
        let zero = StateId4 { seqid: 0, ..file.stateid };
        client.layout_get(&file.handle, zero, LayoutIomode4::Rw).unwrap()
    });
    for (file, layout) in files.iter().zip(&layouts) {
        assert_eq!(layout.segment.length, 102_400);
        write_at_the_pool(&mut client, file, layout, 100_000);
    }
    for (file, layout) in files.iter().zip(&layouts) {
        let again = client.layout_get(&file.handle, layout.stateid, LayoutIomode4::Rw).unwrap();
        assert_eq!(again.segment.length, 102_400, "to the end of its last page");
        let more = client.write(&file.handle, file.stateid, 100_000, StableHow4::FileSync, &[4]);
        assert_eq!(status_of(more), NfsStat4::DQuot);
    }
}

#[test]
fn a_client_that_was_writing_when_the_quota_was_set_goes_on_until_it_closes_the_file() {
    let (instance, server) = Server::start();
    let (dir, mut client) = with_directory(&server);
    let file = client.create(&dir, "f").unwrap();
    let zero = StateId4 { seqid: 0, ..file.stateid };
    let layout = client.layout_get(&file.handle, zero, LayoutIomode4::Rw).unwrap();
    assert_eq!(layout.segment.length, u64::MAX);
    forebay(&instance, &["quota", "set", "--tree", "/dir", "--bytes-hard", "100000"]);
    write_at_the_pool(&mut client, &file, &layout, 150_000);
    assert!(client.callbacks.seen().is_empty(), "nothing is recalled");

    client.close(&file).unwrap();
    assert_eq!(state_of(&mut client, layout.stateid), NfsStat4::BadStateId, "it went with the open");
    let file = client.open(&dir, "f", OPEN4_SHARE_ACCESS_BOTH).unwrap();
    let zero = StateId4 { seqid: 0, ..file.stateid };
    let bounded = client.layout_get(&file.handle, zero, LayoutIomode4::Rw).unwrap();
    assert_eq!(bounded.segment.length, 151_552, "to the end of its last page");
}

#[test]
fn a_client_with_a_write_delegation_keeps_what_it_had_before_the_quota_until_it_gives_that_back() {
    let (instance, server) = Server::start();
    let (dir, mut client) = with_directory(&server);
    let made = client.create(&dir, "f").unwrap();
    client.close(&made).unwrap();
    let wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let file = client.open(&dir, "f", wanted).unwrap();
    let OpenDelegation4::Write(granted) = file.opened.delegation.clone() else { panic!("{:?}", file.opened) };
    let layout = client.layout_get(&file.handle, granted.stateid, LayoutIomode4::Rw).unwrap();
    forebay(&instance, &["quota", "set", "--tree", "/dir", "--bytes-hard", "100000"]);
    client.close(&file).unwrap();
    assert_eq!(state_of(&mut client, layout.stateid), NfsStat4::Ok, "the delegation covers it");
    write_at_the_pool(&mut client, &file, &layout, 150_000);

    let give_back = NfsArgop4::DelegReturn(DelegReturn4Args { deleg_stateid: granted.stateid });
    client.call(&[ops::put_fh(&file.handle), give_back]).unwrap();
    assert_eq!(state_of(&mut client, layout.stateid), NfsStat4::BadStateId, "it went with that");
}

/// With a layout out the head asks the pool how long the file is.
#[test]
fn a_size_that_the_quota_refuses_leaves_the_replica_as_it_was() {
    let (instance, server) = Server::start();
    let (dir, mut client) = with_directory(&server);
    forebay(&instance, &["quota", "set", "--user", "1234", "--bytes-hard", "100000"]);
    let file = client.create(&dir, "f").unwrap();
    let zero = StateId4 { seqid: 0, ..file.stateid };
    client.layout_get(&file.handle, zero, LayoutIomode4::Rw).unwrap();
    assert_eq!(status_of(client.set_size(&file.handle, file.stateid, 1 << 30)), NfsStat4::DQuot);
    assert_eq!(client.attributes(&file.handle, &[number::SIZE]).unwrap().size, Some(0));
}

#[test]
fn within_a_tree_that_has_a_quota_the_file_system_is_as_large_as_that() {
    let (instance, server) = Server::start();
    let (dir, mut client) = with_directory(&server);
    let below = client.mkdir(&dir, "below", 0o755).unwrap();
    let file = client.create(&below, "f").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, &[1; 3000]).unwrap();
    forebay(&instance, &["quota", "set", "--tree", "/dir", "--bytes-hard", "1M", "--files-hard", "10"]);
    let wanted = [
        number::SPACE_TOTAL,
        number::SPACE_FREE,
        number::SPACE_AVAIL,
        number::FILES_TOTAL,
        number::FILES_FREE,
        number::FILES_AVAIL,
    ];
    for within in [&dir, &below, &file.handle] {
        let told = client.attributes(within, &wanted).unwrap();
        let left = Some((1 << 20) - 3000);
        assert_eq!((told.space_total, told.space_free, told.space_avail), (Some(1 << 20), left, left));
        assert_eq!((told.files_total, told.files_free, told.files_avail), (Some(10), Some(8), Some(8)));
    }
    let root = client.root().unwrap();
    assert!(client.attributes(&root, &wanted).unwrap().space_total > Some(1 << 20));
    let used = forebay(&instance, &["du", "/", "--depth", "2"]);
    let lines: Vec<Vec<&str>> = used.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines,
        [["2.9K", "1", "2", "/"], ["2.9K", "1", "1", "/dir"], ["2.9K", "1", "0", "/dir/below"]]
    );
}

#[test]
fn quotas_are_set_shown_and_counted_on_a_stopped_instance_as_on_a_running_one() {
    let (instance, server) = Server::start();
    let (dir, mut client) = with_directory(&server);
    client.create(&dir, "f").unwrap();
    forebay(&instance, &["quota", "set", "--tree", "/dir", "--files-soft", "5"]);
    let running = forebay(&instance, &["quota", "list", "--json"]);
    assert!(running.contains("\"path\": \"/dir\"") && running.contains("\"soft\": 5"), "{running}");
    // As a crash leaves it: the counts are in the journal.
    server.kill();
    assert_eq!(forebay(&instance, &["quota", "list", "--json"]), running);
    forebay(&instance, &["quota", "set", "--group", "7", "--bytes-hard", "0", "--bytes-soft", "1G"]);
    let shown = forebay(&instance, &["quota", "list"]);
    assert_eq!(shown.lines().count(), 3, "{shown}");
    let refused = instance.run(&["quota", "set", "--tree", "/nowhere", "--files-hard", "5"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(message, "forebay: /nowhere: no such entry\n");
    let unknown = instance.run(&["quota", "show", "--user", "nobody-has-this-name"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("give the number"));
}
