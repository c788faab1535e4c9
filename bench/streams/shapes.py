"""The shapes of I/O of known benchmarks and programs. Each run has new files, which are removed after it, so that no server knows them."""
import os, re, shutil, subprocess

from . import jobs

RANKS = 16
# A client of many streams has fewer requests of each under way.
SLOTS = ["--slots", "4"]
IOR_HARD_BYTES = 47008
# The header of an HDF5 file that VPIC-IO writes, and of a field file of Nek5000.
VPIC_OFFSET, NEK_OFFSET = 2104, 136
# Blocks by length and weight: the headers and indices of a field file, and its fields.
NEK_MIXTURE, NEK_RANKS = "4096:4,32768:3,262144:2,2097152:1", 4
MDTEST_HARD_BYTES = 3091
# Of the comparison of bytes, by the sizes that a run of so many bytes has.
CHECKED_BYTES = 64 << 20


class ShapeRow(jobs.Row):
    def __init__(self, about, unit="MB/s"):
        super().__init__(unit, "s/GB" if unit == "MB/s" else "us/op")
        self.about = about

    def described(self):
        return {"about": self.about}


class Shape:
    """Written; with `reads`, dropped from memory and read in the same way."""

    operation, is_short, needs_server = "mixture", False, True

    def __init__(self, about, command, reads=True):
        self.about, self.command, self.reads = about, command, reads

    def rows(self, name):
        return {"%s-%s" % (name, operation): ShapeRow("%s: %s" % (operation, self.about)) for operation in self.operations()}

    def operations(self):
        return ("write", "read") if self.reads else ("write",)

    def prepare(self, name, side, opt, _done):
        """Compares the bytes of a small run. Each other run makes its files as well."""
        path = "check-" + name
        for operation in ("write", "read"):
            work = self.command(operation, path, min(CHECKED_BYTES, opt.size << 20))
            side.run(jobs.Command(work.command, work.options() + ["--verify"]))
        self.remove(side, path, work)

    def remove(self, side, path, work):
        side.run(jobs.files("remove", path, 1, 1 if "--shared" in work.options() else RANKS))

    def measure(self, name, side, opt):
        path, found = "shape-" + name, {}
        for operation in self.operations():
            if operation == "read":
                side.drop_all()
            work = self.command(operation, path, opt.size << 20)
            before = set(side.files())
            found["%s-%s" % (name, operation)] = figures = jobs.rate(*side.run(work), "MB/s")
            if operation == "write" and (count := extents(path for path in side.files() if path not in before)) is not None:
                figures["extents"] = count
        self.remove(side, path, work)
        return found


class SmallFiles:
    """mdtest-hard: files are written, read at once, and removed."""

    operation, is_short, needs_server = "mixture", False, True
    about = {"write": "FILE_SYNC", "read": "just after that, as the writing has left them in memory or not", "remove": "one after the other"}

    def rows(self, name):
        return {"%s-%s" % (name, operation): ShapeRow("%s: %d files at once of %d bytes in one directory, %s" % (operation, RANKS, MDTEST_HARD_BYTES, about), "files/s")
                for operation, about in self.about.items()}

    def prepare(self, name, side, _opt, _done):
        for operation in self.about:
            side.run(small_files(operation, "check-" + name, RANKS, ["--verify"]))

    def measure(self, name, side, opt):
        works = {operation: small_files(operation, "shape-" + name, opt.files) for operation in self.about}
        return {"%s-%s" % (name, operation): jobs.rate(*side.run(work), "files/s") for operation, work in works.items()}


def small_files(operation, path, count, more=()):
    return jobs.files(operation, path, MDTEST_HARD_BYTES, RANKS, ["--files", str(max(1, count // RANKS)), "--stable", "file-sync", *more])


def ior_easy(operation, path, total):
    return jobs.files(operation, path, total // 2 // RANKS, RANKS, SLOTS)


def ior_hard(operation, path, total):
    round_bytes = RANKS * IOR_HARD_BYTES
    return shared(operation, path, total // 4 // round_bytes * round_bytes, RANKS,
                  ["--pattern", "strided", "--block", str(IOR_HARD_BYTES), "--stride", str(round_bytes)])


def vpic(block):
    def command(operation, path, total):
        return shared(operation, path, VPIC_OFFSET + total // 4, RANKS, ["--segments", "--offset", str(VPIC_OFFSET), "--block", str(block)])
    return command


def nek(operation, path, total):
    return shared(operation, path, NEK_OFFSET + total // 4, NEK_RANKS,
                  ["--segments", "--offset", str(NEK_OFFSET), "--pattern", "mixed", "--mixture", NEK_MIXTURE])


def shared(operation, path, file_bytes, count, more):
    return jobs.streams(operation, path, file_bytes, count, SLOTS + ["--shared"] + more)


def extents(paths):
    """Of these files, as the file system has them; `None` if it cannot tell."""
    big = [path for path in paths if os.path.isfile(path) and os.path.getsize(path) >= 1 << 20]
    if not big or not shutil.which("filefrag"):
        return None
    found = subprocess.run(["filefrag"] + big, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    counts = [int(count) for count in re.findall(r": (\d+) extents? found", found.stdout)]
    return sum(counts) if len(counts) == len(big) else None


JOBS = {
    "ior-easy": Shape("%d files at once, a stream each, 1 MiB a request" % RANKS, ior_easy),
    "ior-hard": Shape("one file, %d streams in turn, %d bytes a request" % (RANKS, IOR_HARD_BYTES), ior_hard),
    "vpic-32k": Shape("one file, a segment for each of %d streams, 32 KiB a request, from offset %d" % (RANKS, VPIC_OFFSET), vpic(32 << 10), reads=False),
    "vpic-1m": Shape("the same, 1 MiB a request", vpic(1 << 20), reads=False),
    "nek5000": Shape("one file, a segment for each of %d streams, blocks of 4 KiB to 2 MiB, from offset %d" % (NEK_RANKS, NEK_OFFSET), nek),
    "mdtest-hard": SmallFiles(),
}
