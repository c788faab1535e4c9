//! `/health`: whether the instance is well, and what to do if not; `/health/live`: whether it is there at all.
//!
//! Anybody may ask, as load balancers do, and gets the kinds of problems. Details are only for this host, for the
//! networks where metrics are collected, and for users.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use http_server::{Request, Response};
use http_wire::content;
use serde_json::{Value, json};

use crate::answer;
use crate::caller::{is_trusted_address, user};
use crate::instance::{Problem, Snapshot};
use crate::refusal::Refusal;
use crate::service::Admin;

/// An instance that does not report its problems within this time is unhealthy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

impl Admin {
    pub(crate) async fn health(&self, request: &Request) -> Result<Response, Refusal> {
        let problems = self.problems().await;
        if problems.is_empty() {
            return Ok(report(request, &problems, false));
        }
        if is_trusted_address(request, &self.config.metrics_networks) {
            return Ok(report(request, &problems, true));
        }
        // A caller that is not known, or has no right to the details, gets the kinds.
        let caller = self.caller(request).await.ok();
        let is_user = caller.as_ref().is_some_and(|caller| user(caller).is_ok());
        let asked_by = caller.and_then(|caller| caller.known_name());
        Ok(Response { user: asked_by, ..report(request, &problems, is_user) })
    }

    /// If the instance does not answer in time, that is the problem.
    pub(crate) async fn problems(&self) -> Vec<Problem> {
        let problems = tokio::time::timeout(PATIENCE, self.services.instance.problems()).await;
        problems.unwrap_or_else(|_| vec![no_answer()])
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, Refusal> {
        let snapshot = tokio::time::timeout(PATIENCE, self.services.instance.snapshot()).await;
        snapshot.map_err(|_| {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the instance does not answer in time")
        })
    }
}

pub(crate) fn no_answer() -> Problem {
    Problem {
        kind: "no-answer",
        what: format!("the instance does not say in {} s how it is", PATIENCE.as_secs()),
        advice: "look at the log, and at the load of processors and disks".to_owned(),
    }
}

pub(crate) fn live() -> Response {
    Response::text(StatusCode::OK, "alive")
}

pub(crate) fn report(request: &Request, problems: &[Problem], is_shown: bool) -> Response {
    let status = if problems.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if wants_text(&request.headers) {
        return Response::text(status, text(problems, is_shown));
    }
    let mut body = json!({ "status": word(problems) });
    if !problems.is_empty() {
        body["problems"] = listed(problems, is_shown);
    }
    answer::json(status, &body)
}

pub(crate) fn word(problems: &[Problem]) -> &'static str {
    if problems.is_empty() { "healthy" } else { "unhealthy" }
}

pub(crate) fn listed(problems: &[Problem], is_shown: bool) -> Value {
    let one = |problem: &Problem| if is_shown { json!(problem) } else { json!({ "kind": problem.kind }) };
    problems.iter().map(one).collect()
}

fn text(problems: &[Problem], is_shown: bool) -> String {
    let mut text = word(problems).to_owned();
    for Problem { kind, what, advice } in problems {
        text.push_str(&if is_shown { format!("\n{kind}: {what}\n  {advice}") } else { format!("\n{kind}") });
    }
    text
}

/// Whether a client names text and not JSON: `curl -H 'Accept: text/plain'`, a browser. `*/*` gets JSON.
fn wants_text(headers: &HeaderMap) -> bool {
    let is_text = |name: &[u8]| name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"text/"));
    content::accepted(headers).any(is_text) && !content::accepts(headers, "application/json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ANN, FakeInstance, Fixture};

    fn offline() -> Problem {
        Problem {
            kind: "pool-offline",
            what: "pool-1 at /srv/b does not answer".to_owned(),
            advice: "look at the disk".to_owned(),
        }
    }

    #[tokio::test]
    async fn all_is_well() {
        let fixture = Fixture::new();
        let answer = fixture.ask("GET", "/health", &[("accept", "*/*")]).await;
        assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({ "status": "healthy" })));
        let answer = fixture.ask("GET", "/health", &[("accept", "text/plain")]).await;
        assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, "healthy\n"));
    }

    #[tokio::test]
    async fn media_types_have_no_case() {
        let fixture = Fixture::new();
        for (accept, expected) in [
            ("Text/Plain", "healthy\n"),
            ("TEXT/html;q=0.9, */*", "healthy\n"),
            ("text/plain, Application/JSON", "{\"status\":\"healthy\"}\n"),
        ] {
            assert_eq!(fixture.ask("GET", "/health", &[("accept", accept)]).await.text, expected, "{accept}");
        }
    }

    #[tokio::test]
    async fn strangers_hear_what_kind_of_problem_and_others_what_and_where() {
        let fixture = Fixture::new();
        fixture.instance.problems.lock().push(offline());
        let stranger = fixture.ask("GET", "/health", &[]).await;
        assert_eq!(stranger.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(stranger.json()["problems"], json!([{ "kind": "pool-offline" }]));
        let whole = json!([offline()]);
        assert_eq!(fixture.get("/health", ANN).await.json()["problems"], whole);
        for address in ["127.0.0.1", "::1", "198.51.100.7", "::ffff:198.51.100.7"] {
            let answer = fixture.ask_from(address, "/health", &[]).await;
            assert_eq!((answer.status.as_u16(), &answer.json()["problems"]), (503, &whole), "{address}");
        }
        let text = fixture.ask_from("127.0.0.1", "/health", &[("accept", "text/plain")]).await.text;
        assert_eq!(text, "unhealthy\npool-offline: pool-1 at /srv/b does not answer\n  look at the disk\n");
    }

    #[tokio::test]
    async fn a_request_by_a_proxy_on_this_host_counts_as_from_elsewhere() {
        let fixture = Fixture::new();
        fixture.instance.problems.lock().push(offline());
        let answer = fixture.ask_from("127.0.0.1", "/health", &[("x-forwarded-for", "203.0.113.1")]).await;
        assert!(!answer.text.contains("/srv"), "{}", answer.text);
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_that_does_not_answer_is_not_well_but_alive() {
        let fixture = Fixture::with(FakeInstance { is_stuck: true, ..FakeInstance::default() });
        let answer = fixture.ask("GET", "/health", &[]).await;
        assert_eq!(answer.json()["problems"][0]["kind"], "no-answer");
        assert_eq!(fixture.ask("GET", "/health/live", &[]).await.status, StatusCode::OK);
        assert_eq!(fixture.get("/api/v1/pools", ANN).await.error().0, 503);
    }
}
