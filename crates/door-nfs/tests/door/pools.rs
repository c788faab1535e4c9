//! Pools that come, go, are disabled and move while clients are served.

use std::net::SocketAddr;
use std::sync::Arc;

use forebay_door_nfs::{Export, NAME, Squash};
use nfs4::{DeviceId4, FfLayoutReturn4, LayoutIomode4, NfsFh4, NfsStat4};
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use testkit::nfs_client::{ClientError, Layout, NfsClient, OpenFile, ops};
use types::PoolId;

use crate::ground::{Ground, LONG, client, status_of};

const FIRST: PoolId = PoolId(0);
const SECOND: PoolId = PoolId(1);

struct Scene {
    pools: Arc<MemoryPools>,
    client: NfsClient,
    root: NfsFh4,
    _ground: Ground,
}

impl Scene {
    /// With one pool, at port 1.
    fn set() -> Scene {
        let pools = Arc::new(MemoryPools::of([Arc::new(MemoryPool::new(FIRST)) as Arc<dyn api::Pool>]));
        pools.list().set_address(FIRST, NAME, at(1)).unwrap();
        let ground = Ground::new();
        let (door, _) = ground.door_over_pools(pools.clone(), vec![Export::of_everything(Squash::None)]);
        let mut client = client(door, "host");
        let root = client.root().unwrap();
        Scene { pools, client, root, _ground: ground }
    }

    fn layout(&mut self, file: &OpenFile) -> Result<Layout, ClientError> {
        self.client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw)
    }

    fn give_back(&mut self, file: &OpenFile, layout: &Layout) {
        self.client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
    }

    /// The address, as RFC 5665 writes it.
    fn address(&mut self, device: DeviceId4) -> Result<String, NfsStat4> {
        match self.client.call(&[ops::get_device_info(device, 4096)]) {
            Ok(_) => Ok(self.client.device_info(device).unwrap().0.netaddrs[0].addr.clone()),
            Err(error) => Err(error.status().unwrap()),
        }
    }
}

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn pool_of(device: DeviceId4) -> u32 {
    u32::from_be_bytes(device.0[..4].try_into().unwrap())
}

#[test]
fn a_pool_that_moves_is_another_device_and_the_old_one_is_not_found_any_more() {
    let mut scene = Scene::set();
    let file = scene.client.create(&scene.root, "file").unwrap();
    let before = scene.layout(&file).unwrap();
    assert_eq!(scene.address(before.device()).as_deref(), Ok("127.0.0.1.0.1"));
    scene.pools.list().set_address(FIRST, NAME, at(0x203)).unwrap();
    assert_eq!(scene.address(before.device()), Err(NfsStat4::NoEnt));
    let after = scene.layout(&file).unwrap();
    assert_ne!(after.device(), before.device());
    assert_eq!(scene.address(after.device()).as_deref(), Ok("127.0.0.1.2.3"));
    assert_eq!(after.ticket(), before.ticket(), "the file has not moved");
}

#[test]
fn a_pool_that_is_added_serves_clients_once_it_has_an_address() {
    let mut scene = Scene::set();
    scene.pools.list().add(Arc::new(MemoryPool::new(SECOND))).unwrap();
    scene.pools.list().set_disabled(FIRST, true).unwrap();
    let file = scene.client.create(&scene.root, "file").unwrap();
    scene.client.write(&file.handle, file.stateid, 0, nfs4::StableHow4::FileSync, b"by the head").unwrap();
    assert_eq!(status_of(scene.layout(&file)), NfsStat4::LayoutUnavailable, "it has no address");
    scene.pools.list().set_address(SECOND, NAME, at(2)).unwrap();
    let layout = scene.layout(&file).unwrap();
    assert_eq!(pool_of(layout.device()), SECOND.0);
    assert_eq!(scene.address(layout.device()).as_deref(), Ok("127.0.0.1.0.2"));
}

#[test]
fn a_disabled_pool_gets_no_client_and_no_file_until_it_is_enabled() {
    let mut scene = Scene::set();
    let file = scene.client.create(&scene.root, "file").unwrap();
    let layout = scene.layout(&file).unwrap();
    scene.give_back(&file, &layout);
    scene.pools.list().set_disabled(FIRST, true).unwrap();
    assert_eq!(status_of(scene.layout(&file)), NfsStat4::LayoutUnavailable);
    assert_eq!(status_of(scene.client.create(&scene.root, "other")), NfsStat4::NoSpc);
    scene.pools.list().set_disabled(FIRST, false).unwrap();
    scene.client.create(&scene.root, "other").unwrap();
    scene.layout(&file).unwrap();
}

/// A disabled pool cannot be told of a fence.
#[test]
fn a_layout_of_a_disabled_pool_is_returned_at_once() {
    let mut scene = Scene::set();
    let file = scene.client.create(&scene.root, "file").unwrap();
    let layout = scene.layout(&file).unwrap();
    scene.pools.list().set_disabled(FIRST, true).unwrap();
    let recalled = scene.client.callbacks.wait_for_layout_recall(LONG).expect("a recall comes");
    assert!(recalled.changed, "the client is not to write there any more");
    let current = nfs4::StateId4 { seqid: layout.stateid.seqid + 1, ..layout.stateid };
    scene.client.layout_return(&file.handle, current, &FfLayoutReturn4::default()).unwrap();
    scene.pools.list().set_disabled(FIRST, false).unwrap();
    scene.layout(&file).unwrap();
}

#[test]
fn layouts_at_a_removed_pool_come_back_and_its_device_goes() {
    let mut scene = Scene::set();
    let file = scene.client.create(&scene.root, "file").unwrap();
    let layout = scene.layout(&file).unwrap();
    scene.client.device_info(layout.device()).unwrap();
    scene.pools.list().remove(FIRST).unwrap();
    assert_eq!(scene.address(layout.device()), Err(NfsStat4::NoEnt));
    let recalled = scene.client.callbacks.wait_for_layout_recall(LONG).expect("a recall comes");
    let nfs4::LayoutRecall4::File(recalled) = recalled.recall else { panic!("{recalled:?}") };
    assert_eq!(recalled.fh, file.handle);
    let current = nfs4::StateId4 { seqid: layout.stateid.seqid + 1, ..layout.stateid };
    scene.client.layout_return(&file.handle, current, &FfLayoutReturn4::default()).unwrap();
    assert_eq!(status_of(scene.layout(&file)), NfsStat4::LayoutUnavailable);
}
