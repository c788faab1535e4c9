//! Names, attributes and I/O through the server that the client speaks to.

use nfs4::attr::number;
use nfs4::{
    Commit4ResOk, CreateType4, DirEntry4, FileAttributes, LayoutIomode4, NfsArgop4, NfsFh4,
    OPEN4_SHARE_ACCESS_BOTH, Open4ResOk, OpenFlag4, Read4ResOk, ReadDir4ResOk, StableHow4, StateId4,
    Write4ResOk,
};

use super::{ClientError, NfsClient, Reply, ops};

/// The open owner of the conveniences.
pub const OWNER: &str = "owner";

/// An open file.
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub handle: NfsFh4,
    pub stateid: StateId4,
    pub opened: Open4ResOk,
}

impl NfsClient {
    pub fn root(&mut self) -> Result<NfsFh4, ClientError> {
        handle(&self.call(&[NfsArgop4::PutRootFh, NfsArgop4::GetFh])?)
    }

    pub fn lookup(&mut self, dir: &NfsFh4, name: &str) -> Result<NfsFh4, ClientError> {
        handle(&self.call(&[ops::put_fh(dir), ops::lookup(name), NfsArgop4::GetFh])?)
    }

    pub fn mkdir(&mut self, dir: &NfsFh4, name: &str, mode: u32) -> Result<NfsFh4, ClientError> {
        self.create_object(dir, CreateType4::Dir, name, mode)
    }

    pub fn create_object(
        &mut self,
        dir: &NfsFh4,
        objtype: CreateType4,
        name: &str,
        mode: u32,
    ) -> Result<NfsFh4, ClientError> {
        handle(&self.call(&[ops::put_fh(dir), ops::create(objtype, name, mode), NfsArgop4::GetFh])?)
    }

    pub fn attributes(&mut self, file: &NfsFh4, numbers: &[u32]) -> Result<FileAttributes, ClientError> {
        attributes(&self.call(&[ops::put_fh(file), ops::get_attr(numbers)])?)
    }

    pub fn size(&mut self, file: &NfsFh4) -> Result<u64, ClientError> {
        self.attributes(file, &[number::SIZE])?.size.ok_or(ClientError::Missing("size"))
    }

    pub fn change(&mut self, file: &NfsFh4) -> Result<u64, ClientError> {
        self.attributes(file, &[number::CHANGE])?.change.ok_or(ClientError::Missing("change"))
    }

    pub fn set_attributes(
        &mut self,
        file: &NfsFh4,
        stateid: StateId4,
        attributes: &FileAttributes,
    ) -> Result<(), ClientError> {
        self.call(&[ops::put_fh(file), ops::set_attr(stateid, attributes)]).map(drop)
    }

    pub fn set_size(&mut self, file: &NfsFh4, stateid: StateId4, size: u64) -> Result<(), ClientError> {
        let attributes = FileAttributes { size: Some(size), ..FileAttributes::default() };
        self.set_attributes(file, stateid, &attributes)
    }

    /// Opens a name for reading and writing, and creates the file if there is none.
    pub fn create(&mut self, dir: &NfsFh4, name: &str) -> Result<OpenFile, ClientError> {
        self.open_as(dir, name, OWNER, OPEN4_SHARE_ACCESS_BOTH, ops::unchecked(0o644))
    }

    pub fn open(&mut self, dir: &NfsFh4, name: &str, share_access: u32) -> Result<OpenFile, ClientError> {
        self.open_as(dir, name, OWNER, share_access, OpenFlag4::NoCreate)
    }

    pub fn open_as(
        &mut self,
        dir: &NfsFh4,
        name: &str,
        owner: &str,
        share_access: u32,
        openhow: OpenFlag4,
    ) -> Result<OpenFile, ClientError> {
        self.open_by(dir, ops::open(owner, share_access, openhow, name))
    }

    /// Any OPEN on `start` as the current file handle.
    pub fn open_by(&mut self, start: &NfsFh4, open: NfsArgop4) -> Result<OpenFile, ClientError> {
        let reply = self.call(&[ops::put_fh(start), open, NfsArgop4::GetFh])?;
        let opened = crate::body!(reply, Open).ok_or(ClientError::Missing("OPEN"))?;
        Ok(OpenFile { handle: handle(&reply)?, stateid: opened.stateid, opened })
    }

    pub fn close(&mut self, file: &OpenFile) -> Result<(), ClientError> {
        self.call(&[ops::put_fh(&file.handle), ops::close(file.stateid)]).map(drop)
    }

    pub fn read(
        &mut self,
        handle: &NfsFh4,
        stateid: StateId4,
        offset: u64,
        count: u32,
    ) -> Result<Read4ResOk, ClientError> {
        let reply = self.call(&[ops::put_fh(handle), ops::read(stateid, offset, count)])?;
        crate::body!(reply, Read).ok_or(ClientError::Missing("READ"))
    }

    pub fn write(
        &mut self,
        handle: &NfsFh4,
        stateid: StateId4,
        offset: u64,
        stable: StableHow4,
        data: &[u8],
    ) -> Result<Write4ResOk, ClientError> {
        let reply = self.call(&[ops::put_fh(handle), ops::write(stateid, offset, stable, data)])?;
        crate::body!(reply, Write).ok_or(ClientError::Missing("WRITE"))
    }

    pub fn commit(&mut self, handle: &NfsFh4) -> Result<Commit4ResOk, ClientError> {
        let reply = self.call(&[ops::put_fh(handle), ops::commit()])?;
        crate::body!(reply, Commit).ok_or(ClientError::Missing("COMMIT"))
    }

    pub fn remove(&mut self, dir: &NfsFh4, name: &str) -> Result<(), ClientError> {
        self.call(&[ops::put_fh(dir), ops::remove(name)]).map(drop)
    }

    pub fn rename(&mut self, from: (&NfsFh4, &str), to: (&NfsFh4, &str)) -> Result<(), ClientError> {
        let (save, put) = (NfsArgop4::SaveFh, ops::put_fh(to.0));
        self.call(&[ops::put_fh(from.0), save, put, ops::rename(from.1, to.1)]).map(drop)
    }

    pub fn link(&mut self, file: &NfsFh4, dir: &NfsFh4, name: &str) -> Result<(), ClientError> {
        self.call(&[ops::put_fh(file), NfsArgop4::SaveFh, ops::put_fh(dir), ops::link(name)]).map(drop)
    }

    /// One page of a listing, after `cookie`.
    pub fn page(&mut self, dir: &NfsFh4, cookie: u64, maxcount: u32) -> Result<ReadDir4ResOk, ClientError> {
        let reply = self.call(&[ops::put_fh(dir), ops::read_dir(cookie, maxcount, &[number::FILEID])])?;
        crate::body!(reply, ReadDir).ok_or(ClientError::Missing("READDIR"))
    }

    /// The whole listing, page by page.
    pub fn list(&mut self, dir: &NfsFh4, maxcount: u32) -> Result<Vec<DirEntry4>, ClientError> {
        let mut entries: Vec<DirEntry4> = Vec::new();
        loop {
            let page = self.page(dir, entries.last().map_or(0, |entry| entry.cookie), maxcount)?;
            let is_stuck = page.entries.is_empty();
            entries.extend(page.entries);
            if page.eof {
                return Ok(entries);
            }
            if is_stuck {
                return Err(ClientError::Missing("entries of READDIR"));
            }
        }
    }

    /// Opens, and asks for a layout in the same COMPOUND by the current stateid, as Linux does.
    pub fn open_with_layout(
        &mut self,
        dir: &NfsFh4,
        open: NfsArgop4,
        iomode: LayoutIomode4,
    ) -> Result<Reply, ClientError> {
        let layout_get = ops::layout_get(StateId4::CURRENT, iomode);
        let asked = [ops::COMMON, &[number::MDSTHRESHOLD]].concat();
        let (access, get_attr) = (ops::access(0x2d), ops::get_attr(&asked));
        self.compound(&[ops::put_fh(dir), open, NfsArgop4::GetFh, access, get_attr, layout_get])
    }
}

/// The file handle that GETFH has told.
pub fn handle(reply: &Reply) -> Result<NfsFh4, ClientError> {
    crate::body!(reply, GetFh).map(|body| body.object).ok_or(ClientError::Missing("GETFH"))
}

/// The attributes that GETATTR has told.
pub fn attributes(reply: &Reply) -> Result<FileAttributes, ClientError> {
    let body = crate::body!(reply, GetAttr).ok_or(ClientError::Missing("GETATTR"))?;
    FileAttributes::decode(&body.obj_attributes).map_err(|_| ClientError::Missing("readable attributes"))
}
