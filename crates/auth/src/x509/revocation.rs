//! Revocation lists (RFC 5280 §5), verified when they are loaded.
//!
//! Only complete lists by the authority itself are heeded. Deltas, parts and indirect lists say so in a critical
//! extension, and a list with one of those is refused.

use std::collections::HashSet;

use bytes::Bytes;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::certificate::Certificate;
use super::checks::SKEW_S;
use super::name::Name;
use super::signature::Signed;

#[derive(Debug)]
pub struct RevocationList {
    signed: Signed,
    pub issuer: Name,
    this_update_s: i64,
    next_update_s: Option<i64>,
    serials: HashSet<Box<[u8]>>,
}

impl RevocationList {
    pub fn from_der(der: &Bytes) -> Result<RevocationList, String> {
        let signed = Signed::from_der(der).map_err(|error| error.to_string())?;
        let (rest, list) = CertificateRevocationList::from_der(der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err("bytes follow the list".to_owned());
        }
        if list.tbs_cert_list.signature != list.signature_algorithm {
            return Err("two different signature algorithms are named".to_owned());
        }
        let mut serials = HashSet::new();
        let mut extensions = list.extensions().iter();
        for revoked in list.iter_revoked_certificates() {
            if revoked.extensions().iter().any(|extension| extension.critical) {
                return Err("an entry has a critical extension; indirect lists are not understood".to_owned());
            }
            serials.insert(significant(revoked.raw_serial()).into());
        }
        if let Some(extension) = extensions.find(|extension| extension.critical) {
            return Err(format!(
                "it has the critical extension {}; only complete lists are understood",
                extension.oid
            ));
        }
        Ok(RevocationList {
            signed,
            issuer: Name::from_der(list.issuer().as_raw())
                .map_err(|_| "its issuer is malformed".to_owned())?,
            this_update_s: list.last_update().timestamp(),
            next_update_s: list.next_update().map(|time| time.timestamp()),
            serials,
        })
    }

    pub fn is_by(&self, authority: &Certificate) -> bool {
        let may_sign = authority.extensions.key_usage.is_none_or(|usage| usage.crl_sign);
        may_sign && self.issuer == authority.subject && self.signed.verify(&authority.key).is_ok()
    }

    pub fn is_newer_than(&self, other: &RevocationList) -> bool {
        self.this_update_s > other.this_update_s
    }

    pub fn is_current(&self, now_s: i64) -> bool {
        let has_begun = self.this_update_s <= now_s.saturating_add(SKEW_S);
        has_begun && self.next_update_s.is_some_and(|next| now_s <= next.saturating_add(SKEW_S))
    }

    pub fn revokes(&self, certificate: &Certificate) -> bool {
        self.serials.contains(significant(&certificate.serial))
    }
}

fn significant(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    &serial[zeros..]
}
