"""The levels of the create bench: what is measured, one way in for all.

A level has NAME, TITLE, MODES and CONSISTENCY; `Level(scratch, mode, consistency)` is a context manager that makes what is measured, fresh, and
`run(directories, creators, seconds)` answers a figure with the keys that README.md names, or a list of such. `missing()`
says why it cannot run here, or nothing.
"""
import importlib, json, os, subprocess, sys

from creates.modes import CONSISTENCY, ROOT, SYNC, binary, built
from web import servers

LOAD = os.environ.get("FOREBAY_BENCH_LOAD", os.path.join(ROOT, "target/release/forebay-load"))


def generate(argv, seconds):
    """One line of JSON by forebay-load, before whatever else runs on the machine."""
    done = subprocess.run(servers.NICE + [LOAD] + argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds + 120)
    if done.returncode != 0:
        raise SystemExit("forebay-load %s: %s" % (" ".join(argv), done.stderr.strip()))
    sys.stderr.write(done.stderr)
    return json.loads(done.stdout)


class Nfs(servers.Server):
    """Level (b): Forebay as a user would start it, and forebay-load over one connection on loopback."""

    NAME, TITLE, MODES, CONSISTENCY = "b", "through NFS, native client", list(SYNC), CONSISTENCY
    name = "forebay"
    binary = None

    def __init__(self, scratch, mode, consistency):
        super().__init__(scratch, mode)
        self.binary, self.mode = self.binary or binary(), mode
        self.config = os.path.join(self.home, "forebay.toml")
        with open(self.config, "w") as f:
            f.write('[namespace]\nsync = "%s"\nconsistency = "%s"\n[http]\nenabled = false\n[nfs]\nslots_max = 64\n' % (SYNC[mode], consistency))

    @staticmethod
    def missing():
        return built(binary(), "cargo build --release") or built(LOAD, "cargo build --release -p forebay-load")

    def command(self):
        return [self.binary, "up", "--data", os.path.join(self.home, "data"), "--nfs-port", str(self.port), "--pool-port", str(servers.free_port()),
                "--no-root-squash", "--config", self.config]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def run(self, directories, creators, seconds):
        cpu = self.cpu_s()
        found = generate(["nfs", "--server", "127.0.0.1:%d" % self.port, "--mode", self.mode, "--directory", directories,
                          "--creators", str(creators), "--seconds", str(seconds)], seconds)
        found["cpu_us_per_create"] = (self.cpu_s() - cpu) * 1e6 / max(1, found["creates"])
        return {**found, "level": self.NAME}


def before(binary):
    """Level (b) by another binary, to compare two commits in one run."""
    return type("Before", (Nfs,), {"NAME": "before", "TITLE": Nfs.TITLE + ", by the binary of --before", "binary": os.path.abspath(binary)})


class Engine:
    """Level (a): the namespace crate in a process of its own."""

    NAME, TITLE, MODES, CONSISTENCY = "a", "the namespace alone", list(SYNC), CONSISTENCY

    def __init__(self, scratch, mode, consistency):
        self.home, self.mode, self.consistency = os.path.join(scratch, mode), mode, consistency

    @staticmethod
    def missing():
        return built(LOAD, "cargo build --release -p forebay-load")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """The process has ended with its run."""

    def run(self, directories, creators, seconds):
        return generate(["namespace", "--namespace", "sqlite:" + self.home, "--sync", SYNC[self.mode], "--mode", self.mode,
                         "--consistency", self.consistency, "--directory", directories, "--creators", str(creators), "--seconds", str(seconds)], seconds)


class Clustered:
    """A level that runs on a PostgreSQL cluster of its own."""

    MODES = list(SYNC)

    def __init__(self, scratch, mode, consistency):
        self.module, self.mode, self.consistency = importlib.import_module("creates.pgbench"), mode, consistency

    @staticmethod
    def missing():
        try:
            importlib.import_module("creates.pgbench").installed()
        except SystemExit as reason:
            return str(reason)

    def __enter__(self):
        self.cluster = self.module.Cluster().__enter__()
        return self

    def __exit__(self, *what):
        self.cluster.__exit__(*what)


class EngineOnPostgres(Clustered):
    """Level (p): the namespace crate in a process of its own, its names in PostgreSQL."""

    NAME, TITLE, CONSISTENCY = "p", "the namespace alone, on PostgreSQL", CONSISTENCY

    @staticmethod
    def missing():
        return Engine.missing() or Clustered.missing()

    def run(self, directories, creators, seconds):
        before, cpu = self.cluster.fdatasync_us(), self.cluster.cpu_s()
        found = generate(["namespace", "--namespace", self.cluster.url(), "--sync", SYNC[self.mode], "--mode", self.mode,
                          "--consistency", self.consistency, "--directory", directories, "--creators", str(creators), "--seconds", str(seconds)], seconds)
        cpu = self.cluster.cpu_s() - cpu
        # The head's share is reported apart: the database may be on another machine. The file system here bounds neither.
        for name in "bound_rate", "bound_share":
            found.pop(name, None)
        head = found["cpu_us_per_create"]
        return {**found, "level": self.NAME, "head_cpu_us": head, "cpu_us_per_create": round(head + cpu * 1e6 / max(1, found["creates"]), 1),
                "fdatasync_us": {"before": before, "after": self.cluster.fdatasync_us()}}


class Chimera(Clustered):
    """The peer of level (p): dCache's statements by pgbench."""

    NAME, TITLE, CONSISTENCY = "pgbench", "PostgreSQL, dCache's statements", ["strong"]

    def run(self, directories, creators, seconds):
        return self.module.run(self.cluster, self.mode, directories, creators, max(1, round(seconds)))


def kernel_clients():
    """Level (c) is a module of its own, with a class of the same face."""
    try:
        return [importlib.import_module("creates.mdtest").Level]
    except (ImportError, AttributeError):
        return []


def known():
    return {level.NAME: level for level in [Engine, Nfs, EngineOnPostgres, Chimera] + kernel_clients()}
