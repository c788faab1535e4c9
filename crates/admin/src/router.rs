//! Dispatches requests by path, and adds the headers that every answer has.

use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode, header};
use http_server::{Request, Response, ResponseBody};

use crate::caller::{is_trusted_address, user};
use crate::refusal::Refusal;
use crate::service::Admin;
use crate::{health, metrics};

/// Put where the handler has not said otherwise.
const PROTECTION: [(HeaderName, HeaderValue); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

impl Admin {
    pub(crate) async fn route(&self, request: Request) -> Response {
        let is_head = request.method == Method::HEAD;
        let is_page = request.uri.path() == "/ui" || request.uri.path().starts_with("/ui/");
        let answer = match &self.page {
            Some(page) if is_page => Ok(page.handle(request).await),
            None if is_page => Err(Refusal::new(StatusCode::NOT_FOUND, "the web page is switched off")),
            _ if request.uri.path().starts_with("/api") => self.json_api(request).await,
            _ => self.look(&request).await,
        };
        finish(answer.unwrap_or_else(Refusal::into_response), is_head)
    }

    /// Answers the paths that are only read.
    async fn look(&self, request: &Request) -> Result<Response, Refusal> {
        let path = request.uri.path();
        if !matches!(path, "/metrics" | "/health" | "/health/live") {
            return Err(Refusal::not_found());
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(Refusal::wrong_method("GET, HEAD"));
        }
        match path {
            "/metrics" => self.metrics(request).await,
            "/health" => self.health(request).await,
            _ => Ok(health::live()),
        }
    }

    async fn metrics(&self, request: &Request) -> Result<Response, Refusal> {
        if is_trusted_address(request, &self.config.metrics_networks) {
            return self.rendered().await;
        }
        let caller = self.caller(request).await?;
        let answer = match user(&caller) {
            Ok(_) => self.rendered().await,
            Err(refusal) => Err(refusal),
        };
        Ok(Response { user: caller.known_name(), ..answer.unwrap_or_else(Refusal::into_response) })
    }

    async fn rendered(&self) -> Result<Response, Refusal> {
        let snapshot = self.snapshot().await?;
        let problems = self.problems().await;
        let text =
            self.services.metrics.render(&snapshot, &problems, &self.services.instance.process().await);
        Ok(Response::full(StatusCode::OK, metrics::CONTENT_TYPE, text))
    }
}

pub(crate) fn finish(mut response: Response, is_head: bool) -> Response {
    for (name, value) in PROTECTION {
        response.headers.entry(name).or_insert(value);
    }
    if is_head {
        let length = match &response.body {
            ResponseBody::Empty => Some(0),
            ResponseBody::Full(bytes) => Some(bytes.len() as u64),
            ResponseBody::Absent { length } => *length,
            ResponseBody::Pieces { length, .. } => Some(*length),
            ResponseBody::Stream(_) => None,
        };
        response.body = ResponseBody::Absent { length };
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ADMIN, ANN, Fixture, GUEST, request};
    use crate::instance::Problem;

    #[tokio::test]
    async fn every_answer_has_the_headers_that_protect_browsers() {
        let fixture = Fixture::new();
        for path in
            ["/health", "/health/live", "/metrics", "/api/v1/status", "/api/nothing", "/ui/", "/ui/nothing"]
        {
            let headers = fixture.ask("GET", path, &[]).await.headers;
            assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
            // The page's own forms say where they come from, to the page only.
            let referrer = headers["referrer-policy"].to_str().unwrap();
            let is_own_form = path.starts_with("/ui/") && referrer == "same-origin";
            assert!(is_own_form || referrer == "no-referrer", "{path}: {referrer}");
            let policy = headers["content-security-policy"].to_str().unwrap();
            assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
            assert!(!policy.contains("unsafe"), "{path}: {policy}");
        }
    }

    #[tokio::test]
    async fn head_says_how_long_the_answer_would_be() {
        let fixture = Fixture::new();
        for path in ["/health", "/api/v1/status", "/api/v1/openapi.json"] {
            let (get, head) =
                (fixture.get(path, ANN).await, fixture.ask("HEAD", path, &[("authorization", ANN)]).await);
            assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
            assert_eq!((head.length, get.length), (get.length, Some(get.text.len() as u64)), "{path}");
            assert_eq!(head.headers["content-type"], get.headers["content-type"]);
        }
    }

    #[tokio::test]
    async fn read_only_paths_take_get_and_head_only() {
        let fixture = Fixture::new();
        for path in ["/metrics", "/health", "/health/live"] {
            let answer = fixture.ask("POST", path, &[]).await;
            assert_eq!(
                (answer.status.as_u16(), answer.headers["allow"].to_str().unwrap()),
                (405, "GET, HEAD")
            );
        }
        assert_eq!(fixture.ask("GET", "/health/x", &[]).await.error().0, 404);
    }

    #[tokio::test]
    async fn answers_name_their_user_for_the_access_log() {
        let fixture = Fixture::new();
        let problem = Problem { kind: "pool-offline", what: String::new(), advice: String::new() };
        fixture.instance.problems.lock().push(problem);
        let levels = "/api/v1/log-levels";
        for (path, who, status, user) in [
            ("/api/v1/status", ANN, 200, Some("ann")),
            ("/metrics", ANN, 200, Some("ann")),
            ("/metrics", GUEST, 403, Some("guest")),
            ("/metrics", "Bearer wrong", 401, None),
            ("/health", ANN, 503, Some("ann")),
            ("/health", GUEST, 503, Some("guest")),
            ("/health", "Bearer wrong", 503, None),
            (levels, ADMIN, 200, Some("root")),
            (levels, ANN, 403, Some("ann")),
            (levels, "Bearer wrong", 401, None),
            ("/api/v1/openapi.json", "Bearer wrong", 200, None),
        ] {
            let request = request("GET", path, &[("authorization", who)], "203.0.113.9", "");
            let response = fixture.admin.serve(request).await;
            assert_eq!((response.status.as_u16(), response.user.as_deref()), (status, user), "{path} {who}");
        }
    }

    #[tokio::test]
    async fn metrics_are_for_this_host_for_the_collector_and_for_users() {
        let fixture = Fixture::new();
        assert_eq!(fixture.ask("GET", "/metrics", &[]).await.error().0, 401);
        assert_eq!(fixture.get("/metrics", "Bearer wrong").await.error().0, 401);
        assert_eq!(fixture.get("/metrics", ANN).await.status, StatusCode::OK);
        for address in ["127.0.0.1", "198.51.100.7"] {
            let answer = fixture.ask_from(address, "/metrics", &[]).await;
            assert_eq!(answer.headers["content-type"], metrics::CONTENT_TYPE);
            assert!(answer.text.contains("\nforebay_clients{door=\"nfs\"} 3\n"), "{}", answer.text);
        }
        let answer = fixture.ask_from("127.0.0.1", "/metrics", &[("x-forwarded-for", "203.0.113.1")]).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        let names = fixture.ask_from("127.0.0.1", "/metrics", &[]).await.text;
        assert!(!names.contains("secret"), "metrics do not name clients");
    }
}
