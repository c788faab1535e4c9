"""The grid: 1 and 16 streams, requests of programs of 4 KiB to 16 MiB, in four kinds of access. All cells with as many streams share their files."""
from . import jobs

STREAMS = [1, 16]
BLOCKS = {"4k": 4 << 10, "16k": 16 << 10, "64k": 64 << 10, "256k": 256 << 10, "1m": 1 << 20, "4m": 4 << 20, "16m": 16 << 20}
QUICK = ["4k", "64k", "1m"]
KINDS = {"write": dict(operation="write", new=True), "cold": dict(operation="read", cold=True), "hot": dict(operation="read"),
         "random": dict(operation="read", pattern="random", cold=True)}
# Requests of programs in one run, of all streams together.
REQUESTS = 4096


# Of each stream, by their number.
SLOTS = {1: 16, 16: 4}


class Cell(jobs.Job):
    """A short run. Cold files are dropped before it once, hot ones are read into memory by the benchmark: then they are there in every mode."""

    is_short = True

    def __init__(self, streams, block, **kind):
        super().__init__(streams=streams, slots=SLOTS[streams], block=block, **kind)

    def work(self, opt):
        return CellWork(self, opt)

    def warm_up(self, side, work):
        if self.cold:
            side.drop(work)
        elif self.operation == "read":
            side.warm(work)


class CellWork(jobs.Work):
    def file_bytes(self):
        return max(self.opt.grid_size << 20, max(BLOCKS.values()) * self.job.streams) // self.job.streams

    def path(self):
        return "grid-%s-%d" % ("new" if self.job.new else "file", self.job.streams)

    def bytes(self):
        return min(super().bytes(), max(self.job.block, self.job.block * REQUESTS // self.job.streams))


def cells(blocks):
    return {"grid-%s-%dx%s" % (kind, streams, name): Cell(streams, BLOCKS[name], **how) for kind, how in KINDS.items() for streams in STREAMS for name in blocks}


JOBS = cells(BLOCKS)
QUICK_JOBS = list(cells(QUICK))
