//! Why a certificate chain is refused, in words for the log of the server and for the user who asks why.

use thiserror::Error;

/// Subjects are in OpenSSL's oneline form.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum X509Error {
    #[error("no client certificate was given")]
    NoCertificate,
    #[error("the certificate chain is too long or too large")]
    ChainTooLarge,
    #[error("cannot read certificate {index} of the chain: {why}")]
    Unreadable { index: usize, why: String },
    #[error(
        "no certificate authority is trusted here; put their certificates into the directory of authorities"
    )]
    NoAuthorities,
    #[error("no trusted authority for the issuer {issuer}")]
    UntrustedIssuer { issuer: String },
    #[error("the signature on {subject} is not by {issuer}")]
    WrongSignature { subject: String, issuer: String },
    #[error("{subject} has {what}, which is too weak or not known")]
    WeakAlgorithm { subject: String, what: String },
    #[error("the chain takes more signature checks than are made for one client")]
    TooMuchWork,
    #[error("the certificate of {subject} is not valid yet")]
    NotYetValid { subject: String },
    #[error("the certificate of {subject} has expired")]
    Expired { subject: String },
    #[error("{subject} signs certificates and is no authority")]
    NotAnAuthority { subject: String },
    #[error("{subject} is an authority, not a user or a host")]
    EndEntityIsAuthority { subject: String },
    #[error("too many authorities below {subject}")]
    PathTooLong { subject: String },
    #[error("the certificate of {subject} is not for TLS clients")]
    NotForClients { subject: String },
    #[error("the key usage of {subject} does not allow signatures")]
    NotForSigning { subject: String },
    #[error("the subject of an end-entity certificate is empty or reads like another name: {subject}")]
    AmbiguousName { subject: String },
    #[error("the proxy {subject} breaks a rule of RFC 3820: {rule}")]
    ProxyRule { subject: String, rule: &'static str },
    #[error("{subject} is a proxy older than RFC 3820; make one with `voms-proxy-init -rfc`")]
    LegacyProxy { subject: String },
    #[error("the proxy {subject} is independent: it carries no rights of its issuer")]
    IndependentProxy { subject: String },
    #[error("the proxy {subject} restricts its rights in an unknown policy language ({language})")]
    UnknownPolicy { subject: String, language: String },
    #[error("the certificate of {subject} has the critical extension {oid}, which is not understood")]
    UnknownCritical { subject: String, oid: String },
    #[error("the name of {subject} is not allowed by the name constraints of {authority}")]
    NameConstraints { subject: String, authority: String },
    #[error("the signing policy of {authority} does not cover {subject}")]
    SigningPolicy { subject: String, authority: String },
    #[error("the certificate of {subject} is revoked")]
    Revoked { subject: String },
    #[error("there is no revocation list of {authority}")]
    NoRevocationList { authority: String },
    #[error("the revocation list of {authority} is out of date")]
    RevocationListExpired { authority: String },
}

/// Why the attributes of a VOMS server are not heeded. The user stays certified, without them.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum VomsError {
    #[error("cannot read the VOMS attributes")]
    Unreadable,
    #[error("no .lsc file for the organisation {vo} and the server {host}")]
    UnknownServer { vo: String, host: String },
    #[error("the certificates of the VOMS server do not agree with the .lsc file of {vo} and {host}")]
    NotInLsc { vo: String, host: String },
    #[error("the VOMS attributes carry no certificate of their server")]
    NoIssuer,
    #[error("the certificate of the VOMS server is refused: {0}")]
    Issuer(#[from] X509Error),
    #[error("the signature on the VOMS attributes is wrong or too weak")]
    WrongSignature,
    #[error("the VOMS attributes were given to somebody else")]
    WrongHolder,
    #[error("the VOMS attributes are not valid now")]
    NotValidNow,
    #[error("the VOMS attributes are meant for other servers")]
    NotForThisServer,
    #[error("the VOMS attributes have the critical extension {oid}, which is not understood")]
    UnknownCritical { oid: String },
    #[error("{fqan} is no attribute of the organisation {vo}")]
    ForeignAttribute { vo: String, fqan: String },
}
