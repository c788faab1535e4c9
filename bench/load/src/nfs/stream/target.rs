//! An open file and the way to its bytes.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};
use nfs4::attr::number;
use nfs4::{
    Bitmap4, ClientId4, Close4Args, Component4, CreateHow4, DeviceId4, EXCHGID4_FLAG_USE_NON_PNFS,
    EXCHGID4_FLAG_USE_PNFS_DS, EXCHGID4_FLAG_USE_PNFS_MDS, FfDataServer4, FfDeviceAddr4, FfLayout4,
    FfLayoutReturn4, FileAttributes, GetAttr4Args, GetDeviceInfo4Args, GetDeviceInfo4Res, LayoutCommit4Args,
    LayoutGet4Args, LayoutGet4Res, LayoutIomode4, LayoutReturn4, LayoutReturn4Args, LayoutReturnFile4,
    LayoutType4, LayoutUpdate4, Lookup4Args, NetAddr4, NfsArgop4, NfsFh4, NfsResop4, OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_DENY_NONE, Open4Args, OpenClaim4,
    OpenFlag4, Res, StateId4, StateOwner4, decode_body, encode_body,
};
use xdr::Opaque;

use super::super::client::{handle, put_fh};
use super::super::wire::Reply;
use super::session::{Identity, Session};
use super::{Arguments, Operation, Through};
use crate::blocks::Extent;

/// As much as Linux allows for a layout and for the address of a device.
const LAYOUT_BYTES_MAX: u32 = 4096;
const DEVICE_BYTES_MAX: u32 = 1 << 20;
/// The session at the head of a stream that goes to a pool has one request under way.
const HEAD_SLOTS: u32 = 1;
/// The minor version of data servers in our layouts and in those of Linux.
const POOL_MINOR_VERSION: u32 = 1;

/// The client of one stream: its name, and the slots that it asks for.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub nonce: u64,
    pub slots: u32,
}

pub struct Target {
    head: Session,
    file: NfsFh4,
    opened: StateId4,
    pool: Option<AtPool>,
    /// The end of the last byte that was written; `None` if nothing was.
    written_end: Option<u64>,
}

struct AtPool {
    session: Session,
    layout: StateId4,
    /// A ticket: opaque to everybody but the pool.
    file: NfsFh4,
    stateid: StateId4,
}

impl Target {
    pub fn open(arguments: &Arguments, caller: &Caller, directory: &[String], name: &str) -> Result<Target> {
        let is_through_pool = arguments.through == Through::Pool;
        let identity = Identity {
            nonce: caller.nonce,
            minor_version: arguments.minor_version,
            flags: if is_through_pool { EXCHGID4_FLAG_USE_PNFS_MDS } else { EXCHGID4_FLAG_USE_NON_PNFS },
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        };
        let slots = if is_through_pool { HEAD_SLOTS } else { caller.slots };
        let mut head = Session::open(&arguments.server, &identity, slots)?;
        let directory = walk(&mut head, directory)?;
        let reply = head.call(vec![put_fh(&directory), open(arguments, name), NfsArgop4::GetFh]);
        let reply = reply.with_context(|| format!("cannot open {name}"))?;
        let file = handle(&reply)?;
        let opened = stateid_of_open(&reply)?;
        if arguments.operation == Operation::Read {
            let size = size(&mut head, &file)?;
            if size < arguments.file_bytes {
                bail!("{name} has {size} of {} bytes: write it first", arguments.file_bytes);
            }
        }
        let pool = match arguments.through {
            Through::Head => None,
            Through::Pool => {
                Some(AtPool::open(&mut head, &identity, caller.slots, arguments.operation, (&file, opened))?)
            }
        };
        Ok(Target { head, file, opened, pool, written_end: None })
    }

    /// The session of READ and WRITE.
    pub fn session(&mut self) -> &mut Session {
        match &mut self.pool {
            Some(pool) => &mut pool.session,
            None => &mut self.head,
        }
    }

    /// Slots of that session.
    pub fn slots(&self) -> usize {
        self.pool.as_ref().map_or(&self.head, |pool| &pool.session).slots()
    }

    /// The file handle and the stateid of READ and WRITE.
    pub fn place(&self) -> (NfsFh4, StateId4) {
        match &self.pool {
            Some(pool) => (pool.file.clone(), pool.stateid),
            None => (self.file.clone(), self.opened),
        }
    }

    /// Notes what WRITE is sent for, as the head is to know it in the end.
    pub fn note_written(&mut self, extent: Extent) {
        self.written_end = self.written_end.max(Some(extent.offset + u64::from(extent.len)));
    }

    /// Keeps the lease at the head, which sees nothing of what goes to a pool.
    pub fn renew(&mut self) -> Result<()> {
        if self.pool.is_some() {
            self.head.call(Vec::new())?;
        }
        Ok(())
    }

    /// Tells the head the end of the file, gives back the layout, closes.
    pub fn close(mut self) -> Result<()> {
        if let Some(pool) = self.pool {
            if let Some(end) = self.written_end {
                self.head.call(vec![put_fh(&self.file), layout_commit(pool.layout, end)])?;
            }
            self.head.call(vec![put_fh(&self.file), layout_return(pool.layout)])?;
            pool.session.close()?;
        }
        let close = NfsArgop4::Close(Close4Args { seqid: 0, open_stateid: self.opened });
        self.head.call(vec![put_fh(&self.file), close])?;
        self.head.close()
    }
}

impl AtPool {
    fn open(
        head: &mut Session,
        identity: &Identity,
        slots: u32,
        operation: Operation,
        (file, opened): (&NfsFh4, StateId4),
    ) -> Result<AtPool> {
        let iomode = match operation {
            Operation::Read => LayoutIomode4::Read,
            Operation::Write => LayoutIomode4::Rw,
        };
        let reply = head.call(vec![put_fh(file), layout_get(opened, iomode)]);
        let reply = reply.context("no layout of the file is granted; --through head needs none")?;
        let (layout, server) = data_server(&reply)?;
        let address = address_of(head, server.deviceid)?;
        let identity = Identity {
            minor_version: POOL_MINOR_VERSION,
            flags: EXCHGID4_FLAG_USE_PNFS_DS,
            uid: number_of(&server.user)?,
            gid: number_of(&server.group)?,
            ..*identity
        };
        Ok(AtPool {
            session: Session::open(&address.to_string(), &identity, slots)?,
            layout,
            file: server.fh_vers.first().cloned().context("the layout has no file handle")?,
            stateid: server.stateid,
        })
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

/// To write, the file is made if it is not there.
fn open(arguments: &Arguments, name: &str) -> NfsArgop4 {
    let (access, openhow) = match arguments.operation {
        Operation::Read => (OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate),
        Operation::Write => {
            let size = arguments.truncate.then_some(0);
            let attributes = FileAttributes { mode: Some(0o644), size, ..FileAttributes::default() };
            (OPEN4_SHARE_ACCESS_BOTH, OpenFlag4::Create(CreateHow4::Unchecked(attributes.encode_all())))
        }
    };
    NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: access | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner4 { clientid: ClientId4::default(), owner: Opaque::from("stream") },
        openhow,
        claim: OpenClaim4::Null(Component4::from(name)),
    })
}

fn stateid_of_open(reply: &Reply) -> Result<StateId4> {
    let opened = reply.results.iter().find_map(|result| match result {
        NfsResop4::Open(Res::Ok(body)) => Some(body.stateid),
        _ => None,
    });
    opened.context("the reply lacks OPEN")
}

fn size(head: &mut Session, file: &NfsFh4) -> Result<u64> {
    let attr_request = Bitmap4::of(&[number::SIZE]);
    let reply = head.call(vec![put_fh(file), NfsArgop4::GetAttr(GetAttr4Args { attr_request })])?;
    let Some(NfsResop4::GetAttr(Res::Ok(body))) = reply.results.last() else {
        bail!("the reply lacks GETATTR");
    };
    FileAttributes::decode(&body.obj_attributes)?.size.context("the file has no size")
}

/// Of the whole file, as Linux asks.
fn layout_get(stateid: StateId4, iomode: LayoutIomode4) -> NfsArgop4 {
    NfsArgop4::LayoutGet(LayoutGet4Args {
        signal_layout_avail: false,
        layout_type: LayoutType4::FLEX_FILES,
        iomode,
        offset: 0,
        length: u64::MAX,
        minlength: 4096,
        stateid,
        maxcount: LAYOUT_BYTES_MAX,
    })
}

/// The layout's stateid, and the data server of its first mirror.
fn data_server(reply: &Reply) -> Result<(StateId4, FfDataServer4)> {
    let Some(NfsResop4::LayoutGet(LayoutGet4Res::Ok(granted))) = reply.results.last() else {
        bail!("the reply lacks LAYOUTGET");
    };
    let segment = granted.layout.first().context("the layout has no segment")?;
    let body: FfLayout4 = decode_body(&segment.content.body)?;
    let mirror = body.mirrors.first().context("the layout has no mirror")?;
    let server = mirror.data_servers.first().cloned().context("the mirror has no data server")?;
    Ok((granted.stateid, server))
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

fn layout_commit(stateid: StateId4, end: u64) -> NfsArgop4 {
    NfsArgop4::LayoutCommit(LayoutCommit4Args {
        offset: 0,
        length: end,
        reclaim: false,
        stateid,
        last_write_offset: Some(end - 1),
        time_modify: None,
        layoutupdate: LayoutUpdate4 { layout_type: LayoutType4::FLEX_FILES, body: Opaque::new() },
    })
}

fn layout_return(stateid: StateId4) -> NfsArgop4 {
    NfsArgop4::LayoutReturn(LayoutReturn4Args {
        reclaim: false,
        layout_type: LayoutType4::FLEX_FILES,
        iomode: LayoutIomode4::Any,
        layoutreturn: LayoutReturn4::File(LayoutReturnFile4 {
            offset: 0,
            length: u64::MAX,
            stateid,
            body: encode_body(&FfLayoutReturn4::default()),
        }),
    })
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
