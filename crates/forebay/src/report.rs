//! Reports that the running process sends over its control socket, and their text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::display::{Seconds, Size};

use crate::keys::KeysReport;
use crate::output::counted;
use crate::table::{Column, Table};

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PoolReport {
    /// `pool-0`.
    pub name: String,
    pub address: String,
    /// It gets no new files and no clients.
    pub drained: bool,
    /// `None`: it is in order.
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
        out += &format!("namespace  {}{refused}\n", counted(self.files, "file", "files"));
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
        out += &format!("\n{}", self.pool_table());
        if !self.clients.is_empty() {
            out += &format!("\n{}", self.client_table());
        }
        out
    }

    fn pool_table(&self) -> Table<9> {
        use Column::{Number, Text};
        let mut table = Table::new([
            Text("pool"),
            Text("address"),
            Number("free"),
            Number("size"),
            Number("replicas"),
            Number("read"),
            Number("written"),
            Number("client errors"),
            Text("state"),
        ]);
        for pool in &self.pools {
            let state = match (pool.drained, pool.offline.as_deref()) {
                (false, None) => "online".to_owned(),
                (true, None) => "drained".to_owned(),
                (false, Some(why)) => why.to_owned(),
                (true, Some(why)) => format!("drained, {why}"),
            };
            table.row([
                pool.name.clone(),
                pool.address.clone(),
                Size(pool.free_bytes).to_string(),
                Size(pool.total_bytes).to_string(),
                pool.replicas.to_string(),
                Size(pool.read_bytes).to_string(),
                Size(pool.written_bytes).to_string(),
                pool.client_errors.to_string(),
                state,
            ]);
        }
        table
    }

    fn client_table(&self) -> Table<8> {
        use Column::{Number, Text};
        let mut table = Table::new([
            Text("client"),
            Text("address"),
            Number("opens"),
            Number("locks"),
            Number("layouts"),
            Number("delegations"),
            Number("idle"),
            Text("lease"),
        ]);
        for client in &self.clients {
            table.row([
                client.name.clone(),
                client.address.clone(),
                client.opens.to_string(),
                client.locks.to_string(),
                client.layouts.to_string(),
                client.delegations.to_string(),
                Seconds(client.idle_s).to_string(),
                if client.courtesy { "over" } else { "valid" }.to_owned(),
            ]);
        }
        table
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

#[cfg(test)]
mod tests {
    use admin::instance::{ClientView, PoolView};
    use serde_json::{Map, Value};

    use super::*;
    use crate::pools::PoolState;

    fn members(value: impl Serialize) -> Map<String, Value> {
        let Value::Object(members) = serde_json::to_value(value).unwrap() else { panic!("an object") };
        members
    }

    /// Of `report`, the members that `view` does not have.
    fn further(report: impl Serialize, view: impl Serialize) -> Vec<String> {
        let view = members(view);
        members(report).into_iter().map(|(name, _)| name).filter(|name| !view.contains_key(name)).collect()
    }

    #[test]
    fn reports_have_the_field_names_of_the_http_api() {
        let pool = PoolView::default();
        assert_eq!(further(PoolReport::default(), &pool), ["client_errors", "free_files"]);
        assert_eq!(further(PoolState::default(), &pool), ["layouts_left"]);
        let (name, address) = ("client".to_owned(), "address".to_owned());
        let client = ClientView { name, address, ..ClientView::default() };
        assert_eq!(further(ClientReport::default(), client), ["sessions"]);
    }

    #[test]
    fn a_single_file_is_told_in_the_singular() {
        let text = StatusReport { files: 1, ..StatusReport::default() }.text();
        assert!(text.contains("\nnamespace  1 file\n"), "{text}");
    }

    #[test]
    fn pools_and_clients_are_shown_in_tables() {
        let pool = PoolReport {
            name: "pool-0".to_owned(),
            address: "127.0.0.1:20491".to_owned(),
            free_bytes: 1 << 30,
            total_bytes: 3 << 30,
            offline: Some("no disk".to_owned()),
            drained: true,
            ..PoolReport::default()
        };
        let client =
            ClientReport { name: "Linux host".to_owned(), courtesy: true, ..ClientReport::default() };
        let report = StatusReport { pools: vec![pool], clients: vec![client], ..StatusReport::default() };
        let text = report.text();
        let tables: Vec<&str> = text.lines().skip_while(|line| !line.is_empty()).collect();
        assert_eq!(
            tables,
            [
                "",
                "pool    address             free     size  replicas  read  written  client errors  state",
                "pool-0  127.0.0.1:20491  1.0 GiB  3.0 GiB         0   0 B      0 B              0  drained, no disk",
                "",
                "client      address  opens  locks  layouts  delegations  idle  lease",
                "Linux host               0      0        0            0   0 s  over",
            ]
        );
    }
}
