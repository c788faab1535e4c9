//! What a person sees when `forebay up` is ready.

use std::net::{IpAddr, SocketAddr};

use api::PoolStatus;

use crate::report::bytes;

pub struct Banner<'a> {
    pub data: &'a std::path::Path,
    pub head: SocketAddr,
    pub pools: Vec<(SocketAddr, PoolStatus)>,
    pub squashes_root: bool,
}

impl Banner<'_> {
    pub fn text(&self) -> String {
        let mut out = format!("Forebay {}\n", env!("CARGO_PKG_VERSION"));
        out += &format!("  data     {}\n", self.data.display());
        out += &format!("  head     {} (NFSv4.1, NFSv4.2, pNFS)\n", self.head);
        for (address, pool) in &self.pools {
            out += &format!("  {:<8} {address}, {} free\n", pool.id.to_string(), bytes(pool.free_bytes));
        }
        out += &format!("  mount    {}\n", self.mount_command());
        out += &format!("  stop     Ctrl-C, or: kill {}\n", std::process::id());
        if !self.head.ip().is_loopback() {
            let root = if self.squashes_root { "root is squashed to nobody" } else { "root is NOT squashed" };
            out +=
                &format!("  warning  AUTH_SYS trusts the client hosts to say who their users are; {root}\n");
        }
        out
    }

    fn mount_command(&self) -> String {
        let ip = match self.head.ip() {
            ip if ip.is_unspecified() => "THIS-HOST".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        format!("sudo mount -t nfs4 -o vers=4.2,port={} {ip}:/ /mnt", self.head.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_one_line_says_whom_auth_sys_trusts() {
        let banner = |ip: &str| Banner {
            data: std::path::Path::new("/data"),
            head: SocketAddr::new(ip.parse().unwrap(), 2049),
            pools: Vec::new(),
            squashes_root: true,
        };
        assert!(!banner("127.0.0.1").text().contains("AUTH_SYS"));
        assert!(banner("127.0.0.1").text().contains("mount -t nfs4 -o vers=4.2,port=2049 127.0.0.1:/ /mnt"));
        assert!(banner("0.0.0.0").text().contains("AUTH_SYS trusts the client hosts"));
    }
}
