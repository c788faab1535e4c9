//! Devices: how a client finds the data server of a pool (RFC 8435 §4), and GETDEVICEINFO.
//!
//! A device id names (pool, address, generation). Clients cache devices for the life of the mount, so an id is never
//! used for another address; and since Linux shuns a device it could not reach for 120 s, a head that was restarted
//! hands out fresh ones. An address that changes makes another device, so there is no CHANGE to notify of: the old id is
//! not found any more (NOENT), the next layout names the new one, and a client that has cached the old device goes on to the
//! old address until it returns its layout, which it does at the latest when nobody answers there. When a pool
//! has been closed to clients and is empty, its device goes: clients that asked for it are notified
//! (CB_NOTIFY_DEVICEID, RFC 8881 §20.12), and when the pool is opened again its device has a new id.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nfs4::{
    Bitmap4, ClientId4, DeviceId4, FfDeviceAddr4, FfDeviceVersions4, GetDeviceInfo4Args, GetDeviceInfo4Res,
    GetDeviceInfo4ResOk, LayoutType4, NOTIFY_DEVICEID4_CHANGE, NOTIFY_DEVICEID4_DELETE, NetAddr4, NfsStat4,
};
use parking_lot::Mutex;
use types::PoolId;
use xdr::to_bytes;

use super::clients::Clients;
use crate::NAME;
use crate::context::Compound;
use crate::limits::IO_BYTES_MAX;
use crate::transport::Connection;

/// Echoed whole, or Linux refetches the device with every layout (`_nfs4_proc_getdeviceinfo` sets nocache).
const NOTIFICATIONS: Bitmap4 = Bitmap4::of(&[NOTIFY_DEVICEID4_CHANGE, NOTIFY_DEVICEID4_DELETE]);

/// More than pools and addresses of the head that a client uses; beyond it devices come without notifications.
const DEVICES_PER_CLIENT_MAX: usize = 1024;
const NOTIFY_PATIENCE: Duration = Duration::from_secs(10);

/// The pools as devices.
pub(crate) struct Devices {
    clients: Arc<Clients>,
    /// Changes with every start: part of device ids, so that none is ever reused for another address.
    generation: u32,
    /// Leaf lock.
    known: Mutex<KnownDevices>,
}

impl Devices {
    pub fn new(clients: Arc<Clients>, generation: u32) -> Devices {
        Devices { clients, generation, known: Mutex::default() }
    }

    /// Where this client reaches the pool now: a data server that listens everywhere is reached as the head was.
    pub fn address(&self, connection: &Connection, pool: PoolId) -> Option<SocketAddr> {
        let listening = self.clients.fs.files.pools().address(pool, NAME)?;
        if listening.ip().is_unspecified() {
            return Some(SocketAddr::new(connection.local().ip(), listening.port()));
        }
        Some(listening)
    }

    pub fn id(&self, pool: PoolId, address: SocketAddr) -> DeviceId4 {
        let generation = self.generation.wrapping_add(self.known.lock().forgotten(pool));
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&pool.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&generation.to_be_bytes());
        bytes[8..].copy_from_slice(
            &self.clients.fs.handle_key.authenticate::<8>(universal_address(address).addr.as_bytes()),
        );
        DeviceId4(bytes)
    }

    /// Forgets the pool's device, at which no client has a layout any more.
    pub fn forget(&self, pool: PoolId) {
        let known = self.known.lock().forget(pool);
        for (client, device) in known {
            let sessions = Arc::clone(&self.clients.sessions);
            self.clients.spawn_call(async move {
                let told = sessions.callbacks.notify_device_deleted(client, device, NOTIFY_PATIENCE).await;
                // Nothing depends on it: the id never comes again.
                tracing::debug!(client = client.0, %pool, ?told, "told that a device is gone");
            });
        }
    }

    pub fn forget_client(&self, client: ClientId4) {
        self.known.lock().forget_client(client);
    }
}

/// The pool a device id of this start names.
pub(super) fn pool(device: DeviceId4) -> PoolId {
    PoolId(u32::from_be_bytes([device.0[0], device.0[1], device.0[2], device.0[3]]))
}

pub(super) fn info(compound: &Compound, devices: &Devices, args: &GetDeviceInfo4Args) -> GetDeviceInfo4Res {
    if args.layout_type != LayoutType4::FLEX_FILES {
        return GetDeviceInfo4Res::Err(NfsStat4::UnknownLayoutType);
    }
    let pool = pool(args.device_id);
    let known = devices.address(&compound.caller.connection, pool);
    let known = known.filter(|address| devices.id(pool, *address) == args.device_id);
    let Some(address) = known else { return GetDeviceInfo4Res::Err(NfsStat4::NoEnt) };
    let device = FfDeviceAddr4 {
        netaddrs: vec![universal_address(address)],
        versions: vec![FfDeviceVersions4 {
            version: 4,
            minorversion: 1,
            rsize: IO_BYTES_MAX,
            wsize: IO_BYTES_MAX,
            tightly_coupled: true,
        }],
    };
    let mut notification = args.notify_types.intersect(&NOTIFICATIONS);
    if let Some(client) = compound.client.filter(|_| notification.contains(NOTIFY_DEVICEID4_DELETE)) {
        match devices.known.lock().note(client, args.device_id, devices.generation) {
            Ok(true) => {}
            Ok(false) => notification = Bitmap4::EMPTY,
            Err(status) => return GetDeviceInfo4Res::Err(status),
        }
    }
    let result = GetDeviceInfo4ResOk { device_addr: device.to_device_addr(), notification };
    // RFC 8881 §18.40.3: maxcount bounds the whole result; zero asks for notifications only.
    let bytes = to_bytes(&result).len() as u32;
    if args.maxcount != 0 && bytes > args.maxcount {
        return GetDeviceInfo4Res::TooSmall { mincount: bytes };
    }
    GetDeviceInfo4Res::Ok(result)
}

/// Devices that clients know and want to be notified of, and how often each pool's device has gone.
#[derive(Default)]
struct KnownDevices {
    known: BTreeSet<(ClientId4, DeviceId4)>,
    forgotten: BTreeMap<PoolId, u32>,
}

impl KnownDevices {
    /// `false`: the client will not be notified, and does not rely on it. NOENT: the device has gone since it was
    /// looked at, and its clients have been notified already. `generation` is the head's.
    fn note(&mut self, client: ClientId4, device: DeviceId4, generation: u32) -> Result<bool, NfsStat4> {
        let current = generation.wrapping_add(self.forgotten(pool(device)));
        if device.0[4..8] != current.to_be_bytes() {
            return Err(NfsStat4::NoEnt);
        }
        let is_known = self.known.contains(&(client, device));
        let of_client = (client, DeviceId4([0; 16]))..=(client, DeviceId4([u8::MAX; 16]));
        if !is_known && self.known.range(of_client).count() >= DEVICES_PER_CLIENT_MAX {
            return Ok(false);
        }
        self.known.insert((client, device));
        Ok(true)
    }

    fn forgotten(&self, pool: PoolId) -> u32 {
        self.forgotten.get(&pool).copied().unwrap_or(0)
    }

    /// Gives the pool another device. Returns the clients that know the old one.
    fn forget(&mut self, gone: PoolId) -> Vec<(ClientId4, DeviceId4)> {
        let count = self.forgotten.entry(gone).or_default();
        *count = count.wrapping_add(1);
        self.known.extract_if(.., |(_, device)| pool(*device) == gone).collect()
    }

    fn forget_client(&mut self, client: ClientId4) {
        self.known.retain(|(known, _)| *known != client);
    }
}

/// RFC 5665: dotted address, then the port as two decimal octets.
fn universal_address(address: SocketAddr) -> NetAddr4 {
    let (high, low) = (address.port() >> 8, address.port() & 0xff);
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => NetAddr4 { netid: "tcp".into(), addr: format!("{ip}.{high}.{low}") },
        IpAddr::V6(ip) => NetAddr4 { netid: "tcp6".into(), addr: format!("{ip}.{high}.{low}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_has_gone_while_it_was_asked_for_is_noted_for_nobody() {
        const POOL: PoolId = PoolId(3);
        let device = |generation: u32| {
            let mut bytes = [9; 16];
            bytes[..4].copy_from_slice(&POOL.0.to_be_bytes());
            bytes[4..8].copy_from_slice(&generation.to_be_bytes());
            DeviceId4(bytes)
        };
        let (mut devices, client, start) = (KnownDevices::default(), ClientId4(1), u32::MAX);
        assert_eq!(devices.note(client, device(start), start), Ok(true));
        assert_eq!(devices.forget(POOL), [(client, device(start))]);
        assert_eq!(devices.note(client, device(start), start), Err(NfsStat4::NoEnt));
        assert_eq!(devices.forget(POOL), [], "nothing was left behind");
        assert_eq!(devices.note(client, device(1), start), Ok(true), "the one of now");
    }

    #[test]
    fn a_port_is_two_octets_behind_the_address() {
        let of = |text: &str| universal_address(text.parse().unwrap());
        assert_eq!(of("10.0.0.1:2049"), NetAddr4 { netid: "tcp".into(), addr: "10.0.0.1.8.1".into() });
        assert_eq!(of("[fd00::1]:20491"), NetAddr4 { netid: "tcp6".into(), addr: "fd00::1.80.11".into() });
        assert_eq!(of("[::ffff:10.0.0.1]:1").netid, "tcp");
    }
}
