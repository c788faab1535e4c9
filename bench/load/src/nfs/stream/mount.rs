//! The sessions of one client: at the server that would be mounted, and at each pool that a layout has named.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};
use nfs4::{
    Bitmap4, Component4, DeviceId4, EXCHGID4_FLAG_USE_NON_PNFS, EXCHGID4_FLAG_USE_PNFS_DS,
    EXCHGID4_FLAG_USE_PNFS_MDS, FfDataServer4, FfDeviceAddr4, GetDeviceInfo4Args, GetDeviceInfo4Res,
    LayoutType4, Lookup4Args, NetAddr4, NfsArgop4, NfsFh4, NfsResop4, Remove4Args, decode_body,
};
use xdr::Opaque;

use super::super::client::{handle, put_fh};
use super::session::{Identity, Session};
use super::{Through, Way};

const DEVICE_BYTES_MAX: u32 = 1 << 20;
/// The session at the head of a client that goes to a pool has one request under way.
const HEAD_SLOTS: u32 = 1;
/// The minor version of data servers in our layouts and in those of Linux.
const POOL_MINOR_VERSION: u32 = 1;

pub struct Mount {
    head: Session,
    identity: Identity,
    through: Through,
    /// Asked for in the session of READ and WRITE.
    slots: u32,
    directory: NfsFh4,
    pools: Vec<Pool>,
}

struct Pool {
    device: DeviceId4,
    identity: Identity,
    session: Session,
}

impl Mount {
    /// `nonce` is the name of the client.
    pub fn open(way: &Way, nonce: u64, directory: &[String]) -> Result<Mount> {
        let is_through_pool = way.through == Through::Pool;
        let identity = Identity {
            nonce,
            minor_version: way.minor_version,
            flags: if is_through_pool { EXCHGID4_FLAG_USE_PNFS_MDS } else { EXCHGID4_FLAG_USE_NON_PNFS },
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        };
        let slots = if is_through_pool { HEAD_SLOTS } else { way.slots };
        let mut head = Session::open(&way.server, &identity, slots)?;
        let directory = walk(&mut head, directory)?;
        Ok(Mount { head, identity, through: way.through, slots: way.slots, directory, pools: Vec::new() })
    }

    pub fn head(&mut self) -> &mut Session {
        &mut self.head
    }

    pub fn through(&self) -> Through {
        self.through
    }

    /// The directory of the files.
    pub fn directory(&self) -> &NfsFh4 {
        &self.directory
    }

    pub fn pool(&mut self, place: usize) -> &mut Session {
        &mut self.pools[place].session
    }

    /// The place of the session at this data server, which is made if it is the first one.
    pub fn pool_of(&mut self, server: &FfDataServer4) -> Result<usize> {
        let identity = Identity {
            minor_version: POOL_MINOR_VERSION,
            flags: EXCHGID4_FLAG_USE_PNFS_DS,
            uid: number_of(&server.user)?,
            gid: number_of(&server.group)?,
            ..self.identity
        };
        let is_same = |pool: &Pool| pool.device == server.deviceid && pool.identity == identity;
        if let Some(place) = self.pools.iter().position(is_same) {
            return Ok(place);
        }
        let address = address_of(&mut self.head, server.deviceid)?;
        let session = Session::open(&address.to_string(), &identity, self.slots)?;
        self.pools.push(Pool { device: server.deviceid, identity, session });
        Ok(self.pools.len() - 1)
    }

    pub fn remove(&mut self, name: &str) -> Result<()> {
        let remove = NfsArgop4::Remove(Remove4Args { target: Component4::from(name) });
        let reply = self.head.call(vec![put_fh(&self.directory), remove]);
        reply.with_context(|| format!("cannot remove {name}")).map(drop)
    }

    pub fn close(self) -> Result<()> {
        self.pools.into_iter().try_for_each(|pool| pool.session.close())?;
        self.head.close()
    }
}

fn walk(head: &mut Session, directory: &[String]) -> Result<NfsFh4> {
    let mut at = handle(&head.call(vec![NfsArgop4::PutRootFh, NfsArgop4::GetFh])?)?;
    for name in directory {
        let lookup = NfsArgop4::Lookup(Lookup4Args { objname: Component4::from(name.as_str()) });
        let reply = head.call(vec![put_fh(&at), lookup, NfsArgop4::GetFh]);
        at = handle(&reply.with_context(|| format!("cannot look up the directory {name}"))?)?;
    }
    Ok(at)
}

fn address_of(head: &mut Session, device: DeviceId4) -> Result<SocketAddr> {
    let reply = head.call(vec![NfsArgop4::GetDeviceInfo(GetDeviceInfo4Args {
        device_id: device,
        layout_type: LayoutType4::FLEX_FILES,
        maxcount: DEVICE_BYTES_MAX,
        notify_types: Bitmap4::EMPTY,
    })])?;
    let Some(NfsResop4::GetDeviceInfo(GetDeviceInfo4Res::Ok(info))) = reply.results.last() else {
        bail!("the reply lacks GETDEVICEINFO");
    };
    let device: FfDeviceAddr4 = decode_body(&info.device_addr.addr_body)?;
    device.netaddrs.iter().find_map(socket_address).context("the device has no address of TCP")
}

/// RFC 5665: the port is the last two octets.
fn socket_address(netaddr: &NetAddr4) -> Option<SocketAddr> {
    let (rest, low) = netaddr.addr.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let ip: IpAddr = ip.parse().ok()?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip, port))
}

/// Users of a layout are decimal numbers, as Linux wants them.
fn number_of(principal: &Opaque) -> Result<u32> {
    let text = String::from_utf8_lossy(principal);
    text.parse().with_context(|| format!("the layout names a user that is no number: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_octets_of_an_address_are_the_port() {
        let of = |addr: &str| socket_address(&NetAddr4 { netid: "tcp".into(), addr: addr.into() });
        assert_eq!(of("10.0.0.1.8.1"), "10.0.0.1:2049".parse().ok());
        assert_eq!(of("fd00::1.80.11"), "[fd00::1]:20491".parse().ok());
        assert_eq!((of("10.0.0.1.8.256"), of("")), (None, None));
    }

    #[test]
    fn a_user_of_a_layout_is_a_decimal_number() {
        assert_eq!(number_of(&Opaque::from("65534")).unwrap(), 65_534);
        assert!(number_of(&Opaque::from("root@localdomain")).is_err());
    }
}
