//! Pools that are taken out of use: their layouts come back, nobody is sent there any more, and the devices go (RFC 8881
//! §12.5.5, §20.12).

use std::time::{Duration, Instant};

use nfs4::{
    Bitmap4, DeviceId4, FfLayoutReturn4, LayoutIomode4, LayoutRecall4, LayoutType4, NOTIFY_DEVICEID4_DELETE,
    NfsCbArgop4, NfsStat4, Notify4, NotifyDeviceIdDelete4, StableHow4,
};
use testkit::nfs_client::{ClientError, Layout, NfsClient, OpenFile, ops};
use xdr::to_bytes;

use crate::server::{Instance, Server, Setup, status_of};

const WAIT: Duration = Duration::from_secs(20);

fn pool_command(instance: &Instance, command: &[&str]) -> String {
    let output = instance.run(&[&["pool"], command].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn wait_until_drained(instance: &Instance) {
    let deadline = Instant::now() + WAIT;
    while !pool_command(instance, &["list"]).contains("drained") {
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
    assert!(pool_command(&instance, &["drain", "pool-0"]).contains("draining"));
    let refused = status_of(layout_of(&mut client, &file));
    assert!(matches!(refused, NfsStat4::LayoutUnavailable | NfsStat4::RecallConflict), "{refused}");
    let recall = client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    let LayoutRecall4::File(recalled) = recall.recall else { panic!("{recall:?}") };
    assert_eq!((&recalled.fh, recalled.stateid.other), (&file.handle, layout.stateid.other));
    client.layout_return(&file.handle, recalled.stateid, &FfLayoutReturn4::default()).unwrap();

    wait_until_drained(&instance);
    assert_eq!(status_of(layout_of(&mut client, &file)), NfsStat4::LayoutUnavailable);
    assert_eq!(&client.read(&file.handle, file.stateid, 0, 10).unwrap().data[..], b"bytes");
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"other").unwrap();
}

#[test]
fn who_keeps_a_layout_of_a_drained_pool_is_fenced_off() {
    let configuration = "[nfs.delegations]\nrecall_s = 2";
    let (instance, server) = Server::start_with(Setup { configuration, ..Setup::default() });
    let (mut client, file, layout) = with_layout(&server);
    let mut data_server = client.data_server(&layout).unwrap();
    pool_command(&instance, &["drain", "0"]);
    wait_until_drained(&instance);
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
    pool_command(&instance, &["drain", "pool-0"]);
    let mut devices = Vec::new();
    for number in 0..8 {
        let file = client.create(&root, &format!("file-{number}")).unwrap();
        devices.push(layout_of(&mut client, &file).unwrap().device());
    }
    assert!(devices.iter().all(|device| device.0[..4] == 1_u32.to_be_bytes()), "{devices:?}");
    pool_command(&instance, &["drain", "pool-1"]);
    assert_eq!(status_of(client.create(&root, "none")), NfsStat4::NoSpc);
    pool_command(&instance, &["enable", "pool-0"]);
    client.create(&root, "again").unwrap();
}

#[test]
fn a_device_that_goes_is_told_to_who_asked_and_its_id_never_comes_again() {
    let (instance, server) = Server::start();
    let (mut client, file, layout) = with_layout(&server);
    client.device_info(layout.device()).unwrap();
    pool_command(&instance, &["drain", "pool-0"]);
    client.callbacks.wait_for_layout_recall(WAIT).expect("a recall comes");
    let returned = NfsStat4::OldStateId;
    let current = nfs4::StateId4 { seqid: layout.stateid.seqid + 1, ..layout.stateid };
    assert_eq!(
        status_of(client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default())),
        returned
    );
    client.layout_return(&file.handle, current, &FfLayoutReturn4::default()).unwrap();
    assert_eq!(deleted_device(&client), layout.device());
    let gone = client.call(&[ops::get_device_info(layout.device(), 4096)]);
    assert_eq!(status_of(gone), NfsStat4::NoEnt);

    pool_command(&instance, &["enable", "pool-0"]);
    let again = layout_of(&mut client, &file).unwrap();
    assert_ne!(again.device(), layout.device());
    client.device_info(again.device()).unwrap();
    assert_eq!(again.ticket(), layout.ticket(), "the file has not moved");
}

#[test]
fn what_is_drained_stays_so_over_a_restart_and_is_changed_on_a_stopped_instance_too() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    pool_command(&instance, &["drain", "pool-1"]);
    server.kill();
    let listed = pool_command(&instance, &["list"]);
    assert_eq!(listed, "pool-0    enabled\npool-1    drained\n");
    let server = instance.up();
    assert_eq!(pool_command(&instance, &["list"]).lines().nth(1), Some("pool-1    drained"));
    server.kill();
    pool_command(&instance, &["enable", "1"]);
    let unknown = instance.run(&["pool", "drain", "pool-2"]);
    assert!(!unknown.status.success() && String::from_utf8_lossy(&unknown.stderr).contains("no pool-2"));
    let _server = instance.up();
    assert_eq!(pool_command(&instance, &["list"]), "pool-0    enabled\npool-1    enabled\n");
}
