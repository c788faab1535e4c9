//! Proxy certificates: a user's certificate signs a short-lived one, that another, and each may do what the user may
//! (RFC 3820).
//!
//! Limited proxies, Globus' word for "not for starting jobs", are accepted and marked: storage has no jobs. Proxies from
//! before the RFC are recognised by their names and refused with a word on how to make others.

use std::sync::Arc;

use super::certificate::{Certificate, ProxyInfo};
use super::checks::{Budget, Purpose, check_holder, check_signature};
use super::error::X509Error;

const INHERIT_ALL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];
const GLOBUS_LIMITED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

pub fn is_limited(certificate: &Certificate) -> bool {
    certificate.extensions.proxy.as_ref().is_some_and(|info| &*info.language == GLOBUS_LIMITED)
}

/// The proxies, leaf first, each checked, and the end entity that stands behind them, unchecked.
pub fn strip(
    chain: &[Arc<Certificate>],
    now_s: i64,
    budget: &mut Budget,
) -> Result<(Vec<Arc<Certificate>>, Arc<Certificate>), X509Error> {
    let mut current = chain.first().ok_or(X509Error::NoCertificate)?;
    let mut proxies: Vec<Arc<Certificate>> = Vec::new();
    loop {
        let Some(info) = &current.extensions.proxy else {
            refuse_legacy(current)?;
            return Ok((proxies, current.clone()));
        };
        check(current, info, proxies.len(), now_s)?;
        let issuer = issuer(current, chain, &proxies, budget)?;
        if issuer.extensions.basic_constraints.is_some_and(|basic| basic.is_authority) {
            return Err(broken(current, "an authority does not issue proxies"));
        }
        proxies.push(current.clone());
        current = issuer;
    }
}

/// Proxies are issued by what the client brings along, never by what is installed here.
fn issuer<'a>(
    proxy: &Arc<Certificate>,
    chain: &'a [Arc<Certificate>],
    below: &[Arc<Certificate>],
    budget: &mut Budget,
) -> Result<&'a Arc<Certificate>, X509Error> {
    let mut failure = X509Error::UntrustedIssuer { issuer: proxy.issuer.oneline() };
    for candidate in chain {
        let is_used = |used: &Arc<Certificate>| used.digest == candidate.digest;
        if candidate.subject != proxy.issuer || is_used(proxy) || below.iter().any(is_used) {
            continue;
        }
        match check_signature(proxy, candidate, budget) {
            Ok(()) => return Ok(candidate),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

fn check(proxy: &Certificate, info: &ProxyInfo, below: usize, now_s: i64) -> Result<(), X509Error> {
    let subject = || proxy.subject.oneline();
    if info.is_draft {
        return Err(X509Error::LegacyProxy { subject: subject() });
    }
    let extensions = &proxy.extensions;
    let rules = [
        (info.is_critical, "its information is critical (§3.8)"),
        (
            proxy.subject.common_name_below(&proxy.issuer).is_some(),
            "its subject is the issuer's with one more common name (§3.4)",
        ),
        (!extensions.alternative_names.is_present, "it has no alternative name (§3.5)"),
        (!extensions.has_issuer_alternative_name, "its issuer has no alternative name (§3.2)"),
        (extensions.basic_constraints.is_none_or(|basic| !basic.is_authority), "it is no authority (§3.7)"),
        (
            extensions.key_usage.is_none_or(|usage| !usage.key_cert_sign),
            "it signs no certificates but proxies (§3.6)",
        ),
        (
            info.path_len.is_none_or(|max| below <= max as usize),
            "more proxies stand below than it allows (§3.8.1)",
        ),
    ];
    if let Some((_, rule)) = rules.iter().find(|(holds, _)| !holds) {
        return Err(X509Error::ProxyRule { subject: subject(), rule });
    }
    match &*info.language {
        INHERIT_ALL | GLOBUS_LIMITED if info.has_policy => {
            return Err(broken(proxy, "this policy language has no policy (§3.8.2)"));
        }
        INHERIT_ALL | GLOBUS_LIMITED => {}
        INDEPENDENT => return Err(X509Error::IndependentProxy { subject: subject() }),
        other => {
            return Err(X509Error::UnknownPolicy { subject: subject(), language: der::dotted(other) });
        }
    }
    check_holder(proxy, Purpose::Client, now_s)
}

/// Globus Toolkit 2 told proxies by the last name alone. Without this they would look like users of an untrusted issuer.
fn refuse_legacy(certificate: &Certificate) -> Result<(), X509Error> {
    match certificate.subject.common_name_below(&certificate.issuer) {
        Some(b"proxy" | b"limited proxy") => {
            Err(X509Error::LegacyProxy { subject: certificate.subject.oneline() })
        }
        _ => Ok(()),
    }
}

fn broken(proxy: &Certificate, rule: &'static str) -> X509Error {
    X509Error::ProxyRule { subject: proxy.subject.oneline(), rule }
}
