//! An open file and the way to its bytes.

use anyhow::{Context, Result, bail};
use nfs4::attr::number;
use nfs4::{
    Bitmap4, ClientId4, Close4Args, Component4, CreateHow4, FfDataServer4, FfLayout4, FfLayoutReturn4,
    FileAttributes, GetAttr4Args, LayoutCommit4Args, LayoutGet4Args, LayoutGet4Res, LayoutIomode4,
    LayoutReturn4, LayoutReturn4Args, LayoutReturnFile4, LayoutType4, LayoutUpdate4, NfsArgop4, NfsFh4,
    NfsResop4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_DENY_NONE, Open4Args, OpenClaim4, OpenFlag4, Res, StateId4, StateOwner4, decode_body,
    encode_body,
};
use xdr::Opaque;

use super::super::client::put_fh;
use super::super::wire::Reply;
use super::Through;
use super::mount::Mount;
use super::session::Session;
use crate::blocks::Extent;
use crate::spread::Operation;

/// As much as Linux allows for a layout.
const LAYOUT_BYTES_MAX: u32 = 4096;

/// The way in which a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    pub operation: Operation,
    /// Empties a file that is written.
    pub truncate: bool,
    /// Bytes that a file must have to be read.
    pub file_bytes: u64,
}

pub struct Target {
    mount: Mount,
    file: NfsFh4,
    opened: StateId4,
    pool: Option<AtPool>,
    /// The end of the last byte that was written; `None` if nothing was.
    written_end: Option<u64>,
}

struct AtPool {
    /// Of the session at the pool.
    place: usize,
    layout: StateId4,
    /// A ticket: opaque to everybody but the pool.
    file: NfsFh4,
    stateid: StateId4,
}

impl Target {
    pub fn open(mut mount: Mount, opening: &Opening, name: &str) -> Result<Target> {
        let attributes = NfsArgop4::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[number::SIZE]) });
        let call = vec![put_fh(mount.directory()), open(opening, name), NfsArgop4::GetFh, attributes];
        let reply = mount.head().call(call).with_context(|| format!("cannot open {name}"))?;
        let (file, opened, size) = results_of_open(&reply)?;
        if opening.operation == Operation::Read && size < opening.file_bytes {
            bail!("{name} has {size} of {} bytes: write it first", opening.file_bytes);
        }
        let pool = match mount.through() {
            Through::Head => None,
            Through::Pool => Some(AtPool::open(&mut mount, opening.operation, (&file, opened))?),
        };
        Ok(Target { mount, file, opened, pool, written_end: None })
    }

    /// The session of READ and WRITE.
    pub fn session(&mut self) -> &mut Session {
        match &self.pool {
            Some(pool) => self.mount.pool(pool.place),
            None => self.mount.head(),
        }
    }

    /// Slots of that session.
    pub fn slots(&mut self) -> usize {
        self.session().slots()
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
            self.mount.head().call(Vec::new())?;
        }
        Ok(())
    }

    /// Tells the head the end of the file, gives back the layout, closes. The sessions stay.
    pub fn close(mut self) -> Result<Mount> {
        let head = self.mount.head();
        if let Some(pool) = self.pool {
            if let Some(end) = self.written_end {
                head.call(vec![put_fh(&self.file), layout_commit(pool.layout, end)])?;
            }
            head.call(vec![put_fh(&self.file), layout_return(pool.layout)])?;
        }
        let close = NfsArgop4::Close(Close4Args { seqid: 0, open_stateid: self.opened });
        head.call(vec![put_fh(&self.file), close])?;
        Ok(self.mount)
    }
}

impl AtPool {
    fn open(mount: &mut Mount, operation: Operation, (file, opened): (&NfsFh4, StateId4)) -> Result<AtPool> {
        let iomode = match operation {
            Operation::Read => LayoutIomode4::Read,
            Operation::Write => LayoutIomode4::Rw,
        };
        let reply = mount.head().call(vec![put_fh(file), layout_get(opened, iomode)]);
        let reply = reply.context("no layout of the file is granted; --through head needs none")?;
        let (layout, server) = data_server(&reply)?;
        Ok(AtPool {
            place: mount.pool_of(&server)?,
            layout,
            file: server.fh_vers.first().cloned().context("the layout has no file handle")?,
            stateid: server.stateid,
        })
    }
}

/// To write, the file is made if it is not there.
fn open(opening: &Opening, name: &str) -> NfsArgop4 {
    let (access, openhow) = match opening.operation {
        Operation::Read => (OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate),
        Operation::Write => {
            let size = opening.truncate.then_some(0);
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

/// The file handle, the stateid and the size.
fn results_of_open(reply: &Reply) -> Result<(NfsFh4, StateId4, u64)> {
    let (mut file, mut opened, mut size) = (None, None, None);
    for result in &reply.results {
        match result {
            NfsResop4::Open(Res::Ok(body)) => opened = Some(body.stateid),
            NfsResop4::GetFh(Res::Ok(body)) => file = Some(body.object.clone()),
            NfsResop4::GetAttr(Res::Ok(body)) => size = FileAttributes::decode(&body.obj_attributes)?.size,
            _ => {}
        }
    }
    let size = size.context("the file has no size")?;
    Ok((file.context("the reply lacks GETFH")?, opened.context("the reply lacks OPEN")?, size))
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
