//! Authenticates the caller of a request.

use api::{Activity, Caller, Credential, Origin, Role};
use http::StatusCode;
use http_server::{Held, Request};
use http_wire::credential::{self, Given};
use http_wire::target::Query;
use types::Network;

use crate::refusal::Refusal;
use crate::service::Admin;

/// Headers by which a proxy says that it speaks for somebody else.
const OF_PROXIES: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

impl Admin {
    /// As everywhere: Authorization, `?authz=`, the session's cookie, the client's certificate; nothing is anonymous.
    pub(crate) async fn caller(&self, request: &Request) -> Result<Caller, Refusal> {
        let query = query(request)?;
        let given = credential::given(&request.method, &request.headers, &query)?;
        let certificates = request.peer.tls.as_ref().map_or(&[][..], |tls| &tls.certificates);
        let credential = match &given {
            Given::Bearer(token) => Credential::Bearer(token),
            Given::Password { user, password } => Credential::Password { user, password },
            Given::Nothing if !certificates.is_empty() => Credential::Certificates(certificates),
            Given::Nothing => Credential::None,
        };
        Ok(self.services.authenticator.authenticate(credential, &origin(request)).await?)
    }
}

/// Whether the request comes from this host or from a network where metrics are collected. A request that a proxy on this
/// host forwards comes from elsewhere.
pub(crate) fn is_trusted_address(request: &Request, metrics_networks: &[Network]) -> bool {
    let address = request.peer.address.ip().to_canonical();
    let is_direct = !OF_PROXIES.iter().any(|name| request.headers.contains_key(*name));
    is_direct && (address.is_loopback() || metrics_networks.iter().any(|network| network.contains(address)))
}

/// The caller, if it has a name and its credential is not bound to a path.
pub(crate) fn user(caller: &Caller) -> Result<&Caller, Refusal> {
    if caller.role == Role::Anonymous {
        return Err(Refusal::unauthorized("this needs a login or a token"));
    }
    // The answers here are of the whole instance.
    if !caller.may(Activity::List, &[]) {
        return Err(Refusal::forbidden("the credential is bound to a path"));
    }
    Ok(caller)
}

/// The caller, if it is an administrator.
pub(crate) fn administrator(caller: &Caller) -> Result<&Caller, Refusal> {
    let caller = user(caller)?;
    if caller.role != Role::Admin {
        return Err(Refusal::forbidden(format!("{} is no administrator", caller.name)));
    }
    Ok(caller)
}

/// The memory that a list of thousands takes while it is made, about.
const LIST_BYTES: usize = 1 << 20;

/// Memory for a list, to be held as long as it is made.
pub(crate) async fn memory(request: &Request) -> Result<Held, Refusal> {
    let busy =
        || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server has no memory for this now; try again");
    request.peer.memory.take(None, LIST_BYTES).await.ok_or_else(busy)
}

pub(crate) fn origin(request: &Request) -> Origin {
    Origin { address: request.peer.address.ip(), is_encrypted: request.peer.tls.is_some() }
}

pub(crate) fn query(request: &Request) -> Result<Query, Refusal> {
    Ok(request.uri.query().map(Query::parse).transpose()?.unwrap_or_default())
}
