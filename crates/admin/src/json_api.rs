//! `/api/v1/…`: what there is to know and to set, as JSON.
//!
//! [`ENDPOINTS`] and `openapi.json` say the same; a test compares them. Errors are `{"error": …}`. Nobody in particular
//! may read `status` where the instance lets anonymous callers in at all, users everything but who the clients are and
//! what they have open, administrators that as well.

mod levels;
mod namespace;

use http::{Method, StatusCode};
use http_server::{Request, Response};
use http_wire::target::Query;
use serde_json::{Value, json};

use api::{Activity, Caller, Role};

use crate::answer;
use crate::caller::{is_trusted_address, memory, query, user};
use crate::health;
use crate::instance::{Snapshot, find_paths};
use crate::refusal::Refusal;
use crate::service::Admin;

const PREFIX: &str = "/api/v1/";
const READ: &str = "GET, HEAD";
const DESCRIPTION: &str = include_str!("json_api/openapi.json");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Status,
    Pools,
    Clients,
    Opens,
    Operations,
    SlowOperations,
    Namespace,
    LogLevels,
    Description,
}

/// Path below `/api/v1/`, methods.
const ENDPOINTS: &[(&str, &str, Endpoint)] = &[
    ("status", READ, Endpoint::Status),
    ("pools", READ, Endpoint::Pools),
    ("clients", READ, Endpoint::Clients),
    ("opens", READ, Endpoint::Opens),
    ("operations", READ, Endpoint::Operations),
    ("slow-operations", READ, Endpoint::SlowOperations),
    ("namespace/{path}", READ, Endpoint::Namespace),
    ("log-levels", "GET, HEAD, PUT", Endpoint::LogLevels),
    ("openapi.json", READ, Endpoint::Description),
];

impl Admin {
    pub(crate) async fn json_api(&self, request: Request) -> Result<Response, Refusal> {
        let path = request.uri.path().strip_prefix(PREFIX).ok_or_else(Refusal::not_found)?;
        let (methods, endpoint) = endpoint_of(path).ok_or_else(Refusal::not_found)?;
        if !methods.split(", ").any(|method| method == request.method.as_str()) {
            return Err(Refusal::wrong_method(methods));
        }
        let caller = match endpoint {
            // It is for everybody, whatever credential comes with the request.
            Endpoint::Description => Caller::anonymous(),
            _ => self.caller(&request).await?,
        };
        let answer = self.answer(endpoint, &caller, request).await;
        let mut response = answer.unwrap_or_else(Refusal::into_response);
        response.user = caller.known_name();
        Ok(response)
    }

    async fn answer(
        &self,
        endpoint: Endpoint,
        caller: &Caller,
        request: Request,
    ) -> Result<Response, Refusal> {
        match endpoint {
            Endpoint::Description => Ok(Response::full(StatusCode::OK, "application/json", DESCRIPTION)),
            Endpoint::LogLevels if request.method == Method::PUT => {
                self.set_log_levels(caller, request).await
            }
            Endpoint::LogLevels => self.log_levels(caller),
            Endpoint::Namespace => self.namespace(caller, &request).await,
            Endpoint::Status => self.status(caller, &request).await,
            Endpoint::Pools => {
                let snapshot = self.seen_by_user(caller).await?;
                Ok(ok(&json!({ "pools": snapshot.pools })))
            }
            Endpoint::Clients => {
                let _held = memory(&request).await?;
                let clients = self.seen_by_user(caller).await?.clients;
                let shown = part(&clients, &query(&request)?)?;
                Ok(ok(&json!({ "clients": shown, "total": clients.len() })))
            }
            Endpoint::Opens => self.opens(caller, &request).await,
            Endpoint::Operations => {
                let Snapshot { operations, io_modes, read_ahead, .. } = self.seen_by_user(caller).await?;
                Ok(ok(&json!({ "operations": operations, "io_modes": io_modes, "read_ahead": read_ahead })))
            }
            Endpoint::SlowOperations => {
                let snapshot = self.seen_by_user(caller).await?;
                Ok(ok(&json!({ "slow_operations": snapshot.slow_operations })))
            }
        }
    }

    async fn status(&self, caller: &Caller, request: &Request) -> Result<Response, Refusal> {
        let snapshot = self.snapshot().await?;
        let problems = self.problems().await;
        let is_user = caller.role != Role::Anonymous && caller.may(Activity::List, &[]);
        let is_shown = is_user || is_trusted_address(request, &self.config.metrics_networks);
        let offline = snapshot.pools.iter().filter(|pool| pool.offline.is_some()).count();
        Ok(ok(&json!({
            "version": snapshot.version,
            "site": snapshot.site,
            "uptime_s": snapshot.uptime_s,
            "status": health::word(&problems),
            "problems": health::listed(&problems, is_shown),
            "files": snapshot.files,
            "bytes": snapshot.bytes,
            "clients": snapshot.clients.len(),
            "opens": snapshot.open_count,
            "pools": {
                "count": snapshot.pools.len(),
                "offline": offline,
                "total_bytes": snapshot.pools.iter().map(|pool| pool.total_bytes).sum::<u64>(),
                "free_bytes": snapshot.pools.iter().map(|pool| pool.free_bytes).sum::<u64>(),
            },
        })))
    }

    async fn opens(&self, caller: &Caller, request: &Request) -> Result<Response, Refusal> {
        let is_administrator = user(caller)?.role == Role::Admin;
        let _held = memory(request).await?;
        let snapshot = self.seen_by_user(caller).await?;
        let mut shown = part(&snapshot.open_files, &query(request)?)?.to_vec();
        if is_administrator {
            find_paths(&*self.services.instance, &mut shown).await;
        }
        Ok(ok(&json!({ "opens": shown, "total": snapshot.open_count })))
    }

    async fn seen_by_user(&self, caller: &Caller) -> Result<Snapshot, Refusal> {
        let caller = user(caller)?;
        let snapshot = self.snapshot().await?;
        Ok(if caller.role == Role::Admin { snapshot } else { snapshot.without_names() })
    }
}

fn endpoint_of(path: &str) -> Option<(&'static str, Endpoint)> {
    // The root of the namespace is a path too.
    let first = path.split_once('/').map_or(path, |(first, _)| first);
    let found = ENDPOINTS.iter().find(|(name, ..)| match name.split_once("/{") {
        Some((name, _)) => name == first,
        None => *name == path,
    });
    found.map(|(_, methods, endpoint)| (*methods, *endpoint))
}

/// For somebody without a name a refusal is the question who it is.
fn reconsider(refusal: Refusal, caller: &Caller) -> Refusal {
    if refusal.status == StatusCode::FORBIDDEN && caller.role == Role::Anonymous {
        return Refusal::unauthorized("this needs a login or a token");
    }
    refusal
}

fn ok(body: &Value) -> Response {
    answer::json(StatusCode::OK, body)
}

const PART_LEN: usize = 1_000;
const PART_LEN_MAX: usize = 10_000;

/// `?offset=…&limit=…` of a list.
fn part<'a, T>(all: &'a [T], query: &Query) -> Result<&'a [T], Refusal> {
    let offset = number(query, "offset")?.unwrap_or(0);
    let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
    let limit = limit(query)?;
    Ok(&all[offset..all.len().min(offset + limit)])
}

fn limit(query: &Query) -> Result<usize, Refusal> {
    match number(query, "limit")? {
        None => Ok(PART_LEN),
        Some(limit) if (1..=PART_LEN_MAX as u64).contains(&limit) => Ok(limit as usize),
        Some(_) => Err(Refusal::bad_request(format!("limit is not within 1 to {PART_LEN_MAX}"))),
    }
}

fn number(query: &Query, name: &str) -> Result<Option<u64>, Refusal> {
    let parse =
        |text: &str| text.parse().map_err(|_| Refusal::bad_request(format!("{name} is not a number")));
    query.first(name).map(parse).transpose()
}

#[cfg(test)]
mod tests;
