//! `/health` and `/metrics` of a host that has a pool and no namespace. It has no users: details and metrics are for this
//! host, and for the networks where metrics are collected.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, StatusCode};
use http_server::{Request, Response};
use types::Network;

use crate::caller::is_trusted_address;
use crate::health::{self, PATIENCE};
use crate::instance::{Problem, ProcessView, Snapshot};
use crate::metrics::{self, Recorder};
use crate::refusal::Refusal;
use crate::router::finish;

/// The pool host, which the binary gives.
#[async_trait]
pub trait HostInstance: Send + Sync {
    /// Cheap: from memory.
    async fn snapshot(&self) -> HostSnapshot;

    /// Current problems; empty when all is well.
    async fn problems(&self) -> Vec<Problem>;

    /// Figures that the system has of this process now.
    async fn process(&self) -> ProcessView;
}

#[derive(Clone, Debug, Default)]
pub struct HostSnapshot {
    /// Of the pool and its I/O. The rest, which only a head has, is not read.
    pub pool: Snapshot,
    pub is_connected: bool,
    /// 0: clients read and do not write.
    pub lease_s: f64,
    /// To the head, since the start.
    pub reconnects: u64,
}

pub struct HostAdmin {
    instance: Arc<dyn HostInstance>,
    metrics: Recorder,
    /// Networks from which metrics and the details of health are readable, as from this host.
    metrics_networks: Vec<Network>,
}

impl HostAdmin {
    pub fn new(
        instance: Arc<dyn HostInstance>,
        metrics: Recorder,
        metrics_networks: Vec<Network>,
    ) -> HostAdmin {
        HostAdmin { instance, metrics, metrics_networks }
    }

    /// Whether the path is answered here.
    pub fn owns(path: &str) -> bool {
        matches!(path, "/metrics" | "/health" | "/health/live")
    }

    pub async fn serve(&self, request: &Request) -> Response {
        let is_head = request.method == Method::HEAD;
        finish(self.look(request).await.unwrap_or_else(Refusal::into_response), is_head)
    }

    /// To be called every second or so.
    pub fn tick(&self) {
        self.metrics.tick();
    }

    async fn look(&self, request: &Request) -> Result<Response, Refusal> {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(Refusal::wrong_method("GET, HEAD"));
        }
        let is_trusted = is_trusted_address(request, &self.metrics_networks);
        match request.uri.path() {
            "/health/live" => Ok(health::live()),
            "/health" => Ok(health::report(request, &self.problems().await, is_trusted)),
            "/metrics" if is_trusted => self.rendered().await,
            "/metrics" => Err(Refusal::forbidden(
                "metrics of a pool host are for this host and for http.metrics_networks in its configuration",
            )),
            _ => Err(Refusal::not_found()),
        }
    }

    async fn problems(&self) -> Vec<Problem> {
        let problems = tokio::time::timeout(PATIENCE, self.instance.problems()).await;
        problems.unwrap_or_else(|_| vec![health::no_answer()])
    }

    async fn rendered(&self) -> Result<Response, Refusal> {
        let snapshot = tokio::time::timeout(PATIENCE, self.instance.snapshot()).await.map_err(|_| {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the pool host does not answer in time")
        })?;
        let process = self.instance.process().await;
        let text = self.metrics.render_host(&snapshot, &self.problems().await, &process);
        Ok(Response::full(StatusCode::OK, metrics::CONTENT_TYPE, text))
    }
}

#[cfg(test)]
mod tests {
    //! A pool host asked from this host, from the collector and from elsewhere.

    use http_server::ResponseBody;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::request;
    use crate::instance::PoolView;

    struct Host(Vec<Problem>);

    #[async_trait]
    impl HostInstance for Host {
        async fn snapshot(&self) -> HostSnapshot {
            let pools = vec![PoolView { name: "pool-3".to_owned(), free_bytes: 5, ..PoolView::default() }];
            let pool = Snapshot { pools, ..Snapshot::default() };
            HostSnapshot { pool, is_connected: true, lease_s: 9.5, reconnects: 2 }
        }

        async fn problems(&self) -> Vec<Problem> {
            self.0.clone()
        }

        async fn process(&self) -> ProcessView {
            ProcessView::default()
        }
    }

    const COLLECTOR: &str = "198.51.100.7";

    async fn ask(problems: &[Problem], path: &str, from: &str) -> (u16, String) {
        let networks = vec!["198.51.100.0/24".parse().unwrap()];
        let host = HostAdmin::new(Arc::new(Host(problems.to_vec())), Recorder::new().unwrap(), networks);
        let response = host.serve(&request("GET", path, &[], from, "")).await;
        let ResponseBody::Full(body) = response.body else { panic!("{:?}", response.status) };
        (response.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn metrics_of_a_pool_host_are_of_its_pool_and_of_nothing_that_it_does_not_have() {
        for from in ["127.0.0.1", COLLECTOR] {
            let (status, text) = ask(&[], "/metrics", from).await;
            assert_eq!(status, 200);
            for line in [
                "forebay_pool_free_bytes{pool=\"pool-3\"} 5",
                "forebay_head_connected 1",
                "forebay_head_lease_seconds 9.5",
                "forebay_head_reconnects_total 2",
                "forebay_healthy 1",
            ] {
                assert!(text.lines().any(|told| told == line), "no {line} in\n{text}");
            }
            let of_heads = ["forebay_namespace_files", "forebay_keys_", "forebay_clients", "forebay_nfs_"];
            for series in of_heads {
                assert!(!text.contains(&format!("\n{series}")), "{series} in\n{text}");
            }
        }
        assert_eq!(ask(&[], "/metrics", "203.0.113.9").await.0, 403);
    }

    #[tokio::test]
    async fn strangers_hear_what_kind_of_problem_a_pool_host_has() {
        let problem = Problem {
            kind: "head-away",
            what: "not connected to 192.0.2.10:7413".to_owned(),
            advice: "look".to_owned(),
        };
        let whole = json!([problem]);
        for (from, problems) in [("203.0.113.9", json!([{ "kind": "head-away" }])), (COLLECTOR, whole)] {
            let (status, text) = ask(std::slice::from_ref(&problem), "/health", from).await;
            let told: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((status, &told["problems"]), (503, &problems), "{from}");
        }
        assert_eq!(ask(&[], "/health", "203.0.113.9").await.0, 200);
        assert_eq!(ask(&[problem], "/health/live", "203.0.113.9").await.0, 200);
    }
}
