//! Counts of operations, and slow operations.

use types::{DateTime, Timestamp};

use crate::instance::{OperationCount, SlowOperation, Snapshot};
use crate::page::format::{Grouped, Minute};
use crate::page::html::{Html, html};

use super::{Table, descending};

pub(super) fn render(out: &mut Html, snapshot: &Snapshot, is_administrator: bool) {
    slow(out, snapshot, is_administrator);
    let mut operations: Vec<&OperationCount> =
        snapshot.operations.iter().filter(|one| one.count > 0).collect();
    operations.sort_by(|a, b| {
        descending(a.count, b.count).then_with(|| (&a.door, &a.operation).cmp(&(&b.door, &b.operation)))
    });
    let table = Table {
        caption: "Operations since the start",
        columns: &[("Operation", false), ("Door", false), ("Count", true), ("Per second", true)],
        empty: "Nothing was asked for since the start.",
    };
    table.render(out, &operations, |out, one| {
        html!(out; "<tr data-key=\"" (one.door) "/" (one.operation) "\"><th scope=\"row\">" (one.operation)
            "</th><td>"
            (one.door) "</td><td class=\"n\">" (Grouped(one.count)) "</td><td class=\"n rate\">\
            <span class=\"now\" data-per-second></span><svg class=\"spark\" viewBox=\"0 0 60 16\" preserveAspectRatio=\"none\" \
            aria-hidden=\"true\" data-key=\"" (one.door) "/" (one.operation) "\" data-counter=\"" (one.count)
            "\"><polyline/></svg></td></tr>");
    });
}

fn slow(out: &mut Html, snapshot: &Snapshot, is_administrator: bool) {
    let table = Table {
        caption: "Slow operations of the last 10 minutes",
        columns: &[("Took", true), ("Operation", false), ("File", false), ("Client", false), ("When", false)],
        empty: "Nothing was slow.",
    };
    let mut rows: Vec<&SlowOperation> = snapshot.slow_operations.iter().collect();
    rows.sort_by(|a, b| descending(a.took_ms, b.took_ms));
    table.render(out, &rows, |out, one| {
        let at = Timestamp::new(i64::try_from(one.at_s).unwrap_or(i64::MAX), 0).unwrap_or_default();
        html!(out; "<tr data-key=\"" (one.at_s) "/" (one.operation) "/" (one.took_ms)
            "\"><td class=\"n\"><strong>"
            (Grouped(one.took_ms)) " ms</strong></td><th scope=\"row\">" (one.operation)
            "<span class=\"under\">" (one.door)
            "</span></th><td class=\"path\">");
        if is_administrator {
            html!(out; "<bdi>" (one.subject) "</bdi></td><td><bdi>" (one.client) "</bdi>");
        } else {
            html!(out; "<span class=\"fine\">hidden</span></td><td><span class=\"fine\">hidden</span>");
        }
        html!(out; "</td><td><time datetime=\"" (DateTime::from(at)) "\">" (Minute(at)) "</time></td></tr>");
    });
}
