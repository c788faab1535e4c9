//! Devices: how a client finds the data server of a pool (RFC 8435 §4), and GETDEVICEINFO.
//!
//! A device id names (pool, address, start of the head). Clients cache devices for the life of the mount, so an id is
//! never used for another address; and since Linux shuns a device it could not reach for 120 s, a head that was
//! restarted hands out fresh ones.

use std::net::{IpAddr, SocketAddr};

use nfs4::{
    Bitmap4, DeviceId4, FfDeviceAddr4, FfDeviceVersions4, GetDeviceInfo4Args, GetDeviceInfo4Res,
    GetDeviceInfo4ResOk, LayoutType4, NOTIFY_DEVICEID4_CHANGE, NOTIFY_DEVICEID4_DELETE, NetAddr4, NfsStat4,
};
use types::PoolId;
use xdr::to_bytes;

use super::Head;
use crate::IO_BYTES_MAX;
use crate::context::Compound;
use crate::transport::Connection;

/// Echoed whole, or Linux refetches the device with every layout (`_nfs4_proc_getdeviceinfo` sets nocache).
const NOTIFICATIONS: Bitmap4 = Bitmap4::of(&[NOTIFY_DEVICEID4_CHANGE, NOTIFY_DEVICEID4_DELETE]);

/// Where this client reaches the pool: a data server that listens everywhere is reached as the head was.
pub(super) fn address(head: &Head, connection: &Connection, pool: PoolId) -> Option<SocketAddr> {
    let (_, listening) = head.pool_addresses.iter().find(|(id, _)| *id == pool)?;
    if listening.ip().is_unspecified() {
        return Some(SocketAddr::new(connection.local().ip(), listening.port()));
    }
    Some(*listening)
}

pub(super) fn id(head: &Head, pool: PoolId, address: SocketAddr) -> DeviceId4 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&pool.0.to_be_bytes());
    bytes[4..8].copy_from_slice(&head.generation.to_be_bytes());
    bytes[8..].copy_from_slice(&head.key.authenticate::<8>(universal_address(address).addr.as_bytes()));
    DeviceId4(bytes)
}

/// The pool a device id of this start names.
pub(super) fn pool(device: DeviceId4) -> PoolId {
    PoolId(u32::from_be_bytes([device.0[0], device.0[1], device.0[2], device.0[3]]))
}

pub(super) fn info(compound: &Compound<'_>, head: &Head, args: &GetDeviceInfo4Args) -> GetDeviceInfo4Res {
    if args.layout_type != LayoutType4::FLEX_FILES {
        return GetDeviceInfo4Res::Err(NfsStat4::UnknownLayoutType);
    }
    let pool = pool(args.device_id);
    let known =
        address(head, compound.connection, pool).filter(|address| id(head, pool, *address) == args.device_id);
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
    let result = GetDeviceInfo4ResOk {
        device_addr: device.to_device_addr(),
        notification: args.notify_types.intersect(&NOTIFICATIONS),
    };
    // RFC 8881 §18.40.3: maxcount bounds the whole result; zero asks for notifications only.
    let bytes = to_bytes(&result).len() as u32;
    if args.maxcount != 0 && bytes > args.maxcount {
        return GetDeviceInfo4Res::TooSmall { mincount: bytes };
    }
    GetDeviceInfo4Res::Ok(result)
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
    fn a_port_is_two_octets_behind_the_address() {
        let of = |text: &str| universal_address(text.parse().unwrap());
        assert_eq!(of("10.0.0.1:2049"), NetAddr4 { netid: "tcp".into(), addr: "10.0.0.1.8.1".into() });
        assert_eq!(of("[fd00::1]:20491"), NetAddr4 { netid: "tcp6".into(), addr: "fd00::1.80.11".into() });
        assert_eq!(of("[::ffff:10.0.0.1]:1").netid, "tcp");
    }
}
