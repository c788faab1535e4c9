"""Medians, ratios, the table beside the targets, and the JSON that README.md describes."""
import statistics

from . import jobs

SCHEMA = 1
# Targets beside the peer: (job, what, at least or at most, bound).
TARGETS = [("get", "rate", ">=", 0.95), ("get", "cpu", "<=", 1.2), ("get8", "rate", ">=", 0.95), ("get8", "cpu", "<=", 1.2),
           ("small64", "rate", ">=", 0.5), ("put", "rate", ">=", 1.0), ("put-disk", "rate", ">=", 1.0)]
VECTOR_GAIN = 50
VECTORS = [("vector", "parts"), ("vector-curl", "parts-curl")]
# Above this share other programs decide what is measured.
BUSY_MAX = 0.2


def summarise(runs, opt):
    out = {}
    for name, sides in runs.items():
        job = jobs.JOBS[name]
        figures = {side: {"values": [r["rate"] for r in rounds], "median": statistics.median(r["rate"] for r in rounds),
                          "cpu": {"unit": job.cpu_unit, "values": [r["cpu"] for r in rounds], "median": statistics.median(r["cpu"] for r in rounds)}}
                   for side, rounds in sides.items()}
        ours, theirs = sides["forebay"], sides[peer_of(sides)]
        pairs = lambda key: [a[key] / b[key] for a, b in zip(ours, theirs) if b[key] > 0]
        ratios = {key: {"of_medians": ratio(figures, key), "per_round": pairs(key)} for key in ("rate", "cpu")}
        out[name] = rounded({"unit": job.unit, "sides": figures, "forebay / %s" % peer_of(sides): ratios})
    for at_once, one_by_one in VECTORS:
        for side in out[at_once]["sides"] if at_once in out and one_by_one in out else ():
            gain = out[at_once]["sides"][side]["median"] / out[one_by_one]["sides"][side]["median"]
            out[at_once]["sides"][side]["times_faster_than_parts"] = round(gain, 1)
    return out


def peer_of(sides):
    """nginx, or another binary of Forebay."""
    return next(name for name in sides if name != "forebay")


def ratio(figures, key):
    peer = peer_of(figures)
    pick = lambda side: figures[side]["median"] if key == "rate" else figures[side]["cpu"]["median"]
    return pick("forebay") / pick(peer) if pick(peer) else None


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float("%.4g" % value) if isinstance(value, float) else value


def table(figures, sides, limits, calm):
    lines = ["%-11s %-8s" % ("job", "unit") + "".join(("%s" % s).rjust(12) for s in sides) + "  ratio    CPU" + "".join(s.rjust(12) for s in sides) + "  ratio"]
    for name, job in figures.items():
        one = lambda pick: "".join(("%.4g" % pick(job["sides"][s])).rjust(12) for s in sides)
        ratios = job["forebay / %s" % peer_of(sides)]
        shown = lambda key: "   -" if ratios[key]["of_medians"] is None else "%.2f" % ratios[key]["of_medians"]
        lines.append("%-11s %-8s" % (name, job["unit"]) + one(lambda s: s["median"]) + "   " + shown("rate")
                     + "  " + jobs.JOBS[name].cpu_unit.ljust(7) + one(lambda s: s["cpu"]["median"])[2:] + "   " + shown("cpu"))
    lines += ["", "targets"]
    for name, key, sense, bound in TARGETS if "nginx" in sides else ():
        if name in figures and (found := figures[name]["forebay / nginx"][key]["of_medians"]) is not None:
            met = found >= bound if sense == ">=" else found <= bound
            lines.append("  %-11s %-4s of nginx %s %.2f: %.2f  %s" % (name, key, sense, bound, found, "met" if met else "MISSED"))
    for name, _ in VECTORS:
        gain = figures.get(name, {}).get("sides", {}).get("forebay", {}).get("times_faster_than_parts")
        if gain is not None:
            lines.append("  %-11s one request >= %d times faster than as many: %.0f  %s" % (name, VECTOR_GAIN, gain, "met" if gain >= VECTOR_GAIN else "MISSED"))
    busy = statistics.median(each["busy_before"] for each in calm)
    if busy > BUSY_MAX:
        lines += ["", "the machine was NOT CALM: half of the jobs began with %.0f %% of its CPUs busy; these figures settle nothing" % (100 * busy)]
    return "\n".join(lines + ["", "bounds: " + ", ".join("%s %d" % pair for pair in limits.items())])
