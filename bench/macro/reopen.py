"""The sides that bench/reopen compares, and its report."""
import os, statistics, subprocess

from .sides import BEFORE, ROOT, ForebaySide, GaneshaSide
from driver.server import Forebay

SCHEMA = 1
KEEPS = {"held": "the reads alone, from a file that stays open: the least that `loop` can take",
         "loop": "one file: open, drop its pages, read 128 KiB, close",
         "many": "the same over many files in turn",
         "cached": "one more pass over these, without dropping the pages"}


class Delegating(ForebaySide):
    def __init__(self, name, says, mode):
        super().__init__(name, says)
        self.mode = mode

    def start_in(self, scratch):
        return Forebay(scratch, binary=self.binary, extra=["--no-root-squash"], config='[nfs.delegations]\nmode = "%s"\n' % self.mode)


SIDES = [Delegating("forebay", "Read delegations as they come (nfs.delegations.mode = adaptive).", "adaptive"),
         Delegating("forebay-off", "No delegations (nfs.delegations.mode = off).", "off"),
         GaneshaSide("ganesha", "Grants no delegations on a VFS export, whatever is configured.")]
# (faster, slower, at least how much faster the issue wants `loop`)
PAIRS = [("forebay", "forebay-off", 5.0), ("forebay", "ganesha", 1.25), ("forebay", BEFORE, 1.0)]


def prepare(opt, scratch):
    """The compiled loop, made here so that nothing binary lies in the tree."""
    program = os.path.join(scratch, "reopen")
    subprocess.run(["cc", "-O2", "-Wall", "-o", program, os.path.join(ROOT, "bench/macro/reopen.c")], check=True)
    return {"REOPEN": program, "FRAMES": opt.frames, "FILES": opt.files}


def summarise(runs, opt):
    """{job: {unit, sides: {side: ...}, ratios}}; runs: {side: [phases of a round, ...]}."""
    out = {}
    for job in opt.jobs:
        sides = {}
        for side, rounds in runs.items():
            values = [1e3 * r[job]["seconds"] / r[job]["files"] for r in rounds]
            last = rounds[-1][job]
            rpcs = {op: n for op, n in last["rpcs"].items() if op != "SEQUENCE"}
            sides[side] = {"values": [round(v, 4) for v in values], "median": round(statistics.median(values), 4),
                           "frames": last["files"], "reads": rpcs.get("READ", 0),
                           "others": sum(rpcs.values()) - rpcs.get("READ", 0), "rpcs": rpcs, "head_rtt_us": last["rtt_us"],
                           "server_cpu_us": round(1e6 * statistics.median(r[job]["mark"] / r[job]["files"] for r in rounds), 1)}
        ratios = {"%s / %s" % (a, b): round(sides[b]["median"] / sides[a]["median"], 2)
                  for a, b, _ in PAIRS if a in sides and b in sides}
        out[job] = {"says": KEEPS[job], "unit": "ms per frame", "sides": sides, "ratios": ratios}
    return out


def table(jobs, sides):
    width = max(len(s) for s in sides) + 2
    head = "%-8s" % "job" + "".join(s.rjust(width) for s in sides)
    row = lambda job, text: "%-8s" % job + "".join(text(jobs[job]["sides"][s]).rjust(width) for s in sides)
    lines = ["median ms per frame of 128 KiB (less is better)", head]
    lines += [row(job, lambda side: "%.3f" % side["median"]) for job in jobs]
    lines += ["", "READs, data servers included", head]
    lines += [row(job, lambda side: "%d" % side["reads"]) for job in jobs]
    lines += ["", "all other RPCs (a SEQUENCE that only keeps a lease is left out)", head]
    lines += [row(job, lambda side: "%d" % side["others"]) for job in jobs]
    lines += ["", "server CPU, us per frame", head]
    lines += [row(job, lambda side: "%.0f" % side["server_cpu_us"]) for job in jobs]
    lines += ["", "how much faster (1.00 = as fast)"]
    for a, b, wanted in PAIRS:
        pair = "%s / %s" % (a, b)
        cells = ["%s %.2f" % (job, j["ratios"][pair]) for job, j in jobs.items() if pair in j["ratios"]]
        if cells:
            lines.append("%-24s %s   (wanted of loop: %.2f)" % (pair, "  ".join(cells), wanted))
    if "held" in jobs and "loop" in jobs:
        share = lambda s: jobs["held"]["sides"][s]["median"] / jobs["loop"]["sides"][s]["median"]
        lines += ["", "share of the bound that loop reaches: " + ", ".join("%s %.0f %%" % (s, 100 * share(s)) for s in sides)]
    return "\n".join(lines)
