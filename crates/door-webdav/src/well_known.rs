//! The documents at well-known places: what clients look for before they know anything.

use std::sync::Arc;

use api::Namespace;
use files::Files;
use http::{Method, StatusCode};
use http_server::Response;
use serde_json::json;
use types::Clock;

use crate::refusal::Refusal;

pub(crate) struct WellKnown {
    pub namespace: Arc<dyn Namespace>,
    pub files: Arc<Files>,
    pub clock: Arc<dyn Clock>,
    pub site: String,
    pub authorities: Vec<String>,
    pub is_tls: bool,
}

impl WellKnown {
    /// `/.well-known/NAME`. `None`: there is no such document.
    pub async fn document(&self, method: &Method, name: &str) -> Option<Response> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return None;
        }
        match name {
            // A disk-only instance has nothing to stage; saying so here keeps clients from asking further.
            "wlcg-tape-rest-api" => Some(Response::text(
                StatusCode::NOT_FOUND,
                "this instance has no tape: every file is on disk, and there is nothing to stage",
            )),
            "wlcg-storage-record.json" => {
                Some(self.storage_record().await.unwrap_or_else(Refusal::into_response))
            }
            _ => None,
        }
    }

    /// The WLCG storage resource record: what accounting polls.
    async fn storage_record(&self) -> Result<Response, Refusal> {
        let usage = self.namespace.usage().await?;
        let total: u64 = self.files.pools().states().iter().map(|pool| pool.total_bytes).sum();
        let now_s = u64::try_from(self.clock.now().seconds).unwrap_or(0);
        let scheme = if self.is_tls { "https" } else { "http" };
        let endpoints: Vec<_> = self
            .authorities
            .iter()
            .map(|authority| {
                json!({
                    "name": authority,
                    "endpointurl": format!("{scheme}://{authority}/"),
                    "interfacetype": scheme,
                    "interfaceversion": "1.1",
                    "capabilities": ["data.transfer", "data.access.flat", "data.management.transfer"],
                    "qualitylevel": "production",
                    "assignedshares": ["all"],
                })
            })
            .collect();
        let record = json!({ "storageservice": {
            "name": self.site,
            "id": self.site,
            "servicetype": "forebay",
            "implementation": "forebay",
            "implementationversion": env!("CARGO_PKG_VERSION"),
            "qualitylevel": "production",
            "capabilities": ["data.access", "data.transfer", "data.management.transfer"],
            "latestupdate": now_s,
            "storagecapacity": { "online": { "totalsize": total, "usedsize": usage.bytes, "reservedsize": 0 } },
            "storageendpoints": endpoints,
            "storageshares": [{
                "name": "all",
                "timestamp": now_s,
                "totalsize": total,
                "usedsize": usage.bytes,
                "numberoffiles": usage.files,
                "path": ["/"],
                "vos": [],
                "assignedendpoints": ["all"],
                "servingstate": "open",
            }],
        }});
        Ok(Response::full(StatusCode::OK, "application/json", record.to_string()))
    }
}
