//! SIGHUP: what can be read again is, and of the rest the log says that it waits for a restart.
//!
//! Files that the configuration names (keytab, users, mapping, certificates of authorities) are looked at every few
//! seconds anyhow.

use std::sync::Arc;
use std::time::Duration;

use admin::log::LogControl;
use anyhow::{Context, Result};
use door_nfs::HeadDoor;
use http_server::Tls;
use parking_lot::Mutex;
use tokio::signal::unix::Signal;
use tokio::time::sleep;

use super::level;
use super::supervision::Supervision;
use crate::access_log::AccessLog;
use crate::cli::UpArguments;
use crate::config::{Config, exports};
use crate::terminal;

/// Keys that are taken while the server runs.
const LOG: &[&str] = &["log.level"];
const EXPORTS: &str = "nfs.export";
/// So often after a signal, the server checks whether the terminal is gone.
const LOOKS: u32 = 10;
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub struct Reloader<'a> {
    arguments: &'a UpArguments,
    log: LogControl,
    door: Arc<HeadDoor>,
    tls: Option<Arc<Tls>>,
    access_log: Option<Arc<AccessLog>>,
    supervision: Arc<Supervision>,
    /// As far as it is in force. Leaf lock.
    running: Mutex<Config>,
}

/// The parts that take something new.
type Takers = (LogControl, Arc<HeadDoor>, Option<Arc<Tls>>, Option<Arc<AccessLog>>);

impl<'a> Reloader<'a> {
    /// `config` was made from the arguments, and is in force.
    pub fn new(
        (arguments, config): (&'a UpArguments, &Config),
        (log, door, tls, access_log): Takers,
        supervision: Arc<Supervision>,
    ) -> Reloader<'a> {
        let running = Mutex::new(config.clone());
        Reloader { arguments, log, door, tls, access_log, supervision, running }
    }

    /// Reads again at each signal. With `ends_with_terminal`, returns once a signal came and the terminal is gone: shells
    /// send SIGHUP to their jobs shortly before.
    pub async fn run(&self, hangup: &mut Signal, ends_with_terminal: bool) {
        let mut looks = 0;
        loop {
            let is_signalled = tokio::select! {
                received = hangup.recv() => match received {
                    Some(()) => true,
                    None => return,
                },
                () = sleep(LOOK_INTERVAL), if looks > 0 => false,
            };
            if ends_with_terminal && terminal::is_gone() {
                return;
            }
            if !is_signalled {
                looks -= 1;
                continue;
            }
            looks = if ends_with_terminal { LOOKS } else { 0 };
            self.supervision.notifier.reloading();
            if let Err(error) = self.reload().await {
                tracing::error!("configuration is not taken, the previous one stays in force: {error:#}");
            }
            self.supervision.notifier.ready(&self.supervision.status().await);
        }
    }

    async fn reload(&self) -> Result<()> {
        // First: logrotate waits for it, whatever the configuration is like.
        if let Some(access_log) = &self.access_log {
            access_log.reopen();
        }
        if let Some(tls) = self.tls.clone() {
            tokio::task::spawn_blocking(move || tls.reload_if_changed()).await?;
        }
        let fresh = Config::assemble(self.arguments)?;
        let running = self.running.lock().clone();
        let mut waiting = changed(&running, &fresh)?;
        let mut taken = running;
        if exports::only_adds(&taken.nfs.export, &fresh.nfs.export) {
            // Resolved with the keys that are in force: another `listen` would squash root, or not, before it is listened to.
            taken.nfs.export.clone_from(&fresh.nfs.export);
            let resolved = exports::resolve(&taken).await?;
            self.door.replace_exports(&resolved).await.context("nfs.export")?;
            waiting.retain(|key| key != EXPORTS);
        }
        self.log.set_configured(level(fresh.log.level));
        taken.log.level = fresh.log.level;
        waiting.retain(|key| !LOG.contains(&key.as_str()));
        *self.running.lock() = taken;
        if waiting.is_empty() {
            tracing::info!("configuration is read again and in force");
        } else {
            tracing::warn!(
                keys = waiting.join(", "),
                "configuration is read again; these keys need a restart"
            );
        }
        Ok(())
    }
}

/// Names of the keys whose values differ.
fn changed(one: &Config, other: &Config) -> Result<Vec<String>> {
    let (one, other) = (toml::Table::try_from(one)?, toml::Table::try_from(other)?);
    let mut keys = Vec::new();
    compare("", &one, &other, &mut keys);
    Ok(keys)
}

/// A key without a value is in one of the tables only.
fn compare(prefix: &str, one: &toml::Table, other: &toml::Table, keys: &mut Vec<String>) {
    let only_there = other.keys().filter(|name| !one.contains_key(*name));
    for name in one.keys().chain(only_there) {
        let key = format!("{prefix}{name}");
        match (one.get(name), other.get(name)) {
            (Some(toml::Value::Table(one)), Some(toml::Value::Table(other))) => {
                compare(&format!("{key}."), one, other, keys);
            }
            (one, other) if one != other => keys.push(key),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Level;

    #[test]
    fn keys_that_differ_are_named_in_full_whether_they_have_a_value_or_not() {
        let one = Config::default();
        let mut other = one.clone();
        other.log.level = Level::Debug;
        other.nfs.delegations.window_s = 7;
        other.nfs.root_squash = Some(true);
        other.listen = "0.0.0.0".parse().unwrap();
        let mut keys = changed(&one, &other).unwrap();
        keys.sort();
        assert_eq!(keys, ["listen", "log.level", "nfs.delegations.window_s", "nfs.root_squash"]);
        assert_eq!(changed(&other, &one).unwrap().len(), 4);
        assert!(changed(&one, &one).unwrap().is_empty());
    }

    #[test]
    fn keys_that_are_taken_at_run_time_are_keys() {
        let known: Vec<&str> = crate::config::reference::key_names().collect();
        for key in LOG.iter().chain(&[EXPORTS]) {
            assert!(known.contains(key), "{key}");
        }
    }

    #[test]
    fn the_reference_marks_the_keys_that_are_taken_at_run_time() {
        let keys = crate::config::reference::SECTIONS.iter().flat_map(|section| section.keys);
        let marked = keys.filter(|key| key.takes_effect() == "reload").map(|key| key.name);
        assert_eq!(marked.collect::<Vec<_>>(), LOG);
    }
}
