//! Authorities that the administrator trusts: their directory, as grids lay it out.
//!
//! `*.pem` and `<hash>.<n>` are certificates; the self-signed ones are trusted, the others help to build paths.
//! `*.r<n>` and `*.crl` are revocation lists, `*.signing_policy` say which names an authority may certify.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tracing::warn;

use super::certificate::{CERTIFICATE_BYTES_MAX, Certificate};
use super::directory::{self, Listed};
use super::error::X509Error;
use super::name::{Name, respelled};
use super::revocation::RevocationList;
use super::signing_policy::{self, Policies};

const CERTIFICATE_FILE_BYTES_MAX: u64 = 16 * CERTIFICATE_BYTES_MAX as u64;
const REVOCATION_FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
const POLICY_FILE_BYTES_MAX: u64 = 256 * 1024;

/// Treatment of authorities without a current revocation list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crl {
    /// Refuse what they have certified.
    Require,
    /// Accept it. A list that is there is heeded, even an old one.
    IfPresent,
}

#[derive(Debug)]
pub struct Trust {
    crl: Crl,
    authorities: HashMap<Name, Vec<Authority>>,
    /// By the authority's key as well: after a change of keys two have one name.
    revocations: HashMap<(Name, [u8; 32]), RevocationList>,
    policies: Policies,
}

#[derive(Clone, Debug)]
pub struct Authority {
    pub certificate: Arc<Certificate>,
    pub is_anchor: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Certificate,
    Revocation,
    Policy,
    Other,
}

impl Trust {
    pub fn read(files: &[Listed], crl: Crl) -> Trust {
        let mut trust = Trust {
            crl,
            authorities: HashMap::new(),
            revocations: HashMap::new(),
            policies: Policies::new(),
        };
        let distrusted = trust.read_policies(files);
        trust.read_authorities(files, &distrusted);
        trust.read_revocations(files);
        trust
    }

    /// How many authorities are trusted by themselves.
    pub fn anchors(&self) -> usize {
        self.authorities.values().flatten().filter(|authority| authority.is_anchor).count()
    }

    /// Those that are trusted by themselves come first.
    pub fn authorities(&self, subject: &Name) -> &[Authority] {
        self.authorities.get(subject).map_or(&[], Vec::as_slice)
    }

    /// An authority without a policy may certify any name.
    pub fn check_signing_policy(
        &self,
        certificate: &Certificate,
        authority: &Certificate,
    ) -> Result<(), X509Error> {
        let name = authority.subject.oneline();
        let subject = certificate.subject.oneline();
        match self.policies.get(&respelled(&name)) {
            Some(patterns) if !signing_policy::is_covered(patterns, &subject) => {
                Err(X509Error::SigningPolicy { subject, authority: name })
            }
            _ => Ok(()),
        }
    }

    pub fn check_revocation(
        &self,
        certificate: &Certificate,
        authority: &Certificate,
        now_s: i64,
    ) -> Result<(), X509Error> {
        let name = || authority.subject.oneline();
        match self.revocations.get(&(authority.subject.clone(), authority.key.digest)) {
            Some(list) if list.revokes(certificate) => {
                Err(X509Error::Revoked { subject: certificate.subject.oneline() })
            }
            Some(list) if self.crl == Crl::Require && !list.is_current(now_s) => {
                Err(X509Error::RevocationListExpired { authority: name() })
            }
            None if self.crl == Crl::Require => Err(X509Error::NoRevocationList { authority: name() }),
            _ => Ok(()),
        }
    }

    /// Returns the stems of the files whose policy could not be read: their authorities are not trusted.
    fn read_policies<'a>(&mut self, files: &'a [Listed]) -> HashSet<&'a str> {
        let mut distrusted = HashSet::new();
        // One file is often there under two names, and one policy is as good as its copy.
        for (file, stem) in of_kind(files, Kind::Policy) {
            let content = file.read(POLICY_FILE_BYTES_MAX);
            let text = content.and_then(|content| String::from_utf8(content).ok());
            let read = text.ok_or_else(|| "it is not readable as text".to_owned());
            if let Err(why) = read.and_then(|text| signing_policy::read(&text, &mut self.policies)) {
                warn!(path = %file.path.display(), why, "a signing policy is not understood; its authority is not trusted");
                distrusted.insert(stem);
            }
        }
        for patterns in self.policies.values_mut() {
            patterns.sort_unstable();
            patterns.dedup();
        }
        distrusted
    }

    fn read_authorities(&mut self, files: &[Listed], distrusted: &HashSet<&str>) {
        let mut found: HashMap<[u8; 32], Arc<Certificate>> = HashMap::new();
        let mut dropped = HashSet::new();
        for (file, stem) in of_kind(files, Kind::Certificate) {
            let Some(content) = file.read(CERTIFICATE_FILE_BYTES_MAX) else { continue };
            for der in directory::blocks(content, "CERTIFICATE") {
                match Certificate::from_der(&der) {
                    Ok(certificate) if distrusted.contains(stem) => {
                        dropped.insert(certificate.digest);
                    }
                    Ok(certificate) => {
                        found.insert(certificate.digest, certificate);
                    }
                    Err(why) => {
                        warn!(path = %file.path.display(), why, "cannot read an authority's certificate")
                    }
                }
            }
        }
        for (digest, certificate) in found {
            if dropped.contains(&digest) {
                continue;
            }
            let authority = Authority { is_anchor: certificate.is_self_issued(), certificate };
            self.authorities.entry(authority.certificate.subject.clone()).or_default().push(authority);
        }
        for namesakes in self.authorities.values_mut() {
            namesakes.sort_by_key(|authority| (!authority.is_anchor, authority.certificate.digest));
        }
    }

    fn read_revocations(&mut self, files: &[Listed]) {
        for (file, _) in of_kind(files, Kind::Revocation) {
            let Some(content) = file.read(REVOCATION_FILE_BYTES_MAX) else { continue };
            for der in directory::blocks(content, "X509 CRL") {
                match RevocationList::from_der(&der) {
                    Ok(list) => {
                        if !self.take_revocation(list) {
                            warn!(path = %file.path.display(), "no authority here has signed this revocation list");
                        }
                    }
                    Err(why) => warn!(path = %file.path.display(), why, "cannot read a revocation list"),
                }
            }
        }
    }

    fn take_revocation(&mut self, list: RevocationList) -> bool {
        let namesakes = self.authorities.get(&list.issuer).map_or(&[][..], Vec::as_slice);
        let Some(by) = namesakes.iter().find(|authority| list.is_by(&authority.certificate)) else {
            return false;
        };
        let key = (list.issuer.clone(), by.certificate.key.digest);
        match self.revocations.get(&key) {
            Some(known) if !list.is_newer_than(known) => {}
            _ => drop(self.revocations.insert(key, list)),
        }
        true
    }
}

fn of_kind(files: &[Listed], kind: Kind) -> impl Iterator<Item = (&Listed, &str)> {
    files.iter().filter_map(move |file| {
        let (stem, extension) = file.stem_and_extension()?;
        (kind_of(extension) == kind).then_some((file, stem))
    })
}

fn kind_of(extension: &str) -> Kind {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match extension {
        "pem" | "crt" => Kind::Certificate,
        "crl" => Kind::Revocation,
        "signing_policy" => Kind::Policy,
        _ if is_number(extension) => Kind::Certificate,
        _ if extension.strip_prefix('r').is_some_and(is_number) => Kind::Revocation,
        _ => Kind::Other,
    }
}
