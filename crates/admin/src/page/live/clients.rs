//! Connected clients and their open files.

use std::collections::BTreeMap;

use types::display::Seconds;

use crate::instance::{ClientView, OpenView, Snapshot};
use crate::page::format::Grouped;
use crate::page::html::{Html, Shown, html};

use super::{Table, descending};

pub(super) fn render(out: &mut Html, snapshot: &Snapshot, is_administrator: bool) {
    if !is_administrator {
        return summary(out, snapshot);
    }
    let table = Table {
        caption: "Connected",
        columns: &[
            ("Client", false),
            ("Door", false),
            ("Opens", true),
            ("Locks", true),
            ("Layouts", true),
            ("Delegations", true),
            ("Idle", true),
        ],
        empty: "Nobody is connected. NFS clients appear when they mount, programs when they ask.",
    };
    let mut clients: Vec<&ClientView> = snapshot.clients.iter().collect();
    clients.sort_by(|a, b| descending(a.opens, b.opens).then_with(|| a.name.cmp(&b.name)));
    table.render(out, &clients, |out, client| {
        html!(out; "<tr data-key=\"" (client.door) "/" (client.address) "/" (client.name)
            "\"><th scope=\"row\">");
        if client.name.is_empty() {
            html!(out; (client.address));
        } else {
            html!(out; "<bdi>" (client.name) "</bdi><span class=\"under\">" (client.address) "</span>");
        }
        html!(out; "</th><td>" (client.door)
            "</td><td class=\"n\">" (Grouped(client.opens)) "</td><td class=\"n\">" (Grouped(client.locks))
            "</td><td class=\"n\">" (Grouped(client.layouts)) "</td><td class=\"n\">"
            (Grouped(client.delegations)) "</td><td class=\"n\">" (Seconds(client.idle_s)));
        if client.courtesy {
            html!(out; "<span class=\"under\">lease over</span>");
        }
        html!(out; "</td></tr>");
    });
    let table = Table {
        caption: "Open files",
        columns: &[("File", false), ("Mode", false), ("Door", false), ("Client", false)],
        empty: "No file is open.",
    };
    table.render_of(snapshot.open_count, out, &snapshot.open_files, open_file);
}

fn open_file(out: &mut Html, open: &OpenView) {
    html!(out; "<tr data-key=\"" (open.file) "/" (open.client) "/" (open.mode)
        "\"><th scope=\"row\" class=\"path\">");
    match &open.path {
        Some(path) => {
            for name in path {
                html!(out; "/" (Shown(name)));
            }
        }
        // Removed while it is open, or an upload.
        None => html!(out; "without a name (file " (open.file) ")"),
    }
    html!(out; "</th><td>" (open.mode) "</td><td>" (open.door) "</td><td><bdi>" (open.client)
        "</bdi></td></tr>");
}

/// How many, without a name.
fn summary(out: &mut Html, snapshot: &Snapshot) {
    html!(out; "<p class=\"note\">Who the clients are, and which files they have open, is shown to administrators.</p>");
    let mut doors: BTreeMap<&str, [u64; 5]> = BTreeMap::new();
    for client in &snapshot.clients {
        let sums = doors.entry(&client.door).or_default();
        let held = [1, client.opens, client.locks, client.layouts, client.delegations];
        for (sum, more) in sums.iter_mut().zip(held) {
            *sum = sum.saturating_add(more);
        }
    }
    let table = Table {
        caption: "Doors",
        columns: &[
            ("Door", false),
            ("Clients", true),
            ("Opens", true),
            ("Locks", true),
            ("Layouts", true),
            ("Delegations", true),
        ],
        empty: "Nobody is connected.",
    };
    let doors: Vec<(&str, [u64; 5])> = doors.into_iter().collect();
    table.render(out, &doors, |out, (door, sums)| {
        html!(out; "<tr data-key=\"" (door) "\"><th scope=\"row\">" (door) "</th>");
        for sum in sums {
            html!(out; "<td class=\"n\">" (Grouped(*sum)) "</td>");
        }
        html!(out; "</tr>");
    });
}
