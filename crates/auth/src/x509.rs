//! X.509 as grids use it: a client's certificates to a user's name and memberships.
//!
//! The handshake has proven that the client holds the leaf's key; everything else is decided here, since the usual
//! verifiers refuse the proxy certificates of RFC 3820. No network: what is not in the two directories is not known.
//! Deliberately absent: OCSP, names for e-mail and hosts in name constraints (such names are refused), proxies from before
//! the RFC, delta and partial revocation lists.

mod certificate;
mod checks;
mod directory;
mod error;
mod name;
mod path;
mod proxy;
mod revocation;
mod signature;
mod signing_policy;
mod trust;
mod verdicts;
mod voms;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tracing::info;

use certificate::Certificate;
use checks::{Budget, Purpose};
use directory::Listed;
use path::Path;
use trust::Trust;
use verdicts::Verdicts;

pub use error::{VomsError, X509Error};
pub use trust::Crl;

const CHAIN_MAX: usize = 10;
const CHAIN_BYTES_MAX: usize = 128 * 1024;
/// A user with two proxies below three authorities and one organisation takes eight.
const SIGNATURES_MAX: u32 = 32;
/// The attributes' checks come on top, so that nobody is refused for the memberships.
const VOMS_SIGNATURES_MAX: u32 = 32;

#[derive(Clone, Debug)]
pub struct VerifierConfig {
    /// Authorities, revocation lists and signing policies, as in `/etc/grid-security/certificates`.
    pub ca_dir: PathBuf,
    /// `<vo>/<host>.lsc`, as in `/etc/grid-security/vomsdir`.
    pub vomsdir: PathBuf,
    pub crl: Crl,
    /// Our own names, for attributes that are meant for some servers only.
    pub hosts: Vec<String>,
}

impl Default for VerifierConfig {
    fn default() -> VerifierConfig {
        VerifierConfig {
            ca_dir: PathBuf::from("/etc/grid-security/certificates"),
            vomsdir: PathBuf::from("/etc/grid-security/vomsdir"),
            crl: Crl::IfPresent,
            hosts: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertifiedUser {
    /// Of the end entity, proxies stripped: `/DC=org/DC=example/CN=Name`, as OpenSSL's oneline form.
    pub dn: String,
    /// In the order in which the server of the organisation gave them; the first is the primary one. A role or
    /// capability NULL is left out.
    pub fqans: Vec<String>,
    /// The earliest end of a certificate or attribute that this rests on, in seconds since 1970.
    pub expires_s: u64,
    /// A limited proxy stands in the chain.
    pub is_limited: bool,
    /// Why memberships in the chain do not count.
    pub voms_refusals: Vec<VomsError>,
}

pub struct Verifier {
    config: VerifierConfig,
    /// Guards the pointer alone.
    known: RwLock<Arc<TrustSnapshot>>,
    /// Held while the directories are read, by threads that may block.
    reading: Mutex<()>,
    /// Guards the table alone.
    verdicts: Mutex<Verdicts>,
}

/// One reading of the directories.
struct TrustSnapshot {
    generation: u64,
    listed: (Vec<Listed>, Vec<Listed>),
    trust: Trust,
    servers: voms::Servers,
}

impl Verifier {
    /// Reads the directories; blocks while it does. Directories that are not there mean that nobody is trusted.
    pub fn new(mut config: VerifierConfig) -> Verifier {
        config.hosts.iter_mut().for_each(|host| host.make_ascii_lowercase());
        let known = TrustSnapshot::read(&config, list(&config), 0);
        Verifier {
            config,
            known: RwLock::new(Arc::new(known)),
            reading: Mutex::new(()),
            verdicts: Mutex::new(Verdicts::default()),
        }
    }

    /// Finds the user of a chain: DER, leaf first, the rest in any order. A new chain takes up to some milliseconds of
    /// computing, a known one a look into a table.
    pub fn judge(&self, chain: &[Bytes], now_s: u64) -> Result<CertifiedUser, X509Error> {
        if chain.is_empty() {
            return Err(X509Error::NoCertificate);
        }
        if chain.len() > CHAIN_MAX || chain.iter().map(Bytes::len).sum::<usize>() > CHAIN_BYTES_MAX {
            return Err(X509Error::ChainTooLarge);
        }
        let known = self.known.read().clone();
        let digest = verdicts::chain_digest(chain);
        if let Some(verdict) = self.verdicts.lock().find(&digest, known.generation, now_s) {
            return verdict;
        }
        let verdict = known.judge(chain, &self.config.hosts, now_s);
        self.verdicts.lock().remember(digest, &verdict, known.generation, now_s);
        verdict
    }

    /// Reads the directories again if a file in them has changed, and says whether one had. Blocks while it reads, so it
    /// is called from a thread that may; who calls it decides how old a revocation list may get.
    pub fn refresh(&self) -> bool {
        let _reading = self.reading.lock();
        let listed = list(&self.config);
        let before = self.known.read().clone();
        if listed == before.listed {
            return false;
        }
        let known = TrustSnapshot::read(&self.config, listed, before.generation + 1);
        *self.known.write() = Arc::new(known);
        true
    }
}

fn list(config: &VerifierConfig) -> (Vec<Listed>, Vec<Listed>) {
    (directory::list(&config.ca_dir, 0), directory::list(&config.vomsdir, 1))
}

impl TrustSnapshot {
    fn read(config: &VerifierConfig, listed: (Vec<Listed>, Vec<Listed>), generation: u64) -> TrustSnapshot {
        let trust = Trust::read(&listed.0, config.crl);
        let servers = voms::Servers::read(&listed.1);
        info!(
            authorities = trust.anchors(),
            voms_servers = servers.count(),
            generation,
            "read the certificate directories"
        );
        TrustSnapshot { generation, listed, trust, servers }
    }

    fn judge(&self, chain: &[Bytes], hosts: &[String], now_s: u64) -> Result<CertifiedUser, X509Error> {
        if self.trust.anchors() == 0 {
            return Err(X509Error::NoAuthorities);
        }
        let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
        let certificates = parse(chain)?;
        let mut budget = Budget::new(SIGNATURES_MAX);
        let path = path::find(&certificates, Purpose::Client, &self.trust, now_s, &mut budget)?;
        let mut user = CertifiedUser {
            dn: path.end_entity.subject.oneline(),
            is_limited: path.is_limited,
            ..CertifiedUser::default()
        };
        let mut expires_s = path.expires_s();
        if let Some(extension) = voms_extension(&path) {
            let judge = voms::Judge { trust: &self.trust, servers: &self.servers, hosts, now_s };
            let mut budget = Budget::new(VOMS_SIGNATURES_MAX);
            let given = judge.attributes(extension, &path.end_entity, &mut budget);
            expires_s = given.expires_s.map_or(expires_s, |end_s| end_s.min(expires_s));
            user.fqans = given.fqans;
            user.voms_refusals = given.refusals;
        }
        user.expires_s = u64::try_from(expires_s).unwrap_or(0);
        Ok(user)
    }
}

fn parse(chain: &[Bytes]) -> Result<Vec<Arc<Certificate>>, X509Error> {
    let read = |(index, der)| Certificate::from_der(der).map_err(|why| X509Error::Unreadable { index, why });
    chain.iter().enumerate().map(read).collect()
}

/// Of the proxy nearest to the leaf that has one: whoever delegates may replace the memberships, as the VOMS library has
/// it.
fn voms_extension(path: &Path) -> Option<&Bytes> {
    path.proxies.iter().find_map(|proxy| proxy.extensions.attributes.as_ref())
}
