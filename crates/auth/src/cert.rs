//! A certificate for a trial, signed by itself.

use std::time::Duration;

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

/// PEM of a certificate for these host names and addresses, and PEM of its key. It begins an hour ago, for clients
/// whose clocks are behind.
pub fn self_signed(hosts: &[String], days: u32, now_s: u64) -> Result<(String, String), String> {
    let first = hosts.first().ok_or("a certificate needs at least one host name or address")?;
    let fail = |error: rcgen::Error| format!("cannot make a certificate: {error}");
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(fail)?;
    let mut params = CertificateParams::new(hosts.to_vec()).map_err(fail)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, first.as_str());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |s: u64| {
        i64::try_from(s)
            .ok()
            .and_then(|_| epoch.checked_add(Duration::from_secs(s).try_into().ok()?))
            .ok_or_else(|| "the time is out of range".to_owned())
    };
    params.not_before = at(now_s.saturating_sub(3600))?;
    params.not_after = at(now_s.saturating_add(u64::from(days) * 24 * 3600))?;
    let certificate = params.self_signed(&key).map_err(fail)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_its_hosts_and_days() {
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let (certificate, key) = self_signed(&hosts, 30, 1_800_000_000).unwrap();
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
        let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).unwrap();
        let parsed = pem.parse_x509().unwrap();
        assert_eq!(parsed.validity().not_before.timestamp(), 1_800_000_000 - 3600);
        assert_eq!(parsed.validity().not_after.timestamp(), 1_800_000_000 + 30 * 86_400);
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 2);
        assert!(parsed.verify_signature(None).is_ok());
    }

    #[test]
    fn a_certificate_for_nobody_is_refused() {
        assert!(self_signed(&[], 30, 0).is_err());
        assert!(self_signed(&["h".to_owned()], u32::MAX, u64::MAX).is_err());
    }
}
