"""Streams through a pool: at a pool host, and at a pool of one process, beside a bare sendfile loop over the same network.

The disk makes rates useless, so the figure is the CPU of the process that has the pool, for 10^9 bytes.
"""
import json, os, subprocess, sys

from macro import machine
from web import servers
from . import ends
from .cpu import load
from .report import differing, summary
from .setups import CLIENT

# Of the ends of the sendfile loop.
BOUND_OF = {"read": "cpu_s_per_gb", "write": "receive_cpu_s_per_gb"}
JOBS = {"read": "resident files, 1 MiB a READ, 8 in flight", "write": "an emptied file, 1 MiB a WRITE UNSTABLE, 8 in flight, ended by COMMIT"}


class Stream:
    """Files of one side, and the process that has their pool."""

    def __init__(self, side, opt):
        self.side, self.opt = side, opt
        self.name = "/stream"
        side.place_on([1])
        self.transfer("write", "--truncate")
        side.place_on_all()
        self.process = side.processes_of_pools()[0]

    def transfer(self, operation, *more):
        return load(self.side, "stream", "--path", self.name, "--operation", operation, "--file-bytes", self.opt.size << 20, *more)

    def run(self, job):
        more = ["--truncate"] if job == "write" else ["--seconds", self.opt.seconds]
        before, head = self.process.cpu_s(), self.side.cpu_s()
        found = self.transfer(job, *more)
        gb = found["bytes"] / 1e9
        return {"cpu_s_per_gb": (self.process.cpu_s() - before) / gb, "head_cpu_s_per_gb": (self.side.cpu_s() - head) / gb, "mb_s": found["mb_s"], "bytes": found["bytes"]}


class Sendfile:
    """The bound: a process on the host of a pool sends a resident file, another on the host of the client reads it into one buffer."""

    def __init__(self, network, host, scratch, opt):
        self.network, self.host, self.path = network, host, os.path.join(scratch, "sent")
        with open(self.path, "wb", buffering=0) as f:
            for _ in range(opt.size):
                f.write(os.urandom(1 << 20))

    def run(self, seconds):
        this = [sys.executable, "-B", ends.__file__]
        sender = subprocess.Popen(self.network.at(self.host) + servers.NICE + this + ["send", self.path, str(seconds)], stdout=subprocess.PIPE, text=True)
        receiver = subprocess.Popen(self.network.at(CLIENT) + servers.NICE + this + ["receive", self.network.address(self.host)], stdout=subprocess.PIPE, text=True)
        sent, received = (json.loads(process.communicate(timeout=120)[0]) for process in (sender, receiver))
        gb = sent["bytes"] / 1e9
        return {"cpu_s_per_gb": sent["cpu_s"] / gb, "receive_cpu_s_per_gb": received["cpu_s"] / gb, "mb_s": sent["bytes"] / 1e6 / sent["seconds"], "bytes": sent["bytes"]}


def measure(sides, network, scratch, opt):
    streams, calm = [Stream(side, opt) for side in sides], []
    bound = Sendfile(network, "host1", scratch, opt)
    runs = {job: {side.name: [] for side in sides} for job in JOBS}
    bounds = []
    for number in range(opt.rounds):
        for job in JOBS:
            for stream in streams if number % 2 == 0 else reversed(streams):
                busy = machine.wait_for_quiet(opt.quiet)
                calm.append({"figure": "streams", "job": job, "side": stream.side.name, "round": number, "busy_before": busy, "load": machine.load()})
                runs[job][stream.side.name].append(stream.run(job))
                said = "  ".join("%s %.4g" % pair for pair in runs[job][stream.side.name][-1].items())
                print("round %d %-5s %-7s busy before %.2f  %s" % (number + 1, job, stream.side.name, busy, said), file=sys.stderr, flush=True)
        bounds.append(bound.run(opt.seconds))
    return {"jobs": {job: dict({"work": JOBS[job]}, **summarised(by_side, [each[BOUND_OF[job]] for each in bounds])) for job, by_side in runs.items()},
            "sendfile": {key: summary([each[key] for each in bounds]) for key in bounds[0] if key != "bytes"}}, calm


def summarised(by_side, bound):
    """`bound`: in each round, CPU s/GB with which nothing but the bytes would be sent or received."""
    costs = {side: [each["cpu_s_per_gb"] for each in rounds] for side, rounds in by_side.items()}
    return {"sides": {side: {key: summary([each[key] for each in rounds]) for key in rounds[0] if key != "bytes"} for side, rounds in by_side.items()},
            "cluster_beside_one": differing(costs["cluster"], costs["one"]),
            "bound_share": {side: summary([least / cost for least, cost in zip(bound, costs[side])]) for side in costs}}
