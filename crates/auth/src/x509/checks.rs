//! Checks of one certificate, whatever path it stands in (RFC 5280 §6.1.3), and the limit on their work.

use super::certificate::Certificate;
use super::error::X509Error;
use super::signature::Unverified;

/// Clocks of users' machines differ from ours.
pub const SKEW_S: i64 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Client,
    /// A VOMS server that has signed attributes: no proxies, no word about TLS.
    AttributeIssuer,
}

/// Limit on the signatures that are verified for a path.
#[derive(Debug)]
pub struct Budget {
    signatures: u32,
}

impl Budget {
    pub fn new(signatures: u32) -> Budget {
        Budget { signatures }
    }

    pub fn spend(&mut self) -> Result<(), X509Error> {
        self.signatures = self.signatures.checked_sub(1).ok_or(X509Error::TooMuchWork)?;
        Ok(())
    }
}

pub fn check_validity(certificate: &Certificate, now_s: i64) -> Result<(), X509Error> {
    if now_s.saturating_add(SKEW_S) < certificate.not_before_s {
        return Err(X509Error::NotYetValid { subject: certificate.subject.oneline() });
    }
    if now_s > certificate.not_after_s.saturating_add(SKEW_S) {
        return Err(X509Error::Expired { subject: certificate.subject.oneline() });
    }
    Ok(())
}

pub fn check_signature(
    certificate: &Certificate,
    issuer: &Certificate,
    budget: &mut Budget,
) -> Result<(), X509Error> {
    budget.spend()?;
    certificate.signed.verify(&issuer.key).map_err(|why| match why {
        Unverified::Weak(what) => X509Error::WeakAlgorithm { subject: certificate.subject.oneline(), what },
        Unverified::Wrong => X509Error::WrongSignature {
            subject: certificate.subject.oneline(),
            issuer: issuer.subject.oneline(),
        },
    })
}

/// Checks the user's own certificates, proxies and end entity alike.
pub fn check_holder(certificate: &Certificate, purpose: Purpose, now_s: i64) -> Result<(), X509Error> {
    let subject = || certificate.subject.oneline();
    check_validity(certificate, now_s)?;
    if let Err(Unverified::Weak(what)) = certificate.key.check_strength() {
        return Err(X509Error::WeakAlgorithm { subject: subject(), what });
    }
    if let Some(oid) = &certificate.extensions.unknown_critical {
        return Err(X509Error::UnknownCritical { subject: subject(), oid: oid.clone() });
    }
    // RFC 3820 §3.6 for the issuers of proxies; a handshake is a signature as well.
    if certificate.extensions.key_usage.is_some_and(|usage| !usage.digital_signature) {
        return Err(X509Error::NotForSigning { subject: subject() });
    }
    if purpose == Purpose::Client && certificate.extensions.is_for_clients == Some(false) {
        return Err(X509Error::NotForClients { subject: subject() });
    }
    Ok(())
}
