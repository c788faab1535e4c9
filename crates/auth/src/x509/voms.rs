//! Memberships in virtual organisations, as a VOMS server has signed them into the user's proxy.
//!
//! They count if the server is named in an `.lsc` file for this organisation, its certificate leads to a trusted
//! authority, the signature is right, and they were given to the very certificate that stands behind the proxy.

mod attributes;
mod servers;

use bytes::Bytes;

use super::certificate::Certificate;
use super::checks::{Budget, Purpose, SKEW_S};
use super::error::VomsError;
use super::path;
use super::trust::Trust;

pub use attributes::AttributeCertificate;
pub use servers::Servers;

pub struct Judge<'a> {
    pub trust: &'a Trust,
    pub servers: &'a Servers,
    /// Our own names in lower case, for attributes that are meant for some servers only.
    pub hosts: &'a [String],
    pub now_s: i64,
}

#[derive(Debug, Default)]
pub struct Attributes {
    pub fqans: Vec<String>,
    /// When the first of them ends.
    pub expires_s: Option<i64>,
    pub refusals: Vec<VomsError>,
}

impl Judge<'_> {
    /// Each attribute certificate counts or not by itself.
    pub fn attributes(&self, extension: &Bytes, holder: &Certificate, budget: &mut Budget) -> Attributes {
        let mut out = Attributes::default();
        let Ok(certificates) = attributes::read(extension) else {
            out.refusals.push(VomsError::Unreadable);
            return out;
        };
        for certificate in certificates {
            match self.check(&certificate, holder, budget) {
                Ok(expires_s) => {
                    out.expires_s = Some(out.expires_s.map_or(expires_s, |known| known.min(expires_s)));
                    for fqan in certificate.fqans {
                        if !out.fqans.contains(&fqan) {
                            out.fqans.push(fqan);
                        }
                    }
                }
                Err(refusal) => out.refusals.push(refusal),
            }
        }
        out
    }

    /// Returns when the attributes, or the certificates that vouch for them, end.
    fn check(
        &self,
        given: &AttributeCertificate,
        holder: &Certificate,
        budget: &mut Budget,
    ) -> Result<i64, VomsError> {
        let (vo, host) = (|| given.vo.clone(), || given.host.clone());
        if let Some(oid) = &given.unknown_critical {
            return Err(VomsError::UnknownCritical { oid: oid.clone() });
        }
        if given.holder_issuer != holder.issuer || given.holder_serial != holder.serial {
            return Err(VomsError::WrongHolder);
        }
        let has_begun = given.not_before_s <= self.now_s.saturating_add(SKEW_S);
        if !has_begun || self.now_s > given.not_after_s.saturating_add(SKEW_S) {
            return Err(VomsError::NotValidNow);
        }
        if let Some(targets) = &given.targets
            && !self.hosts.iter().any(|host| targets.contains(host))
        {
            return Err(VomsError::NotForThisServer);
        }
        let root = format!("/{}", given.vo);
        let is_within = |fqan: &str| {
            fqan.strip_prefix(&root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some(fqan) = given.fqans.iter().find(|fqan| !is_within(fqan)) {
            return Err(VomsError::ForeignAttribute { vo: vo(), fqan: fqan.clone() });
        }
        let chains = self.servers.chains(&given.vo, &given.host);
        let chains = chains.ok_or_else(|| VomsError::UnknownServer { vo: vo(), host: host() })?;
        let server = given.embedded.first().ok_or(VomsError::NoIssuer)?;
        if server.subject != given.issuer {
            return Err(VomsError::NoIssuer);
        }
        budget.spend()?;
        given.signed.verify(&server.key).map_err(|_| VomsError::WrongSignature)?;
        let path = path::find(&given.embedded, Purpose::AttributeIssuer, self.trust, self.now_s, budget)?;
        let subjects: Vec<String> = [&path.end_entity]
            .into_iter()
            .chain(&path.authorities)
            .map(|step| step.subject.oneline())
            .collect();
        if !chains.iter().any(|chain| subjects.starts_with(chain)) {
            return Err(VomsError::NotInLsc { vo: vo(), host: host() });
        }
        Ok(given.not_after_s.min(path.expires_s()))
    }
}
