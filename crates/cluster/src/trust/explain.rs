//! Failed handshakes in words for people.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

const NOT_OURS: &str = "the peer is not of this cluster, or the keys of the cluster were rotated meanwhile: make a new token on the head";

/// Why a connection of a cluster was not made, in one line.
///
/// It knows the errors of rustls that a mistake of an operator leads to. It writes all other errors as they are.
pub fn explain(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|source| source.downcast_ref::<Error>());
    let known = match tls {
        Some(Error::InvalidCertificate(reason)) => certificate(reason),
        Some(Error::AlertReceived(alert)) => received(*alert),
        Some(Error::PeerIncompatible(
            PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        )) => Some("the peer does not speak TLS 1.3"),
        Some(Error::InvalidMessage(_)) => Some("the peer does not speak TLS; the port may be a wrong one"),
        _ => None,
    };
    known.map_or_else(|| error.to_string(), str::to_owned)
}

fn certificate(reason: &CertificateError) -> Option<&'static str> {
    match reason {
        CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_) => {
            Some(NOT_OURS)
        }
        CertificateError::NotValidForName
        | CertificateError::NotValidForNameContext { .. }
        | CertificateError::InvalidPurpose
        | CertificateError::InvalidPurposeContext { .. } => {
            Some("the peer is of this cluster, and its certificate is for another role")
        }
        _ => None,
    }
}

fn received(alert: AlertDescription) -> Option<&'static str> {
    match alert {
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            Some("the peer refuses the certificate of this host: it is not of the peer's cluster")
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => Some("the peer refuses the certificate of this host"),
        AlertDescription::ProtocolVersion => Some("the peer does not speak TLS 1.3"),
        _ => None,
    }
}
