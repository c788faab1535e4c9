"""The mixture of phases: one job, in which every mode is right for one part and wrong for another.

Server and page cache have the memory of `--memory`, as M below. The sizes of all files follow from it.
"""
from . import jobs, limits

BLOCKS = [128 << 10, 256 << 10, 512 << 10, 1 << 20]
STREAMS = len(BLOCKS)
SPILL, SCAN, SET = "phases-spill", "phases-scan", "phases-set"
SUMMED = ("value", "cpu", "client_cpu", "machine_cpu", "bytes", "operations")


class Phase(jobs.Row):
    """Seconds, and CPU seconds of the server."""

    def __init__(self, about):
        super().__init__("s", "s", is_time=True)
        self.about = about

    def described(self):
        return {"about": self.about}


PHASES = {
    "write": Phase("4 streams write M/2 in files of M/32, in blocks of 128, 256, 512 KiB and 1 MiB, each file ended by COMMIT"),
    "merge": Phase("4 streams read these files at once, 1 MiB a READ"),
    "delete": Phase("the files are removed"),
    "scan": Phase("a new file of 2 M that is not in memory is read once, in order, 1 MiB a READ"),
    "reread": Phase("4 streams read M/2 of a set of M/4 at random, 64 KiB a READ; the set was in memory before the first phase"),
    "rewrite": Phase("4 streams rewrite M/16 of that set at random, 4 KiB a WRITE UNSTABLE, ended by COMMIT"),
}


class Phases:
    """All phases one after the other."""

    operation, is_short, needs_server = "mixture", False, True

    def rows(self, name):
        return dict({name: Phase("the sum of all phases")}, **{"%s-%s" % (name, phase): row for phase, row in PHASES.items()})

    def prepare(self, _name, side, opt, _done):
        if opt.no_limit or side.server.group:
            return
        pid = side.server.process.pid
        try:
            side.server.group = limits.MemoryGroup(pid, "forebay-bench-%d" % pid)
        except (limits.CannotLimit, OSError) as reason:
            raise SystemExit("bench/engine: %s (--no-limit does without)" % reason)

    def measure(self, name, side, opt):
        memory, group = opt.memory << 20, side.server.group
        # New files for each run, so that no server has seen them.
        side.run(jobs.files("write", SET, memory // 4 // STREAMS, STREAMS))
        side.run(jobs.files("write", SCAN, 2 * memory, 1))
        side.drop_all()
        if group:
            group.limit(opt.memory)
        try:
            side.run(jobs.streams("read", SET, memory // 4, STREAMS))
            found = {phase: side.run(work) for phase, work in works(memory)}
        finally:
            if group:
                group.lift()
        side.run(jobs.files("remove", SCAN, 1, 1))
        side.run(jobs.files("remove", SET, 1, STREAMS))
        return summed(name, {phase: jobs.figures(line, cpu, line["seconds"], 1) for phase, (line, cpu) in found.items()})


def summed(name, parts):
    """The figures of all phases and of each."""
    total = {key: sum(part[key] for part in parts.values()) for key in SUMMED}
    return dict({name: total}, **{"%s-%s" % (name, phase): part for phase, part in parts.items()})


def works(memory):
    """What forebay-load is told, by phase."""
    count = ["--files", str(memory // 2 // STREAMS // (memory // 32))]
    return [
        ("write", jobs.files("write", SPILL, memory // 32, STREAMS, count + ["--block", ",".join(map(str, BLOCKS))])),
        ("merge", jobs.files("read", SPILL, memory // 32, STREAMS, count)),
        ("delete", jobs.files("remove", SPILL, 1, STREAMS, count)),
        ("scan", jobs.streams("read", SCAN, 2 * memory, 1)),
        ("reread", jobs.streams("read", SET, memory // 4, STREAMS, at_random(64 << 10, memory // 2))),
        ("rewrite", jobs.streams("write", SET, memory // 4, STREAMS, at_random(4 << 10, memory // 16))),
    ]


def at_random(block, total):
    return ["--pattern", "random", "--block", str(block), "--bytes", str(total // STREAMS)]


JOBS = {"phases": Phases()}
