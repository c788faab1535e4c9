//! Text that `forebay up` prints when it is ready.

use std::net::{IpAddr, SocketAddr};

use api::PoolStatus;

use crate::up::http::Shown;
use crate::users::FirstLogin;
use types::display::Size;

pub struct Banner<'a> {
    pub data: &'a std::path::Path,
    pub head: SocketAddr,
    pub pools: Vec<(SocketAddr, PoolStatus)>,
    pub squashes_root: bool,
    /// `None`: the HTTP door is switched off.
    pub web: Option<Shown>,
}

impl Banner<'_> {
    pub fn text(&self) -> String {
        let mut out = format!("Forebay {}\n", env!("CARGO_PKG_VERSION"));
        out += &format!("  data     {}\n", self.data.display());
        out += &format!("  head     {} (NFSv4.1, NFSv4.2, pNFS)\n", self.head);
        for (address, pool) in &self.pools {
            out += &format!("  {:<8} {address}, {} free\n", pool.id.to_string(), Size(pool.free_bytes));
        }
        out += &self.web_lines();
        out += &format!("  mount    {}\n", self.mount_command());
        out += &format!("  stop     Ctrl-C, or: kill {}\n", std::process::id());
        if !self.head.ip().is_loopback() {
            let root = if self.squashes_root { "root is squashed to nobody" } else { "root is NOT squashed" };
            out +=
                &format!("  warning  AUTH_SYS trusts the client hosts to say who their users are; {root}\n");
        }
        out
    }

    fn web_lines(&self) -> String {
        let Some(web) = &self.web else { return String::new() };
        let scheme = if web.is_tls { "https" } else { "http" };
        let mut out = format!("  web      {scheme}://{}/ (WebDAV, and a page for browsers)\n", web.address);
        match &web.first_login {
            None => {}
            Some(FirstLogin::Shown { user, password }) => {
                out += &format!(
                    "  login    {user} {password} (shown this once; forebay user set-password {user})\n"
                );
            }
            Some(FirstLogin::Kept { user, file }) => {
                out += &format!("  login    {user}, the password is in {}\n", file.display());
            }
        }
        if web.is_loopback_only {
            out += "  note     HTTP is served to this host only; for others give http.certificate and http.key\n";
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
            web: None,
        };
        assert!(!banner("127.0.0.1").text().contains("AUTH_SYS"));
        assert!(banner("127.0.0.1").text().contains("mount -t nfs4 -o vers=4.2,port=2049 127.0.0.1:/ /mnt"));
        assert!(banner("0.0.0.0").text().contains("AUTH_SYS trusts the client hosts"));
    }
}
