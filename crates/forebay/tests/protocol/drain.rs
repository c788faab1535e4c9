//! Pools that are taken out of use: their layouts come back, nobody is sent there any more, and the devices go (RFC 8881
//! §12.5.5, §20.12).

use std::time::{Duration, Instant};

use nfs4::{
    Bitmap4, CbLayoutRecall4Args, DeviceId4, FfLayoutReturn4, LayoutIomode4, LayoutRecall4, LayoutReturn4,
    LayoutType4, NOTIFY_DEVICEID4_DELETE, NfsCbArgop4, NfsStat4, Notify4, NotifyDeviceIdDelete4, StableHow4,
};
use testkit::nfs_client::{Answer, ClientError, Layout, NfsClient, OpenFile, ops};
use xdr::to_bytes;

use crate::server::{Instance, Server, Setup, status_of};

const WAIT: Duration = Duration::from_secs(20);

fn pool_command(instance: &Instance, command: &[&str]) -> String {
    let output = instance.run(&[&["pool"], command].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn wait_until_drained(instance: &Instance, pool: &str) {
    let (deadline, line) = (Instant::now() + WAIT, format!("{pool}  drained"));
    while !pool_command(instance, &["list"]).contains(&line) {
        assert!(Instant::now() < deadline, "the pool is never empty");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn with_layout(server: &Server) -> (NfsClient, OpenFile, Layout) {
    let mut client = server.client("holder");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"bytes").unwrap();
    let layout = layout_of(&mut client, &file).unwrap();
    (client, file, layout)
}

fn layout_of(client: &mut NfsClient, file: &OpenFile) -> Result<Layout, ClientError> {
    client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw)
}

/// Waits for the notification that a device is gone.
fn deleted_device(client: &NfsClient) -> DeviceId4 {
    loop {
        let compound = client.callbacks.wait(WAIT).expect("the device's end is told");
        for operation in compound.argarray {
            let NfsCbArgop4::NotifyDeviceId(told) = operation else { continue };
            let [Notify4 { mask, vals }] = &told.changes[..] else { panic!("{told:?}") };
            assert_eq!(*mask, Bitmap4::of(&[NOTIFY_DEVICEID4_DELETE]));
            let bytes: [u8; 16] = vals.0[4..].try_into().unwrap();
            let deleted =
                NotifyDeviceIdDelete4 { layout_type: LayoutType4::FLEX_FILES, deviceid: DeviceId4(bytes) };
            assert_eq!(vals.0, to_bytes(&deleted));
            return deleted.deviceid;
        }
    }
}

#[test]
fn a_drained_pool_gets_its_layouts_back_and_its_files_go_through_the_head() {
    let (instance, server) = Server::start();
    let (mut client, file, layout) = with_layout(&server);
    assert!(pool_command(&instance, &["drain", "pool-0", "--keep-files"]).contains("draining"));
    let refused = status_of(layout_of(&mut client, &file));
    assert!(matches!(refused, NfsStat4::LayoutUnavailable | NfsStat4::RecallConflict), "{refused}");
    let recall = client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    assert!(recall.changed, "the client is not to write there any more");
    let LayoutRecall4::File(recalled) = recall.recall else { panic!("{recall:?}") };
    assert_eq!((&recalled.fh, recalled.stateid.other), (&file.handle, layout.stateid.other));
    client.layout_return(&file.handle, recalled.stateid, &FfLayoutReturn4::default()).unwrap();

    wait_until_drained(&instance, "pool-0");
    assert_eq!(status_of(layout_of(&mut client, &file)), NfsStat4::LayoutUnavailable);
    assert_eq!(&client.read(&file.handle, file.stateid, 0, 10).unwrap().data[..], b"bytes");
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"other").unwrap();
}

#[test]
fn a_client_that_keeps_a_layout_of_a_drained_pool_is_fenced_off() {
    let configuration = "[nfs.delegations]\nrecall_s = 2";
    let (instance, server) = Server::start_with(Setup { configuration, ..Setup::default() });
    let (mut client, file, layout) = with_layout(&server);
    let mut data_server = client.data_server(&layout).unwrap();
    pool_command(&instance, &["drain", "0", "--keep-files"]);
    wait_until_drained(&instance, "pool-0");
    let stateid = layout.data_server().stateid;
    let written = data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, b"no");
    assert_eq!(status_of(written), NfsStat4::Stale);
    assert_eq!(&client.read(&file.handle, file.stateid, 0, 10).unwrap().data[..], b"bytes");
}

#[test]
fn new_files_go_to_the_pools_that_are_left_and_with_none_left_there_is_no_space() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let mut client = server.client("host");
    let root = client.root().unwrap();
    pool_command(&instance, &["drain", "pool-0", "--keep-files"]);
    let mut devices = Vec::new();
    for number in 0..8 {
        let file = client.create(&root, &format!("file-{number}")).unwrap();
        devices.push(layout_of(&mut client, &file).unwrap().device());
    }
    assert!(devices.iter().all(|device| device.0[..4] == 1_u32.to_be_bytes()), "{devices:?}");
    pool_command(&instance, &["drain", "pool-1", "--keep-files"]);
    assert_eq!(status_of(client.create(&root, "none")), NfsStat4::NoSpc);
    pool_command(&instance, &["enable", "pool-0"]);
    client.create(&root, "again").unwrap();
}

#[test]
fn a_device_that_goes_is_told_to_who_asked_and_its_id_never_comes_again() {
    let (instance, server) = Server::start();
    let (mut client, file, layout) = with_layout(&server);
    client.device_info(layout.device()).unwrap();
    pool_command(&instance, &["drain", "pool-0", "--keep-files"]);
    client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    let current = nfs4::StateId4 { seqid: layout.stateid.seqid + 1, ..layout.stateid };
    let old = client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default());
    assert_eq!(status_of(old), NfsStat4::OldStateId);
    client.layout_return(&file.handle, current, &FfLayoutReturn4::default()).unwrap();
    assert_eq!(deleted_device(&client), layout.device());
    let gone = client.call(&[ops::get_device_info(layout.device(), 4096)]);
    assert_eq!(status_of(gone), NfsStat4::NoEnt);

    pool_command(&instance, &["enable", "pool-0"]);
    let again = layout_of(&mut client, &file).unwrap();
    assert_ne!(again.device(), layout.device());
    client.device_info(again.device()).unwrap();
    assert_ne!(again.ticket(), layout.ticket(), "a client that returns a recalled layout is fenced off");
}

#[test]
fn a_pool_stays_drained_over_a_restart_and_can_be_enabled_on_a_stopped_instance() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    pool_command(&instance, &["drain", "pool-1", "--keep-files"]);
    server.kill();
    let listed = pool_command(&instance, &["list"]);
    assert_eq!(listed, "pool    state\npool-0  enabled\npool-1  drained\n");
    let server = instance.up();
    // It looks first whether anybody has something there.
    wait_until_drained(&instance, "pool-1");
    assert_eq!(pool_command(&instance, &["list"]), "pool    state\npool-0  enabled\npool-1  drained\n");
    server.kill();
    pool_command(&instance, &["enable", "1"]);
    let unknown = instance.run(&["pool", "drain", "pool-2"]);
    assert!(!unknown.status.success() && String::from_utf8_lossy(&unknown.stderr).contains("no pool-2"));
    let _server = instance.up();
    assert_eq!(pool_command(&instance, &["list"]), "pool    state\npool-0  enabled\npool-1  enabled\n");
}

/// More than are asked for one by one.
const MANY: usize = 100;

/// A client with layouts of many files at pool 0, and of one at pool 1.
struct Crowd {
    client: NfsClient,
    here: Vec<(OpenFile, Layout)>,
    elsewhere: OpenFile,
}

fn with_many_layouts(server: &Server) -> Crowd {
    with_many_layouts_to(LayoutIomode4::Rw, server)
}

fn with_many_layouts_to(mode: LayoutIomode4, server: &Server) -> Crowd {
    let mut client = server.client("holder");
    let root = client.root().unwrap();
    let (mut here, mut elsewhere) = (Vec::new(), None);
    for number in 0.. {
        let file = client.create(&root, &format!("file-{number}")).unwrap();
        let layout = client.layout_get(&file.handle, file.stateid, mode).unwrap();
        match layout.device().0[..4] {
            [0, 0, 0, 0] => here.push((file, layout)),
            _ => elsewhere = Some(file),
        }
        if here.len() == MANY && elsewhere.is_some() {
            break;
        }
    }
    Crowd { client, here, elsewhere: elsewhere.expect("the loop ended") }
}

fn layout_recalls(client: &NfsClient) -> Vec<CbLayoutRecall4Args> {
    let operations = client.callbacks.seen().into_iter().flat_map(|compound| compound.argarray);
    operations
        .filter_map(|operation| match operation {
            NfsCbArgop4::LayoutRecall(recall) => Some(recall),
            _ => None,
        })
        .collect()
}

/// Writes by the ticket of a layout over a connection that was made while the device was known.
fn write_by(data_server: &mut NfsClient, layout: &Layout) -> NfsStat4 {
    let stateid = layout.data_server().stateid;
    let written = data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, b"bytes");
    written.map_or_else(|error| status_of::<()>(Err(error)), |_| NfsStat4::Ok)
}

#[test]
fn a_client_with_many_layouts_at_a_drained_pool_gets_one_recall_and_returns_all_at_once() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let Crowd { mut client, here, elsewhere } = with_many_layouts(&server);
    pool_command(&instance, &["drain", "pool-0", "--keep-files"]);
    let recall = client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    assert_eq!(
        (recall.recall, recall.iomode, recall.changed),
        (LayoutRecall4::All, LayoutIomode4::Any, true)
    );
    let refused = status_of(layout_of(&mut client, &elsewhere));
    assert_eq!(refused, NfsStat4::RecallConflict, "until all have come back, at other pools as well");
    client.call(&[ops::layout_return_many(LayoutReturn4::All)]).unwrap();
    layout_of(&mut client, &elsewhere).unwrap();
    wait_until_drained(&instance, "pool-0");
    assert_eq!(layout_recalls(&client).len(), 1);
    let (file, _) = &here[0];
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"through the head").unwrap();
}

#[test]
fn a_client_that_has_forgotten_its_many_layouts_is_fenced_off_at_once() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let Crowd { mut client, here, elsewhere } = with_many_layouts(&server);
    let (_, last) = &here[MANY - 1];
    let mut data_server = client.data_server(last).unwrap();
    assert_eq!(write_by(&mut data_server, last), NfsStat4::Ok);
    // As Linux does: first its last calls are to end.
    client.callbacks.answer_once(Answer::Status(NfsStat4::Delay));
    client.callbacks.answer_once(Answer::Status(NfsStat4::NoMatchingLayout));
    pool_command(&instance, &["drain", "pool-0", "--keep-files"]);
    wait_until_drained(&instance, "pool-0");
    let recalls = layout_recalls(&client);
    assert!(
        recalls.len() == 2 && recalls.iter().all(|recall| recall.recall == LayoutRecall4::All),
        "{recalls:?}"
    );
    layout_of(&mut client, &elsewhere).unwrap();
    assert_eq!(write_by(&mut data_server, last), NfsStat4::Stale);
}

#[test]
fn a_client_that_never_answers_a_recall_of_its_many_layouts_loses_them_in_time() {
    let configuration = "[nfs.delegations]\nrecall_s = 2";
    let (instance, server) = Server::start_with(Setup { pools: 2, configuration, ..Setup::default() });
    let Crowd { mut client, here, elsewhere } = with_many_layouts(&server);
    let (_, last) = &here[MANY - 1];
    let mut data_server = client.data_server(last).unwrap();
    client.callbacks.answer_once(Answer::Silence);
    pool_command(&instance, &["drain", "pool-0", "--keep-files"]);
    wait_until_drained(&instance, "pool-0");
    assert_eq!(layout_recalls(&client).len(), 1);
    layout_of(&mut client, &elsewhere).unwrap();
    assert_eq!(write_by(&mut data_server, last), NfsStat4::Stale);
}

#[test]
fn a_client_that_has_not_answered_for_all_layouts_gets_no_new_one_though_each_is_back() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    // Layouts to read: a return of one to write waits for a fence, and all are to be back before the server stops waiting
    // for the answer (5 s).
    let Crowd { mut client, here, elsewhere } = with_many_layouts_to(LayoutIomode4::Read, &server);
    client.callbacks.answer_once(Answer::Silence);
    pool_command(&instance, &["drain", "pool-0", "--keep-files"]);
    client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    for (file, layout) in &here {
        client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
    }
    wait_until_drained(&instance, "pool-0");
    assert_eq!(status_of(layout_of(&mut client, &elsewhere)), NfsStat4::RecallConflict);
    client.call(&[ops::layout_return_many(LayoutReturn4::All)]).unwrap();
    layout_of(&mut client, &elsewhere).unwrap();
}

#[test]
fn a_client_that_does_not_support_a_recall_of_all_layouts_gets_a_recall_for_each() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let Crowd { mut client, here, .. } = with_many_layouts(&server);
    client.callbacks.answer_once(Answer::Status(NfsStat4::NotSupp));
    pool_command(&instance, &["drain", "pool-0", "--keep-files"]);
    let first = client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    assert_eq!(first.recall, LayoutRecall4::All);
    for _ in 0..MANY {
        let recall = client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes for each");
        let LayoutRecall4::File(recalled) = recall.recall else { panic!("{recall:?}") };
        assert!(here.iter().any(|(file, layout)| {
            let next = nfs4::StateId4 { seqid: layout.stateid.seqid + 1, ..layout.stateid };
            (&recalled.fh, recalled.stateid) == (&file.handle, next)
        }));
        client.layout_return(&recalled.fh, recalled.stateid, &FfLayoutReturn4::default()).unwrap();
    }
    wait_until_drained(&instance, "pool-0");
    assert_eq!(layout_recalls(&client).len(), 1 + MANY);
}
