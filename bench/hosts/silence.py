"""A pool that stops (SIGSTOP) and goes on: when the head notices, and how long each operation waits meanwhile.

Each operation has a client of its own that repeats it, so that none waits behind another. Times are of one answer: NFS4ERR_DELAY is an answer too, after which
a program waits on. `waits_s` is the time until an operation succeeded, by clients that ask again each PERIOD_S.
"""
import contextlib, signal, sys, threading, time

from macro import machine
from . import client as nfs, writers
from .report import at_most, summary

SILENT, OTHER = 1, 2
FILE_BYTES = 65536
# Long enough for the lease of 10.5 s and for calls that wait for its end.
STOPPED_S = 30
SETTLE_S, PERIOD_S, STATUS_PERIOD_S = 60, 0.1, 0.05
FILES, REMOVED = 16, 80
SOON_S = 2.0
READY, SUSPECT, OUT = "ready", "suspect", "out"
# Each takes a name away, of REMOVED.
CONSUMING, CONSUMING_PERIOD_S = ("rename-over-silent", "rm", "rm-silent"), 1.0
# With a bound for every answer while the pool is silent.
BOUNDED = ("ls", "ls-of-written", "df", "open", "stat", "create", "create-with-layout", "mkdir", "rename", "rename-silent", "rename-over-silent", "rm", "rm-silent")


class Scene:
    """Files on the pool that stops and on another one."""

    def __init__(self, cluster, number):
        self.cluster = cluster
        self.mount = nfs.Mount(cluster)
        self.root = self.mount.head.root()
        self.parent = self.mount.head.directory(self.root, "silence%d" % number)
        self.quiet = self.mount.head.directory(self.root, "quiet%d" % number)
        self.replaced = self.mount.head.directory(self.root, "replaced%d" % number)
        self.removed = self.mount.head.directory(self.root, "removed%d" % number)
        for pool in (SILENT, OTHER):
            cluster.place_on([pool])
            address = cluster.network.address("host%d" % pool)
            for parent, count in ((self.parent, FILES), (self.quiet, FILES), (self.removed, REMOVED), (self.replaced, REMOVED)):
                for n in range(count):
                    self.mount.write_file(parent, "p%d-%d" % (pool, n), bytes(FILE_BYTES))
            check = self.mount.opened(self.parent, "p%d-0" % pool, nfs.READING)
            assert check.pool_address()[0] == address, "files are not where they were placed"
            check.close()
        cluster.place_on_all()
        # A file is open with a layout to write while the pool is silent, by a client of its own.
        self.writing = nfs.Mount(cluster)
        self.written = self.writing.opened(self.parent, on(SILENT, 1), nfs.WRITING)
        self.written.write(0, bytes(FILE_BYTES))

    def close(self):
        with contextlib.suppress(nfs.Failed, OSError):
            self.written.close()
        self.mount.close()
        self.writing.close()


class Probe:
    """Repeats an operation by a client of its own: [begin, seconds, outcome] of each."""

    def __init__(self, scene, operate, period_s):
        self.scene, self.operate, self.period_s = scene, operate, period_s
        self.mount, self.found, self.state, self.under_way = nfs.Mount(scene.cluster), [], {}, None

    def run(self, stopped):
        number = 0
        while not stopped.is_set():
            began = time.monotonic()
            self.under_way = began
            try:
                self.operate(self, number)
                outcome = "OK"
            except nfs.Failed as failed:
                outcome = nfs.name_of(failed.status)
            except OSError as error:
                outcome = type(error).__name__
            self.found.append((began, time.monotonic() - began, outcome))
            self.under_way = None
            number += 1
            stopped.wait(self.period_s)

    def end(self):
        with contextlib.suppress(nfs.Failed, OSError):
            if "file" in self.state:
                self.state["file"].close()
        if "writer" in self.state:
            self.state["writer"].end()
        self.mount.close()

    def handle(self, name):
        """Of a file of the scene, looked up once, before the pool stops."""
        if name not in self.state:
            self.state[name] = self.mount.head.handle(self.scene.parent, name)
        return self.state[name]


def on(pool, n=0):
    return "p%d-%d" % (pool, n)


def list_quiet(probe, _):
    probe.mount.head.call(nfs.put_fh(probe.scene.quiet), nfs.read_directory())


def list_written(probe, _):
    probe.mount.head.call(nfs.put_fh(probe.scene.parent), nfs.read_directory())


def free_space(probe, _):
    probe.mount.head.call(nfs.words(nfs.PUTROOTFH), nfs.get_attributes(nfs.SPACE))


def stat_of(name):
    return lambda probe, _: probe.mount.head.call(nfs.put_fh(probe.scene.parent), nfs.look_up(name), nfs.get_attributes())


def stat_by_writer(probe, _):
    probe.scene.writing.head.call(nfs.put_fh(probe.scene.written.handle), nfs.get_attributes())


def open_of(name):
    def operate(probe, _):
        _, stateid, handle = probe.mount.head.call(nfs.put_fh(probe.scene.parent), nfs.open_file(name), nfs.words(nfs.GETFH))
        probe.mount.head.call(nfs.put_fh(handle), nfs.close_file(stateid))
    return operate


def layout_of(name):
    def operate(probe, _):
        _, stateid, handle = probe.mount.head.call(nfs.put_fh(probe.scene.parent), nfs.open_file(name), nfs.words(nfs.GETFH))
        try:
            layout = probe.mount.head.call(nfs.put_fh(handle), nfs.get_layout(stateid, nfs.READING))[-1]
            probe.mount.head.call(nfs.put_fh(handle), nfs.return_layout(layout.stateid))
        finally:
            probe.mount.head.call(nfs.put_fh(handle), nfs.close_file(stateid))
    return operate


def create(probe, number):
    _, stateid, handle = probe.mount.head.call(nfs.put_fh(probe.scene.root), nfs.open_file("new-%x-%d" % (id(probe), number), nfs.TO_READ_AND_WRITE, makes=True),
                                               nfs.words(nfs.GETFH))
    probe.mount.head.call(nfs.put_fh(handle), nfs.close_file(stateid))


def create_with_layout(probe, number):
    """OPEN and LAYOUTGET in one compound, as Linux sends them with the directory locked; the head chooses the pool."""
    _, stateid, handle, layout = probe.mount.head.call(
        nfs.put_fh(probe.scene.root), nfs.open_file("data-%x-%d" % (id(probe), number), nfs.TO_READ_AND_WRITE, makes=True), nfs.words(nfs.GETFH),
        nfs.get_layout(nfs.CURRENT, nfs.WRITING))
    probe.mount.head.call(nfs.put_fh(handle), nfs.return_layout(layout.stateid), nfs.close_file(stateid))


def make_directory(probe, number):
    probe.mount.head.call(nfs.put_fh(probe.scene.root), nfs.make_directory("dir-%x-%d" % (id(probe), number)))


def rename_file(pool, n):
    """To and fro, as two names of one file."""
    def operate(probe, number):
        old, new = (on(pool, n), on(pool, n) + "r")[::1 if number % 2 == 0 else -1]
        where = nfs.put_fh(probe.scene.parent)
        probe.mount.head.call(where, nfs.words(nfs.SAVEFH), where, nfs.rename(old, new))
    return operate


def rename_over(pool):
    """Another file takes the name of one that has data on the pool."""
    def operate(probe, number):
        where = nfs.put_fh(probe.scene.replaced)
        probe.mount.head.call(where, nfs.words(nfs.SAVEFH), where, nfs.rename(on(OTHER, number), on(pool, number)))
    return operate


def remove_files(pool):
    return lambda probe, number: probe.mount.head.call(nfs.put_fh(probe.scene.removed), nfs.remove(on(pool, number)))


def read_through_head(pool):
    return lambda probe, _: probe.mount.head.call(nfs.put_fh(probe.handle(on(pool))), nfs.read(nfs.ANONYMOUS, 0, FILE_BYTES))


def write_through_head(pool):
    return lambda probe, _: probe.mount.head.call(nfs.put_fh(probe.handle(on(pool, 2))), nfs.write(nfs.ANONYMOUS, 0, bytes(FILE_BYTES)))


def truncate(pool):
    return lambda probe, number: probe.mount.head.call(nfs.put_fh(probe.handle(on(pool, 3))), nfs.set_size(nfs.ANONYMOUS, 1000 + number))


def read_at_pool(pool):
    def operate(probe, _):
        if "file" not in probe.state:
            probe.state["file"] = probe.mount.opened(probe.scene.parent, on(pool), nfs.READING)
        probe.state["file"].read(0, FILE_BYTES)
    return operate


def write_at_pool(pool):
    """It gets its layout again if it is refused."""
    def operate(probe, _):
        if "writer" not in probe.state:
            probe.state["writer"] = writers.Writer(probe.scene.cluster, probe.scene.parent, on(pool, 14))
        probe.state["writer"].attempt()
    return operate


# By name. Those of a file on the silent pool end in `-silent`.
OPERATIONS = {
    "ls": list_quiet, "ls-of-written": list_written, "df": free_space,
    "stat": stat_of(on(OTHER)), "stat-silent": stat_of(on(SILENT)), "stat-written-silent": stat_of(on(SILENT, 1)), "stat-by-writer-silent": stat_by_writer,
    "open": open_of(on(OTHER)), "open-silent": open_of(on(SILENT)), "layout": layout_of(on(OTHER)), "layout-silent": layout_of(on(SILENT)),
    "create": create, "create-with-layout": create_with_layout, "mkdir": make_directory,
    "rename": rename_file(OTHER, 4), "rename-silent": rename_file(SILENT, 4), "rename-over-silent": rename_over(SILENT),
    "rm": remove_files(OTHER), "rm-silent": remove_files(SILENT),
    "read-at-pool": read_at_pool(OTHER), "write-at-pool": write_at_pool(OTHER), "read-at-pool-silent": read_at_pool(SILENT), "write-at-pool-silent": write_at_pool(SILENT),
    "read-through-head": read_through_head(OTHER), "write-through-head": write_through_head(OTHER),
    "read-through-head-silent": read_through_head(SILENT), "write-through-head-silent": write_through_head(SILENT), "truncate-silent": truncate(SILENT),
}


class Watch(threading.Thread):
    """When the head tells of another standing of the silent pool."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.changes, self.is_over = cluster, [], threading.Event()

    def run(self):
        while not self.is_over.is_set():
            standing = self.cluster.status()[SILENT]["standing"]
            if not self.changes or self.changes[-1][1] != standing:
                self.changes.append((time.monotonic(), standing))
            time.sleep(STATUS_PERIOD_S)

    def first(self, standing, after):
        return next((at for at, found in self.changes if found == standing and at >= after), None)


def measure(cluster, opt):
    rounds, calm = [], []
    for number in range(opt.silences):
        busy = machine.wait_for_quiet(opt.quiet)
        calm.append({"figure": "silence", "round": number, "busy_before": busy, "load": machine.load()})
        rounds.append(one_round(cluster, number, opt))
        said = "  ".join("%s %.1f s" % (key, rounds[-1][key]) for key in ("suspect_s", "out_s", "ready_again_s"))
        print("round %d silence busy before %.2f  %s" % (number + 1, busy, said), file=sys.stderr, flush=True)
    return dict(summarised(rounds), stopped_s=opt.stopped, rounds=[{key: each[key] for key in ("suspect_s", "out_s", "ready_again_s")} for each in rounds]), calm


def one_round(cluster, number, opt):
    scene, watch, stopped = Scene(cluster, number), Watch(cluster), threading.Event()
    probes = {name: Probe(scene, operate, CONSUMING_PERIOD_S if name in CONSUMING else PERIOD_S) for name, operate in OPERATIONS.items()}
    threads = [threading.Thread(target=probe.run, args=(stopped,), daemon=True) for probe in probes.values()]
    watch.start()
    for thread in threads:
        thread.start()
    time.sleep(2)
    process = cluster.pool_processes[SILENT - 1]
    began = time.monotonic()
    process.send(signal.SIGSTOP)
    try:
        time.sleep(opt.stopped)
        ended = time.monotonic()
    finally:
        process.send(signal.SIGCONT)
    cluster.wait_until_ready(SETTLE_S)
    again = watch.first(READY, ended) or time.monotonic()
    # The waits that are left: of Linux-like pauses none, for clients ask each 0.1 s.
    time.sleep(5)
    stopped.set()
    for thread in threads:
        thread.join(20)
    watch.is_over.set()
    watch.join()
    suspect, out = watch.first(SUSPECT, began), watch.first(OUT, began)
    found = {name: by_phase(probe, began, (suspect or ended, out or ended, ended)) for name, probe in probes.items()}
    for probe in probes.values():
        probe.end()
    scene.close()
    return {"suspect_s": (suspect or ended) - began, "out_s": (out or ended) - began, "ready_again_s": again - ended, "operations": found}


PHASES = ("before", "until_suspect", "until_out", "while_out", "after")


def by_phase(probe, began, ends):
    """Of answers by the phase in which they were asked for: number, longest time, outcomes; and the longest time without success."""
    bounds = (began,) + ends
    phase_of = lambda at: PHASES[sum(at >= bound for bound in bounds)]
    out = {}
    under_way = probe.under_way
    answers = probe.found + ([(under_way, time.monotonic() - under_way, "no answer")] if under_way else [])
    for at, seconds, outcome in answers:
        row = out.setdefault(phase_of(at), {"answers": 0, "longest_s": 0.0, "outcomes": {}})
        row["answers"] += 1
        row["longest_s"] = max(row["longest_s"], seconds)
        row["outcomes"][outcome] = row["outcomes"].get(outcome, 0) + 1
    return {"phases": out, "waits_s": longest_wait(answers, began), "longest_s": max(seconds for at, seconds, _ in answers if at + seconds >= began)}


def longest_wait(answers, began):
    """The longest time from the beginning of an attempt to a success, over attempts that failed, of those that end after `began`."""
    longest, since = 0.0, None
    for at, seconds, outcome in answers:
        since = at if since is None else since
        if outcome == "OK":
            if at + seconds >= began:
                longest = max(longest, at + seconds - since)
            since = None
    if since is not None:
        longest = max(longest, answers[-1][0] + answers[-1][1] - since)
    return longest


def summarised(rounds):
    out = {"suspect_s": summary([each["suspect_s"] for each in rounds]), "out_s": summary([each["out_s"] for each in rounds]),
           "ready_again_s": summary([each["ready_again_s"] for each in rounds]), "operations": {}}
    for name in rounds[0]["operations"]:
        each = [r["operations"][name] for r in rounds]
        phases = {}
        for phase in PHASES:
            rows = [e["phases"][phase] for e in each if phase in e["phases"]]
            if rows:
                outcomes = {}
                for row in rows:
                    for outcome, count in row["outcomes"].items():
                        outcomes[outcome] = outcomes.get(outcome, 0) + count
                phases[phase] = {"answers": sum(row["answers"] for row in rows), "longest_s": max(row["longest_s"] for row in rows), "outcomes": outcomes}
        out["operations"][name] = {"phases": phases, "longest_s": summary([e["longest_s"] for e in each]), "waits_s": summary([e["waits_s"] for e in each])}
        if name in BOUNDED:
            out["operations"][name]["target"] = at_most(max(e["longest_s"] for e in each), SOON_S)
    return out
