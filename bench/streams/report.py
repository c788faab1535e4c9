"""Medians, ratios, the tables beside the targets, and the JSON that README.md describes."""
import statistics

from macro.sides import BEFORE
from web.report import BUSY_MAX, rounded

SCHEMA = 1
FIRST = "forebay"
# The rule that chooses, of the ways to choose a mode, and the fixed ones that it is to be as good as.
RULE, FIXED = "calibrated", ["buffered", "uncached", "direct", "paper", "beegfs"]
REFERENCES = ["sendfile", "nfs-ganesha", BEFORE]
# (job, what, beside which side, at least or at most, bound), of the side FIRST.
TARGETS = [("read-hot", "rate", "sendfile", ">=", 0.9), ("read-hot8", "rate", "sendfile", ">=", 0.9),
           ("read-hot", "cpu", "nfs-ganesha", "<=", 0.5), ("read-hot8", "cpu", "nfs-ganesha", "<=", 0.5)]
# A terminal shows the ratios of so many rows; the JSON has all.
RATIO_ROWS_MAX = 20
DECISIONS_SHOWN = 2
SINGLE_MIN, MIXTURE, MIXTURE_MIN = 0.95, "phases", 1.3
# Rates of RULE beside buffered.
BESIDE_BUFFERED = {"vpic-32k-write": 3, "vpic-1m-write": 3, "alone-vpic-32k": 3, "alone-vpic-1m": 3, "read-hot": 0.95, "read-hot8": 0.95, "alone-read-hot": 0.95}
# Streamed writes through NFS, and without a server: these receive nothing.
STREAMED, STREAMED_ALONE, DIRECT_CPU_MAX, RECEIVING = "write-stream", "alone-write-stream", 0.2, "receive_cpu_s_per_gb"
MEDIANS = ["client_cpu", "machine_cpu", "bytes", "operations", "cpu_s_per_gb", "cpu_us_per_op", "extents", "p50_us", "p99_us", "max_us", "commit_us"]


def summarise(runs, rows):
    """runs: {row: {side: [a result per round]}}, rows: {row: Row}"""
    out = {}
    for name, sides in runs.items():
        row = rows[name]
        figures = {side: summary(row, rounds) for side, rounds in sides.items()}
        ratios = {"%s / %s" % pair: {"rate": ratio(sides, *pair, "value", row.is_time), "cpu": ratio(sides, *pair, "cpu")} for pair in pairs(sides)}
        out[name] = rounded({"unit": row.unit, "less_is_better": row.is_time, **row.described(), "sides": figures, "ratios": ratios})
    return out


def pairs(sides):
    """Each of ours beside each reference, and the first of ours beside its other configurations."""
    for ours in sides:
        if ours not in REFERENCES:
            yield from ((ours, other) for other in REFERENCES if other in sides)
    for first in (FIRST, RULE):
        if first in sides:
            yield from ((first, other) for other in sides if other not in REFERENCES + [first])


def summary(row, rounds):
    values = lambda key: [r[key] for r in rounds]
    out = {"values": values("value"), "median": statistics.median(values("value")),
           "cpu": {"unit": row.cpu_unit, "values": values("cpu"), "median": statistics.median(values("cpu"))}}
    out.update({key: statistics.median(values(key)) for key in MEDIANS if key in rounds[0]})
    if "decisions" in rounds[-1]:
        out["decisions"] = rounds[-1]["decisions"]
    return out


def ratio(sides, ours, other, key, is_time=False):
    """Of times, how often ours fits into the other's: more is better, as of rates."""
    if is_time:
        ours, other = other, ours
    median = lambda side: statistics.median(r[key] for r in sides[side])
    return {"of_medians": median(ours) / median(other) if median(other) else None,
            "per_round": [a[key] / b[key] for a, b in zip(sides[ours], sides[other]) if b[key]]}


def table(figures, sides, limits, calm):
    width = max(13, max(map(len, sides)) + 2)
    names = "%%-%ds " % max(17, max(map(len, figures)))
    rows = [("median rate (more is better); of a unit of s, median time (less is better)", lambda job: job["unit"], lambda s: s["median"]),
            ("server CPU, user + system (less is better)", lambda job: cpu_unit(job), lambda s: s["cpu"]["median"]),
            ("99th percentile of a request, us", lambda job: "us", lambda s: s.get("p99_us"))]
    lines = []
    for title, unit, pick in rows:
        lines += ["", title, names % "job" + "%-6s" % "unit" + "".join(s.rjust(width) for s in sides)]
        for name, job in figures.items():
            cells = ("-" if s not in job["sides"] or pick(job["sides"][s]) is None else "%.4g" % pick(job["sides"][s]) for s in sides)
            lines.append(names % name + "%-6s" % unit(job) + "".join(cell.rjust(width) for cell in cells))
    if len(figures) <= RATIO_ROWS_MAX:
        lines += ["", "ratio of the medians: rate (CPU)"] + list(ratios_of_pairs(figures))
    lines += ["", "targets"] + list(targets(figures, limits))
    busy = statistics.median(each["busy_before"] for each in calm)
    if busy > BUSY_MAX:
        lines += ["", "the machine was NOT CALM: half of the jobs began with %.0f %% of its CPUs busy; these figures settle nothing" % (100 * busy)]
    return "\n".join(lines[1:] + ["", "bounds: " + ", ".join("%s %g" % pair for pair in limits.items())])


def ratios_of_pairs(figures):
    for pair in dict.fromkeys(pair for job in figures.values() for pair in job["ratios"]):
        cells = ("%s %s" % (name, shown(job["ratios"][pair])) for name, job in figures.items() if pair in job["ratios"])
        yield "%-27s %s" % (pair, "  ".join(cells))


def cpu_unit(job):
    return next(iter(job["sides"].values()))["cpu"]["unit"]


def shown(ratios):
    return "%s (%s)" % tuple("-" if ratios[key]["of_medians"] is None else "%.2f" % ratios[key]["of_medians"] for key in ("rate", "cpu"))


def targets(figures, limits):
    for name, key, other, sense, bound in TARGETS:
        ratios = figures.get(name, {}).get("ratios", {}).get("%s / %s" % (FIRST, other))
        if ratios and ratios[key]["of_medians"] is not None:
            yield verdict("%-10s %-4s of %-11s" % (name, key, other), sense, bound, ratios[key]["of_medians"])
    yield from targets_of_rule(figures)
    yield from target_of_direct(figures, STREAMED, limits.get(RECEIVING), "without the generator")
    yield from target_of_direct(figures, STREAMED_ALONE, None, "with the kernel's threads")


def verdict(about, sense, bound, found):
    met = found >= bound if sense == ">=" else found <= bound
    return "  %s %s %.2f: %.2f  %s" % (about, sense, bound, found, "met" if met else "MISSED")


def targets_of_rule(figures):
    """RULE beside the best of FIXED, in each row and in the mixture of phases."""
    shares = {name: share for name, row in figures.items() if (share := share_of_best(row)) is not None}
    single = {name: share for name, share in shares.items() if not name.startswith(MIXTURE)}
    for name, share in sorted(single.items(), key=lambda pair: pair[1]):
        if share < SINGLE_MIN:
            unclear = ", but rounds overlap" if overlaps(figures[name]) else ""
            yield verdict("%s: %s of the best fixed mode" % (name, RULE), ">=", SINGLE_MIN, share) + unclear + most_decided(figures[name]["sides"][RULE])
    if single:
        missed = [name for name, share in single.items() if share < SINGLE_MIN]
        yield "  %d of %d rows: %s at least %.2f of the best fixed mode; of the others, the rounds of %d overlap" % (
            len(single) - len(missed), len(single), RULE, SINGLE_MIN, sum(overlaps(figures[name]) for name in missed))
    if MIXTURE in shares:
        yield verdict("%s: %s of the best fixed mode" % (MIXTURE, RULE), ">=", MIXTURE_MIN, shares[MIXTURE])
    for name, bound in BESIDE_BUFFERED.items():
        ratios = figures.get(name, {}).get("ratios", {}).get("%s / buffered" % RULE)
        if ratios and ratios["rate"]["of_medians"] is not None:
            yield verdict("%s: %s of buffered" % (name, RULE), ">=", bound, ratios["rate"]["of_medians"])


def overlaps(row):
    """Whether the best round of RULE meets the target beside the worst round of the best fixed mode: then the rounds do not tell them apart."""
    fixed = [row["sides"][side] for side in FIXED if side in row["sides"]]
    ours = row["sides"][RULE]["values"]
    if row["less_is_better"]:
        return min(ours) * SINGLE_MIN <= max(min(fixed, key=lambda side: side["median"])["values"])
    return max(ours) >= SINGLE_MIN * min(max(fixed, key=lambda side: side["median"])["values"])


def most_decided(side):
    """The decisions for the most bytes, in brackets."""
    rows = side.get("decisions", [])[:DECISIONS_SHOWN]
    total = sum(row["bytes"] for row in side.get("decisions", []))
    words = ("%s %s: %.0f %%" % (row["mode"], row["reason"], 100 * row["bytes"] / total) for row in rows if total)
    return "  (%s)" % ", ".join(words) if rows and total else ""


def share_of_best(row):
    """How good RULE is beside the best fixed mode of this row; `None` without both."""
    fixed = [row["sides"][side]["median"] for side in FIXED if side in row["sides"]]
    if RULE not in row["sides"] or not fixed:
        return None
    ours = row["sides"][RULE]["median"]
    if row["less_is_better"]:
        return min(fixed) / ours if ours else None
    return ours / max(fixed) if max(fixed) else None


def target_of_direct(figures, row, received, machine_is):
    """CPU of a stream that is written directly beside a buffered one; the same without the receiving of the bytes, which no mode saves; and of the whole machine."""
    sides = figures.get(row, {}).get("sides", {})
    if "direct" not in sides or "buffered" not in sides:
        return
    of = lambda side: sides[side]["cpu_s_per_gb"]
    yield verdict("%s: CPU of direct beside buffered" % row, "<=", DIRECT_CPU_MAX, of("direct") / of("buffered"))
    if received is not None and of("buffered") > received:
        yield verdict("  the same without receiving the bytes (%.3f s/GB)" % received, "<=", DIRECT_CPU_MAX, max(0, of("direct") - received) / (of("buffered") - received))
    machine = lambda side: sides[side]["machine_cpu"]
    if machine("buffered"):
        yield verdict("  the same of the whole machine %s" % machine_is, "<=", DIRECT_CPU_MAX, machine("direct") / machine("buffered"))
