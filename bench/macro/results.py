"""Medians, ratios, the table, and the JSON that README.md describes."""
import statistics

from .sides import PAIRS

SCHEMA = 1


def jobs_of(opt, files):
    """{job: (unit of the rate, units of work per run, unit of the CPU cost, divisor of CPU seconds)}"""
    gib = opt.size / 1024
    every = {"getattr": ("op/s", opt.count), "write": ("MiB/s", opt.size), "read": ("MiB/s", opt.size), "untar": ("files/s", files),
             "create": ("op/s", opt.count), "stat": ("op/s", opt.count), "remove": ("op/s", opt.count)}
    return {job: (unit, work, "s/GiB" if job in ("write", "read") else "us/op", gib if job in ("write", "read") else work / 1e6)
            for job, (unit, work) in every.items() if job in opt.jobs}


def summarise(runs, syncs, opt, files):
    """runs: {side: [phases of a round, ...]}, syncs: {side: phases} or {}."""
    out = {}
    for job, (unit, work, cpu_unit, cpu_per) in jobs_of(opt, files).items():
        sides = {}
        for side, rounds in runs.items():
            rates = [work / r[job]["seconds"] for r in rounds if job in r]
            if not rates:
                continue
            cpu = [r[job]["mark"] / cpu_per for r in rounds]
            last = rounds[-1][job]
            sides[side] = {"values": [round(v, 1) for v in rates], "median": round(statistics.median(rates), 1),
                           "cpu": {"unit": cpu_unit, "values": [round(c, 3) for c in cpu], "median": round(statistics.median(cpu), 3)},
                           "rpcs": last["rpcs"], "head_rtt_us": last["rtt_us"]}
            if side in syncs:
                sides[side]["server_syncs"] = int(syncs[side][job]["mark"])
        ratios = {"%s / %s" % (a, b): round(sides[a]["median"] / sides[b]["median"], 2)
                  for a, b, _ in PAIRS if a in sides and b in sides}
        out[job] = {"unit": unit, "work": work, "sides": sides, "ratios": ratios}
    return out


def table(jobs, sides):
    lines, width = [], max(len(s) for s in sides) + 2
    head = "%-9s %-8s" % ("job", "unit") + "".join(s.rjust(width) for s in sides)
    lines += ["median rate (more is better)", head]
    for job, j in jobs.items():
        lines.append("%-9s %-8s" % (job, j["unit"]) + "".join(("%.0f" % j["sides"][s]["median"] if s in j["sides"] else "-").rjust(width) for s in sides))
    lines += ["", "server CPU, user + system (less is better)", head]
    for job, j in jobs.items():
        cpu = [j["sides"][s]["cpu"] for s in sides if s in j["sides"]]
        lines.append("%-9s %-8s" % (job, cpu[0]["unit"]) + "".join(("%.3g" % c["median"]).rjust(width) for c in cpu))
    if any("server_syncs" in s for j in jobs.values() for s in j["sides"].values()):
        lines += ["", "fsync, fdatasync, ... calls of the server in one run (the file system's own dirsync is no call)", head]
        for job, j in jobs.items():
            lines.append("%-9s %-8s" % (job, "calls") + "".join(str(j["sides"].get(s, {}).get("server_syncs", "-")).rjust(width) for s in sides))
    lines += ["", "ratio of the rates (1.00 = as fast as the peer)"]
    for a, b, what in PAIRS:
        pair = "%s / %s" % (a, b)
        cells = ["%s %.2f" % (job, j["ratios"][pair]) for job, j in jobs.items() if pair in j["ratios"]]
        if cells:
            lines.append("%-34s %s   (%s)" % (pair, "  ".join(cells), what))
    return "\n".join(lines)
