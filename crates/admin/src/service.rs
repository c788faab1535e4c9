//! The interface as the binary makes it and asks it.

use std::sync::Arc;

use http_server::{Request, Response};

use crate::config::{AdminConfig, AdminServices};
use crate::page::Page;

pub struct Admin {
    pub(crate) services: AdminServices,
    pub(crate) config: AdminConfig,
    pub(crate) page: Option<Page>,
}

impl Admin {
    pub fn new(services: AdminServices, config: AdminConfig) -> Arc<Admin> {
        let page = config.has_page.then(|| Page::new(&services, &config));
        Arc::new(Admin { services, config, page })
    }

    pub async fn serve(&self, request: Request) -> Response {
        self.route(request).await
    }

    /// To be called every second or so.
    pub fn tick(&self) {
        self.services.metrics.tick();
    }
}

/// Names in the root directory that are answered here, with all below them.
pub const RESERVED: &[&str] = &["api", "health", "metrics", "ui"];

/// Whether the path is answered here and not by the namespace's door. One that means the same and is spelled differently
/// is refused there.
pub fn owns(path: &str) -> bool {
    let first = path.strip_prefix('/').and_then(|path| path.split('/').next());
    first.is_some_and(|first| RESERVED.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_components_are_ours() {
        for path in [
            "/metrics",
            "/metrics/",
            "/health",
            "/health/live",
            "/api",
            "/api/v1/status",
            "/ui",
            "/ui/",
            "/ui/files/a",
        ] {
            assert!(owns(path), "{path}");
        }
        for path in ["/", "/metricsx", "/healthy", "/apis", "/uid", "/a/ui", "//ui", "", "*"] {
            assert!(!owns(path), "{path}");
        }
    }
}
