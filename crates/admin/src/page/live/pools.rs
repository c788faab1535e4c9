//! Problems, and the pools with their space and throughput.

use types::display::{Seconds, Size};

use crate::instance::{PoolHostView, PoolView, Problem, Snapshot};
use crate::page::format::{Count, Grouped};
use crate::page::html::{Html, html};

use super::{Table, fill, sparkline};

pub(super) fn render(out: &mut Html, snapshot: &Snapshot, problems: &[Problem]) {
    let problem_count = problems.len();
    html!(out; "<div data-say=\"" (spoken(problem_count)) "\">");
    for problem in problems {
        html!(out; "<div class=\"note bad\"><strong>" (problem.what) "</strong> <span>" (problem.advice)
            "</span></div>");
    }
    html!(out; "</div>");
    let (total, free) = snapshot.pools.iter().fold((0u64, 0u64), |(total, free), pool| {
        (total.saturating_add(pool.total_bytes), free.saturating_add(pool.free_bytes))
    });
    html!(out; "<dl class=\"facts big\"><div><dt>Free</dt><dd>" (Size(free)) " <span class=\"fine\">of "
        (Size(total))
        "</span></dd></div><div><dt>Files</dt><dd>" (Grouped(snapshot.files))
        "</dd></div><div><dt>Data</dt><dd>"
        (Size(snapshot.bytes)) "</dd></div><div><dt>Up for</dt><dd>" (Seconds(snapshot.uptime_s))
        "</dd></div><div><dt>Version</dt><dd>" (snapshot.version) "</dd></div></dl>");
    let table = Table {
        caption: "Space and throughput",
        columns: &[
            ("Pool", false),
            ("State", false),
            ("Space", false),
            ("Replicas", true),
            ("Read", true),
            ("Written", true),
        ],
        empty: "This instance has no pool.",
    };
    table.render(out, &snapshot.pools, row);
}

fn row(out: &mut Html, pool: &PoolView) {
    html!(out; "<tr data-key=\"" (pool.name) "\"><th scope=\"row\">" (pool.name) "<span class=\"under\">"
        (pool.address)
        "</span>");
    if let Some(host) = &pool.host {
        html!(out; "<span class=\"under\">host " (host.host) "</span>");
    }
    html!(out; "</th><td>");
    match &pool.offline {
        None if pool.drained => html!(out; "<span class=\"state\">Drained</span>"),
        None => {
            html!(out; "<span class=\"state good\">In order</span>");
            if pool.slow {
                html!(out; "<span class=\"under\">slow to clients</span>");
            }
        }
        Some(reason) => {
            let state = if pool.drained { "Offline, drained" } else { "Offline" };
            html!(out; "<span class=\"state bad\">" (state) "</span><span class=\"under\">" (reason) "</span>");
        }
    }
    if let Some(missed) = pool.host.as_ref().and_then(PoolHostView::missed) {
        html!(out; "<span class=\"under\">" (missed) "</span>");
    }
    html!(out; "</td><td class=\"space\">" [space(pool)] "</td><td class=\"n\">" (Grouped(pool.replicas))
        "</td>");
    for (direction, rate, sum) in [
        ("read", pool.read_bytes_per_s, pool.read_bytes),
        ("written", pool.written_bytes_per_s, pool.written_bytes),
    ] {
        html!(out; "<td class=\"n rate\"><span class=\"now\">" (Size(rate)) "/s</span>");
        sparkline(out, &format!("{}/{direction}", pool.name), rate);
        html!(out; "<span class=\"under\">" (Size(sum)) " in all</span></td>");
    }
    html!(out; "</tr>");
}

fn space(pool: &PoolView) -> Html {
    let used = pool.total_bytes.saturating_sub(pool.free_bytes);
    let mut out = Html::new();
    html!(out; (Size(pool.free_bytes)) " free <span class=\"fine\">of " (Size(pool.total_bytes)) "</span>"
        [fill(used, pool.total_bytes, true)]);
    out
}

fn spoken(problems: usize) -> String {
    match problems {
        0 => "No problems".to_owned(),
        many => Count(many as u64, "problem", "problems").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_on_another_host_is_shown_with_its_host_and_the_fences_that_it_missed() {
        let text = |host| {
            let mut out = Html::new();
            row(&mut out, &PoolView { host, ..PoolView::default() });
            out.into_string()
        };
        let host = PoolHostView { host: "fb2 <x>".to_owned(), missed_fences: 3, ..PoolHostView::default() };
        let told = text(Some(host));
        assert!(told.contains("host fb2 &lt;x&gt;</span>") && told.contains("fences missed: 3"), "{told}");
        let told = text(Some(PoolHostView::default()));
        assert!(!told.contains("fences missed"), "{told}");
        assert!(!text(None).contains("host "), "it is one of the head");
    }

    #[test]
    fn a_pool_that_is_slow_to_clients_is_shown_so_while_it_is_in_order() {
        let text = |slow, drained| {
            let mut out = Html::new();
            row(&mut out, &PoolView { slow, drained, ..PoolView::default() });
            out.into_string()
        };
        assert!(text(true, false).contains("In order</span><span class=\"under\">slow to clients</span>"));
        assert!(
            !text(false, false).contains("slow to clients") && !text(true, true).contains("slow to clients")
        );
    }
}
