//! Layouts, devices, and the way to the data server that they name.

use std::net::{IpAddr, SocketAddr};

use nfs4::{
    DeviceId4, FfDataServer4, FfDeviceAddr4, FfLayout4, FfLayoutReturn4, GetDeviceInfo4Res,
    GetDeviceInfo4ResOk, Layout4, LayoutGet4Res, LayoutGet4ResOk, LayoutIomode4, NetAddr4, NfsFh4, NfsResop4,
    StateId4, decode_body,
};

use super::{ClientError, ClientOptions, NfsClient, Reply, ops};

/// As much as Linux allows for a device address.
const DEVICE_BYTES_MAX: u32 = 1 << 20;

/// A granted layout of one segment.
#[derive(Clone, Debug)]
pub struct Layout {
    pub granted: LayoutGet4ResOk,
    pub stateid: StateId4,
    pub segment: Layout4,
    pub body: FfLayout4,
}

impl Layout {
    /// The layout in a reply, wherever it stands.
    pub fn of(reply: &Reply) -> Result<Layout, ClientError> {
        let granted = reply.results.iter().find_map(|result| match result {
            NfsResop4::LayoutGet(LayoutGet4Res::Ok(granted)) => Some(granted.clone()),
            _ => None,
        });
        let granted = granted.ok_or(ClientError::Missing("LAYOUTGET"))?;
        let segment = granted.layout.first().cloned().ok_or(ClientError::Missing("a layout segment"))?;
        Ok(Layout { stateid: granted.stateid, body: decode_body(&segment.content.body)?, segment, granted })
    }

    /// The data server of the first mirror.
    pub fn data_server(&self) -> &FfDataServer4 {
        &self.body.mirrors[0].data_servers[0]
    }

    /// The handle for I/O there: the ticket.
    pub fn ticket(&self) -> &NfsFh4 {
        &self.data_server().fh_vers[0]
    }

    pub fn device(&self) -> DeviceId4 {
        self.data_server().deviceid
    }
}

impl NfsClient {
    pub fn layout_get(
        &mut self,
        file: &NfsFh4,
        stateid: StateId4,
        iomode: LayoutIomode4,
    ) -> Result<Layout, ClientError> {
        Layout::of(&self.call(&[ops::put_fh(file), ops::layout_get(stateid, iomode)])?)
    }

    /// The answer to LAYOUTRETURN: the stateid while something is still held.
    pub fn layout_return(
        &mut self,
        file: &NfsFh4,
        stateid: StateId4,
        report: &FfLayoutReturn4,
    ) -> Result<Option<StateId4>, ClientError> {
        let reply = self.call(&[ops::put_fh(file), ops::layout_return(stateid, report)])?;
        let body = crate::body!(reply, LayoutReturn).ok_or(ClientError::Missing("LAYOUTRETURN"))?;
        Ok(body.stateid)
    }

    /// The answer to LAYOUTCOMMIT: the new size if it has changed.
    pub fn layout_commit(
        &mut self,
        file: &NfsFh4,
        stateid: StateId4,
        last_write_offset: Option<u64>,
    ) -> Result<Option<u64>, ClientError> {
        let reply = self.call(&[ops::put_fh(file), ops::layout_commit(stateid, last_write_offset)])?;
        let body = crate::body!(reply, LayoutCommit).ok_or(ClientError::Missing("LAYOUTCOMMIT"))?;
        Ok(body.newsize)
    }

    pub fn device_info(
        &mut self,
        device: DeviceId4,
    ) -> Result<(FfDeviceAddr4, GetDeviceInfo4ResOk), ClientError> {
        let reply = self.call(&[ops::get_device_info(device, DEVICE_BYTES_MAX)])?;
        let found = reply.results.iter().find_map(|result| match result {
            NfsResop4::GetDeviceInfo(GetDeviceInfo4Res::Ok(body)) => Some(body.clone()),
            _ => None,
        });
        let found = found.ok_or(ClientError::Missing("GETDEVICEINFO"))?;
        Ok((decode_body(&found.device_addr.addr_body)?, found))
    }

    /// A client of the data server of a layout, under the same name as this one.
    pub fn data_server(&mut self, layout: &Layout) -> Result<NfsClient, ClientError> {
        let (device, _) = self.device_info(layout.device())?;
        let address = device.netaddrs.iter().find_map(socket_address);
        let address = address.ok_or(ClientError::Missing("a usable address of the device"))?;
        NfsClient::connect(address, ClientOptions { ..self.options.clone() }.for_data_server())
    }
}

/// RFC 5665: the port is the last two octets.
pub fn socket_address(netaddr: &NetAddr4) -> Option<SocketAddr> {
    let (rest, low) = netaddr.addr.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let ip: IpAddr = ip.parse().ok()?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_octets_of_an_address_are_the_port() {
        let of = |addr: &str| socket_address(&NetAddr4 { netid: "tcp".into(), addr: addr.into() });
        assert_eq!(of("10.0.0.1.8.1"), "10.0.0.1:2049".parse().ok());
        assert_eq!(of("fd00::1.80.11"), "[fd00::1]:20491".parse().ok());
        assert_eq!(of("10.0.0.1.8.256"), None);
    }
}
