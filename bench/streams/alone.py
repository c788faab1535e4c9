"""The workload `alone`: the pool's I/O engine in the process of forebay-load itself, through the seam that the doors use. No server and no
network take a part of the time or of the CPU, so a mode shows its whole price.
"""
import os

from . import jobs, shapes, sides

# Of the comparison of bytes that new files get, by the sizes that a run of so many MiB has.
CHECKED_MIB = 64
# A set of replicas begins with a number of its own.
REPLICAS_MAX = 256


class Engine:
    """A pool in a directory of its own, that one mode of forebay-load opens for each run."""

    def __init__(self, directory, mode):
        self.directory, self.mode, self.sizes = directory, mode, None
        self.made = {}

    def run(self, options):
        """The line of forebay-load, and CPU seconds of its process, which is the engine's. `machine_cpu_s` has the threads of the kernel too, that write
        back what is buffered. Nothing is left for a generator."""
        found = sides.generate(["engine", "--directory", self.directory, "--mode", self.mode] + options)
        self.sizes = found.get("sizes")
        return dict(found, cpu_s=0, machine_cpu_s=max(found["cpu_s"], found["machine_cpu_s"])), found["cpu_s"]

    def fill(self, work):
        before = set(self.files())
        self.run(work.whole("write").options())
        self.made[work.path()] = [path for path in self.files() if path not in before]

    def files(self):
        return list(sides.files_below(os.path.join(self.directory, "data")))

    def drop(self, work):
        sides.drop_pages(self.made[work.path()])

    def warm(self, work):
        sides.load_pages(self.made[work.path()])

    def described(self):
        return {"calibrated": self.sizes}


def start(scratch, opt):
    """A pool for each mode of `--modes`, if a job wants one."""
    for side in opt.sides:
        if side.mode and any(JOBS.get(name) for name in opt.jobs):
            side.alone = Engine(os.path.join(scratch, "alone-" + side.name), side.mode)


class Alone(jobs.Job):
    """Cold files are dropped before a run, hot ones are read into memory by the benchmark: then they are there in every mode."""

    needs_server = False

    def work(self, opt):
        return Work(self, opt)

    def prepare(self, _name, side, opt, done):
        work = self.work(opt)
        if (work.path(), side.name) in done:
            return
        done.add((work.path(), side.name))
        if self.new:
            small = self.work(Smaller(opt))
            for operation in ("write", "read"):
                side.alone.run(small.options_of(operation) + ["--verify"])
        else:
            side.alone.fill(work)
            side.alone.run(work.whole("read").options())

    def measure(self, name, side, opt):
        work = self.work(opt)
        if self.cold:
            side.alone.drop(work)
            side.alone.run(work.options())      # not counted: its pages come from the host, and the next run finds them
            side.alone.drop(work)
        elif self.operation == "read":
            side.alone.warm(work)
        return {name: jobs.rate(*side.alone.run(work.options()), self.unit)}


class Smaller:
    """The options of a run with at most CHECKED_MIB."""

    def __init__(self, opt):
        self.size, self.seconds = min(CHECKED_MIB, opt.size), opt.seconds


class Work(jobs.Work):
    def file_options(self):
        return ["--replica", str(1 + REPLICAS_MAX * PATHS.index(self.path())), "--file-bytes", str(self.file_bytes()), "--streams", str(self.job.streams), "--slots", str(self.job.slots)]

    def options(self):
        return self.options_of(self.job.operation)

    def options_of(self, operation):
        return (self.file_options() + self.block_options() + ["--operation", operation, "--stable", self.job.stable]
                + (["--truncate"] if self.job.new else []))


class Segments(Alone):
    """The shape of VPIC: one emptied replica, written by all streams, each its own part in one piece, from an offset that no page begins at."""

    def __init__(self, block):
        super().__init__("write", streams=shapes.RANKS, slots=4, block=block, part=4, new=True)

    def described(self):
        return dict(super().described(), offset=shapes.VPIC_OFFSET, shared=True)

    def work(self, opt):
        return SegmentWork(self, opt)


class SegmentWork(Work):
    def path(self):
        return "shared-%d" % self.job.block

    def file_bytes(self):
        return shapes.VPIC_OFFSET + (self.opt.size << 20) // self.job.part

    def block_options(self):
        return ["--block", str(self.job.block), "--shared", "--segments", "--offset", str(shapes.VPIC_OFFSET)]


JOBS = {
    "alone-write-stream": Alone("write", part=2, new=True),
    "alone-read-cold": Alone("read", part=2, cold=True),
    "alone-read-hot": Alone("read", part=2, timed=True),
    "alone-random-read-128k": Alone("read", block=128 << 10, pattern="random", part=2, cold=True),
    "alone-write-4k": Alone("write", unit="op/s", streams=4, slots=4, block=4096, pattern="random", part=4),
    "alone-vpic-32k": Segments(32 << 10),
    "alone-vpic-1m": Segments(1 << 20),
}
PATHS = sorted({job.work(Smaller(type("Sizes", (), {"size": 1, "seconds": 1}))).path() for job in JOBS.values()})
