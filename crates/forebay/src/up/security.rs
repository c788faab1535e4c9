//! Kerberos of the NFS doors: the keytab, which is read again when it changes, and who owners are by name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use door_nfs::{Kerberos, OwnerNames, Security};
use durable::WatchedFiles;
use gss::{Acceptor, Keytab};
use tokio::sync::watch;
use types::{Clock, Random};

use crate::config::Config;
use crate::system_names::SystemNames;
use crate::system_users::SystemUsers;

/// The service that clients of NFS ask tickets for.
const SERVICE: &str = "nfs";
/// Longer files are no keytabs.
const KEYTAB_BYTES_MAX: u64 = 1 << 20;
/// How long a change of the keytab may go unseen. Tickets under a new key are seldom sooner at a client.
const LOOK_PERIOD: Duration = Duration::from_secs(2);

/// One for head and pools: a client has the same right at both. And the keytab that is to be watched, if there is one.
pub fn start(
    config: &Config,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
) -> Result<(Arc<Security>, Option<Watched>)> {
    let Some(file) = &config.nfs.keytab else { return Ok((Security::sys(), None)) };
    let begun = Watched::begin(file, acceptor);
    let (acceptor, watched) = begun.with_context(|| format!("nfs.keytab = {}", file.display()))?;
    let kerberos = Kerberos::new(acceptor, Arc::new(SystemUsers), Arc::clone(clock), Arc::clone(random));
    Ok((Security::with_kerberos(kerberos), Some(watched)))
}

/// Translates owner names, if a domain is configured.
pub fn owners(config: &Config, clock: &Arc<dyn Clock>) -> Option<Arc<OwnerNames>> {
    let domain = config.nfs.domain.as_ref()?;
    Some(OwnerNames::new(domain, Arc::new(SystemNames), Arc::clone(clock)))
}

fn acceptor(file: &Path) -> Result<Acceptor> {
    let acceptor = Acceptor::new(read(file)?, SERVICE)?;
    // Of several keys each.
    let services: BTreeSet<String> = acceptor.services().map(ToString::to_string).collect();
    for service in services {
        tracing::info!(service, "Kerberos tickets for this service are accepted");
    }
    Ok(acceptor)
}

fn read(file: &Path) -> Result<Keytab> {
    let length = std::fs::metadata(file).with_context(unreadable)?.len();
    if length > KEYTAB_BYTES_MAX {
        bail!("it has {length} bytes; a keytab has at most {KEYTAB_BYTES_MAX}");
    }
    let bytes = std::fs::read(file).with_context(unreadable)?;
    Keytab::parse(&bytes).context("cannot parse the keytab")
}

fn unreadable() -> String {
    format!("cannot read the keytab as user {}", rustix::process::geteuid().as_raw())
}

/// Takes the keys of a keytab that was changed, until told to stop. A file that cannot be read leaves the keys as they are.
pub async fn watch_keytab(mut watched: Watched, security: Arc<Security>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        tokio::select! {
            () = tokio::time::sleep(LOOK_PERIOD) => {}
            _ = stop.changed() => break,
        }
        let look = tokio::task::spawn_blocking(move || {
            let change = watched.change();
            (watched, change)
        });
        // The runtime stops.
        let Ok((back, change)) = look.await else { break };
        watched = back;
        let Some(change) = change else { continue };
        let path = watched.file.display();
        match change.and_then(|keytab| replace(&security, keytab)) {
            Ok(()) => tracing::info!(%path, "the keys of the changed keytab are in use"),
            Err(error) => {
                tracing::error!(%path, "cannot use the changed keytab; the previous keys stay in use: {error:#}")
            }
        }
    }
}

fn replace(security: &Security, keytab: Keytab) -> Result<()> {
    match security.kerberos() {
        Some(kerberos) => Ok(kerberos.replace_keys(keytab)?),
        None => Ok(()),
    }
}

pub struct Watched {
    file: PathBuf,
    watch: WatchedFiles,
}

impl Watched {
    /// Reads the file. If it changes meanwhile, or before `change` is first called, `change` returns that.
    fn begin<T>(file: &Path, read: impl FnOnce(&Path) -> Result<T>) -> Result<(T, Watched)> {
        let watched = Watched { watch: WatchedFiles::new([file.to_owned()]), file: file.to_owned() };
        Ok((read(file)?, watched))
    }

    /// Reads the keytab if the file has changed since the last call. Each change is returned once, good or bad.
    fn change(&mut self) -> Option<Result<Keytab>> {
        self.watch.have_changed().then(|| read(&self.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keytab_that_cannot_be_read_is_told_in_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keytab");
        let said = |file: &Path| format!("{:#}", acceptor(file).unwrap_err());
        let missing = said(&file);
        assert!(
            missing.starts_with("cannot read the keytab as user ") && !missing.contains('\n'),
            "{missing}"
        );
        std::fs::write(&file, "no keytab").unwrap();
        assert_eq!(said(&file), "cannot parse the keytab: not a keytab of version 2");
        std::fs::write(&file, [5, 2]).unwrap();
        assert_eq!(said(&file), "keytab has no usable key of a `nfs/HOST@REALM`");
    }

    #[test]
    fn a_change_of_the_keytab_while_the_server_starts_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keytab");
        std::fs::write(&file, [5, 2]).unwrap();
        let begun = Watched::begin(&file, |file| {
            let keytab = read(file);
            std::fs::write(file, "no keytab").unwrap();
            keytab
        });
        let (_, mut watched) = begun.unwrap();
        assert!(watched.change().unwrap().is_err() && watched.change().is_none());
    }

    #[test]
    fn a_change_of_the_keytab_is_seen_once_whether_it_makes_sense_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("keytab");
        std::fs::write(&file, [5, 2]).unwrap();
        let (_, mut watched) = Watched::begin(&file, read).unwrap();
        assert!(watched.change().is_none());
        std::fs::write(&file, "no keytab").unwrap();
        assert!(watched.change().unwrap().is_err() && watched.change().is_none());
        std::fs::write(dir.path().join("next"), [5, 2]).unwrap();
        std::fs::rename(dir.path().join("next"), &file).unwrap();
        assert!(watched.change().unwrap().unwrap().entries.is_empty() && watched.change().is_none());
        std::fs::remove_file(&file).unwrap();
        assert!(watched.change().unwrap().is_err() && watched.change().is_none());
    }
}
