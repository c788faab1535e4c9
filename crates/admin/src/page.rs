//! The web page at `/ui/`: files, and for who is logged in pools, clients and operations, live.
//!
//! Plain HTML made here, with a little script for what HTML has no words for. Everything that changes files goes by the
//! WebDAV door on the same origin, so the page can do nothing that a program could not. Without a script one browses,
//! downloads and logs in.
//!
//! Invariants: every value is escaped where it is put (`html`); nothing is fetched from elsewhere, and the
//! Content-Security-Policy has no inline script and no inline style; names are bytes, never assumed to be text.

mod assets;
mod files;
mod format;
mod html;
mod live;
mod login;
mod shell;
mod visitor;

use std::sync::Arc;
use std::time::Duration;

use api::{Authenticator, Namespace};
use http::{HeaderValue, Method, StatusCode, header};
use http_server::{Request, Response};
use types::Clock;

use crate::Instance;
use crate::config::{AdminConfig, AdminServices};
use crate::refusal::Refusal;
use visitor::{Administrators, Visitor};

pub(crate) struct Page {
    instance: Arc<dyn Instance>,
    namespace: Arc<dyn Namespace>,
    authenticator: Arc<dyn Authenticator>,
    clock: Arc<dyn Clock>,
    site: String,
    session_validity_max: Duration,
    administrators: Administrators,
}

const READ: &str = "GET, HEAD";

impl Page {
    pub fn new(services: &AdminServices, config: &AdminConfig) -> Page {
        Page {
            instance: Arc::clone(&services.instance),
            namespace: Arc::clone(&services.namespace),
            authenticator: Arc::clone(&services.authenticator),
            clock: Arc::clone(&services.clock),
            site: config.site.clone(),
            session_validity_max: config.session_validity_max,
            administrators: Administrators::default(),
        }
    }

    /// For `/ui` and everything below it.
    pub async fn handle(&self, request: Request) -> Response {
        let path = request.uri.path().to_owned();
        if path.starts_with("/ui/assets/") && is_read(&request) {
            let gone = || {
                Response::text(StatusCode::NOT_FOUND, "this belongs to another version; load the page again")
            };
            return assets::serve(&path).unwrap_or_else(gone);
        }
        let visitor = match self.visitor(&request).await {
            Ok(visitor) => visitor,
            Err(refusal) => return self.explain(&Visitor::stranger(&path), &refusal),
        };
        let answer = self.answer(&visitor, &path, request).await;
        let mut response = answer.unwrap_or_else(|refusal| self.explain(&visitor, &refusal));
        response.user = visitor.caller.known_name();
        response
    }

    async fn answer(&self, visitor: &Visitor, path: &str, request: Request) -> Result<Response, Refusal> {
        let below = path.strip_prefix("/ui").unwrap_or(path);
        match below {
            "/login" if request.method == Method::POST => return self.log_in(visitor, request).await,
            "/logout" if request.method == Method::POST => return self.log_out(&request).await,
            "/logout" => return Err(Refusal::wrong_method("POST")),
            "/login" if !is_read(&request) => return Err(Refusal::wrong_method("GET, HEAD, POST")),
            _ if !is_read(&request) => return Err(Refusal::wrong_method(READ)),
            _ => {}
        }
        match below {
            "" | "/" | "/files" => Ok(see_other("/ui/files/")),
            "/login" => self.login_form(visitor, &request),
            _ => match below.strip_prefix("/files/") {
                Some(_) => self.files(visitor, &request).await,
                None => self.live(visitor, below).await,
            },
        }
    }
}

fn is_read(request: &Request) -> bool {
    matches!(request.method, Method::GET | Method::HEAD)
}

/// To an address that is printable ASCII.
fn see_other(to: &str) -> Response {
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/ui/files/"));
    Response::new(StatusCode::SEE_OTHER).with(header::LOCATION, to)
}

#[cfg(test)]
mod tests;
