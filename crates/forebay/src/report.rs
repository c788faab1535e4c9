//! Reports that the running process sends over its control socket, and their text.

use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// Value of `namespace.sync` in the running process.
    #[serde(default)]
    pub sync: String,
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
    /// The first of the contradictions.
    pub problems: Vec<Found>,
    /// All contradictions.
    pub problems_found: u64,
    /// The first of the oddities that lose nothing, such as space that the next clean-up frees.
    pub remarks: Vec<Found>,
    pub remarks_found: u64,
    /// The file with all of both.
    pub list: Option<PathBuf>,
}

/// A problem or a remark of a check. In a list as JSON it is a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    #[serde(flatten)]
    pub said: Said,
    /// Number of the file that it is about, in hexadecimal.
    pub file: Option<String>,
    /// One of the names of that file. A byte that is no text, or of an odd character, is `\xHH`; a backslash is two.
    pub path: Option<String>,
}

/// A sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    Problem(String),
    Remark(String),
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
        out += &format!("sync       {}\n", self.sync);
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
    /// The last line says where all problems and remarks are, if they are not above.
    pub fn text(&self) -> String {
        let mut out: String =
            self.problems.iter().chain(&self.remarks).map(|found| found.line() + "\n").collect();
        let verdict = match self.problems_found {
            0 => "clean".to_owned(),
            problems => counted(problems, "problem", "problems"),
        };
        let untold_problems = self.problems_found - self.problems.len() as u64;
        let untold_remarks = self.remarks_found - self.remarks.len() as u64;
        for (untold, one, many) in
            [(untold_problems, "problem", "problems"), (untold_remarks, "remark", "remarks")]
        {
            if untold > 0 {
                out += &format!("and {}\n", counted(untold, &format!("more {one}"), &format!("more {many}")));
            }
        }
        let place = match &self.list {
            Some(list) if self.problems_found + self.remarks_found > 0 => {
                format!("; the whole list is in {}", list.display())
            }
            None if untold_problems + untold_remarks > 0 => {
                "; `forebay fsck --list FILE` writes the whole list to FILE".to_owned()
            }
            _ => String::new(),
        };
        let (files, replicas) =
            (counted(self.files, "file", "files"), counted(self.replicas, "replica", "replicas"));
        out + &format!("{files}, {replicas}: {verdict}{place}\n")
    }
}

impl Found {
    /// As people read it, without a line feed.
    pub fn line(&self) -> String {
        let (class, text) = match &self.said {
            Said::Problem(text) => ("problem", text),
            Said::Remark(text) => ("remark", text),
        };
        let path = self.path.as_ref().map(|path| format!(": {path}")).unwrap_or_default();
        format!("{class}: {text}{path}")
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
        assert_eq!(further(PoolState::default(), &pool), ["layouts_left", "moves"]);
        let (name, address) = ("client".to_owned(), "address".to_owned());
        let client = ClientView { name, address, ..ClientView::default() };
        assert_eq!(further(ClientReport::default(), client), ["sessions"]);
    }

    fn found(number: u64) -> Found {
        let said = Said::Problem(format!("file {number} is lost"));
        Found { said, file: Some(number.to_string()), path: Some(format!("/{number}")) }
    }

    #[test]
    fn the_last_line_of_a_check_says_where_the_whole_list_is() {
        let mut report = FsckReport { files: 1, replicas: 2, ..FsckReport::default() };
        assert_eq!(report.text(), "1 file, 2 replicas: clean\n");
        (report.problems, report.problems_found) = (vec![found(7)], 1);
        let told = "problem: file 7 is lost: /7\n";
        assert_eq!(report.text(), format!("{told}1 file, 2 replicas: 1 problem\n"));
        report.problems_found = 5;
        let more = format!("{told}and 4 more problems\n1 file, 2 replicas: 5 problems");
        let advice = "; `forebay fsck --list FILE` writes the whole list to FILE\n";
        assert_eq!(report.text(), format!("{more}{advice}"));
        report.list = Some(PathBuf::from("lost"));
        assert_eq!(report.text(), format!("{more}; the whole list is in lost\n"));
    }

    #[test]
    fn a_problem_is_one_object_for_programs() {
        let object = r#"{"problem":"file 7 is lost","file":"7","path":"/7"}"#;
        assert_eq!(serde_json::to_string(&found(7)).unwrap(), object);
        assert_eq!(serde_json::from_str::<Found>(object).unwrap(), found(7));
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
