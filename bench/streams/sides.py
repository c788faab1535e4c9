"""The ways to the bytes of a file that are compared. A side is a server -- a binary and lines of its configuration -- and
the path that requests take to it; `sendfile` is the bound and has no server.

To add a mode of the I/O engine, add a row to `SIDES`, or give its lines as `--with NAME=FILE`.
"""
import contextlib, json, os, shlex, shutil, subprocess, sys, time

from creates.modes import ROOT, binary, built
from macro.sides import BEFORE
from web import servers

LOAD = os.environ.get("FOREBAY_BENCH_LOAD", os.path.join(ROOT, "target/release/forebay-load"))
TIMEOUT_S = 600
RECEIVED_BYTES = 64 << 20
# The clock of a process in Linux's numbers of clocks (CPUCLOCK_SCHED in linux/posix-timers.h).
CPUCLOCK_SCHED = 2


class OneProcess(servers.Server):
    """`made`: by the path of a job, the files that hold its bytes; a server that keeps them under names of its own is not asked for these."""

    def __init__(self, scratch, name):
        super().__init__(scratch, name)
        self.made, self.group = {}, None

    def stop(self):
        super().stop()
        if self.group:
            self.group.remove()

    def start(self):
        super().start()
        go_first(self.process)

    def cpu_s(self):
        """Of the process, by its CPU clock in nanoseconds: the clock that /proc shows has ticks of 10 ms, too coarse for one pass over a file."""
        return time.clock_gettime(~self.process.pid << 3 | CPUCLOCK_SCHED)


class ForebayServer(OneProcess):
    def __init__(self, scratch, name, binary, lines):
        super().__init__(scratch, name)
        self.name, self.binary, self.data, self.decided = name, binary, os.path.join(self.home, "data"), None
        self.config = os.path.join(self.home, "forebay.toml")
        with open(self.config, "w") as f:
            f.write("[http]\nenabled = false\n" + lines)

    def command(self):
        return [self.binary, "up", "--data", self.data, "--nfs-port", str(self.port), "--pool-port", str(servers.free_port()),
                "--no-root-squash", "--config", self.config]


    def decisions(self):
        """Operations and bytes by kind, mode and reason since the start; `None` of a binary that does not count them."""
        argv = [self.binary, "pool", "iostat", "--data", self.data, "--json"]
        answer = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S)
        if answer.returncode:
            return None
        rows = (row for pool in json.loads(answer.stdout)["pools"] for row in pool["decisions"])
        return {(row["kind"], row["mode"], row["reason"]): (row["operations"], row["bytes"]) for row in rows}

    def count_decisions(self):
        """From now on `new_decisions` has those of each run."""
        self.decided = self.decisions()

    def new_decisions(self):
        earlier, self.decided = self.decided, self.decisions()
        return growth(earlier, self.decided)

    def calibrate(self):
        """The sizes from which the pool leaves the page cache, measured now."""
        argv = [self.binary, "pool", "calibrate", "pool-0", "--data", self.data, "--json"]
        for _ in range(100):      # it answers NFS first
            if os.path.exists(os.path.join(self.data, "control.sock")):
                break
            time.sleep(0.1)
        return json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S).stdout)["sizes"]


class GaneshaServer(OneProcess):
    name = "nfs-ganesha"

    def __init__(self, scratch):
        from driver.server import Ganesha
        super().__init__(scratch, self.name)
        self.server = Ganesha(self.home, port=self.port)

    def command(self):
        return shlex.split(self.server.command())


class Side:
    """Read and written by forebay-load through NFS."""

    def __init__(self, name, durability, through="pool", minor_version=2):
        self.name, self.durability, self.through, self.minor_version = name, durability, through, minor_version
        self.server = None

    # Of the workload `alone`: the name that forebay-load has for the way to choose, and the pool without a server.
    mode, alone = None, None

    def can(self, job):
        return job.needs_server or self.mode is not None

    def count_decisions(self):
        """Only the engine of a pool decides."""

    def described(self):
        return {"durability": self.durability, "through": self.through}

    def stop(self):
        if self.server:
            self.server.stop()

    def run(self, work):
        """The line of forebay-load, and CPU seconds of the server. `machine_cpu_s` is that of the whole machine without forebay-load: the server
        and the threads of the kernel that write back for it, and whatever else runs."""
        argv = [work.command, "--server", "127.0.0.1:%d" % self.server.port, "--through", self.through, "--minor-version", str(self.minor_version)]
        machine, before = machine_cpu_s(), self.server.cpu_s()
        found = generate(argv + work.options())
        cpu = self.server.cpu_s() - before
        return dict(found, machine_cpu_s=max(cpu, machine_cpu_s() - machine - found["cpu_s"])), cpu

    def fill(self, work):
        """Makes the files that a job finds there."""
        before = set(files_below(self.server.home))
        self.run(work.whole("write"))
        made = [path for path in files_below(self.server.home) if path not in before and os.path.getsize(path) == work.file_bytes()]
        if len(made) != len(work.names()):
            raise SystemExit("%s: %d files hold the bytes of %s" % (self.name, len(made), work.path()))
        self.server.made[work.path()] = made

    def check(self, work):
        """Compares them with what was written."""
        self.run(work.whole("read"))

    def drop(self, work):
        drop_pages(self.server.made[work.path()])

    def warm(self, work):
        load_pages(self.server.made[work.path()])

    def drop_all(self):
        """Every file of the server, data and names."""
        drop_pages(self.files())

    def files(self):
        return list(files_below(self.server.home))


class ForebaySide(Side):
    def __init__(self, name, lines="", through="pool", binary=None, is_calibrated=False, mode=None):
        super().__init__(name, "UNSTABLE: at the pool, and not on disk until COMMIT. FILE_SYNC: bytes are on disk (fdatasync).", through)
        self.lines, self.binary, self.is_calibrated, self.sizes, self.mode = lines, binary, is_calibrated, None, mode

    def run(self, work):
        found, cpu = super().run(work)
        return (dict(found, decisions=self.server.new_decisions()) if self.server.decided is not None else found), cpu

    def count_decisions(self):
        if self.server:
            self.server.count_decisions()

    def described(self):
        alone = {"alone": self.alone.described()} if self.alone else {}
        return dict(super().described(), configuration=self.lines, calibrated=self.sizes, **alone)

    def missing(self):
        self.binary = os.path.abspath(self.binary or binary())
        return built(self.binary, "cargo build --release")

    def start(self, scratch, started):
        """Sides that differ in the path only share one server, and so its files."""
        key = (self.binary, self.lines, self.is_calibrated)
        if key not in started:
            started[key] = ForebayServer(scratch, self.name, self.binary, self.lines)
            started[key].start()
        self.server = started[key]
        if self.is_calibrated:
            self.sizes = self.server.calibrate()
            print("%s: %s" % (self.name, json.dumps(self.sizes)), file=sys.stderr, flush=True)


class GaneshaSide(Side):
    def __init__(self):
        super().__init__("nfs-ganesha", "UNSTABLE: in the page cache until COMMIT. FILE_SYNC: bytes are on disk (fsync).", through="head", minor_version=1)

    def missing(self):
        return None if shutil.which("ganesha.nfsd") else "nfs-ganesha is not installed"

    def start(self, scratch, _started):
        self.server = GaneshaServer(scratch)
        self.server.start()


class SendfileSide:
    """The bound of reading: sendfile(2) over loopback TCP, and nothing else."""

    name, durability, server, mode = "sendfile", "none", None, None

    def missing(self):
        return None

    def can(self, job):
        """It has one request under way: of random reads of a disk it is no bound."""
        return job.needs_server and job.operation == "read" and not (job.cold and job.pattern == "random")

    def described(self):
        return {"durability": self.durability}

    def start(self, scratch, _started):
        self.home = os.path.join(scratch, self.name)
        os.makedirs(self.home)

    def stop(self):
        """It has no server."""

    def count_decisions(self):
        """Nor does it decide."""

    def files(self, work):
        return [os.path.join(self.home, name) for name in work.names()]

    def run(self, work):
        argv = ["sendfile"]
        for path in self.files(work):
            argv += ["--file", path]
        found = generate(argv + work.block_options())
        cpu_s = found["cpu_s"] - found["sender_cpu_s"]
        return dict(found, cpu_s=cpu_s, machine_cpu_s=found["sender_cpu_s"]), found["sender_cpu_s"]

    def fill(self, work):
        block = os.urandom(1 << 20)
        for path in self.files(work):
            with open(path, "wb", buffering=0) as f:
                while f.tell() < work.file_bytes():
                    f.write(block[:work.file_bytes() - f.tell()])

    def check(self, _work):
        """Nothing but the kernel could have changed them."""

    def drop(self, work):
        drop_pages(self.files(work))

    def warm(self, work):
        load_pages(self.files(work))


SIDES = [ForebaySide("forebay"), ForebaySide("forebay-head", through="head"), SendfileSide(), GaneshaSide()]
# How the engine chooses, for `--modes`. Without a calibration `auto` is buffered.
MODES = [ForebaySide("calibrated", is_calibrated=True, mode="calibrated")] + [
    ForebaySide(mode, '[pools]\nio = "%s"\n' % mode, mode=mode) for mode in ("buffered", "uncached", "direct", "paper", "beegfs")]


def chosen(opt):
    """`--before` alone sets two binaries of ours and the bound beside each other. Sides of `--with` always take part."""
    before = [ForebaySide(BEFORE, binary=opt.before)] if opt.before else []
    wanted = opt.side or ([s.name for s in MODES] if opt.modes else ["forebay", "sendfile"] if opt.before else [s.name for s in SIDES])
    if unknown := set(wanted) - {s.name for s in SIDES + MODES}:
        raise SystemExit("bench/engine: no such side: %s" % " ".join(sorted(unknown)))
    return [s for s in SIDES + MODES if s.name in wanted] + before + [further(text) for text in opt.further]


def further(text):
    name, _, path = text.partition("=")
    with open(path) as f:
        return ForebaySide(name, f.read())


def generate(argv):
    client = subprocess.Popen(servers.NICE + [LOAD] + argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    go_first(client)
    try:
        out, errors = client.communicate(timeout=TIMEOUT_S)
    finally:
        client.kill()
    if client.returncode:
        raise SystemExit("forebay-load %s: %s" % (" ".join(argv), errors.strip()))
    found = json.loads(out)
    if found["errors"]:
        raise SystemExit("forebay-load %s: %s" % (" ".join(argv), found["errors"]))
    return found


def receiving(scratch):
    """CPU seconds for 10^9 bytes of a receiver that only reads from its socket. No server that is written to can do with less."""
    path = os.path.join(scratch, "received")
    with open(path, "wb") as f:
        f.write(bytes(RECEIVED_BYTES))
    found = generate(["sendfile", "--file", path, "--bytes", str(4 * RECEIVED_BYTES)])
    os.unlink(path)
    return round((found["cpu_s"] - found["sender_cpu_s"]) * 1e9 / found["bytes"], 4)


def go_first(process):
    """Where sessions share the CPUs by groups of their own (sched_autogroup_enabled), `nice` counts within a session only."""
    with contextlib.suppress(OSError), open("/proc/%d/autogroup" % process.pid, "w") as f:
        f.write("-15")


def growth(earlier, later):
    """Of counts by decision, most bytes first."""
    out = []
    for (kind, mode, reason), counts in (later or {}).items():
        operations, bytes = (new - old for new, old in zip(counts, earlier.get((kind, mode, reason), (0, 0))))
        if operations:
            out.append({"kind": kind, "mode": mode, "reason": reason, "operations": operations, "bytes": bytes})
    return sorted(out, key=lambda row: -row["bytes"])


def machine_cpu_s():
    """Of all processes and of the kernel since the start of the machine; the clock has ticks of 10 ms."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq = map(int, f.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / servers.TICKS_PER_S


def files_below(home):
    for place, _, names in os.walk(home):
        yield from filter(os.path.isfile, (os.path.join(place, name) for name in names))


def drop_pages(paths):
    """Takes files out of the page cache, without root: what is written must be on disk for that."""
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:      # removed meanwhile
            continue
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def load_pages(paths):
    """Reads files into the page cache."""
    buffer = bytearray(1 << 20)
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            while f.readinto(buffer):
                pass
