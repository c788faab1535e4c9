//! Reports that the running process sends over its control socket, and their text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::display::{Seconds, Size};

use crate::keys::KeysReport;

#[derive(Debug, Serialize, Deserialize)]
pub struct StatusReport {
    pub version: String,
    pub pid: u32,
    pub data: String,
    pub uptime_s: u64,
    /// Seconds left of the grace period after a start; 0: none.
    pub grace_s: u64,
    pub files: u64,
    /// Which changes the namespace refuses now, if any, and why.
    #[serde(default)]
    pub refused: Option<String>,
    /// `None`: the HTTP door is switched off.
    #[serde(default)]
    pub http: Option<HttpReport>,
    pub clients: Vec<ClientReport>,
    pub opens: u64,
    pub locks: u64,
    pub layouts: u64,
    pub delegations: u64,
    pub pools: Vec<PoolReport>,
    /// Those that tickets to pools are sealed with.
    #[serde(default)]
    pub keys: KeysReport,
    /// NFS operations per second over the last ten seconds, head and pools.
    pub operations_per_s: f64,
    /// Since the start, by name.
    pub operations: BTreeMap<String, u64>,
}

/// Where HTTP is served, and to which clients without TLS.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HttpReport {
    pub address: String,
    pub tls: bool,
    /// As configured. Without TLS this host is served as well.
    pub plain_networks: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ClientReport {
    /// The client's name for itself (`co_ownerid`).
    pub name: String,
    pub address: String,
    /// A mounted client has a session; every mount of a host shares one client record.
    pub sessions: u64,
    pub opens: u64,
    pub locks: u64,
    pub layouts: u64,
    pub delegations: u64,
    pub idle_s: u64,
    /// Its lease is over, and it stays until somebody needs what it has.
    #[serde(default)]
    pub courtesy: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct PoolReport {
    pub id: u32,
    pub address: String,
    /// It gets no new files and no clients.
    #[serde(default)]
    pub is_drained: bool,
    pub offline: Option<String>,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub free_files: u64,
    pub replicas: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Errors that NFS clients reported of this pool (LAYOUTRETURN, LAYOUTERROR).
    pub client_errors: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FsckReport {
    pub files: u64,
    pub replicas: u64,
    /// Contradictions; each a sentence.
    pub problems: Vec<String>,
    /// Oddities that lose nothing, such as space that the next clean-up frees.
    pub remarks: Vec<String>,
}

impl StatusReport {
    pub fn text(&self) -> String {
        let mut out = format!(
            "Forebay {} (pid {}) up {}, data {}\n",
            self.version,
            self.pid,
            Seconds(self.uptime_s),
            self.data
        );
        if self.grace_s > 0 {
            out += &format!("grace      {} s left: clients reclaim, new opens wait\n", self.grace_s);
        }
        let refused = self.refused.as_ref().map(|refused| format!(", {refused}")).unwrap_or_default();
        out += &format!("namespace  {} files{refused}\n", self.files);
        if let Some(http) = &self.http {
            out += &format!("http       {}\n", http.text());
        }
        let mounts = self.clients.iter().filter(|client| client.sessions > 0).count();
        out += &format!(
            "clients    {}, mounts {mounts}, opens {}, locks {}, layouts {}, delegations {}\n",
            self.clients.len(),
            self.opens,
            self.locks,
            self.layouts,
            self.delegations
        );
        out += &format!("operations {:.1}/s\n", self.operations_per_s);
        out += &format!("keys       {}\n", self.keys);
        for pool in &self.pools {
            let state = match (pool.is_drained, pool.offline.as_deref()) {
                (false, None) => "online".to_owned(),
                (true, None) => "drained".to_owned(),
                (false, Some(why)) => why.to_owned(),
                (true, Some(why)) => format!("drained, {why}"),
            };
            let errors = match pool.client_errors {
                0 => String::new(),
                count => format!(", {count} errors told by clients"),
            };
            out += &format!(
                "pool-{:<4}  {} {state}, {} free of {}, {} replicas, {} read, {} written{errors}\n",
                pool.id,
                pool.address,
                Size(pool.free_bytes),
                Size(pool.total_bytes),
                pool.replicas,
                Size(pool.read_bytes),
                Size(pool.written_bytes)
            );
        }
        for client in &self.clients {
            out += &format!(
                "client     {} at {}: opens {}, locks {}, layouts {}, delegations {}, idle {}{}\n",
                client.name,
                client.address,
                client.opens,
                client.locks,
                client.layouts,
                client.delegations,
                Seconds(client.idle_s),
                if client.courtesy { ", lease over" } else { "" }
            );
        }
        out
    }
}

impl HttpReport {
    fn text(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let mut text = format!("{scheme}://{}/", self.address);
        if !self.plain_networks.is_empty() {
            text += &format!(", without TLS for {}", self.plain_networks.join(", "));
        }
        text
    }
}

impl FsckReport {
    pub fn text(&self) -> String {
        let mut out = String::new();
        for problem in &self.problems {
            out += &format!("problem: {problem}\n");
        }
        for remark in &self.remarks {
            out += &format!("remark: {remark}\n");
        }
        let verdict = if self.problems.is_empty() {
            "clean".to_owned()
        } else {
            format!("{} problems", self.problems.len())
        };
        out + &format!("{} files, {} replicas: {verdict}\n", self.files, self.replicas)
    }
}
