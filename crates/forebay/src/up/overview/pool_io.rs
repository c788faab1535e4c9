//! The work of the pools of this process, for the snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use admin::instance::{
    GatheredView, IoCpuView, IoLaneView, IoModeView, IoTimesView, JournalView, ReadAheadView,
};
use pool::{IoKind, IoReport, IoTimes};
use types::PoolId;

use crate::pools::gathered::Gathered;
use crate::pools::times::Times;

/// Of all pools of this process together.
pub fn modes(reports: &[(PoolId, IoReport)]) -> Vec<IoModeView> {
    let mut modes: BTreeMap<(&'static str, &'static str), IoModeView> = BTreeMap::new();
    for count in reports.iter().flat_map(|(_, report)| &report.decisions) {
        let view = modes.entry((count.mode, count.reason)).or_insert_with(|| IoModeView {
            mode: count.mode,
            reason: count.reason,
            ..IoModeView::default()
        });
        let (operations, bytes) = match count.kind {
            IoKind::Read => (&mut view.reads, &mut view.read_bytes),
            IoKind::Write => (&mut view.writes, &mut view.written_bytes),
        };
        *operations += count.operations;
        *bytes += count.bytes;
    }
    modes.into_values().collect()
}

/// Of all pools of this process together.
pub fn times(reports: &[(PoolId, IoReport)]) -> Vec<IoTimesView> {
    let mut sums: BTreeMap<(&'static str, &'static str), IoTimes> = BTreeMap::new();
    for latency in reports.iter().flat_map(|(_, report)| &report.latencies) {
        let labels = (latency.kind.label(), latency.mode.label());
        sums.entry(labels).or_default().add(&latency.times);
    }
    let views = sums.into_iter().map(|((direction, mode), times)| {
        let shown = Times::new(&times);
        IoTimesView {
            direction,
            mode,
            up_to: pool::coarse_ends().map(|end| (end.as_secs_f64(), times.up_to(end))).collect(),
            count: times.count(),
            sum_s: times.sum.as_secs_f64(),
            p50_s: shown.p50_us / 1e6,
            p99_s: shown.p99_us / 1e6,
            max_s: times.max.as_secs_f64(),
        }
    });
    views.collect()
}

/// Of all pools of this process together.
pub fn cpu(reports: &[(PoolId, IoReport)]) -> Vec<IoCpuView> {
    let mut sums: BTreeMap<(&'static str, &'static str), (u64, Duration)> = BTreeMap::new();
    for request in reports.iter().flat_map(|(_, report)| &report.cpu) {
        let sum = sums.entry((request.kind.label(), request.mode.label())).or_default();
        sum.0 += request.cpu.bytes;
        sum.1 += request.cpu.time;
    }
    let views = sums.into_iter().map(|((direction, mode), (bytes, time))| IoCpuView {
        direction,
        mode,
        bytes,
        cpu_s: time.as_secs_f64(),
    });
    views.collect()
}

pub fn lanes(reports: &[(PoolId, IoReport)]) -> Vec<IoLaneView> {
    let lanes = reports.iter().flat_map(|(id, report)| {
        report.lanes.iter().map(|(lane, load)| IoLaneView {
            pool: id.to_string(),
            lane,
            waiting: load.waiting as u64,
            waiting_max: load.waiting_max as u64,
            busy: load.busy as u64,
            threads_max: load.threads_max as u64,
            wait_p99_s: Times::new(&load.waits).p99_us / 1e6,
            cpu_s: load.cpu.as_secs_f64(),
        })
    });
    lanes.collect()
}

pub fn journals(reports: &[(PoolId, IoReport)]) -> Vec<JournalView> {
    let journals = reports.iter().filter_map(|(id, report)| Some((id, report.journal?)));
    let views = journals.map(|(id, journal)| JournalView {
        pool: id.to_string(),
        records: journal.records,
        record_bytes: journal.record_bytes,
        syncs: journal.syncs,
        refused: journal.refused,
        written_back: journal.written_back,
        files: journal.live_files,
        used_bytes: journal.used_bytes,
        room_bytes: journal.room_bytes,
        failed: journal.has_failed,
    });
    views.collect()
}

pub fn gathered(reports: &[(PoolId, IoReport)]) -> Vec<GatheredView> {
    let gathered = reports.iter().filter_map(|(id, report)| Some((id, Gathered::from(report.gather?))));
    let views = gathered.map(|(id, gathered)| GatheredView {
        pool: id.to_string(),
        writes: gathered.writes,
        bytes: gathered.bytes,
        extents: gathered.extents,
        complete: gathered.complete,
        failed: gathered.failed,
        no_memory: gathered.no_memory,
        memory_bytes: gathered.memory_bytes,
    });
    views.collect()
}

/// Of all pools of this process together.
pub fn read_ahead(reports: &[(PoolId, IoReport)]) -> ReadAheadView {
    let counts = reports.iter().map(|(_, report)| report.read_ahead);
    counts.fold(ReadAheadView::default(), |view, counts| ReadAheadView {
        advised_bytes: view.advised_bytes + counts.issued_bytes,
        used_bytes: view.used_bytes + counts.used_bytes,
        wasted_bytes: view.wasted_bytes + counts.wasted_bytes,
        dropped_bytes: view.dropped_bytes + counts.dropped_bytes,
    })
}
