//! `forebay status` of a pool host: its pool, its head, its lease, and what is wrong.

use admin::instance::Problem;
use serde::{Deserialize, Serialize};
use types::display::{Seconds, Size};

use super::http::ShownHttp;
use crate::output::counted;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HostStatus {
    pub version: String,
    pub pid: u32,
    pub data: String,
    pub uptime_s: u64,
    /// `pool-1`.
    pub pool: String,
    pub cluster: String,
    pub head: HeadLink,
    /// 0: clients read and do not write.
    pub lease_s: f64,
    /// Of the head. `None`: no head has answered since the start.
    pub term: Option<u64>,
    pub nfs: NfsFace,
    /// `None`: HTTP is switched off.
    pub http: Option<HttpPlace>,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub free_files: u64,
    pub replicas: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub problems: Vec<HostProblem>,
}

/// The connections to the head.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HeadLink {
    /// The head that answered last, or all that the host knows.
    pub address: String,
    pub connected: bool,
    /// How long it has been connected, or not.
    pub since_s: u64,
    /// Why it is not connected.
    pub trouble: Option<String>,
    pub connections: u64,
    /// Since the start.
    pub reconnects: u64,
}

/// The face to clients of the head.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NfsFace {
    pub address: String,
    /// Clients are served: the head has answered since the start.
    pub serving: bool,
    pub clients: u64,
    pub sessions: u64,
}

/// HTTP of the host.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HttpPlace {
    pub address: String,
    pub tls: bool,
    /// The head sends clients here.
    pub data: bool,
}

impl HttpPlace {
    pub fn of(shown: ShownHttp) -> HttpPlace {
        let ShownHttp { address, is_tls, has_data } = shown;
        HttpPlace { address: address.to_string(), tls: is_tls, data: has_data }
    }

    fn text(&self) -> String {
        let tls = if self.tls { "with TLS" } else { "without TLS" };
        let what = if self.data { "data, /health, /metrics" } else { "/health and /metrics only" };
        format!("{}, {tls}, {what}", self.address)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostProblem {
    /// As `/health` of a head names them, and `head-away`, `no-lease`.
    pub kind: String,
    pub what: String,
    pub advice: String,
}

impl From<Problem> for HostProblem {
    fn from(problem: Problem) -> HostProblem {
        let Problem { kind, what, advice } = problem;
        HostProblem { kind: kind.to_owned(), what, advice }
    }
}

impl HeadLink {
    pub fn problem(&self) -> Option<Problem> {
        (!self.connected).then(|| Problem {
            kind: "head-away",
            what: format!("not connected to the head for {}{}", Seconds(self.since_s), self.why()),
            advice: format!(
                "check the head, and the network to {}; the pool connects by itself",
                self.address
            ),
        })
    }

    fn why(&self) -> String {
        self.trouble.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default()
    }
}

/// Of a host that is connected.
pub fn no_lease() -> Problem {
    Problem {
        kind: "no-lease",
        what: "the head gives no lease: clients read here and cannot write".to_owned(),
        advice: "look at the log of the head: the pool has to take the fences that it missed first"
            .to_owned(),
    }
}

impl HostStatus {
    pub fn text(&self) -> String {
        let HostStatus { version, pid, data, pool, cluster, head, nfs, .. } = self;
        let up = Seconds(self.uptime_s);
        let mut out = format!("Forebay {version} (pid {pid}) up {up}, data {data}\n");
        out += &format!("pool       {pool} of cluster {cluster}, a pool host\n");
        out += &format!("head       {}, {}\n", head.address, head.text());
        out += &format!("lease      {}\n", self.lease());
        out += &format!("NFS        {}, {}\n", nfs.address, nfs.text());
        if let Some(http) = &self.http {
            out += &format!("HTTP       {}\n", http.text());
        }
        let replicas = counted(self.replicas, "replica", "replicas");
        let (free, total) = (Size(self.free_bytes), Size(self.total_bytes));
        out += &format!("disk       {free} free of {total}, {replicas}\n");
        let (read, written) = (Size(self.read_bytes), Size(self.written_bytes));
        out += &format!("bytes      {read} read, {written} written since the start\n");
        for HostProblem { what, advice, .. } in &self.problems {
            out += &format!("problem    {what} ({advice})\n");
        }
        out
    }

    /// In a line, for the service manager.
    pub fn line(&self) -> String {
        let mut out = format!("{}, {}", self.pool, counted(self.nfs.clients, "client", "clients"));
        if self.head.connected {
            out += &format!("; connected to {}", self.head.address);
        }
        self.problems.iter().for_each(|problem| out += &format!("; {}", problem.what));
        out
    }

    fn lease(&self) -> String {
        let term = self.term.map(|term| format!(", term {term} of the head")).unwrap_or_default();
        if self.lease_s > 0.0 { format!("{:.0} s left{term}", self.lease_s) } else { format!("none{term}") }
    }
}

impl HeadLink {
    fn text(&self) -> String {
        let since = Seconds(self.since_s);
        if !self.connected {
            return format!("not connected for {since}{}", self.why());
        }
        let connections = counted(self.connections, "connection", "connections");
        format!("connected for {since}, {connections}, reconnects: {}", self.reconnects)
    }
}

impl NfsFace {
    fn text(&self) -> String {
        if !self.serving {
            return "serves when the head has answered".to_owned();
        }
        format!("clients {}, sessions {}", self.clients, self.sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(connected: bool) -> HostStatus {
        let trouble = (!connected).then(|| "cannot reach 192.0.2.10:7413: refused".to_owned());
        let head = HeadLink {
            address: "192.0.2.10:7413".to_owned(),
            connected,
            since_s: 75,
            trouble,
            connections: if connected { 3 } else { 0 },
            reconnects: 1,
        };
        HostStatus {
            pool: "pool-1".to_owned(),
            cluster: "4f2a".to_owned(),
            lease_s: if connected { 9.4 } else { 0.0 },
            term: Some(4),
            nfs: NfsFace { address: "0.0.0.0:20491".to_owned(), serving: true, clients: 2, sessions: 3 },
            http: Some(HttpPlace { address: "0.0.0.0:8081".to_owned(), tls: true, data: true }),
            problems: head.problem().into_iter().map(HostProblem::from).collect(),
            head,
            ..HostStatus::default()
        }
    }

    #[test]
    fn a_host_that_is_connected_tells_its_lease_and_its_clients() {
        let text = status(true).text();
        for line in [
            "pool       pool-1 of cluster 4f2a, a pool host",
            "head       192.0.2.10:7413, connected for 1 min 15 s, 3 connections, reconnects: 1",
            "lease      9 s left, term 4 of the head",
            "NFS        0.0.0.0:20491, clients 2, sessions 3",
            "HTTP       0.0.0.0:8081, with TLS, data, /health, /metrics",
        ] {
            assert!(text.lines().any(|told| told == line), "no {line:?} in:\n{text}");
        }
        assert!(!text.contains("problem"), "{text}");
        assert_eq!(status(true).line(), "pool-1, 2 clients; connected to 192.0.2.10:7413");
    }

    #[test]
    fn a_host_without_its_head_tells_since_when_and_why() {
        let text = status(false).text();
        let why = "not connected for 1 min 15 s: cannot reach 192.0.2.10:7413: refused";
        assert!(text.contains(&format!("head       192.0.2.10:7413, {why}\n")), "{text}");
        assert!(text.contains("lease      none, term 4 of the head\n"), "{text}");
        assert!(text.contains("problem    not connected to the head for 1 min 15 s: cannot reach"), "{text}");
        assert!(status(false).line().contains("; not connected to the head for"), "{}", status(false).line());
    }
}
