//! The files with the most bytes of those that pools have open.

use types::display::Size;

use crate::instance::BusyFileView;
use crate::page::format::Grouped;
use crate::page::html::{Html, html};

use super::Table;

pub(super) const ROWS_MAX: usize = 20;

pub(super) fn render(out: &mut Html, files: &[BusyFileView]) {
    let table = Table {
        caption: "Busiest open files",
        columns: &[
            ("File", false),
            ("Pool", false),
            ("Reads", true),
            ("Read", true),
            ("Writes", true),
            ("Written", true),
            ("Modes", false),
            ("Waits", true),
        ],
        empty: "No open file was read or written.",
    };
    table.render(out, files, row);
}

fn row(out: &mut Html, busy: &BusyFileView) {
    html!(out; "<tr data-key=\"" (busy.pool) "/" (busy.file) "\"><th scope=\"row\" class=\"path\">");
    match &busy.path {
        Some(path) => html!(out; (path)),
        None => html!(out; "without a name (file " (busy.file) ")"),
    }
    html!(out; "</th><td>" (busy.pool) "</td><td class=\"n\">" (Grouped(busy.reads)) "</td><td class=\"n\">"
        (Size(busy.read_bytes)) "</td><td class=\"n\">" (Grouped(busy.writes)) "</td><td class=\"n\">"
        (Size(busy.written_bytes)) "</td><td>" (busy.modes) "</td><td class=\"n\">" (Grouped(busy.waits)));
    if busy.contended {
        html!(out; "<span class=\"under\">contended</span>");
    }
    html!(out; "</td></tr>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_file_has_its_name_its_sums_and_its_waits() {
        let named = BusyFileView {
            pool: "pool-0".to_owned(),
            path: Some("/a<b>".to_owned()),
            written_bytes: 6 << 10,
            modes: "direct 75 %".to_owned(),
            waits: 9,
            contended: true,
            ..BusyFileView::default()
        };
        let nameless = BusyFileView { file: "0000000000000007".to_owned(), ..BusyFileView::default() };
        let mut out = Html::new();
        render(&mut out, &[named, nameless]);
        let text = out.into_string();
        for shown in [
            ">/a&lt;b&gt;</th><td>pool-0</td>",
            ">6.0 KiB</td><td>direct 75 %</td>",
            ">9<span class=\"under\">contended</span>",
            "without a name (file 0000000000000007)",
        ] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert_eq!(text.matches("contended").count(), 1, "{text}");
    }
}
