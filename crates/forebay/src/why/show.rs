//! The decisions of a file as text.

use pool::mode::{FileFacts, Inputs, Kind, Pattern, Policy, PoolFacts, Request, Residency, Reuse};
use types::display::Size;

use super::{Decided, FileIo, ReplicaIo};
use crate::output::counted;
use crate::table::{Column, Table};

impl FileIo {
    pub fn text(&self) -> String {
        let mut text = format!("{}: file {}, {}\n", self.path, self.file, Size(self.size_bytes));
        for replica in &self.replicas {
            text += &replica.text();
        }
        if self.replicas.is_empty() {
            text += "no pool of this process has a replica of it\n";
        }
        text
    }
}

impl ReplicaIo {
    fn text(&self) -> String {
        let pinned = self.pinned.map_or_else(String::new, |mode| format!(", pinned to {}", mode.label()));
        let mut text = format!("{}: pools.io = \"{}\"{pinned}\n", self.pool, self.thresholds.policy);
        if self.decisions.is_empty() {
            return text + &self.why_none();
        }
        match &self.with_thresholds {
            None => text += &self.table(),
            Some(thresholds) => {
                let differ = |decided: &&Decided| decided.replayed.is_some_and(|it| it != decided.decision);
                let count = self.decisions.iter().filter(differ).count() as u64;
                let all = counted(self.decisions.len() as u64, "decision", "decisions");
                text += &format!(
                    "with other thresholds (policy \"{}\"), {count} of {all} would differ\n",
                    thresholds.policy
                );
                text += &self.table_of_replay();
            }
        }
        text
    }

    fn why_none(&self) -> String {
        if !self.open {
            return "no decision is recorded: the file was not used since the server was started, or was closed to \
                    make room for others\n"
                .to_owned();
        }
        match self.thresholds.bypass_bytes_min() {
            None if self.thresholds.policy == Policy::Buffered => {
                "no decision is recorded: every request is buffered\n".to_owned()
            }
            None => {
                "no decision is recorded: every request is buffered until the disk is measured\n".to_owned()
            }
            Some(bytes) => format!(
                "no decision is recorded: requests below {} and reads of bytes in memory are buffered without one\n",
                Size(bytes)
            ),
        }
    }

    fn table(&self) -> String {
        let [time, kind, offset, length, mode, reason] = Decided::COLUMNS;
        let mut table = Table::new([time, kind, offset, length, mode, reason, Column::Text("inputs")]);
        for decided in &self.decisions {
            let [time, kind, offset, length, mode, reason] = decided.cells();
            table.row([time, kind, offset, length, mode, reason, inputs(&decided.inputs)]);
        }
        table.to_string()
    }

    fn table_of_replay(&self) -> String {
        let [time, kind, offset, length, mode, reason] = Decided::COLUMNS;
        let (would_be, facts) = (Column::Text("would be"), Column::Text("inputs"));
        let mut table = Table::new([time, kind, offset, length, mode, reason, would_be, facts]);
        for decided in &self.decisions {
            let [time, kind, offset, length, mode, reason] = decided.cells();
            let replayed = match decided.replayed {
                Some(replayed) if replayed != decided.decision => {
                    format!("{} ({})", replayed.mode.label(), replayed.reason)
                }
                _ => "the same".to_owned(),
            };
            table.row([time, kind, offset, length, mode, reason, replayed, inputs(&decided.inputs)]);
        }
        table.to_string()
    }
}

impl Decided {
    /// Of `cells`.
    const COLUMNS: [Column; 6] = [
        Column::Text("time"),
        Column::Text("kind"),
        Column::Number("offset"),
        Column::Number("length"),
        Column::Text("mode"),
        Column::Text("reason"),
    ];

    fn cells(&self) -> [String; 6] {
        let Request { kind, offset, length_bytes, .. } = self.inputs.request;
        let mode = self.decision.mode.label();
        let mode = match self.ran == self.decision.mode {
            true => mode.to_owned(),
            false => format!("{mode}, ran {}", self.ran.label()),
        };
        [
            self.time.clone(),
            kind.label().to_owned(),
            offset.to_string(),
            length_bytes.to_string(),
            mode,
            self.decision.reason.to_string(),
        ]
    }
}

/// The facts of a decision in the order of the rule, without those that are as usual.
fn inputs(inputs: &Inputs) -> String {
    let Inputs { request, file, pool } = inputs;
    let mut facts = Vec::new();
    facts.extend(of_request(request));
    facts.extend(of_file(request.kind, file));
    facts.extend(of_pool(pool));
    facts.join(", ")
}

fn of_request(request: &Request) -> Vec<String> {
    let pattern = match request.pattern {
        Pattern::Unknown => "pattern unknown",
        Pattern::Sequential => "sequential",
        Pattern::Strided => "strided",
        Pattern::Backward => "backward",
        Pattern::Random => "random",
    };
    let mut facts = vec![pattern.to_owned()];
    if request.is_stable {
        facts.push("stable".to_owned());
    }
    if let Some(bytes) = request.memory_alignment_bytes {
        facts.push(format!("memory aligned to {}", Size(bytes)));
    }
    facts
}

fn of_file(kind: Kind, file: &FileFacts) -> Vec<String> {
    let mut facts = vec![format!("file of {}", Size(file.size_bytes))];
    facts.extend(file.final_size_bytes.map(|bytes| format!("will have {}", Size(bytes))));
    facts.push(match file.residency {
        Residency::Unknown => "residency unknown".to_owned(),
        Residency::None => "not in memory".to_owned(),
        Residency::Part { resident_bytes } => format!("{} in memory", Size(resident_bytes)),
        Residency::All => "in memory".to_owned(),
    });
    let reuse = match file.reuse {
        Reuse::Unknown => "reuse unknown",
        Reuse::Once => "used once",
        Reuse::Reused => "used again",
    };
    facts.push(reuse.to_owned());
    for (holds, fact) in [
        (file.is_dirty, "dirty"),
        (file.is_contended, "contended"),
        (kind == Kind::Write && file.is_read_after_write_expected, "will be read soon"),
    ] {
        if holds {
            facts.push(fact.to_owned());
        }
    }
    facts.extend(file.pinned.map(|mode| format!("pinned to {}", mode.label())));
    facts
}

fn of_pool(pool: &PoolFacts) -> Vec<String> {
    let mut facts = Vec::new();
    if pool.is_memory_tight {
        facts.push("memory tight".to_owned());
    }
    facts.extend(pool.dirty_headroom_bytes.map(|bytes| format!("room for {} dirty", Size(bytes))));
    if !pool.capabilities.is_uncached_possible {
        facts.push("no uncached".to_owned());
    }
    if pool.capabilities.direct.is_none() {
        facts.push("no direct".to_owned());
    }
    facts
}

#[cfg(test)]
mod tests {
    use pool::mode::{Decision, Mode, ModeCapabilities, Reason, Thresholds};

    use super::*;

    fn decided(decision: Decision, ran: Mode) -> Decided {
        let request = Request {
            kind: Kind::Write,
            offset: 4096,
            length_bytes: 1 << 20,
            is_stable: true,
            pattern: Pattern::Sequential,
            memory_alignment_bytes: None,
        };
        let file = FileFacts { size_bytes: 8 << 20, is_dirty: true, ..FileFacts::default() };
        let capabilities = ModeCapabilities { is_uncached_possible: true, direct: None };
        let pool = PoolFacts { capabilities, ..PoolFacts::default() };
        let time = "2026-11-27T12:00:00Z".to_owned();
        Decided { time, decision, ran, inputs: Inputs { request, file, pool }, replayed: None }
    }

    fn replica(decisions: Vec<Decided>) -> ReplicaIo {
        ReplicaIo {
            pool: "pool-0".to_owned(),
            open: true,
            pinned: None,
            thresholds: Thresholds::uncalibrated(),
            with_thresholds: None,
            decisions,
        }
    }

    const DIRTY: Decision = Decision { mode: Mode::Buffered, reason: Reason::DirtyPages };

    #[test]
    fn a_row_has_the_decision_and_its_facts() {
        let text = replica(vec![decided(DIRTY, Mode::Buffered)]).text();
        let row = text.lines().nth(2).unwrap().split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let row: Vec<&str> = row.collect();
        assert_eq!(row[..4], ["2026-11-27T12:00:00Z", "write", "4096", "1048576"], "{text}");
        assert_eq!(row[4..6], ["buffered", "dirty-pages"], "{text}");
        let facts = "sequential, stable, file of 8.0 MiB, residency unknown, reuse unknown, dirty, no direct";
        assert_eq!(row[6], facts);
    }

    #[test]
    fn a_mode_that_did_not_run_is_told() {
        let direct = Decision { mode: Mode::Direct, reason: Reason::LargeWrite };
        let text = replica(vec![decided(direct, Mode::Buffered)]).text();
        assert!(text.contains("direct, ran buffered  large-write"), "{text}");
    }

    #[test]
    fn a_replay_shows_what_would_differ() {
        let large = Decision { mode: Mode::Direct, reason: Reason::LargeWrite };
        let mut replica = replica(vec![decided(DIRTY, Mode::Buffered), decided(large, Mode::Direct)]);
        replica.replay(&["policy=auto".parse().unwrap()]);
        let text = replica.text();
        assert!(text.contains("(policy \"auto\"), 1 of 2 decisions would differ"), "{text}");
        let rows: Vec<&str> = text.lines().skip(3).collect();
        assert!(rows[0].contains("dirty-pages  the same"), "{text}");
        assert!(rows[1].contains("large-write  buffered (dirty-pages)"), "{text}");
    }

    #[test]
    fn a_file_without_decisions_has_the_reason_for_that() {
        let mut none = replica(Vec::new());
        assert!(
            none.text().contains("requests below 2.0 MiB and reads of bytes in memory"),
            "{}",
            none.text()
        );
        none.thresholds.policy = Policy::Buffered;
        assert!(none.text().contains("every request is buffered\n"), "{}", none.text());
        none.thresholds = Thresholds { tight_direct_bytes_min: None, ..Thresholds::uncalibrated() };
        assert!(none.text().contains("buffered until the disk is measured"), "{}", none.text());
        none.open = false;
        assert!(none.text().contains("was not used since the server was started"), "{}", none.text());
    }
}
