//! From a request to a call: the path that it names, and the user who makes it.

use std::sync::Arc;

use api::{AuthError, Authenticator, Credential, Origin};
use http_server::{Request, RequestBody};
use http_wire::credential::{self, CredentialError, Given};
use http_wire::target::Target;

use crate::call::{Call, unauthorized};
use crate::host::with_host;
use crate::own_urls::OwnUrls;
use crate::refusal::Refusal;

pub(crate) struct Admission {
    pub authenticator: Arc<dyn Authenticator>,
    pub own_urls: Arc<OwnUrls>,
}

impl Admission {
    pub async fn admit(&self, request: Request) -> Result<(Call, RequestBody), Refusal> {
        let Request { method, uri, headers, peer, body, .. } = request;
        let target = Target::of_uri(&uri).map_err(|error| Refusal::new(error.status(), error.to_string()))?;
        let origin = Origin { address: peer.address.ip(), is_encrypted: peer.tls.is_some() };
        self.own_urls.refuse_reserved(&target.path)?;
        let given = credential::given(&method, &headers, &target.query).map_err(not_given)?;
        let certificates = peer.tls.as_ref().map_or(&[][..], |tls| &tls.certificates);
        let credential = match &given {
            Given::Bearer(token) => Credential::Bearer(token),
            Given::Password { user, password } => Credential::Password { user, password },
            Given::Nothing if !certificates.is_empty() => Credential::Certificates(certificates),
            Given::Nothing => Credential::None,
        };
        let caller = match self.authenticator.authenticate(credential, &origin).await {
            Ok(caller) => caller,
            Err(AuthError::Refused(message)) => return Err(unauthorized(message)),
            Err(error) => return Err(error.into()),
        };
        let call = Call {
            caller,
            origin,
            method,
            headers: with_host(headers, &uri),
            path: target.path,
            is_directory_form: target.trailing_slash,
            token_in_query: target.query.first("authz").map(str::to_owned),
            peer,
        };
        Ok((call, body))
    }
}

fn not_given(error: CredentialError) -> Refusal {
    match error {
        CredentialError::UnknownScheme => unauthorized(error.to_string()),
        CredentialError::Repeated | CredentialError::Malformed | CredentialError::TooLong => {
            Refusal::bad_request(error.to_string())
        }
    }
}
