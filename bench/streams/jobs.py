"""The jobs of the workload `streams`, and the parts of jobs of any workload: rows of the tables, and commands of forebay-load.

A job has `rows`, `prepare` is called once for each side, and `measure` answers the figures of each of its rows.
"""


class Row:
    """Unit of the value, unit of the CPU, and whether less is better."""

    def __init__(self, unit, cpu_unit, is_time=False):
        self.unit, self.cpu_unit, self.is_time = unit, cpu_unit, is_time

    def described(self):
        return {}


class Command:
    """What forebay-load is told beside the server."""

    def __init__(self, command, options):
        self.command, self.all = command, options

    def options(self):
        return self.all


def streams(operation, path, total, count, more=()):
    """`count` streams of one file each, `total` bytes together; a shared file has all of them."""
    file_bytes = total if "--shared" in more else total // count
    return Command("stream", ["--path", "/" + path, "--operation", operation, "--file-bytes", str(file_bytes), "--streams", str(count)] + list(more))


def files(operation, path, file_bytes, count, more=()):
    """`count` streams of one file each, unless `more` says how many."""
    return Command("files", ["--path", "/" + path, "--operation", operation, "--file-bytes", str(file_bytes), "--streams", str(count)] + list(more))


def figures(found, cpu, value, per):
    """Of a line of forebay-load and the CPU seconds of the server: the value, and CPU in its unit and for 10^9 bytes and an operation."""
    out = dict(value=value, cpu=cpu / per, client_cpu=found["cpu_s"] / per, machine_cpu=found["machine_cpu_s"] / per, bytes=found["bytes"], operations=found["operations"])
    if found["bytes"]:
        out["cpu_s_per_gb"] = 1e9 * cpu / found["bytes"]
    if found["operations"]:
        out["cpu_us_per_op"] = 1e6 * cpu / found["operations"]
    if found.get("decisions"):
        out["decisions"] = found["decisions"]
    times = found if found["operations"] else found["file_us"]
    out.update({key: times[key] for key in ("p50_us", "p99_us", "max_us")})
    if found.get("commits"):
        out["commit_us"] = found["commit_us"]["p50_us"]
    return out


def rate(found, cpu, unit):
    """The same with a rate as the value."""
    if unit == "MB/s":
        return figures(found, cpu, found["mb_s"], found["bytes"] / 1e9)
    if unit == "files/s":
        return figures(found, cpu, found["files_s"], found["files"] / 1e6)
    return figures(found, cpu, found["operations_s"], found["operations"] / 1e6)


class Job(Row):
    """Streams that share the bytes of --size divided by `part`. Without `timed`, a run is one pass over them."""

    is_short, needs_server = False, True

    def __init__(self, operation, unit="MB/s", streams=1, slots=8, block=1 << 20, pattern="sequential", stable="unstable", part=1, cold=False, timed=False, new=False):
        super().__init__(unit, "s/GB" if unit == "MB/s" else "us/op")
        self.operation, self.streams, self.slots, self.block, self.pattern = operation, streams, slots, block, pattern
        self.stable, self.part, self.cold, self.timed, self.new = stable, part, cold, timed, new

    def rows(self, name):
        return {name: self}

    def described(self):
        return {key: getattr(self, key) for key in ("operation", "streams", "slots", "block", "pattern", "stable", "cold")}

    def work(self, opt):
        return Work(self, opt)

    def prepare(self, _name, side, opt, done):
        """The files that the job finds there, each made once: sides that share a server share its files. Each side is checked with them."""
        work = self.work(opt)
        if self.new:
            return
        for key, action in (((work.path(), id(side.server or side)), side.fill), ((work.path(), side.name), side.check)):
            if key not in done:
                done.add(key)
                action(work)

    def measure(self, name, side, opt):
        work = self.work(opt)
        self.warm_up(side, work)
        return {name: rate(*side.run(work), self.unit)}

    def warm_up(self, side, work):
        if self.operation == "read":
            side.run(work.whole("read"))
        if self.cold:
            side.drop(work)
            side.run(work)          # not counted: its pages come from the host, and the next run finds them
            side.drop(work)


class Work:
    """A job with the sizes of this run."""

    command = "stream"

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
        length = ["--seconds", str(self.opt.seconds)] if self.job.timed else ["--bytes", str(self.bytes())]
        return ["--block", str(self.job.block), "--pattern", self.job.pattern] + length

    def bytes(self):
        """Of a run, for each stream."""
        return self.file_bytes() // (RANDOM_PART if self.job.pattern == "random" else 1)

    def options(self):
        return (self.file_options() + self.block_options() + ["--operation", self.job.operation, "--stable", self.job.stable]
                + (["--truncate"] if self.job.new else []))

    def whole(self, operation):
        """All bytes of the files once, in order."""
        return Whole(self, operation)


class Whole:
    command = "stream"

    def __init__(self, work, operation):
        self.work, self.operation, self.job, self.opt = work, operation, work.job, work.opt

    def __getattr__(self, name):
        return getattr(self.work, name)

    def block_options(self):
        return []

    def options(self):
        return self.work.file_options() + ["--operation", self.operation, "--verify"]


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
