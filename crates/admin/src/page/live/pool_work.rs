//! The work of the pools: write journals, delayed allocation, scrubs, modes of I/O, times, threads, reads from memory and
//! read-ahead.

use types::display::Size;
use types::{DateTime, Timestamp};

use crate::instance::{
    GatheredView, IoLaneView, IoModeView, IoTimesView, JournalView, PoolView, ReadAheadView, Snapshot,
};
use crate::page::format::{Grouped, Minute, Percent, Took};
use crate::page::html::{Html, html};

use super::{Table, fill, sparkline};

pub(super) fn render(out: &mut Html, snapshot: &Snapshot) {
    modes(out, snapshot);
    times(out, snapshot);
    threads(out, &snapshot.io_lanes);
    memory(out, snapshot);
    read_ahead(out, snapshot.read_ahead);
    gathered(out, &snapshot.gathered);
    journals(out, &snapshot.journals);
    scrubs(out, snapshot);
}

fn modes(out: &mut Html, snapshot: &Snapshot) {
    let table = Table {
        caption: "I/O modes",
        columns: &[
            ("Mode", false),
            ("Reason", false),
            ("Reads", true),
            ("Read", true),
            ("Writes", true),
            ("Written", true),
        ],
        empty: "No data was read or written since the start.",
    };
    table.render(out, &snapshot.io_modes, |out, mode: &IoModeView| {
        html!(out; "<tr data-key=\"" (mode.mode) "/" (mode.reason) "\"><th scope=\"row\">" (mode.mode)
            "</th><td>"
            (mode.reason) "</td><td class=\"n\">" (Grouped(mode.reads)) "</td><td class=\"n\">"
            (Size(mode.read_bytes)) "</td><td class=\"n\">" (Grouped(mode.writes)) "</td><td class=\"n\">"
            (Size(mode.written_bytes)) "</td></tr>");
    });
}

fn times(out: &mut Html, snapshot: &Snapshot) {
    let table = Table {
        caption: "Times of reads and writes",
        columns: &[
            ("Direction", false),
            ("Mode", false),
            ("Timed", true),
            ("Half within", true),
            ("99 % within", true),
            ("Longest", true),
            ("CPU for a GB", true),
        ],
        empty: "No data was read or written since the start.",
    };
    table.render(out, &snapshot.io_times, |out, times: &IoTimesView| {
        let is_like = |direction, mode| (direction, mode) == (times.direction, times.mode);
        let cpu = snapshot.io_cpu.iter().find(|cpu| is_like(cpu.direction, cpu.mode) && cpu.bytes > 0);
        let cpu = cpu.map(|cpu| Took(cpu.cpu_s * 1e9 / cpu.bytes as f64).to_string());
        html!(out; "<tr data-key=\"" (times.direction) "/" (times.mode) "\"><th scope=\"row\">" (times.direction)
            "</th><td>" (times.mode) "</td><td class=\"n\">" (Grouped(times.count)) "</td><td class=\"n\">"
            (Took(times.p50_s)) "</td><td class=\"n\">" (Took(times.p99_s)) "</td><td class=\"n\">"
            (Took(times.max_s)) "</td><td class=\"n\">" (cpu.as_deref().unwrap_or("–")) "</td></tr>");
    });
}

fn threads(out: &mut Html, lanes: &[IoLaneView]) {
    let table = Table {
        caption: "Threads",
        columns: &[
            ("Pool", false),
            ("For", false),
            ("Busy", true),
            ("Waiting", true),
            ("Most waiting", true),
            ("99 % waited", true),
            ("CPU", true),
        ],
        empty: "No pool runs in this process.",
    };
    table.render(out, lanes, |out, lane: &IoLaneView| {
        html!(out; "<tr data-key=\"" (lane.pool) "/" (lane.lane) "\"><th scope=\"row\" class=\"pool\">" (lane.pool)
            "</th><td>" (lane.lane) "</td><td class=\"n\">" (Grouped(lane.busy)) " <span class=\"fine\">of "
            (Grouped(lane.threads_max)) "</span></td><td class=\"n rate\"><span class=\"few\">"
            (Grouped(lane.waiting)) "</span>");
        sparkline(out, &format!("{}/{}/waiting", lane.pool, lane.lane), lane.waiting);
        html!(out; "</td><td class=\"n\">" (Grouped(lane.waiting_max)) "</td><td class=\"n\">" (Took(lane.wait_p99_s))
            "</td><td class=\"n\">" (Took(lane.cpu_s)) "</td></tr>");
    });
}

fn memory(out: &mut Html, snapshot: &Snapshot) {
    let table = Table {
        caption: "Reads from memory",
        columns: &[
            ("Pool", false),
            ("In memory", true),
            ("Not in memory", true),
            ("Unknown", true),
            ("Share", false),
            ("Contended files", true),
        ],
        empty: "This instance has no pool.",
    };
    table.render(out, &snapshot.pools, |out, pool: &PoolView| {
        let (resident, missing) = (pool.resident_read_bytes, pool.missing_read_bytes);
        let known = resident.saturating_add(missing);
        html!(out; "<tr data-key=\"" (pool.name) "\"><th scope=\"row\" class=\"pool\">" (pool.name) "</th><td class=\"n\">"
            (Size(resident)) "</td><td class=\"n\">" (Size(missing)) "</td><td class=\"n\">"
            (Size(pool.unknown_read_bytes)) "</td><td class=\"share\">");
        match known {
            0 => html!(out; "–"),
            known => html!(out; (Percent(resident, known)) [fill(resident, known, false)]),
        }
        html!(out; "</td><td class=\"n\">" (Grouped(pool.contended_files)) "</td></tr>");
    });
}

fn read_ahead(out: &mut Html, view: ReadAheadView) {
    let ReadAheadView { advised_bytes, used_bytes, wasted_bytes, dropped_bytes } = view;
    html!(out; "<section class=\"block\"><h2>Read-ahead</h2><dl class=\"facts\"><div><dt>Asked for</dt><dd>"
        (Size(advised_bytes)) "</dd></div>");
    for (title, bytes) in [("Used", used_bytes), ("Wasted", wasted_bytes), ("Dropped", dropped_bytes)] {
        html!(out; "<div><dt>" (title) "</dt><dd>" (Size(bytes)));
        if advised_bytes > 0 {
            html!(out; " <span class=\"fine\">" (Percent(bytes, advised_bytes)) "</span>");
        }
        html!(out; "</dd></div>");
    }
    html!(out; "</dl></section>");
}

fn gathered(out: &mut Html, pools: &[GatheredView]) {
    let table = Table {
        caption: "Delayed allocation",
        columns: &[
            ("Pool", false),
            ("Writes", true),
            ("Extents", true),
            ("Complete", true),
            ("Failed", true),
            ("Without memory", true),
            ("In memory", true),
        ],
        empty: "No pool gathers writes (pools.gather).",
    };
    table.render(out, pools, |out, pool: &GatheredView| {
        html!(out; "<tr data-key=\"" (pool.pool) "\"><th scope=\"row\" class=\"pool\">" (pool.pool)
            "</th><td class=\"n\">" (Grouped(pool.writes)) "<span class=\"under\">" (Size(pool.bytes))
            "</span></td>");
        for count in [pool.extents, pool.complete, pool.failed, pool.no_memory] {
            html!(out; "<td class=\"n\">" (Grouped(count)) "</td>");
        }
        html!(out; "<td class=\"n\">" (Size(pool.memory_bytes)) "</td></tr>");
    });
}

fn journals(out: &mut Html, journals: &[JournalView]) {
    let table = Table {
        caption: "Write journals",
        columns: &[
            ("Pool", false),
            ("State", false),
            ("Records", true),
            ("Syncs", true),
            ("Records a sync", true),
            ("Refused", true),
            ("Files to sync", true),
            ("In use", false),
        ],
        empty: "No pool has a write journal.",
    };
    table.render(out, journals, |out, journal: &JournalView| {
        html!(out; "<tr data-key=\"" (journal.pool) "\"><th scope=\"row\" class=\"pool\">" (journal.pool) "</th><td>");
        match journal.failed {
            true => html!(out; "<span class=\"state bad\">Failed</span>"),
            false => html!(out; "<span class=\"state good\">In order</span>"),
        }
        html!(out; "</td><td class=\"n\">" (Grouped(journal.records)) "<span class=\"under\">"
            (Size(journal.record_bytes)) "</span></td><td class=\"n\">" (Grouped(journal.syncs))
            "</td><td class=\"n\">");
        match journal.syncs {
            0 => html!(out; "–"),
            syncs => html!(out; (format!("{:.1}", journal.records as f64 / syncs as f64))),
        }
        html!(out; "</td><td class=\"n\">" (Grouped(journal.refused)) "</td><td class=\"n\">" (Grouped(journal.files))
            "</td><td class=\"share\">" (Size(journal.used_bytes)) " <span class=\"fine\">of "
            (Size(journal.room_bytes)) "</span>" [fill(journal.used_bytes, journal.room_bytes, true)] "</td></tr>");
    });
}

fn scrubs(out: &mut Html, snapshot: &Snapshot) {
    let table = Table {
        caption: "Scrubs",
        columns: &[
            ("Pool", false),
            ("State", false),
            ("Last complete", false),
            ("Read", true),
            ("Bad blocks", true),
            ("Bad replicas", true),
            ("Without sums", true),
        ],
        empty: "This instance has no pool.",
    };
    table.render(out, &snapshot.pools, |out, pool: &PoolView| {
        let scrub = &pool.scrub;
        html!(out; "<tr data-key=\"" (pool.name) "\"><th scope=\"row\" class=\"pool\">" (pool.name) "</th><td class=\"share\">");
        match scrub.running {
            true => html!(out; "Running <span class=\"fine\">" (Percent(scrub.done_bytes, scrub.total_bytes))
                " of " (Size(scrub.total_bytes)) "</span>" [fill(scrub.done_bytes, scrub.total_bytes, false)]),
            false if scrub.bad_replicas > 0 => html!(out; "<span class=\"state bad\">Bad blocks</span>"),
            false => html!(out; "Not running"),
        }
        html!(out; "</td><td>");
        match Timestamp::new(i64::try_from(scrub.last_complete_s).unwrap_or(i64::MAX), 0) {
            Some(at) if scrub.last_complete_s > 0 => {
                html!(out; "<time datetime=\"" (DateTime::from(at)) "\">" (Minute(at)) "</time>");
            }
            _ => html!(out; "Never"),
        }
        html!(out; "</td><td class=\"n\">" (Size(scrub.read_bytes)) "</td><td class=\"n\">" (Grouped(scrub.bad_blocks))
            "</td><td class=\"n\">" (Grouped(scrub.bad_replicas)) "</td><td class=\"n\">"
            (Grouped(scrub.replicas_without_sums)) "</td></tr>");
    });
}

#[cfg(test)]
mod tests {
    use crate::instance::{IoCpuView, ScrubView};

    use super::*;

    fn text(snapshot: &Snapshot) -> String {
        let mut out = Html::new();
        render(&mut out, snapshot);
        out.into_string()
    }

    #[test]
    fn an_instance_that_did_nothing_yet_has_no_rates_and_no_division_by_zero() {
        let pools = vec![PoolView { name: "pool-0".to_owned(), ..PoolView::default() }];
        let journals = vec![JournalView { pool: "pool-0".to_owned(), ..JournalView::default() }];
        let text = text(&Snapshot { pools, journals, ..Snapshot::default() });
        assert!(text.contains("Never") && text.contains("Not running"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn journals_gathered_writes_scrubs_times_and_memory_are_shown() {
        let scrub = ScrubView {
            running: true,
            done_bytes: 45 << 20,
            total_bytes: 100 << 20,
            bad_blocks: 3,
            last_complete_s: 1_795_266_300,
            ..ScrubView::default()
        };
        let snapshot = Snapshot {
            pools: vec![PoolView {
                resident_read_bytes: 3 << 20,
                missing_read_bytes: 1 << 20,
                scrub,
                ..PoolView::default()
            }],
            journals: vec![JournalView { records: 30, syncs: 4, failed: true, ..JournalView::default() }],
            gathered: vec![GatheredView {
                writes: 2500,
                bytes: 96 << 20,
                extents: 120,
                memory_bytes: 5 << 20,
                ..GatheredView::default()
            }],
            io_times: vec![IoTimesView {
                direction: "write",
                mode: "direct",
                count: 12,
                p50_s: 0.0021,
                ..IoTimesView::default()
            }],
            io_cpu: vec![IoCpuView { direction: "write", mode: "direct", bytes: 2_000_000_000, cpu_s: 0.5 }],
            io_lanes: vec![IoLaneView { lane: "sync", busy: 1, threads_max: 4, ..IoLaneView::default() }],
            read_ahead: ReadAheadView { advised_bytes: 4096, used_bytes: 1024, ..ReadAheadView::default() },
            ..Snapshot::default()
        };
        let text = text(&snapshot);
        for shown in [
            "<td class=\"n\">7.5</td>",
            ">Failed<",
            "<span class=\"under\">96.0 MiB</span></td><td class=\"n\">120</td>",
            "<td class=\"n\">5.0 MiB</td>",
            "45 %",
            "2026-11-21 13:05",
            "2.1 ms",
            "250 ms",
            "75 %",
            "1 <span class=\"fine\">of 4",
            "<dt>Used</dt><dd>1.0 KiB <span class=\"fine\">25 %",
        ] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}
