//! The server and its host: signals, the service manager, and the file of the access log.

use std::net::SocketAddr;
use std::sync::Arc;

use admin::log::LogControl;
use anyhow::{Result, anyhow};
use door_nfs::HeadDoor;
use http_server::Tls;
use namespace::SqlNamespace;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use types::Clock;

use super::notify::Notifier;
use super::reload::Reloader;
use super::responder::Responder;
use super::supervision::{HeadParts, Supervision};
use crate::access_log::{AccessLog, AccessLogWriter};
use crate::cli::UpArguments;
use crate::config::Config;
use crate::terminal;

pub struct Outside {
    signals: Signals,
    notifier: Notifier,
    access_log: Option<AccessLogWriter>,
}

/// Signals that end the server, or have it read its configuration again.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// The server was started from a terminal and ends with it, as every program does.
    ends_with_terminal: bool,
}

/// Parts of a server that runs.
pub struct Running<'a> {
    pub arguments: &'a UpArguments,
    pub config: &'a Config,
    pub log: LogControl,
    pub door: Arc<HeadDoor>,
    pub tls: Option<Arc<Tls>>,
    pub responder: Arc<Responder>,
    pub namespace: Arc<SqlNamespace>,
    /// Of doors, by names for people.
    pub listeners: Vec<(String, SocketAddr)>,
}

impl Outside {
    /// From here on a Ctrl-C stops in order.
    pub fn meet(config: &Config, clock: &Arc<dyn Clock>) -> Result<Outside> {
        // Before a handler takes the place of what the server was started with.
        let ends_with_terminal = terminal::ends_with_terminal();
        let signals = Signals {
            ends_with_terminal,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        };
        let notifier = Notifier::of_environment()?;
        notifier.status("opens the namespace and the pools");
        let path = config.http.access_log.as_deref().filter(|_| config.http.enabled);
        let access_log = path.map(|path| AccessLog::start(path, Arc::clone(clock))).transpose()?;
        Ok(Outside { signals, notifier, access_log })
    }

    /// Until the handle is aborted, a signal ends the process at once: what opens a namespace and pools blocks, for
    /// hours in a migration. No client is served meanwhile, and what opens bears being killed at every moment.
    pub fn watch_start() -> Result<AbortHandle> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let watch = tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::info!("stopped by a signal during the start, before clients were served");
            std::process::exit(0);
        });
        Ok(watch.abort_handle())
    }

    pub fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.access_log.as_ref().map(AccessLogWriter::log)
    }

    /// Tells the service manager that clients are served, and waits until that is to end; an error is why. The writer of
    /// the access log is returned, and writes until it is dropped.
    pub async fn run(
        self,
        running: Running<'_>,
        tasks: &mut JoinSet<()>,
        stop: watch::Receiver<bool>,
    ) -> (Result<()>, Option<AccessLogWriter>) {
        let access_log = self.access_log();
        let Outside { mut signals, notifier, access_log: writer } = self;
        let Running { arguments, config, log, door, tls, responder, namespace, listeners } = running;
        let parts = Arc::new(HeadParts::new(responder, Arc::clone(&namespace), listeners));
        let supervision = Arc::new(Supervision { notifier, parts });
        supervision.notifier.ready(&supervision.status().await);
        tasks.spawn(Arc::clone(&supervision).run(stop));
        let takers = (log, door, tls, access_log);
        let reloader = Reloader::new((arguments, config), takers, Arc::clone(&supervision));
        let hangups = reloader.run(&mut signals.hangup, signals.ends_with_terminal);
        let outcome = tokio::select! {
            _ = signals.interrupt.recv() => Ok(()),
            _ = signals.terminate.recv() => Ok(()),
            () = hangups => Ok(()),
            lost = lost(&namespace) => Err(lost),
        };
        supervision.notifier.stopping();
        (outcome, writer)
    }
}

/// Once another head has the namespace. Clients of this one would go on to read what they have delegations of, which that
/// one changes.
async fn lost(namespace: &SqlNamespace) -> anyhow::Error {
    namespace.taken_over().await;
    anyhow!("another head has taken the namespace over; this server stops")
}
