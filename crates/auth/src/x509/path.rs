//! From a client's certificates to an authority that is trusted here: proxies, end entity, authorities.
//!
//! RFC 5280 §6 with the additions of RFC 3820 §4. Certificates may come in any order after the leaf. Where several
//! authorities have the issuer's name, each is tried; the number of signatures checked for one client is bounded.

use std::sync::Arc;

use super::certificate::{Certificate, NameConstraints, NameForm};
use super::checks::{Budget, Purpose, check_holder, check_signature, check_validity};
use super::error::X509Error;
use super::name::EMAIL_ADDRESS;
use super::proxy;
use super::trust::Trust;

const AUTHORITIES_MAX: usize = 8;

#[derive(Debug)]
pub struct Path {
    /// Leaf first.
    pub proxies: Vec<Arc<Certificate>>,
    pub end_entity: Arc<Certificate>,
    /// The issuer of the end entity first, the trusted one last.
    pub authorities: Vec<Arc<Certificate>>,
    pub is_limited: bool,
}

impl Path {
    pub fn expires_s(&self) -> i64 {
        let users = self.proxies.iter().chain([&self.end_entity]).chain(&self.authorities);
        users.map(|certificate| certificate.not_after_s).min().unwrap_or(i64::MIN)
    }
}

/// `chain` holds the leaf first, the rest in any order.
pub fn find(
    chain: &[Arc<Certificate>],
    purpose: Purpose,
    trust: &Trust,
    now_s: i64,
    budget: &mut Budget,
) -> Result<Path, X509Error> {
    let leaf = chain.first().ok_or(X509Error::NoCertificate)?;
    let (proxies, end_entity) = match purpose {
        Purpose::Client => proxy::strip(chain, now_s, budget)?,
        Purpose::AttributeIssuer => (Vec::new(), leaf.clone()),
    };
    check_end_entity(&end_entity, purpose, now_s)?;
    let mut climb = Climb { chain, purpose, trust, now_s, budget, authorities: Vec::new(), failure: None };
    if !climb.reaches_trust(&end_entity, &end_entity) {
        let issuer = end_entity.issuer.oneline();
        return Err(climb.failure.unwrap_or(X509Error::UntrustedIssuer { issuer }));
    }
    let authorities = climb.authorities;
    let is_limited = proxies.iter().any(|proxy| proxy::is_limited(proxy));
    Ok(Path { proxies, end_entity, authorities, is_limited })
}

fn check_end_entity(certificate: &Certificate, purpose: Purpose, now_s: i64) -> Result<(), X509Error> {
    let subject = || certificate.subject.oneline();
    if certificate.extensions.proxy.is_some() {
        return Err(X509Error::ProxyRule { subject: subject(), rule: "a proxy does not sign attributes" });
    }
    if certificate.extensions.basic_constraints.is_some_and(|basic| basic.is_authority) {
        return Err(X509Error::EndEntityIsAuthority { subject: subject() });
    }
    if certificate.subject.is_empty() || certificate.subject.is_ambiguous() {
        return Err(X509Error::AmbiguousName { subject: subject() });
    }
    check_holder(certificate, purpose, now_s)
}

struct Climb<'a> {
    chain: &'a [Arc<Certificate>],
    purpose: Purpose,
    trust: &'a Trust,
    now_s: i64,
    budget: &'a mut Budget,
    authorities: Vec<Arc<Certificate>>,
    /// The most telling one.
    failure: Option<X509Error>,
}

impl Climb<'_> {
    fn reaches_trust(&mut self, below: &Arc<Certificate>, end_entity: &Arc<Certificate>) -> bool {
        if self.authorities.len() == AUTHORITIES_MAX {
            self.note(X509Error::PathTooLong { subject: below.subject.oneline() });
            return false;
        }
        for (candidate, is_anchor) in self.candidates(below) {
            if let Err(failure) = self.check_link(below, &candidate, is_anchor) {
                self.note(failure);
                continue;
            }
            self.authorities.push(candidate.clone());
            let is_reached = if is_anchor {
                self.check_whole(end_entity).map_err(|failure| self.note(failure)).is_ok()
            } else {
                self.reaches_trust(&candidate, end_entity)
            };
            if is_reached {
                return true;
            }
            self.authorities.pop();
        }
        false
    }

    /// Those that are installed here come first.
    fn candidates(&self, below: &Certificate) -> Vec<(Arc<Certificate>, bool)> {
        let installed = self.trust.authorities(&below.issuer);
        let installed =
            installed.iter().map(|authority| (authority.certificate.clone(), authority.is_anchor));
        let brought = self.chain.iter().filter(|certificate| certificate.subject == below.issuer);
        let mut out: Vec<(Arc<Certificate>, bool)> = Vec::new();
        for (candidate, is_anchor) in installed.chain(brought.map(|certificate| (certificate.clone(), false)))
        {
            let same = |other: &Certificate| other.digest == candidate.digest;
            let is_known = same(below)
                || self.authorities.iter().any(|other| same(other))
                || out.iter().any(|(other, _)| same(other));
            if !is_known {
                out.push((candidate, is_anchor));
            }
        }
        out
    }

    fn check_link(
        &mut self,
        below: &Certificate,
        authority: &Certificate,
        is_anchor: bool,
    ) -> Result<(), X509Error> {
        check_signature(below, authority, self.budget)?;
        let subject = || authority.subject.oneline();
        let extensions = &authority.extensions;
        // A root of version 1 can say nothing about itself; that it is installed here says it.
        let is_old_root = is_anchor && !authority.is_version_3;
        let is_authority =
            extensions.basic_constraints.is_some_and(|basic| basic.is_authority) || is_old_root;
        if !is_authority || extensions.key_usage.is_some_and(|usage| !usage.key_cert_sign) {
            return Err(X509Error::NotAnAuthority { subject: subject() });
        }
        check_validity(authority, self.now_s)?;
        if is_anchor {
            return Ok(());
        }
        if let Some(oid) = &extensions.unknown_critical {
            return Err(X509Error::UnknownCritical { subject: subject(), oid: oid.clone() });
        }
        if extensions.proxy.is_some() {
            return Err(X509Error::NotAnAuthority { subject: subject() });
        }
        if self.purpose == Purpose::Client && extensions.is_for_clients == Some(false) {
            return Err(X509Error::NotForClients { subject: subject() });
        }
        Ok(())
    }

    /// Checks that need the whole path: they depend on the certificates above and below.
    fn check_whole(&self, end_entity: &Arc<Certificate>) -> Result<(), X509Error> {
        let path: Vec<&Arc<Certificate>> = [end_entity].into_iter().chain(&self.authorities).collect();
        for (index, authority) in path.iter().enumerate().skip(1) {
            let below = &path[..index];
            check_path_length(authority, &below[1..])?;
            if let Some(constraints) = &authority.extensions.name_constraints {
                for (at, certificate) in below.iter().enumerate() {
                    // RFC 5280 §6.1.3 (b): self-issued ones are passed over unless they are the last.
                    let is_passed_over = at > 0 && certificate.is_self_issued();
                    if !is_passed_over && !is_allowed(certificate, constraints) {
                        return Err(X509Error::NameConstraints {
                            subject: certificate.subject.oneline(),
                            authority: authority.subject.oneline(),
                        });
                    }
                }
            }
            self.trust.check_signing_policy(path[index - 1], authority)?;
            self.trust.check_revocation(path[index - 1], authority, self.now_s)?;
        }
        Ok(())
    }

    fn note(&mut self, failure: X509Error) {
        let weight = |failure: &X509Error| match failure {
            X509Error::UntrustedIssuer { .. } => 0,
            X509Error::WrongSignature { .. } => 1,
            _ => 2,
        };
        if self.failure.as_ref().is_none_or(|known| weight(known) < weight(&failure)) {
            self.failure = Some(failure);
        }
    }
}

fn check_path_length(authority: &Certificate, between: &[&Arc<Certificate>]) -> Result<(), X509Error> {
    let count = between.iter().filter(|certificate| !certificate.is_self_issued()).count();
    match authority.extensions.basic_constraints.and_then(|basic| basic.path_len) {
        Some(max) if count > max as usize => {
            Err(X509Error::PathTooLong { subject: authority.subject.oneline() })
        }
        _ => Ok(()),
    }
}

/// A constraint on a form of names that is not compared here forbids every name of that form.
fn is_allowed(certificate: &Certificate, constraints: &NameConstraints) -> bool {
    let alternatives = &certificate.extensions.alternative_names;
    let subject = (!certificate.subject.is_empty()).then_some(&certificate.subject);
    let directory_names_fit = subject.into_iter().chain(&alternatives.directory).all(|name| {
        let is_permitted = constraints.permitted.is_empty()
            || constraints.permitted.iter().any(|subtree| name.is_within(subtree));
        is_permitted && !constraints.excluded.iter().any(|subtree| name.is_within(subtree))
    });
    let has_email_in_subject = certificate.subject.has_attribute(EMAIL_ADDRESS);
    let has_form = |form: &NameForm| {
        alternatives.other_forms.contains(form) || (*form == NameForm::Email && has_email_in_subject)
    };
    directory_names_fit && !constraints.other_forms.iter().any(has_form)
}
