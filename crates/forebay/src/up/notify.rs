//! Messages to the service manager, by the protocol of sd_notify(3): a datagram of `NAME=VALUE` lines.
//!
//! Without `NOTIFY_SOCKET`, as in a terminal, nothing is sent.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, clock_gettime};

/// The manager reads quickly; one that does not may miss a message, and clients are served meanwhile.
const SEND_TIME_MAX: Duration = Duration::from_secs(2);

pub struct Notifier {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notifier {
    pub fn of_environment() -> Result<Notifier> {
        let Ok(address) = std::env::var("NOTIFY_SOCKET") else {
            return Ok(Notifier { manager: None, watchdog: None });
        };
        let notifier = Notifier::to(&address).with_context(|| format!("NOTIFY_SOCKET = {address}"))?;
        let of_process = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = of_process("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = of_process("WATCHDOG_USEC").filter(|us| is_ours && *us > 0);
        Ok(Notifier { watchdog: watchdog.map(Duration::from_micros), ..notifier })
    }

    /// `address`: an absolute path, or `@` and the name of an abstract socket.
    fn to(address: &str) -> Result<Notifier> {
        let address = match address.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None if address.starts_with('/') => SocketAddr::from_pathname(address)?,
            None => bail!("it is neither an absolute path nor an abstract socket"),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIME_MAX))?;
        Ok(Notifier { manager: Some((socket, address)), watchdog: None })
    }

    pub fn is_heard(&self) -> bool {
        self.manager.is_some()
    }

    /// The process is ended if the manager hears nothing of [`Notifier::is_alive`] for so long.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", line(status)));
    }

    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// To be followed by `ready`.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now_us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reads its configuration again"));
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stops: finishes what is under way");
    }

    pub fn is_alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.manager else { return };
        let sent: io::Result<usize> = socket.send_to_addr(message.as_bytes(), address);
        if let Err(error) = sent {
            tracing::warn!(%error, "cannot reach the service manager");
        }
    }
}

/// A newline would begin another variable.
fn line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(by: &UnixDatagram) -> String {
        let mut buffer = [0; 4096];
        let length = by.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_is_told_by_path_and_by_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(path.to_str().unwrap()).unwrap();
        notifier.ready("1 file\nREADY=0");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=1 file READY=0");
        notifier.reloading();
        let reloading = heard(&manager);
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");

        let name = format!("forebay-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::to(&format!("@{name}")).unwrap().is_alive();
        assert_eq!(heard(&manager), "WATCHDOG=1");
    }

    /// It would hold the secret of the instance, keys and passwords.
    #[test]
    fn a_server_that_the_watchdog_of_the_unit_ends_leaves_no_core() {
        for unit in [HEAD_UNIT, POOL_UNIT] {
            let service = service_of(unit);
            let of_name =
                |name: &str| service.iter().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
            assert_eq!(of_name("WatchdogSec=").len(), 1, "it ends the server by SIGABRT");
            assert_eq!(of_name("LimitCORE"), [&"LimitCORE=0"]);
        }
    }

    /// Lines that differ on purpose are named here.
    #[test]
    fn a_pool_host_may_do_no_more_than_a_head() {
        let (head, pool) = (service_of(HEAD_UNIT), service_of(POOL_UNIT));
        let missing: Vec<_> = head.iter().filter(|line| !pool.contains(line)).collect();
        let differs = [
            "ExecStart=",
            "ExecReload=",
            "Restart=",
            "RestartSec=",
            "StateDirectory=",
            "LogsDirectory",
            "CapabilityBoundingSet=",
            "AmbientCapabilities=",
        ];
        let unknown: Vec<_> =
            missing.into_iter().filter(|line| !differs.iter().any(|name| line.starts_with(name))).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(pool.contains(&"CapabilityBoundingSet="), "it has no capability");
        assert!(!pool.iter().any(|line| line.starts_with("ReadWritePaths=")));
    }

    const HEAD_UNIT: &str = include_str!("../../../../deploy/systemd/forebay.service");
    const POOL_UNIT: &str = include_str!("../../../../deploy/systemd/forebay-pool.service");

    /// Without comments.
    fn service_of(unit: &str) -> Vec<&str> {
        let (_, service) = unit.split_once("\n[Service]\n").unwrap();
        let (service, _) = service.split_once("\n[").unwrap();
        service.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    }

    #[test]
    fn a_manager_that_is_gone_stops_nobody() {
        let dir = tempfile::tempdir().unwrap();
        Notifier::to(dir.path().join("none").to_str().unwrap()).unwrap().stopping();
        assert!(Notifier::to("relative/path").is_err());
    }
}
