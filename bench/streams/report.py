"""Medians, ratios, the tables beside the targets, and the JSON that README.md describes."""
import statistics

from macro.sides import BEFORE
from web.report import BUSY_MAX, rounded

from . import jobs

SCHEMA = 1
FIRST = "forebay"
REFERENCES = ["sendfile", "nfs-ganesha", BEFORE]
# (job, what, beside which side, at least or at most, bound), of the side FIRST.
TARGETS = [("read-hot", "rate", "sendfile", ">=", 0.9), ("read-hot8", "rate", "sendfile", ">=", 0.9),
           ("read-hot", "cpu", "nfs-ganesha", "<=", 0.5), ("read-hot8", "cpu", "nfs-ganesha", "<=", 0.5)]
TIMES = ["p50_us", "p99_us", "max_us", "commit_us"]


def summarise(runs):
    """runs: {job: {side: [a result per round]}}"""
    out = {}
    for name, sides in runs.items():
        job = jobs.JOBS[name]
        figures = {side: summary(job, rounds) for side, rounds in sides.items()}
        ratios = {"%s / %s" % pair: {key: ratio(sides, *pair, key) for key in ("rate", "cpu")} for pair in pairs(sides)}
        out[name] = rounded({"unit": job.unit, "operation": job.operation, "streams": job.streams, "slots": job.slots, "block": job.block,
                             "pattern": job.pattern, "stable": job.stable, "cold": job.cold, "sides": figures, "ratios": ratios})
    return out


def pairs(sides):
    """Each of ours beside each reference, and the first of ours beside its other configurations."""
    for ours in sides:
        if ours not in REFERENCES:
            yield from ((ours, other) for other in REFERENCES if other in sides)
    if FIRST in sides:
        yield from ((FIRST, other) for other in sides if other not in REFERENCES + [FIRST])


def summary(job, rounds):
    values = lambda key: [r[key] for r in rounds]
    out = {"values": values("rate"), "median": statistics.median(values("rate")),
           "cpu": {"unit": job.cpu_unit, "values": values("cpu"), "median": statistics.median(values("cpu"))},
           "client_cpu": statistics.median(values("client_cpu"))}
    out.update({key: statistics.median(values(key)) for key in TIMES if key in rounds[0]})
    return out


def ratio(sides, ours, other, key):
    median = lambda side: statistics.median(r[key] for r in sides[side])
    return {"of_medians": median(ours) / median(other) if median(other) else None,
            "per_round": [a[key] / b[key] for a, b in zip(sides[ours], sides[other]) if b[key]]}


def table(figures, sides, limits, calm):
    width = max(13, max(map(len, sides)) + 2)
    rows = [("median rate (more is better)", lambda job: job["unit"], lambda s: s["median"]),
            ("server CPU, user + system (less is better)", lambda job: cpu_unit(job), lambda s: s["cpu"]["median"]),
            ("99th percentile of a request, us", lambda job: "us", lambda s: s["p99_us"])]
    lines = []
    for title, unit, pick in rows:
        lines += ["", title, "%-17s %-6s" % ("job", "unit") + "".join(s.rjust(width) for s in sides)]
        for name, job in figures.items():
            cells = ("%.4g" % pick(job["sides"][s]) if s in job["sides"] else "-" for s in sides)
            lines.append("%-17s %-6s" % (name, unit(job)) + "".join(cell.rjust(width) for cell in cells))
    shown_pairs = dict.fromkeys(pair for job in figures.values() for pair in job["ratios"])
    lines += ["", "ratio of the medians: rate (CPU)"]
    for pair in shown_pairs:
        cells = ("%s %s" % (name, shown(job["ratios"][pair])) for name, job in figures.items() if pair in job["ratios"])
        lines.append("%-27s %s" % (pair, "  ".join(cells)))
    lines += ["", "targets"] + list(targets(figures))
    busy = statistics.median(each["busy_before"] for each in calm)
    if busy > BUSY_MAX:
        lines += ["", "the machine was NOT CALM: half of the jobs began with %.0f %% of its CPUs busy; these figures settle nothing" % (100 * busy)]
    return "\n".join(lines[1:] + ["", "bounds: " + ", ".join("%s %d" % pair for pair in limits.items())])


def cpu_unit(job):
    return next(iter(job["sides"].values()))["cpu"]["unit"]


def shown(ratios):
    return "%s (%s)" % tuple("-" if ratios[key]["of_medians"] is None else "%.2f" % ratios[key]["of_medians"] for key in ("rate", "cpu"))


def targets(figures):
    for name, key, other, sense, bound in TARGETS:
        ratios = figures.get(name, {}).get("ratios", {}).get("%s / %s" % (FIRST, other))
        if ratios and ratios[key]["of_medians"] is not None:
            found = ratios[key]["of_medians"]
            met = found >= bound if sense == ">=" else found <= bound
            yield "  %-10s %-4s of %-11s %s %.2f: %.2f  %s" % (name, key, other, sense, bound, found, "met" if met else "MISSED")
