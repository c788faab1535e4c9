"""CPU of the process that clients mount, per operation: the head of a cluster beside one process with its own pools.

Such comparisons are noisy. So the sides take turns of a fraction of a second, and a round is the median of many turns. A second process like the first
tells how far two equal sides differ. The CPU clock of a process is exact to the nanosecond, so ticks do not matter.
"""
import itertools, json, statistics, subprocess, sys, time

from macro import machine
from streams.sides import LOAD
from web import servers
from . import client as nfs
from .report import compared, differing, summary
from .setups import CLIENT

FILES, FILE_BYTES = 512, 4096
WRITTEN_BYTES, STREAMS = 65536, 4
AT_ONCE, LISTS_AT_ONCE = 32, 4
IDLE_S = 5
GOAL = 0.02
# Of a turn that finds out how many operations a turn shall have.
TRIAL = {"open": 1024, "stat": 1024, "list": 32, "create": 512, "write": 64}
# New files of a turn: not so many that the disk is the subject, and so many that the sessions of forebay-load do not count.
COUNT_MIN, COUNT_MAX = {"write": 256}, {"create": 4096, "write": 1024}


def load(setup, command, *options, timeout_s=600):
    """One line of forebay-load on the client's host."""
    argv = setup.network.at(CLIENT) + servers.NICE + [LOAD, command, "--server", "%s:%d" % setup.address, *map(str, options)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout_s)
    if done.returncode:
        raise SystemExit("forebay-load %s: %s" % (" ".join(argv[-12:]), done.stderr.strip()))
    found = json.loads(done.stdout)
    if found.get("errors"):
        raise SystemExit("forebay-load %s: %s" % (command, found["errors"]))
    return found


class Worker:
    """A client of one side with its files."""

    def __init__(self, setup):
        self.setup, self.session, self.numbers = setup, setup.session(), itertools.count()
        self.root = self.session.root()
        self.parent = self.session.directory(self.root, "cpu")
        load(setup, "files", "--path", "/cpu/f", "--operation", "write", "--files", FILES, "--file-bytes", FILE_BYTES, "--stable", "file-sync")
        self.names = ["f"] + ["f-%d" % n for n in range(1, FILES)]

    def restart(self):
        """The servers start anew, and the client comes again. Handles stay."""
        self.session.close()
        self.setup.restart()
        self.session = self.setup.session()

    def turn(self, job, count):
        return getattr(self, "turn_of_" + job)(count)

    def batches(self, count):
        names = itertools.cycle(self.names)
        for _ in range(count // AT_ONCE):
            yield [next(names) for _ in range(AT_ONCE)]

    def turn_of_open(self, count):
        """OPEN of a file that exists, with its layout to read, and CLOSE: the two compounds of Linux."""
        every = nfs.words(nfs.ACCESS, 0x3F)
        for names in self.batches(count):
            found = self.session.batch([(nfs.put_fh(self.parent), nfs.open_file(name), nfs.words(nfs.GETFH), every, nfs.get_attributes(),
                                         nfs.get_layout(nfs.CURRENT, nfs.READING)) for name in names])
            self.session.batch([(nfs.put_fh(handle), nfs.return_layout(layout.stateid), nfs.close_file(stateid))
                                for _, stateid, handle, _, _, layout in found])

    def turn_of_stat(self, count):
        for names in self.batches(count):
            self.session.batch([(nfs.put_fh(self.parent), nfs.look_up(name), nfs.words(nfs.GETFH), nfs.get_attributes()) for name in names])

    def turn_of_list(self, count):
        """A listing of the directory with all attributes, in one READDIR."""
        for _ in range(count // LISTS_AT_ONCE):
            self.session.batch([(nfs.put_fh(self.parent), nfs.read_directory())] * LISTS_AT_ONCE)

    def turn_of_create(self, count):
        """OPEN that creates and CLOSE, in a new directory."""
        parent = self.session.directory(self.root, "create%d" % next(self.numbers))
        number, every = itertools.count(), nfs.words(nfs.ACCESS, 0x3F)
        for _ in range(count // AT_ONCE):
            found = self.session.batch([(nfs.put_fh(parent), nfs.open_file("n%d" % next(number), nfs.TO_READ_AND_WRITE, makes=True), nfs.words(nfs.GETFH), every,
                                         nfs.get_attributes()) for _ in range(AT_ONCE)])
            self.session.batch([(nfs.put_fh(handle), nfs.close_file(stateid)) for _, stateid, handle, _, _ in found])

    def turn_of_write(self, count):
        """New files of 64 KiB through pNFS: OPEN, LAYOUTGET, WRITE and COMMIT at the pool, LAYOUTCOMMIT, LAYOUTRETURN, CLOSE."""
        name = "write%d" % next(self.numbers)
        self.session.directory(self.root, name)
        load(self.setup, "files", "--path", "/%s/f" % name, "--operation", "write", "--streams", STREAMS, "--files", count // STREAMS,
             "--file-bytes", WRITTEN_BYTES)


JOBS = {"open": "opens with layout to read, and closes", "stat": "LOOKUP and GETATTR", "list": "listings of %d entries with attributes" % FILES,
        "create": "empty files", "write": "new files of 64 KiB through pNFS"}


def measure(sides, opt):
    """`sides`: one process, the cluster, and the control. All start anew for each round: two processes of one program differ by their luck with memory."""
    workers = [Worker(side) for side in sides]
    jobs = [job for job in JOBS if job in opt.cpu_jobs]
    counts = {job: enough(workers[0], job, opt.turn_cpu) for job in jobs}
    rounds, idle, calm = {job: [] for job in jobs}, {}, []
    for number in range(opt.rounds):
        for worker in workers:
            worker.restart()
        for job in jobs:
            for worker in workers:
                worker.turn(job, TRIAL[job])
            busy = machine.wait_for_quiet(opt.quiet)
            calm.append({"figure": "cpu", "job": job, "round": number, "busy_before": busy, "load": machine.load()})
            rounds[job].append(one_round(workers, job, counts[job], opt.turns))
            print("round %d cpu %-7s busy before %.2f  %s" % (number + 1, job, busy, "  ".join("%s %.2f us" % pair for pair in rounds[job][-1].items())),
                  file=sys.stderr, flush=True)
    for worker in workers:
        idle[worker.setup.name] = idle_cpu(worker.setup)
        worker.session.close()
    out = {job: dict({"work": JOBS[job], "operations_per_turn": counts[job]}, **verdict_of(rounds[job])) for job in jobs}
    return {"jobs": out, "idle_cpu_us_per_s": idle, "turns": opt.turns, "goal": GOAL}, calm


def enough(worker, job, cpu_s):
    """So many operations that one process works for about `cpu_s`."""
    worker.turn(job, TRIAL[job])
    before = worker.setup.cpu_s()
    worker.turn(job, TRIAL[job])
    each = (worker.setup.cpu_s() - before) / TRIAL[job]
    step = LISTS_AT_ONCE if job == "list" else AT_ONCE
    return max(COUNT_MIN.get(job, step), min(COUNT_MAX.get(job, 1 << 20), round(cpu_s / max(each, 1e-7))) // step * step)


def one_round(workers, job, count, turns):
    """us per operation, the median of the turns. The order of the sides turns with every turn, there and back."""
    spent = {name: [] for name in [worker.setup.name for worker in workers] + ["pools"]}
    for turn in range(turns):
        first = turn % len(workers)
        order = workers[first:] + workers[:first]
        for worker in order if turn // len(workers) % 2 == 0 else reversed(order):
            head, pools = worker.setup.cpu_s(), worker.setup.pools_cpu_s()
            worker.turn(job, count)
            spent[worker.setup.name].append(worker.setup.cpu_s() - head)
            if worker.setup.pool_processes:
                spent["pools"].append(worker.setup.pools_cpu_s() - pools)
    return {name: 1e6 * statistics.median(costs) / count for name, costs in spent.items() if costs}


def verdict_of(rounds):
    one, cluster, again, pools = ([each[name] for each in rounds] for name in ("one", "cluster", "again", "pools"))
    control = differing(again, one)
    everything = [a + b for a, b in zip(cluster, pools)]
    return {"unit": "us", "one": summary(one), "again": summary(again), "cluster": summary(cluster), "pools": summary(pools),
            "head": compared(cluster, one, GOAL, control["difference"]), "control": control, "with_pools": differing(everything, one)}


def idle_cpu(side):
    before, pools = side.cpu_s(), side.pools_cpu_s()
    time.sleep(IDLE_S)
    return {"head": 1e6 * (side.cpu_s() - before) / IDLE_S, "pools": 1e6 * (side.pools_cpu_s() - pools) / IDLE_S}
