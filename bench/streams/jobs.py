"""The jobs: what forebay-load is told, in which state the files are before, and what is counted."""

class Job:
    """`streams` share the bytes of --size divided by `part`. Without `timed`, a run is one pass over them."""

    def __init__(self, operation, unit="MB/s", streams=1, slots=8, block=1 << 20, pattern="sequential", stable="unstable", part=1, cold=False, timed=False, new=False):
        self.operation, self.unit, self.streams, self.slots, self.block, self.pattern = operation, unit, streams, slots, block, pattern
        self.stable, self.part, self.cold, self.timed, self.new = stable, part, cold, timed, new
        self.cpu_unit = "s/GB" if unit == "MB/s" else "us/op"

    def run(self, side, opt):
        """One run: rate and server's CPU in the units above, times of the requests in us."""
        work = Work(self, opt)
        if self.operation == "read":
            side.run(work.whole("read"))
        if self.cold:
            side.drop(work)
            side.run(work)          # not counted: its pages come from the host, and the next run finds them
            side.drop(work)
        found, cpu = side.run(work)
        per = found["bytes"] / 1e9 if self.unit == "MB/s" else found["operations"] / 1e6
        result = dict(rate=found["mb_s"] if self.unit == "MB/s" else found["operations_s"], cpu=cpu / per, client_cpu=found["cpu_s"] / per)
        result.update({key: found[key] for key in ("p50_us", "p99_us", "max_us")})
        if found.get("commits"):
            result["commit_us"] = found["commit_us"]["p50_us"]
        return result


class Work:
    """A job with the sizes of this run."""

    def __init__(self, job, opt):
        self.job, self.opt = job, opt

    def file_bytes(self):
        return (self.opt.size << 20) // self.job.part // self.job.streams

    def path(self):
        """Jobs that need the same files have the same."""
        return "%s-%d-%d" % ("new" if self.job.new else "file", self.job.streams, self.job.part)

    def names(self):
        return [self.path()] + ["%s.%d" % (self.path(), number) for number in range(1, self.job.streams)]

    def file_options(self):
        return ["--path", "/" + self.path(), "--file-bytes", str(self.file_bytes()), "--streams", str(self.job.streams), "--slots", str(self.job.slots)]

    def block_options(self):
        job = self.job
        length = ["--seconds", str(self.opt.seconds)] if job.timed else ["--bytes", str(self.file_bytes() // (RANDOM_PART if job.pattern == "random" else 1))]
        return ["--block", str(job.block), "--pattern", job.pattern] + length

    def options(self):
        return (self.file_options() + self.block_options() + ["--operation", self.job.operation, "--stable", self.job.stable]
                + (["--truncate"] if self.job.new else []))

    def whole(self, operation):
        """All bytes of the files once, in order."""
        return Whole(self, operation)


class Whole(Work):
    def __init__(self, work, operation):
        super().__init__(work.job, work.opt)
        self.operation = operation

    def block_options(self):
        return []

    def options(self):
        return self.file_options() + ["--operation", self.operation, "--verify"]


# Random blocks of a cold file: few enough that most of them are read for the first time.
RANDOM_PART = 2

# Jobs that fill the page cache have half of the bytes. A virtual machine may hand free memory back to its host, and each page that is used again
# then costs a fault there, which is ten times the copy of a page. So a run is to find the pages that were freed just before it, and a host takes
# many free pages sooner than few.
JOBS = {
    "read-hot": Job("read", timed=True),
    "read-hot8": Job("read", streams=8, timed=True),
    "read-cold": Job("read", part=2, cold=True),
    "write-stream": Job("write", part=2, new=True),
    "write-4k-stable": Job("write", unit="op/s", streams=4, slots=4, block=4096, pattern="random", stable="file-sync", part=4, timed=True),
    "random-read-128k": Job("read", block=128 << 10, pattern="random", part=2, cold=True),
}


def prepare(opt, sides):
    """The files that jobs find there, each made once: sides that share a server share its files. Each side is checked with them."""
    filled, checked = set(), set()
    for name in opt.jobs:
        work = Work(JOBS[name], opt)
        for side in sides:
            place, way = (work.path(), id(side.server or side)), (work.path(), side.name)
            if work.job.new or not side.can(work.job):
                continue
            if place not in filled:
                filled.add(place)
                side.fill(work)
            if way not in checked:
                checked.add(way)
                side.check(work)
