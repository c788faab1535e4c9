//! The security flavors of the NFS doors, and the keytab of those that are Kerberos.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use door_nfs::{Kerberos, Security};
use types::{Clock, Random};

use crate::config::Config;
use crate::system_users::SystemUsers;

/// The service that clients of NFS ask tickets for.
const SERVICE: &str = "nfs";
/// Longer files are no keytabs.
const KEYTAB_BYTES_MAX: u64 = 1 << 20;

/// One for head and pools: a client has the same right at both.
pub fn start(config: &Config, clock: &Arc<dyn Clock>, random: &Arc<dyn Random>) -> Result<Arc<Security>> {
    let flavors = config.nfs.flavors()?;
    let kerberos = match &config.nfs.keytab {
        Some(file) => Some(Kerberos::new(
            acceptor(file).with_context(|| format!("nfs.keytab = {}", file.display()))?,
            Arc::new(SystemUsers),
            Arc::clone(clock),
            Arc::clone(random),
        )),
        None => None,
    };
    Ok(Security::new(flavors, kerberos))
}

fn acceptor(file: &Path) -> Result<gss::Acceptor> {
    let length = std::fs::metadata(file).context("cannot read the keytab")?.len();
    if length > KEYTAB_BYTES_MAX {
        return Err(anyhow!("a keytab does not have {length} bytes"));
    }
    let bytes = std::fs::read(file).context("cannot read the keytab")?;
    let acceptor = gss::Acceptor::new(gss::Keytab::parse(&bytes)?, SERVICE)?;
    // Of several keys each.
    let services: BTreeSet<String> = acceptor.services().map(ToString::to_string).collect();
    for service in services {
        tracing::info!(service, "clients may come with tickets for this service");
    }
    Ok(acceptor)
}
