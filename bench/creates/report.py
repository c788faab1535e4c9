"""Medians, the table beside the bounds and the targets, and the JSON that README.md describes."""
import statistics

SCHEMA = 1
# Targets: (level, mode, creators or any, measurement, at least or at most, bound).
TARGETS = [("b", "interval", 64, "rate", ">=", 20_000), ("a", "durable", None, "bound_share", ">=", 0.7),
           ("a", "durable", 64, "cpu_us_per_create", "<=", 25)]
# Ratios of two rates of one run: (what, numerator, denominator, at least); each side is level, mode, directories, creators.
RATIOS = [("shared / own directories", ("a", "durable", "shared", 32), ("a", "durable", "own", 32), 0.95),
          ("shared / own directories", ("p", "durable", "shared", 32), ("p", "durable", "own", 32), 0.95),
          ("PostgreSQL / pgbench", ("p", "durable", "shared", 32), ("pgbench", "durable", "shared", 32), 10)]
# Keys that tell one figure from another; the rest of a run are measurements.
KEYS = ["level", "mode", "consistency", "clients", "directories", "creators"]
# Above this share other programs decide what is measured.
BUSY_MAX = 0.2


def line(run):
    clients = " %d clients" % run["clients"] if "clients" in run else ""
    return "(%s) %-8s %-6s %-6s %3d creators%s: %8.0f/s  mean %6.0f us  CPU %5.1f us  busy before %.2f" % (
        run["level"], run["mode"], run["consistency"], run["directories"], run["creators"], clients, run["rate"], run.get("mean_us", 0), run.get("cpu_us_per_create", 0), run["busy_before"])


def summarise(runs):
    """One figure per combination of KEYS: the median of each measurement, and the rates of all rounds."""
    groups = {}
    for run in runs:
        groups.setdefault(tuple(run.get(key) for key in KEYS), []).append(run)
    return [summary(key, group) for key, group in groups.items()]


def summary(key, group):
    out = {name: value for name, value in zip(KEYS, key) if value is not None}
    out["rate"] = median([run["rate"] for run in group])
    out["rates"] = [rounded(run["rate"]) for run in group]
    out["fdatasync_us"] = median([statistics.mean(run["fdatasync_us"].values()) for run in group])
    for name, value in group[0].items():
        if name not in out and name != "round" and isinstance(value, (int, float)):
            # Errors of any round are errors; of times and costs the median stands for all.
            values = [run[name] for run in group if name in run]
            out[name] = sum(values) if name == "errors" else median(values)
    return out


def median(values):
    return rounded(statistics.median(values))


def rounded(value):
    return float("%.4g" % value) if isinstance(value, float) else value


def table(figures, bounds, levels):
    lines = []
    for level in levels:
        lines += of_level(level, [each for each in figures if each["level"] == level.NAME]) + [""]
    lines += targets(figures)
    lines.append("bounds: " + ", ".join("%s %s" % pair for pair in bounds.items()))
    return "\n".join(lines)


def of_level(level, figures):
    """Creators down; durability, consistency and directories across: rate, server's CPU; for the durable ones the share of the bound."""
    column_of = lambda each: (each.get("clients"), each["mode"], each["consistency"], each["directories"])
    columns = sorted({column_of(each) for each in figures}, key=str)
    lines = ["(%s) %s: creates/s, median (CPU us per create; share of creators / fdatasync)" % (level.NAME, level.TITLE)]
    lines.append("creators" + "".join(" ".join(str(word) for word in column if word is not None).rjust(30) for column in columns))
    for creators in sorted({each["creators"] for each in figures}):
        line = "%8d" % creators
        for column in columns:
            found = [each for each in figures if column_of(each) == column and each["creators"] == creators]
            line += (cell(found[0]) if found else "-").rjust(30)
        lines.append(line)
    return lines


def cell(figure):
    more = ["%.0f us" % figure["cpu_us_per_create"]] if "cpu_us_per_create" in figure else []
    if figure["mode"] == "durable":
        more.append("%.2f" % (figure["rate"] * figure["fdatasync_us"] / 1e6 / figure["creators"]))
    errors = " %d ERRORS" % figure["errors"] if figure.get("errors") else ""
    return "%.0f (%s)%s" % (figure["rate"], ", ".join(more), errors)


def targets(figures):
    lines = []
    for level, mode, creators, name, sense, bound in TARGETS:
        for each in figures:
            if (each["level"], each["mode"], each["consistency"]) == (level, mode, "strong") and creators in (None, each["creators"]) and name in each:
                met = each[name] >= bound if sense == ">=" else each[name] <= bound
                lines.append("target (%s) %s, %d creators, %s: %s %s %s, found %s  %s"
                             % (level, mode, each["creators"], each["directories"], name, sense, bound, each[name], "met" if met else "MISSED"))
    rates = {tuple(each[key] for key in ("level", "mode", "directories", "creators")): each["rate"]
             for each in figures if "clients" not in each and each["consistency"] == "strong"}
    for what, above, below, bound in RATIOS:
        if rates.get(above) and rates.get(below):
            ratio = rates[above] / rates[below]
            lines.append("target (%s) %s, %d creators, %s: >= %s, found %.2f  %s" % (above[0], above[1], above[3], what, bound, ratio, "met" if ratio >= bound else "MISSED"))
    return lines


def calm(runs):
    busy = statistics.median(run["busy_before"] for run in runs)
    if busy > BUSY_MAX:
        return "the machine was NOT CALM: half of the runs began with %.0f %% of its CPUs busy; these figures settle nothing" % (100 * busy)
    return "before a run %.0f %% of the CPUs were busy (median)" % (100 * busy)
