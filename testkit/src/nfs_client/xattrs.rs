//! Extended attributes (RFC 8276).

use bytes::Bytes;
use nfs4::{
    ChangeInfo4, Component4, GetXattr4Args, ListXattrs4Args, ListXattrs4ResOk, NfsArgop4, NfsFh4,
    RemoveXattr4Args, SetXattr4Args, SetXattrOption4,
};
use xdr::Opaque;

use super::{ClientError, NfsClient, ops};

impl NfsClient {
    pub fn xattr(&mut self, file: &NfsFh4, name: &[u8]) -> Result<Bytes, ClientError> {
        let get = NfsArgop4::GetXattr(GetXattr4Args { name: Component4::from(name) });
        let reply = self.call(&[ops::put_fh(file), get])?;
        crate::body!(reply, GetXattr).map(|body| body.value.0).ok_or(ClientError::Missing("GETXATTR"))
    }

    pub fn set_xattr(
        &mut self,
        file: &NfsFh4,
        name: &[u8],
        value: &[u8],
        option: SetXattrOption4,
    ) -> Result<ChangeInfo4, ClientError> {
        let (key, value) = (Component4::from(name), Opaque(Bytes::copy_from_slice(value)));
        let set = NfsArgop4::SetXattr(SetXattr4Args { option, key, value });
        let reply = self.call(&[ops::put_fh(file), set])?;
        crate::body!(reply, SetXattr).map(|body| body.info).ok_or(ClientError::Missing("SETXATTR"))
    }

    pub fn remove_xattr(&mut self, file: &NfsFh4, name: &[u8]) -> Result<ChangeInfo4, ClientError> {
        let remove = NfsArgop4::RemoveXattr(RemoveXattr4Args { name: Component4::from(name) });
        let reply = self.call(&[ops::put_fh(file), remove])?;
        crate::body!(reply, RemoveXattr).map(|body| body.info).ok_or(ClientError::Missing("REMOVEXATTR"))
    }

    /// One page of a listing, after `cookie`.
    pub fn xattr_page(
        &mut self,
        file: &NfsFh4,
        cookie: u64,
        maxcount: u32,
    ) -> Result<ListXattrs4ResOk, ClientError> {
        let list = NfsArgop4::ListXattrs(ListXattrs4Args { cookie, maxcount });
        let reply = self.call(&[ops::put_fh(file), list])?;
        crate::body!(reply, ListXattrs).ok_or(ClientError::Missing("LISTXATTRS"))
    }

    /// All names, page by page.
    pub fn xattrs(&mut self, file: &NfsFh4, maxcount: u32) -> Result<Vec<Vec<u8>>, ClientError> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.xattr_page(file, cookie, maxcount)?;
            let is_stuck = page.names.is_empty();
            names.extend(page.names.iter().map(|name| name.as_bytes().to_vec()));
            if page.eof {
                return Ok(names);
            }
            if is_stuck {
                return Err(ClientError::Missing("names of LISTXATTRS"));
            }
            cookie = page.cookie;
        }
    }
}
